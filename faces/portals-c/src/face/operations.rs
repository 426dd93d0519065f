//! Data movement: what the arguments of C mean, and the calls that start an operation at once.

use super::{
    answer,
    events::elements,
    memory::{FIRST, HAS_COUNTER, HAS_QUEUE, IS_EVERYTHING, IS_VOLATILE},
};
use crate::{
    abi::{ARG_INVALID, CHandle, Code, ptl_process_t},
    interface::{self, Ni, Using, code},
};
use petasos_portals::{Ack, Operation, Part, Target};
use std::ffi::c_void;

/// A part of a descriptor's memory, as C names it.
#[derive(Clone, Copy)]
pub(super) struct Local {
    pub(super) md: CHandle,
    pub(super) offset: u64,
    pub(super) length: u64,
}

/// Where an operation goes, as C names it.
#[derive(Clone, Copy)]
pub(super) struct Remote {
    pub(super) process: ptl_process_t,
    pub(super) pt_index: u32,
    pub(super) bits: u64,
    pub(super) offset: u64,
}

/// What operations have in common beside that.
#[derive(Clone, Copy)]
pub(super) struct Words {
    pub(super) user_ptr: *mut c_void,
    pub(super) hdr_data: u64,
}

/// The part of a descriptor, and what is known of that.
fn part(ni: &Ni, local: Local) -> Result<(Part, u8), Code> {
    let Local { md, mut offset, length } = local;
    let (descriptor, known) = ni.descriptor(md)?;
    if length > ni.limits.max_msg_size {
        return Err(ARG_INVALID);
    }
    if known & IS_VOLATILE != 0 && length > ni.limits.max_volatile_size {
        return Err(ARG_INVALID);
    }
    if known & IS_EVERYTHING != 0 {
        // Nothing is at address 0, also for operations without bytes.
        offset = if length == 0 { 0 } else { offset.checked_sub(FIRST).ok_or(ARG_INVALID)? };
    }
    Ok((Part { descriptor, offset, len: length }, known))
}

fn target(ni: &Ni, remote: Remote) -> Result<Target, Code> {
    let process = ni.processes.target(remote.process).ok_or(ARG_INVALID)?;
    let portal = u16::try_from(remote.pt_index).map_err(|_| ARG_INVALID)?;
    let bits = if ni.matching { remote.bits } else { 0 };
    Ok(Target { process, portal, bits, offset: remote.offset })
}

/// The acknowledgement that is asked for: an event needs a queue, and a count a counter.
fn ack(known: u8, ack_req: u8) -> Result<Ack, Code> {
    match ack_req {
        0 => Ok(Ack::None),
        1 if known & HAS_QUEUE != 0 => Ok(Ack::Full),
        2 if known & HAS_COUNTER != 0 => Ok(Ack::Counting),
        3 => Ok(Ack::Completed),
        _ => Err(ARG_INVALID),
    }
}

fn with(words: Words, operation: Operation) -> Operation {
    let user_data = words.user_ptr.expose_provenance() as u64;
    Operation { user_data, header_data: words.hdr_data, ..operation }
}

pub(super) fn put(
    ni: &Ni,
    local: Local,
    ack_req: u8,
    remote: Remote,
    words: Words,
) -> Result<Operation, Code> {
    let (part, known) = part(ni, local)?;
    let operation = Operation::put(part, target(ni, remote)?);
    Ok(Operation { ack: ack(known, ack_req)?, ..with(words, operation) })
}

pub(super) fn get(
    ni: &Ni,
    local: Local,
    remote: Remote,
    user_ptr: *mut c_void,
) -> Result<Operation, Code> {
    let (part, _) = part(ni, local)?;
    let words = Words { user_ptr, hdr_data: 0 };
    Ok(with(words, Operation::get(part, target(ni, remote)?)))
}

pub(super) fn atomic(
    ni: &Ni,
    local: Local,
    ack_req: u8,
    remote: Remote,
    words: Words,
    (operation, datatype): (u8, u8),
) -> Result<Operation, Code> {
    let (part, known) = part(ni, local)?;
    let (operator, kind) = elements(operation, datatype)?;
    let operation = Operation::atomic(operator, kind, part, target(ni, remote)?);
    Ok(Operation { ack: ack(known, ack_req)?, ..with(words, operation) })
}

/// A fetching atomic operation, or a swap: where the old elements go, and where the data is.
///
/// # Safety
/// If `operand` is some pointer that is not null, an element of the type is there.
pub(super) unsafe fn fetch(
    ni: &Ni,
    (result, data): (Local, Local),
    remote: Remote,
    words: Words,
    operand: Option<*const c_void>,
    (operation, datatype): (u8, u8),
) -> Result<Operation, Code> {
    let (result, _) = part(ni, result)?;
    let (data, _) = part(ni, data)?;
    let (operator, kind) = elements(operation, datatype)?;
    if operator.is_swap() != operand.is_some() {
        return Err(ARG_INVALID);
    }
    let mut value = [0; 16];
    if operator.has_operand() {
        let from = operand.filter(|from| !from.is_null()).ok_or(ARG_INVALID)?;
        // SAFETY: an element is there (the caller's promise), which has 16 bytes at most; `value`
        // is memory of its own.
        unsafe {
            std::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr(), kind.size());
        }
    }
    let operation = Operation::fetch_atomic(operator, kind, result, data, target(ni, remote)?);
    Ok(Operation { operand: value, ..with(words, operation) })
}

/// The interface of the descriptor of an operation.
pub(super) fn of(local: Local) -> Result<Using, Code> {
    interface::of(local.md)
}

/// Passes after an operation to the process itself, which mostly end it.
const PASSES: usize = 4;

fn start(ni: &Ni, operation: Operation) -> Result<(), Code> {
    ni.interface.start(operation).map_err(|error| code(&error))?;
    if ni.processes.is_own(operation.target.process) {
        (0..PASSES).find(|_| !ni.interface.progress());
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn PtlPut(
    md: CHandle,
    offset: u64,
    length: u64,
    ack_req: u8,
    process: ptl_process_t,
    pt_index: u32,
    bits: u64,
    remote_offset: u64,
    user_ptr: *mut c_void,
    hdr_data: u64,
) -> Code {
    answer(|| {
        let local = Local { md, offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let ni = of(local)?;
        start(&ni, put(&ni, local, ack_req, remote, Words { user_ptr, hdr_data })?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlGet(
    md: CHandle,
    offset: u64,
    length: u64,
    process: ptl_process_t,
    pt_index: u32,
    bits: u64,
    remote_offset: u64,
    user_ptr: *mut c_void,
) -> Code {
    answer(|| {
        let local = Local { md, offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let ni = of(local)?;
        start(&ni, get(&ni, local, remote, user_ptr)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlAtomic(
    md: CHandle,
    offset: u64,
    length: u64,
    ack_req: u8,
    process: ptl_process_t,
    pt_index: u32,
    bits: u64,
    remote_offset: u64,
    user_ptr: *mut c_void,
    hdr_data: u64,
    operation: u8,
    datatype: u8,
) -> Code {
    answer(|| {
        let local = Local { md, offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let words = Words { user_ptr, hdr_data };
        let ni = of(local)?;
        start(&ni, atomic(&ni, local, ack_req, remote, words, (operation, datatype))?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlFetchAtomic(
    get_md: CHandle,
    get_offset: u64,
    put_md: CHandle,
    put_offset: u64,
    length: u64,
    process: ptl_process_t,
    pt_index: u32,
    bits: u64,
    remote_offset: u64,
    user_ptr: *mut c_void,
    hdr_data: u64,
    operation: u8,
    datatype: u8,
) -> Code {
    answer(|| {
        let result = Local { md: get_md, offset: get_offset, length };
        let data = Local { md: put_md, offset: put_offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let words = Words { user_ptr, hdr_data };
        let ni = of(result)?;
        // SAFETY: there is no operand.
        let fetch =
            unsafe { fetch(&ni, (result, data), remote, words, None, (operation, datatype)) };
        start(&ni, fetch?)
    })
}

/// # Safety
/// `operand` is null, or an element of the type is there.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlSwap(
    get_md: CHandle,
    get_offset: u64,
    put_md: CHandle,
    put_offset: u64,
    length: u64,
    process: ptl_process_t,
    pt_index: u32,
    bits: u64,
    remote_offset: u64,
    user_ptr: *mut c_void,
    hdr_data: u64,
    operand: *const c_void,
    operation: u8,
    datatype: u8,
) -> Code {
    answer(|| {
        let result = Local { md: get_md, offset: get_offset, length };
        let data = Local { md: put_md, offset: put_offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let words = Words { user_ptr, hdr_data };
        let ni = of(result)?;
        let operand = Some(operand);
        // SAFETY: the caller's promise.
        let swap =
            unsafe { fetch(&ni, (result, data), remote, words, operand, (operation, datatype)) };
        start(&ni, swap?)
    })
}
