//! A process that has finalized may begin again as the same rank, as MPI sessions do; another
//! program that a script starts after it in the same rank may not: see [`super::finished`]. So the
//! daemon has to know which process a client is.
//!
//! Over a Unix socket the kernel says which process connected, or, where a connection is inherited,
//! which one wrote. Over loopback it does not: there the process is looked for among the rank's own
//! that has this socket open, when it finalizes, and when the rank connects once more.

use super::Daemon;
use crate::engine::ClientId;
use rustix::process::Pid;
use std::{collections::VecDeque, fs, path::PathBuf};

/// Processes of a rank that are looked at, and tasks of each.
const MOST: usize = 64;

impl Daemon {
    /// A client says that it is this rank; it is of this process, if that is known.
    pub(super) fn connects(&mut self, client: u64, rank: u32, process: Option<Pid>) {
        let again = process.is_some_and(|process| self.ranks.connects(rank, process));
        // Programs of a script may inherit one connection, one after the other.
        self.engine.is_again(ClientId(client), again);
    }

    /// The client of a rank is done, for now.
    pub(super) fn finalizes(&mut self, rank: u32, process: Option<Pid>) {
        if let Some(process) = process {
            self.ranks.finalizes(rank, process);
        }
    }
}

fn number(text: &str) -> Option<Pid> {
    text.parse().ok().and_then(Pid::from_raw)
}

/// Which has this socket open: this process, or one that it has started.
pub(super) fn holder(first: Pid, socket: u32) -> Option<Pid> {
    let wanted = PathBuf::from(format!("socket:[{socket}]"));
    let mut left = VecDeque::from([first]);
    let mut seen = 0;
    while let Some(process) = left.pop_front() {
        let place = PathBuf::from(format!("/proc/{}", process.as_raw_nonzero()));
        let open = fs::read_dir(place.join("fd")).into_iter().flatten().flatten();
        if open.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|is| is == wanted)) {
            return Some(process);
        }
        let tasks = fs::read_dir(place.join("task")).into_iter().flatten().flatten();
        for task in tasks.take(MOST) {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            let children = children.split_whitespace().filter_map(number);
            for child in children.take(MOST - seen.min(MOST)) {
                seen += 1;
                left.push_back(child);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::{fs::fstat, process::getpid};
    use std::{
        io::{BufRead, BufReader},
        os::{fd::OwnedFd, unix::net::UnixStream},
        process::{Child, Command, Stdio},
    };

    /// A shell that is there, and ends with this input.
    fn shell(input: impl Into<Stdio>) -> Child {
        let mut child = Command::new("sh")
            .args(["-c", "echo; read x"])
            .stdin(input)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        child
    }

    #[test]
    fn the_process_that_has_a_socket_is_found() {
        let (one, two) = UnixStream::pair().unwrap();
        let socket = fstat(&one).unwrap().st_ino as u32;
        assert_eq!(holder(getpid(), socket), Some(getpid()));
        // A child that was started without it has none.
        let mut child = shell(Stdio::piped());
        assert_eq!(holder(Pid::from_child(&child), socket), None);
        drop(child.stdin.take());
        child.wait().unwrap();
        // One that has taken it over is found through the process that started it.
        let mut child = shell(OwnedFd::from(one));
        assert_eq!(holder(getpid(), socket), Some(Pid::from_child(&child)));
        drop(two);
        child.wait().unwrap();
    }
}
