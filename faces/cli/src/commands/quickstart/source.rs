//! What is written: a file or a tree, as it was when it was looked at.

use super::tree::{self, Entry, Kind};
use crate::{
    exit::{Code, Failure, Outcome},
    output,
};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A file or a tree.
pub(super) struct Source {
    root: PathBuf,
    is_tree: bool,
    /// Parents before what is in them.
    pub(super) entries: Vec<Entry>,
    pub(super) left_out: Vec<PathBuf>,
}

/// How much there is.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Contents {
    pub(super) files: u64,
    pub(super) directories: u64,
    pub(super) links: u64,
    pub(super) bytes: u64,
}

impl Source {
    pub(super) fn open(path: &Path) -> Outcome<Source> {
        let found = std::fs::metadata(path).map_err(|error| {
            let failure = Failure::file("reading attributes of", path, &error);
            match error.kind() {
                std::io::ErrorKind::NotFound => Failure::new(Code::Usage, failure)
                    .advise("name a file or directory that exists, or none, to have data made"),
                _ => failure,
            }
        })?;
        let (mut entries, left_out) = tree::walk(path)?;
        if !found.is_dir() && entries.is_empty() {
            let text = format!("{} is neither a file nor a directory", path.display());
            return Err(Failure::new(Code::Usage, text));
        }
        entries.sort();
        Ok(Source { root: path.to_owned(), is_tree: found.is_dir(), entries, left_out })
    }

    pub(super) fn is_tree(&self) -> bool {
        self.is_tree
    }

    pub(super) fn path_of(&self, entry: &Entry) -> PathBuf {
        if self.is_tree { self.root.join(entry.path()) } else { self.root.clone() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn contents(&self) -> Contents {
        let mut contents = Contents::default();
        for entry in &self.entries {
            match entry.kind {
                Kind::File(len) => {
                    contents.files += 1;
                    contents.bytes += len;
                }
                Kind::Directory => contents.directories += 1,
                Kind::Link(_) => contents.links += 1,
            }
        }
        contents
    }
}

impl Contents {
    /// In words.
    pub(super) fn describe(&self) -> String {
        let mut text = format!(
            "{} in {}",
            output::size(self.bytes),
            output::count(self.files, "file", "files")
        );
        let more = [(self.directories, "directory", "directories"), (self.links, "link", "links")];
        for (number, one, many) in more.iter().filter(|(number, ..)| *number > 0) {
            text += &format!(", {}", output::count(*number, one, many));
        }
        text
    }
}
