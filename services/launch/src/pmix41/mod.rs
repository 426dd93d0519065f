//! The wire of OpenPMIx 4.1, as the client library of Open MPI speaks it: a front end on the
//! engine, as a state machine. Bytes in; requests of the engine, and bytes, out.
//!
//! A process puts its values on its business card key by key, with the types that both sides have
//! translated ([`values`]). So programs of both kinds can read each other's business cards, events
//! and published data. Every request of the client is answered: what is not understood, or not
//! offered, by a status that says so.
//!
//! The client library runs the chain of handlers itself, and always all of it. So that no handler
//! sees an event twice, a past event is not sent again for a default handler that comes late. It is
//! sent for a late handler with a code, and skips the default handlers, which have seen it.

mod batch;
mod commands;
mod commit;
mod events;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod job;
mod pending;
mod surroundings;
mod values;

use crate::engine::MAX_CARD;
use batch::Batches;
use commit::SplitKeys;
use pending::Pending;
use petasos_pmix::server::packing::{
    ANY_RANK, Reader, Refusal, WILDCARD, put_bytes, put_proc, put_signed, put_size, put_status,
};
use petasos_pmix::{
    Entry, Error, Node, Proc, Value,
    event::Event,
    job::JobMap,
    message::{Answer, Request},
    status,
};
use std::{collections::BTreeSet, io, path::Path, sync::Arc, time::Duration};

pub(crate) use job::own_directory;
pub(crate) use surroundings::Surroundings;

/// The longest message of a client: a commit has twice whatever both its own node and the others
/// see of a business card, with the encoding around it.
const MAX_MESSAGE: usize = 2 * MAX_CARD + (32 << 20);
/// The longest message before the client has proved that it is of the job: a few names.
const MAX_HELLO: usize = 64 << 10;
/// The version that clients are told. They choose their formats by it.
pub(crate) const VERSION: &str = "4.2.2";
/// Prefix of the key of a value for other nodes, where this node sees another value.
const ELSEWHERE: &str = "pmix41.elsewhere.";
const HEADER: usize = 16;
/// How long a get waits for a key without which the process has committed, if the client names no
/// time: as OpenPMIx's server does.
const USUAL_WAIT: Duration = Duration::from_secs(2);
/// The tag under which the client expects events.
const EVENTS: u32 = 0;

/// What a message, or an answer, leads to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Bytes to the client.
    Say(Vec<u8>),
    /// A request of the engine, whose answer goes to [`Session::answered`] with this number.
    Ask(u64, Request),
    /// A get of a key of any process of the job, and how long it waits. The answer goes to
    /// [`Session::answered`] with this number.
    Find(u64, String, Duration),
    /// A message for the user, since the client shows only a status.
    Explain(String),
    /// The same, for a commit that was refused: the process counts as failed whatever its exit code
    /// is, since its library does not report the refusal.
    Fail(String),
}

/// What an answer of the engine belongs to. Most go back under the tag of a message.
#[derive(Clone, Debug)]
enum Expected {
    Hello,
    /// The client expects no answer.
    Nothing,
    Status(u32),
    Commit(u32),
    /// A status and an empty list of results.
    Results(u32),
    BusinessCard {
        tag: u32,
        proc: Proc,
        key: String,
        /// The next step if the key is not found.
        on_miss: OnMiss,
    },
    /// A key of any process, and whether its client has named a time.
    Any {
        tag: u32,
        key: String,
        timed: bool,
    },
    /// An engine's handler.
    Register(u32, u64),
    /// The same, with the number of keys that a complete answer has.
    Lookup(u32, usize),
    /// One of several, about this key.
    Part(u32, String),
}

/// The next step where a process has committed without the wanted key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnMiss {
    /// The key is not found.
    Refuse,
    /// The key may be put a moment later: wait for it, as OpenPMIx's server does for a client that
    /// names no time.
    Wait,
    /// The wait is over.
    Waited,
}

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Session {
    node: Node,
    /// The private directory of the job on this node.
    directory: String,
    around: Arc<Surroundings>,
    rank: Option<u32>,
    /// Bytes still to come of a message that was refused for its length.
    to_skip: usize,
    pending: Pending,
    batches: Batches,
    events: events::Events,
    split: SplitKeys,
    /// The keys that it has published, for an unpublish without keys.
    published: BTreeSet<String>,
}

fn be(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..at + 4).and_then(|word| word.first_chunk());
    word.copied().map_or(0, u32::from_be_bytes)
}

fn short() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a greeting ends before its time")
}

impl Session {
    pub(crate) fn new(node: Node, directory: &Path, around: Arc<Surroundings>) -> Session {
        Session {
            node,
            directory: directory.to_string_lossy().into_owned(),
            around,
            rank: None,
            to_skip: 0,
            pending: Pending::default(),
            batches: Batches::default(),
            events: events::Events::default(),
            split: SplitKeys::default(),
            published: BTreeSet::new(),
        }
    }

    /// The rank that the client has identified itself as.
    pub(crate) fn rank(&self) -> Option<u32> {
        self.rank
    }

    fn ask(&mut self, expected: Expected, what: Request) -> Step {
        Step::Ask(self.pending.add(expected), what)
    }

    fn say(&self, tag: u32, payload: &[u8]) -> Step {
        let words = [self.rank.unwrap_or_default(), tag, payload.len() as u32, 0];
        let mut out: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        out.extend(payload);
        Step::Say(out)
    }

    fn say_status(&self, tag: u32, code: i32) -> Step {
        let mut out = Vec::new();
        put_status(&mut out, code);
        self.say(tag, &out)
    }

    /// Takes the next message, if it is complete. Gives its length, and the steps that follow. One
    /// that is too long is refused at once, and the rest of it is skipped.
    ///
    /// # Errors
    /// If this is no such client, or none of this job. Other errors in a message are answered to
    /// the client.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        job: &JobMap,
    ) -> io::Result<Option<(usize, Vec<Step>)>> {
        if self.to_skip > 0 {
            let skipped = self.to_skip.min(bytes.len());
            self.to_skip -= skipped;
            return Ok((skipped > 0).then(|| (skipped, Vec::new())));
        }
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let hello = self.rank.is_none();
        // The first header is in the client's byte order, which is ours.
        let len = if hello { be(header, 8).swap_bytes() } else { be(header, 8) } as usize;
        if hello && len > MAX_HELLO {
            let why = format!("a greeting of {len} bytes: at most {MAX_HELLO} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let tag = be(header, 4);
        if len > MAX_MESSAGE {
            self.to_skip = len;
            let why = format!("a message of {len} bytes: at most {MAX_MESSAGE} are allowed");
            let steps = vec![Step::Fail(why), self.say_status(tag, status::BAD_PARAM)];
            return Ok(Some((HEADER, steps)));
        }
        let Some(payload) = bytes.get(HEADER..HEADER + len) else { return Ok(None) };
        let steps = match hello {
            true => vec![self.hello(payload, job)?],
            false => match self.command(tag, Reader(payload), job) {
                Ok(steps) => steps,
                Err(Refusal(code)) => vec![self.say_status(tag, code)],
            },
        };
        Ok(Some((HEADER + len, steps)))
    }

    /// The handshake: the client's user (which the kernel has told), its job, its rank.
    fn hello(&mut self, payload: &[u8], job: &JobMap) -> io::Result<Step> {
        let text = |from: usize| {
            let rest = payload.get(from..).ok_or_else(short)?;
            let end = rest.iter().position(|byte| *byte == 0).ok_or_else(short)?;
            Ok::<_, io::Error>((&rest[..end], from + end + 1))
        };
        let (_, at) = text(0)?;
        let credential = be(payload, at) as usize;
        let (name, at) = text(at.saturating_add(4).saturating_add(credential).saturating_add(1))?;
        if name != job.namespace().as_bytes() {
            return Err(io::Error::other("it does not know the namespace of this job"));
        }
        payload.get(at..at + 4).ok_or_else(short)?;
        let rank = be(payload, at);
        self.rank = Some(rank);
        Ok(self.ask(Expected::Hello, Request::Connect(job.proc(rank))))
    }

    /// The engine answers a request.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        result: &Result<Answer, Error>,
        job: &JobMap,
    ) -> Vec<Step> {
        let expected = self.pending.answered(id);
        // The client library ignores the status of a commit.
        let why = match (result, &expected) {
            (Err(error), Some(Expected::Commit(_))) => {
                Some(Step::Fail(format!("what it committed was refused: {error}")))
            }
            (Err(error @ (Error::Limit { .. } | Error::Misuse(_))), _) => {
                Some(Step::Explain(error.to_string()))
            }
            _ => None,
        };
        let mut steps = self.answer(expected, result, job);
        steps.extend(why);
        steps
    }

    fn answer(
        &mut self,
        expected: Option<Expected>,
        result: &Result<Answer, Error>,
        job: &JobMap,
    ) -> Vec<Step> {
        let code = result.as_ref().map_or_else(Error::code, |_| status::SUCCESS);
        match expected {
            None | Some(Expected::Nothing) => Vec::new(),
            Some(Expected::Hello) => {
                let rank = self.rank.unwrap_or_default();
                let words = [code as u32, rank];
                vec![Step::Say(words.iter().flat_map(|word| word.to_be_bytes()).collect())]
            }
            Some(Expected::Status(tag) | Expected::Commit(tag)) => vec![self.say_status(tag, code)],
            Some(Expected::Results(tag)) => {
                let mut out = Vec::new();
                put_status(&mut out, code);
                if result.is_ok() {
                    put_size(&mut out, 0);
                }
                vec![self.say(tag, &out)]
            }
            Some(Expected::Register(tag, handler)) => {
                if result.is_err() {
                    self.events.forget(handler);
                }
                vec![self.say_status(tag, code)]
            }
            Some(Expected::BusinessCard { tag, proc, key, on_miss }) => match result {
                Ok(Answer::BusinessCard(card)) => {
                    let entries = card.entries.iter().map(|(key, Entry { value, .. })| {
                        (key.strip_prefix(ELSEWHERE).unwrap_or(key), value)
                    });
                    // The library refuses the whole answer if it has a key that the library does
                    // not know.
                    let entries = entries.filter(|(key, _)| !key.starts_with("pmix"));
                    vec![self.say_values(tag, job, proc.rank, entries)]
                }
                Ok(Answer::Value(_)) if key.starts_with("pmix.petasos.") => {
                    vec![self.say_status(tag, status::NOT_FOUND)]
                }
                Ok(Answer::Value(_)) if key == "pmix.nspace" => {
                    vec![self.say_values(tag, job, proc.rank, [(&*key, &job.namespace().into())])]
                }
                Ok(Answer::Value(value)) => {
                    let rank = if proc.rank == Proc::JOB { WILDCARD } else { proc.rank };
                    vec![self.say_values(tag, job, rank, [(key.as_str(), value)])]
                }
                // Its business card has come with the first answer: this one is dropped.
                Err(Error::NotFound { .. })
                    if !key.starts_with(ELSEWHERE) && job.node_of(proc.rank) != Some(self.node) =>
                {
                    let key = format!("{ELSEWHERE}{key}");
                    let expected = Expected::BusinessCard { tag, proc, key: key.clone(), on_miss };
                    let (timeout, immediate, wait) = (None, true, false);
                    vec![self.ask(expected, Request::Get { proc, key, timeout, immediate, wait })]
                }
                Err(Error::NotFound { .. }) if on_miss == OnMiss::Wait => {
                    let key = key.strip_prefix(ELSEWHERE).unwrap_or(&key).to_owned();
                    let expected = Expected::BusinessCard {
                        tag,
                        proc,
                        key: key.clone(),
                        on_miss: OnMiss::Waited,
                    };
                    let (timeout, immediate, wait) = (Some(USUAL_WAIT), false, true);
                    vec![self.ask(expected, Request::Get { proc, key, timeout, immediate, wait })]
                }
                // The client has named no time.
                Err(Error::GetTimeout { .. }) if on_miss == OnMiss::Waited => {
                    vec![self.say_status(tag, status::NOT_FOUND)]
                }
                _ => vec![self.say_status(tag, code)],
            },
            Some(Expected::Any { tag, key, timed }) => match result {
                Ok(Answer::Value(value)) => {
                    vec![self.say_values(tag, job, ANY_RANK, [(key.as_str(), value)])]
                }
                Err(Error::GetTimeout { .. }) if !timed => {
                    vec![self.say_status(tag, status::NOT_FOUND)]
                }
                _ => vec![self.say_status(tag, code)],
            },
            Some(Expected::Lookup(tag, whole)) => vec![self.looked_up(tag, whole, result, job)],
            Some(Expected::Part(tag, key)) => self.part_done(tag, key, result, job),
        }
    }

    /// All that is known of a process, or the part that was asked for.
    fn say_values<'a>(
        &self,
        tag: u32,
        job: &JobMap,
        rank: u32,
        values: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Step {
        let mut of = Vec::new();
        put_signed(&mut of, 1);
        put_proc(&mut of, job.namespace(), rank);
        values.into_iter().for_each(|(key, value)| values::put_pair(&mut of, key, value));
        let mut payload = Vec::new();
        put_status(&mut payload, status::SUCCESS);
        put_signed(&mut payload, 1);
        put_bytes(&mut payload, &of);
        self.say(tag, &payload)
    }

    /// An event came; `only`: for this late handler.
    pub(crate) fn event(&mut self, event: &Event, only: Option<u64>, job: &JobMap) -> Option<Step> {
        let payload = self.events.tell(event, only, job)?;
        Some(self.say(EVENTS, &payload))
    }
}
