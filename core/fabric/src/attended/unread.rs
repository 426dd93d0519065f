//! What was found for the program, until it takes it.

use crate::{AttendedConfig, Completion, Done, Event, Peer};
use std::collections::{HashMap, VecDeque};

/// So much may still come of a peer that was told to keep what it sends: what was on its way, which
/// is bounded by what connections hold. One that goes on is cut off.
const LATE: usize = if cfg!(test) { 1 << 10 } else { 1 << 21 };

/// Events in the order in which they came, and how many of each peer are such as it can make more
/// of.
pub(super) struct Unread {
    events: VecDeque<Event>,
    peers: HashMap<Peer, Count>,
    /// Of all peers.
    total: usize,
    config: AttendedConfig,
}

#[derive(Default)]
struct Count {
    unread: usize,
    held: bool,
    /// Came though it was told.
    late: usize,
}

/// What is to be done about a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is to keep what it sends.
    Hold(Peer),
    /// It is cut off.
    CutOff(Peer),
}

/// The peer that can make any number of such events.
fn sender(event: &Event) -> Option<Peer> {
    match event {
        Event::Message { peer, .. }
        | Event::LongMessage { peer, .. }
        | Event::PutArrived { peer, .. } => Some(*peer),
        _ => None,
    }
}

impl Unread {
    pub(super) fn new(config: AttendedConfig) -> Unread {
        Unread { events: VecDeque::new(), peers: HashMap::new(), total: 0, config }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Whether there is no room for more of any peer.
    pub(super) fn is_full(&self) -> bool {
        self.total >= self.config.unread
    }

    /// Whether a peer was told to keep what it sends.
    pub(super) fn is_deferred(&self, peer: Peer) -> bool {
        self.peers.get(&peer).is_some_and(|count| count.held)
    }

    /// Keeps an event. `stranger`: it is the loss of a peer for which the program has not asked.
    pub(super) fn push(&mut self, event: Event, stranger: bool) -> Option<Verdict> {
        if let Event::PeerLost { peer, .. } = &event {
            if let Some(count) = self.peers.get_mut(peer) {
                count.held = false;
            }
            if stranger && self.drop_stranger(*peer) {
                return None;
            }
        }
        let sender = sender(&event);
        self.events.push_back(event);
        let peer = sender?;
        let count = self.peers.entry(peer).or_default();
        self.total += 1;
        count.unread += 1;
        if count.held {
            count.late += 1;
            return (count.late == LATE).then_some(Verdict::CutOff(peer));
        }
        let full = self.total >= self.config.unread;
        if count.unread < self.config.unread_per_peer && !full {
            return None;
        }
        (count.held, count.late) = (true, 0);
        Some(Verdict::Hold(peer))
    }

    /// Nothing of this peer is told any more.
    pub(super) fn forget(&mut self, peer: Peer) {
        self.events.retain(|event| event.peer() != Some(peer));
        if let Some(count) = self.peers.remove(&peer) {
            self.total -= count.unread;
        }
    }

    /// The program has found the peer full once more: that it was writable before is no news any
    /// more, and it is told again when it is.
    #[cold]
    pub(super) fn full_again(&mut self, full: Peer) {
        self.events.retain(|event| !matches!(event, Event::Writable { peer } if *peer == full));
    }

    /// Drops the news that a peer has connected, where that is all there is of it and it is lost
    /// again: peers that come and go make nothing grow. Only of the latest ones, which costs
    /// little: a peer that was here for long is no such peer.
    fn drop_stranger(&mut self, lost: Peer) -> bool {
        const LATEST: usize = 64;
        if self.peers.get(&lost).is_some_and(|count| count.unread > 0) {
            return false;
        }
        let from = self.events.len().saturating_sub(LATEST);
        let mut found = None;
        for (at, event) in self.events.iter().enumerate().skip(from) {
            match event {
                Event::PeerUp { peer, .. } if *peer == lost => found = Some(at),
                Event::Writable { peer } | Event::PutRefused { peer, .. } if *peer == lost => {
                    return false;
                }
                // Operations of the program, perhaps with this peer.
                Event::Done {
                    result: Err(_) | Ok(Done::Tagged { .. } | Done::Peeked(_)), ..
                } => {
                    return false;
                }
                _ => {}
            }
        }
        found.is_some_and(|at| self.events.remove(at).is_some())
    }

    /// The oldest event, and the peer that may send again now.
    pub(super) fn pop(&mut self) -> Option<(Event, Option<Peer>)> {
        let event = self.events.pop_front()?;
        let released = sender(&event).and_then(|peer| self.taken(peer));
        Some((event, released))
    }

    /// The same if it is a message, or else nothing.
    pub(super) fn pop_message(&mut self) -> Option<(Event, Option<Peer>)> {
        match self.events.front()? {
            Event::Message { .. } => self.pop(),
            _ => None,
        }
    }

    /// The oldest event if it is a completion, or else nothing.
    #[cold]
    pub(super) fn pop_completion(&mut self) -> Option<Completion> {
        match self.events.front()? {
            Event::Done { .. } => Completion::from_event(self.events.pop_front()?).ok(),
            _ => None,
        }
    }

    /// One of a peer was taken. The peer, if it was held, and is not any more.
    fn taken(&mut self, peer: Peer) -> Option<Peer> {
        let count = self.peers.get_mut(&peer)?;
        self.total -= 1;
        count.unread -= 1;
        let room = count.unread <= self.config.unread_per_peer / 2;
        let released = count.held && (room && self.total <= self.config.unread / 2);
        let released = released || (count.held && count.unread == 0);
        if released {
            count.held = false;
        }
        if count.unread == 0 {
            self.peers.remove(&peer);
        }
        released.then_some(peer)
    }
}
