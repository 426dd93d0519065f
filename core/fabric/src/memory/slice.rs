//! A part of a region.

use super::{DeviceMemory, Fault, Kind, Region, copy_opaque, copy_streaming};
use std::{fmt, ptr::NonNull};

/// A part of a [`Region`], which it keeps alive, within bounds by construction; or memory that its
/// program keeps ([`Slice::raw`]).
///
/// ```
/// use petasos_fabric::Region;
///
/// let (from, to) = (Region::from_vec(b"abcdef".to_vec()), Region::zeroed(6));
/// let part = from.slice(2, 3).expect("within the region");
/// assert_eq!(part.copy_to(&to.whole()), 3);
/// assert_eq!(to.to_vec(), b"cde\0\0\0");
/// assert_eq!(part.part(1, 2).expect("within the part").to_vec(), b"de");
/// ```
#[derive(Clone)]
pub struct Slice {
    /// What keeps the memory; `None`: its program does.
    region: Option<Region>,
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory lives as long as the region that it holds, which is Send and Sync, or as long
// as `Slice::raw` was promised, for any thread; and it is accessed only through opaque copies and
// atomics, for which concurrent use from several threads is defined.
unsafe impl Send for Slice {}
// SAFETY: as above.
unsafe impl Sync for Slice {}

impl Slice {
    fn new(region: Region, offset: usize, len: usize) -> Option<Slice> {
        let end = offset.checked_add(len)?;
        let at = (end <= region.len()).then(|| region.locate(offset, len))?;
        Some(Slice { region: Some(region), at, len })
    }

    /// Memory that nothing here keeps: no region, no count, no allocation. Clones and parts of it
    /// are as cheap. It can be local memory of every [`Operation`](crate::Operation), and be
    /// [registered](crate::Endpoint::register); the program keeps the memory meanwhile.
    ///
    /// What it costs: libfabric and UCX are never given such memory, as not all of them let go of
    /// it in time when a peer is lost. Over them long data is copied once more, and a region of
    /// such memory is served by its owner's endpoint. For long data, and for memory that is used
    /// again and again, make a region ([`RegionBuilder`]), which tells by its owner when the last
    /// access has ended, also by a queue ([`Releases`]).
    ///
    /// It is not [mapped](crate::Operation::Map): a peer of this process would keep a view of it.
    ///
    /// ```
    /// use petasos_fabric::{Operation, Payload, Slice};
    /// use std::ptr::NonNull;
    ///
    /// let mut memory = [1u8, 2, 3, 4];
    /// let at = NonNull::new(memory.as_mut_ptr()).expect("not null");
    /// // SAFETY: the array outlives the slice, which is given to no operation.
    /// let slice = unsafe { Slice::raw(at, 4) };
    /// slice.write(1, &[9]);
    /// assert_eq!(slice.part(1, 2).expect("within").to_vec(), [9, 3]);
    /// assert!(slice.region().is_none());
    /// ```
    ///
    /// # Safety
    /// From `at` on, `len` bytes must be mapped, initialised and readable, by any thread, and
    /// writable if something of the following list writes there. They are a part of one
    /// allocation, no longer than `isize::MAX` bytes and not beyond the last address. No references
    /// to them may be used meanwhile. All of that has to hold until the last of these:
    ///
    /// * the last use by the program, of this slice, of a clone or of a part of it;
    /// * [`Event::Done`](crate::Event::Done) of each operation that was
    ///   [submitted](crate::Endpoint::submit) and accepted with it. For a `Send`, `SendTagged`
    ///   and `Put` at whatever level, `SendLong`, `Receive`, `PostReceive` and `Get`, and whatever
    ///   the result is: success, an error, that the peer is lost or stopped and was forgotten, or
    ///   that the operation was cancelled. From then on nothing reads or writes the memory, in this
    ///   process or another. An operation that was not accepted touches nothing;
    /// * [`Done::Deregistered`](crate::Done::Deregistered) of each region that was registered of
    ///   it. [`StillReached`](crate::OpErrorKind::StillReached), or any other error of the
    ///   operation, is not enough;
    /// * where a layer above the endpoint was given the slice: when that layer says that it does
    ///   not use it any more. One that does not say so is not to be given such memory.
    ///
    /// An endpoint that is dropped, or whose thread has ended or panicked, raises no events. So
    /// cancel first what is under way, deregister, and drive the endpoint until all of these events
    /// are there. If it is dropped before, the memory has to stay as it is for as long as this
    /// process and the peers run: nothing tells when the last access has ended. A process that is
    /// forked must not change or unmap it on the parent's behalf; its own copy is its own.
    ///
    /// [`RegionBuilder`]: crate::memory::RegionBuilder
    /// [`Releases`]: crate::memory::Releases
    #[must_use]
    pub unsafe fn raw(at: NonNull<u8>, len: usize) -> Slice {
        debug_assert!(len <= isize::MAX as usize && at.addr().checked_add(len).is_some());
        Slice { region: None, at, len }
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The region it is part of; `None` if it is [raw](Slice::raw).
    #[must_use]
    pub fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }

    /// Whether its program keeps the memory ([`Slice::raw`]). A transport touches such memory
    /// before it raises the completion, and never after, whatever the library below does.
    #[must_use]
    pub fn is_raw(&self) -> bool {
        self.region.is_none()
    }

    /// Whether it may be written. A raw slice counts as writable: its program sees to it that only
    /// such memory is written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.region.as_ref().is_none_or(Region::is_writable)
    }

    /// The value that keeps its region's foreign memory alive, if it is a `T`: see
    /// [`Region::backing`].
    #[must_use]
    pub fn backing<T: 'static>(&self) -> Option<&T> {
        self.region.as_ref()?.backing()
    }

    /// Where in its region it starts, in bytes; 0 if it is raw.
    #[must_use]
    pub fn offset(&self) -> usize {
        let base = self.region.as_ref().map(Region::base);
        base.map_or(0, |base| self.at.addr().get() - base.addr().get())
    }

    /// What keeps it, and how it is reached. A raw slice is of the host.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.region.as_ref().map_or(Kind::Host, Region::kind)
    }

    /// The device whose memory it is, if it is of one; see [`Slice::offset`].
    #[must_use]
    #[inline]
    pub fn device(&self) -> Option<&dyn DeviceMemory> {
        self.region.as_ref()?.device()
    }

    /// The parts of pieces that it is made of, in order, if its region is one of
    /// [several](Region::of_pieces).
    #[must_use]
    pub fn pieces(&self) -> Option<impl Iterator<Item = Slice>> {
        let pieces = self.region.as_ref()?.as_pieces()?;
        Some(pieces.parts(self.offset(), self.len))
    }

    /// Whether atomics can work on it: not on memory of a device.
    #[must_use]
    pub fn takes_atomics(&self) -> bool {
        match self.pieces() {
            Some(mut pieces) => pieces.all(|piece| piece.host_ptr().is_some()),
            None => self.host_ptr().is_some(),
        }
    }

    /// Where it starts in memory, if the processor can touch it; see [`Region::host_ptr`].
    #[must_use]
    #[inline]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.device().is_none().then_some(self.at)
    }

    /// Where it starts in memory; see [`Region::as_ptr`].
    ///
    /// # Panics
    /// If it is memory of a device.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.host_ptr().expect("no pointer to memory of a device").as_ptr()
    }

    /// Whether some byte is in both. Of memory of a device, and of the address space of the process,
    /// only slices of one region share any; what is mapped twice counts as two memories.
    #[must_use]
    pub fn overlaps(&self, other: &Slice) -> bool {
        if let Some(mut pieces) = self.pieces() {
            return pieces.any(|piece| piece.overlaps(other));
        }
        if let Some(mut pieces) = other.pieces() {
            return pieces.any(|piece| self.overlaps(&piece));
        }
        let same = match (self.device().is_some(), other.device().is_some()) {
            (false, false) => true,
            (true, true) => self.region.as_ref().zip(other.region.as_ref()).is_some_and(
                // Of one region offsets can be compared by addresses, whatever these mean.
                |(one, two)| one.downgrade().is(two),
            ),
            _ => false,
        };
        let (start, from) = (self.at.addr().get(), other.at.addr().get());
        // No slice ends beyond the last address.
        let meet = start < from + other.len && from < start + self.len;
        same && meet && self.len > 0 && other.len > 0
    }

    /// A part of this part; `None` if it is not within.
    #[must_use]
    pub fn part(&self, offset: usize, len: usize) -> Option<Slice> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| {
            let at = self.at.as_ptr().wrapping_add(offset);
            // SAFETY: `offset <= len` of memory whose end is no further than the last address.
            let at = unsafe { NonNull::new_unchecked(at) };
            Slice { region: self.region.clone(), at, len }
        })
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    /// If `offset + into.len()` is beyond the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        if let Some(device) = self.device() {
            return device.read(self.offset() + offset, into);
        }
        // SAFETY: the range lies within this slice, whose memory is there while `self` is, and is
        // the host's; `into` is exclusive and ordinary memory, so the ranges do not overlap, and
        // there are no references to the slice's memory.
        unsafe { copy_opaque(self.at.as_ptr().add(offset), into.as_mut_ptr(), into.len()) }
    }

    /// Appends a copy of `len` bytes, from `offset` on, to `out`.
    ///
    /// # Panics
    /// If `offset + len` is beyond the end.
    pub fn append_to(&self, offset: usize, len: usize, out: &mut Vec<u8>) {
        self.check(offset, len);
        if let Some(device) = self.device() {
            let end = out.len();
            out.resize(end + len, 0);
            return device.read(self.offset() + offset, &mut out[end..]);
        }
        out.reserve(len);
        // SAFETY: the range lies within this slice, whose memory is there while `self` is, and is
        // the host's; there is room for `len` bytes behind what `out` has, which is exclusive and
        // ordinary memory, so the ranges do not overlap, and which is initialised when it becomes
        // part of `out`. There are no references to the slice's memory.
        unsafe {
            copy_opaque(self.at.as_ptr().add(offset), out.as_mut_ptr().add(out.len()), len);
            out.set_len(out.len() + len);
        }
    }

    /// Copies bytes in, at `offset`.
    ///
    /// # Panics
    /// If `offset + from.len()` is beyond the end, or the region is read-only.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        assert!(self.is_writable(), "writing to a read-only region");
        if let Some(device) = self.device() {
            return device.write(self.offset() + offset, from);
        }
        // SAFETY: as in `read`, with the sides swapped; the memory is writable.
        unsafe { copy_opaque(from.as_ptr(), self.at.as_ptr().add(offset), from.len()) }
    }

    /// A copy of all of it.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.read(0, &mut out);
        out
    }

    /// Copies as much as fits from this slice to `to`, and says how much that was. The two may
    /// lie in one region, and overlap: then what arrives is unspecified.
    ///
    /// # Panics
    /// If `to` is read-only.
    pub fn copy_to(&self, to: &Slice) -> usize {
        self.copy_by(to, copy_opaque)
    }

    /// As [`copy_to`](Self::copy_to), where one of the two may be a part of the
    /// [address space](super::AddressSpace).
    ///
    /// # Errors
    /// [`Fault`] if there is no such memory: some may have been copied.
    ///
    /// # Panics
    /// If `to` is read-only.
    pub fn try_copy_to(&self, to: &Slice) -> Result<usize, Fault> {
        let len = self.len.min(to.len);
        match self.device().is_none() && to.device().is_none() {
            true => Ok(self.copy_to(to)),
            false => super::device::copy(self, to, len).map(|()| len),
        }
    }

    /// Copies bytes out, from `offset` on, where there may be no memory.
    ///
    /// # Errors
    /// [`Fault`] if it is a part of the [address space](super::AddressSpace) where none is.
    ///
    /// # Panics
    /// As [`Slice::read`].
    pub fn try_read(&self, offset: usize, into: &mut [u8]) -> Result<(), Fault> {
        self.check(offset, into.len());
        if let Some(device) = self.device() {
            return device.try_read(self.offset() + offset, into);
        }
        self.read(offset, into);
        Ok(())
    }

    /// Copies bytes in, at `offset`, where there may be no memory.
    ///
    /// # Errors
    /// [`Fault`] if it is a part of the [address space](super::AddressSpace) where none is, or none
    /// that may be written: some may have been.
    ///
    /// # Panics
    /// As [`Slice::write`].
    pub fn try_write(&self, offset: usize, from: &[u8]) -> Result<(), Fault> {
        self.check(offset, from.len());
        assert!(self.is_writable(), "writing to a read-only region");
        if let Some(device) = self.device() {
            return device.try_write(self.offset() + offset, from);
        }
        self.write(offset, from);
        Ok(())
    }

    /// As [`copy_to`](Self::copy_to), past the caches where the processor can do that: for a part
    /// of so much data that `to` would not stay in them anyway.
    ///
    /// # Panics
    /// If `to` is read-only.
    pub fn stream_to(&self, to: &Slice) -> usize {
        self.copy_by(to, copy_streaming)
    }

    /// Copies by `copy`, which asks for what [`copy_opaque`] asks for.
    fn copy_by(&self, to: &Slice, copy: unsafe fn(*const u8, *mut u8, usize)) -> usize {
        assert!(to.is_writable(), "writing to a read-only region");
        let len = self.len.min(to.len);
        let Some((src, dst)) = self.host_ptr().zip(to.host_ptr()) else {
            super::device::copy(self, to, len).expect("memory that is there");
            return len;
        };
        let (src, dst) = (src.as_ptr(), dst.as_ptr());
        if (src as usize).abs_diff(dst as usize) < len {
            to.write(0, &self.part(0, len).expect("not longer than itself").to_vec());
        } else {
            // SAFETY: both ranges lie in memory that is mapped while the slices live, the target is
            // writable, the distance shows that they do not overlap, and there are no references
            // to the memory of slices.
            unsafe { copy(src, dst, len) }
        }
        len
    }

    fn check(&self, offset: usize, len: usize) {
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(within, "{offset}+{len} is beyond the {} bytes of a slice", self.len);
    }
}

impl fmt::Debug for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.region {
            Some(region) => {
                write!(f, "Slice({} bytes from {} of {region:?})", self.len, self.offset())
            }
            None => write!(f, "Slice({} raw bytes at {:p})", self.len, self.at),
        }
    }
}

/// The parts of a region.
impl Region {
    /// All of it.
    #[must_use]
    pub fn whole(&self) -> Slice {
        Slice::new(self.clone(), 0, self.len()).expect("the whole is within bounds")
    }

    /// The part from `offset` of `len` bytes; `None` if that is not within the region.
    #[must_use]
    pub fn slice(&self, offset: usize, len: usize) -> Option<Slice> {
        Slice::new(self.clone(), offset, len)
    }

    /// A part of a region as a region of its own, to be read only: how a transport gives out
    /// memory of this process that was mapped for a peer. Holds the region it is part of, and is
    /// never exclusive. `None` for a [raw](Slice::raw) slice, which nothing could hold, and for
    /// memory of a device.
    #[must_use]
    pub fn view(part: &Slice) -> Option<Region> {
        let region = part.region().filter(|region| region.device().is_none())?;
        Some(region.view_of(part.offset(), part.len))
    }
}

impl From<Vec<u8>> for Slice {
    fn from(vec: Vec<u8>) -> Slice {
        Region::from_vec(vec).whole()
    }
}

impl From<Region> for Slice {
    fn from(region: Region) -> Slice {
        region.whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AtomicOp, AtomicType};

    #[test]
    fn copies_are_appended() {
        let region = Region::from_vec(vec![1, 2, 3, 4]);
        let mut out = vec![9];
        region.whole().append_to(1, 2, &mut out);
        region.slice(2, 2).unwrap().append_to(1, 1, &mut out);
        region.whole().append_to(4, 0, &mut out);
        assert_eq!(out, [9, 2, 3, 4]);
    }

    #[test]
    #[should_panic(expected = "2+3 is beyond the 4 bytes")]
    fn nothing_is_appended_from_beyond_the_end() {
        Region::zeroed(4).whole().append_to(2, 3, &mut Vec::new());
    }

    #[test]
    fn a_slice_is_three_words() {
        assert_eq!(size_of::<Slice>(), 3 * size_of::<usize>());
        assert_eq!(size_of::<Option<Slice>>(), size_of::<Slice>());
    }

    #[test]
    fn offsets_are_those_in_the_region() {
        let region = Region::from_vec((0..100).collect());
        let part = region.slice(10, 50).unwrap().part(5, 20).unwrap();
        assert_eq!((part.offset(), part.len(), part.to_vec()[0]), (15, 20, 15));
        assert_eq!(part.as_ptr().addr() - region.as_ptr().addr(), 15);
        let end = part.part(20, 0).unwrap();
        assert!(end.is_empty() && end.offset() == 35 && part.part(20, 1).is_none());
        assert!(!part.is_raw() && part.is_writable() && part.region().unwrap().len() == 100);
    }

    #[test]
    fn raw_memory_is_like_other_memory() {
        let mut memory = [0u64; 8];
        let at = NonNull::new(memory.as_mut_ptr().cast::<u8>()).unwrap();
        // SAFETY: the array outlives the slices, and is not used before their last use.
        let raw = unsafe { Slice::raw(at, 64) };
        raw.write(8, &7u64.to_le_bytes());
        let old = raw.atomic(8, AtomicOp::Sum, AtomicType::U64, &1u64.to_le_bytes(), &[]).unwrap();
        assert_eq!(old[..], 7u64.to_le_bytes());
        assert!(raw.atomic(60, AtomicOp::Sum, AtomicType::U64, &[1; 8], &[]).is_err());
        let region = Region::from_vec(vec![3; 16]);
        assert_eq!(region.whole().copy_to(&raw.part(16, 48).unwrap()), 16);
        // Within itself, and overlapping.
        assert_eq!(raw.part(0, 32).unwrap().copy_to(&raw.part(8, 32).unwrap()), 32);
        assert!(raw.is_raw() && raw.is_writable() && raw.region().is_none() && raw.offset() == 0);
        assert!(Region::view(&raw).is_none() && raw.backing::<()>().is_none());
        assert!(raw.part(60, 5).is_none() && raw.part(usize::MAX, 2).is_none());
        let beyond = std::panic::AssertUnwindSafe(|| raw.write(60, &[0; 5]));
        assert!(std::panic::catch_unwind(beyond).is_err());
        assert_eq!(memory[2], 8);
    }
}
