//! Memory that is closed while an access to it is on its way, and the initiator makes no progress
//! meanwhile: both ends in this process, in the time of their fixture, from a seed. In
//! [`crate::stopped`] the peer is a process.

use crate::{Fixture, Random, world::all_are};
use petasos_fabric::{
    Access, Done, Endpoint, Event, Level, OpError, OpErrorKind, Operation, Peer, Region, RegionId,
    Remote, RemoteSpan, Support, Token,
};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Bytes of the memory: several packets of every transport.
const LEN: usize = 1 << 20;
/// The content of the memory at first, what is put there, and what the owner writes once the region
/// is closed.
const FIRST: u8 = 0x11;
const PUT: u8 = 0xaa;
const OWN: u8 = 0x55;
/// Accesses at a time.
const ACCESSES: usize = 4;
/// Closings by one seed.
const ROUNDS: usize = 6;

/// One end.
struct End {
    end: Box<dyn Endpoint>,
    events: Vec<Event>,
}

impl End {
    fn pass(&mut self, fixture: &dyn Fixture) -> bool {
        self.end.progress(fixture.now(), 64, &mut self.events)
    }

    fn done(&mut self, token: Token) -> Option<Result<Done, OpError>> {
        let is = |event: &Event| matches!(event, Event::Done { token: of, .. } if *of == token);
        let at = self.events.iter().position(is)?;
        match self.events.remove(at) {
            Event::Done { result, .. } => Some(result),
            _ => None,
        }
    }
}

/// The initiator, the owner of the memory, and the source of randomness.
struct Pair<'f> {
    fixture: &'f dyn Fixture,
    ends: [End; 2],
    random: Random,
    tokens: u64,
}

/// Closes memory under accesses that are delayed, and says how often that met one: it ended one, or
/// the memory was still reached when the patience was over.
///
/// # Panics
/// If what was closed is not closed, or a close does not end.
pub fn closings(fixture: &dyn Fixture, seed: u64) -> usize {
    if fixture.missing().is_some() {
        return 0;
    }
    let open = || End { end: fixture.open(&fixture.fresh()), events: Vec::new() };
    let (random, tokens) = (Random::new(seed), 0);
    let mut pair = Pair { fixture, ends: [open(), open()], random, tokens };
    if pair.ends[1].end.capabilities().remote_access == Support::None {
        return 0;
    }
    let owner = pair.ends[1].end.address().clone();
    let peer = pair.ends[0].end.resolve(&owner, fixture.deadline()).expect("it is resolved");
    let up = |end: &End| end.events.iter().any(|event| matches!(event, Event::PeerUp { .. }));
    pair.until("both are up", true, |[a, b]| (up(a) && up(b)).then_some(()));
    (0..ROUNDS).filter(|_| pair.close_under_access(peer)).count()
}

impl Pair<'_> {
    /// Drives the owner, and the other end if both, until something is seen.
    fn until<T>(
        &mut self,
        what: &str,
        both: bool,
        mut seen: impl FnMut(&mut [End; 2]) -> Option<T>,
    ) -> T {
        let end = Instant::now() + self.fixture.deadline();
        loop {
            if let Some(found) = seen(&mut self.ends) {
                return found;
            }
            self.step(both);
            assert!(Instant::now() < end, "not seen: {what}");
        }
    }

    fn step(&mut self, both: bool) {
        let [a, b] = &mut self.ends;
        let busy = b.pass(self.fixture) | (both && a.pass(self.fixture));
        if !busy || self.random.below(4) == 0 {
            self.fixture.pass(0);
        }
    }

    fn submit(&mut self, at: usize, make: impl FnOnce(Token) -> Operation) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        let mut queue = VecDeque::from([make(token)]);
        self.ends[at].end.submit(&mut queue);
        assert!(queue.is_empty(), "an operation was not taken");
        token
    }

    fn access(&mut self, remote: Remote, put: bool, local: &Region) -> Token {
        let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
        let local = smallvec![local.whole()];
        let level = Level::Visible;
        self.submit(0, |token| match put {
            true => Operation::Put { token, remote, local, spans, level, event: None },
            false => Operation::Get { token, remote, local, spans },
        })
    }

    fn close(&mut self, region: RegionId, patience: Duration, both: bool) -> Result<Done, OpError> {
        let token = self.submit(1, |token| Operation::Deregister { token, region, patience });
        self.until("the end of a close", both, |[_, b]| b.done(token))
    }

    /// True if that met an access.
    fn close_under_access(&mut self, peer: Peer) -> bool {
        let memory = Region::from_vec(vec![FIRST; LEN]);
        let owner = &mut self.ends[1].end;
        let region = owner.register(&memory.whole(), Access::ALL).expect("registered");
        let key = owner.export(region).expect("a key");
        let remote = self.ends[0].end.import(&key).expect("it is imported");
        assert_eq!(remote.peer, peer);
        let put = self.random.below(2) == 0;
        let locals: Vec<_> = (0..ACCESSES).map(|_| Region::from_vec(vec![PUT; LEN])).collect();
        let accesses: Vec<_> = locals.iter().map(|local| self.access(remote, put, local)).collect();
        for _ in 0..self.random.below(60) {
            self.step(true);
        }
        // From here on the other end does nothing, as if it were stopped.
        let patience = Duration::from_micros([0, 50, 1000][self.random.below(3)]);
        let first = self.close(region, patience, false);
        let mut met = match first {
            Ok(done) => {
                assert!(matches!(done, Done::Deregistered), "{done:?}");
                false
            }
            Err(error) => {
                assert_eq!(error.kind, OpErrorKind::StillReached, "{error}");
                let stopped = self.ends[0].end.address();
                assert!(
                    error.peer.as_ref().is_none_or(|named| named == stopped),
                    "the peer is named"
                );
                assert!(self.ends[1].end.export(region).is_err(), "closed to new access");
                let patience = self.fixture.deadline();
                self.close(region, patience, true).expect("the other end goes on, and leaves");
                true
            }
        };
        // It is its owner's.
        memory.write(0, &vec![OWN; LEN]);
        for token in accesses {
            let result = self.until("the end of an access", true, |[a, _]| a.done(token));
            if let Err(error) = result {
                assert_eq!(error.kind, OpErrorKind::StaleKey, "{error}");
                met = true;
            }
        }
        self.ends[0].end.release(remote);
        let kept = all_are(&memory.to_vec(), OWN);
        assert!(kept, "bytes of closed memory changed; patience {patience:?}");
        let shown = |local: &Region| !put && local.to_vec().contains(&OWN);
        assert!(!locals.iter().any(shown), "a get shows what its owner wrote to closed memory");
        met
    }
}
