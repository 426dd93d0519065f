//! A client of another launcher's PMIx server: `mpirun` of Open MPI, `prterun`, Slurm with its PMIx
//! plug-in. It speaks the wire of OpenPMIx 4.1, which newer servers speak as well, and asks for job
//! data in the form `hash`, which comes packed into an answer and not in shared memory.

mod buffer;
mod job;
mod message;

use super::{
    JobError,
    foreign::{ENDPOINT_COMMITS, EventSupport, PmixSetting},
    lock,
};
use crate::{
    Error, Node, Proc,
    hosts::host_name,
    job::JobMap,
    message::{Answer, Request},
    native::{DaemonMessage, Frames, Stream},
    status,
};
use message::{Encoded, Expected, NotOffered, Translator};
use rustix::process::{getegid, geteuid};
use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
    net::{Ipv6Addr, SocketAddr, TcpStream},
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

/// The longest message of a server.
const MAX_MESSAGE: usize = 64 << 20;
const HEADER: usize = 16;
/// How long the server may take for the handshake and the job data.
const PATIENCE: Duration = Duration::from_secs(30);
/// The version that the client names. The server chooses its formats by it.
const VERSION: &str = "4.2.2";
/// A key on the business card of each of our processes: how often its program has committed.
pub(super) const COMMITS: &str = "petasos.commits";

/// The result of connecting.
pub(super) struct Welcome {
    pub(super) map: JobMap,
    pub(super) proc: Proc,
    pub(super) node: Node,
    pub(super) dialect: Dialect,
    pub(super) stream: Stream,
}

/// Our requests in the form that the server takes.
#[derive(Debug)]
pub(super) struct Dialect {
    translator: Translator,
    /// Our number at the server.
    index: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By tag.
    expected: BTreeMap<u32, (u64, Expected)>,
    /// The codes of each handler.
    codes: BTreeMap<u64, Vec<i32>>,
    commits: u64,
    events: u64,
}

fn bad(why: &str) -> io::Error {
    buffer::bad(why)
}

/// Where a server is, as in `space.0;tcp4://127.0.0.1:4711`.
fn address(uri: &str) -> Option<SocketAddr> {
    let (_, rest) = uri.split_once(';')?;
    let rest = rest.split(';').next()?;
    if let Some(rest) = rest.strip_prefix("tcp6://") {
        let (host, port) = rest.rsplit_once(':')?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        return Some(SocketAddr::from((host.parse::<Ipv6Addr>().ok()?, port.parse().ok()?)));
    }
    rest.strip_prefix("tcp4://")?.split(',').next()?.parse().ok()
}

fn header(index: u32, tag: u32, len: usize) -> Vec<u8> {
    [index, tag, len as u32, 0].iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn be(bytes: &[u8; HEADER], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads one message: its tag, and what follows the header.
fn message(stream: &mut TcpStream) -> io::Result<(u32, Vec<u8>)> {
    let mut header = [0; HEADER];
    stream.read_exact(&mut header)?;
    let mut payload = vec![0; length(&header)?];
    stream.read_exact(&mut payload)?;
    Ok((be(&header, 4), payload))
}

fn length(header: &[u8; HEADER]) -> io::Result<usize> {
    let len = be(header, 8) as usize;
    match len <= MAX_MESSAGE {
        true => Ok(len),
        false => Err(bad(&format!("{len} bytes: at most {MAX_MESSAGE} are allowed"))),
    }
}

/// The client's handshake: its user, its job, its rank, and its formats.
fn hello(setting: &PmixSetting) -> Vec<u8> {
    let known = |method: &str| {
        let list = setting.security.as_deref().unwrap_or("native");
        list.split(',').any(|one| one.trim() == method)
    };
    let mut body = Vec::new();
    if known("native") {
        body.extend(b"native\0");
        body.extend(8u32.to_be_bytes());
        body.extend(geteuid().as_raw().to_ne_bytes());
        body.extend(getegid().as_raw().to_ne_bytes());
    } else {
        body.extend(b"none\0");
        body.extend(0u32.to_be_bytes());
    }
    // A process of the job, nothing else.
    body.push(0);
    body.extend(setting.space.as_bytes());
    body.push(0);
    body.extend(setting.rank.to_be_bytes());
    for text in [VERSION, "v41"] {
        body.extend(text.as_bytes());
        body.push(0);
    }
    // Buffers do not state the types of their contents.
    body.push(1);
    body.extend(b"hash\0");
    let words = [u32::MAX, u32::MAX, body.len() as u32, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(body);
    bytes
}

/// Connects, and reads the job's data.
pub(super) fn connect(setting: &PmixSetting) -> io::Result<Welcome> {
    let found = setting.uris.iter().find_map(|uri| address(uri));
    let found = found.ok_or_else(|| bad(&format!("no address in {:?}", setting.uris)))?;
    let mut stream = TcpStream::connect_timeout(&found, PATIENCE)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(&hello(setting))?;
    let mut word = [0; 4];
    stream.read_exact(&mut word)?;
    let code = i32::from_be_bytes(word);
    if code != status::SUCCESS {
        return Err(bad(&format!("it refuses this process with status {code}")));
    }
    stream.read_exact(&mut word)?;
    let index = u32::from_be_bytes(word);
    let ask = [2, message::JOB_DATA];
    stream.write_all(&[&header(index, 1, ask.len())[..], &ask].concat())?;
    let payload = loop {
        let (tag, payload) = message(&mut stream)?;
        if tag == 1 {
            break payload;
        }
    };
    stream.set_read_timeout(None)?;
    let (map, space) = job::read(&payload, &host_name())?;
    let proc = map.proc(setting.rank);
    let node = map.node_of(setting.rank);
    let node = node.ok_or_else(|| bad(&format!("the job has no rank {}", setting.rank)))?;
    let mut translator = Translator::new(&map, proc, node, space);
    translator.events = setting.events;
    let dialect = Dialect { translator, index, state: Mutex::default() };
    Ok(Welcome { map, proc, node, dialect, stream: Stream::Tcp(stream) })
}

impl Dialect {
    /// Queues a request. Gives the answer of one that the server does not answer.
    pub(super) fn push(
        &self,
        frames: &mut Frames,
        id: u64,
        what: Request,
    ) -> Result<Option<DaemonMessage>, JobError> {
        let mut state = lock(&self.state);
        // Our tags are never 0, which events have, and none of a request under way.
        let tag = 2 + (id % u64::from(u32::MAX >> 2)) as u32;
        let done = DaemonMessage::Answer { id, result: Ok(Answer::Done) };
        let encoded = match what {
            Request::Deregister(handler) => {
                let codes = state.codes.remove(&handler).unwrap_or_default();
                let others = |code: &i32| state.codes.values().flatten().any(|other| other == code);
                let unwanted: Vec<i32> = codes.iter().filter(|c| !others(c)).copied().collect();
                if unwanted.is_empty() {
                    return Ok(Some(done));
                }
                Translator::deregister(&unwanted)
            }
            Request::Notify { range: crate::event::Range::ProcLocal, .. } => {
                let number = crate::event::EventId::LOSS - 1;
                let name = crate::event::EventId { node: self.translator.node, number };
                return Ok(Some(DaemonMessage::Answer { id, result: Ok(Answer::Notified(name)) }));
            }
            Request::Commit(mut entries) => {
                // The commits of this rank's program come after the one that every rank makes when
                // it joins.
                if state.commits >= ENDPOINT_COMMITS {
                    let value = state.commits.into();
                    let entry = crate::Entry { scope: crate::Scope::Global, value };
                    entries.push((COMMITS.to_owned(), entry));
                }
                state.commits += 1;
                self.encode(Request::Commit(entries))?
            }
            Request::Register { handler, codes } => {
                state.codes.insert(handler, codes.clone());
                self.encode(Request::Register { handler, codes })?
            }
            other => self.encode(other)?,
        };
        let mut bytes = header(self.index, tag, encoded.payload.len());
        bytes.extend(encoded.payload);
        frames.push_raw(bytes);
        let Some(expected) = encoded.expected else { return Ok(Some(done)) };
        state.expected.insert(tag, (id, expected));
        Ok(None)
    }

    fn encode(&self, what: Request) -> Result<Encoded, JobError> {
        self.translator.encode(what).map_err(|NotOffered(what)| JobError::NotOffered {
            what,
            launcher: "a PMIx server".to_owned(),
        })
    }

    /// The next complete message of interest.
    pub(super) fn take(&self, frames: &mut Frames) -> io::Result<Option<DaemonMessage>> {
        loop {
            let Some(header) = frames.come().first_chunk::<HEADER>() else { return Ok(None) };
            let (tag, len) = (be(header, 4), length(header)?);
            let Some(payload) = frames.come().get(HEADER..HEADER + len) else { return Ok(None) };
            let taken = self.one(tag, payload)?;
            frames.skip(HEADER + len);
            if taken.is_some() {
                return Ok(taken);
            }
        }
    }

    fn one(&self, tag: u32, payload: &[u8]) -> io::Result<Option<DaemonMessage>> {
        let mut state = lock(&self.state);
        if tag == 0 {
            state.events += 1;
            let event = self.translator.event(payload, state.events)?;
            return Ok(event.map(|event| DaemonMessage::Event { event, only: None }));
        }
        // An answer that no request waits for is ignored.
        let Some((id, expected)) = state.expected.remove(&tag) else { return Ok(None) };
        let result = self.translator.decode(expected, payload)?;
        Ok(Some(DaemonMessage::Answer { id, result }))
    }
}

/// A get with the semantics of the Standard: a key is not found at once if the process has
/// committed without it, and waited for if the process has not committed yet. But the server waits
/// for each key until the time is over. So the client asks for a key that the programs of all our
/// ranks have in their first commit. The answer brings the whole business card.
pub(super) fn get(
    call: impl Fn(Request) -> Result<Answer, JobError>,
    proc: Proc,
    key: String,
    timeout: Duration,
    immediate: bool,
    wait: bool,
) -> Result<Answer, JobError> {
    let until = Instant::now() + timeout;
    let ask = |key: &str, immediate: bool| {
        let left = until.saturating_duration_since(Instant::now());
        let (key, timeout) = (key.to_owned(), Some(left).filter(|_| !immediate));
        call(Request::Get { proc, key, timeout, immediate, wait })
    };
    let lacks = |result: &Result<Answer, JobError>, key: &str| match result {
        Ok(Answer::BusinessCard(card)) => !card.entries.contains_key(key),
        Err(JobError::Refused(Error::NotFound { .. })) => true,
        _ => false,
    };
    let first = ask(&key, true);
    if immediate || !lacks(&first, &key) {
        return first;
    }
    let awaited = if wait { &key } else { COMMITS };
    let mut pause = Duration::from_millis(1);
    loop {
        // Each commit is answered with the whole business card. Then the next one is waited for.
        let answer = ask(awaited, false);
        if !lacks(&answer, awaited) || Instant::now() >= until {
            return match answer {
                Err(JobError::Refused(Error::GetTimeout { node, state, .. })) => {
                    Err(Error::GetTimeout { proc, node, key, state }.into())
                }
                other => other,
            };
        }
        thread::sleep(pause);
        pause = (2 * pause).min(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests;
