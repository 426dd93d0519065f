//! A process beside each daemon that outlives it, however it dies: it ends what the daemon started,
//! and removes what it left. It learns by the end of its standard input that the daemon is gone.
//!
//! A rank makes itself known there before its program runs, and the daemon says when it is over: so
//! the guard knows of each process that can have started others. Ranks that begin hold the other end of
//! that input until their program runs, and so it does not end before they have made themselves known.

use nix::sys::signal::{SigSet, Signal};
use rustix::{
    net::{SendFlags, send},
    process::{self, Pid, kill_process_group, setsid},
};
use std::{
    collections::BTreeSet,
    io::{self, Read},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

/// The word on the command line that makes a process the guard.
pub const GUARD: &str = "pmix-guard";
/// What is said of a process, and its number.
const WORD: usize = 8;

/// What is said to the guard of a process, and of the process group of that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Word {
    /// It will be a program, as it says itself, or is one.
    Begins = 1,
    /// It has ended, and its number is about to be its own no more.
    Ended = 2,
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
    /// Starts it; it removes these directories in the end.
    pub(crate) fn start<'a>(
        own: &Path,
        directories: impl Iterator<Item = &'a Path>,
    ) -> io::Result<Guard> {
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(own);
        command.arg(GUARD).args(directories).stdin(OwnedFd::from(theirs));
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
        let _ = self.child.wait();
    }
}

/// What the guard does: it removes these directories in the end.
pub fn run(directories: impl IntoIterator<Item = PathBuf>) {
    // The terminal's signals are for the daemon.
    let _ = setsid();
    // A resource manager may ask all processes on the node to end: the daemon does, and this one then has its work
    // to do, which takes no time.
    let mut asked = SigSet::empty();
    [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
        .into_iter()
        .for_each(|signal| asked.add(signal));
    let _ = asked.thread_block();
    let mut known = Known::default();
    let (mut input, mut word) = (io::stdin().lock(), [0; WORD]);
    while input.read_exact(&mut word).is_ok() {
        known.hear(word);
    }
    for group in known.left() {
        let _ = kill_process_group(group, process::Signal::KILL);
    }
    for directory in directories {
        super::place::remove(&directory);
    }
}

/// What the guard knows: the processes that began, and have not ended.
#[derive(Debug, Default)]
struct Known(BTreeSet<i32>);

impl Known {
    fn hear(&mut self, word: [u8; WORD]) {
        let [word, .., a, b, c, d] = word;
        let number = i32::from_le_bytes([a, b, c, d]);
        match word {
            word if word == Word::Begins as u8 => self.0.insert(number),
            _ => self.0.remove(&number),
        };
    }

    /// The groups that have to end now. Numbers that no process of ours can have are left out.
    fn left(self) -> impl Iterator<Item = Pid> {
        self.0.into_iter().filter(|number| *number > 1).filter_map(Pid::from_raw)
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
        // Nobody's mistake ends what is not ours.
        assert_eq!(left(&[(Begins, 7), (Begins, 1), (Ended, 9)]), [7]);
        drop(theirs);
        assert!(tell(&ours, Begins, pid(7)).is_err());
    }
}
