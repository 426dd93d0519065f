//! Memory that is a program's own, as C's or Python's is: lent raw, or with an owner; and a
//! device's, which the processor cannot touch.

#![allow(unsafe_code)]

use petasos_fabric::{
    Region, Slice,
    memory::{DeviceMemory, RegionBuilder, Releases},
};
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect};
use std::{
    ptr::{self, NonNull},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

/// So many bytes at a multiple of 8, within memory of their own.
pub(crate) fn apart(len: usize) -> Slice {
    Region::zeroed(len + 16).slice(8, len).expect("within")
}

/// What memory is filled with that nothing may touch any more.
pub(crate) const OVER: u8 = 0x55;

/// Pages that only a test keeps. The addresses stay theirs for the life of the process, so that an
/// access that comes too late finds nothing else there.
#[derive(Debug)]
pub(crate) struct Pages {
    base: NonNull<u8>,
    mapped: usize,
    at: usize,
    len: usize,
}

// SAFETY: the pages are this value's, and are reached by opaque copies alone.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Memory with these bytes, at a multiple of 8, before a page that cannot be touched.
    pub(crate) fn new(bytes: &[u8]) -> Pages {
        let page = rustix::param::page_size();
        let (len, room) = (bytes.len(), bytes.len().next_multiple_of(page).max(page));
        let mapped = room + page;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: the system chooses where, so that nothing of this process is replaced.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), mapped, access, flags) };
        let base = NonNull::new(base.expect("memory is mapped").cast::<u8>()).expect("not null");
        // SAFETY: the last page of what was mapped just now, of which nothing was lent.
        unsafe { mprotect(base.as_ptr().add(room).cast(), page, MprotectFlags::empty()) }
            .expect("memory is protected");
        let pages = Pages { base, mapped, at: (room - len) & !7, len };
        pages.slice().write(0, bytes);
        pages
    }

    fn start(&self) -> NonNull<u8> {
        // SAFETY: it lies within the mapping.
        unsafe { self.base.add(self.at) }
    }

    /// The memory, which nothing holds.
    pub(crate) fn slice(&self) -> Slice {
        // SAFETY: so many bytes lie there before the last page, mapped and zeroed or written. They
        // stay mapped for the life of the process. An access after the end, which is what the
        // tests look for, faults or finds a pattern that nothing else relies on.
        unsafe { Slice::raw(self.start(), self.len) }
    }

    /// Takes the memory back, as a program does at once that frees it: what lies there, and the
    /// memory, which nothing may touch from now on. With `guarded`, the process ends if it does;
    /// otherwise [`Over::check`] sees what the kernel, a device or a peer writes.
    pub(crate) fn end(self, guarded: bool) -> (Vec<u8>, Over) {
        let content = self.slice().to_vec();
        match guarded {
            true => drop(self),
            false => {
                self.slice().write(0, &vec![OVER; self.len]);
                return (content, Over(Some(self)));
            }
        }
        (content, Over(None))
    }

    /// The memory as a region, which is its only holder.
    pub(crate) fn keep(self) -> Region {
        let builder = RegionBuilder::new(self.start(), self.len);
        // SAFETY: the pages are mapped and initialised until they, the owner, are dropped.
        unsafe { builder.build(Box::new(self)) }
    }

    /// The memory as a region, whose owner goes to this queue, and may be dropped only while the
    /// flag is set.
    pub(crate) fn lend(self, releases: &Releases, may_drop: &Arc<AtomicBool>) -> Region {
        let builder = RegionBuilder::new(self.start(), self.len).release_to(releases);
        let owner = Owner { pages: self, may_drop: may_drop.clone() };
        // SAFETY: the pages are mapped and initialised, and touched by nothing else until the owner
        // is dropped.
        unsafe { builder.build(Box::new(owner)) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        let (at, len) = (self.base.as_ptr().cast(), self.mapped);
        // SAFETY: they are this value's own. Slices of them may exist, and must not be used.
        unsafe {
            // What they held goes back to the system.
            let _ = madvise(at, len, Advice::LinuxDontNeed);
            mprotect(at, len, MprotectFlags::empty()).expect("memory is protected");
        }
    }
}

/// A part of a region that [`Pages::keep`] made, without a hold of it.
pub(crate) fn raw(part: &Slice) -> Slice {
    assert!(part.backing::<Pages>().is_some(), "pages stay mapped");
    let at = NonNull::new(part.as_ptr()).expect("not null");
    // SAFETY: as for `Pages::slice`.
    unsafe { Slice::raw(at, part.len()) }
}

/// Memory that was taken back.
#[derive(Debug)]
pub(crate) struct Over(Option<Pages>);

impl Over {
    /// Whether nothing has written to it, as far as that is watched.
    pub(crate) fn is_untouched(&self) -> bool {
        let pages = self.0.as_ref();
        pages.is_none_or(|pages| crate::world::all_are(&pages.slice().to_vec(), OVER))
    }
}

/// The owner of pages that were lent.
struct Owner {
    #[expect(dead_code, reason = "freed with it")]
    pages: Pages,
    may_drop: Arc<AtomicBool>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        assert!(self.may_drop.load(SeqCst), "an owner is dropped elsewhere than in its queue");
    }
}

/// Memory of a simulated device: its addresses are pages that cannot be touched, and what lies
/// there is elsewhere.
pub(crate) struct Device {
    address: NonNull<u8>,
    content: Mutex<Vec<u8>>,
    copied: Arc<Copied>,
}

/// How many bytes the engine of a device has copied.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    read: AtomicU64,
    written: AtomicU64,
}

impl Copied {
    pub(crate) fn read(&self) -> u64 {
        self.read.load(SeqCst)
    }

    pub(crate) fn written(&self) -> u64 {
        self.written.load(SeqCst)
    }
}

// SAFETY: the address is only told, and nothing is done with it.
unsafe impl Send for Device {}
// SAFETY: as above.
unsafe impl Sync for Device {}

impl Device {
    /// Memory with these bytes, and what is copied from now on.
    pub(crate) fn new(bytes: &[u8]) -> (Device, Arc<Copied>) {
        let (len, copied) = (bytes.len().max(1), Arc::<Copied>::default());
        // SAFETY: the system chooses where, so that nothing of this process is replaced. They stay,
        // so that an access that comes too late finds nothing else there.
        let at =
            unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE) };
        let address = NonNull::new(at.expect("addresses").cast::<u8>()).expect("not null");
        let content = Mutex::new(bytes.to_vec());
        (Device { address, content, copied: copied.clone() }, copied)
    }
}

impl DeviceMemory for Device {
    fn len(&self) -> usize {
        self.content.lock().expect("no copy panics").len()
    }

    fn address(&self) -> NonNull<u8> {
        self.address
    }

    fn read(&self, offset: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.content.lock().expect("no copy panics")[offset..][..into.len()]);
        self.copied.read.fetch_add(into.len() as u64, SeqCst);
    }

    fn write(&self, offset: usize, from: &[u8]) {
        let mut content = self.content.lock().expect("no copy panics");
        content[offset..][..from.len()].copy_from_slice(from);
        self.copied.written.fetch_add(from.len() as u64, SeqCst);
    }
}

/// A few pages whose protection is changed while peers reach for them by their addresses.
pub(crate) struct Window {
    base: NonNull<u8>,
    pages: usize,
}

// SAFETY: the pages are reached by the system alone, and by opaque copies.
unsafe impl Send for Window {}
// SAFETY: as above.
unsafe impl Sync for Window {}

/// What may be done with pages of a [`Window`].
#[derive(Clone, Copy)]
pub(crate) enum Allowed {
    Nothing,
    Reading,
    Everything,
}

impl Window {
    /// Pages of zeroes.
    pub(crate) fn new(pages: usize) -> Window {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        let len = pages * rustix::param::page_size();
        // SAFETY: the system chooses where, so that nothing of this process is replaced.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), len, access, flags) };
        let base = NonNull::new(base.expect("memory is mapped").cast::<u8>()).expect("not null");
        Window { base, pages }
    }

    /// The address of a page.
    pub(crate) fn at(&self, page: usize) -> u64 {
        (self.base.addr().get() + page * rustix::param::page_size()) as u64
    }

    /// Says what may be done with a page from now on.
    pub(crate) fn allow(&self, page: usize, allowed: Allowed) {
        assert!(page < self.pages);
        let flags = match allowed {
            Allowed::Nothing => MprotectFlags::empty(),
            Allowed::Reading => MprotectFlags::READ,
            Allowed::Everything => MprotectFlags::READ | MprotectFlags::WRITE,
        };
        let len = rustix::param::page_size();
        // SAFETY: a page of the mapping, to which there are no references.
        unsafe { mprotect(self.base.as_ptr().add(page * len).cast(), len, flags) }
            .expect("memory is protected");
    }

    /// Takes a page out of the address space, and brings it back, of zeroes.
    pub(crate) fn unmap_and_map(&self, page: usize) {
        assert!(page < self.pages);
        let len = rustix::param::page_size();
        let at = self.base.as_ptr().wrapping_add(page * len).cast();
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a page of the mapping, to which there are no references, is replaced. It was its
        // own all the time, as it was not to be touched in between.
        unsafe {
            mmap_anonymous(at, len, ProtFlags::empty(), flags | MapFlags::FIXED).expect("mapped");
            std::thread::yield_now();
            mmap_anonymous(at, len, access, flags | MapFlags::FIXED).expect("mapped");
        }
    }

    /// The bytes of a page that may be read.
    pub(crate) fn read(&self, page: usize) -> Vec<u8> {
        let len = rustix::param::page_size();
        // SAFETY: a page of the mapping, which is there as long as the slice, and may be read by
        // what the caller says.
        unsafe { Slice::raw(self.base.add(page * len), len) }.to_vec()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let len = self.pages * rustix::param::page_size();
        // SAFETY: the mapping is this value's, and nothing refers to it.
        unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), len) }.expect("memory is unmapped");
    }
}

/// The address space, for peers that reach only windows.
pub(crate) fn address_space() -> petasos_fabric::memory::AddressSpace {
    // SAFETY: the probes put to the pages of their windows alone, to which there are no references,
    // and to addresses where no memory is that may be written.
    unsafe { petasos_fabric::memory::AddressSpace::of_process() }.expect("the system has the calls")
}
