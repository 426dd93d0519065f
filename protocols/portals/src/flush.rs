//! Flushing: waiting until all that was sent has come in at the other side.
//!
//! When its data has left, the memory of an operation may be used again, and no more is known: the
//! data may lie in a buffer of the transport, which ends with the endpoint. Messages to a peer come
//! in in order. So when a *fence* behind them is answered, all of them have come in, also the
//! answers to operations of that peer.

use crate::{Error, Interface, outstanding::Outstanding, state::State, wait::Wait};
use petasos_wire::portals as wire;
use std::time::Duration;

impl Interface {
    /// Waits until all operations that were started here, and all answers to other processes, have
    /// come in at the other side; drives the interface meanwhile. Call it before the last clone is
    /// dropped, as what is still on its way is lost then; [`Interface::close`] does both.
    ///
    /// The other side takes messages in when it is driven. What is for a process that is lost is
    /// not waited for, and actions that wait for counters are not, either.
    ///
    /// # Errors
    /// [`Error::Timeout`]; [`Error::Aborted`] after [`Interface::abort`].
    pub fn flush(&self, timeout: Duration) -> Result<(), Error> {
        // What is started meanwhile, here and by other processes, is not waited for.
        let upto = self.with_state(|state| {
            state.flushes += 1;
            state.latest_link()
        });
        let (mut state, result) = self.wait(timeout, &Wait::Flush(upto));
        state.flushes -= 1;
        result
    }

    /// Whether all has come in, as [`Interface::flush`] would wait for. Does one pass, and sends
    /// fences: the answer is mostly no at first, and yes after some passes.
    #[must_use]
    pub fn has_left(&self) -> bool {
        self.with_state(|state| {
            state.pass();
            state.has_left(state.latest_link()) && !state.is_sending()
        })
    }

    /// Closes the interface in order: flushes for at most `timeout`, then ends all waiting as
    /// [`Interface::abort`] does. The endpoint is closed with the last clone, so drop other clones,
    /// and the engine, as well.
    ///
    /// # Errors
    /// As [`Interface::flush`]: something may be lost. The interface is closed nevertheless.
    pub fn close(self, timeout: Duration) -> Result<(), Error> {
        let result = self.flush(timeout);
        self.abort();
        result
    }
}

impl State {
    /// Whether something has not been handed to the transport, or is lent.
    fn is_sending(&self) -> bool {
        self.network.is_sending() || self.events.has_due() || self.operations.are_moving()
    }

    /// Whether all has left that was started and served up to then; sends the fences that are to
    /// find out.
    pub(crate) fn has_left(&mut self, upto: u64) -> bool {
        self.advance_round();
        if !self.fences.have_passed(upto) && self.fences.is_over() && !self.is_sending() {
            self.fences.begin_round(self.latest_link(), self.network.peers_of_the_job());
            self.advance_round();
        }
        self.fences.have_passed(upto)
    }

    /// Goes on with a round: it is over when all peers were asked and have answered.
    fn advance_round(&mut self) {
        self.send_fences();
        self.fences.end_answered(|fence| self.operations.contains(fence));
    }

    /// Sends fences to peers that were not asked yet, as many as there is room for.
    fn send_fences(&mut self) {
        while let Some(peer) = self.fences.next_peer() {
            if !self.network.is_known(peer) {
                continue;
            }
            let Some(fence) = self.operations.insert(Outstanding::fence(peer)) else {
                self.fences.postpone(peer);
                return;
            };
            self.fences.sent(fence);
            self.network.frame.begin(|room| wire::Request::fence(fence.to_bits()).write(room));
            self.send_frame(peer, Some(fence));
        }
    }
}
