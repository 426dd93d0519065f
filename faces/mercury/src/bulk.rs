//! Descriptors of bulk data: memory of this process in any number of pieces, or of a peer's.

use crate::{
    abi::{
        BULK_ALLOC, BULK_BIND, BULK_EAGER, BUSY, Code, FAULT, INVALID_ARG, NOMEM, OVERFLOW,
        PROTOCOL_ERROR, READ_ONLY, WRITE_ONLY, hg_bulk_info,
    },
    address::AddrRef,
    class::{Shared, lock},
    log::refuse,
};
use petasos_fabric::{
    Access, Address, Key, Operation, Peer, Region, RegionId, Remote, Slice, memory::RegionBuilder,
};
use std::{
    ffi::c_void,
    ptr::NonNull,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, Ordering, fence},
    },
    time::{Duration, Instant},
};

/// Bytes of data that travel with a descriptor, at most.
const EAGER: usize = 2048;
/// The longest address in a descriptor.
const LONGEST: usize = 1024;
const VERSION: u8 = 1;
/// Bytes before the key: version, flags, context, zero, pieces, length, length of the key.
const FIXED: usize = 18;

/// Where the data is.
pub(crate) enum Place {
    /// In this process, which keeps it until the descriptor is freed.
    Local { memory: Region, opened: Mutex<Option<(RegionId, Key)>>, used: AtomicBool },
    /// In another one.
    Remote { key: Key, remote: Mutex<Option<Remote>> },
    /// It came with the descriptor.
    Eager(Region),
}

/// A descriptor. The first part is what inline functions of the headers look at.
#[repr(C)]
pub(crate) struct Bulk {
    pub(crate) info: hg_bulk_info,
    refs: AtomicI32,
    /// Those of them that the program has: transfers have others.
    held: AtomicI32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) place: Place,
    /// The address that it is bound to, and the context there.
    pub(crate) bound: Mutex<Option<(AddrRef, u8)>>,
}

/// A reference to a descriptor, counted.
pub(crate) struct BulkRef(NonNull<Bulk>);

// SAFETY: what it points at is shared safely, but for the first part, which does not change while
// more than its maker has it.
unsafe impl Send for BulkRef {}

impl BulkRef {
    fn new(shared: &Arc<Shared>, info: hg_bulk_info, place: Place) -> BulkRef {
        // Only these keep a class open. One of a peer's that no function freed, as what followed it
        // was not decoded, is no reason.
        if matches!(place, Place::Local { .. }) {
            shared.bulks.fetch_add(1, Ordering::AcqRel);
        }
        let bound = Mutex::new(None);
        // The program's, as soon as it has it.
        let (refs, held) = (AtomicI32::new(1), AtomicI32::new(1));
        let bulk = Bulk { info, refs, held, shared: shared.clone(), place, bound };
        BulkRef(NonNull::from(Box::leak(Box::new(bulk))))
    }

    /// A descriptor of pieces of this process's memory; a piece without an address is allocated.
    ///
    /// # Errors
    /// [`INVALID_ARG`] if there can be no such memory.
    ///
    /// # Safety
    /// The memory stays until the descriptor is freed.
    pub(crate) unsafe fn local(
        shared: &Arc<Shared>,
        pieces: &[(*mut c_void, u64)],
        flags: u8,
    ) -> Result<BulkRef, Code> {
        let mut info = u32::from(flags);
        let mut len = 0u64;
        let mut regions = Vec::with_capacity(pieces.len());
        for (at, size) in pieces {
            len = len
                .checked_add(*size)
                .filter(|len| *len <= isize::MAX as u64)
                .ok_or(INVALID_ARG)?;
            let size = usize::try_from(*size).map_err(|_| INVALID_ARG)?;
            let region = match NonNull::new(at.cast::<u8>()) {
                None => {
                    info |= BULK_ALLOC;
                    Region::try_zeroed(size).map_err(|_| NOMEM)?
                }
                Some(at) if at.addr().checked_add(size).is_none() => return Err(INVALID_ARG),
                // SAFETY: the program keeps it until the descriptor is freed, and that ends only
                // when nothing touches it (the caller's promise, and `close`).
                Some(at) => unsafe { RegionBuilder::new(at, size).build(Box::new(())) },
            };
            regions.push(region);
        }
        let count = regions.len() as u32;
        let memory = match regions.len() {
            1 => regions.remove(0),
            _ => Region::of_pieces(regions.iter().map(Region::whole)),
        };
        let place = Place::Local { memory, opened: Mutex::new(None), used: false.into() };
        Ok(BulkRef::new(shared, hg_bulk_info { len, count, flags: info }, place))
    }

    pub(crate) fn raw(&self) -> *mut Bulk {
        self.0.as_ptr()
    }

    pub(crate) fn get(&self) -> &Bulk {
        // SAFETY: it lives while there is a reference, and is only ever shared.
        unsafe { self.0.as_ref() }
    }

    /// The pointer for C, which is a reference from now on.
    pub(crate) fn into_raw(self) -> *mut Bulk {
        let raw = self.raw();
        std::mem::forget(self);
        raw
    }

    /// Another reference to a descriptor that C has.
    ///
    /// # Safety
    /// C has one.
    pub(crate) unsafe fn borrow(raw: *mut Bulk) -> Option<BulkRef> {
        let raw = NonNull::new(raw)?;
        // SAFETY: the caller's promise.
        unsafe { raw.as_ref() }.refs.fetch_add(1, Ordering::Relaxed);
        Some(BulkRef(raw))
    }

    /// Adds a reference that C has.
    pub(crate) fn count(&self) {
        self.get().held.fetch_add(1, Ordering::Relaxed);
        self.get().refs.fetch_add(1, Ordering::Relaxed);
    }

    /// C gives a reference back. With the last one of C's the memory is the program's again:
    /// success says that nothing touches it any more. A transfer that is under way ends first.
    ///
    /// # Errors
    /// [`BUSY`]: a peer that is stopped may still reach it. The descriptor stays, and may be freed
    /// again.
    pub(crate) fn free(self) -> Result<(), Code> {
        let bulk = self.get();
        let is_last = bulk.held.fetch_sub(1, Ordering::AcqRel) == 1;
        // What a transfer still needs of remote memory goes with the last reference of all.
        if is_last && matches!(bulk.place, Place::Local { .. }) {
            bulk.close().inspect_err(|_| {
                bulk.held.fetch_add(1, Ordering::Relaxed);
            })?;
        }
        // That of the caller: the one of `borrow` is left.
        bulk.refs.fetch_sub(1, Ordering::Release);
        Ok(())
    }
}

impl Drop for BulkRef {
    fn drop(&mut self) {
        if self.get().refs.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        if self.get().close().is_err() {
            // It stays: the peer may write there. That is said in the log.
            return;
        }
        if matches!(self.get().place, Place::Local { .. }) {
            self.get().shared.bulks.fetch_sub(1, Ordering::AcqRel);
        }
        // SAFETY: it was made by `Box::leak`, and this was the last reference.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// As a key's rights.
fn access(flags: u32) -> Access {
    let mut access = Access::NONE;
    if flags & u32::from(READ_ONLY) != 0 {
        access = access.with(Access::READ);
    }
    if flags & u32::from(WRITE_ONLY) != 0 {
        access = access.with(Access::WRITE);
    }
    access
}

impl Bulk {
    /// The memory, if it is of this process.
    pub(crate) fn memory(&self) -> Option<&Region> {
        match &self.place {
            Place::Local { memory, .. } | Place::Eager(memory) => Some(memory),
            Place::Remote { .. } => None,
        }
    }

    /// The pieces of a part of it.
    ///
    /// # Errors
    /// [`INVALID_ARG`] if it is not within, or not of this process.
    pub(crate) fn part(&self, offset: u64, len: u64) -> Result<Vec<Slice>, Code> {
        let memory = self.memory().ok_or(INVALID_ARG)?;
        let offset = usize::try_from(offset).map_err(|_| INVALID_ARG)?;
        let len = usize::try_from(len).map_err(|_| INVALID_ARG)?;
        let part = memory.slice(offset, len).ok_or(INVALID_ARG)?;
        let pieces: Option<Vec<Slice>> = part.pieces().map(Iterator::collect);
        Ok(pieces.unwrap_or_else(|| vec![part]))
    }

    /// The network will touch it: freeing has to look.
    pub(crate) fn mark_used(&self) {
        if let Place::Local { used, .. } = &self.place {
            used.store(true, Ordering::Relaxed);
        }
    }

    /// The handle of remote memory.
    ///
    /// # Errors
    /// As the engine's import.
    pub(crate) fn remote(&self, from: Option<Peer>) -> Result<Remote, Code> {
        let Place::Remote { key, remote } = &self.place else { return Err(INVALID_ARG) };
        let mut remote = lock(remote);
        if let Some(remote) = *remote {
            return Ok(remote);
        }
        let imported = self.shared.driver.lock().import(key, from)?;
        if imported.len != self.info.len {
            self.shared.driver.lock().release(imported);
            return Err(PROTOCOL_ERROR);
        }
        *remote = Some(imported);
        Ok(imported)
    }

    /// Ends what peers and the network have of it.
    fn close(&self) -> Result<(), Code> {
        match &self.place {
            Place::Remote { remote, .. } => {
                if let Some(remote) = lock(remote).take() {
                    self.shared.driver.lock().release(remote);
                }
                Ok(())
            }
            Place::Eager(_) => Ok(()),
            Place::Local { memory, opened, used } => {
                let until = Instant::now() + Operation::PATIENCE + Duration::from_secs(1);
                let left = || until.saturating_duration_since(Instant::now());
                let mut opened = lock(opened);
                if let Some((region, _)) = *opened {
                    let outcome = self.shared.driver.lock().close(region);
                    if self.shared.outcome(&outcome, left()) != Some(0) {
                        return Err(refuse(BUSY, "bulk", || {
                            "a peer may still reach memory that is to be freed".to_owned()
                        }));
                    }
                    *opened = None;
                }
                let whole = memory.whole();
                while used.load(Ordering::Relaxed) && self.shared.driver.lock().touches(&whole) {
                    if left().is_zero() {
                        return Err(refuse(BUSY, "bulk", || {
                            "memory that is to be freed is still in use".to_owned()
                        }));
                    }
                    if !self.shared.driver.progress() {
                        std::thread::yield_now();
                    }
                }
                Ok(())
            }
        }
    }

    /// The key with which peers reach it. It is opened when that is first asked for.
    fn key(&self) -> Result<Key, Code> {
        match &self.place {
            Place::Remote { key, .. } => Ok(key.clone()),
            Place::Eager(_) => Err(INVALID_ARG),
            Place::Local { memory, opened, used } => {
                let mut opened = lock(opened);
                if let Some((_, key)) = &*opened {
                    return Ok(key.clone());
                }
                used.store(true, Ordering::Relaxed);
                let rights = access(self.info.flags);
                let (region, key) = self.shared.driver.lock().open(&memory.whole(), rights)?;
                *opened = Some((region, key.clone()));
                Ok(key)
            }
        }
    }

    /// The descriptor as bytes; `eager`: with its data, if that is little, and only read.
    ///
    /// # Errors
    /// The endpoint has no more regions.
    pub(crate) fn serialise(&self, eager: bool) -> Result<Vec<u8>, Code> {
        let bound = lock(&self.bound).clone();
        let only_read = self.info.flags & 3 == u32::from(READ_ONLY);
        let data = match self.memory() {
            Some(memory)
                if (eager && only_read || matches!(self.place, Place::Eager(_)))
                    && memory.len() <= EAGER =>
            {
                Some(memory.to_vec())
            }
            _ => None,
        };
        // With its data it needs no key, unless a peer passes it on.
        let key = if data.is_some() { None } else { Some(self.key()?) };
        let key = key.as_ref().map_or(&[][..], |key| key.as_bytes());
        let mut flags = (self.info.flags & 3) as u8;
        flags |= if data.is_some() { BULK_EAGER as u8 } else { 0 };
        flags |= if bound.is_some() { BULK_BIND as u8 } else { 0 };
        let mut out = vec![VERSION, flags, bound.as_ref().map_or(0, |(_, id)| *id), 0];
        out.extend(self.info.count.to_le_bytes());
        out.extend(self.info.len.to_le_bytes());
        out.extend((key.len() as u16).to_le_bytes());
        out.extend(key);
        if let Some((addr, _)) = &bound {
            let url = addr.url().as_str().as_bytes();
            let len = u16::try_from(url.len()).ok().filter(|len| usize::from(*len) <= LONGEST);
            out.extend(len.ok_or(OVERFLOW)?.to_le_bytes());
            out.extend(url);
        }
        out.extend(data.unwrap_or_default());
        Ok(out)
    }
}

/// What bytes say of a descriptor.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    info: (u64, u32, u32),
    key: Vec<u8>,
    bound: Option<(Address, u8)>,
    data: Option<Vec<u8>>,
}

/// Reads what another process has written, which may be anything.
fn read(bytes: &[u8]) -> Option<Said> {
    let (head, rest) = bytes.split_at_checked(FIXED)?;
    let flags = u32::from(head[1]);
    let known = u32::from(READ_ONLY | WRITE_ONLY) | BULK_EAGER | BULK_BIND;
    if head[0] != VERSION || head[3] != 0 || flags & !known != 0 || flags & 3 == 0 {
        return None;
    }
    let count = u32::from_le_bytes(head[4..8].try_into().ok()?);
    let len = u64::from_le_bytes(head[8..16].try_into().ok()?);
    let key_len = usize::from(u16::from_le_bytes(head[16..].try_into().ok()?));
    let (key, mut rest) = rest.split_at_checked(key_len)?;
    let mut bound = None;
    if flags & BULK_BIND != 0 {
        let (size, more) = rest.split_at_checked(2)?;
        let size = usize::from(u16::from_le_bytes(size.try_into().ok()?));
        let (url, more) = more.split_at_checked(size).filter(|_| size <= LONGEST)?;
        let url = Address::parse(std::str::from_utf8(url).ok()?).ok()?;
        bound = Some((url, head[2]));
        rest = more;
    }
    let eager = flags & BULK_EAGER != 0;
    let fits =
        if eager { rest.len() as u64 == len && rest.len() <= EAGER } else { rest.is_empty() };
    let has_place = eager == key.is_empty();
    if !fits || !has_place || eager && flags & 3 != u32::from(READ_ONLY) {
        return None;
    }
    let data = eager.then(|| rest.to_vec());
    Some(Said { info: (len, count, flags & !BULK_BIND), key: key.to_vec(), bound, data })
}

/// The bytes of the descriptor at the beginning of a buffer, which may be longer.
pub(crate) fn trim(bytes: &[u8]) -> &[u8] {
    let len = || {
        let short = |at: usize| {
            Some(usize::from(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?)))
        };
        let flags = u32::from(*bytes.get(1)?);
        let mut end = FIXED + short(16)?;
        if flags & BULK_BIND != 0 {
            end += 2 + short(end)?;
        }
        if flags & BULK_EAGER != 0 {
            let data = u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?);
            end = end.checked_add(usize::try_from(data).ok()?)?;
        }
        Some(end)
    };
    len().and_then(|len| bytes.get(..len)).unwrap_or(bytes)
}

/// A descriptor of a peer's, from its bytes.
///
/// # Errors
/// [`PROTOCOL_ERROR`] if they are none.
pub(crate) fn deserialise(shared: &Arc<Shared>, bytes: &[u8]) -> Result<BulkRef, Code> {
    let said = read(bytes).ok_or_else(|| {
        refuse(PROTOCOL_ERROR, "bulk", || "bytes that are no bulk descriptor".to_owned())
    })?;
    let (len, count, flags) = said.info;
    let place = match said.data {
        Some(data) => Place::Eager(Region::from_vec(data)),
        None => {
            let key = Key::from_bytes(said.key).map_err(|_| PROTOCOL_ERROR)?;
            key.parse().map_err(|_| PROTOCOL_ERROR)?;
            Place::Remote { key, remote: Mutex::new(None) }
        }
    };
    let bulk = BulkRef::new(shared, hg_bulk_info { len, count, flags }, place);
    if let Some((url, context)) = said.bound {
        *lock(&bulk.get().bound) = Some((shared.driver.lock().addr(url), context));
    }
    Ok(bulk)
}

/// Copies between memory of this process.
///
/// # Errors
/// [`FAULT`] if there is no such memory.
pub(crate) fn copy(from: &[Slice], to: &[Slice]) -> Result<(), Code> {
    let (mut from, mut to) = (from.iter().cloned(), to.iter().cloned());
    let (mut source, mut target): (Option<Slice>, Option<Slice>) = (None, None);
    loop {
        source = source.filter(|left| !left.is_empty()).or_else(|| from.next());
        target = target.filter(|left| !left.is_empty()).or_else(|| to.next());
        let (Some(one), Some(two)) = (&source, &target) else { return Ok(()) };
        let len = one.try_copy_to(two).map_err(|_| FAULT)?;
        source = one.part(len, one.len() - len);
        target = two.part(len, two.len() - len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(flags: u8, key: &[u8], rest: &[u8], len: u64) -> Vec<u8> {
        let mut out = vec![VERSION, flags, 3, 0, 2, 0, 0, 0];
        out.extend(len.to_le_bytes());
        out.extend((key.len() as u16).to_le_bytes());
        out.extend(key);
        out.extend(rest);
        out
    }

    #[test]
    fn descriptors_are_checked() {
        let good = whole(1, b"key", b"", 100);
        assert_eq!(
            read(&good).map(|said| (said.info, said.key)),
            Some(((100, 2, 1), b"key".to_vec()))
        );
        for len in 0..good.len() {
            assert_eq!(read(&good[..len]), None, "{len} bytes of it");
        }
        let eager = whole(5, b"", b"data", 4);
        assert_eq!(read(&eager).and_then(|said| said.data), Some(b"data".to_vec()));
        let bound = whole(0x22, b"k", b"\x07\0shm://a", 1);
        let said = read(&bound).and_then(|said| said.bound);
        assert_eq!(
            said.map(|(url, id)| (url.as_str().to_owned(), id)),
            Some(("shm://a".to_owned(), 3))
        );
        // More than there is, less, both a key and data, neither, no rights, rights that data has
        // not, flags that are unknown, no address.
        for bad in [
            whole(1, b"key", b"more", 100),
            whole(5, b"", b"dat", 4),
            whole(5, b"k", b"data", 4),
            whole(1, b"", b"", 4),
            whole(0, b"key", b"", 4),
            whole(7, b"", b"data", 4),
            whole(0x41, b"key", b"", 4),
            whole(0x22, b"k", b"\x07\0nothing", 1),
            whole(0x22, b"k", b"\xff\xffshm://a", 1),
        ] {
            assert_eq!(read(&bad), None, "{bad:?}");
        }
    }

    /// Bytes of a good descriptor that were changed: nothing is read beyond them, and what is said
    /// fits into them.
    #[test]
    fn any_bytes_may_come() {
        let mut state = 1u64;
        let mut random = |most: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 33) as usize % most
        };
        let good = [
            whole(1, b"a key", b"", 100),
            whole(5, b"", b"data", 4),
            whole(0x22, b"k", b"\x07\0shm://a", 1),
            whole(0x25, b"", b"\x07\0shm://adata", 4),
        ];
        let mut read_so_far = 0;
        for _ in 0..20_000 {
            let mut bytes = good[random(good.len())].clone();
            for _ in 0..random(3) {
                let at = random(bytes.len());
                bytes[at] = [0, 1, 4, 0x20, 0xff, random(256) as u8][random(6)];
            }
            let behind = random(4);
            bytes.resize(bytes.len() + behind, 0);
            bytes.truncate(bytes.len() - random(4).min(bytes.len()));
            let one = trim(&bytes);
            let Some(said) = read(one) else { continue };
            read_so_far += 1;
            let data = said.data.map_or(0, |data| data.len());
            let url = said.bound.map_or(0, |(url, _)| 2 + url.as_str().len());
            assert_eq!(FIXED + said.key.len() + url + data, one.len(), "{bytes:?}");
        }
        assert!(read_so_far > 1000, "{read_so_far}");
    }

    #[test]
    fn copies_go_from_pieces_to_pieces() {
        let from = [Region::from_vec(vec![1, 2, 3]), Region::from_vec(vec![4, 5])];
        let to = [Region::zeroed(1), Region::zeroed(3), Region::zeroed(1)];
        let slices = |all: &[Region]| all.iter().map(Region::whole).collect::<Vec<_>>();
        copy(&slices(&from), &slices(&to)).unwrap();
        let all: Vec<u8> = to.iter().flat_map(Region::to_vec).collect();
        assert_eq!(all, [1, 2, 3, 4, 5]);
    }
}
