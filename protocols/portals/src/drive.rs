//! One pass over an interface: the endpoint makes progress, what came is taken in, and what was
//! waiting is sent.

use crate::{
    Failure,
    network::{Enqueued, Queued},
    state::State,
    target::copy,
    transfer::Transfer,
};
use petasos_fabric::{
    Body, Event, Lease, OpError, OpErrorKind, Operation as FabricOperation, Peer, Token,
};

/// Passes between two reads of the clock while there is work.
const CLOCK: u32 = 64;
/// One in so many passes lets the endpoint make progress even if there were messages.
const FULL: u32 = 16;

/// Passes.
impl State {
    /// One pass. False if there was nothing to do.
    pub(crate) fn pass(&mut self) -> bool {
        if self.process.is_none() {
            return self.pass_unnamed();
        }
        let pass = self.count_pass();
        if pass.is_multiple_of(CLOCK) {
            self.network.read_clock();
        }
        let mut busy = self.take_messages(false);
        if !busy || self.network.has_submitted() || pass.is_multiple_of(FULL) {
            busy |= self.progress();
        }
        busy |= self.events.has_due();
        self.run_due();
        if self.flushes > 0 {
            // Whether all has left is known by asking.
            self.events.announce();
        }
        busy
    }

    #[inline]
    fn count_pass(&mut self) -> u32 {
        self.passes = self.passes.wrapping_add(1);
        self.passes
    }

    /// While the directory does not know this process nothing is taken in: its senders would not be
    /// known, either.
    #[cold]
    fn pass_unnamed(&mut self) -> bool {
        let busy = self.events.has_due();
        self.run_due();
        busy
    }

    /// A short pass: takes messages that need no event, and does nothing else, unless messages
    /// never end or the endpoint was given something to do. False if there are none.
    #[inline]
    pub(crate) fn take_waiting_messages(&mut self) -> bool {
        if self.network.has_submitted() || self.process.is_none() {
            return self.pass();
        }
        let busy = self.take_messages(true);
        if busy {
            if self.count_pass().is_multiple_of(FULL) {
                return self.pass();
            }
            self.run_due();
        }
        busy
    }

    /// Takes messages that need no event; `one`: only until there is something for which a thread
    /// waits.
    #[inline(never)]
    fn take_messages(&mut self, one: bool) -> bool {
        let mut message = Lease::default();
        let mut taken = 0;
        while taken < self.config.budget && !(one && taken > 0 && self.events.has_news()) {
            let Some(peer) = self.network.poll_message(&mut message) else { break };
            self.take_frame(peer, &message, None);
            taken += 1;
        }
        // Mostly there is no buffer to give back, and this finds that by one comparison.
        message.release();
        std::mem::forget(message);
        taken > 0
    }

    fn progress(&mut self) -> bool {
        for peer in self.network.resubmit() {
            self.flush(peer);
        }
        let (busy, mut events) = self.network.progress(self.config.budget);
        for event in events.drain(..) {
            self.handle(event);
        }
        self.network.reuse(events);
        busy
    }

    /// Runs what counters have triggered.
    #[inline(always)]
    pub(crate) fn run_due(&mut self) {
        if self.events.has_due() {
            self.run_all_due();
        }
    }

    #[inline(never)]
    fn run_all_due(&mut self) {
        while let Some(operation) = self.events.next_to_start() {
            if let Err(error) = self.start(&operation) {
                self.status.misfired += 1;
                tracing::warn!(%error, "a triggered operation was not started");
            }
        }
    }
}

/// What the endpoint says.
impl State {
    fn handle(&mut self, event: Event) {
        match event {
            Event::Message { peer, message } => self.take_event_frame(peer, &message, None),
            Event::LongMessage { peer, header, body, len } => {
                self.take_event_frame(peer, &header, Some((body, len)));
            }
            Event::Done { token, result: Err(error) }
                if error.kind == OpErrorKind::StillReached =>
            {
                self.recall_again(token);
            }
            Event::Done { token, result } => {
                // The length of what was received is the one that the transport announced.
                self.transferred(token, result.map(drop).map_err(|error| failure(&error)));
            }
            Event::Writable { peer } => self.flush(peer),
            Event::PeerLost { peer, reason } => {
                tracing::debug!(?peer, %reason, "a peer is lost");
                self.lose(peer);
            }
            // A new peer is identified by its first message; puts with events are not used here.
            _ => {}
        }
    }

    /// Takes in a frame that came by an event.
    #[inline(never)]
    fn take_event_frame(&mut self, peer: Peer, frame: &[u8], body: Option<(Body, u64)>) {
        self.take_frame(peer, frame, body);
    }

    /// The endpoint has done what it was asked for, or will not.
    fn transferred(&mut self, token: Token, result: Result<(), Failure>) {
        match self.network.end_transfer(token) {
            None => tracing::error!(?token, "the transport completed an operation twice"),
            Some(Transfer::Discard | Transfer::Unlent(_)) => {}
            Some(Transfer::Put(operation)) => self.sent(operation, result),
            Some(Transfer::Reply(serving)) => self.replied(&serving, result),
            Some(Transfer::Lent { serving, remote, scratch }) => {
                self.moved_lent(&serving, remote, scratch, result);
            }
            Some(Transfer::Recalled { operation, outcome, .. }) => {
                self.recalled(operation, outcome);
            }
            Some(Transfer::Incoming { serving, scratch }) => {
                self.fetched_data(&serving, scratch, result);
            }
            Some(Transfer::Result { operation, memory, scratch, len }) => {
                let result = match (result, scratch) {
                    (Ok(()), Some(scratch)) => copy(&scratch, &memory, 0),
                    (result, _) => result,
                };
                self.reply_received(operation, result.map(|()| len));
            }
        }
    }
}

/// Messages that wait.
impl State {
    /// Sends a long message behind those that wait already.
    pub(crate) fn send_long(&mut self, peer: Peer, operation: FabricOperation) {
        if self.network.waits(peer) {
            self.enqueue(peer, Queued::Long(operation));
        } else {
            self.network.submit(operation);
        }
    }

    /// Lets a message wait for its peer.
    pub(crate) fn enqueue(&mut self, peer: Peer, queued: Queued) {
        match self.network.enqueue(peer, queued) {
            Enqueued::Waits => {}
            Enqueued::NoPeer(queued) => self.drop_queued(queued),
            Enqueued::Stuck => {
                self.status.cut_off += 1;
                tracing::warn!(?peer, "a peer that takes no answers is cut off");
                self.lose(peer);
            }
        }
    }

    /// Sends what waits for a peer, as far as there is room.
    fn flush(&mut self, peer: Peer) {
        while let Some((operation, result)) = self.network.send_next(peer) {
            self.sent(operation, result);
        }
    }

    /// A peer is lost: what was under way with it ends, and nothing is kept of it.
    fn lose(&mut self, peer: Peer) {
        for queued in self.network.remove(peer) {
            self.drop_queued(queued);
        }
        self.end_all_with(peer);
        self.network.forget(peer);
    }

    /// A message will never be sent.
    fn drop_queued(&mut self, queued: Queued) {
        let unreachable = Err(Failure::Unreachable);
        match queued {
            Queued::Frame(_, Some(operation)) => self.sent(operation, unreachable),
            Queued::Frame(_, None) => {}
            Queued::Long(operation) => self.transferred(operation.token(), unreachable),
        }
    }
}

fn failure(error: &OpError) -> Failure {
    match error.kind {
        OpErrorKind::PeerLost(_) | OpErrorKind::UnknownPeer => Failure::Unreachable,
        _ => Failure::Undelivered,
    }
}
