//! Start and end, network interfaces.

use super::{answer, place, read};
use crate::{
    abi::{ANY, ARG_INVALID, CHandle, Code, IFACE_DEFAULT, PART_ANY, PID_MAX, ptl_ni_limits_t},
    handle::{Kind, may_be},
    interface,
};
use std::ffi::{c_int, c_uint};

#[unsafe(no_mangle)]
extern "C" fn PtlInit() -> Code {
    answer(|| {
        interface::start();
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlFini() {
    answer(|| {
        interface::finish();
        Ok(())
    });
}

#[unsafe(no_mangle)]
extern "C" fn PtlAbort() {
    answer(|| {
        interface::abort();
        Ok(())
    });
}

/// # Safety
/// `desired` is null or points at limits; limits and a handle may be written where the others
/// point, if they are not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlNIInit(
    iface: c_uint,
    options: c_uint,
    pid: u32,
    desired: *const ptl_ni_limits_t,
    actual: *mut ptl_ni_limits_t,
    ni_handle: *mut CHandle,
) -> Code {
    answer(|| {
        let wanted = match desired.is_null() {
            true => None,
            // SAFETY: the caller's promise.
            false => Some(unsafe { read(desired) }?),
        };
        if !interface::is_started() {
            return Err(crate::abi::NO_INIT);
        }
        let out = place(ni_handle)?;
        let pid = match pid {
            PART_ANY | ANY => None,
            pid if pid < PID_MAX => Some(pid),
            _ => return Err(ARG_INVALID),
        };
        if iface != IFACE_DEFAULT && iface != 0 {
            return Err(ARG_INVALID);
        }
        let (handle, limits) = interface::open(options, pid, wanted.as_ref())?;
        // SAFETY: both may be written where they are not null (the caller's promise).
        unsafe {
            if let Ok(actual) = place(actual) {
                actual.write(limits);
            }
            out.write(handle);
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlNIFini(ni_handle: CHandle) -> Code {
    answer(|| interface::end(ni_handle))
}

/// # Safety
/// A number may be written where `status` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlNIStatus(
    ni_handle: CHandle,
    status_register: c_uint,
    status: *mut c_int,
) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(status)?;
        let counted = ni.interface.status();
        let value = match status_register {
            0 => counted.dropped,
            1 => counted.permission_violations,
            2 => counted.operation_violations,
            _ => return Err(ARG_INVALID),
        };
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(c_int::try_from(value).unwrap_or(c_int::MAX)) };
        Ok(())
    })
}

/// # Safety
/// A handle may be written where `ni_handle` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlNIHandle(handle: CHandle, ni_handle: *mut CHandle) -> Code {
    answer(|| {
        let ni = interface::of(handle)?;
        let out = place(ni_handle)?;
        if may_be(handle, Kind::Queue) {
            ni.queue(handle)?;
        } else if may_be(handle, Kind::Counter) {
            ni.counter(handle)?;
        } else if may_be(handle, Kind::Descriptor) {
            ni.descriptor(handle)?;
        } else if may_be(handle, Kind::Entry) {
            ni.entry(handle)?;
        } else if handle != ni.handle() {
            return Err(ARG_INVALID);
        }
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(ni.handle()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlHandleIsEqual(handle1: CHandle, handle2: CHandle) -> c_int {
    c_int::from(handle1 == handle2)
}

#[unsafe(no_mangle)]
extern "C" fn PtlStartBundle(ni_handle: CHandle) -> Code {
    answer(|| interface::named(ni_handle).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn PtlEndBundle(ni_handle: CHandle) -> Code {
    answer(|| interface::named(ni_handle).map(drop))
}

/// Atomics here are coherent with the processor's.
#[unsafe(no_mangle)]
extern "C" fn PtlAtomicSync() -> Code {
    answer(|| if interface::is_started() { Ok(()) } else { Err(crate::abi::NO_INIT) })
}
