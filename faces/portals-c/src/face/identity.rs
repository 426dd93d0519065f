//! Users, processes, and the map of a logical interface.

use super::{answer, elements, place};
use crate::{
    abi::{ARG_INVALID, CHandle, Code, FAIL, IGNORED, NO_SPACE, ptl_process_t},
    interface,
};

/// Processes in a map, at most.
const LARGEST_MAP: usize = 1 << 24;

/// # Safety
/// `mapping` is null, or `map_size` processes are there.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlSetMap(
    ni_handle: CHandle,
    map_size: u64,
    mapping: *const ptl_process_t,
) -> Code {
    answer(|| {
        // SAFETY: the caller's promise.
        let processes = interface::named(ni_handle)
            .and_then(|_| unsafe { elements(mapping, map_size, LARGEST_MAP) })?;
        set_map(ni_handle, processes)
    })
}

/// Sets the map of an interface.
///
/// # Errors
/// [`ARG_INVALID`] if it is no logical interface, or this process is not in the map; [`IGNORED`] if
/// the map was set.
pub(super) fn set_map(ni: CHandle, processes: &[ptl_process_t]) -> Result<(), Code> {
    let ni = interface::named(ni)?;
    if !ni.processes.logical || !processes.contains(&ni.processes.own) {
        return Err(ARG_INVALID);
    }
    if !ni.processes.set_map(processes.to_vec()) {
        return Err(IGNORED);
    }
    ni.interface.directory_changed().map(drop).map_err(|_| FAIL)
}

/// # Safety
/// `map_size` processes may be written where `mapping` points, and a number where the other does,
/// if they are not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlGetMap(
    ni_handle: CHandle,
    map_size: u64,
    mapping: *mut ptl_process_t,
    actual_map_size: *mut u64,
) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        if !ni.processes.logical || (mapping.is_null() && map_size > 0) {
            return Err(ARG_INVALID);
        }
        let map = ni.processes.map().ok_or(NO_SPACE)?;
        if map_size > 0 {
            let out = place(mapping)?;
            let count = map.len().min(usize::try_from(map_size).unwrap_or(usize::MAX));
            // SAFETY: no more than `map_size`, for which there is room (the caller's promise), and
            // no more than the map has, which is memory of its own.
            unsafe { std::ptr::copy_nonoverlapping(map.as_ptr(), out, count) };
        }
        if let Ok(out) = place(actual_map_size) {
            // SAFETY: not null, and may be written (the caller's promise).
            unsafe { out.write(map.len() as u64) };
        }
        Ok(())
    })
}

/// # Safety
/// A number may be written where `uid` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlGetUid(ni_handle: CHandle, uid: *mut u32) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(uid)?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(ni.interface.user_and_job().0) };
        Ok(())
    })
}

/// # Safety
/// A process may be written where `id` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlGetId(ni_handle: CHandle, id: *mut ptl_process_t) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(id)?;
        let own = match ni.processes.logical {
            false => ni.processes.own,
            // Without a map there are no ranks.
            true => ptl_process_t { nid: ni.processes.own_rank().ok_or(FAIL)?, pid: 0 },
        };
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(own) };
        Ok(())
    })
}

/// # Safety
/// A process may be written where `id` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlGetPhysId(ni_handle: CHandle, id: *mut ptl_process_t) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(id)?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(ni.processes.own) };
        Ok(())
    })
}
