//! Where files have data.

use crate::protocol::{Attr, Extent};
use rustix::{
    fs::{SeekFrom, seek},
    io::Errno,
};
use std::os::fd::AsFd;

/// Whether a file takes less room than its length: it may have holes then.
pub(in super::super) fn has_holes(attr: &Attr) -> bool {
    attr.size >= 4096 && attr.blocks.saturating_mul(512) < attr.size
}

/// Where a file of this length has data; in order. One piece where the file system does not say.
pub(in super::super) fn data(file: impl AsFd, size: u64) -> Result<Vec<Extent>, Errno> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let offset = match seek(&file, SeekFrom::Data(at)) {
            Ok(offset) => offset,
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => at,
            Err(error) => return Err(error),
        };
        let end = match seek(&file, SeekFrom::Hole(offset)) {
            Ok(end) => end.min(size),
            // It became shorter meanwhile, which will be noticed.
            Err(Errno::NXIO) => break,
            Err(Errno::INVAL | Errno::OPNOTSUPP) => size,
            Err(error) => return Err(error),
        };
        if end <= offset {
            break;
        }
        found.push(Extent { offset, len: end - offset });
        at = end;
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::unix::fs::FileExt};

    #[test]
    fn data_and_holes() {
        let file: File = tempfile::tempfile().unwrap();
        file.set_len(10 << 20).unwrap();
        assert_eq!(data(&file, 10 << 20).unwrap(), []);
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.write_all_at(&[1; 4096], 8 << 20).unwrap();
        let found = data(&file, 10 << 20).unwrap();
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].offset <= 1 << 20 && found[1].offset > 1 << 21);
        let end = found[1].offset + found[1].len;
        assert!(((8 << 20) + 4096..10 << 20).contains(&end));
    }
}
