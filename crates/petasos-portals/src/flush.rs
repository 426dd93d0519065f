//! Whether all has left: before an interface is closed, and for who wants to know.
//!
//! That its data has left says of an operation that the memory may be used again, and no more: the data
//! may lie in a buffer of the transport's, which ends with the endpoint. What is sent to a peer comes in
//! in order, so a *fence* behind it that is answered says that all of it has come in, also answers to what
//! others had asked for.

use crate::{
    Error, Interface,
    initiator::Underway,
    state::{State, Transfer},
};
use petasos_fabric::Peer;
use petasos_wire::portals as wire;
use std::time::Duration;

/// Fences that were asked for.
#[derive(Debug, Default)]
pub(crate) struct Fences {
    /// What had been started and served when they were: see [`State::link`].
    upto: u64,
    /// Peers that are still to be asked.
    ahead: Vec<Peer>,
    /// Those that have not been answered.
    open: Vec<crate::Handle<Underway>>,
}

impl Interface {
    /// Waits until all that was started here, and all answers to others, have come in where they belong,
    /// and drives the interface meanwhile. To be called before the last clone is dropped, as what is
    /// still on its way is lost then; [`Interface::close`] does both.
    ///
    /// The other side takes things in when it is driven. What is for a process that is lost is not waited
    /// for. Actions that wait for counters are not waited for, either.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Aborted`] after [`Interface::abort`].
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        let (state, result) = self.shared.wait(timeout, |state| Ok(state.has_left().then_some(())));
        self.shared.leave(state);
        result
    }

    /// Whether all has left, as [`Interface::flush`] has it. Does one pass, and asks those who are to say
    /// so: the answer is mostly no at first, and yes after some passes.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.with_state(|state| {
            state.pass();
            state.has_left()
        })
    }

    /// Ends the interface in order: what is on its way gets so much time to come in, then all waiting ends
    /// as by [`Interface::abort`]. The endpoint ends with the last clone, so other clones, and the engine,
    /// are to be dropped as well.
    ///
    /// # Errors
    /// As of [`Interface::flush`]: something may be lost. The interface has ended nevertheless.
    pub fn close(self, timeout: Duration) -> Result<(), Error> {
        let result = self.flush(timeout);
        self.abort();
        result
    }
}

impl State {
    /// Whether all has left; asks those who are to say so.
    pub(crate) fn has_left(&mut self) -> bool {
        let moving = |transfer: &Transfer| !matches!(transfer, Transfer::Discard);
        let here = !self.submits.is_empty()
            || self.peers.are_waiting()
            || !self.ready.is_empty()
            || self.transfers.iter::<Transfer>().any(|(_, transfer)| moving(transfer))
            || self.operations.iter::<Underway>().any(|(_, operation)| operation.is_here());
        if here {
            return false;
        }
        if self.fences.upto != self.link {
            self.fences.upto = self.link;
            self.fences.ahead = self.peers.known();
        }
        self.ask_ahead();
        let operations = &self.operations;
        self.fences.open.retain(|fence| operations.get(*fence).is_some());
        self.fences.ahead.is_empty() && self.fences.open.is_empty()
    }

    /// Sends fences to those who were not asked yet, as many as there is room for.
    fn ask_ahead(&mut self) {
        while let Some(peer) = self.fences.ahead.pop() {
            if !self.peers.is_known(peer) {
                continue;
            }
            let Some(fence) = self.operations.insert(Underway::fence(peer)) else {
                self.fences.ahead.push(peer);
                return;
            };
            self.fences.open.push(fence);
            self.frame.begin(|room| wire::Request::fence(fence.to_bits()).write(room));
            self.touched = true;
            self.send_frame(peer, Some(fence));
        }
    }
}
