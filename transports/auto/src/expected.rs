//! Expected messages: receives and peeks from any source, which concern all members, and receives
//! that wait until the route to their peer is known.
//!
//! Each member matches the messages of its own peers. A receive from one peer is posted with the
//! member on its route. One from any source is posted with all members, each of which is *offered*
//! the memory: the first that has a message takes it, and writes to it as to that of any receive.
//! What a member has posted is thus all that a message of its peers could go to, in the order of
//! posting. That is all that the order of receives means, so matching by members gives what one
//! list for all would give.

use crate::{Auto, outstanding::Pending, peers::Route, receive::of_peer};
use petasos_fabric::{
    Done, Event, LostReason, Offer, OpError, OpErrorKind, Operation, Peer, PeerState, Slice, Token,
};
use slab::Slab;
use smallvec::SmallVec;
use std::{collections::VecDeque, mem};

/// What is under way.
#[derive(Debug, Default)]
pub(crate) struct Expected {
    /// Receives from any source.
    any: Slab<AnySource>,
    /// Receives that wait for the route of a peer, and those behind them, in the order of posting.
    held: VecDeque<Operation>,
    /// The member that is asked first.
    first: usize,
}

#[derive(Debug)]
struct AnySource {
    token: Token,
    offer: Offer,
    /// The members that were offered it, and under which tokens.
    posted: SmallVec<[(usize, Token); 4]>,
}

/// A peek from any source that members answer, one after the other.
#[derive(Debug)]
pub(crate) struct Peeking {
    pub(crate) token: Token,
    tag: u64,
    ignore: u64,
    claim: bool,
    /// The member that is asked, and how many are to be asked behind it.
    pub(crate) member: usize,
    left: usize,
}

/// A receive, as the program posted it.
pub(crate) struct Receive {
    pub(crate) token: Token,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) into: Slice,
}

impl Expected {
    /// Whether no receive waits for a route: then each is posted as it comes.
    #[inline]
    pub(crate) fn is_flowing(&self) -> bool {
        self.held.is_empty()
    }

    /// How many receives wait for a route.
    pub(crate) fn waiting(&self) -> usize {
        self.held.len()
    }

    /// The receives from any source with this token of the program's.
    pub(crate) fn of_user(&self, wanted: Token) -> Option<usize> {
        self.any.iter().find(|(_, any)| any.token == wanted).map(|(index, _)| index)
    }

    /// The token of a receive from any source.
    pub(crate) fn any_token(&self, index: usize) -> Option<Token> {
        self.any.get(index).map(|any| any.token)
    }

    /// The token of a receive with this memory that waits for a route.
    pub(crate) fn held_with(&self, memory: &Slice) -> Option<Token> {
        let mut held = self.held.iter();
        held.find(|operation| operation.uses(memory)).map(Operation::token)
    }

    /// Takes out a receive that waits for a route.
    fn withdraw(&mut self, wanted: Token) -> bool {
        let at = self.held.iter().position(|operation| operation.token() == wanted);
        at.and_then(|at| self.held.remove(at)).is_some()
    }

    /// The member that is asked first this time, so that none is preferred.
    fn begin(&mut self, members: usize) -> usize {
        self.first = (self.first + 1) % members;
        self.first
    }
}

impl Auto {
    /// Whether a receive has to wait, so that receives match in the order of posting: for a peer of
    /// which it is not known yet which member reaches it, or behind such a receive, if a message
    /// could go to either.
    pub(crate) fn must_wait(&self, source: Option<Peer>) -> bool {
        let asked = |peer: Peer| {
            let entry = self.peers.get(peer);
            entry.is_some_and(|e| e.asked && !matches!(e.state, PeerState::Lost(_)))
        };
        match source {
            None => !self.expected.held.is_empty(),
            Some(peer) if asked(peer) => true,
            Some(peer) => self.expected.held.iter().any(|held| match held {
                Operation::PostReceive { source, .. } => source.is_none_or(|source| source == peer),
                _ => false,
            }),
        }
    }

    /// A receive waits.
    pub(crate) fn hold(&mut self, operation: Operation) {
        self.outstanding.begin_waiting();
        self.expected.held.push_back(operation);
    }

    /// The route to a peer is known, or there will be none: posts what has waited for that.
    pub(crate) fn release_held(&mut self) {
        let held = mem::take(&mut self.expected.held);
        self.outstanding.end_waiting(held.len());
        for operation in held {
            self.accept(operation);
        }
    }

    /// Ends a receive that waits for a route. False if there is none with this token.
    pub(crate) fn cancel_held(&mut self, token: Token) -> bool {
        let found = self.expected.withdraw(token);
        if found {
            self.outstanding.end_waiting(1);
            self.fail(token, OpError::local(OpErrorKind::Cancelled));
            // Those behind it may have waited for it alone.
            self.release_held();
        }
        found
    }

    /// Ends the receives from a peer that is forgotten, and that waited for its route.
    pub(crate) fn fail_held(&mut self, peer: Peer, error: &OpError) {
        let is_of = |operation: &Operation| match operation {
            Operation::PostReceive { source, .. } => *source == Some(peer),
            _ => false,
        };
        let held = mem::take(&mut self.expected.held);
        let (ended, held): (VecDeque<_>, VecDeque<_>) = held.into_iter().partition(is_of);
        self.expected.held = held;
        self.outstanding.end_waiting(ended.len());
        for operation in ended {
            self.fail(operation.token(), error.clone());
        }
    }

    /// Posts a receive from any source with all members, until one has a message for it.
    pub(crate) fn post_with_all(&mut self, receive: Receive) {
        let Receive { token, tag, ignore, into } = receive;
        let count = self.members.len();
        let first = self.expected.begin(count);
        let offer = Offer::new(into);
        let index = self.expected.any.vacant_key();
        let mut posted = SmallVec::new();
        for nth in 0..count {
            let member = (first + nth) % count;
            let name = self.outstanding.token(Pending::Any { index, member: member as u32 });
            posted.push((member, name));
            let into = offer.to(member as u32);
            self.give(member, Operation::PostOffered { token: name, tag, ignore, into });
            if !offer.is_open() {
                // Its completion is to be found soon.
                self.pace.give(member);
                break;
            }
        }
        self.expected.any.insert(AnySource { token, offer, posted });
    }

    /// Gives a member an operation, behind what it was given before.
    fn give(&mut self, member: usize, operation: Operation) {
        if !self.outstanding.is_flushed(member) {
            return self.outstanding.push(member, operation);
        }
        if let Err(refused) = self.members[member].endpoint.try_submit(operation) {
            self.outstanding.push(member, refused.operation);
        }
    }

    /// A member has completed a receive from any source that it was offered. Returns the user's
    /// event, if that is its end.
    pub(crate) fn any_done(
        &mut self,
        index: usize,
        member: usize,
        result: Result<Done, OpError>,
    ) -> Option<Event> {
        let offer = &self.expected.any.get(index)?.offer;
        // Another one has taken it, and this one was late.
        let late = offer.taker().is_some_and(|taker| taker != member as u32);
        if late {
            if let Some(any) = self.expected.any.get_mut(index) {
                any.posted.retain(|(of, _)| *of != member);
            }
            return None;
        }
        // If none has, the member cannot have such a receive at all.
        let _ = offer.withdraw();
        let token = self.end_any(index, Some(member))?;
        let result = match result {
            Ok(Done::Tagged { peer, tag, len }) => {
                let done = Done::Tagged { peer, tag, len };
                self.known(Route { member, peer }).map(|ours| of_peer(done, ours))
            }
            Ok(done) => Ok(done),
            Err(mut error) => {
                self.reword_error(member, &mut error);
                Err(error)
            }
        };
        Some(Event::Done { token, result })
    }

    /// A receive from any source is over: those members that were offered it need it no more.
    /// Returns its token.
    fn end_any(&mut self, index: usize, by: Option<usize>) -> Option<Token> {
        let any = self.expected.any.try_remove(index)?;
        for (member, name) in any.posted {
            if by == Some(member) {
                continue;
            }
            if self.outstanding.withdraw(member, name) {
                self.outstanding.take(name);
            } else {
                self.outstanding.ignore(name);
                self.members[member].endpoint.cancel(name);
            }
        }
        Some(any.token)
    }

    /// Cancels a receive from any source.
    pub(crate) fn cancel_any(&mut self, index: usize) {
        let Some(any) = self.expected.any.get(index) else { return };
        if any.offer.withdraw().is_some() {
            if let Some(token) = self.end_any(index, None) {
                self.fail(token, OpError::local(OpErrorKind::Cancelled));
            }
            return;
        }
        let taker = any.offer.taker();
        let name = any.posted.iter().find(|(member, _)| Some(*member as u32) == taker);
        if let Some((member, name)) = name.copied() {
            self.members[member].endpoint.cancel(name);
        }
    }

    /// Begins to ask members for a message from any source.
    pub(crate) fn peek_all(&mut self, token: Token, tag: u64, ignore: u64, claim: bool) {
        let count = self.members.len();
        let member = self.expected.begin(count);
        self.peek_next(Peeking { token, tag, ignore, claim, member, left: count - 1 });
    }

    fn peek_next(&mut self, peeking: Peeking) {
        let Peeking { tag, ignore, claim, member, .. } = peeking;
        let name = self.outstanding.token(Pending::Peeking(Box::new(peeking)));
        self.pace.give(member);
        self.give(member, Operation::Peek { token: name, source: None, tag, ignore, claim });
    }

    /// A member has answered a peek from any source: the user's event, unless another one is asked.
    pub(crate) fn peek_answered(
        &mut self,
        peeking: Peeking,
        result: Result<Done, OpError>,
    ) -> Option<Event> {
        let Peeking { token, member, .. } = peeking;
        let result = match result {
            Ok(Done::Peeked(Some(peeked))) => {
                let route = Route { member, peer: peeked.peer };
                self.known(route).map(|ours| of_peer(Done::Peeked(Some(peeked)), ours))
            }
            Ok(_) if peeking.left > 0 => {
                let member = (member + 1) % self.members.len();
                self.peek_next(Peeking { member, left: peeking.left - 1, ..peeking });
                return None;
            }
            Ok(done) => Ok(done),
            Err(mut error) => {
                self.reword_error(member, &mut error);
                Err(error)
            }
        };
        Some(Event::Done { token, result })
    }

    /// Our handle of the peer whose expected message came by this route. A peer sends none before
    /// it has identified itself.
    pub(crate) fn known(&mut self, route: Route) -> Result<Peer, OpError> {
        let introduced = self.peers.introduced(route.member, route.peer);
        if let Some(ours) = introduced.or_else(|| self.departed.handle(route)) {
            return Ok(ours);
        }
        let reason = LostReason::Protocol("it did not identify itself".to_owned());
        let ours = self.peers.link(route).and_then(|link| link.ours);
        let address = ours.and_then(|ours| Some(self.peers.get(ours)?.address.clone()));
        self.cut(route, reason.clone());
        Err(OpError::new(OpErrorKind::PeerLost(reason), address))
    }
}
