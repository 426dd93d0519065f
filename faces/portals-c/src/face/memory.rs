//! Memory of the program's, and memory descriptors.

use super::{answer, elements, place, read};
use crate::{
    abi::{ARG_INVALID, CHandle, CT_NONE, Code, EQ_NONE, IOVEC, md, ptl_iovec_t, ptl_md_t},
    interface::{self, code},
};
use petasos_fabric::{Slice, memory::AddressSpace};
use petasos_portals::{Counts, Descriptor, Error, Memory, Quiet};
use std::{ffi::c_void, ptr::NonNull, sync::OnceLock, time::Duration};

/// What is known of a descriptor beside its handle.
pub(super) const HAS_QUEUE: u8 = 1;
pub(super) const HAS_COUNTER: u8 = 1 << 1;
pub(super) const IS_VOLATILE: u8 = 1 << 2;
/// Offsets are addresses.
pub(super) const IS_EVERYTHING: u8 = 1 << 3;

/// The first address of the memory that stands for all of it: no pointer is null.
pub(super) const FIRST: u64 = 1;
/// A length from which on memory that starts at null means all memory.
const EVERYTHING: u64 = 1 << 47;

/// One piece of memory. What goes beyond the last address is not counted.
///
/// # Safety
/// As [`memory`].
unsafe fn piece(start: *mut c_void, len: u64) -> Result<Slice, Code> {
    let at = NonNull::new(start.cast::<u8>());
    match at {
        None if len > 0 => Err(ARG_INVALID),
        None => {
            // SAFETY: no bytes.
            Ok(unsafe { Slice::raw(NonNull::dangling(), 0) })
        }
        Some(at) => {
            let room = (isize::MAX as u64).saturating_sub(at.addr().get() as u64);
            // SAFETY: the caller's promise; it ends no further than the last address.
            Ok(unsafe { Slice::raw(at, len.min(room) as usize) })
        }
    }
}

/// Whether memory is all memory of the process.
pub(super) fn is_everything(start: *mut c_void, length: u64, options: u32) -> bool {
    start.is_null() && length >= EVERYTHING && options & IOVEC == 0
}

/// Memory of descriptors and entries.
///
/// # Errors
/// [`ARG_INVALID`] for memory at null that has a length, and for more than `most` pieces.
///
/// # Safety
/// With [`IOVEC`], `length` pieces are described where `start` points, if it is not null. The
/// memory is there until nothing uses it any more, as the specification has it: until the
/// descriptor is released, or the entry unlinked, or an event says that it was. The program has no
/// references of Rust's into it, and changes it meanwhile at most as the specification allows.
pub(super) unsafe fn memory(
    start: *mut c_void,
    length: u64,
    options: u32,
    most: i32,
) -> Result<Memory, Code> {
    if options & IOVEC == 0 {
        // SAFETY: the caller's promise.
        let piece = unsafe { piece(start, length) }?;
        return Ok(if piece.is_empty() { Memory::empty() } else { piece.into() });
    }
    if length == 0 {
        return Ok(Memory::empty());
    }
    let most = usize::try_from(most).unwrap_or(0);
    // SAFETY: the caller's promise.
    let vector = unsafe { elements(start.cast::<ptl_iovec_t>(), length, most) }?;
    let mut total = 0u64;
    let pieces = vector.iter().map(|one| {
        // SAFETY: the caller's promise.
        let piece = unsafe { piece(one.iov_base, one.iov_len) }?;
        total = total.checked_add(piece.len() as u64).ok_or(ARG_INVALID)?;
        if total > isize::MAX as u64 { Err(ARG_INVALID) } else { Ok(piece) }
    });
    Ok(Memory::pieces(pieces.collect::<Result<Vec<_>, Code>>()?))
}

/// All memory of the process, for entries: the kernel copies, and tells of bad addresses.
///
/// # Errors
/// [`ARG_INVALID`] where the system does not let a process do that.
pub(super) fn all_memory() -> Result<Memory, Code> {
    static ALL: OnceLock<Option<AddressSpace>> = OnceLock::new();
    // SAFETY: peers reach it by an entry that the program has appended for that; its peers are the
    // processes of its job, which write what the program's protocol says, as with any entry.
    let all = ALL.get_or_init(|| unsafe { AddressSpace::of_process() }.ok());
    all.as_ref().map(Memory::from).ok_or(ARG_INVALID)
}

/// Of flags of C those of the crate that they mean.
pub(super) fn gather<T: Copy>(
    options: u32,
    none: T,
    with: impl Fn(T, T) -> T,
    all: &[(u32, T)],
) -> T {
    let set = all.iter().filter(|(bit, _)| options & bit != 0);
    set.fold(none, |sum, (_, one)| with(sum, *one))
}

/// # Safety
/// `md` is null or points at a descriptor, whose memory is as [`memory`] has it; a handle may be
/// written where `md_handle` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlMDBind(
    ni_handle: CHandle,
    md: *const ptl_md_t,
    md_handle: *mut CHandle,
) -> Code {
    answer(|| {
        let ni = interface::named(ni_handle)?;
        let out = place(md_handle)?;
        // SAFETY: the caller's promise.
        let md = unsafe { read(md) }?;
        let options = md.options;
        if options & !md::MASK != 0 {
            return Err(ARG_INVALID);
        }
        let everything = is_everything(md.start, md.length, options);
        let memory = match everything {
            // SAFETY: operations use the parts that the program names, which are there until they
            // are done (its promise); no other byte is touched.
            true => unsafe { Slice::raw(NonNull::dangling(), isize::MAX as usize - 1) }.into(),
            // SAFETY: the caller's promise.
            false => unsafe { memory(md.start, md.length, options, ni.limits.max_iovecs) }?,
        };
        let counts = [
            (md::CT_SEND, Counts::SEND),
            (md::CT_REPLY, Counts::REPLY),
            (md::CT_ACK, Counts::ACK),
            (md::CT_BYTES, Counts::BYTES),
        ];
        let quiet = [(md::SUCCESS_DISABLE, Quiet::SUCCESS), (md::SEND_DISABLE, Quiet::SEND)];
        let descriptor = Descriptor {
            memory,
            queue: ni.optional_queue(md.eq_handle)?,
            counter: ni.optional_counter(md.ct_handle)?,
            counts: gather(options, Counts::NONE, Counts::with, &counts),
            quiet: gather(options, Quiet::NONE, Quiet::with, &quiet),
        };
        let known = [
            (md.eq_handle != EQ_NONE, HAS_QUEUE),
            (md.ct_handle != CT_NONE, HAS_COUNTER),
            (options & md::VOLATILE != 0, IS_VOLATILE),
            (everything, IS_EVERYTHING),
        ];
        let known = known.iter().filter(|(is, _)| *is).fold(0, |all, (_, bit)| all | bit);
        let handle = ni.interface.bind(descriptor).map_err(|error| code(&error))?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(ni.descriptors.give(handle, known)) };
        Ok(())
    })
}

/// Of a release that waits for operations to end: the time between two looks, and how many there
/// are. Those for a process that is gone have ended by then.
const PATIENCE: (Duration, u32) = (Duration::from_micros(200), 12_500);

#[unsafe(no_mangle)]
extern "C" fn PtlMDRelease(md_handle: CHandle) -> Code {
    answer(|| {
        let ni = interface::of(md_handle)?.share();
        let (descriptor, _) = ni.descriptor(md_handle)?;
        for _ in 0..PATIENCE.1 {
            match ni.interface.release(descriptor) {
                Err(Error::InUse(_)) => std::thread::sleep(PATIENCE.0),
                Err(error) => return Err(code(&error)),
                Ok(_) => {
                    ni.descriptors.forget(descriptor);
                    return Ok(());
                }
            }
        }
        Err(crate::abi::IN_USE)
    })
}
