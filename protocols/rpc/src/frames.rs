//! How long frames may be, and the buffers in which they are put together.

use petasos_fabric::{Buffer, Tuning, spare_vec};
use std::cell::Cell;

/// The largest buffer that is kept for reuse.
const KEPT_BUFFER_LEN: usize = 64 * 1024;
/// Room for the longest header.
const HEADERS: usize = 128;
/// No threshold for lending is lower: a frame that says where lent data lies has to fit.
const MIN_INLINE: usize = 1024;

pub(crate) struct Frames {
    max_len: usize,
    /// The longest frame with arguments or a result in it; longer ones are lent.
    max_inline: usize,
    /// The buffer in which the next frame is put together: one is enough, as a rule.
    spare: Cell<Vec<u8>>,
}

impl Frames {
    /// For a transport whose longest message is `max_inject`. `lend_above` is what the program
    /// set; otherwise the tuning of this machine for the transport of this `scheme` counts.
    pub(crate) fn new(max_inject: usize, lend_above: Option<usize>, scheme: &str) -> Frames {
        let tuned = || Tuning::of_machine().lend_above(scheme);
        let lend_above = lend_above.or_else(tuned).unwrap_or(usize::MAX);
        let max_inline = max_inject.min(lend_above.max(MIN_INLINE));
        Frames { max_len: max_inject, max_inline, spare: Cell::default() }
    }

    /// The longest frame, in bytes.
    pub(crate) fn max_len(&self) -> usize {
        self.max_len
    }

    /// Whether a frame of so many bytes carries its arguments or result; otherwise they are lent.
    #[inline(always)]
    pub(crate) fn fits_inline(&self, len: usize) -> bool {
        len <= self.max_inline
    }

    /// An empty buffer.
    #[inline]
    pub(crate) fn buffer(&self) -> Vec<u8> {
        self.spare.take()
    }

    /// An empty buffer for a frame with about so many bytes after its header.
    #[inline]
    pub(crate) fn buffer_for(&self, len: usize) -> Vec<u8> {
        if len > KEPT_BUFFER_LEN - HEADERS {
            return spare_vec(len + HEADERS);
        }
        self.buffer()
    }

    /// Takes a buffer back for reuse.
    #[inline]
    pub(crate) fn recycle(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= KEPT_BUFFER_LEN {
            buffer.clear();
            self.spare.set(buffer);
        } else {
            drop(Buffer::from(buffer));
        }
    }
}
