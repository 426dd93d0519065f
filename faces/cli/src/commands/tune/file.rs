//! The file that is written: what it says of other transports stays in it, and so do comments.

use crate::exit::{Failure, Outcome};
use petasos::{Tuning, TuningError};
use std::{
    fs, io,
    io::Read,
    path::{Path, PathBuf},
};

/// What stands at the head of a new file.
const HEAD: &str = "# Written by `petasos tune`: what is best for this machine.\n";
/// Bytes of a tuning.
const LONGEST: u64 = 64 << 10;
/// Lines that may be wrong.
const MOST_WRONG: usize = 100;

/// A file that was written.
pub(super) struct Written {
    /// Lines of the former file that are no settings, with what is wrong with each: they are not
    /// in it any more.
    pub(super) dropped: Vec<String>,
}

/// Where the file is to be, or nothing: what was there is seen to be a file of text.
pub(super) fn look(path: &Path) -> Outcome {
    former(path).map(drop)
}

/// Replaces the file by one that says what was found out, and of other transports than those with
/// these schemes what it said. A reader sees all of it, or what was there before.
pub(super) fn write(path: &Path, tuning: &Tuning, schemes: &[&str]) -> Outcome<Written> {
    let failed = |error| Failure::file("writing", path, &error);
    let (text, dropped) = merged(&former(path)?, tuning, schemes);
    // Beside the file itself, not beside a link to it.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut file = tempfile::NamedTempFile::new_in(place_of(path)).map_err(failed)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    Tuning::read(file.path()).map_err(Failure::system("seeing that it can be read"))?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(Written { dropped })
}

/// The directory of the file.
pub(super) fn place_of(path: &Path) -> PathBuf {
    let place = path.parent().filter(|place| !place.as_os_str().is_empty());
    place.unwrap_or(Path::new(".")).to_owned()
}

/// The text of the file that there was; nothing if there was none.
fn former(path: &Path) -> Outcome<String> {
    let failed = |error| Failure::file("reading", path, &error).advise("petasos tune --out FILE");
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        Err(error) => return Err(failed(error)),
    };
    let mut text = String::new();
    file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > LONGEST {
        return Err(failed(io::Error::other("it is longer than any tuning")));
    }
    Ok(text)
}

/// The former text with what was found out in place of what it said of the same: its other lines
/// as they are, but for those that make no sense. Those are returned, too, each with what is wrong.
fn merged(former: &str, tuning: &Tuning, schemes: &[&str]) -> (String, Vec<String>) {
    let new = tuning.to_string();
    let mut new: Vec<(&str, &str)> =
        new.lines().filter_map(|line| Some((line.split_once(" = ")?.0, line))).collect();
    let (former, dropped) = sensible(former);
    let mut text = String::new();
    for line in former {
        let name = line.split(['#', '=']).next().unwrap_or_default().trim();
        let ours = Tuning::get(tuning, name).is_some()
            || schemes.iter().any(|scheme| Tuning::is_of(name, scheme));
        let line = match new.iter().position(|(known, _)| *known == name) {
            Some(nth) => new.remove(nth).1,
            // It was said twice, or was found to be as it is by default.
            None if ours => continue,
            None => line,
        };
        text += line;
        text.push('\n');
    }
    if text.trim().is_empty() {
        text = HEAD.to_owned();
    }
    for (_, line) in new {
        text += line;
        text.push('\n');
    }
    (text, dropped)
}

/// The lines without those that are refused, and why they are.
fn sensible(text: &str) -> (Vec<&str>, Vec<String>) {
    let mut lines: Vec<Option<&str>> = text.lines().map(Some).collect();
    let mut dropped = Vec::new();
    // A line that is left out is an empty one meanwhile, so that the others keep their numbers.
    while let Err(error) = parsed(&lines) {
        let (TuningError::Line { line, .. } | TuningError::At { line, .. }) = &error else {
            return (Vec::new(), vec![error.to_string()]);
        };
        let wrong = line.checked_sub(1).and_then(|at| lines.get_mut(at));
        // A file of which so much is wrong is none.
        if dropped.len() >= MOST_WRONG || wrong.and_then(Option::take).is_none() {
            return (Vec::new(), vec![error.to_string()]);
        }
        dropped.push(error.to_string());
    }
    (lines.into_iter().flatten().collect(), dropped)
}

fn parsed(lines: &[Option<&str>]) -> Result<Tuning, TuningError> {
    lines.iter().map(|line| line.unwrap_or_default()).collect::<Vec<_>>().join("\n").parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Tuning {
        text.parse().unwrap()
    }

    #[test]
    fn a_new_file_has_a_head() {
        let (text, dropped) = merged("", &found("spin_us = 3\n"), &["tcp"]);
        assert_eq!((text, dropped.len()), (format!("{HEAD}spin_us = 3\n"), 0));
    }

    #[test]
    fn other_transports_stay() {
        let former = "# mine\nshm.lend_above = 4096 # as measured\nofi+tcp.channel.exclusive = 4096\n\
                      tcp.lend_above = 2048\nspin_us = 9\ntcp.later = 1\n\
                      ofi+tcp.channel.exclusive_from = 5\nspin_us = 8\n";
        let new = found("spin_us = 3\ntcp.channel.exclusive = never\n");
        let (text, dropped) = merged(former, &new, &["tcp"]);
        assert_eq!(
            text,
            "# mine\nshm.lend_above = 4096 # as measured\nofi+tcp.channel.exclusive = 4096\n\
             spin_us = 3\ntcp.later = 1\nofi+tcp.channel.exclusive_from = 5\n\
             tcp.channel.exclusive = never\n"
        );
        assert!(dropped.is_empty(), "{dropped:?}");
        // Once more changes nothing.
        assert_eq!(merged(&text, &new, &["tcp"]).0, text);
    }

    #[test]
    fn garbage_does_not_stay() {
        let former = "shm.lend_above = 1\nwhat\n\nshm.channel.mp = never\nshm.channel.mp = 7\n\
                      x = never\nshm.channel.exclusive_from = 99999999\n\
                      y.channel.exclusive_from = 9\ny.channel.exclusive = 8\n";
        let (text, dropped) = merged(former, &found("spin_us = 3\n"), &["tcp"]);
        assert_eq!(text, "\nshm.channel.mp = 7\nx = never\ny.channel.exclusive = 8\nspin_us = 3\n");
        for (dropped, said) in dropped.iter().zip([
            "line 1: shm.lend_above is 1",
            "line 2 is not",
            "line 4: shm.channel.mp is a number",
            "line 7: shm.channel.exclusive_from is 99999999",
            "line 8: y.channel.exclusive_from is 9, but y.channel.exclusive is 8",
        ]) {
            assert!(dropped.starts_with(said), "{dropped}");
        }
        assert_eq!(dropped.len(), 5, "{dropped:?}");
        // Of a file that is none nothing stays.
        let (text, dropped) = merged(&"what\n".repeat(200), &found("spin_us = 3\n"), &[]);
        assert_eq!((text, dropped.len()), (format!("{HEAD}spin_us = 3\n"), 1));
    }
}
