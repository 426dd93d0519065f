//! Fences. What is accepted for a peer from a fence on waits at this side until all that was
//! accepted before is over, so all that is under way with the peer then is what the fence is about:
//! there is nothing to tell apart, and nothing is counted while no fence waits.
//!
//! What the engine has sent may be under way still, though it is over at this side: messages, and
//! puts that ask for no answer. If all that follows is sent by the engine, it comes behind them.
//! Where a transport carries out accesses by a route of its own, these would pass them; there the
//! fence asks a question behind them on the ordered channel, that of a flush ([`Header::Flush`]).

use super::{
    Config, Engine,
    connection::Connection,
    header::{Header, Status},
    ledger::{Ledger, Location},
    operations::{Kind, Op, Pull, Source},
};
use crate::{
    Event, OpError, OpErrorKind, Operation, Peer, PeerState, Remote, Slice, Token,
    fence::{Deferred, Next},
};

/// What was held up by a fence, and goes on now: see [`Engine::next_released`].
#[derive(Debug)]
pub enum Released {
    /// It is to be carried out, as one that is just accepted.
    Operation(Operation),
    /// A handle that the program released while operations by it were held up: it is to be released
    /// now, as by [`Endpoint::release`](crate::Endpoint::release).
    Handle(Remote),
}

/// The fences of one peer. Kept while there is traffic with the peer; it holds something up if
/// [`PeerEntry::held`](super::connection::PeerEntry) says so.
#[derive(Debug, Default)]
pub(super) struct Fences {
    deferred: Deferred,
    stage: Stage,
    /// Operations before the fence that comes next, and that are not over.
    earlier: usize,
    /// Among those that may go on.
    listed: bool,
}

/// How far the fence is that comes next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// None comes next, or it is not known yet what was accepted before it.
    #[default]
    New,
    /// What was accepted before it goes on.
    Waiting,
    /// All of that is over here. The peer is to be asked whether it has come.
    Unasked,
    /// It was asked.
    Asked,
    /// The peer has answered.
    Answered,
}

/// Whether it is an operation that a fence waits for. The data of a message that we receive is not.
fn is_awaited(op: &Op) -> bool {
    !matches!(op.kind, Kind::Pull(Pull { source: Source::Body(_), .. }) | Kind::Fence)
}

impl Connection {
    /// Something is over that a fence may wait for.
    #[cold]
    pub(super) fn may_go_on(&mut self, ledger: &mut Ledger) {
        let peer = self.handle;
        if self.entry.held
            && let Some(fences) = &mut self.fences
            && !std::mem::replace(&mut fences.listed, true)
        {
            ledger.seldom.release(peer);
        }
    }

    /// An operation that was accepted before a fence is carried out by the engine, and not by the
    /// transport, after all.
    #[cold]
    pub(super) fn earlier_began(&mut self, op: &Op) {
        if let Some(fences) = &mut self.fences
            && fences.stage == Stage::Waiting
        {
            fences.earlier += usize::from(is_awaited(op));
        }
    }

    /// An operation is over, and forgotten.
    #[cold]
    pub(super) fn earlier_over(&mut self, op: &Op, ledger: &mut Ledger) {
        if let Some(fences) = &mut self.fences
            && fences.stage == Stage::Waiting
            && is_awaited(op)
        {
            fences.earlier -= 1;
            if fences.earlier == 0 {
                self.may_go_on(ledger);
            }
        }
    }

    /// Whether a message that is injected must wait for a fence. Then `Event::Writable` follows.
    pub(super) fn holds_injected(&mut self) -> bool {
        if self.entry.held {
            self.queues.refuse();
        }
        self.entry.held
    }

    /// The question whether all has come that was sent before a fence.
    pub(super) fn poll_fence(&mut self, ledger: &mut Ledger) -> Option<Header> {
        let fences = self.fences.as_mut().filter(|fences| fences.stage == Stage::Unasked)?;
        fences.stage = Stage::Asked;
        let mut op = Op::new(Token(0), Kind::Fence);
        // No event tells of it.
        (op.serial, op.done, op.awaiting) = (self.entry.next_serial(), true, 1);
        ledger.live += 1;
        let op = self.outstanding.insert(op);
        Some(Header::Flush { id: self.ask(op, 0, 0) })
    }

    /// The answer to that question.
    pub(super) fn fence_answered(&mut self, status: Status, ledger: &mut Ledger) {
        self.entry.accesses.confirm(status);
        if let Some(fences) = &mut self.fences
            && fences.stage == Stage::Asked
        {
            fences.stage = Stage::Answered;
            self.may_go_on(ledger);
        }
    }

    /// Whether what comes next may begin, if it is a fence.
    fn passes(&mut self, confirm: impl FnOnce(bool) -> bool, ledger: &mut Ledger) -> bool {
        let Some(fences) = &mut self.fences else { return true };
        if fences.stage == Stage::New {
            fences.earlier = self.outstanding.all().filter(|op| is_awaited(op)).count();
            fences.stage = Stage::Waiting;
        }
        if fences.stage == Stage::Waiting {
            let under_way =
                fences.earlier + self.entry.outside as usize + self.queues.messages_len();
            if under_way > 0 || !self.entry.is_up() {
                return false;
            }
            fences.stage = match confirm(self.entry.accesses.is_unconfirmed()) {
                true => Stage::Unasked,
                false => Stage::Answered,
            };
            if fences.stage == Stage::Unasked {
                self.wake(ledger);
            }
        }
        let passes = self.fences.as_ref().is_some_and(|fences| fences.stage == Stage::Answered);
        if passes && let Some(fences) = &mut self.fences {
            fences.stage = Stage::New;
            fences.deferred.pass();
        }
        passes
    }

    /// What goes on next. `None` if a fence waits, or nothing does any more.
    fn next_released(
        &mut self,
        mut confirm: impl FnMut(bool) -> bool,
        config: &Config,
        ledger: &mut Ledger,
    ) -> Option<Released> {
        while self.entry.held {
            match self.fences.as_mut().and_then(|fences| fences.deferred.take_next()) {
                Some(Next::Fence) if self.passes(&mut confirm, ledger) => {}
                Some(Next::Fence) => return None,
                Some(Next::Operation(operation)) => {
                    let place = Some(Location::Deferred { peer: self.handle });
                    ledger.finished(operation.token(), place);
                    ledger.live -= 1;
                    return Some(Released::Operation(operation));
                }
                Some(Next::Release(remote)) => return Some(Released::Handle(remote)),
                None => {
                    self.entry.held = false;
                    ledger.holding -= 1;
                    if self.queues.may_inject(config.inject_queue) {
                        ledger.events.push_back(Event::Writable { peer: self.handle });
                    }
                    // A transport looks again whether messages wait here.
                    self.wake(ledger);
                }
            }
        }
        None
    }

    /// How many operations are held up.
    pub(super) fn deferred_len(&self) -> usize {
        self.fences.as_ref().map_or(0, |fences| fences.deferred.len())
    }

    /// The token of an operation that is held up and uses this memory.
    pub(super) fn held_with(&self, memory: &Slice) -> Option<Token> {
        self.fences.as_ref()?.deferred.using(memory)
    }

    /// The peer is lost: what was held up ends. Gives the handles that are to be released.
    pub(super) fn end_held(&mut self, kind: &OpErrorKind, ledger: &mut Ledger) -> Vec<Remote> {
        let mut released = Vec::new();
        let Some(mut fences) = self.fences.take().filter(|_| self.entry.held) else {
            return released;
        };
        self.entry.held = false;
        ledger.holding -= 1;
        while let Some(next) = fences.deferred.take_next() {
            match next {
                Next::Fence => fences.deferred.pass(),
                Next::Operation(operation) => {
                    ledger.live -= 1;
                    let place = Some(Location::Deferred { peer: self.handle });
                    let error = OpError::with_peer(kind.clone(), &self.address);
                    ledger.finish(operation.token(), place, Err(error));
                }
                Next::Release(remote) => released.push(remote),
            }
        }
        released
    }
}

impl Engine {
    /// Whether an operation carries a fence, or may have to wait for one: then it is for
    /// [`Engine::defer`], before anything else is done with it.
    #[inline]
    #[must_use]
    pub fn is_deferred(&self, operation: &Operation) -> bool {
        self.ledger.holding != 0 || operation.is_fenced()
    }

    /// Whether something is held up by a fence.
    #[inline]
    #[must_use]
    pub fn is_deferring(&self) -> bool {
        self.ledger.holding != 0
    }

    /// Accepts an operation for which there is room ([`Engine::room_for`]), if it has to wait for a
    /// fence, its own included; it comes back by [`Engine::next_released`], perhaps at once. Else
    /// gives it back, without its fence, to be carried out.
    #[cold]
    #[must_use]
    pub fn defer(&mut self, operation: Operation) -> Option<Operation> {
        let Engine { peers, ledger, .. } = self;
        let plain = |operation| match operation {
            Operation::Fenced(fenced) => fenced.into_plain(),
            plain => plain,
        };
        let Some(peer) = operation.target() else {
            if operation.is_fenced() {
                let kind = OpErrorKind::Unsupported("a fence on an operation without a target");
                ledger.finish(operation.token(), None, Err(OpError::local(kind)));
                return None;
            }
            return Some(operation);
        };
        let entry = peers.get(peer).filter(|e| !matches!(e.state, PeerState::Lost(_)));
        if !entry.is_some_and(|entry| entry.held || operation.is_fenced()) {
            return Some(plain(operation));
        }
        let Some(conn) = peers.get_mut(peer) else { return Some(plain(operation)) };
        ledger.live += 1;
        ledger.tokens.insert(operation.token(), Location::Deferred { peer });
        let fences = conn.fences.get_or_insert_default();
        fences.deferred.push(operation);
        if !std::mem::replace(&mut conn.entry.held, true) {
            (fences.stage, ledger.holding) = (Stage::New, ledger.holding + 1);
            conn.may_go_on(ledger);
            // A transport sees that messages wait here.
            conn.wake(ledger);
        }
        None
    }

    /// Whether [`Engine::next_released`] has something to look at: then do not sleep.
    #[inline]
    #[must_use]
    pub fn has_released(&self) -> bool {
        self.ledger.seldom.released().is_some()
    }

    /// What was held up by a fence and goes on now. Transports that carry out some operations
    /// themselves take all of it in each pass, and after [`Engine::defer`]; a bounded number at a
    /// time, as there may be many. With [`Config::in_order`] the engine does it.
    ///
    /// `confirm` says whether a peer is to be asked, before anything goes on, if all that was sent
    /// to it has come: because the transport may carry out what goes on at another route than what
    /// the engine has sent, and of that something may be under way. It is told whether there are
    /// puts that the engine has sent and the peer has not answered.
    pub fn next_released(
        &mut self,
        mut confirm: impl FnMut(Peer, bool) -> bool,
    ) -> Option<Released> {
        let Engine { config, peers, ledger, .. } = self;
        while let Some(peer) = ledger.seldom.released() {
            if let Some(conn) = peers.get_mut(peer) {
                let next = conn.next_released(|puts| confirm(peer, puts), config, ledger);
                if next.is_some() {
                    return next;
                }
                if let Some(fences) = &mut conn.fences {
                    fences.listed = false;
                }
            }
            ledger.seldom.end_released();
        }
        None
    }

    /// Accepts an operation that carries a fence, or may have to wait for one, where the engine
    /// carries out all.
    #[cold]
    pub(super) fn submit_held(&mut self, operation: Operation) {
        match self.defer(operation) {
            Some(operation) => self.submit(operation),
            None => self.go_on(),
        }
    }

    /// Carries out what may go on, where the engine carries out all.
    #[cold]
    pub(super) fn go_on(&mut self) {
        // So many at a time as fit in few passes.
        const AT_ONCE: usize = 1024;
        for _ in 0..AT_ONCE {
            match self.next_released(|_, _| false) {
                Some(Released::Operation(operation)) => self.submit(operation),
                Some(Released::Handle(remote)) => self.release(remote),
                None => return,
            }
        }
    }

    /// Keeps a handle that the program releases for operations that a fence holds up: then it comes
    /// behind them, as [`Released::Handle`]. False if none needs it. [`Engine::release`] asks
    /// first; a transport asks itself that has accesses of its own.
    pub fn defer_release(&mut self, remote: Remote) -> bool {
        self.is_deferring() && self.defer_release_of(remote)
    }

    #[cold]
    fn defer_release_of(&mut self, remote: Remote) -> bool {
        let conn = self.peers.get_mut(remote.peer).filter(|conn| conn.entry.held);
        let fences = conn.and_then(|conn| conn.fences.as_mut());
        fences.is_some_and(|fences| fences.deferred.release(remote))
    }

    /// Cancels an operation that is held up.
    pub(super) fn cancel_deferred(&mut self, peer: Peer, token: Token) {
        let Engine { peers, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else { return };
        let fences = conn.fences.as_mut();
        if fences.and_then(|fences| fences.deferred.cancel(token)).is_some() {
            ledger.live -= 1;
            let error = OpError::with_peer(OpErrorKind::Cancelled, &conn.address);
            ledger.finish(token, Some(Location::Deferred { peer }), Err(error));
        }
    }
}
