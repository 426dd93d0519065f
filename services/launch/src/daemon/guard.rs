//! A process beside each daemon that outlives it, however it dies: it ends what the daemon started,
//! and removes what it left. It learns by the end of its standard input that the daemon is gone.
//!
//! What it has to know to begin with it reads there: command lines are for every user to see.
//!
//! A rank makes itself known there before its program runs, and the daemon says when it is over: so
//! the guard knows of each process that can have started others. Ranks that begin hold the other
//! end of that input until their program runs, and so it does not end before they have made
//! themselves known. What these others have made of themselves it finds by their mark, unless the
//! daemon has said that nothing is left.

use super::sweep;
use nix::sys::signal::{SigSet, Signal};
use rustix::{
    net::{SendFlags, send},
    process::{self, Pid, kill_process, kill_process_group, setsid},
};
use std::{
    collections::BTreeSet,
    ffi::OsStr,
    io::{self, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{ffi::OsStrExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

/// The word on the command line that makes a process the guard.
pub const GUARD: &str = "pmix-guard";
/// What is said of a process, and its number.
const WORD: usize = 8;
/// The most bytes that it is told first: more than a few paths have, and less than a socket takes
/// at once.
const MAX_FIRST: usize = 64 << 10;

/// What is said to the guard of a process, and of the process group of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Word {
    /// It will be a program, as it says itself, or is one.
    Begins = 1,
    /// It has ended, and its number is about to be its own no more.
    Ended = 2,
    /// All have ended, with whatever they left behind; the number says nothing.
    NothingLeft = 3,
}

/// Says it, by one system call and without allocating, as a process does that is just being made.
pub(crate) fn tell(guard: &UnixStream, word: Word, pid: Pid) -> rustix::io::Result<()> {
    let [a, b, c, d] = pid.as_raw_nonzero().get().to_le_bytes();
    // The guard may be gone; that is no reason to end.
    send(guard, &[word as u8, 0, 0, 0, a, b, c, d], SendFlags::NOSIGNAL).map(|_| ())
}

/// The daemon's end.
#[derive(Debug)]
pub(crate) struct Guard {
    child: Child,
    socket: Arc<UnixStream>,
}

impl Guard {
    /// Starts it; in the end it ends what has this mark, and removes these directories.
    pub(crate) fn start<'a>(
        own: &Path,
        mark: &str,
        directories: impl Iterator<Item = &'a Path>,
    ) -> io::Result<Guard> {
        let (mut ours, theirs) = UnixStream::pair()?;
        // It is there for the guard even if this process is killed just now.
        ours.write_all(&first(mark, directories)?)?;
        let mut command = Command::new(own);
        command.arg(GUARD).stdin(OwnedFd::from(theirs));
        // Where this daemon is within another one's job it ends with that, and its guard when it
        // has cleaned up.
        command.env_remove(sweep::MARKS);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Guard { child: command.spawn()?, socket: Arc::new(ours) })
    }

    /// Where processes that begin make themselves known.
    pub(crate) fn socket(&self) -> Arc<UnixStream> {
        self.socket.clone()
    }

    /// A process, and whatever it starts, is to be ended with the daemon.
    pub(crate) fn runs(&self, pid: Pid) {
        // Its end is noticed, and another one told.
        let _ = tell(&self.socket, Word::Begins, pid);
    }

    pub(crate) fn ended(&self, pid: Pid) {
        let _ = tell(&self.socket, Word::Ended, pid);
    }

    /// All processes that the daemon started have ended, and all that these started.
    pub(crate) fn nothing_is_left(&self) {
        let _ = tell(&self.socket, Word::NothingLeft, Pid::INIT);
    }

    pub(crate) fn pid(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

/// What the guard is told first: the length, the mark, and the directories, which end with a zero
/// each.
fn first<'a>(mark: &str, directories: impl Iterator<Item = &'a Path>) -> io::Result<Vec<u8>> {
    let mut said = vec![0; 4];
    for part in
        std::iter::once(mark.as_bytes()).chain(directories.map(|d| d.as_os_str().as_bytes()))
    {
        said.extend(part);
        said.push(0);
    }
    let len = said.len() - 4;
    if len > MAX_FIRST {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "paths too long for the guard"));
    }
    said[..4].copy_from_slice(&(len as u32).to_le_bytes());
    Ok(said)
}

/// Reads that.
fn read_first(from: &mut impl Read) -> io::Result<(String, Vec<PathBuf>)> {
    let mut len = [0; 4];
    from.read_exact(&mut len)?;
    let mut said = vec![0; (u32::from_le_bytes(len) as usize).min(MAX_FIRST)];
    from.read_exact(&mut said)?;
    let mut parts = said.split(|byte| *byte == 0).map(OsStr::from_bytes);
    let mark = parts.next().unwrap_or_default().to_string_lossy().into_owned();
    Ok((mark, parts.filter(|part| !part.is_empty()).map(PathBuf::from).collect()))
}

/// It says nothing: what comes is its end.
impl AsFd for Guard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        // It may have been stopped.
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, process::Signal::CONT);
        }
        let _ = self.child.wait();
    }
}

/// What the guard does.
pub fn run() {
    // The terminal's signals are for the daemon.
    let _ = setsid();
    // A resource manager may ask all processes on the node to end: the daemon does, and this one
    // then has its work to do, which takes no time.
    let mut asked = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .for_each(|signal| asked.add(signal));
    let _ = asked.thread_block();
    let mut known = Known::default();
    let (mut input, mut word) = (io::stdin().lock(), [0; WORD]);
    // Another program has started it.
    let Ok((mark, directories)) = read_first(&mut input) else { return };
    while input.read_exact(&mut word).is_ok() {
        known.hear(word);
    }
    let nothing_left = known.nothing_left;
    for group in known.left() {
        let _ = kill_process_group(group, process::Signal::KILL);
    }
    if !nothing_left && !mark.is_empty() {
        sweep::sweep(&mark);
    }
    for directory in directories {
        super::directory::remove(&directory);
    }
}

/// What the guard knows: the processes that began, and have not ended.
#[derive(Debug, Default)]
struct Known {
    began: BTreeSet<i32>,
    /// All have ended, and what they left behind.
    nothing_left: bool,
}

impl Known {
    fn hear(&mut self, word: [u8; WORD]) {
        let [word, .., a, b, c, d] = word;
        let number = i32::from_le_bytes([a, b, c, d]);
        match word {
            word if word == Word::Begins as u8 => {
                self.began.insert(number);
                self.nothing_left = false;
            }
            word if word == Word::NothingLeft as u8 => {
                self.began.clear();
                self.nothing_left = true;
            }
            _ => drop(self.began.remove(&number)),
        }
    }

    /// The groups that have to end now. Numbers that no process of ours can have are left out.
    fn left(self) -> impl Iterator<Item = Pid> {
        self.began.into_iter().filter(|number| *number > 1).filter_map(Pid::from_raw)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_begun_is_known_until_it_has_ended() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let pid = |number: i32| Pid::from_raw(number).unwrap();
        let left = |said: &[(Word, i32)]| {
            let mut known = Known::default();
            for (word, number) in said {
                tell(&ours, *word, pid(*number)).unwrap();
                let mut word = [0; WORD];
                (&theirs).read_exact(&mut word).unwrap();
                known.hear(word);
            }
            known.left().map(|pid| pid.as_raw_nonzero().get()).collect::<Vec<_>>()
        };
        use Word::{Begins, Ended};
        assert_eq!(left(&[(Begins, 70_000)]), [70_000]);
        assert_eq!(left(&[(Begins, 9), (Begins, 7), (Begins, 8), (Ended, 8)]), [7, 9]);
        // No mistake ends what is not ours.
        assert_eq!(left(&[(Begins, 7), (Begins, 1), (Ended, 9)]), [7]);
        assert_eq!(left(&[(Begins, 7), (Word::NothingLeft, 1)]), [0; 0]);
        assert_eq!(left(&[(Begins, 7), (Word::NothingLeft, 1), (Begins, 8)]), [8]);
        drop(theirs);
        assert!(tell(&ours, Begins, pid(7)).is_err());
    }

    #[test]
    fn it_is_told_its_mark_and_its_directories() {
        let paths = ["/tmp/a b", "/tmp/\u{fc}"].map(Path::new);
        let said = first("0123", paths.into_iter()).unwrap();
        let (mark, read) = read_first(&mut &said[..]).unwrap();
        assert_eq!((mark.as_str(), &read[..]), ("0123", &paths.map(Path::to_owned)[..]));
        assert!(read_first(&mut &said[..said.len() - 1]).is_err());
        let long = "x".repeat(MAX_FIRST);
        assert!(first("", [Path::new(&long)].into_iter()).is_err());
    }
}
