//! This executable, started again as a process of the command's own.
//!
//! The two talk by lines over a socket that is the other's standard input, which so learns by its
//! end that the process that started it is gone.

use crate::{
    exit::{Code, Failure, Outcome},
    log,
};
use std::{
    ffi::OsStr,
    io::{self, BufRead, BufReader, Read},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The longest line between the two.
const LONGEST_LINE: u64 = 64 << 10;

/// Starts a hidden subcommand, whose lines are waited for so long each.
pub fn start<A: AsRef<OsStr>>(
    subcommand: &str,
    arguments: impl IntoIterator<Item = A>,
    patience: Duration,
) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(patience))?;
    // Not by its path, under which an upgrade may have put another executable meanwhile.
    let mut command = Command::new("/proc/self/exe");
    command.arg0("petasos").arg(subcommand).args(arguments);
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
    log::pass_on(&mut command);
    let child = command.spawn()?;
    tracing::debug!(subcommand, process = child.id(), "started a process");
    Ok((child, ours))
}

/// In the process that was started: the socket to its parent.
pub fn parent(instead: &'static str) -> Outcome<UnixStream> {
    let ours = io::stdin().as_fd().try_clone_to_owned();
    let parent = UnixStream::from(ours.map_err(Failure::system("standard input"))?);
    // Fails for what is not a Unix socket: a user has typed the hidden subcommand.
    parent.local_addr().map_err(|_| {
        let text = "this subcommand is for petasos itself, which talks to it over a socket";
        Failure::new(Code::Usage, text).advise(instead)
    })?;
    Ok(parent)
}

/// The next line, of which nothing more may be under way; empty at the end.
pub fn read_line(socket: &UnixStream) -> io::Result<String> {
    let mut line = String::new();
    BufReader::new(socket.take(LONGEST_LINE)).read_line(&mut line)?;
    Ok(line)
}
