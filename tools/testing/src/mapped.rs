//! A file's pages, mapped: for tests of file systems.

#![allow(unsafe_code)]

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    ptr::{self, NonNull},
};

/// A part of a file, mapped to be read and written, and shared with whatever else reads and writes
/// the file. It ends when it is dropped.
///
/// The file must not become shorter meanwhile: the system ends a process that touches a page beyond
/// its end.
#[derive(Debug)]
pub struct Mapped {
    at: NonNull<u8>,
    len: usize,
}

impl Mapped {
    /// Maps the first `len` bytes of a file that is open to be read and written.
    ///
    /// # Errors
    /// Those of `mmap(2)`: `ENODEV` where the file system has no shared mappings.
    pub fn new(file: &File, len: usize) -> io::Result<Mapped> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (fd, flags) = (file.as_raw_fd(), libc::MAP_SHARED);
        // SAFETY: the system chooses where, so that nothing of this process is replaced.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapped { at, len })
    }

    /// Reads from `offset` on.
    ///
    /// # Panics
    /// If that is not all within what is mapped.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        assert!(offset.checked_add(into.len()).is_some_and(|end| end <= self.len));
        for (n, byte) in into.iter_mut().enumerate() {
            // SAFETY: the byte lies within what is mapped until this is dropped. No reference to it
            // is ever made, and volatile access stands that others change it.
            *byte = unsafe { self.at.as_ptr().add(offset + n).read_volatile() };
        }
    }

    /// Writes from `offset` on.
    ///
    /// # Panics
    /// If that is not all within what is mapped.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= self.len));
        for (n, byte) in from.iter().enumerate() {
            // SAFETY: as in `read`; it is mapped to be written, too.
            unsafe { self.at.as_ptr().add(offset + n).write_volatile(*byte) };
        }
    }

    /// Has the system write what was changed to the file system.
    ///
    /// # Errors
    /// Those of `msync(2)`.
    pub fn sync(&self) -> io::Result<()> {
        // SAFETY: it is the whole of what is mapped, and stays so during the call.
        match unsafe { libc::msync(self.at.as_ptr().cast(), self.len, libc::MS_SYNC) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: it is the whole of what `new` mapped, and there are no references to it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}
