//! Objects of the library's, closed once.

use crate::sys::fid;
use petasos_fabric::Home;
use std::{ffi::c_int, mem::ManuallyDrop, ptr::NonNull};

/// An object of the library's: closed when dropped, by the process that opened it.
///
/// A child that was forked leaves it alone: closing would wait for threads that it does not have,
/// and take away files and end connections that are the parent's.
pub(super) struct Handle<T>(NonNull<T>, Home);

impl<T> Handle<T> {
    /// Takes what a call gave: its code, and what it wrote.
    ///
    /// # Safety
    /// If `code` is 0, `object` is an object of the library's that begins with a `fid`, and has no
    /// other owner.
    pub(super) unsafe fn new(code: c_int, object: *mut T) -> Result<Handle<T>, isize> {
        match NonNull::new(object) {
            Some(object) if code == 0 => Ok(Handle(object, Home::current())),
            _ => Err(if code == 0 { -(libc::EINVAL as isize) } else { code as isize }),
        }
    }

    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }

    /// Its first part, which all objects have.
    pub(super) fn fid(&self) -> *mut fid {
        self.0.as_ptr().cast()
    }

    /// Closes it. False if the library did not: then it may still work on what it was given.
    pub(super) fn close(self) -> bool {
        let this = ManuallyDrop::new(self);
        if !this.1.is_current() {
            return true;
        }
        // SAFETY: an object of the library's (by `new`), closed once: here, or where it is dropped.
        // What depends on it was closed before.
        unsafe { ((*(*this.fid()).ops).close)(this.fid()) == 0 }
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if !self.1.is_current() {
            return;
        }
        // SAFETY: as in `close`: fields and locals are dropped in an order in which what depends on
        // an object comes first.
        let _ = unsafe { ((*(*self.fid()).ops).close)(self.fid()) };
    }
}
