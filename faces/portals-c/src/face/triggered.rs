//! Triggered operations.

use super::{
    answer,
    counters::count,
    operations::{Local, Remote, Words, atomic, fetch, get, of, put},
};
use crate::{
    abi::{CHandle, Code, ptl_ct_event_t, ptl_process_t},
    interface::{self, Ni, code},
};
use petasos_portals::{Action, Operation};
use std::ffi::c_void;

/// The counter that triggers, and when.
#[derive(Clone, Copy)]
struct Trigger {
    counter: CHandle,
    threshold: u64,
}

fn trigger(ni: &Ni, trigger: Trigger, action: Action) -> Result<(), Code> {
    let counter = ni.counter(trigger.counter)?;
    ni.interface.trigger(counter, trigger.threshold, action).map_err(|error| code(&error))
}

fn later(ni: &Ni, when: Trigger, operation: Operation) -> Result<(), Code> {
    trigger(ni, when, Action::Start(operation))
}

#[unsafe(no_mangle)]
extern "C" fn PtlTriggeredPut(
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
    counter: CHandle,
    threshold: u64,
) -> Code {
    answer(|| {
        let local = Local { md, offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let ni = of(local)?;
        let put = put(&ni, local, ack_req, remote, Words { user_ptr, hdr_data })?;
        later(&ni, Trigger { counter, threshold }, put)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlTriggeredGet(
    md: CHandle,
    offset: u64,
    length: u64,
    process: ptl_process_t,
    pt_index: u32,
    bits: u64,
    remote_offset: u64,
    user_ptr: *mut c_void,
    counter: CHandle,
    threshold: u64,
) -> Code {
    answer(|| {
        let local = Local { md, offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let ni = of(local)?;
        later(&ni, Trigger { counter, threshold }, get(&ni, local, remote, user_ptr)?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlTriggeredAtomic(
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
    counter: CHandle,
    threshold: u64,
) -> Code {
    answer(|| {
        let local = Local { md, offset, length };
        let remote = Remote { process, pt_index, bits, offset: remote_offset };
        let words = Words { user_ptr, hdr_data };
        let ni = of(local)?;
        let atomic = atomic(&ni, local, ack_req, remote, words, (operation, datatype))?;
        later(&ni, Trigger { counter, threshold }, atomic)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlTriggeredFetchAtomic(
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
    counter: CHandle,
    threshold: u64,
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
        later(&ni, Trigger { counter, threshold }, fetch?)
    })
}

/// # Safety
/// `operand` is null, or an element of the type is there.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlTriggeredSwap(
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
    counter: CHandle,
    threshold: u64,
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
        later(&ni, Trigger { counter, threshold }, swap?)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlTriggeredCTInc(
    ct_handle: CHandle,
    increment: ptl_ct_event_t,
    counter: CHandle,
    threshold: u64,
) -> Code {
    answer(|| {
        let ni = interface::of(ct_handle)?;
        let add = Action::Add(ni.counter(ct_handle)?, count(increment));
        trigger(&ni, Trigger { counter, threshold }, add)
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlTriggeredCTSet(
    ct_handle: CHandle,
    new_ct: ptl_ct_event_t,
    counter: CHandle,
    threshold: u64,
) -> Code {
    answer(|| {
        let ni = interface::of(ct_handle)?;
        let set = Action::Set(ni.counter(ct_handle)?, count(new_ct));
        trigger(&ni, Trigger { counter, threshold }, set)
    })
}
