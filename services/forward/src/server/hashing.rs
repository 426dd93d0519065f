//! Hashes of what is in files.

use super::{blocks::BLOCK, call::Call, call::check_range, files::OpenFile};
use crate::{
    FsError, FsResult,
    protocol::{Extent, Hash},
};
use blake3::Hasher;
use rustix::io::Errno;
use std::sync::Arc;

/// The longest part of a file for one call, and the shortest blocks.
const LONGEST: u64 = 64 << 20;
const SHORTEST: u64 = 4 << 10;

/// Hashes of blocks of a length, while the bytes come.
struct Hashing {
    block: u64,
    left: u64,
    hasher: Hasher,
    hashes: Vec<Hash>,
}

impl Hashing {
    fn new(block: u64) -> Hashing {
        Hashing { block, left: block, hasher: Hasher::new(), hashes: Vec::new() }
    }

    fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(self.left as usize));
            self.hasher.update(now);
            self.left -= now.len() as u64;
            if self.left == 0 {
                self.end_block();
            }
            bytes = later;
        }
    }

    fn end_block(&mut self) {
        self.hashes.push(*self.hasher.finalize().as_bytes());
        self.hasher.reset();
        self.left = self.block;
    }
}

impl Call {
    pub(super) async fn hashes(
        &self,
        number: u64,
        range: Extent,
        block: u64,
    ) -> FsResult<Vec<Hash>> {
        let file = self.file(number)?;
        file.to_read()?;
        check_range(range)?;
        if range.len > LONGEST || block < SHORTEST {
            let detail = format!(
                "{} bytes by {block}, where the most are {LONGEST} by no less than {SHORTEST}",
                range.len
            );
            return Err(FsError::new(Errno::INVAL, detail));
        }
        let mut hashing = self.hash(&file, range, Hashing::new(block)).await?;
        if hashing.left < block {
            hashing.end_block();
        }
        Ok(hashing.hashes)
    }

    /// The hash of so many bytes from the beginning of a file.
    pub(super) async fn hash_of(&self, file: &Arc<OpenFile>, len: u64) -> FsResult<Hash> {
        let range = Extent { offset: 0, len };
        let hashing = self.hash(file, range, Hashing::new(u64::MAX)).await?;
        Ok(*hashing.hasher.finalize().as_bytes())
    }

    /// Reads a part of a file, in turns with other work; less where the file ends.
    async fn hash(
        &self,
        file: &Arc<OpenFile>,
        range: Extent,
        mut hashing: Hashing,
    ) -> FsResult<Hashing> {
        let mut block = self.core.blocks.get(self.session.client).await?;
        let (mut at, end) = (range.offset, range.offset + range.len);
        while at < end {
            let size = (end - at).min(BLOCK as u64) as usize;
            let file = Arc::clone(file);
            let read = self.run(size as u64, move |_| {
                let bytes = &mut block.own()[..size];
                let count = file.file.read_at(at, bytes)?.min(size);
                hashing.feed(&bytes[..count]);
                Ok((block, hashing, count))
            });
            let count;
            (block, hashing, count) = read.await?;
            self.count_read(count as u64);
            if count < size {
                break;
            }
            at += count as u64;
        }
        Ok(hashing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_depend_on_how_bytes_come() {
        let data: Vec<u8> = (0..100_000u32).map(|n| (n * 7) as u8).collect();
        let mut hashing = Hashing::new(4096);
        for part in data.chunks(777) {
            hashing.feed(part);
        }
        hashing.end_block();
        let expected: Vec<Hash> =
            data.chunks(4096).map(|block| *blake3::hash(block).as_bytes()).collect();
        assert_eq!(hashing.hashes, expected);
    }
}
