//! Events of the crate's as events of C.

use crate::{
    abi::{ARG_INVALID, Code, EQ_DROPPED, kind, ni_fail, ptl_event_t, ptl_process_t},
    interface::Ni,
};
use petasos_portals::{
    Completed, Datatype, Event, Failure, List, Listed, Operator, Request, Served, Taken,
};
use std::{
    ffi::c_void,
    ptr::{null_mut, with_exposed_provenance_mut, without_provenance_mut},
};

/// An event in which nothing is said.
const NOTHING: ptl_event_t = ptl_event_t {
    start: null_mut(),
    user_ptr: null_mut(),
    hdr_data: 0,
    match_bits: 0,
    rlength: 0,
    mlength: 0,
    remote_offset: 0,
    initiator: ptl_process_t { nid: 0, pid: 0 },
    uid: 0,
    pt_index: 0,
    type_: 0,
    ptl_list: 0,
    ni_fail_type: ni_fail::OK,
    atomic_operation: 0,
    atomic_type: 0,
};

/// Gives an event to the program.
///
/// # Errors
/// [`EQ_DROPPED`] if others before it were lost: it was given nevertheless.
///
/// # Safety
/// `into` is a place for an event.
pub(super) unsafe fn give(ni: &Ni, taken: Taken, into: *mut ptl_event_t) -> Result<(), Code> {
    // SAFETY: the caller's promise.
    unsafe { into.write(event(ni, &taken.event)?) };
    if taken.lost > 0 { Err(EQ_DROPPED) } else { Ok(()) }
}

/// What C says of an event. Events of Portals 3, which do not come, are refused.
fn event(ni: &Ni, event: &Event) -> Result<ptl_event_t, Code> {
    Ok(match event {
        Event::Send(completed) => own(kind::SEND, completed),
        Event::Ack(completed) => own(kind::ACK, completed),
        Event::Reply(completed) => own(kind::REPLY, completed),
        Event::Served(served) => of_target(ni, served, 0),
        Event::Overflow(served) => of_target(ni, served, kind::OVERFLOW),
        Event::Search { found: Ok(served), .. } => {
            ptl_event_t { type_: kind::SEARCH, ..of_target(ni, served, 0) }
        }
        Event::Search { user_data, found: Err(failure) } => {
            let (user_ptr, ni_fail_type) = (pointer(*user_data), fail(Err(*failure)));
            ptl_event_t { type_: kind::SEARCH, user_ptr, ni_fail_type, ..NOTHING }
        }
        Event::Link(entry) => listed(kind::LINK, entry),
        Event::AutoUnlink(entry) => listed(kind::AUTO_UNLINK, entry),
        Event::AutoFree(entry) => listed(kind::AUTO_FREE, entry),
        Event::Disabled { portal } => ptl_event_t {
            type_: kind::PT_DISABLED,
            pt_index: (*portal).into(),
            ni_fail_type: ni_fail::PT_DISABLED,
            ..NOTHING
        },
        _ => return Err(ARG_INVALID),
    })
}

/// The pointer that the program has given as a number.
fn pointer(user_data: u64) -> *mut c_void {
    with_exposed_provenance_mut(user_data as usize)
}

fn list(list: List) -> u8 {
    u8::from(list == List::Overflow)
}

fn fail(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => ni_fail::OK,
        Err(Failure::Dropped) => ni_fail::DROPPED,
        Err(Failure::PortalDisabled) => ni_fail::PT_DISABLED,
        Err(Failure::Permission) => ni_fail::PERM_VIOLATION,
        Err(Failure::Operation) => ni_fail::OP_VIOLATION,
        Err(Failure::NoMatch) => ni_fail::NO_MATCH,
        Err(Failure::Fault) => ni_fail::SEGV,
        Err(_) => ni_fail::UNDELIVERABLE,
    }
}

/// An event at the initiator.
fn own(type_: u8, completed: &Completed) -> ptl_event_t {
    ptl_event_t {
        type_,
        user_ptr: pointer(completed.user_data),
        mlength: completed.len,
        remote_offset: completed.offset,
        ni_fail_type: fail(completed.result),
        ptl_list: completed.list.map_or(0, list),
        ..NOTHING
    }
}

/// An event of an entry.
fn listed(type_: u8, entry: &Listed) -> ptl_event_t {
    let (user_ptr, pt_index) = (pointer(entry.user_data), entry.portal.into());
    ptl_event_t { type_, user_ptr, pt_index, ..NOTHING }
}

/// An event at the target; `overflow` is added to its kind.
fn of_target(ni: &Ni, served: &Served, overflow: u8) -> ptl_event_t {
    let arrival = &served.arrival;
    let (base, elements) = match arrival.request {
        Request::Put | Request::GetPut => (kind::PUT, None),
        Request::Get => (kind::GET, None),
        Request::Atomic(operator, of) => (kind::ATOMIC, Some((operator, of))),
        Request::FetchAtomic(operator, of) => (kind::FETCH_ATOMIC, Some((operator, of))),
    };
    let (atomic_operation, atomic_type) = match elements {
        Some((operator, of)) => (operator as u8, type_of(of)),
        None => (0, 0),
    };
    ptl_event_t {
        start: served.address().map_or(null_mut(), |at| without_provenance_mut(at as usize)),
        user_ptr: pointer(served.user_data),
        hdr_data: arrival.header_data,
        match_bits: arrival.bits,
        rlength: arrival.len,
        mlength: served.len,
        remote_offset: arrival.offset,
        initiator: ni.processes.name(arrival.initiator),
        uid: arrival.user,
        pt_index: arrival.portal.into(),
        type_: base + overflow,
        ptl_list: list(served.list),
        ni_fail_type: fail(served.result),
        atomic_operation,
        atomic_type,
    }
}

/// The types of elements in the order of C.
const TYPES: [Datatype; 12] = [
    Datatype::I8,
    Datatype::U8,
    Datatype::I16,
    Datatype::U16,
    Datatype::I32,
    Datatype::U32,
    Datatype::F32,
    Datatype::I64,
    Datatype::U64,
    Datatype::F64,
    Datatype::C32,
    Datatype::C64,
];

fn type_of(of: Datatype) -> u8 {
    TYPES.iter().position(|known| *known == of).unwrap_or(0) as u8
}

/// Operator and type of elements.
///
/// # Errors
/// [`ARG_INVALID`] if there are none with these numbers: also for long double.
pub(super) fn elements(operation: u8, datatype: u8) -> Result<(Operator, Datatype), Code> {
    let operator = Operator::from_u8(operation).ok_or(ARG_INVALID)?;
    let of = TYPES.get(usize::from(datatype)).ok_or(ARG_INVALID)?;
    Ok((operator, *of))
}
