//! The bytes of arguments and results.

use petasos_fabric::Lease;
use std::ops::Deref;

/// The bytes of arguments or a result: those of a message from some offset on.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) message: Lease,
    pub(crate) start: usize,
}

impl Body {
    #[inline]
    pub(crate) fn new(message: Lease, start: usize) -> Body {
        Body { message, start }
    }
}

impl Deref for Body {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.message[self.start..]
    }
}
