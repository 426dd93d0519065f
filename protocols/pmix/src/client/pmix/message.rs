//! Our requests in the protocol of a PMIx server, and its answers in ours.

use super::{
    EventSupport,
    buffer::{Name, Reader, Typed, WILDCARD, Writer, bad, scope},
};
use crate::{
    BusinessCard, Entry, Error, Group, Info, JobId, Node, Proc, Scope, Value,
    event::{Event, EventId, Range},
    job::JobMap,
    message::{Answer, Persistence, Request},
    status,
};
use std::{collections::BTreeMap, io, time::Duration};

/// Commands of a client.
pub(super) const JOB_DATA: u8 = 0;
const ABORT: u8 = 1;
const COMMIT: u8 = 2;
const FENCE: u8 = 3;
const GET: u8 = 4;
const FINALIZE: u8 = 5;
const PUBLISH: u8 = 6;
const LOOKUP: u8 = 7;
const UNPUBLISH: u8 = 8;
const NOTIFY: u8 = 12;
const REGISTER: u8 = 13;
const DEREGISTER: u8 = 14;

const TIMEOUT: &str = "pmix.timeout";
const CUSTOM: &str = "pmix.evrange";
/// The targets of an event that the server gives to its whole node, since it takes no list of
/// processes for that.
const TARGETS: &str = "petasos.range";
const NON_DEFAULT: &str = "pmix.evnondef";

/// The range of an event that is for the server's node.
const LOCAL: u8 = 2;

/// What an answer belongs to.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expected {
    /// A status, and nothing else.
    Status,
    Commit,
    BusinessCard(Proc, String),
    Fence(Group),
    Lookup(String),
    Notify,
}

/// The process that asks, and its job.
#[derive(Debug)]
pub(super) struct Translator {
    pub(super) me: Proc,
    pub(super) node: Node,
    /// The name of the job as the server knows it.
    pub(super) space: String,
    /// The nodes of the ranks.
    pub(super) nodes: Vec<Node>,
    pub(super) events: EventSupport,
}

/// A request as it is sent.
pub(super) struct Encoded {
    pub(super) payload: Vec<u8>,
    /// `None`: the server gives no answer.
    pub(super) expected: Option<Expected>,
}

/// The protocol has no such request.
#[derive(Debug, PartialEq)]
pub(super) struct NotOffered(pub(super) String);

fn not_offered<T>(what: &str) -> Result<T, NotOffered> {
    Err(NotOffered(what.to_owned()))
}

fn seconds(time: Duration) -> Typed {
    let whole = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    Typed::Int(i32::try_from(whole.max(1)).unwrap_or(i32::MAX))
}

impl Translator {
    pub(super) fn new(map: &JobMap, me: Proc, node: Node, space: String) -> Translator {
        let nodes = (0..map.size()).filter_map(|rank| map.node_of(rank)).collect();
        Translator { me, node, space, nodes, events: EventSupport::Anywhere }
    }

    fn name(&self, rank: u32) -> Name {
        Name { space: self.space.clone(), rank }
    }

    fn all(&self) -> Group {
        Group::all(self.me.job, self.nodes.len() as u32)
    }

    fn names(&self, group: &Group) -> Vec<Name> {
        match *group == self.all() {
            true => vec![self.name(WILDCARD)],
            false => group.iter().map(|proc| self.name(proc.rank)).collect(),
        }
    }

    fn proc(&self, name: &Name) -> Proc {
        let known = name.space == self.space && (name.rank as usize) < self.nodes.len();
        match known {
            true => Proc::new(self.me.job, name.rank),
            // A server, or a process of another job.
            false => Proc::new(JobId::TOOLS, Proc::JOB),
        }
    }

    /// The message for a request.
    pub(super) fn encode(&self, what: Request) -> Result<Encoded, NotOffered> {
        let mut out = Writer::default();
        let expected = match what {
            Request::Commit(entries) => {
                out.command(COMMIT);
                commit(&mut out, &entries);
                Expected::Commit
            }
            Request::Fence { group, collect, timeout } => {
                let group = group.unwrap_or_else(|| self.all());
                out.command(FENCE);
                let names = self.names(&group);
                out.count(1);
                out.unsigned(names.len() as u64);
                out.count(names.len());
                names.iter().for_each(|name| out.name(name));
                let mut infos = vec![];
                if collect {
                    infos.push(("pmix.collect", Typed::Plain(true.into())));
                }
                infos.extend(timeout.map(|time| (TIMEOUT, seconds(time))));
                out.infos(&infos);
                Expected::Fence(group)
            }
            Request::Get { proc, key, timeout, immediate, .. } => {
                out.command(GET);
                out.count(1);
                out.text(&self.space);
                out.count(1);
                out.unsigned(u64::from(proc.rank));
                let mut infos = vec![];
                if immediate {
                    infos.push(("pmix.immediate", Typed::Plain(true.into())));
                }
                infos.extend(timeout.map(|time| (TIMEOUT, seconds(time))));
                out.infos(&infos);
                out.count(1);
                out.text(&key);
                Expected::BusinessCard(proc, key)
            }
            Request::Publish(what) => {
                let Some(range) = number(&what.range) else {
                    return not_offered("publishing for some processes only");
                };
                let persistence = match what.persistence {
                    Persistence::FirstRead => 1u64,
                    Persistence::Process => 2,
                    Persistence::Session => 4,
                };
                out.command(PUBLISH);
                user(&mut out);
                let mut infos = vec![(what.key.as_str(), Typed::Plain(what.value))];
                infos.push(("pmix.range", Typed::Range(range)));
                // Servers have a default of their own, and some take no other.
                if persistence != 4 {
                    infos.push(("pmix.persist", Typed::Persistence(persistence as u8)));
                }
                out.infos(&infos);
                Expected::Status
            }
            Request::Lookup { keys, wait, .. } => {
                let [key] = &keys[..] else { return not_offered("a lookup of several keys") };
                out.command(LOOKUP);
                user(&mut out);
                out.count(1);
                out.unsigned(1);
                out.count(1);
                out.text(key);
                let mut infos = vec![];
                if let Some(time) = wait {
                    infos.push(("pmix.wait", Typed::Int(1)));
                    infos.push((TIMEOUT, seconds(time)));
                }
                out.infos(&infos);
                Expected::Lookup(key.clone())
            }
            Request::Unpublish(keys) => {
                out.command(UNPUBLISH);
                user(&mut out);
                out.count(1);
                out.unsigned(keys.len() as u64);
                out.count(keys.len());
                keys.iter().for_each(|key| out.text(key));
                out.infos(&[]);
                Expected::Status
            }
            Request::Register { codes, .. } => {
                out.command(REGISTER);
                codes_of(&mut out, &codes);
                out.infos(&[]);
                Expected::Status
            }
            Request::Notify { code, range, non_default, info } => {
                out.command(NOTIFY);
                self.notify(&mut out, code, &range, non_default, info)?;
                Expected::Notify
            }
            Request::Abort { status, message } => {
                out.command(ABORT);
                out.count(1);
                out.signed(i64::from(status));
                out.count(1);
                out.text(&message);
                // No particular process: all.
                out.count(1);
                out.unsigned(0);
                Expected::Status
            }
            Request::Finalize => {
                out.command(FINALIZE);
                Expected::Status
            }
            Request::Deregister(_) => return not_offered("taking back a handler by its number"),
            Request::Query(_) => return not_offered("queries"),
            Request::Restart { .. } => return not_offered("starting a rank again"),
            Request::Replace(_) => return not_offered("replacing a node"),
            Request::Signal { .. } => return not_offered("signals"),
            Request::Watch(_) | Request::Progress => return not_offered("watching progress"),
            Request::Connect(_) | Request::ConnectTool => return not_offered("connecting again"),
        };
        Ok(Encoded { payload: out.0, expected: Some(expected) })
    }

    /// Tells the server that no handler wants these codes any more. There is no answer.
    pub(super) fn deregister(codes: &[i32]) -> Encoded {
        let mut out = Writer::default();
        out.command(DEREGISTER);
        if !codes.is_empty() {
            out.count(codes.len());
            codes.iter().for_each(|code| out.signed(i64::from(*code)));
        }
        Encoded { payload: out.0, expected: None }
    }

    fn notify(
        &self,
        out: &mut Writer,
        code: i32,
        range: &Range,
        non_default: bool,
        info: Info,
    ) -> Result<(), NotOffered> {
        let one_node = self.nodes.iter().all(|node| *node == self.node);
        let Some((number, told)) = self.wire_range(range, one_node) else {
            return not_offered("an event for processes of other nodes (this server hangs on it)");
        };
        out.count(1);
        out.signed(i64::from(code));
        out.count(1);
        out.byte(number);
        let mut infos = vec![];
        let list = if number == LOCAL { TARGETS } else { CUSTOM };
        infos.extend(told.map(|names| (list, Typed::Procs(names))));
        if non_default {
            infos.push((NON_DEFAULT, Typed::Plain(true.into())));
        }
        let own: Vec<_> =
            info.iter().map(|(key, value)| (key.as_str(), Typed::Plain(value.clone()))).collect();
        infos.extend(own);
        out.infos(&infos);
        Ok(())
    }

    /// The server's range for one of ours, and the processes of it that are meant. On one node,
    /// these are the processes that the server itself can reach, so nothing goes through the
    /// launcher.
    fn wire_range(&self, range: &Range, one_node: bool) -> Option<(u8, Option<Vec<Name>>)> {
        let names = match range {
            Range::Custom(group) => Some(self.names(group)),
            Range::Namespace => Some(vec![self.name(WILDCARD)]),
            _ => None,
        };
        let within = match range {
            Range::Rm => false,
            Range::Local | Range::ProcLocal => true,
            Range::Custom(group) => group
                .iter()
                .all(|proc| self.nodes.get(proc.rank as usize).is_none_or(|n| *n == self.node)),
            Range::Namespace | Range::Session | Range::Global => one_node,
        };
        match range {
            _ if self.events == EventSupport::Nowhere => None,
            _ if within => Some((LOCAL, names)),
            _ if self.events == EventSupport::WithinNode => None,
            Range::Namespace => Some((3, None)),
            Range::Custom(_) => Some((6, names)),
            other => Some((number(other)?, None)),
        }
    }

    /// Decodes an answer; `payload` is what follows the header.
    pub(super) fn decode(
        &self,
        expected: Expected,
        payload: &[u8],
    ) -> io::Result<Result<Answer, Error>> {
        let mut from = Reader(payload);
        let code = from.status()?;
        // The server's own status for an operation that succeeded at once.
        if code != status::SUCCESS && !(expected == Expected::Notify && code == OPERATION_SUCCEEDED)
        {
            return Ok(Err(self.refused(expected, code)));
        }
        Ok(Ok(match expected {
            Expected::Status | Expected::Commit | Expected::Fence(_) => Answer::Done,
            Expected::Notify => {
                Answer::Notified(EventId { node: self.node, number: EventId::LOSS - 1 })
            }
            Expected::BusinessCard(proc, key) => {
                let card = self.card(&mut from, proc)?;
                if card.entries.is_empty() {
                    return Ok(Err(Error::NotFound { proc, key }));
                }
                Answer::BusinessCard(card)
            }
            Expected::Lookup(key) => {
                from.count()?;
                let count = from.unsigned()?;
                from.count()?;
                if count == 0 {
                    return Ok(Err(Error::NotPublished(key)));
                }
                let owner = from.name()?;
                let (found, value) = (from.text()?, from.typed()?);
                let value = value.plain().ok_or_else(|| bad("infos were published"))?;
                Answer::Found(vec![(found, value, self.proc(&owner))])
            }
        }))
    }

    fn refused(&self, expected: Expected, code: i32) -> Error {
        let place = |proc: Proc| self.nodes.get(proc.rank as usize).copied().unwrap_or_default();
        match (expected, code) {
            (Expected::BusinessCard(proc, key), status::TIMEOUT) => {
                let state = "the server of the launcher did not get it".to_owned();
                Error::GetTimeout { proc, node: place(proc), key, state }
            }
            (Expected::BusinessCard(proc, key), status::NOT_FOUND) => Error::NotFound { proc, key },
            (Expected::Lookup(key), status::TIMEOUT) => Error::LookupTimeout(key),
            (Expected::Lookup(key), _) => Error::NotPublished(key),
            (Expected::Fence(group), code) => Error::Misuse(format!(
                "fence of {group}: the server of the launcher ended it with {}",
                describe(code)
            )),
            (expected, code) => {
                let what = match expected {
                    Expected::BusinessCard(proc, key) => format!("key `{key}` of {proc}"),
                    Expected::Commit => "a commit".to_owned(),
                    Expected::Notify => "an event".to_owned(),
                    _ => "a request".to_owned(),
                };
                Error::Misuse(format!("{what}: the server of the launcher says {}", describe(code)))
            }
        }
    }

    /// The business card of a process, from what was received for it.
    fn card(&self, from: &mut Reader<'_>, proc: Proc) -> io::Result<BusinessCard> {
        let mut entries = BTreeMap::new();
        while !from.is_empty() {
            from.count()?;
            let mut blob = Reader(from.bytes()?);
            blob.count()?;
            if blob.name()?.rank != proc.rank {
                continue;
            }
            for (key, value) in blob.pairs()? {
                if let Some(value) = value.plain() {
                    entries.insert(key, Entry { scope: Scope::Global, value });
                }
            }
        }
        Ok(BusinessCard { restarts: 0, version: 1, entries })
    }

    /// An event from the server; `None` if it is none, or for others.
    pub(super) fn event(&self, payload: &[u8], nth: u64) -> io::Result<Option<Event>> {
        let mut from = Reader(payload);
        from.count()?;
        if from.byte()? != NOTIFY {
            return Ok(None);
        }
        let code = from.status()?;
        from.count()?;
        let source = from.name()?;
        let (mut info, mut non_default, mut for_us) = (Info::new(), false, true);
        let mut range = Range::Session;
        for (key, value) in from.infos()? {
            match (key.as_str(), value) {
                (CUSTOM | TARGETS, Typed::Procs(names)) => {
                    let us = |name: &Name| {
                        name.space == self.space && [self.me.rank, WILDCARD].contains(&name.rank)
                    };
                    for_us = names.iter().any(us);
                    range = match names.iter().any(|name| name.rank == WILDCARD) {
                        true => Range::Namespace,
                        false => Range::Custom(Group::of(names.iter().map(|n| self.proc(n)))),
                    };
                }
                (NON_DEFAULT, Typed::Plain(Value::Bool(truth))) => non_default = truth,
                ("pmix.srvr.internal.notify", _) => {}
                (_, value) => info.extend(value.plain().map(|value| (key, value))),
            }
        }
        let source = match self.proc(&source) {
            Proc { job: JobId::TOOLS, .. } => Proc::new(self.me.job, Proc::JOB),
            proc => proc,
        };
        let node = self.nodes.get(source.rank as usize).copied().unwrap_or(self.node);
        let id = EventId { node, number: nth };
        let event = Event { id, code, source, node, range, non_default, info };
        // The source has run its handlers already.
        Ok((for_us && source != self.me).then_some(event))
    }
}

/// The server did it at once.
const OPERATION_SUCCEEDED: i32 = -157;

fn describe(code: i32) -> String {
    let name = match code {
        status::TIMEOUT => " (not in time)",
        status::NOT_SUPPORTED => " (not supported)",
        status::UNREACH => " (cannot be reached)",
        status::LOST_CONNECTION => " (a process is gone)",
        status::NOT_FOUND => " (not found)",
        status::NO_PERMISSIONS => " (not allowed)",
        status::BAD_PARAM => " (a wrong argument)",
        _ => "",
    };
    format!("status {code}{name}")
}

fn number(range: &Range) -> Option<u8> {
    Some(match range {
        Range::Rm => 1,
        Range::Local => 2,
        Range::Namespace => 3,
        Range::Session => 4,
        Range::Global => 5,
        Range::Custom(_) => return None,
        Range::ProcLocal => 7,
    })
}

/// Requests about published data begin with the user.
fn user(out: &mut Writer) {
    out.count(1);
    out.unsigned(u64::from(rustix::process::geteuid().as_raw()));
}

fn codes_of(out: &mut Writer, codes: &[i32]) {
    out.count(1);
    out.unsigned(codes.len() as u64);
    if !codes.is_empty() {
        out.count(codes.len());
        codes.iter().for_each(|code| out.signed(i64::from(*code)));
    }
}

/// Entries for processes of this node, and for others. Those for all are in both.
fn commit(out: &mut Writer, entries: &[(String, Entry)]) {
    for (part, without) in [(Scope::Local, Scope::Remote), (Scope::Remote, Scope::Local)] {
        let mut pairs = Writer::default();
        for (key, entry) in entries.iter().filter(|(_, entry)| entry.scope != without) {
            pairs.pair(key, &entry.value);
        }
        if !pairs.0.is_empty() {
            out.count(1);
            out.byte(scope(part));
            // A buffer that does not state the types of its contents.
            out.count(1);
            out.byte(1);
            out.unsigned(pairs.0.len() as u64);
            out.0.extend(pairs.0);
        }
    }
}
