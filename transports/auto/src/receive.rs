//! Events of members, translated.

use crate::{
    Auto,
    outstanding::{Pending, is_name},
    peers::{Peers, Route},
};
use petasos_fabric::{Done, Event, LostReason, OpError, OpErrorKind, Peer, PeerState, Token};
use std::mem;

impl Auto {
    /// Translates the events that a member has appended, from `from` on. False if there was nothing
    /// to do but to put our handles into some of them.
    #[inline]
    pub(crate) fn translate(
        &mut self,
        member: usize,
        from: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        let news = events.get_mut(from..).unwrap_or_default();
        let other = news.iter_mut().position(|event| !self.peers.translate(member, event));
        if let Some(first) = other {
            self.translate_from(member, from + first, events);
        }
        other.is_some()
    }

    #[inline(never)]
    fn translate_from(&mut self, member: usize, from: usize, events: &mut Vec<Event>) {
        let mut at = from;
        while at < events.len() {
            let told = self.translate_one(member, &mut events[at]);
            if !told {
                events.remove(at);
            }
            // Events that it caused come before it.
            let news = self.early.len();
            if news > 0 {
                events.splice(at..at, self.early.drain(..));
            }
            at += news + usize::from(told);
        }
    }

    /// Translates an event. False if it is none of the user's.
    pub(crate) fn translate_one(&mut self, member: usize, event: &mut Event) -> bool {
        match event {
            Event::Message { peer, message } => match self.peers.introduced(member, *peer) {
                Some(ours) => *peer = ours,
                None => {
                    let message = mem::take(message);
                    self.handshake(Route { member, peer: *peer }, &message);
                    return false;
                }
            },
            Event::LongMessage { peer, body, .. } => match self.peers.introduced(member, *peer) {
                Some(ours) => (*peer, body.peer) = (ours, ours),
                None => return self.too_early(Route { member, peer: *peer }),
            },
            Event::PutArrived { peer, region, .. } => {
                let ours = self.peers.introduced(member, *peer);
                let known = self.regions.ours(member, *region);
                match (ours, known) {
                    (Some(ours), Some(known)) => (*peer, *region) = (ours, known),
                    (None, _) => return self.too_early(Route { member, peer: *peer }),
                    (_, None) => return false,
                }
            }
            Event::Done { token, result } if !is_name(*token) => self.reword(member, result),
            Event::Done { token, result } => {
                let failed = OpError::local(OpErrorKind::Cancelled);
                let result = mem::replace(result, Err(failed));
                match self.done(*token, result) {
                    Some(done) => *event = done,
                    None => return false,
                }
            }
            Event::PeerUp { peer, .. } => {
                self.reached(Route { member, peer: *peer });
                return false;
            }
            Event::PeerLost { peer, reason } => {
                let reason = mem::replace(reason, LostReason::Closed);
                self.left(Route { member, peer: *peer }, reason);
                return false;
            }
            Event::PutRefused { peer, .. } => {
                let Some(ours) = self.peers.introduced(member, *peer) else { return false };
                *peer = ours;
            }
            Event::Writable { peer } => {
                let Some(link) = self.peers.link(Route { member, peer: *peer }) else {
                    return false;
                };
                let Some(ours) = link.ours else { return false };
                let Some(entry) = self.peers.get_mut(ours).filter(|e| e.full_there) else {
                    return false;
                };
                entry.full_there = false;
                if entry.state != PeerState::Up {
                    // Nothing of a peer is reported before it is up.
                    if !mem::replace(&mut entry.full, true) {
                        self.owe_room(ours);
                    }
                    return false;
                }
                entry.full = false;
                *peer = ours;
            }
            _ => {}
        }
        true
    }

    fn too_early(&mut self, route: Route) -> bool {
        self.cut(route, LostReason::Protocol("it did not identify itself".to_owned()));
        false
    }

    /// A member has completed an operation. Returns the user's event, if it is one of the user's.
    pub(crate) fn done(&mut self, name: Token, result: Result<Done, OpError>) -> Option<Event> {
        match self.outstanding.take(name)? {
            Pending::User { token, peer, member, refused } => {
                let mut result = result;
                self.reword(member as usize, &mut result);
                let result = match refused {
                    Some(kind) => self.flushed(peer, *kind, result),
                    None => result,
                };
                Some(Event::Done { token, result })
            }
            Pending::Any { index, member } => self.any_done(index, member as usize, result),
            Pending::Peeking(peeking) => self.peek_answered(*peeking, result),
            Pending::Closing { region, member } => self.closed(region, member, result),
            Pending::Revoking { key, member } => self.revoked(key, member, result),
            Pending::Ignored => None,
        }
    }

    /// The result of an operation of the user's, with our handle and address of its peer in the
    /// place of the member's.
    #[inline]
    fn reword(&mut self, member: usize, result: &mut Result<Done, OpError>) {
        match result {
            Ok(Done::Tagged { peer, .. }) => match self.peers.introduced(member, *peer) {
                Some(ours) => *peer = ours,
                None => self.reword_stale(member, result),
            },
            Ok(Done::Peeked(Some(peeked))) => {
                let Some(ours) = self.peers.introduced(member, peeked.peer) else {
                    return self.reword_stale(member, result);
                };
                peeked.peer = ours;
                if let Some(claimed) = &mut peeked.claimed {
                    claimed.peer = ours;
                }
            }
            Err(_) => self.reword_stale(member, result),
            Ok(_) => {}
        }
    }

    /// The same of an error, and of a message of a peer that is not known any more, or not yet.
    #[cold]
    #[inline(never)]
    fn reword_stale(&mut self, member: usize, result: &mut Result<Done, OpError>) {
        let peer = match result {
            Ok(Done::Tagged { peer, .. }) => *peer,
            Ok(Done::Peeked(Some(peeked))) => peeked.peer,
            Ok(_) => return,
            Err(error) => return self.reword_error(member, error),
        };
        match self.known(Route { member, peer }) {
            Ok(ours) => {
                if let Ok(done) = result {
                    *done = of_peer(mem::replace(done, Done::Sent), ours);
                }
            }
            Err(error) => *result = Err(error),
        }
    }

    /// An error of a member's, with the address that we have for the peer that it names.
    pub(crate) fn reword_error(&mut self, member: usize, error: &mut OpError) {
        let Some(there) = error.peer.take() else { return };
        let forgotten = error.kind == OpErrorKind::PeerLost(LostReason::Forgotten);
        let Auto { peers, departed, members, .. } = self;
        let departed = || departed.address(member, &there).cloned();
        let mut known = || peers.address_of(&members[member], member, &there);
        let found = match forgotten {
            true => departed().or_else(known),
            false => known().or_else(departed),
        };
        error.peer = Some(found.unwrap_or(there));
    }

    /// A member has completed a flush, before which this endpoint refused an access.
    fn flushed(
        &mut self,
        peer: Peer,
        kind: OpErrorKind,
        result: Result<Done, OpError>,
    ) -> Result<Done, OpError> {
        if result.as_ref().is_err_and(|error| error.kind == OpErrorKind::Cancelled) {
            // The next one tells of it.
            if let Some(entry) = self.peers.get_mut(peer) {
                entry.refused = Some(Box::new(kind));
            }
            return result;
        }
        let address = self.peers.get(peer).map(|entry| entry.address.clone());
        result.and_then(|_| match address {
            Some(address) => Err(OpError::with_peer(kind, &address)),
            None => Err(OpError::local(kind)),
        })
    }

    /// Reports that there is room again to peers for which `inject` returned `Full`. True if there
    /// is any.
    pub(crate) fn tell_room(&mut self, events: Option<&mut Vec<Event>>) -> bool {
        let Auto { peers, outstanding, .. } = self;
        let there_is = |peer: &petasos_fabric::Peer| {
            peers.get(*peer).is_some_and(|entry| {
                let up = entry.state == PeerState::Up && entry.is_open();
                let Route { member, peer } = entry.route;
                let waits = outstanding.waits_for(member, peer);
                up && entry.full && !entry.full_there && !waits
            })
        };
        let ready: Vec<_> = self.full.iter().copied().filter(there_is).collect();
        let Some(events) = events else { return !ready.is_empty() };
        for peer in &ready {
            // It may be in the list twice, if its member reported room in between.
            if let Some(entry) = self.peers.get_mut(*peer).filter(|entry| entry.full) {
                entry.full = false;
                events.push(Event::Writable { peer: *peer });
            }
        }
        let peers = &self.peers;
        self.full.retain(|peer| {
            peers.get(*peer).is_some_and(|e| e.full && !matches!(e.state, PeerState::Lost(_)))
        });
        !ready.is_empty()
    }
}

/// Whether the event of a member is one of the user's as it is.
#[inline(always)]
pub(crate) fn is_ours(event: &Event) -> bool {
    let Event::Done { token, result: Ok(done) } = event else { return false };
    !is_name(*token) && !matches!(done, Done::Tagged { .. } | Done::Peeked(_))
}

impl Peers {
    /// Makes an event of a member one of the user's, if no more is needed for that than our handle
    /// of a peer that is known. Else it is left as it is.
    #[inline(always)]
    fn translate(&self, member: usize, event: &mut Event) -> bool {
        let peer = match event {
            Event::Done { token, result: Ok(Done::Tagged { peer, .. }) } if !is_name(*token) => {
                peer
            }
            Event::Message { peer, .. } => peer,
            _ => return is_ours(event),
        };
        let Some(ours) = self.introduced(member, *peer) else { return false };
        *peer = ours;
        true
    }
}

/// What was done, with our handle of the peer.
pub(crate) fn of_peer(done: Done, ours: Peer) -> Done {
    match done {
        Done::Tagged { tag, len, .. } => Done::Tagged { peer: ours, tag, len },
        Done::Peeked(Some(mut peeked)) => {
            peeked.peer = ours;
            if let Some(claimed) = &mut peeked.claimed {
                claimed.peer = ours;
            }
            Done::Peeked(Some(peeked))
        }
        done => done,
    }
}
