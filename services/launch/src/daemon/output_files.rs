//! What each rank writes, in files of its own on the host of the head node.

use crate::controller::Unwritten;
use std::{
    collections::BTreeMap,
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// Files that are open at a time: a job may have more ranks than this process has descriptors.
const OPEN: usize = if cfg!(test) { 3 } else { 128 };

/// A directory with two files for each rank: `rank-N.out` and `rank-N.err`.
#[derive(Debug)]
pub(super) struct OutputFiles {
    directory: PathBuf,
    /// By rank and stream.
    open: BTreeMap<(u32, bool), File>,
}

/// A file that could not be made or written, and why.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) file: PathBuf,
    pub(super) why: io::Error,
}

impl From<Failed> for io::Error {
    fn from(Failed { file, why }: Failed) -> io::Error {
        io::Error::new(why.kind(), format!("{}: {why}", file.display()))
    }
}

impl From<Failed> for Unwritten {
    fn from(failed: Failed) -> Unwritten {
        Unwritten::File(io::Error::from(failed).to_string())
    }
}

impl OutputFiles {
    /// Makes the directory, if it is not there, and the files of all ranks, empty: what an earlier
    /// job wrote into files of these names is gone.
    ///
    /// # Errors
    /// If the directory or a file cannot be made.
    pub(super) fn create(directory: &Path, ranks: u32) -> Result<OutputFiles, Failed> {
        let failed = |file: &Path, why| Failed { file: file.to_owned(), why };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o777);
        builder.create(directory).map_err(|why| failed(directory, why))?;
        let files = OutputFiles { directory: directory.to_owned(), open: BTreeMap::new() };
        for (rank, error) in (0..ranks).flat_map(|rank| [(rank, false), (rank, true)]) {
            let file = files.name(rank, error);
            File::create(&file).map_err(|why| failed(&file, why))?;
        }
        Ok(files)
    }

    fn name(&self, rank: u32, error: bool) -> PathBuf {
        let stream = if error { "err" } else { "out" };
        self.directory.join(format!("rank-{rank}.{stream}"))
    }

    /// Puts this behind what the rank has written.
    ///
    /// # Errors
    /// If it cannot be written, or not all of it.
    pub(super) fn write(&mut self, rank: u32, error: bool, bytes: &[u8]) -> Result<(), Failed> {
        let name = self.name(rank, error);
        let written = self.file(rank, error, &name).and_then(|file| file.write_all(bytes));
        written.map_err(|why| Failed { file: name, why })
    }

    fn file(&mut self, rank: u32, error: bool, name: &Path) -> io::Result<&mut File> {
        if !self.open.contains_key(&(rank, error)) {
            if self.open.len() >= OPEN {
                self.open.pop_first();
            }
            let file = OpenOptions::new().append(true).create(true).open(name)?;
            self.open.insert((rank, error), file);
        }
        self.open.get_mut(&(rank, error)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn each_stream_is_whole_with_more_of_them_than_files_are_open() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("a/b");
        let mut files = OutputFiles::create(&directory, 5).unwrap();
        for round in 0..4 {
            for (rank, error) in (0..5).flat_map(|rank| [(rank, false), (rank, true)]) {
                files.write(rank, error, format!("{rank} {error} {round}\n").as_bytes()).unwrap();
                assert!(files.open.len() <= OPEN);
            }
        }
        let text = fs::read_to_string(directory.join("rank-4.err")).unwrap();
        assert_eq!(text, "4 true 0\n4 true 1\n4 true 2\n4 true 3\n");
        // The next job begins anew.
        drop(OutputFiles::create(&directory, 2).unwrap());
        assert_eq!(fs::read_to_string(directory.join("rank-1.out")).unwrap(), "");
        assert_eq!(fs::read_to_string(directory.join("rank-4.err")).unwrap(), text);
    }

    #[test]
    fn what_cannot_be_made_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        fs::write(&file, "").unwrap();
        let failed = OutputFiles::create(&file.join("within"), 1).unwrap_err();
        assert_eq!(failed.file, file.join("within"));
        fs::create_dir(place.path().join("rank-0.err")).unwrap();
        let failed = OutputFiles::create(place.path(), 1).unwrap_err();
        assert_eq!(failed.file, place.path().join("rank-0.err"));
    }
}
