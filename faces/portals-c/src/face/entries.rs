//! Portal table entries, and the entries of their lists.

use super::{
    answer,
    memory::{all_memory, gather, is_everything, memory},
    place, read,
};
use crate::{
    abi::{
        ANY, ARG_INVALID, CHandle, Code, PT_EQ_NEEDED, me, pt, ptl_le_t, ptl_me_t, ptl_process_t,
    },
    interface::{self, Ni, Using, code},
};
use petasos_portals::{Accepts, Counts, List, MatchEntry, PortalOptions, Quiet};
use std::ffi::{c_uint, c_void};

fn portal(index: u32) -> Result<u16, Code> {
    u16::try_from(index).map_err(|_| ARG_INVALID)
}

/// # Safety
/// A number may be written where `pt_index` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlPTAlloc(
    ni_handle: CHandle,
    options: c_uint,
    eq_handle: CHandle,
    pt_index_req: u32,
    pt_index: *mut u32,
) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(pt_index)?;
        if options & !pt::MASK != 0 {
            return Err(ARG_INVALID);
        }
        let index = if pt_index_req == ANY { None } else { Some(portal(pt_index_req)?) };
        let queue = ni.optional_queue(eq_handle)?;
        let flow_control = options & pt::FLOWCTRL != 0;
        if flow_control && queue.is_none() {
            return Err(PT_EQ_NEEDED);
        }
        let disabled = options & pt::ALLOC_DISABLED != 0;
        let options = PortalOptions { index, queue, flow_control, disabled };
        let opened = ni.interface.portal(options).map_err(|error| code(&error))?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(opened.into()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlPTFree(ni_handle: CHandle, pt_index: u32) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        ni.interface.close_portal(portal(pt_index)?).map_err(|error| code(&error))
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlPTDisable(ni_handle: CHandle, pt_index: u32) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        ni.interface.disable(portal(pt_index)?).map_err(|error| code(&error))
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlPTEnable(ni_handle: CHandle, pt_index: u32) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        ni.interface.enable(portal(pt_index)?).map_err(|error| code(&error))
    })
}

/// The events that an entry does not want.
const QUIET: [(u32, Quiet); 6] = [
    (me::LINK_DISABLE, Quiet::LINK),
    (me::COMM_DISABLE, Quiet::COMMUNICATION),
    (me::FLOWCTRL_DISABLE, Quiet::FLOW_CONTROL),
    (me::SUCCESS_DISABLE, Quiet::SUCCESS),
    (me::OVER_DISABLE, Quiet::OVERFLOW),
    (me::UNLINK_DISABLE, Quiet::UNLINK),
];
/// What its counter counts.
const COUNTS: [(u32, Counts); 3] = [
    (me::CT_COMM, Counts::COMMUNICATION),
    (me::CT_OVERFLOW, Counts::OVERFLOW),
    (me::CT_BYTES, Counts::BYTES),
];
/// What it accepts.
const ACCEPTS: [(u32, Accepts); 2] = [(me::OP_PUT, Accepts::PUT), (me::OP_GET, Accepts::GET)];

/// What the crate makes of an entry of C.
///
/// # Errors
/// [`ARG_INVALID`].
///
/// # Safety
/// The memory is as [`memory`] has it.
unsafe fn entry(ni: &Ni, from: &ptl_me_t, user_ptr: *mut c_void) -> Result<MatchEntry, Code> {
    let options = from.options;
    if options & !me::MASK != 0 {
        return Err(ARG_INVALID);
    }
    let has = |bit: u32| options & bit != 0;
    let memory = match is_everything(from.start, from.length, options) {
        true => all_memory()?,
        // SAFETY: the caller's promise.
        false => unsafe { memory(from.start, from.length, options, ni.limits.max_iovecs) }?,
    };
    let managed = has(me::MANAGE_LOCAL);
    Ok(MatchEntry {
        bits: from.match_bits,
        ignore: from.ignore_bits,
        source: ni.processes.source(from.match_id),
        user: (from.uid != ANY).then_some(from.uid),
        accepts: gather(options, Accepts::NONE, Accepts::with, &ACCEPTS),
        once: has(me::USE_ONCE),
        unlink: managed && from.min_free > 0,
        local_offset: managed,
        min_free: (managed && from.min_free > 0).then_some(from.min_free),
        offset_counts_headers: has(me::LOCAL_INC_UH_RLENGTH),
        truncate: !has(me::NO_TRUNCATE),
        header: !has(me::UNEXPECTED_HDR_DISABLE),
        user_data: user_ptr.expose_provenance() as u64,
        quiet: gather(options, Quiet::NONE, Quiet::with, &QUIET),
        counter: ni.optional_counter(from.ct_handle)?,
        counts: gather(options, Counts::NONE, Counts::with, &COUNTS),
        ..MatchEntry::new(memory)
    })
}

/// An entry of a list without matching.
fn without_matching(le: &ptl_le_t) -> ptl_me_t {
    ptl_me_t {
        start: le.start,
        length: le.length,
        ct_handle: le.ct_handle,
        uid: le.uid,
        // Those that only a match list entry has do not count.
        options: le.options & me::LE_MASK,
        match_id: ptl_process_t { nid: ANY, pid: ANY },
        match_bits: 0,
        ignore_bits: u64::MAX,
        min_free: 0,
    }
}

/// The interface with this handle, if its lists match, or do not.
fn with(ni: CHandle, matching: bool) -> Result<Using, Code> {
    let ni = interface::named(ni)?;
    if ni.matching == matching { Ok(ni) } else { Err(ARG_INVALID) }
}

/// # Safety
/// The memory of the entry is as [`memory`] has it; a handle may be written where `out` points, if
/// it is not null.
unsafe fn append(
    ni: &Ni,
    index: u32,
    from: &ptl_me_t,
    list: u8,
    user_ptr: *mut c_void,
    out: *mut CHandle,
) -> Result<(), Code> {
    let list = match list {
        0 => List::Priority,
        1 => List::Overflow,
        _ => return Err(ARG_INVALID),
    };
    let out = place(out)?;
    // SAFETY: the caller's promise.
    let entry = unsafe { entry(ni, from, user_ptr) }?;
    let appended = ni.interface.append(portal(index)?, list, entry);
    let handle = appended.map_err(|error| code(&error))?;
    // SAFETY: not null, and may be written (the caller's promise).
    unsafe { out.write(ni.entries.give(handle, 0)) };
    Ok(())
}

/// # Safety
/// The memory of the entry is as [`memory`] has it.
unsafe fn search(
    ni: &Ni,
    index: u32,
    from: &ptl_me_t,
    operation: u8,
    user_ptr: *mut c_void,
) -> Result<(), Code> {
    // SAFETY: the caller's promise.
    let entry = unsafe { entry(ni, from, user_ptr) }?;
    let index = portal(index)?;
    let searched = match operation {
        0 => ni.interface.search(index, entry),
        1 => ni.interface.search_and_delete(index, entry),
        _ => return Err(ARG_INVALID),
    };
    searched.map_err(|error| code(&error))
}

/// # Safety
/// `me` is null or points at an entry whose memory is as [`memory`] has it; a handle may be written
/// where `me_handle` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlMEAppend(
    ni_handle: CHandle,
    pt_index: u32,
    me: *const ptl_me_t,
    ptl_list: u8,
    user_ptr: *mut c_void,
    me_handle: *mut CHandle,
) -> Code {
    answer(|| {
        let ni = with(ni_handle, true)?;
        // SAFETY: the caller's promise.
        unsafe { append(&ni, pt_index, &read(me)?, ptl_list, user_ptr, me_handle) }
    })
}

/// # Safety
/// As [`PtlMEAppend`].
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlLEAppend(
    ni_handle: CHandle,
    pt_index: u32,
    le: *const ptl_le_t,
    ptl_list: u8,
    user_ptr: *mut c_void,
    le_handle: *mut CHandle,
) -> Code {
    answer(|| {
        let ni = with(ni_handle, false)?;
        // SAFETY: the caller's promise.
        unsafe {
            let entry = without_matching(&read(le)?);
            append(&ni, pt_index, &entry, ptl_list, user_ptr, le_handle)
        }
    })
}

/// # Safety
/// `me` is null or points at an entry whose memory is as [`memory`] has it.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlMESearch(
    ni_handle: CHandle,
    pt_index: u32,
    me: *const ptl_me_t,
    ptl_search_op: u8,
    user_ptr: *mut c_void,
) -> Code {
    answer(|| {
        let ni = with(ni_handle, true)?;
        // SAFETY: the caller's promise.
        unsafe { search(&ni, pt_index, &read(me)?, ptl_search_op, user_ptr) }
    })
}

/// # Safety
/// As [`PtlMESearch`].
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlLESearch(
    ni_handle: CHandle,
    pt_index: u32,
    le: *const ptl_le_t,
    ptl_search_op: u8,
    user_ptr: *mut c_void,
) -> Code {
    answer(|| {
        let ni = with(ni_handle, false)?;
        // SAFETY: the caller's promise.
        unsafe { search(&ni, pt_index, &without_matching(&read(le)?), ptl_search_op, user_ptr) }
    })
}

/// Unlinks an entry of an interface whose lists match, or do not.
fn unlink(handle: CHandle, matching: bool) -> Result<(), Code> {
    let ni = interface::of(handle)?;
    let entry = ni.entry(handle)?;
    if ni.matching != matching {
        return Err(ARG_INVALID);
    }
    ni.interface.unlink(entry).map_err(|error| code(&error))?;
    ni.entries.forget(entry);
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn PtlMEUnlink(me_handle: CHandle) -> Code {
    answer(|| unlink(me_handle, true))
}

#[unsafe(no_mangle)]
extern "C" fn PtlLEUnlink(le_handle: CHandle) -> Code {
    answer(|| unlink(le_handle, false))
}
