//! Memory of Python objects: the buffer protocol.
//!
//! It became part of the stable interface with CPython 3.11, and PyO3 offers it from there on. The
//! functions and the structure are the same in 3.9 and 3.10, and declared here.

use crate::numbers::Element;
use petasos::{
    Region, Slice,
    fabric::memory::{RegionBuilder, Releases},
};
use pyo3::{exceptions::PyBufferError, ffi, prelude::*};
use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::{self, NonNull},
};

/// `Py_buffer`.
#[repr(C)]
pub(crate) struct RawBuffer {
    pub(crate) buf: *mut c_void,
    pub(crate) obj: *mut ffi::PyObject,
    pub(crate) len: ffi::Py_ssize_t,
    pub(crate) itemsize: ffi::Py_ssize_t,
    pub(crate) readonly: c_int,
    pub(crate) ndim: c_int,
    pub(crate) format: *mut c_char,
    pub(crate) shape: *mut ffi::Py_ssize_t,
    pub(crate) strides: *mut ffi::Py_ssize_t,
    pub(crate) suboffsets: *mut ffi::Py_ssize_t,
    pub(crate) internal: *mut c_void,
}

/// Flags of a request.
pub(crate) const WRITABLE: c_int = 0x1;
pub(crate) const FORMAT: c_int = 0x4;
pub(crate) const ND: c_int = 0x8;
pub(crate) const STRIDES: c_int = 0x10 | ND;
const C_CONTIGUOUS: c_int = 0x20 | STRIDES;
const ANY_CONTIGUOUS: c_int = 0x80 | STRIDES;

unsafe extern "C" {
    fn PyObject_GetBuffer(object: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
    fn PyObject_CheckBuffer(object: *mut ffi::PyObject) -> c_int;
}

/// Whether an object has memory to show.
pub(crate) fn is_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: a pointer to an object that lives, with the interpreter attached.
    unsafe { PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// Memory that an object exports. While this lives the object keeps it where it is: a bytearray
/// cannot be resized.
pub(crate) struct Export(Box<RawBuffer>);

// SAFETY: the view is plain data; it is released with the interpreter attached, from whatever
// thread, which the protocol allows. Its memory is reached only as a `Region` says.
unsafe impl Send for Export {}
// SAFETY: as above.
unsafe impl Sync for Export {}

impl Export {
    fn new(object: &Bound<'_, PyAny>, flags: c_int) -> PyResult<Export> {
        // It stays where it is: exporters may point into it.
        let mut view = Box::new(RawBuffer {
            buf: ptr::null_mut(),
            obj: ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 1,
            ndim: 0,
            format: ptr::null_mut(),
            shape: ptr::null_mut(),
            strides: ptr::null_mut(),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
        // SAFETY: the object lives, the interpreter is attached, and the view is a `Py_buffer`.
        let got = unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *view, flags) };
        match got {
            0 => Ok(Export(view)),
            _ => Err(PyErr::fetch(object.py())),
        }
    }

    /// Its bytes in the order of C, as an array of numbers.
    pub(crate) fn of_array(object: &Bound<'_, PyAny>) -> PyResult<Export> {
        Export::new(object, C_CONTIGUOUS | FORMAT)
    }

    /// Its bytes as they lie, to be written if that is asked for.
    fn of_bytes(object: &Bound<'_, PyAny>, writable: bool) -> PyResult<Export> {
        let flags = if writable { ANY_CONTIGUOUS | WRITABLE } else { ANY_CONTIGUOUS };
        Export::new(object, flags).map_err(|error| {
            let py = object.py();
            let kind = object.get_type();
            let text = error.value(py).to_string();
            let wanted = if writable { "memory that may be written" } else { "memory" };
            PyBufferError::new_err(format!(
                "{kind} has no {wanted} in one piece: {text}; make it contiguous \
                 (numpy.ascontiguousarray), or pass a bytearray"
            ))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len.unsigned_abs()
    }

    /// What its numbers are; `None` if this does not know them.
    pub(crate) fn element(&self) -> Option<Element> {
        if self.0.format.is_null() {
            return Some(Element::BYTE);
        }
        // SAFETY: the exporter's text, which ends with a zero, and lives as long as the view.
        let format = unsafe { CStr::from_ptr(self.0.format) };
        Element::of_format(format.to_str().ok()?, self.0.itemsize.unsigned_abs())
    }

    /// How long it is in each dimension, in elements.
    pub(crate) fn shape(&self) -> Vec<u64> {
        let dimensions = self.0.ndim.unsigned_abs() as usize;
        // That of no dimension has no shape.
        if self.0.shape.is_null() && dimensions > 0 {
            return vec![self.len() as u64];
        }
        let at = |n| {
            // SAFETY: the shape has as many numbers as there are dimensions.
            unsafe { self.0.shape.add(n).read() }.unsigned_abs() as u64
        };
        (0..dimensions).map(at).collect()
    }

    /// Appends the bytes to a vector. The caller holds the interpreter, so only code that has
    /// released it can write meanwhile.
    pub(crate) fn append_to(self, out: &mut Vec<u8>) {
        let slice = self.into_region(None).whole();
        slice.append_to(0, slice.len(), out);
    }

    /// The memory as a region. Its last holder returns it to the queue, if there is one.
    fn into_region(self, releases: Option<&Releases>) -> Region {
        let (len, readonly) = (self.len(), self.0.readonly != 0);
        let Some(base) = NonNull::new(self.0.buf.cast::<u8>()).filter(|_| len > 0) else {
            return Region::from_vec(Vec::new());
        };
        let mut builder = RegionBuilder::new(base, len);
        if readonly {
            builder = builder.read_only();
        }
        if let Some(releases) = releases {
            builder = builder.release_to(releases);
        }
        // SAFETY: a contiguous buffer of `len` bytes from `buf` on is mapped, initialised as far as
        // Python programs can tell, readable, and writable unless it says that it is not, until it
        // is released, which the owner does when it is dropped. The owner moves, the memory does
        // not. No Rust reference to it is made here or by PyO3; what runs in the interpreter
        // reads and writes it by C code, as it does memory that it shares with other processes.
        unsafe { builder.build(Box::new(self)) }
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        // Where the interpreter has ended its objects are not touched any more.
        Python::try_attach(|_| {
            // SAFETY: the view was filled by `PyObject_GetBuffer`, has not moved, and is released
            // once; the interpreter is attached.
            unsafe { PyBuffer_Release(&mut *self.0) }
        });
    }
}

/// The memory of an object, to be read by the network, or written. It stays exported until the
/// network does not use it any more, and is given back by the queue.
pub(crate) fn lend(
    object: &Bound<'_, PyAny>,
    writable: bool,
    releases: &Releases,
) -> PyResult<Slice> {
    Ok(Export::of_bytes(object, writable)?.into_region(Some(releases)).whole())
}
