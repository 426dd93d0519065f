//! One pass over an interface: the endpoint moves on, and what came is taken in.

use crate::{Failure, handle::Handle, state::State};
use petasos_fabric::{Body, Done, Event, Lease, OpError, OpErrorKind, Peer, Sleep, Time};

/// Passes between two looks at the clock while there is work.
const CLOCK: u32 = 64;
/// Of so many passes, one moves the endpoint on even if there were messages.
const FULL: u32 = 16;

impl State {
    /// One pass. False if there was nothing to do.
    pub(crate) fn pass(&mut self) -> bool {
        if self.process.is_none() {
            return self.pass_unnamed();
        }
        self.passes = self.passes.wrapping_add(1);
        self.touched = true;
        if self.passes.is_multiple_of(CLOCK) {
            self.read_clock();
        }
        let mut busy = self.take_messages(false);
        if !busy || self.submitted || self.passes.is_multiple_of(FULL) {
            busy |= self.progress();
        }
        busy |= !self.ready.is_empty();
        self.run_ready();
        busy
    }

    /// While the directory does not know this process nothing is taken in: it would be of
    /// strangers.
    #[cold]
    fn pass_unnamed(&mut self) -> bool {
        let busy = !self.ready.is_empty();
        self.run_ready();
        busy
    }

    pub(crate) fn read_clock(&mut self) {
        if let Some(clock) = &self.clock {
            self.now = clock.now();
        }
    }

    /// The short way in: messages that need no event, and nothing else, unless messages never end
    /// or the endpoint was given something to do. False if there are none.
    #[inline]
    pub(crate) fn peek(&mut self) -> bool {
        if self.submitted || self.process.is_none() {
            return self.pass();
        }
        self.touched = true;
        let busy = self.take_messages(true);
        if busy {
            self.passes = self.passes.wrapping_add(1);
            if self.passes.is_multiple_of(FULL) {
                return self.pass();
            }
        }
        if busy {
            self.run_ready();
        }
        busy
    }

    /// Takes the messages that need no event; `one`: no more, once there is something for a waiter.
    #[inline(never)]
    fn take_messages(&mut self, one: bool) -> bool {
        let mut message = Lease::default();
        let mut taken = 0;
        while taken < self.config.budget && !(one && taken > 0 && self.news) {
            let Some(peer) = self.endpoint.poll_message(&mut message) else { break };
            self.take_frame(peer, &message, None);
            taken += 1;
        }
        // Mostly there is nothing to give back, which this finds by one look.
        message.release();
        std::mem::forget(message);
        taken > 0
    }

    fn progress(&mut self) -> bool {
        self.submitted = false;
        self.flush_submits();
        let mut events = std::mem::take(&mut self.events);
        let busy = self.endpoint.progress(self.now, self.config.budget, &mut events);
        for event in events.drain(..) {
            self.handle(event);
        }
        self.events = events;
        busy
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Message { peer, message } => self.take_told(peer, &message, None),
            Event::LongMessage { peer, header, body, len } => {
                self.take_told(peer, &header, Some((body, len)));
            }
            Event::Done { token, result: Err(error) }
                if error.kind == OpErrorKind::StillReached =>
            {
                self.close_again(Handle::internal(token.0));
            }
            Event::Done { token, result } => {
                let result = match result {
                    // The sender's word for the length was the transport's.
                    Ok(Done::Received { .. } | Done::Sent | Done::Discarded) | Ok(_) => Ok(()),
                    Err(error) => Err(failure(&error)),
                };
                self.transferred(Handle::internal(token.0), result);
            }
            Event::Writable { peer } => self.flush(peer),
            Event::PeerLost { peer, reason } => {
                tracing::debug!(?peer, %reason, "a peer is lost");
                self.lose(peer);
            }
            // Peers are met when they are heard of; nothing here uses puts with event.
            _ => {}
        }
    }

    /// Takes in a frame that came by an event.
    #[inline(never)]
    fn take_told(&mut self, peer: Peer, frame: &[u8], body: Option<(Body, u64)>) {
        self.take_frame(peer, frame, body);
    }

    /// Prepares to sleep: until when, or `None` if there is something to do.
    pub(crate) fn arm(&mut self) -> Option<Time> {
        if !self.ready.is_empty() {
            return None;
        }
        self.read_clock();
        match self.endpoint.arm(self.now) {
            Sleep::Busy => None,
            Sleep::Until(until) => {
                self.touched = false;
                Some(until)
            }
        }
    }
}

fn failure(error: &OpError) -> Failure {
    match error.kind {
        OpErrorKind::PeerLost(_) | OpErrorKind::UnknownPeer => Failure::Unreachable,
        _ => Failure::Undelivered,
    }
}
