//! The wire of OpenPMIx 4.1, as the client library of Open MPI speaks it: a front end on the engine,
//! as a state machine. Bytes in; requests of the engine, and bytes, out.
//!
//! What a process puts is one buffer for those on its node and one for the others; both are opaque
//! here, and lie on its card. A fence spreads nothing: cards are fetched when they are needed.
//! Events are accepted from these clients, and not yet delivered to them.

use crate::{
    Entry, Error, Node, Proc, Scope, Value,
    job::JobMap,
    message::{Answer, Request},
    status,
};
use std::{collections::BTreeMap, io};

/// The longest message of a client.
const MAX_MESSAGE: usize = 16 << 20;
/// The version that is told to clients, which choose their formats by it.
pub(crate) const VERSION: &str = "4.2.2";
/// What lies on the card for processes of the same node, and of others.
const LOCAL: &str = "pmix41.local";
const REMOTE: &str = "pmix41.remote";
const HEADER: usize = 16;

/// What a message, or an answer, leads to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Bytes to the client.
    Say(Vec<u8>),
    /// A request of the engine, whose answer goes to [`Session::answered`] with this number.
    Ask(u64, Request),
}

/// What an answer of the engine is for.
#[derive(Clone, Debug)]
enum Waits {
    Hello,
    /// A status goes back under this tag.
    Status(u32),
    Card(u32, Proc, &'static str),
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Session {
    node: Node,
    rank: Option<u32>,
    next: u64,
    waits: BTreeMap<u64, Waits>,
}

/// The types of values that job data has.
#[derive(Clone, Debug)]
enum Typed<'a> {
    Text(&'a str),
    U16(u16),
    U32(u32),
    Rank(u32),
    Bytes(Vec<u8>),
    Array(Vec<(&'a str, Typed<'a>)>),
}

/// An unsigned number: seven bits a byte, the least first; the ninth byte is a whole one.
fn put_unsigned(out: &mut Vec<u8>, mut number: u64) {
    let mut bytes = 0;
    while number > 0x7f && bytes < 8 {
        out.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
        bytes += 1;
    }
    out.push(number as u8);
}

fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_unsigned(out, ((number << 1) ^ (number >> 63)) as u64);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_signed(out, text.len() as i64 + 1);
    out.extend(text.as_bytes());
    out.push(0);
}

fn put_pair(out: &mut Vec<u8>, key: &str, value: &Typed<'_>) {
    put_signed(out, 1);
    put_text(out, key);
    put_unsigned(out, value.kind());
    value.put(out);
}

impl Typed<'_> {
    fn kind(&self) -> u64 {
        match self {
            Typed::Text(_) => 3,
            Typed::U16(_) => 13,
            Typed::U32(_) => 14,
            Typed::Bytes(_) => 27,
            Typed::Array(_) => 39,
            Typed::Rank(_) => 40,
        }
    }

    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Typed::Text(text) => put_text(out, text),
            Typed::U16(number) => put_unsigned(out, u64::from(*number)),
            Typed::U32(number) | Typed::Rank(number) => put_unsigned(out, u64::from(*number)),
            Typed::Bytes(bytes) => {
                put_unsigned(out, bytes.len() as u64);
                out.extend(bytes);
            }
            Typed::Array(infos) => {
                // An array of infos: key, flags, type, value.
                put_unsigned(out, 24);
                put_unsigned(out, infos.len() as u64);
                for (key, value) in infos {
                    put_text(out, key);
                    put_unsigned(out, 0);
                    put_unsigned(out, value.kind());
                    value.put(out);
                }
            }
        }
    }
}

/// Reads what a client packed; what is not there is an error.
struct Reader<'a>(&'a [u8]);

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a message ends within a value")
}

impl<'a> Reader<'a> {
    fn raw(&mut self, len: usize) -> io::Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn byte(&mut self) -> io::Result<u8> {
        Ok(self.raw(1)?[0])
    }

    fn unsigned(&mut self) -> io::Result<u64> {
        let mut number = 0;
        for at in 0..9 {
            let byte = u64::from(self.byte()?);
            if at == 8 || byte & 0x80 == 0 {
                return Ok(number | byte << (7 * at));
            }
            number |= (byte & 0x7f) << (7 * at);
        }
        Ok(number)
    }

    fn signed(&mut self) -> io::Result<i64> {
        let number = self.unsigned()?;
        Ok((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn text(&mut self) -> io::Result<String> {
        let len = usize::try_from(self.signed()?).map_err(|_| short())?;
        let bytes = self.raw(len)?;
        Ok(String::from_utf8_lossy(bytes.strip_suffix(&[0]).unwrap_or(bytes)).into_owned())
    }
}

fn be(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.first_chunk());
    word.copied().map_or(0, u32::from_be_bytes)
}

fn status_of(code: i32) -> Vec<u8> {
    let mut out = Vec::new();
    put_signed(&mut out, 1);
    put_signed(&mut out, i64::from(code));
    out
}

/// All job data, as a client takes it once.
fn job_data(job: &JobMap) -> Vec<u8> {
    let mut out = Vec::new();
    put_signed(&mut out, 1);
    let (spec, size) = (job.spec(), job.size());
    put_text(&mut out, &spec.name);
    let hosts = job.hosts();
    let name = |node: &Node| job.node(*node).map_or("", |node| node.name.as_str());
    let names: Vec<&str> = hosts.iter().map(name).collect();
    let names = names.join(",");
    let numbers = [
        ("pmix.job.size", size),
        ("pmix.max.size", size),
        ("pmix.univ.size", size),
        ("pmix.num.nodes", hosts.len() as u32),
        ("pmix.job.napps", 1),
        ("pmix.appnum", 0),
    ];
    for (key, number) in numbers {
        put_pair(&mut out, key, &Typed::U32(number));
    }
    for (key, text) in
        [("pmix.jobid", &spec.name), ("pmix.nlist", &names), ("pmix.bfrops.mod", &VERSION.into())]
    {
        put_pair(&mut out, key, &Typed::Text(text));
    }
    let session =
        vec![("pmix.session.id", Typed::U32(u32::MAX)), ("pmix.univ.size", Typed::U32(size))];
    put_pair(&mut out, "pmix.ssn.arr", &Typed::Array(session));
    for node in hosts.iter() {
        let ranks = job.ranks_on(*node);
        let peers: Vec<String> = ranks.iter().map(u32::to_string).collect();
        let peers = peers.join(",");
        let array = vec![
            ("pmix.hname", Typed::Text(name(node))),
            ("pmix.node.size", Typed::U32(ranks.len() as u32)),
            ("pmix.nodeid", Typed::U32(node.0)),
            ("pmix.lpeers", Typed::Text(&peers)),
            ("pmix.lldr", Typed::Rank(ranks.first().copied().unwrap_or_default())),
            ("pmix.local.size", Typed::U32(ranks.len() as u32)),
        ];
        put_pair(&mut out, "pmix.node.arr", &Typed::Array(array));
    }
    let app = vec![("pmix.appnum", Typed::U32(0)), ("pmix.app.size", Typed::U32(size))];
    put_pair(&mut out, "pmix.app.arr", &Typed::Array(app));
    for rank in 0..size {
        let node = job.node_of(rank).unwrap_or_default();
        let local = job.local_rank(rank).unwrap_or_default() as u16;
        let mut blob = Vec::new();
        put_signed(&mut blob, 1);
        put_unsigned(&mut blob, u64::from(rank));
        put_pair(&mut blob, "pmix.lrank", &Typed::U16(local));
        put_pair(&mut blob, "pmix.nrank", &Typed::U16(local));
        put_pair(&mut blob, "pmix.appnum", &Typed::U32(0));
        put_pair(&mut blob, "pmix.grank", &Typed::Rank(rank));
        put_pair(&mut blob, "pmix.nodeid", &Typed::U32(node.0));
        put_pair(&mut blob, "pmix.hname", &Typed::Text(name(&node)));
        put_pair(&mut out, "pmix.pblob", &Typed::Bytes(blob));
    }
    out
}

impl Session {
    pub(crate) fn new(node: Node) -> Session {
        Session { node, rank: None, next: 0, waits: BTreeMap::new() }
    }

    /// Which process it says it is.
    pub(crate) fn rank(&self) -> Option<u32> {
        self.rank
    }

    fn ask(&mut self, waits: Waits, what: Request) -> Step {
        self.next += 1;
        self.waits.insert(self.next, waits);
        Step::Ask(self.next, what)
    }

    fn say(&self, tag: u32, payload: &[u8]) -> Step {
        let words = [self.rank.unwrap_or_default(), tag, payload.len() as u32, 0];
        let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        out.extend(payload);
        Step::Say(out)
    }

    /// Takes the next message, if all of it is there: gives its length, and what to do.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        job: &JobMap,
    ) -> io::Result<Option<(usize, Vec<Step>)>> {
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let hello = self.rank.is_none();
        // The first header is in the byte order of its machine, which is ours.
        let len = if hello { be(header, 8).swap_bytes() } else { be(header, 8) } as usize;
        if len > MAX_MESSAGE {
            let why = format!("a message of {len} bytes: at most {MAX_MESSAGE} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let Some(payload) = bytes.get(HEADER..HEADER + len) else { return Ok(None) };
        let steps = match hello {
            true => vec![self.hello(payload, job)?],
            false => self.command(be(header, 4), payload, job)?,
        };
        Ok(Some((HEADER + len, steps)))
    }

    /// The handshake: how it shows who its user is (which the kernel has told), its job, its rank.
    fn hello(&mut self, payload: &[u8], job: &JobMap) -> io::Result<Step> {
        let text = |from: usize| {
            let rest = payload.get(from..).ok_or_else(short)?;
            let end = rest.iter().position(|byte| *byte == 0).ok_or_else(short)?;
            Ok::<_, io::Error>((&rest[..end], from + end + 1))
        };
        let (_, at) = text(0)?;
        let credential = be(payload, at) as usize;
        let (name, at) = text(at.saturating_add(4).saturating_add(credential).saturating_add(1))?;
        if name != job.spec().name.as_bytes() {
            return Err(io::Error::other("it does not know the name of this job"));
        }
        payload.get(at..at + 4).ok_or_else(short)?;
        let rank = be(payload, at);
        self.rank = Some(rank);
        Ok(self.ask(Waits::Hello, Request::Connect(job.proc(rank))))
    }

    fn command(&mut self, tag: u32, payload: &[u8], job: &JobMap) -> io::Result<Vec<Step>> {
        let mut from = Reader(payload);
        from.signed()?;
        let reply = |code| status_of(code);
        Ok(match from.byte()? {
            0 => vec![self.say(tag, &job_data(job))],
            1 => {
                from.signed()?;
                let code = from.signed()? as i32;
                from.signed()?;
                let message = from.text().unwrap_or_default();
                let abort = Request::Abort { status: code, message };
                vec![self.ask(Waits::Status(tag), abort)]
            }
            2 => {
                let mut entries = BTreeMap::from([(LOCAL, Vec::new()), (REMOTE, Vec::new())]);
                while !from.0.is_empty() {
                    from.signed()?;
                    let key = if from.byte()? == 1 { LOCAL } else { REMOTE };
                    from.signed()?;
                    from.byte()?;
                    let len = usize::try_from(from.unsigned()?).map_err(|_| short())?;
                    entries.insert(key, from.raw(len)?.to_vec());
                }
                let entry = |(key, bytes): (&str, Vec<u8>)| {
                    let scope = if key == LOCAL { Scope::Local } else { Scope::Remote };
                    (key.to_owned(), Entry { scope, value: Value::Bytes(bytes) })
                };
                let commit = Request::Commit(entries.into_iter().map(entry).collect());
                vec![self.ask(Waits::Status(tag), commit)]
            }
            3 => {
                let fence = Request::Fence { group: None, collect: false, timeout: None };
                vec![self.ask(Waits::Status(tag), fence)]
            }
            4 => {
                from.signed()?;
                let name = from.text()?;
                from.signed()?;
                let rank = u32::try_from(from.unsigned()?).unwrap_or(u32::MAX);
                let Some(host) = job.node_of(rank).filter(|_| name == job.spec().name) else {
                    // Job data it has got already; there is no more.
                    return Ok(vec![self.say(tag, &reply(status::SUCCESS))]);
                };
                let word = b"pmix.immediate";
                let immediate = payload.windows(word.len()).any(|part| part == word);
                let key = if host == self.node { LOCAL } else { REMOTE };
                let proc = job.proc(rank);
                let (key_text, timeout, wait) = (key.to_owned(), None, false);
                let get = Request::Get { proc, key: key_text, timeout, immediate, wait };
                vec![self.ask(Waits::Card(tag, proc, key), get)]
            }
            5 => vec![self.ask(Waits::Status(tag), Request::Finalize)],
            12 | 13 => vec![self.say(tag, &reply(status::SUCCESS))],
            14 => Vec::new(),
            _ => vec![self.say(tag, &reply(status::NOT_SUPPORTED))],
        })
    }

    /// The engine answers a request.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        result: &Result<Answer, Error>,
        job: &JobMap,
    ) -> Vec<Step> {
        let code = result.as_ref().map_or_else(Error::code, |_| status::SUCCESS);
        match self.waits.remove(&id) {
            None => Vec::new(),
            Some(Waits::Hello) => {
                let rank = self.rank.unwrap_or_default();
                let words = [code as u32, rank];
                vec![Step::Say(words.iter().flat_map(|word| word.to_be_bytes()).collect())]
            }
            Some(Waits::Status(tag)) => vec![self.say(tag, &status_of(code))],
            Some(Waits::Card(tag, proc, key)) => {
                let Ok(Answer::Card(card)) = result else {
                    return vec![self.say(tag, &status_of(code))];
                };
                let bytes = card.entries.get(key).and_then(|entry| entry.value.as_bytes());
                let mut of = Vec::new();
                put_signed(&mut of, 1);
                put_text(&mut of, &job.spec().name);
                put_unsigned(&mut of, u64::from(proc.rank));
                of.extend(bytes.unwrap_or_default());
                let mut payload = status_of(status::SUCCESS);
                put_signed(&mut payload, 1);
                put_unsigned(&mut payload, of.len() as u64);
                payload.extend(of);
                vec![self.say(tag, &payload)]
            }
        }
    }
}

/// Whose user a connection over loopback is, by the kernel's table: from this port to that one.
pub(crate) fn owner_of(from: u16, to: u16) -> Option<u32> {
    let table = std::fs::read_to_string("/proc/net/tcp").ok()?;
    table.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let port = |word: &str| u16::from_str_radix(word.rsplit(':').next()?, 16).ok();
        let ends = (port(words.get(1)?)?, port(words.get(2)?)?);
        (ends == (from, to)).then(|| words.get(7)?.parse().ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive() {
        for number in [0, 1, 127, 128, 300, 1 << 35, (1 << 56) - 1, 1 << 56, u64::MAX] {
            let mut bytes = Vec::new();
            put_unsigned(&mut bytes, number);
            let mut reader = Reader(&bytes);
            assert_eq!(reader.unsigned().unwrap(), number);
            assert!(reader.0.is_empty() && bytes.len() <= 9);
        }
        for number in [0, -1, 1, -46, i64::MAX, i64::MIN] {
            let mut bytes = Vec::new();
            put_signed(&mut bytes, number);
            assert_eq!(Reader(&bytes).signed().unwrap(), number);
        }
        assert!(Reader(&[0x80, 0x80]).unsigned().is_err());
    }
}
