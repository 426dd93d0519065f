//! A client of PMI-1: `mpiexec.hydra` of MPICH, `srun --mpi=pmi2` of Slurm, and others. Lines of
//! `name=value` words, one question at a time.
//!
//! PMI-1 has one key-value table for the whole job. Its values are short text, and a barrier of all
//! ranks spreads them. Each commit puts the business card there: packed, encoded and cut in pieces.
//! A rank that wants the business card reads one commit after the other until there is none. So a
//! get before a fence finds nothing and cannot wait. It fails with an error that says so.

mod text;

use super::{
    JobError,
    foreign::{ENDPOINT_COMMITS, Pmi1Setting, Transport, plain},
    lock,
};
use crate::{
    BusinessCard, Entry, Error, Group, JobId, Node, Proc, Value,
    event::{EventId, Range},
    hosts::{host_name, hosts_of_step},
    job::{JobMap, JobSpec, MAX_RANKS, NodeInfo, Run},
    message::{Answer, Request},
    value::MAX_VALUE,
};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use petasos_wire::{Encoding, from_bytes, to_vec};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};
use std::{
    collections::HashMap,
    fs::File,
    io::{self, IoSlice, IoSliceMut, Read, Write},
    mem::MaybeUninit,
    net::TcpStream,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::{
        Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The longest line of a launcher.
const MAX_LINE: usize = 64 << 10;
/// The longest line that launchers take, with its end, whatever they announce for values.
const MAX_SAID: usize = 1023;
/// Bytes of that line that are not the value, beside the name of the table: the other fields, and
/// the longest key.
const FIELDS: usize = 96;
/// How long a launcher takes for what needs no other process.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that a process commits at a time, encoded. Each piece is a request of its own.
const MAX_COMMIT: usize = 2 * MAX_VALUE;

/// A connection to a launcher.
#[derive(Debug)]
pub(super) struct Client {
    me: Proc,
    node: Node,
    nodes: Vec<Node>,
    /// The name of the table.
    table: String,
    /// The longest value.
    longest: usize,
    connection: Mutex<Connection>,
    events: AtomicU64,
}

#[derive(Debug)]
struct Connection {
    stream: File,
    come: Vec<u8>,
    commits: u64,
    /// Whether a fence has spread the business cards of others.
    fenced: bool,
    /// The business cards of other processes, as far as they were read.
    cards: HashMap<u32, BusinessCard>,
    /// Why the connection is over, if so.
    over: Option<String>,
}

fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the launcher (PMI-1): {why}"))
}

/// The value of a field of a line.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

/// Whether a request about names of services was done. Some launchers say so by a number, Slurm by
/// a word.
fn is_done(line: &str) -> bool {
    field(line, "rc").map_or_else(|| field(line, "info") == Some("ok"), |code| code == "0")
}

/// A descriptor of this process, by its number. It is sent to this process over a socket: that
/// makes an owned copy, without trust in its owner.
fn descriptor(number: i32) -> io::Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    let (to, from) = UnixStream::pair()?;
    let rights = [number];
    let with = [ControlMessage::ScmRights(&rights)];
    sendmsg::<()>(to.as_raw_fd(), &[IoSlice::new(&[0])], &with, MsgFlags::empty(), None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut come = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let into = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(&from, into, &mut come, RecvFlags::CMSG_CLOEXEC)?;
    let rights = come.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut all) => all.next(),
        _ => None,
    });
    rights.ok_or_else(|| bad("its descriptor did not come back"))
}

impl Connection {
    fn new(stream: File) -> Connection {
        Connection {
            stream,
            come: Vec::new(),
            commits: 0,
            fenced: false,
            cards: HashMap::new(),
            over: None,
        }
    }

    /// A line without its end, within this time.
    fn line(&mut self, until: Instant) -> io::Result<String> {
        loop {
            if let Some(end) = self.come.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.come.drain(..=end).collect();
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if self.come.len() > MAX_LINE {
                return Err(bad(&format!("a line of more than {MAX_LINE} bytes")));
            }
            let left = until.saturating_duration_since(Instant::now());
            let wait = Timespec::try_from(left).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(&self.stream, PollFlags::IN)], Some(&wait)) {
                Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            let mut block = [0; 4096];
            match self.stream.read(&mut block) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.come.extend_from_slice(&block[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends a question, and takes the answer, which must be this one.
    fn ask(&mut self, line: &str, answer: &str, patience: Duration) -> io::Result<String> {
        self.stream.write_all(format!("{line}\n").as_bytes())?;
        let reply = self.line(Instant::now() + patience)?;
        match field(&reply, "cmd") == Some(answer) {
            true => Ok(reply),
            false => Err(bad(&format!("`{reply}` is no answer to `{line}`"))),
        }
    }

    /// A value of the table.
    fn value(&mut self, table: &str, key: &str) -> io::Result<Option<String>> {
        let line = format!("cmd=get kvsname={table} key={key}");
        let reply = self.ask(&line, "get_result", PATIENCE)?;
        let value = reply.split_once(" value=").map(|(_, value)| value.trim_end().to_owned());
        Ok(value.filter(|_| field(&reply, "rc") == Some("0")))
    }
}

/// Connects, and reads the job's data.
pub(super) fn connect(setting: &Pmi1Setting) -> io::Result<(JobMap, Client)> {
    let stream: OwnedFd = match &setting.transport {
        Transport::Descriptor(number) => descriptor(*number)?,
        Transport::Port(port) => TcpStream::connect(port.as_str())?.into(),
    };
    let mut connection = Connection::new(File::from(stream));
    let (mut rank, mut size) = (setting.rank, setting.size);
    if let (Transport::Port(_), Some(id)) = (&setting.transport, setting.id) {
        connection.ask(&format!("cmd=initack pmiid={id}"), "initack", PATIENCE)?;
        // Then the launcher says which rank this process is, in three lines.
        for _ in 0..3 {
            let reply = connection.line(Instant::now() + PATIENCE)?;
            let number = |name| field(&reply, name).and_then(|text| text.parse().ok());
            (rank, size) = (number("rank").or(rank), number("size").or(size));
        }
    }
    let none = |what: &str| bad(&format!("it does not say the {what}"));
    let rank = rank.ok_or_else(|| none("rank of this process"))?;
    let size = size.filter(|size| (1..=MAX_RANKS).contains(size));
    let size = size.ok_or_else(|| none("size of the job"))?;
    let init =
        connection.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init", PATIENCE)?;
    if field(&init, "rc") != Some("0") {
        return Err(bad(&format!("it does not speak PMI-1: `{init}`")));
    }
    let maxes = connection.ask("cmd=get_maxes", "maxes", PATIENCE)?;
    let longest = field(&maxes, "vallen_max").and_then(|text| text.parse().ok());
    // A value ends with a NUL where the launcher keeps it.
    let longest: usize = longest.map_or(256, |longest: usize| longest.saturating_sub(1));
    let named = connection.ask("cmd=get_my_kvsname", "my_kvsname", PATIENCE)?;
    let table = field(&named, "kvsname").filter(|name| !name.is_empty() && name.len() <= 512);
    let table = table.ok_or_else(|| none("name of its table"))?.to_owned();
    let mapping = connection.value(&table, "PMI_process_mapping")?;
    let nodes =
        text::nodes_of_ranks(mapping.as_deref(), size).ok_or_else(|| none("ranks' places"))?;
    let node = *nodes.get(rank as usize).ok_or_else(|| none("rank of this process"))?;
    let map = map(&table, &nodes, node)?;
    let longest = longest.min(MAX_SAID.saturating_sub(FIELDS + table.len()));
    let client = Client {
        me: map.proc(rank),
        node,
        nodes,
        table,
        longest: longest.max(64),
        connection: Mutex::new(connection),
        events: AtomicU64::new(0),
    };
    Ok((map, client))
}

fn map(table: &str, nodes: &[Node], own: Node) -> io::Result<JobMap> {
    let mut runs: Vec<Run> = Vec::new();
    for node in nodes {
        match runs.last_mut().filter(|run| run.node == *node) {
            Some(run) => run.count += 1,
            None => runs.push(Run { node: *node, count: 1 }),
        }
    }
    let count = nodes.iter().map(|node| node.0 + 1).max().unwrap_or(1);
    // PMI-1 has no names of hosts, but Slurm sends them.
    let known = hosts_of_step().filter(|names| names.len() == count as usize).unwrap_or_default();
    let name = |node: u32| match known.get(node as usize) {
        Some(name) => name.clone(),
        None if Node(node) == own => host_name(),
        None => format!("node{node}"),
    };
    let space = plain(table);
    // The ranks exchange their addresses themselves.
    let info = |node| NodeInfo { name: name(node), base: String::new(), first: 0 };
    let nodes = (0..count).map(info).collect();
    let name = space;
    let spec = JobSpec { id: JobId(0), name, nodes, runs, info: Vec::new() };
    JobMap::new(spec).map_err(|error| bad(&error.to_string()))
}

fn not_offered<T>(what: impl Into<String>) -> Result<T, JobError> {
    Err(JobError::NotOffered { what: what.into(), launcher: "PMI-1".to_owned() })
}

impl Client {
    pub(super) fn proc(&self) -> Proc {
        self.me
    }

    pub(super) fn node(&self) -> Node {
        self.node
    }

    /// Performs a request, and waits until it is done. One at a time: a fence delays the others.
    pub(super) fn call(&self, what: Request, patience: Duration) -> Result<Answer, JobError> {
        let mut connection = lock(&self.connection);
        if let Some(why) = &connection.over {
            return Err(JobError::Lost(why.clone()));
        }
        self.request(&mut connection, what, patience).map_err(|failed| match failed {
            Failed::Refused(error) => error,
            Failed::Broken(error) => {
                // A later line would be taken for the answer to another request.
                let why = match error.kind() {
                    io::ErrorKind::TimedOut => format!("it did not answer within {patience:?}"),
                    io::ErrorKind::UnexpectedEof => "it has ended".to_owned(),
                    _ => error.to_string(),
                };
                connection.over = Some(why.clone());
                match error.kind() {
                    io::ErrorKind::TimedOut => JobError::Silent(patience),
                    _ => JobError::Lost(why),
                }
            }
        })
    }

    /// Closes the connection: later requests are refused.
    pub(super) fn close(&self) {
        lock(&self.connection).over.get_or_insert_with(|| "this process has finalized".to_owned());
    }

    fn request(
        &self,
        connection: &mut Connection,
        what: Request,
        patience: Duration,
    ) -> Result<Answer, Failed> {
        Ok(match what {
            Request::Commit(entries) => self.commit(connection, entries)?,
            Request::Fence { group, .. } => {
                if group.is_some_and(|group| group != Group::all(self.me.job, self.size())) {
                    return not_offered("a fence of some ranks only").map_err(Failed::Refused);
                }
                let reply = connection.ask("cmd=barrier_in", "barrier_out", patience)?;
                if field(&reply, "rc").is_some_and(|rc| rc != "0") {
                    let why = format!("the launcher ended a fence with `{reply}`");
                    return Err(Failed::Refused(Error::Misuse(why).into()));
                }
                connection.fenced = true;
                Answer::Done
            }
            Request::Get { proc, key, immediate, .. } => {
                self.get(connection, proc, key, immediate)?
            }
            Request::Publish(what) => {
                let text = text::encode(&to_vec(Encoding::Native, &what.value));
                if text.len() > self.longest.min(256) {
                    let why = "publishing a value of more than 190 bytes";
                    return not_offered(why).map_err(Failed::Refused);
                }
                let service = text::encode(what.key.as_bytes());
                let line = format!("cmd=publish_name service={service} port={text}");
                let reply = connection.ask(&line, "publish_result", patience)?;
                match is_done(&reply) {
                    true => Answer::Done,
                    false => return Err(Failed::Refused(Error::Published(what.key).into())),
                }
            }
            Request::Lookup { keys, wait, .. } => self.lookup(connection, &keys, wait)?,
            Request::Unpublish(keys) => {
                for key in keys {
                    let service = text::encode(key.as_bytes());
                    let line = format!("cmd=unpublish_name service={service}");
                    connection.ask(&line, "unpublish_result", patience)?;
                }
                Answer::Done
            }
            Request::Abort { status, message } => {
                // The launcher takes no message, so print it for the user.
                eprintln!("petasos: {} aborts the job: {message}", self.me);
                let line = format!("cmd=abort exitcode={status}\n");
                connection.stream.write_all(line.as_bytes())?;
                // There is no answer: this process is ended.
                let _ = connection.line(Instant::now() + patience.min(PATIENCE));
                Answer::Done
            }
            Request::Finalize => {
                connection.ask("cmd=finalize", "finalize_ack", patience)?;
                Answer::Done
            }
            // No other process will ever learn of it.
            Request::Notify { range: Range::ProcLocal, .. } => {
                let number = self.events.fetch_add(1, Ordering::Relaxed);
                Answer::Notified(EventId { node: self.node, number })
            }
            Request::Notify { .. } | Request::Register { .. } | Request::Deregister(_) => {
                return not_offered("events").map_err(Failed::Refused);
            }
            Request::Query(_) => return not_offered("queries").map_err(Failed::Refused),
            Request::Restart { .. } => {
                return not_offered("starting a rank again").map_err(Failed::Refused);
            }
            Request::Replace(_) => return not_offered("replacing a node").map_err(Failed::Refused),
            Request::Signal { .. } => return not_offered("signals").map_err(Failed::Refused),
            Request::Watch(_) | Request::Progress => {
                return not_offered("watching progress").map_err(Failed::Refused);
            }
            Request::Connect(_) | Request::ConnectTool => {
                return not_offered("connecting again").map_err(Failed::Refused);
            }
        })
    }

    fn size(&self) -> u32 {
        self.nodes.len() as u32
    }

    /// The key of a piece of what a rank has committed the nth time.
    fn key(rank: u32, nth: u64, piece: usize) -> String {
        format!("petasos-{rank}-{nth}-{piece}")
    }

    fn commit(
        &self,
        connection: &mut Connection,
        entries: Vec<(String, Entry)>,
    ) -> Result<Answer, Failed> {
        let text = text::encode(&to_vec(Encoding::Native, &entries));
        if text.len() > MAX_COMMIT {
            let (asked, limit) = (text.len() as u64, MAX_COMMIT as u64);
            let what = "bytes of a commit through PMI-1".to_owned();
            return Err(Failed::Refused(Error::Limit { what, asked, limit }.into()));
        }
        // The first piece says how many there are.
        let first = self.longest - 12;
        let (head, rest) = text.split_at(text.len().min(first));
        let rest: Vec<&str> = text::pieces(rest, self.longest);
        let nth = connection.commits;
        let mut put = |piece: usize, value: &str| -> Result<(), Failed> {
            let key = Client::key(self.me.rank, nth, piece);
            let line = format!("cmd=put kvsname={} key={key} value={value}", self.table);
            let reply = connection.ask(&line, "put_result", PATIENCE)?;
            match field(&reply, "rc") {
                Some("0") => Ok(()),
                _ => Err(Failed::Refused(
                    Error::Misuse(format!("the launcher says `{reply}`")).into(),
                )),
            }
        };
        for (at, piece) in rest.iter().enumerate() {
            put(at + 1, piece)?;
        }
        // Last, as some launchers show at once what is put.
        put(0, &format!("{}.{head}", rest.len()))?;
        connection.commits += 1;
        Ok(Answer::Done)
    }

    fn get(
        &self,
        connection: &mut Connection,
        proc: Proc,
        key: String,
        immediate: bool,
    ) -> Result<Answer, Failed> {
        let Some(host) = self.nodes.get(proc.rank as usize).copied() else {
            return Err(Failed::Refused(Error::NoSuchProc(proc).into()));
        };
        let mut card = connection.cards.remove(&proc.rank).unwrap_or_default();
        // What others have put is visible before a fence at some launchers, some of the time.
        let spread = connection.fenced || proc.rank == self.me.rank;
        while spread && let Some(entries) = self.committed(connection, proc.rank, card.version)? {
            let seen = entries.into_iter().filter(|(_, e)| e.scope.shows(host, self.node));
            card.commit(seen);
        }
        connection.cards.insert(proc.rank, card.clone());
        if card.entries.contains_key(&key) {
            return Ok(Answer::BusinessCard(card));
        }
        if card.version > ENDPOINT_COMMITS || immediate {
            return Err(Failed::Refused(Error::NotFound { proc, key }.into()));
        }
        let what = format!("waiting for key `{key}` of {proc}, which no fence has spread,");
        not_offered(what).map_err(Failed::Refused)
    }

    /// What a rank has committed the nth time, if that was spread.
    fn committed(
        &self,
        connection: &mut Connection,
        rank: u32,
        nth: u64,
    ) -> Result<Option<Vec<(String, Entry)>>, Failed> {
        let mut piece = |at| connection.value(&self.table, &Client::key(rank, nth, at));
        let Some(head) = piece(0)? else { return Ok(None) };
        let (count, head) =
            head.split_once('.').ok_or_else(|| bad("a business card without a length"))?;
        let count: usize = count.parse().map_err(|_| bad("a business card without a length"))?;
        let mut text = head.to_owned();
        for at in 1..=count {
            // The rest has not come yet, so it was not spread.
            let Some(more) = piece(at)? else { return Ok(None) };
            text.push_str(&more);
            if text.len() > MAX_COMMIT {
                return Err(bad(&format!("a business card of more than {MAX_COMMIT} bytes")).into());
            }
        }
        let bytes =
            text::decode(&text).ok_or_else(|| bad("a business card that is not encoded"))?;
        let entries = from_bytes(Encoding::Native, &bytes);
        Ok(Some(entries.map_err(|error| bad(&format!("a business card: {error}")))?))
    }

    fn lookup(
        &self,
        connection: &mut Connection,
        keys: &[String],
        wait: Option<Duration>,
    ) -> Result<Answer, Failed> {
        let [key] = keys else {
            return not_offered("a lookup of several keys").map_err(Failed::Refused);
        };
        let until = Instant::now() + wait.unwrap_or_default();
        let line = format!("cmd=lookup_name service={}", text::encode(key.as_bytes()));
        let mut pause = Duration::from_millis(1);
        loop {
            let reply = connection.ask(&line, "lookup_result", PATIENCE)?;
            if is_done(&reply) {
                let bytes = field(&reply, "port").and_then(text::decode);
                let value = bytes.and_then(|bytes| from_bytes(Encoding::Native, &bytes).ok());
                let value: Value = value.ok_or_else(|| bad("a published value of others"))?;
                // It is not told which process published it.
                return Ok(Answer::Found(vec![(
                    key.clone(),
                    value,
                    Proc::new(self.me.job, Proc::JOB),
                )]));
            }
            if Instant::now() >= until {
                let error = match wait {
                    Some(_) => Error::LookupTimeout(key.clone()),
                    None => Error::NotPublished(key.clone()),
                };
                return Err(Failed::Refused(error.into()));
            }
            std::thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }
}

/// Why a request failed: the launcher refused it, or the connection failed.
enum Failed {
    Refused(JobError),
    Broken(io::Error),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Broken(error)
    }
}

#[cfg(test)]
mod tests;
