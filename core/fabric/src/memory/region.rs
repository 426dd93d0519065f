//! A stretch of memory with a count of its holders.

use super::{
    Kind, Slice,
    address_space::ByKernel,
    copy_opaque,
    device::DeviceMemory,
    pages::{LARGE, PAGE, Pages},
    pieces::Pieces,
    releases::{Owner, Queue, Releases},
};
use crate::{AllocError, Buffer};
use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    fmt,
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    ptr::NonNull,
    sync::{Arc, Weak},
};

/// Memory that can be lent to the network: owned, counted, and reached only by copies.
///
/// Cloning is cheap and makes another holder. The memory is freed when the last holder is
/// dropped; operations and registrations hold what they work on.
///
/// ```
/// use petasos_fabric::Region;
///
/// let region = Region::from_vec(vec![1, 2, 3, 4]);
/// region.write(1, &[9]);
/// // A part holds the region as well.
/// let part = region.slice(1, 2).expect("within the region");
/// assert_eq!(part.to_vec(), [9, 3]);
/// assert!(region.slice(3, 2).is_none());
/// drop(part);
/// // The only holder has plain memory again, without a copy.
/// let plain = region.into_exclusive().expect("nothing else holds it").into_vec();
/// assert_eq!(plain, [1, 9, 3, 4]);
/// ```
#[derive(Clone)]
pub struct Region(Arc<Inner>);

struct Inner {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    /// Whether another process may map this memory: then it is never exclusive.
    shared: bool,
    backing: Backing,
}

enum Backing {
    /// Allocated here, page-aligned.
    Heap(Layout),
    /// The same, from the system.
    Pages(#[expect(dead_code, reason = "dropped with the region")] Pages),
    /// The parts of a `Vec<u8>`: its capacity.
    Vec(usize),
    /// The parts of a [`Buffer`]'s vector: its capacity, and its length, which is no less than the
    /// region's.
    Buffer { capacity: usize, filled: usize },
    /// Of another owner, kept alive by this value.
    Foreign(Owner),
    /// The same; at the end the owner, which is always there before, goes to a queue.
    Lent { owner: Option<Owner>, queue: Arc<Queue> },
    /// Memory that is reached by copies alone.
    Copied(Copied),
}

/// What copies memory that the processor does not touch at `base`. One variant of [`Backing`], as
/// each copy of any memory asks whether it is this.
enum Copied {
    /// `base` is an address that is not accessed.
    Device(Box<dyn DeviceMemory>),
    /// `base` is no address.
    Pieces(Pieces),
    /// All there is: `base` is no address.
    AddressSpace(ByKernel),
}

impl Copied {
    #[cold]
    fn device(&self) -> &dyn DeviceMemory {
        match self {
            Copied::Device(device) => &**device,
            Copied::Pieces(pieces) => pieces,
            Copied::AddressSpace(space) => space,
        }
    }
}

// SAFETY: the memory is owned by this value (or kept alive by the owner of foreign memory, which is
// itself Send and Sync, by the promise of `RegionBuilder::build`, or of a device or of slices,
// likewise), and it is accessed only through opaque copies, the device's copies and atomics, for
// which concurrent use from several threads is defined.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Region {
    /// `len` bytes of zeroes, aligned to a page. Much of it comes in huge pages, where the system
    /// has them, and costs nothing before it is touched.
    ///
    /// # Panics
    /// If `len` is larger than `isize::MAX`. Aborts when there is no memory, as `Vec` does.
    #[must_use]
    pub fn zeroed(len: usize) -> Region {
        let layout = Layout::from_size_align(len.max(1), PAGE).expect("a length that can exist");
        Region::try_zeroed(len).unwrap_or_else(|_| handle_alloc_error(layout))
    }

    /// The same, for a length that a peer chose, or that may be more than there is.
    ///
    /// # Errors
    /// [`AllocError::BadLength`] for more than `isize::MAX` bytes, [`AllocError::System`] when there
    /// is no such memory.
    ///
    /// ```
    /// use petasos_fabric::Region;
    ///
    /// assert_eq!(Region::try_zeroed(100)?.len(), 100);
    /// assert!(Region::try_zeroed(isize::MAX as usize / 2).is_err());
    /// # Ok::<(), petasos_fabric::AllocError>(())
    /// ```
    pub fn try_zeroed(len: usize) -> Result<Region, AllocError> {
        let layout = Layout::from_size_align(len.max(1), PAGE);
        let layout = layout.map_err(|_| AllocError::BadLength(len))?;
        let none = || AllocError::System { len, reason: "out of memory".to_owned() };
        // Under Miri all of it is on the heap: it knows no advice to the system, nor parts of
        // mappings.
        let (base, backing) = if len >= LARGE && !cfg!(miri) {
            let pages = Pages::map(len).ok_or_else(none)?;
            (pages.base(), Backing::Pages(pages))
        } else {
            // SAFETY: the layout's size is not zero.
            let base = NonNull::new(unsafe { alloc_zeroed(layout) });
            (base.ok_or_else(none)?, Backing::Heap(layout))
        };
        Ok(Region(Arc::new(Inner { base, len, writable: true, shared: false, backing })))
    }

    /// The memory of a vector, without a copy.
    #[must_use]
    pub fn from_vec(vec: Vec<u8>) -> Region {
        let mut vec = ManuallyDrop::new(vec);
        let base = NonNull::new(vec.as_mut_ptr()).expect("a vector's pointer is never null");
        let (len, capacity) = (vec.len(), vec.capacity());
        let backing = Backing::Vec(capacity);
        Region(Arc::new(Inner { base, len, writable: true, shared: false, backing }))
    }

    /// The memory of a buffer, which is used again when the region is let go.
    #[must_use]
    pub fn from_buffer(buffer: Buffer) -> Region {
        let (bytes, len) = buffer.into_parts();
        let mut bytes = ManuallyDrop::new(bytes);
        let base = NonNull::new(bytes.as_mut_ptr()).expect("a vector's pointer is never null");
        let backing = Backing::Buffer { capacity: bytes.capacity(), filled: bytes.len() };
        Region(Arc::new(Inner { base, len, writable: true, shared: false, backing }))
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Whether it may be written.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.0.writable
    }

    /// What keeps it, and how it is reached.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.0.backing {
            Backing::Copied(Copied::Device(_)) => Kind::Device,
            Backing::Copied(Copied::Pieces(_)) => Kind::Pieces,
            Backing::Copied(Copied::AddressSpace(_)) => Kind::AddressSpace,
            _ if self.0.shared => Kind::Shared,
            _ => Kind::Host,
        }
    }

    /// The device whose memory it is, if it is of one. That of several pieces copies to and from
    /// them.
    #[must_use]
    #[inline]
    pub fn device(&self) -> Option<&dyn DeviceMemory> {
        match &self.0.backing {
            Backing::Copied(copied) => Some(copied.device()),
            _ => None,
        }
    }

    /// All memory of this process.
    pub(super) fn of_address_space() -> Region {
        let (base, len, backing) =
            (ByKernel.address(), ByKernel.len(), Backing::Copied(Copied::AddressSpace(ByKernel)));
        Region(Arc::new(Inner { base, len, writable: true, shared: true, backing }))
    }

    /// The pieces that it is made of, if it is.
    pub(super) fn as_pieces(&self) -> Option<&Pieces> {
        match &self.0.backing {
            Backing::Copied(Copied::Pieces(pieces)) => Some(pieces),
            _ => None,
        }
    }

    /// Pieces of memory as one region: the first byte of each follows the last byte of the one
    /// before. There may be any number, of any lengths; they may be of one region, and overlap.
    /// Registered, they are reached by one key, with one space of offsets, on every transport; the
    /// owner's endpoint serves all accesses. It is local memory of every operation, too.
    ///
    /// It may be written if all pieces may be. Atomics work on elements that lie within one piece,
    /// aligned there; others end with `Misaligned`. It is never exclusive, and not mapped for peers.
    /// A piece is held until the last holder of this region lets go: [raw](Slice::raw) ones have to
    /// stay for as long. Each access costs a search for its first piece; what is in a few pieces is
    /// written straight to them, the rest by way of a buffer.
    ///
    /// ```
    /// use petasos_fabric::Region;
    ///
    /// let rows = Region::from_vec(b"abcdefghijkl".to_vec());
    /// // The first two columns of three rows of four.
    /// let columns = Region::of_pieces((0..3).filter_map(|row| rows.slice(4 * row, 2)));
    /// assert_eq!(columns.to_vec(), b"abefij");
    /// columns.write(1, b"BEF");
    /// assert_eq!(rows.to_vec(), b"aBcdEFghijkl");
    /// ```
    ///
    /// # Panics
    /// If they are longer than `isize::MAX` together.
    #[must_use]
    pub fn of_pieces(pieces: impl IntoIterator<Item = Slice>) -> Region {
        let pieces = Pieces::new(pieces);
        let (base, len, writable) = (pieces.address(), pieces.len(), pieces.are_writable());
        let backing = Backing::Copied(Copied::Pieces(pieces));
        Region(Arc::new(Inner { base, len, writable, shared: true, backing }))
    }

    /// Where it starts; `None` if the processor cannot touch it. Valid while any holder lives;
    /// reading and writing through it is for transports, under the rules of [`copy_opaque`].
    #[must_use]
    pub fn host_ptr(&self) -> Option<NonNull<u8>> {
        self.device().is_none().then_some(self.0.base)
    }

    /// The same for memory that the processor can touch.
    ///
    /// # Panics
    /// If it is memory of a device.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.host_ptr().expect("no pointer to memory of a device").as_ptr()
    }

    /// Where it starts, whether or not that can be accessed.
    pub(super) fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    /// Memory of a device, which is dropped when the last holder lets go. It is never exclusive.
    ///
    /// # Panics
    /// If there can be no such memory: it is longer than `isize::MAX` bytes, or goes beyond the
    /// last address.
    #[must_use]
    pub fn of_device(memory: Box<dyn DeviceMemory>) -> Region {
        let (base, len) = (memory.address(), memory.len());
        let exists = len <= isize::MAX as usize && base.addr().checked_add(len).is_some();
        assert!(exists, "no memory has {len} bytes from {base:p} on");
        // As if it were shared: it is never exclusive.
        let backing = Backing::Copied(Copied::Device(memory));
        Region(Arc::new(Inner { base, len, writable: true, shared: true, backing }))
    }

    /// The value that keeps foreign memory alive, if it is a `T`: how a transport recognises
    /// memory of its own.
    #[must_use]
    pub fn backing<T: 'static>(&self) -> Option<&T> {
        match &self.0.backing {
            Backing::Foreign(owner) | Backing::Lent { owner: Some(owner), .. } => {
                owner.downcast_ref()
            }
            _ => None,
        }
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    /// If `offset + into.len()` is beyond the end.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let from = self.locate(offset, into.len()).as_ptr();
        if let Some(device) = self.device() {
            return device.read(offset, into);
        }
        // SAFETY: `locate` checked that the range lies in this region, which is mapped while `self`
        // lives; `into` is exclusive and ordinary memory, so the ranges do not overlap, and there
        // are no references into a region's memory.
        unsafe { copy_opaque(from, into.as_mut_ptr(), into.len()) }
    }

    /// Copies bytes in, at `offset`.
    ///
    /// # Panics
    /// If `offset + from.len()` is beyond the end, or the region is read-only.
    pub fn write(&self, offset: usize, from: &[u8]) {
        assert!(self.0.writable, "writing to a read-only region");
        let to = self.locate(offset, from.len()).as_ptr();
        if let Some(device) = self.device() {
            return device.write(offset, from);
        }
        // SAFETY: as in `read`, with the sides swapped; the region is writable.
        unsafe { copy_opaque(from.as_ptr(), to, from.len()) }
    }

    /// A copy of all of it.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len()];
        self.read(0, &mut out);
        out
    }

    /// Whether this is the only holder.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    /// The memory for oneself, as slices: possible when this is the only holder and no other
    /// process can map it. Else the region comes back.
    ///
    /// # Errors
    /// The region itself, if there are other holders, or another process can map it.
    pub fn into_exclusive(self) -> Result<Exclusive, Region> {
        if self.0.shared {
            return Err(self);
        }
        Arc::try_unwrap(self.0).map(Exclusive).map_err(Region)
    }

    /// A handle that does not hold the memory.
    #[must_use]
    pub fn downgrade(&self) -> WeakRegion {
        WeakRegion(Arc::downgrade(&self.0))
    }

    /// So many bytes from `offset` on as a region of its own, to be read only.
    ///
    /// # Panics
    /// If that is beyond the end.
    pub(super) fn view_of(&self, offset: usize, len: usize) -> Region {
        Region(Arc::new(Inner {
            base: self.locate(offset, len),
            len,
            writable: false,
            shared: true,
            backing: Backing::Foreign(Box::new(self.clone())),
        }))
    }

    /// Where these bytes start.
    ///
    /// # Panics
    /// If that is beyond the end.
    pub(super) fn locate(&self, offset: usize, len: usize) -> NonNull<u8> {
        let end = offset.checked_add(len).filter(|end| *end <= self.0.len);
        assert!(end.is_some(), "{offset}+{len} is beyond the {} bytes of a region", self.0.len);
        let at = self.0.base.as_ptr().wrapping_add(offset);
        // SAFETY: `offset <= len` of the region, whose end is no further than the last address.
        unsafe { NonNull::new_unchecked(at) }
    }
}

impl From<Vec<u8>> for Region {
    fn from(vec: Vec<u8>) -> Region {
        Region::from_vec(vec)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes at {:p})", self.0.len, self.0.base)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        match &mut self.backing {
            // SAFETY: allocated with this very layout in `zeroed`, freed once.
            Backing::Heap(layout) => unsafe { dealloc(self.base.as_ptr(), *layout) },
            // SAFETY: the parts of a vector that `from_vec` took and forgot.
            Backing::Vec(capacity) => unsafe {
                drop(Vec::from_raw_parts(self.base.as_ptr(), self.len, *capacity));
            },
            Backing::Buffer { capacity, filled } => {
                // SAFETY: the parts of the vector of a buffer that `from_buffer` took and forgot.
                let bytes = unsafe { Vec::from_raw_parts(self.base.as_ptr(), *filled, *capacity) };
                drop(Buffer::from_parts(bytes, self.len));
            }
            Backing::Lent { owner, queue } => owner.take().into_iter().for_each(|o| queue.put(o)),
            Backing::Pages(_) | Backing::Foreign(_) | Backing::Copied(_) => {}
        }
    }
}

/// Knows a region without holding it.
#[derive(Clone)]
pub struct WeakRegion(Weak<Inner>);

impl WeakRegion {
    /// The region, if it still has a holder.
    #[must_use]
    pub fn upgrade(&self) -> Option<Region> {
        self.0.upgrade().map(Region)
    }

    /// Whether this is that region, and not one that lies in the same place.
    #[must_use]
    pub fn is(&self, region: &Region) -> bool {
        std::ptr::eq(self.0.as_ptr(), Arc::as_ptr(&region.0))
    }
}

impl fmt::Debug for WeakRegion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WeakRegion")
    }
}

/// A region without other holders: plain memory again.
pub struct Exclusive(Inner);

impl Exclusive {
    /// Back to a region, to be lent again.
    #[must_use]
    pub fn into_region(self) -> Region {
        Region(Arc::new(self.0))
    }

    /// The memory as a vector: without a copy if it came from one.
    #[must_use]
    pub fn into_vec(self) -> Vec<u8> {
        let Backing::Vec(capacity) = self.0.backing else {
            return self.to_vec();
        };
        let inner = ManuallyDrop::new(self.0);
        // SAFETY: the parts of a vector that `from_vec` took; `ManuallyDrop` keeps `Inner` from
        // freeing them, and `Backing::Vec` owns nothing else.
        unsafe { Vec::from_raw_parts(inner.base.as_ptr(), inner.len, capacity) }
    }

    /// The memory as a buffer: without a copy if it came from one, or from a vector.
    #[must_use]
    pub fn into_buffer(self) -> Buffer {
        let Backing::Buffer { capacity, filled } = self.0.backing else {
            return Buffer::from(self.into_vec());
        };
        let inner = ManuallyDrop::new(self.0);
        // SAFETY: as in `into_vec`, with the parts that `from_buffer` took.
        let bytes = unsafe { Vec::from_raw_parts(inner.base.as_ptr(), filled, capacity) };
        Buffer::from_parts(bytes, inner.len)
    }
}

impl Deref for Exclusive {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `base` and `len` describe initialised memory that lives as long as `self`;
        // `into_exclusive` made sure that there is no other holder, in this process or another.
        unsafe { std::slice::from_raw_parts(self.0.base.as_ptr(), self.0.len) }
    }
}

impl DerefMut for Exclusive {
    /// # Panics
    /// If the region is read-only.
    fn deref_mut(&mut self) -> &mut [u8] {
        assert!(self.0.writable, "writing to a read-only region");
        // SAFETY: as in `deref`, and writable.
        unsafe { std::slice::from_raw_parts_mut(self.0.base.as_ptr(), self.0.len) }
    }
}

impl fmt::Debug for Exclusive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Exclusive({} bytes)", self.0.len)
    }
}

/// Makes a region of memory that another owner supplies: a mapping, a guest's memory.
pub struct RegionBuilder {
    base: NonNull<u8>,
    len: usize,
    writable: bool,
    shared: bool,
    releases: Option<Arc<Queue>>,
}

impl RegionBuilder {
    /// Memory of `len` bytes from `base` on: writable, and shared with other processes, until
    /// said otherwise.
    #[must_use]
    pub fn new(base: NonNull<u8>, len: usize) -> RegionBuilder {
        RegionBuilder { base, len, writable: true, shared: true, releases: None }
    }

    /// The memory may only be read.
    #[must_use]
    pub fn read_only(mut self) -> RegionBuilder {
        self.writable = false;
        self
    }

    /// No other process can map the memory, and all of it is initialised: it may become
    /// [`Exclusive`].
    #[must_use]
    pub fn private(mut self) -> RegionBuilder {
        self.shared = false;
        self
    }

    /// The owner goes to this queue when the last holder lets go, rather than being dropped there:
    /// see [`Releases`].
    #[must_use]
    pub fn release_to(mut self, releases: &Releases) -> RegionBuilder {
        self.releases = Some(releases.queue());
        self
    }

    /// Makes the region; `owner` is dropped when the last holder lets go, and frees the memory:
    /// there, on whatever thread that is and maybe inside of `progress`, unless
    /// [`RegionBuilder::release_to`] was said. An owner that is dropped there must not panic: what
    /// the endpoint was at is left half done, and completions may be missing.
    ///
    /// # Safety
    /// From `base` on, `len` bytes must be mapped and initialised, as memory that the system mapped
    /// is, and readable, and writable unless `read_only` was said, from now until `owner` is
    /// dropped, by any thread. They are one allocation, no longer than `isize::MAX` bytes and not
    /// beyond the last address, for which `base` is good wherever `owner` is moved: it does not
    /// come from a `Box` or a `&mut` that is moved with it. No references to the memory may be used
    /// while the region lives. If `private` was said, no other process can reach the memory.
    ///
    /// # Panics
    /// If there can be no such memory: it is longer than `isize::MAX` bytes, or goes beyond the
    /// last address.
    #[must_use]
    pub unsafe fn build(self, owner: Owner) -> Region {
        let RegionBuilder { base, len, writable, shared, releases } = self;
        let exists = len <= isize::MAX as usize && base.addr().checked_add(len).is_some();
        assert!(exists, "no memory has {len} bytes from {base:p} on");
        let backing = match releases {
            None => Backing::Foreign(owner),
            Some(queue) => {
                queue.lend();
                Backing::Lent { owner: Some(owner), queue }
            }
        };
        Region(Arc::new(Inner { base, len, writable, shared, backing }))
    }
}

impl fmt::Debug for RegionBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RegionBuilder({} bytes at {:p})", self.len, self.base)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_goes_in_and_comes_out_without_a_copy() {
        let vec = vec![1, 2, 3];
        let at = vec.as_ptr();
        let region = Region::from_vec(vec);
        let holder = region.whole();
        let region = region.into_exclusive().unwrap_err();
        drop(holder);
        let mut exclusive = region.into_exclusive().unwrap();
        exclusive[0] = 9;
        let vec = exclusive.into_vec();
        assert_eq!((vec.as_ptr(), &vec[..]), (at, &[9, 2, 3][..]));
    }

    #[test]
    fn shared_memory_is_never_exclusive() {
        let mut memory = vec![0u8; 8];
        let base = NonNull::new(memory.as_mut_ptr()).unwrap();
        // SAFETY: the vector, which may be moved, is kept alive as the owner and not touched
        // otherwise.
        let region = unsafe { RegionBuilder::new(base, 8).build(Box::new(memory)) };
        assert!(region.backing::<Vec<u8>>().is_some());
        region.write(3, &[9]);
        assert_eq!(region.to_vec(), [0, 0, 0, 9, 0, 0, 0, 0]);
        assert!(region.into_exclusive().is_err());
    }

    #[test]
    fn memory_that_cannot_exist_is_no_region() {
        let built = |at: usize, len: usize| {
            let base = NonNull::new(std::ptr::without_provenance_mut(at)).unwrap();
            // SAFETY: nothing of it is ever read or written: if there is a region it is let go at
            // once.
            let build = || unsafe { RegionBuilder::new(base, len).build(Box::new(())) };
            std::panic::catch_unwind(build).is_ok()
        };
        assert!(built(4096, 0) && built(4096, 4096) && built(usize::MAX - 4095, 4095));
        assert!(!built(1, isize::MAX as usize + 1), "longer than anything can be");
        assert!(!built(usize::MAX - 4095, 8192), "beyond the end of all addresses");
    }

    #[test]
    fn a_view_reads_its_part_and_holds_the_whole() {
        let region = Region::from_vec(vec![1, 2, 3, 4]);
        let view = Region::view(&region.slice(1, 2).unwrap()).unwrap();
        region.write(2, &[9]);
        assert_eq!(view.to_vec(), [2, 9]);
        assert!(!view.is_writable() && !region.is_unique());
        assert!(view.into_exclusive().is_err());
        assert!(region.is_unique());
    }

    #[test]
    fn copies_are_bounded() {
        let region = Region::zeroed(10);
        region.write(7, &[1, 2, 3]);
        let mut out = [0; 4];
        region.read(6, &mut out);
        assert_eq!(out, [0, 1, 2, 3]);
        assert!(region.slice(8, 3).is_none() && region.slice(usize::MAX, 2).is_none());
        let beyond = std::panic::AssertUnwindSafe(|| region.read(8, &mut [0; 3]));
        assert!(std::panic::catch_unwind(beyond).is_err());
    }

    #[test]
    fn a_weak_handle_holds_nothing() {
        let region = Region::zeroed(10);
        let weak = region.downgrade();
        assert!(weak.is(&region) && !weak.is(&Region::zeroed(10)));
        let again = weak.upgrade().expect("it is held");
        let region = region.into_exclusive().expect_err("two hold it");
        drop(again);
        assert!(region.is_unique());
        let region = region.into_exclusive().expect("a weak handle does not count").into_region();
        assert!(weak.upgrade().is_none() && !weak.is(&region));
    }
}
