//! Sending from, and receiving into, many pieces of memory at a time: the `unsafe` of this crate.

use petasos_fabric::Slice;
use smallvec::SmallVec;
use std::{
    io,
    marker::PhantomData,
    os::fd::{AsRawFd, BorrowedFd},
};

/// Pieces for which nothing is allocated.
const FEW: usize = 4;
/// Pieces for one system call; the kernel takes 1,024.
pub(crate) const MAX_PIECES: usize = 128;

/// Pieces to be sent, in order. Borrows them all.
#[derive(Default)]
pub(crate) struct Gather<'a> {
    pieces: SmallVec<[libc::iovec; FEW]>,
    len: usize,
    borrowed: PhantomData<&'a [u8]>,
}

impl<'a> Gather<'a> {
    pub(crate) fn is_full(&self) -> bool {
        self.pieces.len() >= MAX_PIECES
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&mut self, bytes: &'a [u8]) {
        self.piece(bytes.as_ptr().cast_mut(), bytes.len());
    }

    /// Memory of a region, from `skip` on.
    pub(crate) fn memory(&mut self, memory: &'a Slice, skip: usize) {
        if let Some(rest) = memory.len().checked_sub(skip).and_then(|len| memory.part(skip, len)) {
            // The part keeps nothing alive here; `memory` does, which is borrowed.
            self.piece(rest.as_ptr(), rest.len());
        }
    }

    fn piece(&mut self, base: *mut u8, len: usize) {
        if len > 0 {
            self.pieces.push(libc::iovec { iov_base: base.cast(), iov_len: len });
            self.len += len;
        }
    }

    /// Sends as much as there is room for; says how much.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        if let [piece] = self.pieces[..] {
            // SAFETY: as below, for the one piece.
            let sent =
                unsafe { libc::send(socket.as_raw_fd(), piece.iov_base, piece.iov_len, flags) };
            return usize::try_from(sent).map_err(|_| io::Error::last_os_error());
        }
        let message = header(&self.pieces);
        // SAFETY: `message` points to `pieces`, which live through the call, at most the number
        // that the kernel takes. Each piece is memory that is borrowed for 'a, or that of a slice
        // borrowed for 'a, and stays mapped and readable. The kernel only reads it; that a
        // region's memory may change meanwhile is nothing to the language, the kernel copies it.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Places to be filled, in order. Borrows them all.
#[derive(Default)]
pub(crate) struct Scatter<'a> {
    pieces: SmallVec<[libc::iovec; FEW]>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Scatter<'a> {
    pub(crate) fn has_room(&self) -> bool {
        self.pieces.len() < MAX_PIECES
    }

    pub(crate) fn buffer(&mut self, buffer: &'a mut [u8]) {
        self.piece(buffer.as_mut_ptr(), buffer.len());
    }

    /// Memory of a region, from `skip` on.
    ///
    /// # Panics
    /// If it is read-only.
    pub(crate) fn memory(&mut self, memory: &'a Slice, skip: usize) {
        assert!(memory.is_writable(), "receiving into read-only memory");
        if let Some(rest) = memory.len().checked_sub(skip).and_then(|len| memory.part(skip, len)) {
            self.piece(rest.as_ptr(), rest.len());
        }
    }

    fn piece(&mut self, base: *mut u8, len: usize) {
        if len > 0 && self.pieces.len() < MAX_PIECES {
            self.pieces.push(libc::iovec { iov_base: base.cast(), iov_len: len });
        }
    }

    /// Receives what is there; says how much. 0 is the end of the stream.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT;
        if let [piece] = self.pieces[..] {
            // SAFETY: as below, for the one piece.
            let got =
                unsafe { libc::recv(socket.as_raw_fd(), piece.iov_base, piece.iov_len, flags) };
            return usize::try_from(got).map_err(|_| io::Error::last_os_error());
        }
        let mut message = header(&self.pieces);
        // SAFETY: `message` points to `pieces`, which live through the call, at most the number
        // that the kernel takes. Each piece is a buffer borrowed mutably for 'a, or writable
        // memory of a slice borrowed for 'a: mapped through the call, and into a region's memory
        // there are no references. All bytes are valid for `u8`.
        let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        usize::try_from(got).map_err(|_| io::Error::last_os_error())
    }
}

fn header(pieces: &[libc::iovec]) -> libc::msghdr {
    // SAFETY: a `msghdr` of zeroes is valid: null pointers and lengths of zero.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = pieces.as_ptr().cast_mut();
    message.msg_iovlen = pieces.len();
    message
}
