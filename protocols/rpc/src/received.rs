//! The message that a pass takes in.
//!
//! It is handled before the next one is taken, with one exception: the result of the only call
//! under way, whose caller blocks on the engine, stays here until that caller decodes it.

use crate::body::{Body, Kept};
use petasos_fabric::Lease;
use petasos_wire::rpc::{self, CallId, RESPONSE_LEN};
use std::cell::{Cell, RefCell, RefMut};

pub(crate) struct Received {
    message: RefCell<Lease>,
    /// The call whose result stays here, or none.
    unread: Cell<CallId>,
}

impl Default for Received {
    fn default() -> Received {
        Received { message: RefCell::default(), unread: Cell::new(rpc::NO_CALL) }
    }
}

impl Received {
    /// Room for the next message. `None` while a result is decoded from the last one, by code that
    /// drives the engine.
    #[inline(always)]
    pub(crate) fn room(&self) -> Option<RefMut<'_, Lease>> {
        self.message.try_borrow_mut().ok()
    }

    /// The message is the result of this call, and stays until it is read.
    #[inline(always)]
    pub(crate) fn leave_unread(&self, call: CallId) {
        self.unread.set(call);
    }

    #[inline(always)]
    pub(crate) fn has_unread(&self) -> bool {
        self.unread.get() != rpc::NO_CALL
    }

    /// Takes the unread result out of `message`, to make room for the next one.
    pub(crate) fn take_unread(&self, message: &mut Lease, kept: &Kept) -> (CallId, Body) {
        let body = Body::kept(std::mem::take(message), RESPONSE_LEN, kept);
        (self.unread.replace(rpc::NO_CALL), body)
    }

    /// Whether the unread result is of this call; then it counts as read, by [`Received::read`].
    #[inline(always)]
    pub(crate) fn begin_reading(&self, call: CallId) -> bool {
        let here = self.unread.get() == call;
        if here {
            self.unread.set(rpc::NO_CALL);
        }
        here
    }

    /// Decodes the result.
    #[inline(always)]
    pub(crate) fn read<R>(&self, decode: impl FnOnce(&[u8]) -> R) -> R {
        decode(&self.message.borrow()[RESPONSE_LEN..])
    }
}
