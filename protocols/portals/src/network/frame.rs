//! The frame that is put together: one at a time, in memory that is used again.

use super::HEADER;
use std::ops::Deref;

/// A header, and the data that travels with it.
#[derive(Debug)]
pub(crate) struct Frame {
    /// As long as the longest frame so far. What lies behind `len` is of earlier ones.
    room: Vec<u8>,
    len: usize,
}

impl Default for Frame {
    fn default() -> Frame {
        Frame { room: vec![0; HEADER], len: 0 }
    }
}

impl Frame {
    /// Begins anew with a header: `write` says how long it is.
    #[inline(always)]
    pub(crate) fn begin(&mut self, write: impl FnOnce(&mut [u8; HEADER]) -> usize) {
        let room = self.room.first_chunk_mut().expect("there is always room for a header");
        self.len = write(room);
    }

    /// So many bytes more. The caller writes all of them: what is there is of an earlier frame.
    #[inline(always)]
    pub(crate) fn extend(&mut self, len: usize) -> &mut [u8] {
        let (start, end) = (self.len, self.len + len);
        if self.room.len() < end {
            self.grow(end);
        }
        self.len = end;
        &mut self.room[start..end]
    }

    #[cold]
    fn grow(&mut self, end: usize) {
        self.room.resize(end, 0);
    }

    #[inline]
    pub(crate) fn append(&mut self, data: &[u8]) {
        if !data.is_empty() {
            self.extend(data.len()).copy_from_slice(data);
        }
    }
}

impl Deref for Frame {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.room[..self.len]
    }
}
