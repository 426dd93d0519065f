//! The functions of `portals4_job.h`.

use super::{answer, identity, place};
use crate::{
    abi::{CHandle, Code, ptl_process_t},
    job,
};

/// # Safety
/// Numbers may be written where the arguments point, if they are not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlxJobJoin(rank: *mut u32, size: *mut u64) -> Code {
    answer(|| {
        let (out_rank, out_size) = (place(rank)?, place(size)?);
        let (rank, size) = job::join()?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe {
            out_rank.write(rank);
            out_size.write(size.into());
        }
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlxJobSetMap(ni_handle: CHandle) -> Code {
    answer(|| identity::set_map(ni_handle, &job::ids(ni_handle)?))
}

/// # Safety
/// A process may be written where `id` points, if it is not null.
#[unsafe(no_mangle)]
unsafe extern "C" fn PtlxJobPhysId(ni_handle: CHandle, rank: u32, id: *mut ptl_process_t) -> Code {
    answer(|| {
        let out = place(id)?;
        let found = job::id(ni_handle, rank)?;
        // SAFETY: not null, and may be written (the caller's promise).
        unsafe { out.write(found) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn PtlxJobFence() -> Code {
    answer(job::fence)
}

#[unsafe(no_mangle)]
extern "C" fn PtlxJobLeave() -> Code {
    answer(job::leave)
}
