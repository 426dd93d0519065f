//! Files that a job brings to its nodes: what they are called there, how much they are, and whether
//! they stayed what they were while they were copied.

use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::{Component, Path, PathBuf},
};

/// Why files cannot be brought along.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilesError {
    /// A name that leads out of the directory, or is none.
    #[error(
        "`{0}` is no name for a staged file: write names below the job's directory, without `..`"
    )]
    Name(PathBuf),
    /// One file would be in another's place.
    #[error("two staged files would be `{0}`: give one of them another name")]
    Twice(PathBuf),
    /// A source that cannot be looked at.
    #[error("{}: {error}", path.display())]
    Source {
        /// Which.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// Something that cannot be copied.
    #[error("{0} is neither a file nor a directory")]
    Kind(PathBuf),
}

/// A file, or a directory with all that is in it, that ranks are to find on their nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileToStage {
    source: PathBuf,
    name: PathBuf,
}

impl FileToStage {
    /// The file at `source` on this host is to be `name` in the job's directory on each node.
    ///
    /// # Errors
    /// If the name would lead out of that directory.
    pub fn new(
        source: impl Into<PathBuf>,
        name: impl Into<PathBuf>,
    ) -> Result<FileToStage, FilesError> {
        let name = name.into();
        let plain = |part: Component<'_>| matches!(part, Component::Normal(_));
        if name.as_os_str().is_empty() || !name.components().all(plain) {
            return Err(FilesError::Name(name));
        }
        // Without the slashes that say nothing.
        Ok(FileToStage { source: source.into(), name: name.components().collect() })
    }

    /// Where it is on this host.
    #[must_use]
    pub fn source(&self) -> &Path {
        &self.source
    }

    /// What it is called in the job's directory.
    #[must_use]
    pub fn name(&self) -> &Path {
        &self.name
    }
}

/// What tells whether a file is what it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    /// Its length; none of a directory.
    bytes: Option<u64>,
    /// Seconds and nanoseconds.
    changed: (i64, i64),
}

impl Seen {
    fn of(found: &Metadata) -> Seen {
        let bytes = (!found.is_dir()).then_some(found.len());
        Seen { bytes, changed: (found.mtime(), found.mtime_nsec()) }
    }
}

/// All files that a job brings along, as they were when they were looked at.
#[derive(Clone, Debug, Default)]
pub struct Files {
    entries: Vec<FileToStage>,
    seen: BTreeMap<PathBuf, Seen>,
}

impl Files {
    /// Looks at all of them. Symbolic links that are named themselves are followed; those within
    /// directories are copied as what they say.
    ///
    /// # Errors
    /// If one is not there, is no file, or two would have one name.
    pub fn scan(entries: Vec<FileToStage>) -> Result<Files, FilesError> {
        let mut files = Files::default();
        for FileToStage { source, name } in entries {
            let at = |error| FilesError::Source { path: source.clone(), error };
            let found = source.canonicalize().map_err(at)?;
            let what = fs::metadata(&found).map_err(at)?;
            if !what.is_file() && !what.is_dir() {
                return Err(FilesError::Kind(source));
            }
            // Directories may be merged, and have other things put into them.
            let in_the_way = |other: &&FileToStage| {
                let file = |path: &Path| path.is_file();
                other.name == name
                    || (name.starts_with(&other.name) && file(&other.source))
                    || (other.name.starts_with(&name) && what.is_file())
            };
            if files.entries.iter().any(|other| in_the_way(&other)) {
                return Err(FilesError::Twice(name));
            }
            files.walk(&found)?;
            files.entries.push(FileToStage { source: found, name });
        }
        Ok(files)
    }

    fn walk(&mut self, path: &Path) -> Result<(), FilesError> {
        let at = |error| FilesError::Source { path: path.to_owned(), error };
        let what = fs::symlink_metadata(path).map_err(at)?;
        if what.is_dir() {
            for entry in fs::read_dir(path).map_err(at)? {
                self.walk(&entry.map_err(at)?.path())?;
            }
        }
        if what.is_dir() || what.is_file() {
            self.seen.insert(path.to_owned(), Seen::of(&what));
        }
        Ok(())
    }

    /// What was named.
    #[must_use]
    pub fn entries(&self) -> &[FileToStage] {
        &self.entries
    }

    /// How many files there are, those within directories counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.entries.iter().map(|entry| self.below(entry).count() as u64).sum()
    }

    /// How many bytes they have.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.entries.iter().map(|entry| self.bytes_of(entry)).sum()
    }

    /// How many bytes one of those that were named has, with all that is in it.
    #[must_use]
    pub fn bytes_of(&self, entry: &FileToStage) -> u64 {
        self.below(entry).sum()
    }

    /// The lengths of the files of an entry.
    fn below(&self, entry: &FileToStage) -> impl Iterator<Item = u64> {
        let below = self.seen.range(entry.source.clone()..);
        let below = below.take_while(move |(path, _)| path.starts_with(&entry.source));
        below.filter_map(|(_, seen)| seen.bytes)
    }

    /// One that is not what it was when it was looked at.
    pub(crate) fn changed(&self) -> Option<&Path> {
        let is = |path: &Path| fs::symlink_metadata(path).ok().map(|what| Seen::of(&what));
        let mut all = self.seen.iter();
        all.find(|(path, seen)| is(path) != Some(**seen)).map(|(path, _)| path.as_path())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn staged(source: &Path, name: &str) -> FileToStage {
        FileToStage::new(source, name).unwrap()
    }

    #[test]
    fn names_stay_within_the_directory() {
        for name in ["a", "a/b", "a//b", ".hidden", "a b", "..."] {
            assert!(FileToStage::new("x", name).is_ok(), "{name:?} was refused");
        }
        for name in ["", "/", "/a", "..", "../a", "a/..", "a/../../b", ".", "./a"] {
            assert!(FileToStage::new("x", name).is_err(), "{name:?} was taken");
        }
        assert_eq!(staged(Path::new("x"), "a//b/").name(), Path::new("a/b"));
    }

    #[test]
    fn files_are_counted_and_watched() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("one"), [1; 100]).unwrap();
        fs::create_dir_all(at("tree/below")).unwrap();
        fs::write(at("tree/below/two"), [2; 20]).unwrap();
        fs::write(at("tree-like"), [3; 3]).unwrap();
        symlink("/nowhere", at("tree/link")).unwrap();
        symlink(at("one"), at("also-one")).unwrap();
        let all = [("also-one", "one"), ("tree", "sub/tree"), ("one", "twice")];
        let all = all.map(|(source, name)| staged(&at(source), name)).to_vec();
        let files = Files::scan(all).unwrap();
        assert_eq!((files.count(), files.bytes()), (3, 220));
        let each: Vec<u64> = files.entries().iter().map(|entry| files.bytes_of(entry)).collect();
        assert_eq!(each, [100, 20, 100]);
        assert_eq!(files.changed(), None);
        // Another file in a directory is a change of that.
        fs::write(at("tree/below/three"), "").unwrap();
        assert!(files.changed().unwrap().ends_with("tree/below"));
        fs::remove_file(at("one")).unwrap();
        assert!(files.changed().unwrap().ends_with("one"));
    }

    #[test]
    fn what_cannot_be_brought_along_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::write(at("file"), "x").unwrap();
        fs::create_dir(at("directory")).unwrap();
        let look = |all: &[(&str, &str)]| {
            Files::scan(all.iter().map(|(source, name)| staged(&at(source), name)).collect())
        };
        assert!(matches!(look(&[("none", "a")]), Err(FilesError::Source { .. })));
        assert!(matches!(look(&[("file", "a"), ("file", "a")]), Err(FilesError::Twice(_))));
        assert!(matches!(look(&[("file", "a"), ("file", "a/b")]), Err(FilesError::Twice(_))));
        assert!(matches!(look(&[("file", "a/b"), ("file", "a")]), Err(FilesError::Twice(_))));
        assert!(look(&[("directory", "a"), ("file", "a/b")]).is_ok());
        let device = FileToStage::new("/dev/null", "a").unwrap();
        assert!(matches!(Files::scan(vec![device]), Err(FilesError::Kind(_))));
    }
}
