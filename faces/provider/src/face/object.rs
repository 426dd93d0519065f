//! Objects that programs hold by pointers: a descriptor of libfabric's, and our value behind it.

use crate::state::error::Errno;
use petasos_ofi_sys::{FI_EOTHER, fi_ops, fid};
use std::{
    ffi::{c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

/// A kind of object.
pub(super) trait Kind: Sized {
    /// Its descriptor.
    type Fid;
    /// Its class, as libfabric numbers them.
    const CLASS: usize;
    /// The functions that all objects have. Every kind has a table of its own, by which an object
    /// is known as one of this provider's.
    fn ops() -> &'static fi_ops;
    /// The descriptor of an object, which begins with `fid`.
    fn descriptor(&self, fid: fid) -> Self::Fid;
}

/// In memory as C has it: whatever its kind, it begins with a `fid`.
#[repr(C)]
struct Object<K: Kind> {
    fid: K::Fid,
    kind: K,
}

/// Makes an object, which lives until [`close`].
pub(super) fn make<K: Kind>(kind: K, context: *mut c_void) -> *mut K::Fid {
    let fid = kind.descriptor(fid { fclass: K::CLASS, context, ops: K::ops() });
    Box::into_raw(Box::new(Object { fid, kind })).cast()
}

/// The object behind a pointer.
///
/// # Errors
/// The pointer is null, or that of an object of another kind.
///
/// # Safety
/// It is null, or points to a descriptor of libfabric's that was not closed, and will not be for
/// as long as what is returned is used.
pub(super) unsafe fn get<'a, K: Kind, P>(at: *mut P) -> Result<&'a K, Errno> {
    let common = at.cast::<fid>();
    if common.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: every descriptor begins with a `fid` (the caller's promise); its fields are read
    // without a reference to it, as the program may write its context.
    let (class, ops) = unsafe { ((*common).fclass, (*common).ops) };
    if class != K::CLASS || !ptr::eq(ops, K::ops()) {
        return Err(libc::EINVAL);
    }
    // SAFETY: only `make::<K>` gives out this table, for an `Object<K>` that begins where its
    // descriptor does. It was not closed, and nothing has an exclusive reference to its `kind`.
    Ok(unsafe { &(*at.cast::<Object<K>>()).kind })
}

/// Whether a pointer is that of an object of this kind.
///
/// # Safety
/// As [`get`].
pub(super) unsafe fn is<K: Kind, P>(at: *mut P) -> bool {
    // SAFETY: the caller's promise.
    unsafe { get::<K, P>(at) }.is_ok()
}

/// Ends an object, if `may` allows it.
///
/// # Errors
/// Those of [`get`], and of `may`: then the object stays.
///
/// # Safety
/// As [`get`]; and where this succeeds the pointer is not used again.
pub(super) unsafe fn close<K: Kind, P>(
    at: *mut P,
    may: impl FnOnce(&K) -> Result<(), Errno>,
) -> Result<isize, Errno> {
    // SAFETY: the caller's promise.
    may(unsafe { get::<K, P>(at) }?)?;
    // SAFETY: `get` found that it is an `Object<K>`, which `make` has allocated as a box; it is
    // closed once (the caller's promise), and no reference to it is left.
    drop(unsafe { Box::from_raw(at.cast::<Object<K>>()) });
    Ok(0)
}

/// What a function of C returns: a result, or the negative number of an error. A panic, which must
/// not pass the border, is an error, too.
pub(super) fn size(body: impl FnOnce() -> Result<isize, Errno>) -> isize {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => value,
        Ok(Err(errno)) => -(errno as isize),
        Err(_) => -(FI_EOTHER as isize),
    }
}

/// The same for functions that return an `int`.
pub(super) fn int(body: impl FnOnce() -> Result<isize, Errno>) -> c_int {
    size(body) as c_int
}

/// Gives a new object to the program.
///
/// # Errors
/// There is no place for it.
///
/// # Safety
/// `out` is null, or a pointer may be written there.
pub(super) unsafe fn give<K: Kind>(
    out: *mut *mut K::Fid,
    context: *mut c_void,
    kind: impl FnOnce() -> Result<K, Errno>,
) -> Result<isize, Errno> {
    if out.is_null() {
        return Err(libc::EINVAL);
    }
    let object = make(kind()?, context);
    // SAFETY: not null, and a pointer may be written there (the caller's promise).
    unsafe { out.write(object) };
    Ok(0)
}
