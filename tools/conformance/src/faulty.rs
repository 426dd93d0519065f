//! Faults injected between a protocol and its transport.

use crate::Random;
use petasos_fabric::{
    Capabilities, Endpoint, Event, Full, InjectError, LostReason, OpError, OpErrorKind, Operation,
    Peer, PeerInfo, PeerQuota, PeerState, PeerUsage, QuotaError, Refused, Sleep, Time, delegate,
};
use std::collections::{HashMap, HashSet, VecDeque};

/// How often each fault happens, in percent of the occasions.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// An event is delayed, and with it all later ones, until another `progress`.
    pub delay: u32,
    /// `inject` is refused with `Full`, or `submit` stops early.
    pub refuse: u32,
    /// `progress` gets a budget of one, or does nothing at all.
    pub partial: u32,
    /// A peer that is up is lost, in so many of *a thousand* passes.
    pub lose: u32,
}

impl Faults {
    /// Delays, refusals and partial progress, which no protocol may notice in its results.
    pub const GENTLE: Faults = Faults { delay: 20, refuse: 20, partial: 20, lose: 0 };

    /// As [`Faults::GENTLE`], and now and then a peer is lost.
    pub const ROUGH: Faults = Faults { lose: 2, ..Faults::GENTLE };
}

/// An endpoint on which things go wrong, as the contract allows, at random from a seed.
///
/// To the layer above it is an endpoint like any other: each promise of the contract holds of it
/// if it holds of the one below.
pub struct Faulty {
    inner: Box<dyn Endpoint>,
    faults: Faults,
    random: Random,
    /// Events that are delayed.
    held: VecDeque<Event>,
    /// Peers that are up below, as far as events have said.
    up: Vec<Peer>,
    /// Peers that were lost here, and forgotten below.
    lost: HashMap<Peer, PeerInfo>,
    /// Peers for which `inject` below said `Full`; an event below will follow.
    full: HashSet<Peer>,
    /// Peers for which `inject` here or below said `Full`; the event is in `held`.
    owed: HashSet<Peer>,
}

impl Faulty {
    /// Wraps an endpoint.
    #[must_use]
    pub fn new(inner: Box<dyn Endpoint>, faults: Faults, seed: u64) -> Faulty {
        Faulty {
            inner,
            faults,
            random: Random::new(seed),
            held: VecDeque::new(),
            up: Vec::new(),
            lost: HashMap::new(),
            full: HashSet::new(),
            owed: HashSet::new(),
        }
    }

    /// Loses a peer now: its operations fail, and `Event::PeerLost` comes.
    pub fn lose(&mut self, peer: Peer) {
        let Some(info) = self.inner.peer(peer) else {
            return;
        };
        if matches!(info.state, PeerState::Lost(_)) {
            return;
        }
        let reason = LostReason::Forgotten;
        let state = PeerState::Lost(reason.clone());
        let info = PeerInfo::new(info.address, info.incarnation, state);
        self.lost.insert(peer, info);
        self.up.retain(|up| *up != peer);
        self.full.remove(&peer);
        self.inner.forget(peer);
        self.held.push_back(Event::PeerLost { peer, reason });
    }

    /// Keeps the books on an event from below.
    fn note(&mut self, event: Event) {
        match &event {
            // What came in before the peer was lost here.
            Event::Message { peer, .. }
            | Event::LongMessage { peer, .. }
            | Event::PutArrived { peer, .. }
            | Event::PutRefused { peer, .. }
            | Event::PeerLost { peer, .. }
            | Event::PeerUp { peer, .. }
            | Event::Writable { peer }
                if self.lost.contains_key(peer) =>
            {
                return;
            }
            Event::PeerUp { peer, .. } => self.up.push(*peer),
            Event::PeerLost { peer, .. } => {
                self.up.retain(|up| up != peer);
                self.full.remove(peer);
            }
            // One event for both, if `inject` was refused here, too, before or after.
            Event::Writable { peer } if self.full.remove(peer) && !self.owed.insert(*peer) => {
                return;
            }
            _ => {}
        }
        self.held.push_back(event);
    }
}

/// The peer of an operation.
fn partner(operation: &Operation) -> Option<Peer> {
    match operation.plain() {
        Operation::Send { peer, .. }
        | Operation::SendLong { peer, .. }
        | Operation::SendTagged { peer, .. }
        | Operation::Flush { peer, .. } => Some(*peer),
        Operation::Receive { body, .. } | Operation::Discard { body, .. } => Some(body.peer),
        Operation::PostReceive { source, .. } | Operation::Peek { source, .. } => *source,
        Operation::ReceiveClaimed { message, .. } | Operation::DiscardClaimed { message, .. } => {
            Some(message.peer)
        }
        Operation::Put { remote, .. }
        | Operation::Get { remote, .. }
        | Operation::Atomic { remote, .. }
        | Operation::Map { remote, .. } => Some(remote.peer),
        _ => None,
    }
}

impl Endpoint for Faulty {
    fn peer(&self, peer: Peer) -> Option<PeerInfo> {
        self.lost.get(&peer).cloned().or_else(|| self.inner.peer(peer))
    }

    fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        match self.lost.contains_key(&peer) {
            true => Ok(()),
            false => self.inner.set_quota(peer, quota),
        }
    }

    fn usage(&self, peer: Peer) -> Option<PeerUsage> {
        self.inner.usage(peer)
    }

    fn forget(&mut self, peer: Peer) {
        self.up.retain(|up| *up != peer);
        self.full.remove(&peer);
        self.held.retain(|event| event.peer() != Some(peer));
        if self.lost.remove(&peer).is_none() {
            self.inner.forget(peer);
        }
    }

    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        if self.lost.contains_key(&peer) {
            return Err(InjectError::PeerLost);
        }
        if self.up.contains(&peer) && self.random.percent(self.faults.refuse) {
            if !self.full.contains(&peer) && self.owed.insert(peer) {
                self.held.push_back(Event::Writable { peer });
            }
            return Err(InjectError::Full);
        }
        let result = self.inner.inject(peer, parts);
        if result == Err(InjectError::Full) {
            self.full.insert(peer);
        }
        result
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        if self.random.percent(self.faults.refuse) {
            return Err(Refused { operation, full: Full::Endpoint });
        }
        match partner(&operation).and_then(|peer| self.lost.get(&peer)) {
            Some(PeerInfo { address, state: PeerState::Lost(reason), .. }) => {
                let kind = OpErrorKind::PeerLost(reason.clone());
                self.held.push_back(Event::Done {
                    token: operation.token(),
                    result: Err(OpError::with_peer(kind, address)),
                });
                Ok(())
            }
            _ => self.inner.try_submit(operation),
        }
    }

    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let mut budget = budget;
        if self.random.percent(self.faults.partial) {
            if self.random.percent(50) {
                return false;
            }
            budget = 1;
        }
        if self.random.below(1000) < self.faults.lose as usize && !self.up.is_empty() {
            let victim = self.up[self.random.below(self.up.len())];
            self.lose(victim);
        }
        let mut new = Vec::new();
        let worked = self.inner.progress(now, budget, &mut new);
        for event in new {
            self.note(event);
        }
        let before = events.len();
        while let Some(event) = self.held.pop_front() {
            if self.random.percent(self.faults.delay) {
                self.held.push_front(event);
                break;
            }
            if let Event::Writable { peer } = event
                && self.owed.remove(&peer)
                && (self.full.contains(&peer) || !self.up.contains(&peer))
            {
                continue;
            }
            events.push(event);
        }
        worked || events.len() > before
    }

    fn arm(&mut self, now: Time) -> Sleep {
        if !self.held.is_empty() {
            return Sleep::Busy;
        }
        self.inner.arm(now)
    }

    fn capabilities(&self) -> &Capabilities {
        self.inner.capabilities()
    }

    fn capabilities_of(&self, peer: Peer) -> Option<&Capabilities> {
        match self.lost.contains_key(&peer) {
            // The endpoint has forgotten it, but the handle is not stale.
            true => Some(self.inner.capabilities()),
            false => self.inner.capabilities_of(peer),
        }
    }

    delegate! {
        inner: address incarnation resolve cancel fd notifier alloc register export
        import release
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::{Address, Clock};
    use petasos_self::Local;
    use std::time::Duration;

    fn open() -> Box<dyn Endpoint> {
        let any = Address::parse("self://*").unwrap();
        Box::new(Local::open(&any).unwrap())
    }

    /// Refusals, empty passes and late messages of so many rounds.
    fn outcome(seed: u64) -> (u32, u32, u32) {
        let clock = Clock::start();
        let (mut a, mut b) = (Faulty::new(open(), Faults::GENTLE, seed), open());
        let peer = b.resolve(&a.address().clone(), Duration::from_secs(1)).unwrap();
        let back = a.resolve(&b.address().clone(), Duration::from_secs(1)).unwrap();
        let (mut refused, mut empty, mut late) = (0, 0, 0);
        for _ in 0..200 {
            b.inject(peer, &[b"x"]).unwrap();
            let mut events = Vec::new();
            empty += u32::from(!a.progress(clock.now(), 64, &mut events));
            late += u32::from(!a.held.is_empty());
            refused += u32::from(a.inject(back, &[b"y"]) == Err(InjectError::Full));
        }
        (refused, empty, late)
    }

    #[test]
    fn a_seed_repeats_its_faults() {
        assert_eq!(outcome(5), outcome(5));
        assert_ne!(outcome(5), outcome(6));
        let (refused, empty, late) = outcome(5);
        assert!(refused > 10 && empty > 5 && late > 10, "{refused} {empty} {late}");
    }

    #[test]
    fn a_lost_peer_looks_lost() {
        let clock = Clock::start();
        let quiet = Faults { delay: 0, refuse: 0, partial: 0, lose: 0 };
        let (mut a, b) = (Faulty::new(open(), quiet, 1), open());
        let peer = a.resolve(&b.address().clone(), Duration::from_secs(1)).unwrap();
        a.progress(clock.now(), 8, &mut Vec::new());
        a.lose(peer);
        let state = a.peer(peer).map(|info| info.state);
        assert_eq!(state, Some(PeerState::Lost(LostReason::Forgotten)));
        assert_eq!(a.inject(peer, &[b"x"]), Err(InjectError::PeerLost));
        let mut events = Vec::new();
        a.progress(clock.now(), 8, &mut events);
        assert!(matches!(events[..], [Event::PeerLost { peer: p, .. }] if p == peer), "{events:?}");
        a.forget(peer);
        assert!(a.peer(peer).is_none());
    }
}
