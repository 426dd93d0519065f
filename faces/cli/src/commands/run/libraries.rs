//! The shared libraries of a program, as its own loader finds them on this host: what `ldd` says.

use serde::Serialize;
use std::{path::Path, process::Command};

/// One that the program needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Library {
    pub(super) name: String,
    /// Where it is here; none: nowhere.
    pub(super) path: Option<String>,
}

/// All that a program needs, in the order in which they are loaded; `None` where the system does
/// not say: it is none for a loader, or `ldd` is not here.
pub(super) fn of(program: &Path) -> Option<Vec<Library>> {
    let output = Command::new("ldd").arg(program).env("LC_ALL", "C").output().ok()?;
    output.status.success().then(|| said(&String::from_utf8_lossy(&output.stdout)))
}

/// Lines such as `libc.so.6 => /lib/libc.so.6 (0x7f…)`, `libx.so => not found`, `/lib64/ld.so
/// (0x7f…)`.
fn said(text: &str) -> Vec<Library> {
    let line = |line: &str| {
        let (name, found) = match line.trim().split_once(" => ") {
            Some((name, "not found")) => (name, None),
            Some((name, found)) => (name, Some(found)),
            None => (line.trim(), Some(line.trim())),
        };
        let bare = |text: &str| text.rsplit_once(" (").map_or(text, |(path, _)| path).to_owned();
        let path = found.map(bare);
        // What the kernel brings itself is no file.
        let is_file = path.as_ref().is_none_or(|path| path.starts_with('/'));
        (is_file && !name.is_empty()).then(|| Library { name: bare(name), path })
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_says() {
        let text = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibfoo.so.1 => not found\n\
                    \tlibc.so.6 => /lib/x/libc.so.6 (0x00007f)\n\t/lib64/ld-linux.so.2 (0x7f12)\n";
        let library = |name: &str, path: Option<&str>| Library {
            name: name.to_owned(),
            path: path.map(str::to_owned),
        };
        let expected = [
            library("libfoo.so.1", None),
            library("libc.so.6", Some("/lib/x/libc.so.6")),
            library("/lib64/ld-linux.so.2", Some("/lib64/ld-linux.so.2")),
        ];
        assert_eq!(said(text), expected);
        assert_eq!(said("\tstatically linked\n"), []);
    }
}
