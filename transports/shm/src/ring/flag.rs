//! A word by which one side says that it waits, and is to be rung.
//!
//! The side that waits raises it, makes a fence, and looks once more; the side that has published
//! something makes a fence, and takes the flag down if it is up. So either the one sees what was
//! published, or the other sees the flag; and it is rung once.

use crate::sync::{AtomicU64, Ordering};

#[derive(Clone, Copy)]
pub(crate) struct Flag<'a>(pub(crate) &'a AtomicU64);

impl Flag<'_> {
    /// Says that this side waits. A fence must follow, and then another look.
    #[inline]
    pub(crate) fn raise(self) {
        self.0.store(1, Ordering::Relaxed);
    }

    /// Says that this side does not wait.
    #[inline]
    pub(crate) fn lower(self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the other side waits; takes the flag down. A fence, or luck, must have made what was
    /// published visible before.
    #[inline]
    pub(crate) fn take(self) -> bool {
        self.0.load(Ordering::Relaxed) != 0 && self.0.swap(0, Ordering::SeqCst) != 0
    }
}
