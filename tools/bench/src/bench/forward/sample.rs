//! The data that is moved: one pattern, from which each file begins at an offset of its own.

use petasos_testing::{Random, Xorshift};
use std::{fs, io, path::Path, path::PathBuf};

/// Bytes after which the pattern begins again: prime, so that no block begins like another.
const PERIOD: usize = 2_097_143;

/// The longest piece of [`Pattern::at`].
pub(super) const LONGEST: usize = 1 << 20;

/// The largest size of small files; all sizes are equally likely.
const SMALL: u64 = 16 << 10;

/// Small files of one directory.
const IN_DIRECTORY: usize = 100;

/// Bytes that cannot be compressed, and are known by their offset.
pub(super) struct Pattern(Vec<u8>);

impl Pattern {
    pub(super) fn new() -> Pattern {
        let mut bytes = Xorshift::new(0).bytes(PERIOD);
        bytes.extend_from_within(..LONGEST);
        Pattern(bytes)
    }

    /// The bytes at an offset, at most [`LONGEST`].
    pub(super) fn at(&self, offset: u64, len: usize) -> &[u8] {
        let begin = (offset % PERIOD as u64) as usize;
        &self.0[begin..begin + len]
    }
}

/// A small file of the tree.
pub(super) struct Small {
    pub(super) path: PathBuf,
    /// Where in the pattern it begins.
    pub(super) begin: u64,
    pub(super) len: usize,
}

/// The file of this number. Its size is drawn from the number, so that all trees are the same.
pub(super) fn small(number: usize) -> Small {
    let drawn = Random::new(number as u64).draw();
    let path = PathBuf::from(directory(number)).join(format!("file-{number:06}"));
    Small { path, begin: drawn >> 20, len: (drawn % (SMALL + 1)) as usize }
}

/// The directory of the file of this number.
fn directory(number: usize) -> String {
    format!("directory-{:04}", number / IN_DIRECTORY)
}

/// Directories of so many small files.
pub(super) fn directories(files: usize) -> usize {
    files.div_ceil(IN_DIRECTORY)
}

/// Where two trees, or two files, first differ in names, sizes or bytes; none if they are the same.
pub(super) fn difference(a: &Path, b: &Path) -> io::Result<Option<String>> {
    let (of_a, of_b) = (fs::metadata(a)?, fs::metadata(b)?);
    if of_a.is_dir() != of_b.is_dir() {
        return Ok(Some(format!("{} is of another kind", b.display())));
    }
    if of_a.is_dir() {
        let (in_a, in_b) = (names(a)?, names(b)?);
        if in_a != in_b {
            let missing = in_a.iter().find(|name| !in_b.contains(name));
            let what = match missing {
                Some(name) => format!("{} is missing in {}", name.display(), b.display()),
                None => format!("{} has {} entries more", b.display(), in_b.len() - in_a.len()),
            };
            return Ok(Some(what));
        }
        for name in in_a {
            if let Some(found) = difference(&a.join(&name), &b.join(&name))? {
                return Ok(Some(found));
            }
        }
        return Ok(None);
    }
    if of_a.len() != of_b.len() {
        let text = format!("{} has {} of {} bytes", b.display(), of_b.len(), of_a.len());
        return Ok(Some(text));
    }
    let (mut file_a, mut file_b) = (fs::File::open(a)?, fs::File::open(b)?);
    let (mut one, mut other) = (vec![0; LONGEST], vec![0; LONGEST]);
    let mut at = 0;
    while at < of_a.len() {
        let len = (of_a.len() - at).min(LONGEST as u64) as usize;
        io::Read::read_exact(&mut file_a, &mut one[..len])?;
        io::Read::read_exact(&mut file_b, &mut other[..len])?;
        if let Some(wrong) = (0..len).find(|&i| one[i] != other[i]) {
            return Ok(Some(format!("byte {} of {} is wrong", at + wrong as u64, b.display())));
        }
        at += len as u64;
    }
    Ok(None)
}

fn names(directory: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let entries = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
    let mut names = entries.collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_found_wherever_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        let pattern = Pattern::new();
        for root in [&a, &b] {
            fs::create_dir_all(root.join("c")).unwrap();
            fs::write(root.join("c/file"), pattern.at(7, 5000)).unwrap();
        }
        assert_eq!(difference(&a, &b).unwrap(), None);
        let mut bytes = pattern.at(7, 5000).to_vec();
        bytes[4999] ^= 1;
        fs::write(b.join("c/file"), &bytes).unwrap();
        assert!(difference(&a, &b).unwrap().unwrap().contains("byte 4999"));
        fs::write(b.join("c/file"), &bytes[..4999]).unwrap();
        assert!(difference(&a, &b).unwrap().unwrap().contains("4999 of 5000"));
        fs::rename(b.join("c/file"), b.join("c/other")).unwrap();
        assert!(difference(&a, &b).unwrap().unwrap().contains("missing"));
    }

    #[test]
    fn the_pattern_repeats_without_a_gap() {
        let pattern = Pattern::new();
        let across = pattern.at(PERIOD as u64 - 10, 20);
        assert_eq!(across[..10], *pattern.at(PERIOD as u64 - 10, 10));
        assert_eq!(across[10..], *pattern.at(0, 10));
    }

    #[test]
    fn small_files_are_of_all_sizes() {
        let sizes: Vec<usize> = (0..10_000).map(|number| small(number).len).collect();
        assert!(sizes.iter().all(|&len| len as u64 <= SMALL));
        assert!(sizes.iter().any(|&len| len < 10) && sizes.iter().any(|&len| len > 16_000));
        let mean = sizes.iter().sum::<usize>() / sizes.len();
        assert!((7_500..9_000).contains(&mean), "{mean}");
    }
}
