//! A client of another launcher's PMIx server: `mpirun` of Open MPI, `prterun`, Slurm with its PMIx
//! plug-in. It speaks the wire of OpenPMIx 4.1, which newer servers speak as well, and asks for job
//! data in the form `hash`, which comes packed into an answer and not in shared memory.

mod buffer;
mod job;
mod message;

use super::{JobError, lock, places::OF_PLACES};
use crate::{
    Error, Node, Proc,
    daemon::{FromDaemon, host_name},
    job::JobMap,
    message::{Answer, Request},
    net::{Frames, Stream},
    status,
};
use message::{Asker, NotOffered, Said, Waits};
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
/// How long the server takes to say hello, and what job it is.
const PATIENCE: Duration = Duration::from_secs(30);
/// The version that is named to the server, which chooses its formats by it.
const VERSION: &str = "4.2.2";
/// On the card of each process that is one of ours: how often its program has committed.
pub(super) const COMMITS: &str = "petasos.commits";

/// What the launcher says in the environment.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    /// The variables that lead to the server.
    pub(super) uris: Vec<String>,
    pub(super) space: String,
    pub(super) rank: u32,
    /// Ways to authenticate that the server takes.
    pub(super) security: Option<String>,
    pub(super) events: Events,
}

/// How far a server carries events of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Events {
    Anywhere,
    /// It hangs on those for other nodes: that of Open MPI 4.
    WithinNode,
    /// It takes each for a failure, and ends the job: that of Slurm.
    Nowhere,
}

/// What was found out by connecting.
pub(super) struct Welcome {
    pub(super) map: JobMap,
    pub(super) proc: Proc,
    pub(super) node: Node,
    pub(super) dialect: Dialect,
    pub(super) stream: Stream,
}

/// Our requests as the server takes them.
#[derive(Debug)]
pub(super) struct Dialect {
    asker: Asker,
    /// Our number at the server.
    index: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By tag.
    waits: BTreeMap<u32, (u64, Waits)>,
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

/// Reads one message: its tag, and what stands behind the header.
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

/// What a client says first: its user, its job, its rank, and how it speaks.
fn hello(setting: &Setting) -> Vec<u8> {
    let known = |way: &str| {
        let list = setting.security.as_deref().unwrap_or("native");
        list.split(',').any(|one| one.trim() == way)
    };
    let mut said = Vec::new();
    if known("native") {
        said.extend(b"native\0");
        said.extend(8u32.to_be_bytes());
        said.extend(geteuid().as_raw().to_ne_bytes());
        said.extend(getegid().as_raw().to_ne_bytes());
    } else {
        said.extend(b"none\0");
        said.extend(0u32.to_be_bytes());
    }
    // A process of the job, nothing else.
    said.push(0);
    said.extend(setting.space.as_bytes());
    said.push(0);
    said.extend(setting.rank.to_be_bytes());
    for text in [VERSION, "v41"] {
        said.extend(text.as_bytes());
        said.push(0);
    }
    // Buffers do not say of what types their things are.
    said.push(1);
    said.extend(b"hash\0");
    let words = [u32::MAX, u32::MAX, said.len() as u32, 0];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    bytes.extend(said);
    bytes
}

/// Connects, and learns of the job.
pub(super) fn connect(setting: &Setting) -> io::Result<Welcome> {
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
    let mut asker = Asker::new(&map, proc, node, space);
    asker.events = setting.events;
    let dialect = Dialect { asker, index, state: Mutex::default() };
    Ok(Welcome { map, proc, node, dialect, stream: Stream::Tcp(stream) })
}

impl Dialect {
    /// Puts a request in line; gives the answer of one that the server does not answer.
    pub(super) fn push(
        &self,
        frames: &mut Frames,
        id: u64,
        what: Request,
    ) -> Result<Option<FromDaemon>, JobError> {
        let mut state = lock(&self.state);
        // Tags of ours: never 0, which events have, and none of what is under way.
        let tag = 2 + (id % u64::from(u32::MAX >> 2)) as u32;
        let done = FromDaemon::Answer { id, result: Ok(Answer::Done) };
        let said = match what {
            Request::Deregister(handler) => {
                let codes = state.codes.remove(&handler).unwrap_or_default();
                let others = |code: &i32| state.codes.values().flatten().any(|other| other == code);
                let unwanted: Vec<i32> = codes.iter().filter(|c| !others(c)).copied().collect();
                if unwanted.is_empty() {
                    return Ok(Some(done));
                }
                Asker::deregister(&unwanted)
            }
            Request::Notify { range: crate::event::Range::ProcLocal, .. } => {
                let number = crate::event::EventId::LOSS - 1;
                let name = crate::event::EventId { node: self.asker.node, number };
                return Ok(Some(FromDaemon::Answer { id, result: Ok(Answer::Notified(name)) }));
            }
            Request::Commit(mut entries) => {
                // What this rank's program commits, after what every rank does when it joins.
                if state.commits >= OF_PLACES {
                    let value = state.commits.into();
                    let entry = crate::Entry { scope: crate::Scope::Global, value };
                    entries.push((COMMITS.to_owned(), entry));
                }
                state.commits += 1;
                self.say(Request::Commit(entries))?
            }
            Request::Register { handler, codes } => {
                state.codes.insert(handler, codes.clone());
                self.say(Request::Register { handler, codes })?
            }
            other => self.say(other)?,
        };
        let mut bytes = header(self.index, tag, said.payload.len());
        bytes.extend(said.payload);
        frames.push_raw(bytes);
        let Some(waits) = said.waits else { return Ok(Some(done)) };
        state.waits.insert(tag, (id, waits));
        Ok(None)
    }

    fn say(&self, what: Request) -> Result<Said, JobError> {
        self.asker.say(what).map_err(|NotOffered(what)| JobError::NotOffered {
            what,
            launcher: "a PMIx server".to_owned(),
        })
    }

    /// The next thing that has come whole and is of interest.
    pub(super) fn take(&self, frames: &mut Frames) -> io::Result<Option<FromDaemon>> {
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

    fn one(&self, tag: u32, payload: &[u8]) -> io::Result<Option<FromDaemon>> {
        let mut state = lock(&self.state);
        if tag == 0 {
            state.events += 1;
            let event = self.asker.event(payload, state.events)?;
            return Ok(event.map(|event| FromDaemon::Event { event, only: None }));
        }
        // An answer to nothing that was asked is passed over.
        let Some((id, waits)) = state.waits.remove(&tag) else { return Ok(None) };
        let result = self.asker.heard(waits, payload)?;
        Ok(Some(FromDaemon::Answer { id, result }))
    }
}

/// A get as the Standard wants it: what a process has committed without is not found at once, and
/// what it has not committed yet is waited for. The server waits for each key until the time is
/// over; so the process is asked for what the programs of all of ours have in their first commit,
/// which brings the whole card.
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
        // Each commit is answered with all that there is: then the next one is waited for.
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
