//! How a worker ends whose connections are still being made.
//!
//! UCX 1.13 ends the process if a worker is destroyed, over TCP, while its answer to a peer that
//! connects waits to be sent (`ucp_request.c:684`; 1.14 has not got that assertion). It waits from
//! when the peer's request was read until the peer has said that it heard of the way back: a
//! passage of a peer that is busy, and for ever with one that is stopped. No call tells of such
//! answers, not even a flush of the worker as long as it is not over at once: what it looks at
//! first is whether any connection is being made or has bytes to send, which holds as long as an
//! answer waits, but for one pass: the one in which the connection came to be.

use super::objects::Worker;
use std::{
    mem::ManuallyDrop,
    time::{Duration, Instant},
};

/// How long connections that are being made are waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// In so many passes in a row nothing is being connected: one would do where each connection is
/// looked at in each pass, and UCX looks at 16.
const QUIET: u32 = 8;

impl Worker {
    /// Destroys it; or leaves it, for good, where that would end the process: then false, and
    /// whatever was given to the library is to be left as well. It `owes` if answers to peers may
    /// wait (see [`emptying`](super::emptying)).
    ///
    /// # Safety
    /// It is not used any more.
    pub(super) unsafe fn end(worker: &mut ManuallyDrop<Worker>, owes: bool) -> bool {
        if owes && worker.context.is_here() {
            tracing::warn!(
                version = worker.library.version_text(),
                "a worker of UCX is left as it is, with its memory and its descriptors: a peer that used memory of this \
                 process does not take the answers, and UCX may fail if such a worker is destroyed"
            );
            return false;
        }
        let ends = !worker.context.is_here()
            || !worker.context.is_aborted_by_answers()
            || worker.is_connected_in_time(PATIENCE);
        if !ends {
            tracing::warn!(
                version = worker.library.version_text(),
                "a worker of UCX is left as it is, with its memory and its descriptors: a peer with which it connects \
                 does not answer, and this version ends the process if such a worker is destroyed; 1.14 and later do \
                 not"
            );
            return false;
        }
        // SAFETY: dropped once, for the caller does not use it any more.
        unsafe { ManuallyDrop::drop(worker) };
        true
    }

    /// Moves it on until none of its connections is being made, and none has bytes to send. What
    /// arrives is thrown away. False if that takes longer.
    fn is_connected_in_time(&self, patience: Duration) -> bool {
        let begin = Instant::now();
        let mut quiet = 0;
        loop {
            if self.is_flushed() {
                self.begin_flush();
                quiet = if self.is_flushed() { quiet + 1 } else { 0 };
            }
            if quiet == QUIET {
                return true;
            }
            if begin.elapsed() > patience {
                return false;
            }
            self.progress();
            self.abandon_arrived();
            std::thread::yield_now();
        }
    }
}
