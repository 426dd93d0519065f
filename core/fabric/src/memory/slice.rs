//! A part of a region.

use super::{Region, copy_opaque, copy_streaming};

/// A part of a [`Region`], which it keeps alive. Within bounds by construction.
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
#[derive(Clone, Debug)]
pub struct Slice {
    region: Region,
    offset: usize,
    len: usize,
}

impl Slice {
    fn new(region: Region, offset: usize, len: usize) -> Option<Slice> {
        let end = offset.checked_add(len)?;
        (end <= region.len()).then_some(Slice { region, offset, len })
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

    /// The region it is part of.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Where in its region it starts, in bytes.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Where it starts in memory; see [`Region::as_ptr`].
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.at(self.offset, self.len)
    }

    /// A part of this part; `None` if it is not within.
    #[must_use]
    pub fn part(&self, offset: usize, len: usize) -> Option<Slice> {
        let end = offset.checked_add(len)?;
        (end <= self.len).then(|| Slice {
            region: self.region.clone(),
            offset: self.offset + offset,
            len,
        })
    }

    /// Copies bytes out, from `offset` on.
    ///
    /// # Panics
    /// If `offset + into.len()` is beyond the end.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        self.check(offset, into.len());
        self.region.read(self.offset + offset, into);
    }

    /// Appends a copy of `len` bytes, from `offset` on, to `out`.
    ///
    /// # Panics
    /// If `offset + len` is beyond the end.
    pub fn append_to(&self, offset: usize, len: usize, out: &mut Vec<u8>) {
        self.check(offset, len);
        self.region.append_to(self.offset + offset, len, out);
    }

    /// Copies bytes in, at `offset`.
    ///
    /// # Panics
    /// If `offset + from.len()` is beyond the end, or the region is read-only.
    pub fn write(&self, offset: usize, from: &[u8]) {
        self.check(offset, from.len());
        self.region.write(self.offset + offset, from);
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
        assert!(to.region.is_writable(), "writing to a read-only region");
        let len = self.len.min(to.len);
        let (src, dst) = (self.as_ptr(), to.as_ptr());
        if (src as usize).abs_diff(dst as usize) < len {
            to.write(0, &self.part(0, len).expect("not longer than itself").to_vec());
        } else {
            // SAFETY: both ranges lie in regions that are mapped while the slices live, the target
            // is writable, the distance shows that they do not overlap, and there are no
            // references into a region's memory.
            unsafe { copy(src, dst, len) }
        }
        len
    }

    fn check(&self, offset: usize, len: usize) {
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(within, "{offset}+{len} is beyond the {} bytes of a slice", self.len);
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
    /// never exclusive.
    #[must_use]
    pub fn view(part: &Slice) -> Region {
        part.region.view_of(part.offset, part.len)
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
