//! What the fuzz targets share: reading choices off the input, and counting what is allocated.

#![forbid(unsafe_code)]

pub mod cut;
pub mod guarded;
pub mod nic;
pub mod zoo;

pub use cut::Cut;
pub use guarded::Guarded;

/// The kinds of packets of the two-sided engine are less than this.
pub const KINDS: u8 = 26;

/// Runs `work`, and makes sure that it took no more than `limit` bytes of memory at any time.
///
/// # Panics
/// If it did.
pub fn bounded<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    let (result, heap) = measured(work);
    assert!(heap.bytes_max <= limit as u64, "{} bytes of memory, {limit} allowed", heap.bytes_max);
    result
}

/// As [`bounded`], for all that is allocated, whether it is freed again or not.
///
/// # Panics
/// If it was more.
pub fn bounded_in_all<T>(limit: usize, work: impl FnOnce() -> T) -> T {
    let (result, heap) = measured(work);
    assert!(
        heap.bytes_total <= limit as u64,
        "{} bytes of memory, {limit} allowed",
        heap.bytes_total
    );
    result
}

fn measured<T>(work: impl FnOnce() -> T) -> (T, allocation_counter::AllocationInfo) {
    // Once for the process, and no part of the work, which does not use what is allocated by this.
    petasos_fabric::retain_freed_memory();
    let mut result = None;
    let heap = allocation_counter::measure(|| result = Some(work()));
    (result.expect("the work was done"), heap)
}
