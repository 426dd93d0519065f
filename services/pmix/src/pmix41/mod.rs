//! The wire of OpenPMIx 4.1, as the client library of Open MPI speaks it: a front end on the engine,
//! as a state machine. Bytes in; requests of the engine, and bytes, out.
//!
//! What a process puts lies on its card key by key, with the types that both sides have translated
//! ([`values`]), so that programs of both kinds can read each other's cards, events, and what they
//! publish. Whatever the client asks is answered: what is not understood, or not to be had here, by
//! a status that says so.
//!
//! The client library runs the chain of handlers itself, and always all of it. So that no handler
//! sees an event twice, an event of the past is not sent again for a default handler that comes
//! late; for one with a code it is, past the default handlers that have seen it.

mod commands;
mod events;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod here;
mod job;
pub(crate) mod values;
pub(crate) mod wire;

use crate::engine::MAX_CARD;
use crate::{
    Entry, Error, Node, Proc, Value,
    event::Event,
    job::JobMap,
    message::{Answer, Request},
    status,
};
use commands::Batch;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
    time::Duration,
};
use wire::{Decoded, Reader, Refusal, put_bytes, put_proc, put_signed, put_size, put_status};

pub(crate) use here::Surroundings;
pub(crate) use job::own_directory;
pub(crate) use values::number;

/// The longest message of a client: a commit has all of a card that both its own node and the others see twice, with
/// what the wire puts between.
const MAX_MESSAGE: usize = 2 * MAX_CARD + (32 << 20);
/// The longest of one that has not shown yet that it is of the job: a few names.
const MAX_HELLO: usize = 64 << 10;
/// The version that is told to clients, which choose their formats by it.
pub(crate) const VERSION: &str = "4.2.2";
/// Before a key that has one value for this node, and another, this one, for the others.
const ELSEWHERE: &str = "pmix41.elsewhere.";
const HEADER: usize = 16;
/// How long a key is waited for that a process has committed without, for a client that says no time: as OpenPMIx's
/// server does.
const USUAL_WAIT: Duration = Duration::from_secs(2);
/// What the client listens to for events.
const EVENTS: u32 = 0;

/// What a message, or an answer, leads to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Bytes to the client.
    Say(Vec<u8>),
    /// A request of the engine, whose answer goes to [`Session::answered`] with this number.
    Ask(u64, Request),
    /// A key that any process of the job may put, and how long it is waited for; the answer goes to
    /// [`Session::answered`] with this number.
    Find(u64, String, Duration),
    /// What its user is to be told, who sees only a status.
    Explain(String),
    /// The same, and that it has failed whatever it says in the end: its library does not tell it that this was refused.
    Fail(String),
}

/// What an answer of the engine is for. Most go back under the tag of a message.
#[derive(Clone, Debug)]
enum Waits {
    Hello,
    /// Nobody wants to know.
    Nothing,
    Status(u32),
    Commit(u32),
    /// A status, and results, of which there are none.
    Results(u32),
    BusinessCard {
        tag: u32,
        proc: Proc,
        key: String,
        /// What follows if the key is not there.
        then: Then,
    },
    /// A key of any process, and whether its client has named a time.
    Any {
        tag: u32,
        key: String,
        timed: bool,
    },
    /// An engine's handler.
    Register(u32, u64),
    /// And how many keys it is to have to be whole.
    Lookup(u32, usize),
    /// One of several, about this key.
    Part(u32, String),
}

/// What follows where a process has committed without a key that is wanted of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// It is not found.
    Refuse,
    /// It may be put a moment later: it is waited for, as OpenPMIx's server does for a client that says no time.
    Wait,
    /// It has been waited for.
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
    /// Bytes that still come of a message that was refused for its length.
    left: usize,
    next: u64,
    waits: BTreeMap<u64, Waits>,
    /// Messages that are several requests of the engine, by tag.
    batches: BTreeMap<u32, Batch>,
    events: events::Events,
    /// Keys that it has put with two values.
    two: BTreeSet<String>,
    /// What it has published, to take it back by no name.
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
            left: 0,
            next: 0,
            waits: BTreeMap::new(),
            batches: BTreeMap::new(),
            events: events::Events::default(),
            two: BTreeSet::new(),
            published: BTreeSet::new(),
        }
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

    fn say_status(&self, tag: u32, code: i32) -> Step {
        let mut out = Vec::new();
        put_status(&mut out, code);
        self.say(tag, &out)
    }

    /// Takes the next message, if all of it is there: gives its length, and what to do. One that is too long is
    /// refused at once, and what comes of it is passed over.
    ///
    /// # Errors
    /// If this is no such client, or none of this job; what else is wrong with a message, the
    /// client is told.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        job: &JobMap,
    ) -> io::Result<Option<(usize, Vec<Step>)>> {
        if self.left > 0 {
            let passed = self.left.min(bytes.len());
            self.left -= passed;
            return Ok((passed > 0).then(|| (passed, Vec::new())));
        }
        let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let hello = self.rank.is_none();
        // The first header is in the byte order of its machine, which is ours.
        let len = if hello { be(header, 8).swap_bytes() } else { be(header, 8) } as usize;
        if hello && len > MAX_HELLO {
            let why = format!("a greeting of {len} bytes: at most {MAX_HELLO} are allowed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let tag = be(header, 4);
        if len > MAX_MESSAGE {
            self.left = len;
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
        if name != job.space().as_bytes() {
            return Err(io::Error::other("it does not know the namespace of this job"));
        }
        payload.get(at..at + 4).ok_or_else(short)?;
        let rank = be(payload, at);
        self.rank = Some(rank);
        Ok(self.ask(Waits::Hello, Request::Connect(job.proc(rank))))
    }

    /// The engine answers a request.
    pub(crate) fn answered(
        &mut self,
        id: u64,
        result: &Result<Answer, Error>,
        job: &JobMap,
    ) -> Vec<Step> {
        let waits = self.waits.remove(&id);
        // The client library does not look at the status of a commit.
        let why = match (result, &waits) {
            (Err(error), Some(Waits::Commit(_))) => {
                Some(Step::Fail(format!("what it committed was refused: {error}")))
            }
            (Err(error @ (Error::Limit { .. } | Error::Misuse(_))), _) => {
                Some(Step::Explain(error.to_string()))
            }
            _ => None,
        };
        let mut steps = self.answer(waits, result, job);
        steps.extend(why);
        steps
    }

    fn answer(
        &mut self,
        waits: Option<Waits>,
        result: &Result<Answer, Error>,
        job: &JobMap,
    ) -> Vec<Step> {
        let code = result.as_ref().map_or_else(Error::code, |_| status::SUCCESS);
        match waits {
            None | Some(Waits::Nothing) => Vec::new(),
            Some(Waits::Hello) => {
                let rank = self.rank.unwrap_or_default();
                let words = [code as u32, rank];
                vec![Step::Say(words.iter().flat_map(|word| word.to_be_bytes()).collect())]
            }
            Some(Waits::Status(tag) | Waits::Commit(tag)) => vec![self.say_status(tag, code)],
            Some(Waits::Results(tag)) => {
                let mut out = Vec::new();
                put_status(&mut out, code);
                if result.is_ok() {
                    put_size(&mut out, 0);
                }
                vec![self.say(tag, &out)]
            }
            Some(Waits::Register(tag, handler)) => {
                if result.is_err() {
                    self.events.forget(handler);
                }
                vec![self.say_status(tag, code)]
            }
            Some(Waits::BusinessCard { tag, proc, key, then }) => match result {
                Ok(Answer::BusinessCard(card)) => {
                    let entries = card.entries.iter().map(|(key, Entry { value, .. })| {
                        (key.strip_prefix(ELSEWHERE).unwrap_or(key), value)
                    });
                    // The library refuses the whole, for a key of its own that it does not know.
                    let entries = entries.filter(|(key, _)| !key.starts_with("pmix"));
                    vec![self.say_values(tag, job, proc.rank, entries)]
                }
                Ok(Answer::Value(_)) if key.starts_with("pmix.petasos.") => {
                    vec![self.say_status(tag, status::NOT_FOUND)]
                }
                Ok(Answer::Value(_)) if key == "pmix.nspace" => {
                    vec![self.say_values(tag, job, proc.rank, [(&*key, &job.space().into())])]
                }
                Ok(Answer::Value(value)) => {
                    let rank = if proc.rank == Proc::JOB { wire::WILDCARD } else { proc.rank };
                    vec![self.say_values(tag, job, rank, [(key.as_str(), value)])]
                }
                // Its card has come with the first answer: this goes nowhere.
                Err(Error::NotFound { .. })
                    if !key.starts_with(ELSEWHERE) && job.node_of(proc.rank) != Some(self.node) =>
                {
                    let key = format!("{ELSEWHERE}{key}");
                    let waits = Waits::BusinessCard { tag, proc, key: key.clone(), then };
                    let (timeout, immediate, wait) = (None, true, false);
                    vec![self.ask(waits, Request::Get { proc, key, timeout, immediate, wait })]
                }
                Err(Error::NotFound { .. }) if then == Then::Wait => {
                    let key = key.strip_prefix(ELSEWHERE).unwrap_or(&key).to_owned();
                    let waits =
                        Waits::BusinessCard { tag, proc, key: key.clone(), then: Then::Waited };
                    let (timeout, immediate, wait) = (Some(USUAL_WAIT), false, true);
                    vec![self.ask(waits, Request::Get { proc, key, timeout, immediate, wait })]
                }
                // The client has named no time.
                Err(Error::GetTimeout { .. }) if then == Then::Waited => {
                    vec![self.say_status(tag, status::NOT_FOUND)]
                }
                _ => vec![self.say_status(tag, code)],
            },
            Some(Waits::Any { tag, key, timed }) => match result {
                Ok(Answer::Value(value)) => {
                    vec![self.say_values(tag, job, wire::ANYBODY, [(key.as_str(), value)])]
                }
                Err(Error::GetTimeout { .. }) if !timed => {
                    vec![self.say_status(tag, status::NOT_FOUND)]
                }
                _ => vec![self.say_status(tag, code)],
            },
            Some(Waits::Lookup(tag, whole)) => vec![self.looked_up(tag, whole, result, job)],
            Some(Waits::Part(tag, key)) => self.part_done(tag, key, result, job),
        }
    }

    /// All that is known of a process, or what of it was asked for.
    fn say_values<'a>(
        &self,
        tag: u32,
        job: &JobMap,
        rank: u32,
        values: impl IntoIterator<Item = (&'a str, &'a Value)>,
    ) -> Step {
        let mut of = Vec::new();
        put_signed(&mut of, 1);
        put_proc(&mut of, job.space(), rank);
        values.into_iter().for_each(|(key, value)| values::put_pair(&mut of, key, value));
        let mut payload = Vec::new();
        put_status(&mut payload, status::SUCCESS);
        put_signed(&mut payload, 1);
        put_bytes(&mut payload, &of);
        self.say(tag, &payload)
    }

    /// Something happened; `only`: for this late handler.
    pub(crate) fn event(&mut self, event: &Event, only: Option<u64>, job: &JobMap) -> Option<Step> {
        let payload = self.events.tell(event, only, job)?;
        Some(self.say(EVENTS, &payload))
    }
}
