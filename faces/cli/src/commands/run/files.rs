//! Files that go to the hosts before a job starts: how they are named, and what is shown of them.

use super::libraries::{self, Library};
use crate::{
    exit::{Code, Failure, Outcome},
    output,
};
use petasos_launch::{FileToStage, Staging};
use serde::Serialize;
use std::{
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

/// Reads FILE or FILE:NAME. A file that has a colon in its name is meant where it exists.
pub(super) fn named(text: &OsStr) -> Outcome<FileToStage> {
    let whole = Path::new(text);
    let colon = text.as_bytes().iter().rposition(|byte| *byte == b':');
    let (source, name) = match colon.filter(|_| !whole.exists()) {
        Some(at) => {
            let (source, name) = text.as_bytes().split_at(at);
            (Path::new(OsStr::from_bytes(source)), PathBuf::from(OsStr::from_bytes(&name[1..])))
        }
        None => {
            // `.` and `..` have names, too.
            let full = whole.canonicalize().unwrap_or_else(|_| whole.to_owned());
            let own = whole.file_name().or(full.file_name()).map(OsString::from);
            (whole, PathBuf::from(own.unwrap_or_default()))
        }
    };
    FileToStage::new(source, name).map_err(|error| {
        Failure::new(Code::Usage, format!("--stage {}: {error}", text.to_string_lossy()))
    })
}

/// What was copied.
#[derive(Debug, Serialize)]
pub(super) struct Staged {
    files: u64,
    bytes: u64,
    hosts: usize,
    seconds: f64,
}

impl From<petasos_launch::Staged> for Staged {
    fn from(staged: petasos_launch::Staged) -> Staged {
        let petasos_launch::Staged { files, bytes, hosts, took, .. } = staged;
        Staged { files, bytes, hosts, seconds: took.as_secs_f64() }
    }
}

/// What would be copied to each host.
#[derive(Debug, Serialize)]
pub(super) struct Planned {
    copied: Vec<Planning>,
    files: u64,
    bytes: u64,
    seconds: f64,
    /// Why so long.
    basis: String,
    /// What the program needs beside itself, which is not copied.
    #[serde(skip_serializing_if = "Option::is_none")]
    libraries: Option<Vec<Library>>,
}

#[derive(Debug, Serialize)]
struct Planning {
    file: String,
    name: String,
    bytes: u64,
}

impl Planned {
    pub(super) fn of(staging: &Staging) -> Planned {
        let files = &staging.files;
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let planning = |entry: &FileToStage| Planning {
            file: text(entry.source()),
            name: text(entry.name()),
            bytes: files.bytes_of(entry),
        };
        let program = files.entries().iter().find(|entry| Some(entry.name()) == staging.program());
        Planned {
            copied: files.entries().iter().map(planning).collect(),
            files: files.count(),
            bytes: files.bytes(),
            seconds: staging.estimate.time.as_secs_f64(),
            basis: staging.estimate.basis.clone(),
            libraries: program.and_then(|program| libraries::of(program.source())),
        }
    }

    pub(super) fn print(&self) -> Outcome {
        let mut table = output::table(&["copied to each host", "as", "bytes"]);
        for file in &self.copied {
            table.add_row([file.file.clone(), file.name.clone(), output::size(file.bytes)]);
        }
        let mut text = format!(
            "{table}\n{}, {}: about {} ({})",
            output::count(self.files, "file", "files"),
            output::size(self.bytes),
            output::time(self.seconds * 1e9),
            self.basis
        );
        if let Some(libraries) = self.libraries.as_ref().filter(|all| !all.is_empty()) {
            let mut table = output::table(&["the program needs there", "as here"]);
            for Library { name, path } in libraries {
                table.add_row([name.as_str(), path.as_deref().unwrap_or("not found")]);
            }
            text += &format!("\n{table}");
        }
        output::print(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named() {
        let place = tempfile::tempdir().unwrap();
        let colon = place.path().join("a:b");
        std::fs::write(&colon, "").unwrap();
        let read = |text: &OsStr| {
            let file = named(text).map_err(|failure| failure.to_string())?;
            Ok::<_, String>((file.source().to_owned(), file.name().to_owned()))
        };
        let pair = |source: &str, name: &str| Ok((PathBuf::from(source), PathBuf::from(name)));
        assert_eq!(read("in/data".as_ref()), pair("in/data", "data"));
        assert_eq!(read("in/data:x/y".as_ref()), pair("in/data", "x/y"));
        assert_eq!(read("in/da:ta:x".as_ref()), pair("in/da:ta", "x"));
        assert_eq!(read(colon.as_os_str()), pair(colon.to_str().unwrap(), "a:b"));
        for wrong in ["data:../x", "data:/etc/x", "data:", "data:a/../../b", "/"] {
            assert!(read(wrong.as_ref()).unwrap_err().contains("no name"), "{wrong}");
        }
        let (_, own) = read(".".as_ref()).unwrap();
        assert_eq!(own.as_os_str(), std::env::current_dir().unwrap().file_name().unwrap());
    }
}
