//! `struct hg_proc`: where values are encoded to and decoded from. Inline functions of the headers
//! move its pointers as well; nothing here trusts more of it than that.

use crate::abi::{
    CHECKSUM_ERROR, Code, DECODE, ENCODE, FREE, INVALID_ARG, NOMEM, OVERFLOW, hg_class, hg_handle,
    hg_proc, hg_proc_buf,
};
use petasos_fabric::{Region, memory::RegionBuilder};
use std::{
    ffi::{c_uint, c_void},
    ptr::{self, NonNull},
};

/// A checksum, and the sum so far.
pub(crate) struct Sum {
    kind: Kind,
    state: u64,
}

/// `hg_proc_hash_t`, without its last one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Crc16,
    Crc32,
    Crc64,
}

/// CRC-16/ARC, CRC-32C, CRC-64/XZ: low bits first. Of eight tables, for as many bytes at a time.
static TABLES: [[u64; 256]; 3] = [table(0xa001), table(0x82f6_3b78), table(0xc96c_5795_d787_0f42)];

const fn table(polynomial: u64) -> [u64; 256] {
    let mut out = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut value = byte as u64;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ polynomial } else { value >> 1 };
            bit += 1;
        }
        out[byte] = value;
        byte += 1;
    }
    out
}

impl Sum {
    fn new(hash: c_uint) -> Option<Sum> {
        let kind = match hash {
            0 => Kind::Crc16,
            1 => Kind::Crc32,
            2 => Kind::Crc64,
            _ => return None,
        };
        let mut sum = Sum { kind, state: 0 };
        sum.reset();
        Some(sum)
    }

    fn reset(&mut self) {
        self.state = match self.kind {
            Kind::Crc16 => 0,
            Kind::Crc32 => u64::from(u32::MAX),
            Kind::Crc64 => u64::MAX,
        };
    }

    fn update(&mut self, bytes: &[u8]) {
        let table = &TABLES[self.kind as usize];
        for byte in bytes {
            self.state = table[usize::from(self.state as u8 ^ byte)] ^ self.state >> 8;
        }
    }

    /// Its value, and how many bytes of it count.
    pub(crate) fn value(&self) -> (u64, usize) {
        match self.kind {
            Kind::Crc16 => (self.state, 2),
            Kind::Crc32 => (self.state ^ u64::from(u32::MAX), 4),
            Kind::Crc64 => (!self.state, 8),
        }
    }
}

/// Memory of `malloc`, which becomes a region.
struct Malloced(usize);

impl Drop for Malloced {
    fn drop(&mut self) {
        // SAFETY: it came of `malloc` or `realloc`, and is not used any more.
        unsafe { libc::free(ptr::with_exposed_provenance_mut(self.0)) };
    }
}

const PAGE: u64 = 4096;

impl hg_proc {
    pub(crate) fn new(class: *mut hg_class, hash: c_uint) -> hg_proc {
        let sum = Sum::new(hash).map_or(ptr::null_mut(), |sum| Box::into_raw(Box::new(sum)));
        hg_proc {
            own: hg_proc_buf::NONE,
            extra: hg_proc_buf::NONE,
            hg_class: class,
            current: ptr::null_mut(),
            checksum: sum.cast(),
            checksum_hash: ptr::null_mut(),
            checksum_size: 0,
            op: FREE,
            flags: 0,
            handle: ptr::null_mut(),
        }
    }

    fn sum(&mut self) -> Option<&mut Sum> {
        // SAFETY: null, or what `new` made, which only `drop` frees.
        unsafe { self.checksum.cast::<Sum>().as_mut() }
    }

    pub(crate) fn set_handle(&mut self, handle: *mut hg_handle) {
        self.handle = handle;
    }

    /// Begins anew, with this memory. It is not to be moved from now on.
    ///
    /// # Errors
    /// [`INVALID_ARG`] if there is no memory where it is needed, or no such operation.
    pub(crate) fn reset(&mut self, buf: *mut u8, size: u64, op: c_uint) -> Result<(), Code> {
        if op > FREE || buf.is_null() && op != FREE {
            return Err(INVALID_ARG);
        }
        self.free_extra();
        (self.op, self.flags) = (op, 0);
        let size = if buf.is_null() { 0 } else { size };
        self.own = hg_proc_buf { buf, at: buf, size, left: size, is_mine: 0 };
        self.current = &raw mut self.own;
        if let Some(sum) = self.sum() {
            sum.reset();
        }
        Ok(())
    }

    fn free_extra(&mut self) {
        if !self.extra.buf.is_null() && self.extra.is_mine != 0 {
            // SAFETY: `grow` took it of `malloc`, and it has no other owner.
            unsafe { libc::free(self.extra.buf.cast()) };
        }
        self.extra = hg_proc_buf::NONE;
    }

    fn is_extra(&self) -> bool {
        !self.extra.buf.is_null()
    }

    fn current(&mut self) -> &mut hg_proc_buf {
        if self.is_extra() { &mut self.extra } else { &mut self.own }
    }

    pub(crate) fn used(&mut self) -> u64 {
        let current = self.current();
        current.size - current.left.min(current.size)
    }

    pub(crate) fn left(&mut self) -> u64 {
        self.current().left
    }

    /// Room for more than there is, while values are encoded. What is decoded ends where it ends.
    ///
    /// # Errors
    /// [`OVERFLOW`] unless it encodes; [`NOMEM`]; [`INVALID_ARG`] if there is as much already.
    pub(crate) fn grow(&mut self, wanted: u64) -> Result<(), Code> {
        if self.op != ENCODE {
            return Err(OVERFLOW);
        }
        let used = self.used();
        let whole = (wanted / PAGE).checked_add(1).and_then(|pages| pages.checked_mul(PAGE));
        let had = self.current().size;
        let size = whole.filter(|size| isize::try_from(*size).is_ok()).ok_or(NOMEM)?;
        // By halves: what grows by a value at a time is not copied each time.
        let size = if self.is_extra() { size.max(had + had / 2) } else { size };
        if size <= had {
            return Err(INVALID_ARG);
        }
        let before = if self.is_extra() { self.extra.buf } else { ptr::null_mut() };
        // SAFETY: null, or memory of `malloc` that is this one's.
        let buf = unsafe { libc::realloc(before.cast(), size as usize) }.cast::<u8>();
        if buf.is_null() {
            return Err(NOMEM);
        }
        if before.is_null() && used > 0 {
            // SAFETY: so many bytes were written to its own memory, and the new one is longer.
            unsafe { ptr::copy_nonoverlapping(self.own.buf, buf, used as usize) };
        }
        let at = buf.wrapping_add(used as usize);
        self.extra = hg_proc_buf { buf, at, size, left: size - used, is_mine: 1 };
        self.current = &raw mut self.extra;
        Ok(())
    }

    /// The next `len` bytes, to be read or written there.
    ///
    /// # Errors
    /// As [`hg_proc::grow`].
    pub(crate) fn take(&mut self, len: u64) -> Result<*mut u8, Code> {
        if self.left() < len {
            let size = self.current().size;
            self.grow(size.checked_add(len).ok_or(NOMEM)?)?;
        }
        let current = self.current();
        let at = current.at;
        current.at = at.wrapping_add(len as usize);
        current.left -= len;
        Ok(at)
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), Code> {
        let at = self.take(bytes.len() as u64)?;
        // SAFETY: `take` gave so many bytes of memory that is written here alone.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        self.add(bytes);
        Ok(())
    }

    /// The next `len` bytes of what is decoded.
    pub(crate) fn get(&mut self, len: u64) -> Result<&[u8], Code> {
        if self.op != DECODE {
            return Err(INVALID_ARG);
        }
        let at = self.take(len)?;
        // SAFETY: `take` gave so many bytes, which were written before.
        let bytes = unsafe { std::slice::from_raw_parts(at, len as usize) };
        self.add(bytes);
        Ok(bytes)
    }

    /// Adds bytes to the sum.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        if let Some(sum) = self.sum() {
            sum.update(bytes);
        }
    }

    /// The sum of what was encoded or decoded; 0 if nothing is summed.
    pub(crate) fn checksum(&mut self) -> (u64, usize) {
        self.sum().map_or((0, 0), |sum| sum.value())
    }

    /// # Errors
    /// [`CHECKSUM_ERROR`].
    pub(crate) fn verify(&mut self, expected: &[u8]) -> Result<(), Code> {
        let (value, len) = self.checksum();
        let value = value.to_le_bytes();
        if len <= expected.len() && value[..len] == expected[..len] {
            return Ok(());
        }
        Err(CHECKSUM_ERROR)
    }

    /// What did not fit, as memory of its own.
    pub(crate) fn take_extra(&mut self) -> Option<Region> {
        let used = usize::try_from(self.used()).ok()?;
        let base = NonNull::new(self.extra.buf)?;
        let is_mine = self.extra.is_mine != 0;
        self.extra = hg_proc_buf::NONE;
        self.current = &raw mut self.own;
        if !is_mine {
            // The program has it, and may free it at any time.
            // SAFETY: `used` bytes were written there, and the program has not freed it yet, as it
            // encodes there.
            let copy = unsafe { std::slice::from_raw_parts(base.as_ptr(), used) };
            return Some(Region::from_vec(copy.to_vec()));
        }
        let owner = Malloced(base.as_ptr().expose_provenance());
        // SAFETY: `used` bytes were written, in memory of `malloc` that only the owner has now, and
        // frees; nothing refers to it but the pointers that were cleared.
        Some(unsafe { RegionBuilder::new(base, used).private().build(Box::new(owner)) })
    }

    pub(crate) fn has_extra(&self) -> bool {
        self.is_extra()
    }
}

impl Drop for hg_proc {
    fn drop(&mut self) {
        self.free_extra();
        if !self.checksum.is_null() {
            // SAFETY: `new` made it of a box, and it is freed here alone.
            drop(unsafe { Box::from_raw(self.checksum.cast::<Sum>()) });
        }
    }
}

/// The bytes that C points at.
///
/// # Safety
/// `data` is null, or `len` bytes are there that nothing changes meanwhile.
pub(crate) unsafe fn bytes<'a>(data: *const c_void, len: u64) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(data.cast(), len as usize) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_catalogues() {
        for (hash, expected) in [(0, 0xbb3d), (1, 0xe306_9283), (2, 0x995d_c9bb_df19_39fa)] {
            let mut sum = Sum::new(hash).unwrap();
            sum.update(b"12345");
            sum.update(b"6789");
            assert_eq!(sum.value().0, expected);
        }
        assert!(Sum::new(3).is_none());
    }

    #[test]
    fn what_is_encoded_grows_and_what_is_decoded_ends() {
        let mut room = [0u8; 8];
        let mut proc = hg_proc::new(ptr::null_mut(), 1);
        proc.reset(room.as_mut_ptr(), 8, ENCODE).unwrap();
        proc.put(&[1; 6]).unwrap();
        assert!(!proc.has_extra());
        proc.put(&[2; 9000]).unwrap();
        assert!(proc.has_extra() && proc.used() == 9006);
        let (sum, _) = proc.checksum();
        let region = proc.take_extra().unwrap();
        assert_eq!(region.len(), 9006);
        let mut bytes = region.to_vec();
        assert_eq!((bytes[5], bytes[6]), (1, 2));
        // What the program has taken is not freed here.
        proc.reset(room.as_mut_ptr(), 8, ENCODE).unwrap();
        proc.put(&[3; 100]).unwrap();
        proc.extra.is_mine = 0;
        let taken = proc.extra.buf;
        assert_ne!(proc.take_extra().unwrap().as_ptr(), taken);
        // SAFETY: of `malloc`, and it has no other owner.
        unsafe { libc::free(taken.cast()) };
        proc.reset(bytes.as_mut_ptr(), 9006, DECODE).unwrap();
        assert_eq!(proc.get(6).unwrap(), [1; 6]);
        assert_eq!(proc.get(9001), Err(OVERFLOW));
        assert_eq!(proc.get(9000).unwrap(), [2; 9000]);
        assert_eq!(proc.get(1), Err(OVERFLOW));
        proc.verify(&sum.to_le_bytes()).unwrap();
        assert_eq!(proc.verify(&(sum ^ 1).to_le_bytes()), Err(CHECKSUM_ERROR));
        assert!(proc.reset(ptr::null_mut(), 0, DECODE).is_err());
        proc.reset(ptr::null_mut(), 0, FREE).unwrap();
        assert_eq!(proc.take(1), Err(OVERFLOW));
    }
}
