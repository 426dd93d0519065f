//! Keeping what was read back: beside its final place until all of it has come, and then there in
//! one step. Whatever fails before leaves what was there.

use super::{
    source::Source,
    tree::{Entry, Kind},
};
use crate::{
    exit::{Code, Failure, Outcome},
    scratch::Scratch,
};
use std::{
    ffi::OsStr,
    fs::{self, File, Permissions},
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

/// A temporary directory beside the target.
pub(super) struct Stage {
    directory: Scratch,
    parent: PathBuf,
    target: PathBuf,
    is_tree: bool,
    /// Of the root of a tree.
    mode: u32,
}

impl Stage {
    pub(super) fn new(target: &Path, source: &Source) -> Outcome<Stage> {
        let wrong = |text: String| Failure::new(Code::Usage, text);
        if target.file_name().is_none() {
            return Err(wrong(format!("--out {}: that is no name", target.display())));
        }
        let parent = match target.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        check(target, source.is_tree())?;
        let directory = Scratch::within(parent)?;
        let found = fs::metadata(source.root());
        let mode = found.map_or(0o755, |found| found.permissions().mode() & 0o7777);
        let (parent, target) = (parent.to_owned(), target.to_owned());
        let stage = Stage { directory, parent, target, is_tree: source.is_tree(), mode };
        if stage.is_tree {
            let item = stage.item();
            fs::create_dir(&item).map_err(|e| Failure::file("making", &item, &e))?;
        }
        Ok(stage)
    }

    fn item(&self) -> PathBuf {
        self.directory.path().join("item")
    }

    fn path_of(&self, entry: &Entry) -> PathBuf {
        if self.is_tree { self.item().join(entry.path()) } else { self.item() }
    }

    /// Makes a directory, a link, or an empty file.
    pub(super) fn make(&self, entry: &Entry) -> Outcome {
        let path = self.path_of(entry);
        let made = match &entry.kind {
            Kind::Directory => fs::create_dir(&path),
            Kind::Link(to) => symlink(OsStr::from_bytes(to), &path),
            Kind::File(_) => {
                let create = File::options().write(true).create_new(true).mode(0o600).open(&path);
                create.map(drop)
            }
        };
        made.map_err(|e| Failure::file("making", &path, &e))
    }

    /// Writes a piece of a file that was made.
    pub(super) fn write(&self, entry: &Entry, offset: u64, bytes: &[u8]) -> Outcome {
        let path = self.path_of(entry);
        let written = File::options().write(true).open(&path);
        let written = written.and_then(|file| file.write_all_at(bytes, offset));
        written.map_err(|e| Failure::file("writing", &path, &e))
    }

    /// Sets modes, of what is deepest first: the last thing before it is published.
    pub(super) fn finish(&self, entries: &[Entry]) -> Outcome {
        let failed = |path: &Path, e| Failure::file("setting the mode of", path, &e);
        for entry in entries.iter().rev().filter(|entry| !matches!(entry.kind, Kind::Link(_))) {
            let path = self.path_of(entry);
            fs::set_permissions(&path, Permissions::from_mode(entry.mode))
                .map_err(|e| failed(&path, e))?;
        }
        Ok(())
    }

    /// Puts it in its place, on the disk, and says where that is.
    pub(super) fn publish(self) -> Outcome<PathBuf> {
        let (item, target) = (self.item(), &self.target);
        let failed = |e: std::io::Error| Failure::file("replacing", target, &e);
        // Asked for again: much time has passed.
        check(target, self.is_tree)?;
        let parent = File::open(&self.parent).map_err(failed)?;
        rustix::fs::syncfs(&parent).map_err(|e| failed(e.into()))?;
        fs::rename(&item, target).map_err(failed)?;
        if self.is_tree {
            // Only now: a directory that may not be written to cannot be moved.
            fs::set_permissions(target, Permissions::from_mode(self.mode)).map_err(failed)?;
        }
        parent.sync_all().map_err(failed)?;
        Ok(target.clone())
    }
}

/// A file replaces a file, and a tree an empty directory at most: nothing else is thrown away.
fn check(target: &Path, tree: bool) -> Outcome {
    let Ok(found) = fs::symlink_metadata(target) else { return Ok(()) };
    let empty = || fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_none());
    let fits = if tree { found.is_dir() && empty() } else { found.is_file() };
    if fits {
        return Ok(());
    }
    let what = if tree { "an empty directory" } else { "a file" };
    let text = format!("--out {}: there is something that is not {what}", target.display());
    Err(Failure::new(Code::Usage, text).advise("another name, or move it away"))
}
