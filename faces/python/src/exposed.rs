//! Memory of regions, as objects with the buffer protocol: what `memoryview` and numpy read.
//!
//! PyO3 makes such classes from CPython 3.11 on, where the protocol is part of the stable interface;
//! the slots are known to 3.9, too, and are filled here.

use crate::{
    buffer::{FORMAT, ND, RawBuffer, STRIDES, WRITABLE},
    numbers::Element,
};
use petasos::Region;
use pyo3::{
    exceptions::PyBufferError,
    ffi,
    prelude::*,
    sync::PyOnceLock,
    types::{PyMemoryView, PyType},
};
use std::{
    ffi::{c_int, c_uint, c_void},
    ptr,
};

/// What an object shows. It stays where it is.
struct Shown {
    region: Region,
    element: Element,
    shape: Vec<ffi::Py_ssize_t>,
    strides: Vec<ffi::Py_ssize_t>,
    len: usize,
    writable: bool,
}

/// The object.
#[repr(C)]
struct Object {
    base: ffi::PyObject,
    /// Null for one that a program made by itself, which shows nothing.
    shown: *mut Shown,
}

/// An object that shows the first bytes of a region as an array. It holds the region; so does each
/// memoryview or numpy array of it.
///
/// The region has that many bytes, and one pointer.
pub(crate) fn memory<'py>(
    py: Python<'py>,
    region: Region,
    element: Element,
    shape: &[u64],
    writable: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let len = crate::numbers::bytes(element, shape).filter(|len| *len <= region.len());
    let (Some(len), Some(_)) = (len, region.host_ptr()) else {
        return Err(PyBufferError::new_err("the memory is shorter than the array"));
    };
    let shape: Vec<_> = shape.iter().map(|len| *len as ffi::Py_ssize_t).collect();
    let mut strides = vec![ffi::Py_ssize_t::from(element.size); shape.len()];
    for at in (0..shape.len().saturating_sub(1)).rev() {
        strides[at] = strides[at + 1] * shape[at + 1].max(1);
    }
    let writable = writable && region.is_writable();
    let shown = Box::new(Shown { region, element, shape, strides, len, writable });
    let class = class(py)?;
    // SAFETY: a heap type of this module, whose instances are `Object`s; a new one is zeroed.
    let object = unsafe { ffi::PyType_GenericAlloc(class.bind(py).as_type_ptr(), 0) };
    // SAFETY: a new reference, or null with an exception set.
    let object = unsafe { Bound::from_owned_ptr_or_err(py, object)? };
    // SAFETY: it was made just now, and has room for the pointer.
    unsafe { (*object.as_ptr().cast::<Object>()).shown = Box::into_raw(shown) };
    Ok(object)
}

/// A memoryview of all of a region, in bytes.
pub(crate) fn view(py: Python<'_>, region: Region) -> PyResult<Bound<'_, PyMemoryView>> {
    let len = region.len() as u64;
    PyMemoryView::from(&memory(py, region, Element::BYTE, &[len], true)?)
}

fn class(py: Python<'_>) -> PyResult<&Py<PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    CLASS.get_or_try_init(py, || {
        // Numbers of slots: `Py_bf_getbuffer`, `Py_tp_dealloc`.
        const GET_BUFFER: c_int = 1;
        let get: unsafe extern "C" fn(_, _, _) -> _ = get_buffer;
        let dealloc: unsafe extern "C" fn(_) = dealloc;
        let mut slots = [
            ffi::PyType_Slot { slot: GET_BUFFER, pfunc: get as *mut c_void },
            ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: dealloc as *mut c_void },
            ffi::PyType_Slot { slot: 0, pfunc: ptr::null_mut() },
        ];
        let mut spec = ffi::PyType_Spec {
            name: c"petasos._native.Memory".as_ptr(),
            basicsize: size_of::<Object>() as c_int,
            itemsize: 0,
            flags: ffi::Py_TPFLAGS_DEFAULT as c_uint,
            slots: slots.as_mut_ptr(),
        };
        // SAFETY: name and slots are as the interpreter wants them, and it copies them; the
        // instances are `Object`s, which its functions know.
        unsafe {
            let class = ffi::PyType_FromSpec(&mut spec);
            Ok(Bound::from_owned_ptr_or_err(py, class)?.cast_into::<PyType>()?.unbind())
        }
    })
}

/// # Safety
/// For the interpreter, as the slot `tp_dealloc` of the class.
unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference to an object of the class is gone. What it shows was made by
    // `Box::into_raw`, or is null; the object was made by `PyType_GenericAlloc`, whose memory
    // `PyObject_Free` frees for a class without collection of cycles, and holds its class.
    unsafe {
        let class = ffi::Py_TYPE(object);
        let shown = (*object.cast::<Object>()).shown;
        if !shown.is_null() {
            drop(Box::from_raw(shown));
        }
        ffi::PyObject_Free(object.cast());
        ffi::Py_DECREF(class.cast());
    }
}

/// # Safety
/// For the interpreter, as the slot `bf_getbuffer` of the class.
unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut RawBuffer,
    flags: c_int,
) -> c_int {
    // SAFETY: an object of the class, and a view that the caller made; the interpreter is attached.
    // The view's pointers are into what the object shows, which lives as long as the object, to
    // which the view holds a reference. It is not changed, so the strides and shape are not.
    unsafe {
        let Some(shown) = (*object.cast::<Object>()).shown.as_ref() else {
            ffi::PyErr_SetString(ffi::PyExc_BufferError, c"it shows no memory".as_ptr());
            return -1;
        };
        if flags & WRITABLE != 0 && !shown.writable {
            let text = c"this memory may only be read".as_ptr();
            ffi::PyErr_SetString(ffi::PyExc_BufferError, text);
            return -1;
        }
        let wanted = |flag: c_int, there: *mut ffi::Py_ssize_t| match flags & flag == flag {
            true => there,
            false => ptr::null_mut(),
        };
        let format = shown.element.format().as_ptr().cast_mut();
        ffi::Py_INCREF(object);
        view.write(RawBuffer {
            buf: shown.region.as_ptr().cast(),
            obj: object,
            len: shown.len as ffi::Py_ssize_t,
            itemsize: ffi::Py_ssize_t::from(shown.element.size),
            readonly: c_int::from(!shown.writable),
            ndim: shown.shape.len() as c_int,
            format: if flags & FORMAT != 0 { format } else { ptr::null_mut() },
            shape: wanted(ND, shown.shape.as_ptr().cast_mut()),
            strides: wanted(STRIDES, shown.strides.as_ptr().cast_mut()),
            suboffsets: ptr::null_mut(),
            internal: ptr::null_mut(),
        });
    }
    0
}
