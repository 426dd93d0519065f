//! Whether anything waits in a worker to be sent to its peers.
//!
//! Where a peer's put or get is emulated by messages, the library owes it an answer. The answer
//! waits while the peer's queue is full, as it stays with one that is stopped or has ended, and no
//! handle of ours knows it. If the worker is destroyed meanwhile, UCX ends the answer as if it were
//! a send of ours, by a type of its data that was never set (`ucp_rma_sw_send_cmpl` and
//! `ucp_request_send_state_ff`, the same in 1.13 and 1.20): it may free what it finds there.
//!
//! A flush of the worker does not show such answers, over shared memory, but a flush of the
//! endpoint does, and so does its closing: it is under way as long as anything is queued.

use super::{
    fixed::Fixed,
    objects::{Worker, request},
};
use crate::sys::{
    Began, library::Library, ucp_ep, ucp_request_param, ucs_status_ptr_t, ucs_status_t,
};
use std::{cell::Cell, ffi::c_void, ptr::NonNull};

/// Flushes and closings of endpoints.
pub(super) struct Emptying {
    library: &'static Library,
    /// Of those that are not over.
    under_way: Cell<u32>,
}

impl Emptying {
    pub(super) fn new(library: &'static Library) -> Fixed<Emptying> {
        Fixed::new(Emptying { library, under_way: Cell::new(0) })
    }

    /// Whether all are over.
    pub(super) fn is_over(&self) -> bool {
        self.under_way.get() == 0
    }
}

impl Worker {
    /// Parameters of a flush or a closing, which [`begun`](Self::begun) counts.
    pub(super) fn emptying(&self) -> ucp_request_param {
        request(emptied, self.emptying.as_ptr().cast())
    }

    /// What such a call gave.
    pub(super) fn begun(&self, given: ucs_status_ptr_t) {
        if Began::of(given) == Began::Running {
            let under_way = &self.emptying.under_way;
            under_way.set(under_way.get() + 1);
        }
    }

    /// Begins to flush an endpoint of this worker's.
    pub(super) fn flush(&self, ep: NonNull<ucp_ep>) {
        let param = self.emptying();
        // SAFETY: an open endpoint of this worker's; what the callback gets lies at a fixed place
        // and outlives the worker.
        self.begun(unsafe { (self.library.ucp_ep_flush_nbx)(ep.as_ptr(), &param) });
    }
}

/// A flush or a closing is over.
unsafe extern "C" fn emptied(request: *mut c_void, _: ucs_status_t, emptying: *mut c_void) {
    // SAFETY: lies at a fixed place and outlives the worker; there are no exclusive references to
    // it.
    let emptying = unsafe { &*emptying.cast_const().cast::<Emptying>() };
    emptying.under_way.set(emptying.under_way.get() - 1);
    // SAFETY: the request of this callback, given back once.
    unsafe { (emptying.library.ucp_request_free)(request) };
}
