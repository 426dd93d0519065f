//! Two endpoints of one process.

#![allow(dead_code)]

use crate::common::found;
use petasos_channel::Channels;
use petasos_conformance::Network;
use petasos_fabric::{
    Access, Clock, Done, Endpoint, Event, Key, Level, OpErrorKind, Operation, RegionId, Remote,
    RemoteSpan, Slice, Support, Token,
};
use petasos_ofi::{Config, Nic};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Two endpoints: `a` reaches memory of `b`.
pub(crate) struct Pair {
    pub(crate) a: Channels<Nic>,
    pub(crate) b: Channels<Nic>,
    clock: Clock,
    pub(crate) events: [Vec<Event>; 2],
    next: u64,
}

impl Pair {
    /// `None`, with a word, where the provider is not here or has no access of its own.
    pub(crate) fn open(network: Network, config: &Config) -> Option<Pair> {
        found()?;
        let place = network.anywhere();
        let open = || Nic::open(&place, config.clone()).unwrap().into_endpoint();
        let (mut a, b) = (open(), open());
        if a.capabilities().remote_access != Support::Native {
            petasos_testing::skip(&format!("{} has no access of its own here", network.scheme));
            return None;
        }
        a.resolve(&b.address().clone(), PATIENCE).unwrap();
        let mut pair = Pair { a, b, clock: Clock::start(), events: Default::default(), next: 0 };
        let up = |e: &[Event]| e.iter().any(|e| matches!(e, Event::PeerUp { .. }));
        pair.until("both are up", |pair| pair.events.iter().all(|e| up(e)));
        Some(pair)
    }

    pub(crate) fn until(&mut self, what: &str, seen: impl FnMut(&Pair) -> bool) {
        self.drive(true, what, seen);
    }

    /// Drives `a`, and `b` if both.
    pub(crate) fn drive(&mut self, both: bool, what: &str, mut seen: impl FnMut(&Pair) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(self) {
            self.a.progress(self.clock.now(), 64, &mut self.events[0]);
            if both {
                self.b.progress(self.clock.now(), 64, &mut self.events[1]);
            }
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.b.device().counters());
        }
    }

    pub(crate) fn submit(
        &mut self,
        at_b: bool,
        operation: impl FnOnce(Token) -> Operation,
    ) -> Result<Done, OpErrorKind> {
        let token = self.begin(at_b, operation);
        self.end(at_b, token)
    }

    /// Submits an operation, and does not wait for it.
    pub(crate) fn begin(
        &mut self,
        at_b: bool,
        operation: impl FnOnce(Token) -> Operation,
    ) -> Token {
        self.next += 1;
        let token = Token(self.next);
        let end: &mut dyn Endpoint = if at_b { &mut self.b } else { &mut self.a };
        end.submit(&mut VecDeque::from([operation(token)]));
        token
    }

    /// How an operation ended.
    pub(crate) fn end(&mut self, at_b: bool, token: Token) -> Result<Done, OpErrorKind> {
        let at = usize::from(at_b);
        let is = |e: &Event| matches!(e, Event::Done { token: done, .. } if *done == token);
        self.until("it is done", |pair| pair.events[at].iter().any(is));
        let found = self.events[at].iter().position(is).unwrap();
        match self.events[at].remove(found) {
            Event::Done { result, .. } => result.map_err(petasos_fabric::OpError::into_kind),
            _ => unreachable!(),
        }
    }

    pub(crate) fn expose(&mut self, memory: &Slice, access: Access) -> (RegionId, Remote) {
        let region = self.b.register(memory, access).unwrap();
        let key = self.b.export(region).unwrap();
        let key = Key::from_bytes(key.as_bytes().clone()).unwrap();
        (region, self.a.import(&key).unwrap())
    }

    pub(crate) fn put(&mut self, remote: Remote, bytes: Vec<u8>) -> Result<Done, OpErrorKind> {
        let spans = smallvec![RemoteSpan { offset: 0, len: bytes.len() as u64 }];
        let local = smallvec![Slice::from(bytes)];
        let (level, event) = (Level::Visible, None);
        self.submit(false, |token| Operation::Put { token, remote, local, spans, level, event })
    }

    pub(crate) fn close(&mut self, region: RegionId) {
        self.submit(true, |token| Operation::Deregister {
            token,
            region,
            patience: Operation::PATIENCE,
        })
        .unwrap();
    }
}
