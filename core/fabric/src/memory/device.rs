//! Memory of a device, which the processor cannot touch.

use super::Slice;
use crate::Buffer;
use std::{os::fd::BorrowedFd, ptr::NonNull};

/// What keeps the memory of a region, and how it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// Memory of this process alone.
    Host,
    /// Memory that other processes may have mapped.
    Shared,
    /// Memory of a device ([`DeviceMemory`]): the processor has no pointer to it.
    Device,
    /// Several pieces of memory as one ([`Region::of_pieces`](crate::Region::of_pieces)): there is no
    /// one pointer to it.
    Pieces,
    /// All memory of this process by its addresses ([`AddressSpace`](super::AddressSpace)).
    AddressSpace,
}

/// There is no memory at an address, or none that may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no memory there, or none that may be written")]
pub struct Fault;

/// Memory of a device: a GPU's, say. The device's own engine copies; the processor never touches
/// it.
///
/// As a region ([`Region::of_device`](crate::Region::of_device)) it is local memory of every
/// operation, and is registered for reading and writing, on every transport: data goes by way of
/// bounce buffers. Atomics are not done there, and it is not mapped for peers; both are refused.
///
/// Several threads may copy at the same time. What copies of the same bytes that meet give is what
/// they give in [memory of the host](crate::memory). A copy is over, and seen by the device, when
/// the call returns. The calls are made on the thread that drives the endpoint, inside of
/// `progress`, so they should take no longer than the copy.
///
/// ```
/// use petasos_fabric::{Region, memory::{DeviceMemory, Kind}};
/// use std::{ptr::NonNull, sync::Mutex};
///
/// /// A device of which the memory is simulated.
/// struct Simulated(Mutex<Vec<u8>>);
///
/// impl DeviceMemory for Simulated {
///     fn len(&self) -> usize {
///         self.0.lock().expect("not poisoned").len()
///     }
///     fn address(&self) -> NonNull<u8> {
///         NonNull::dangling()
///     }
///     fn read(&self, offset: usize, into: &mut [u8]) {
///         into.copy_from_slice(&self.0.lock().expect("not poisoned")[offset..][..into.len()]);
///     }
///     fn write(&self, offset: usize, from: &[u8]) {
///         self.0.lock().expect("not poisoned")[offset..][..from.len()].copy_from_slice(from);
///     }
/// }
///
/// let region = Region::of_device(Box::new(Simulated(Mutex::new(vec![7; 100]))));
/// assert_eq!((region.kind(), region.host_ptr()), (Kind::Device, None));
/// let part = region.slice(10, 20).expect("within");
/// assert_eq!(part.copy_to(&Region::zeroed(20).whole()), 20);
/// ```
pub trait DeviceMemory: Send + Sync + 'static {
    /// Its length in bytes, which does not change: at most `isize::MAX`.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where it lies in the addresses of this process, or of the device: for libraries that know
    /// such memory. Nothing here reads or writes there. It does not change.
    fn address(&self) -> NonNull<u8>;

    /// Copies from the device, from `offset` on.
    ///
    /// # Panics
    /// If that is beyond the end, or the device has failed.
    fn read(&self, offset: usize, into: &mut [u8]);

    /// Copies to the device, to `offset`.
    ///
    /// # Panics
    /// If that is beyond the end, or the device has failed.
    fn write(&self, offset: usize, from: &[u8]);

    /// As `read`, where a peer may have chosen the address: what is not there is an error. For memory
    /// that has no holes it is `read`.
    ///
    /// # Errors
    /// [`Fault`] if some of it is not there.
    fn try_read(&self, offset: usize, into: &mut [u8]) -> Result<(), Fault> {
        self.read(offset, into);
        Ok(())
    }

    /// As `write`, likewise.
    ///
    /// # Errors
    /// [`Fault`] if some of it is not there, or may not be written. What lies before that may have
    /// been written.
    fn try_write(&self, offset: usize, from: &[u8]) -> Result<(), Fault> {
        self.write(offset, from);
        Ok(())
    }

    /// A descriptor of a dma-buf by which a NIC reaches the memory, and where in the dma-buf it
    /// begins; `None` if there is none. For programs with a NIC of their own: no transport of this
    /// project asks for it yet.
    fn dmabuf(&self) -> Option<(BorrowedFd<'_>, u64)> {
        None
    }
}

/// What is copied at once by way of the host.
const BOUNCE: usize = 64 << 10;

/// Copies between two slices of one length, of which one is of a device at least.
pub(super) fn copy(from: &Slice, to: &Slice, len: usize) -> Result<(), Fault> {
    let mut buffer = Buffer::scratch(len.min(BOUNCE));
    for at in (0..len).step_by(BOUNCE) {
        let piece = &mut buffer[..BOUNCE.min(len - at)];
        from.try_read(at, piece)?;
        to.try_write(at, piece)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AtomicOp, AtomicType, OpErrorKind, Region};
    use std::sync::Mutex;

    struct Simulated(Mutex<Vec<u8>>);

    impl DeviceMemory for Simulated {
        fn len(&self) -> usize {
            self.0.lock().unwrap().len()
        }
        fn address(&self) -> NonNull<u8> {
            NonNull::without_provenance(std::num::NonZero::new(4096).unwrap())
        }
        fn read(&self, offset: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0.lock().unwrap()[offset..][..into.len()]);
        }
        fn write(&self, offset: usize, from: &[u8]) {
            self.0.lock().unwrap()[offset..][..from.len()].copy_from_slice(from);
        }
    }

    fn device(len: usize) -> Region {
        Region::of_device(Box::new(Simulated(Mutex::new(vec![0; len]))))
    }

    #[test]
    fn copies_go_by_the_device() {
        let len = 2 * BOUNCE + 100;
        let (one, other) = (device(len), device(len));
        let bytes: Vec<u8> = (0..len).map(|at| (at / 7) as u8).collect();
        let host = Region::from_vec(bytes.clone()).whole();
        assert_eq!(host.copy_to(&one.whole()), len);
        assert_eq!(one.whole().copy_to(&other.whole()), len);
        let back = Region::zeroed(len).whole();
        assert_eq!(other.whole().stream_to(&back), len);
        assert!(back.to_vec() == bytes && other.to_vec() == bytes);
        let part = one.slice(BOUNCE - 3, 10).unwrap().part(2, 5).unwrap();
        assert_eq!((part.offset(), part.to_vec()), (BOUNCE - 1, bytes[BOUNCE - 1..][..5].to_vec()));
        let mut appended = vec![1];
        part.append_to(1, 3, &mut appended);
        assert_eq!(appended, [&[1], &bytes[BOUNCE..][..3]].concat());
        part.write(1, &[9; 3]);
        one.write(BOUNCE, &[8]);
        let mut seen = [0; 3];
        one.read(BOUNCE, &mut seen);
        assert_eq!(seen, [8, 9, 9]);
    }

    #[test]
    fn the_processor_gets_no_pointer() {
        let region = device(64);
        let part = region.slice(8, 16).unwrap();
        assert_eq!((region.kind(), part.kind()), (Kind::Device, Kind::Device));
        assert!(region.host_ptr().is_none() && part.host_ptr().is_none());
        for wrong in [|| _ = device(8).as_ptr(), || _ = device(8).whole().as_ptr()] {
            assert!(std::panic::catch_unwind(wrong).is_err());
        }
        assert!(Region::view(&part).is_none());
        let atomic = part.atomic(0, AtomicOp::Sum, AtomicType::U64, &[1; 8], &[]);
        assert!(matches!(atomic, Err(OpErrorKind::Unsupported(_))));
        assert!(part.device().is_some() && Region::zeroed(1).whole().device().is_none());
        drop(part);
        assert!(region.into_exclusive().is_err());
    }

    #[test]
    fn beyond_the_end_is_beyond_the_end() {
        let wrong = || device(8).slice(4, 4).unwrap().write(2, &[0; 3]);
        assert!(std::panic::catch_unwind(wrong).is_err());
        assert!(device(8).slice(4, 5).is_none());
    }
}
