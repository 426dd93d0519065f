//! Operations: checked when they are accepted, messages then sent in order.

use crate::{
    access::{Access, Atomic, Copy, Kind, Route},
    flush::{Queued, accessed},
    hub::Refused,
    local::Local,
    matching::{Arrived, Fetch, Posted},
    offer::Offer,
    outgoing::Outgoing,
    peers::{Entry, State},
};
use petasos_fabric::{
    Access as Rights, Body, Claimed, Done, LostReason, OpError, OpErrorKind, Operation, Peer,
    Remote, Slice, Slices, Spans, Token, offer::Room,
};
use petasos_match::Pattern;
use std::sync::Arc;

/// Bytes that one `submit` may copy by itself; the rest is for `progress`.
const AT_ONCE: u64 = 256 << 10;

type Check = Result<(), OpErrorKind>;

fn at_most(what: &'static str, value: u64, limit: u64) -> Check {
    if value > limit {
        return Err(OpErrorKind::TooLarge { what, value, limit });
    }
    Ok(())
}

fn writable(slice: &Slice) -> Check {
    if slice.is_writable() || slice.is_empty() {
        return Ok(());
    }
    Err(not_writable())
}

fn not_writable() -> OpErrorKind {
    OpErrorKind::Denied { allowed: Rights::READ, needed: Rights::WRITE }
}

impl Local {
    pub(crate) fn accept(&mut self, operation: Operation) {
        self.outstanding += 1;
        let token = operation.token();
        let limits = self.capabilities.limits;
        let accessed = accessed(&operation);
        let result = match operation {
            Operation::Send { peer, payload, .. } => {
                let len = payload.len() as u64;
                at_most("the message", len, limits.max_message as u64)
                    .map_err(|kind| self.error(peer, kind))
                    .and_then(|()| self.enqueue(peer, Outgoing::Send { token, payload }))
            }
            Operation::SendLong { peer, header, body, .. } => {
                let len = header.len() as u64;
                let long = Outgoing::Long { token, header, body };
                at_most("the header", len, limits.max_header as u64)
                    .map_err(|kind| self.error(peer, kind))
                    .and_then(|()| self.enqueue(peer, long))
            }
            Operation::SendTagged { peer, tag, payload, level, .. } => {
                let tagged = Outgoing::Tagged { token, tag, payload, level };
                self.enqueue(peer, tagged)
            }
            Operation::PostReceive { source, tag, ignore, into, .. } => {
                self.post_checked(Posted { token, source, tag, ignore, into: Room::Own(into) })
            }
            Operation::PostOffered { tag, ignore, into, .. } => {
                let into = Room::Offered(into);
                self.post_checked(Posted { token, source: None, tag, ignore, into })
            }
            Operation::Peek { source, tag, ignore, claim, .. } => {
                let pattern = Pattern::new(source.map(Peer::to_bits), tag, ignore);
                self.peek(token, source, &pattern, claim)
            }
            Operation::ReceiveClaimed { message, into, .. } => {
                self.receive_claimed(token, message, into)
            }
            Operation::DiscardClaimed { message, .. } => self.discard_claimed(token, message),
            Operation::Receive { body, into, .. } => self.fetch(token, body, into),
            Operation::Discard { body, .. } => self.discard(token, body),
            Operation::Put { remote, local, spans, event, .. } => {
                self.transfer(token, remote, local, spans, Rights::WRITE, |copy| Kind::Put {
                    copy,
                    event,
                })
            }
            Operation::Get { remote, local, spans, .. } => {
                self.transfer(token, remote, local, spans, Rights::READ, |copy| Kind::Get { copy })
            }
            Operation::Atomic { remote, offset, op, kind, operand, compare, fetch, .. } => {
                let size = operand.len() as u64;
                let atomic =
                    Kind::Atomic(Box::new(Atomic { offset, op, kind, operand, compare, fetch }));
                at_most("the operand", size, limits.max_atomic as u64)
                    .map_err(|kind| self.error(remote.peer, kind))
                    .and_then(|()| self.access(token, remote, Rights::ATOMIC, |_| Ok(atomic)))
            }
            Operation::Map { remote, .. } => {
                self.access(token, remote, Rights::READ, |_| Ok(Kind::Map))
            }
            Operation::Flush { peer, .. } => self.flush(token, peer),
            Operation::Deregister { region, patience, .. } => {
                let found = self.closing.deregister(&self.hub.regions, token, region, patience);
                found.then_some(()).ok_or(OpError::local(OpErrorKind::UnknownRegion))
            }
            Operation::Revoke { key, patience, .. } => {
                let found = self.closing.revoke(&self.hub.regions, token, key, patience);
                found.then_some(()).ok_or(OpError::local(OpErrorKind::UnknownRegion))
            }
            _ => Err(OpError::local(OpErrorKind::Unsupported("this operation"))),
        };
        if let Err(error) = result {
            if let Some(peer) = accessed {
                self.access_failed(peer, &error);
            }
            self.done(token, Err(error));
        }
    }

    /// An error with the peer's address, where the handle is good.
    fn error(&self, peer: Peer, kind: OpErrorKind) -> OpError {
        match self.peers.get(peer) {
            Some(entry) => OpError::with_peer(kind, &entry.address),
            None => OpError::local(OpErrorKind::UnknownPeer),
        }
    }

    /// That the handle is good, and its peer not lost.
    pub(crate) fn alive(&self, peer: Peer) -> Result<(), OpError> {
        match self.peers.get(peer).map(|entry| &entry.state) {
            None => Err(OpError::local(OpErrorKind::UnknownPeer)),
            Some(State::Lost(reason)) => {
                Err(self.error(peer, OpErrorKind::PeerLost(reason.clone())))
            }
            Some(_) => Ok(()),
        }
    }

    fn enqueue(&mut self, peer: Peer, message: Outgoing) -> Result<(), OpError> {
        self.alive(peer)?;
        let entry = self.peers.at(peer.index);
        match message {
            Outgoing::Tagged { .. } => entry.tagged.push_back(message),
            _ => entry.messages.push_back(message),
        }
        self.peers.activate(peer.index);
        self.pump_messages(peer.index);
        Ok(())
    }

    /// Sends what there is room for. True if something was sent.
    pub(crate) fn pump_messages(&mut self, index: u32) -> bool {
        let (mut worked, mut full) = (false, false);
        loop {
            let entry = self.peers.at(index);
            let State::Up { hub, links, may } = &entry.state else {
                return worked;
            };
            let (hub, link, may) = (Arc::clone(hub), links[0], Arc::clone(may));
            // An expected one is never behind one that waits for a lease, and the other way round.
            let expected = if full { None } else { entry.tagged.pop_front() };
            let next = expected.or_else(|| entry.messages.pop_front());
            let Some(message) = next else {
                return worked;
            };
            let (token, id) = (message.token(), self.offers.next_id());
            let eager_len = self.capabilities.limits.max_message;
            let offered = match message.send(&hub, link, &may, id, eager_len) {
                Ok(offered) => offered,
                Err(Refused::Full) if message.is_tagged() => {
                    self.peers.at(index).tagged.push_front(message);
                    full = true;
                    continue;
                }
                Err(Refused::Full) => {
                    self.peers.at(index).messages.push_front(message);
                    return worked;
                }
                Err(Refused::Closed) => {
                    // It ends with the others.
                    self.peers.at(index).messages.push_front(message);
                    self.lose_and_tell(index, LostReason::Closed, None);
                    return true;
                }
            };
            worked = true;
            match offered {
                Some(offer) => self.offers.add(token, index, offer),
                None => self.done(token, Ok(Done::Sent)),
            }
        }
    }

    fn post_checked(&mut self, posted: Posted) -> Result<(), OpError> {
        match &posted.into {
            Room::Own(into) => writable(into),
            Room::Offered(offered) if offered.is_writable() => Ok(()),
            Room::Offered(_) => Err(not_writable()),
        }
        .map_err(OpError::local)?;
        let (token, source) = (posted.token, posted.source);
        if let Some(peer) = source {
            self.alive(peer).or_else(|error| match error.kind {
                // What a lost peer sent before may still be received.
                OpErrorKind::PeerLost(_) => Ok(()),
                _ => Err(error),
            })?;
        }
        self.post(posted);
        let Some(peer) = source else {
            return Ok(());
        };
        match self.alive(peer) {
            Err(error) if self.matching.cancel(token).is_some() => Err(error),
            _ => Ok(()),
        }
    }

    fn peek(
        &mut self,
        token: Token,
        source: Option<Peer>,
        pattern: &Pattern,
        claim: bool,
    ) -> Result<(), OpError> {
        let peeked = self.matching.peek(pattern, claim);
        if let (None, Some(source)) = (peeked, source) {
            self.alive(source)?;
        }
        self.done(token, Ok(Done::Peeked(peeked.map(Box::new))));
        Ok(())
    }

    fn receive_claimed(
        &mut self,
        token: Token,
        claimed: Claimed,
        into: Slice,
    ) -> Result<(), OpError> {
        writable(&into).map_err(OpError::local)?;
        let message = self.take_claimed(claimed)?;
        let Some(data) = message.take_data(&self.hub) else {
            return Err(self.error(claimed.peer, OpErrorKind::Withdrawn));
        };
        self.fetches.push_back(Fetch::tagged(data, token, into));
        Ok(())
    }

    fn discard_claimed(&mut self, token: Token, claimed: Claimed) -> Result<(), OpError> {
        let message = self.take_claimed(claimed)?;
        if let Some(id) = message.take_data(&self.hub).and_then(|data| data.from.offer()) {
            self.release_body(claimed.peer, id);
        }
        self.done(token, Ok(Done::Discarded));
        Ok(())
    }

    fn take_claimed(&mut self, claimed: Claimed) -> Result<Arrived, OpError> {
        if let Some(message) = self.matching.take_claimed(claimed) {
            return Ok(message);
        }
        self.alive(claimed.peer)?;
        Err(self.error(claimed.peer, OpErrorKind::UnknownMessage))
    }

    fn fetch(&mut self, token: Token, body: Body, into: Slice) -> Result<(), OpError> {
        let offer = self.take_body(body)?;
        let refused = match writable(&into) {
            Err(kind) => kind,
            Ok(()) => match offer.take() {
                true => {
                    self.fetches.push_back(Fetch::body(token, body.peer, offer, into));
                    return Ok(());
                }
                false => return Err(self.error(body.peer, OpErrorKind::Withdrawn)),
            },
        };
        self.release_body(body.peer, body.id);
        Err(self.error(body.peer, refused))
    }

    fn discard(&mut self, token: Token, body: Body) -> Result<(), OpError> {
        let offer = self.take_body(body)?;
        if offer.take() {
            self.release_body(body.peer, body.id);
        }
        self.done(token, Ok(Done::Discarded));
        Ok(())
    }

    fn take_body(&mut self, body: Body) -> Result<Arc<Offer>, OpError> {
        if let Some(offer) = self.bodies.remove(&body) {
            return Ok(offer);
        }
        self.alive(body.peer)?;
        Err(self.error(body.peer, OpErrorKind::UnknownBody))
    }

    fn transfer(
        &mut self,
        token: Token,
        remote: Remote,
        local: Slices,
        spans: Spans,
        needed: Rights,
        kind: impl FnOnce(Copy) -> Kind,
    ) -> Result<(), OpError> {
        let limits = self.capabilities.limits;
        self.access(token, remote, needed, |bound| {
            let pieces = local.len().max(spans.len()) as u64;
            at_most("the number of pieces", pieces, limits.max_pieces as u64)?;
            let inside: u64 = local.iter().map(|slice| slice.len() as u64).sum();
            let mut outside = 0u64;
            for span in &spans {
                let end = span.offset.checked_add(span.len);
                if end.is_none_or(|end| end > bound) {
                    let (offset, len) = (span.offset, span.len);
                    return Err(OpErrorKind::OutOfBounds { offset, len, bound });
                }
                outside = outside.saturating_add(span.len);
            }
            at_most("the transfer", inside, limits.max_transfer)?;
            if inside != outside {
                return Err(OpErrorKind::LengthMismatch { local: inside, remote: outside });
            }
            if needed == Rights::READ {
                local.iter().try_for_each(writable)?;
            }
            Ok(kind(Copy::new(local, spans, inside)))
        })
    }

    /// Checks the handle and the key's rights, and queues what `make` gives for the length of
    /// the region.
    fn access(
        &mut self,
        token: Token,
        remote: Remote,
        needed: Rights,
        make: impl FnOnce(u64) -> Result<Kind, OpErrorKind>,
    ) -> Result<(), OpError> {
        let route = self.route(remote)?;
        self.alive(remote.peer)?;
        let allowed = route.rights;
        let kind = if allowed.allows(needed) {
            make(remote.len)
        } else {
            Err(OpErrorKind::Denied { allowed, needed })
        };
        let what = kind.map_err(|kind| self.error(remote.peer, kind))?;
        let index = remote.peer.index;
        self.peers.at(index).accesses.push_back(Queued::Access(Access { token, route, what }));
        self.peers.activate(index);
        self.pump_accesses(index, &mut { AT_ONCE });
        Ok(())
    }

    fn route(&self, remote: Remote) -> Result<Route, OpError> {
        self.remotes.get(remote).ok_or(OpError::local(OpErrorKind::UnknownRegion))
    }

    /// Ends an operation if it is not too late.
    pub(crate) fn cancel_token(&mut self, token: Token) {
        if self.matching.cancel(token).is_some() {
            return self.done(token, Err(OpError::local(OpErrorKind::Cancelled)));
        }
        if let Some(at) = self.fetches.iter().position(|fetch| fetch.token == token)
            && let Some(fetch) = self.fetches.remove(at)
        {
            self.finish(&fetch);
            return self.done_by(fetch.peer, token, Err(OpErrorKind::Cancelled));
        }
        if let Some(index) = self.offers.revoke(token) {
            return self.done_with(index, token, Err(OpErrorKind::Cancelled));
        }
        for index in self.peers.active() {
            let entry = self.peers.at(index);
            let count = |entry: &Entry| entry.messages.len() + entry.tagged.len();
            let before = count(entry);
            if let Some(at) = entry.messages.iter().position(|m| m.token() == token) {
                entry.messages.remove(at);
            } else if let Some(at) = entry.tagged.iter().position(|m| m.token() == token) {
                entry.tagged.remove(at);
            }
            let held = entry.deferred.cancel(token).is_some();
            if held || count(entry) < before || self.take_queued(index, token) {
                return self.done_with(index, token, Err(OpErrorKind::Cancelled));
            }
        }
    }
}
