//! Page-aligned memory that is really there, and the size of the cache that it should or should
//! not fit into.

use std::fs;
use std::ops::{Deref, DerefMut};

use petasos::fabric::{Exclusive, Region};

use super::LimitError;

/// The last-level cache where the system does not tell its size.
const USUAL_CACHE: usize = 32 << 20;

/// Bytes that begin at a page, each page of them touched: the same kind of memory, huge pages where
/// there are any, as the transports are measured with.
#[derive(Debug)]
pub(super) struct Buffer(Exclusive);

impl Buffer {
    /// A buffer that holds nothing that a side would send.
    pub(super) fn blank(len: usize) -> Result<Self, LimitError> {
        // Asked first: a region is not given up politely.
        Vec::<u8>::new()
            .try_reserve_exact(len)
            .map_err(|_| LimitError::OutOfMemory { bytes: len })?;
        let memory = Region::zeroed(len).into_exclusive();
        let mut bytes = memory.map_err(|_| LimitError::OutOfMemory { bytes: len })?;
        // Not zero: pages of zeros may stay one shared page until they are written.
        bytes.fill(0xff);
        Ok(Self(bytes))
    }

    /// A buffer that [`check`](Self::check) recognises.
    pub(super) fn pattern(len: usize) -> Result<Self, LimitError> {
        let mut buffer = Self::blank(len)?;
        // In long pieces, each of them the same: a gigabyte takes a while byte by byte.
        let piece: Vec<u8> = (0..PERIOD * 1024).map(pattern).collect();
        for part in buffer.chunks_mut(piece.len()) {
            part.copy_from_slice(&piece[..part.len()]);
        }
        Ok(buffer)
    }

    /// Makes sure that the first `bytes` are the pattern, by a sample of each cache line.
    pub(super) fn check(&self, name: &'static str, bytes: usize) -> Result<(), LimitError> {
        let wrong = |&offset: &usize| self[offset] != pattern(offset);
        match (0..bytes).step_by(61).chain([bytes - 1]).find(wrong) {
            None => Ok(()),
            Some(offset) => Err(LimitError::Corrupt { name, offset, bytes }),
        }
    }
}

/// Prime, so that data in the wrong place does not look right.
const PERIOD: usize = 251;

fn pattern(at: usize) -> u8 {
    (at % PERIOD) as u8
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// Size of the largest cache of the first core, in bytes.
pub(super) fn last_level_cache() -> usize {
    let caches = fs::read_dir("/sys/devices/system/cpu/cpu0/cache").into_iter().flatten().flatten();
    let sizes = caches.filter_map(|cache| fs::read_to_string(cache.path().join("size")).ok());
    sizes.filter_map(|size| parse_size(size.trim())).max().unwrap_or(USUAL_CACHE)
}

/// Reads `32768K`, as the kernel writes it.
fn parse_size(text: &str) -> Option<usize> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        _ => return None,
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_and_checked() {
        let mut buffer = Buffer::pattern(10_000).unwrap();
        assert_eq!(buffer.as_ptr() as usize % rustix::param::page_size(), 0);
        assert_eq!(buffer.len(), 10_000);
        buffer.check("test", 10_000).unwrap();
        buffer[9_999] ^= 1;
        assert!(matches!(
            buffer.check("test", 10_000),
            Err(LimitError::Corrupt { offset: 9_999, .. })
        ));
        assert!(Buffer::blank(1).unwrap().check("test", 1).is_err());
    }

    #[test]
    fn absurd_sizes_are_refused() {
        assert!(matches!(Buffer::blank(usize::MAX), Err(LimitError::OutOfMemory { .. })));
        assert!(matches!(Buffer::blank(usize::MAX / 2), Err(LimitError::OutOfMemory { .. })));
    }

    #[test]
    fn cache_sizes() {
        assert_eq!(parse_size("32768K"), Some(32 << 20));
        assert_eq!(parse_size("260M"), Some(260 << 20));
        assert_eq!(parse_size("64"), Some(64));
        assert_eq!(parse_size("K"), None);
        assert_eq!(parse_size("12T"), None);
        assert!(last_level_cache() > 0);
    }
}
