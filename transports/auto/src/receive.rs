//! Events of members, translated.

use crate::{Auto, outstanding::Pending, peers::Route};
use petasos_fabric::{Done, Event, LostReason, OpError, OpErrorKind, Peer, PeerState, Token};
use std::mem;

impl Auto {
    /// Translates the events that a member has appended, from `from` on.
    pub(crate) fn translate(&mut self, member: usize, from: usize, events: &mut Vec<Event>) {
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
    fn translate_one(&mut self, member: usize, event: &mut Event) -> bool {
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
            Event::Done { token, result }
                if result.is_ok() && self.outstanding.is_plain(*token) =>
            {
                let Some(Pending::User { token: ours, peer, .. }) = self.outstanding.take(*token)
                else {
                    return false;
                };
                *token = ours;
                if let Ok(Done::Tagged { .. } | Done::Peeked(_)) = result {
                    self.matched(peer, result);
                }
            }
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
                        self.full.push(ours);
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
            Pending::User { token, peer, refused, .. } => {
                let result = match refused {
                    Some(kind) => self.flushed(peer, *kind, result),
                    None => result,
                };
                let address = || self.peers.get(peer).map(|entry| entry.address.clone());
                let reword = |mut error: OpError| {
                    error.peer = error.peer.take().and_then(|_| address());
                    error
                };
                Some(Event::Done { token, result: result.map_err(reword) })
            }
            Pending::Departed { token, peer, address, .. } => {
                let result = result.map(|done| of_peer(done, peer));
                let reword = |mut error: OpError| {
                    error.peer = error.peer.take().map(|_| address);
                    error
                };
                Some(Event::Done { token, result: result.map_err(reword) })
            }
            Pending::Any { index, member } => self.any_done(index, member as usize, result),
            Pending::Peeking(peeking) => self.peek_answered(*peeking, result),
            Pending::Closing { region, member } => self.closed(region, member, result),
            Pending::Revoking { key, member } => self.revoked(key, member, result),
            Pending::Ignored => None,
        }
    }

    /// An expected message of a peer, to which a receive or a peek was confined, has come.
    fn matched(&mut self, peer: Peer, result: &mut Result<Done, OpError>) {
        let Some(entry) = self.peers.get(peer) else { return };
        if entry.state == PeerState::Connecting {
            // A peer sends nothing before it has identified itself, and is none until then.
            let reason = LostReason::Protocol("it did not identify itself".to_owned());
            let kind = OpErrorKind::PeerLost(reason.clone());
            *result = Err(OpError::with_peer(kind, &entry.address));
            return self.cut(entry.route, reason);
        }
        if let Ok(done) = result {
            *done = of_peer(mem::replace(done, Done::Sent), peer);
        }
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
                let up = entry.state == PeerState::Up && entry.open;
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
