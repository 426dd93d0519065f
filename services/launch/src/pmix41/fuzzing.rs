//! Clients of OpenPMIx that may send anything, on an engine: for the fuzz targets.

use super::{
    HEADER, Session, Step, be,
    commands::EVENT,
    values::{procs_value, put_pair},
};
use crate::{
    engine::{ClientId, Engine, Output},
    fuzzing::engine,
};
use petasos_fabric::Time;
use petasos_pmix::server::packing::{
    Reader, put_bytes, put_info, put_proc, put_signed, put_size, put_status, put_text,
    put_unsigned, put_value, take_value,
};
use petasos_pmix::{Proc, Value, fuzzing::job, job::JobMap};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Clients, which are the ranks of the first node.
const CLIENTS: usize = 2;

struct Harness {
    job: Arc<JobMap>,
    engine: Engine,
    now: Time,
    clients: [Client; CLIENTS],
}

struct Client {
    /// `None`: it was cut off.
    session: Option<Session>,
    /// Bytes of an incomplete message.
    come: Vec<u8>,
    /// Answers that are still to come, by tag.
    open: BTreeMap<u32, u32>,
    next: u32,
    /// It has sent an invalid message: tags may be there twice.
    wild: bool,
}

impl Harness {
    fn new() -> Harness {
        let job = job();
        let mut engine = engine(&job);
        let clients = [0, 1].map(|at| {
            engine.client_opened(ClientId(at));
            let session =
                Some(Session::new(petasos_pmix::Node(0), "/nowhere".as_ref(), Default::default()));
            Client { session, come: Vec::new(), open: BTreeMap::new(), next: 0, wild: false }
        });
        let mut harness = Harness { job, engine, now: Time::ZERO, clients };
        for at in 0..CLIENTS {
            harness.send(at, &hello(at as u32));
            assert!(harness.clients[at].session.is_some(), "it was greeted as it should be");
        }
        harness
    }

    /// A message of the right length. If it wants an answer, it gets exactly one.
    fn command(&mut self, at: usize, payload: &[u8]) {
        let client = &mut self.clients[at];
        client.next += 1;
        let (tag, len) = (client.next, payload.len() as u32);
        let mut from = Reader(payload);
        let silent = from.begin().is_ok() && from.byte() == Ok(14);
        if client.session.is_some() && !silent {
            *client.open.entry(tag).or_default() += 1;
        }
        let words = [0, tag, len, 0].into_iter().flat_map(u32::to_be_bytes);
        let message: Vec<u8> = words.chain(payload.iter().copied()).collect();
        self.send(at, &message);
    }

    fn send(&mut self, at: usize, bytes: &[u8]) {
        self.clients[at].come.extend(bytes);
        loop {
            let Client { session, come, .. } = &mut self.clients[at];
            let Some(speaks) = session else { return };
            match speaks.take(come, &self.job) {
                Ok(Some((len, steps))) => {
                    come.drain(..len);
                    self.carry_out(at, steps);
                }
                Ok(None) => return,
                Err(_) => {
                    *session = None;
                    self.engine.client_closed(self.now, ClientId(at as u64));
                    self.drain();
                    return;
                }
            }
        }
    }

    fn carry_out(&mut self, at: usize, steps: Vec<Step>) {
        for step in steps {
            if self.clients[at].session.is_none() {
                return;
            }
            match step {
                Step::Say(bytes) => self.received(at, &bytes),
                Step::Explain(_) | Step::Fail(_) => {}
                Step::Ask(id, what) => {
                    self.engine.request(self.now, ClientId(at as u64), id, what);
                    self.drain();
                }
                Step::Find(id, key, patience) => {
                    let asker = (ClientId(at as u64), id);
                    self.engine.get_any(self.now, asker, self.job.id(), key, patience);
                    self.drain();
                }
            }
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.engine.poll() {
            let (client, steps) = match output {
                Output::Answer { client, id, result } => {
                    let session = self.clients[client.0 as usize].session.as_mut();
                    (client, session.map(|s| s.answered(id, &result, &self.job)))
                }
                Output::Deliver { client, event, only } => {
                    let session = self.clients[client.0 as usize].session.as_mut();
                    let step = session.and_then(|s| s.event(&event, only, &self.job));
                    (client, step.map(|step| vec![step]))
                }
                _ => continue,
            };
            self.carry_out(client.0 as usize, steps.unwrap_or_default());
        }
    }

    /// A complete message from the session; an answer must have been asked for.
    fn received(&mut self, at: usize, bytes: &[u8]) {
        // The answer to the greeting has no header.
        if bytes.len() < HEADER {
            return assert_eq!(bytes.len(), 8);
        }
        let (len, tag) = (be(bytes, 8) as usize, be(bytes, 4));
        assert_eq!(len, bytes.len() - HEADER);
        let mut from = Reader(&bytes[HEADER..]);
        from.begin().expect("a number of things");
        if tag == 0 && from.clone().byte() == Ok(EVENT) {
            return is_event(from);
        }
        let client = &mut self.clients[at];
        if let (Some(open), false) = (client.open.get_mut(&tag), client.wild) {
            *open = open.checked_sub(1).expect("one answer for each message");
        }
    }

    fn elapse(&mut self, time: Duration) {
        self.now = self.now.after(time);
        self.engine.advance(self.now);
        self.drain();
    }
}

fn is_event(mut from: Reader<'_>) {
    let mut read = || {
        from.byte()?;
        from.status()?;
        from.begin()?;
        from.text()?;
        from.rank()?;
        for _ in 0..from.size(usize::MAX)? {
            from.text()?;
            from.unsigned()?;
            take_value(&mut from)?;
        }
        from.begin()?;
        from.byte()
    };
    read().expect("an event as a client reads it");
    assert!(from.is_empty());
}

/// Steps: what clients send, in messages or not, and time that passes. Every message is answered
/// once, by the end of time at the latest, and answers can be read. Values that were understood can
/// be encoded again.
///
/// # Panics
/// If not.
pub fn pmix41(bytes: &[u8]) {
    if let Ok(value) = take_value(&mut Reader(bytes)) {
        let mut once = Vec::new();
        put_value(&mut once, "key", &value);
        assert_eq!(take_value(&mut Reader(&once)), Ok(value));
    }
    let mut harness = Harness::new();
    let mut rest = bytes;
    for _ in 0..64 {
        let Some((header, tail)) = rest.split_first_chunk::<3>() else { break };
        let at = usize::from(header[0] & 1);
        let len = usize::from(u16::from_le_bytes([header[1], header[2]])).min(tail.len());
        match header[0] >> 1 & 3 {
            0 => {
                harness.clients[at].wild = true;
                harness.send(at, &tail[..len]);
            }
            1 => harness.elapse(Duration::from_millis(len as u64)),
            _ => harness.command(at, &tail[..len]),
        }
        rest = if header[0] >> 1 & 3 == 1 { tail } else { &tail[len..] };
    }
    // No request waits longer than a year.
    for _ in 0..100 {
        harness.elapse(Duration::from_secs(7 * 24 * 3600));
    }
    let counted = |client: &&Client| client.session.is_some() && !client.wild;
    for client in harness.clients.iter().filter(counted) {
        assert!(client.open.values().all(|open| *open == 0), "not answered: {:?}", client.open);
    }
}

fn hello(rank: u32) -> Vec<u8> {
    let mut payload = b"native\0".to_vec();
    payload.extend(0u32.to_be_bytes());
    payload.push(0);
    payload.extend(b"job\0");
    payload.extend(rank.to_be_bytes());
    let len = (payload.len() as u32).to_le_bytes();
    [&[0xff; 8][..], &len, &[0; 4], &payload].concat()
}

/// Messages of all kinds, each from both clients.
#[must_use]
pub fn pmix41_seeds() -> Vec<Vec<u8>> {
    let begin = |command: u8| {
        let mut out = Vec::new();
        put_signed(&mut out, 1);
        out.push(command);
        out
    };
    let infos = |out: &mut Vec<u8>, infos: &[(&str, Value)]| {
        put_size(out, infos.len());
        infos.iter().for_each(|(key, value)| put_info(out, key, value));
    };
    let mut commands = vec![begin(0), begin(5), begin(16)];
    let mut abort = begin(1);
    put_status(&mut abort, 3);
    put_signed(&mut abort, 1);
    put_text(&mut abort, "why");
    commands.push(abort);
    let mut commit = begin(2);
    for scope in [1, 2] {
        put_signed(&mut commit, 1);
        commit.push(scope);
        put_signed(&mut commit, 1);
        commit.push(1);
        let mut pairs = Vec::new();
        put_pair(&mut pairs, "key", &Value::Uint(scope.into()));
        put_pair(&mut pairs, "procs", &procs_value("job", &[0, 1]));
        put_pair(&mut pairs, "list", &Value::List(vec![Value::Real(0.5), Value::Bool(true)]));
        put_bytes(&mut commit, &pairs);
    }
    commands.push(commit);
    let mut fence = begin(3);
    put_size(&mut fence, 1);
    put_proc(&mut fence, "job", petasos_pmix::server::packing::WILDCARD);
    infos(&mut fence, &[("pmix.timeout", Value::Uint(2)), ("pmix.collect", Value::Bool(true))]);
    commands.push(fence);
    for rank in
        [0, 1, 2, petasos_pmix::server::packing::ANY_RANK, petasos_pmix::server::packing::WILDCARD]
    {
        let mut get = begin(4);
        put_signed(&mut get, 1);
        put_text(&mut get, "job");
        put_signed(&mut get, 1);
        put_unsigned(&mut get, rank.into());
        infos(&mut get, &[("pmix.timeout", Value::Uint(2))]);
        put_signed(&mut get, 1);
        put_text(&mut get, "key");
        commands.push(get);
    }
    let mut publish = begin(6);
    put_signed(&mut publish, 1);
    put_unsigned(&mut publish, 0);
    let persist = Value::Typed { kind: 30, packed: vec![1] };
    infos(&mut publish, &[("a", "b".into()), ("pmix.persist", persist), ("c", 4.into())]);
    commands.push(publish);
    for command in [7, 8] {
        let mut names = begin(command);
        put_signed(&mut names, 1);
        put_unsigned(&mut names, 0);
        put_signed(&mut names, 1);
        put_unsigned(&mut names, 2);
        for key in ["a", "c"] {
            put_signed(&mut names, 1);
            put_text(&mut names, key);
        }
        infos(&mut names, &[("pmix.wait", Value::Uint(0)), ("pmix.timeout", Value::Uint(1))]);
        commands.push(names);
    }
    for codes in [&[][..], &[-7, -3100], &[-231]] {
        let mut register = begin(13);
        put_size(&mut register, codes.len());
        codes.iter().for_each(|code| put_signed(&mut register, *code));
        infos(&mut register, &[]);
        commands.push(register);
    }
    for range in [3, 6] {
        let mut notify = begin(EVENT);
        put_status(&mut notify, -3100);
        put_signed(&mut notify, 1);
        notify.push(range);
        let to = ("pmix.evrange", procs_value("job", &[0, 1]));
        let word = ("word", Value::from("text"));
        match range {
            6 => infos(&mut notify, &[to, word]),
            _ => infos(&mut notify, &[word]),
        }
        commands.push(notify);
    }
    let mut deregister = begin(14);
    put_status(&mut deregister, -3100);
    put_status(&mut deregister, i32::MIN);
    commands.push(deregister);
    let mut query = begin(15);
    put_size(&mut query, 1);
    put_signed(&mut query, 3);
    for key in ["pmix.qry.ns", "pmix.qry.ptable", "weather"] {
        put_text(&mut query, key);
    }
    put_unsigned(&mut query, 1);
    put_info(&mut query, "pmix.nspace", &"job".into());
    commands.push(query);
    // Each alone, all together, and all alternating with time that passes.
    let step = |at: u8, command: &[u8]| {
        let len = (command.len() as u16).to_le_bytes();
        [&[at | 4][..], &len, command].concat()
    };
    let both = |command: &Vec<u8>| [step(0, command), step(1, command)].concat();
    let late: &[u8] = &[2, 0xff, 0xff];
    let mut seeds: Vec<Vec<u8>> =
        commands.iter().map(|command| [&both(command)[..], late].concat()).collect();
    let all: Vec<u8> = commands.iter().skip(2).rev().flat_map(both).collect();
    seeds.push(all);
    let mut value = Vec::new();
    put_value(&mut value, "key", &Proc::JOB.into());
    seeds.push(value);
    seeds
}
