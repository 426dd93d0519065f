//! Reading directories.

use super::attr;
use crate::{
    FsResult, RelPath,
    protocol::{DirEntry, Page},
    storage::StoredDir,
};
use rustix::{
    fd::OwnedFd,
    fs::{AtFlags, Dir, statat},
    io::Errno,
};

pub(super) struct LocalDir {
    dir: Dir,
    dev: u64,
    root: bool,
}

impl LocalDir {
    /// `root`: it is the export's, which has a directory that is not shown.
    pub(super) fn new(fd: OwnedFd, dev: u64, root: bool) -> FsResult<LocalDir> {
        Ok(LocalDir { dir: Dir::new(fd)?, dev, root })
    }
}

impl StoredDir for LocalDir {
    fn next(&mut self, most: usize) -> FsResult<Page> {
        let mut entries = Vec::new();
        while entries.len() < most.max(1) {
            let Some(entry) = self.dir.read() else {
                return Ok(Page { entries, more: false });
            };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            let own = self.root && name == RelPath::RESERVED.as_bytes();
            if matches!(name, b"." | b"..") || own {
                continue;
            }
            match statat(self.dir.fd()?, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => entries
                    .push(DirEntry { name: name.to_vec(), attr: attr::from_stat(&stat, self.dev) }),
                // It was removed meanwhile.
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(Page { entries, more: true })
    }
}
