//! The contenders: each has a server, the commands that copy to it and from it, and its mount.
//!
//! All servers export the same directory, so that all read the same files, from the same pages of
//! the system's cache, and write to the same file system.

use super::process::Logs;
use crate::exit::{Failure, Outcome};
use serde::Serialize;
use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// How long a server or a mount may take until it can be used.
pub(super) const READY: Duration = Duration::from_secs(20);

/// How often a server is started again if another process has taken its port meanwhile.
const PORTS: usize = 3;

/// What kind of contender it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The same on the local disk.
    Limit,
    Ours,
    Peer,
}

/// A contender, as the tables name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Label {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// What carries the bytes: the scheme of a transport, or `disk`.
    pub(super) over: &'static str,
}

impl Label {
    pub(super) fn peer(name: &'static str) -> Label {
        Label { name, kind: Kind::Peer, over: "tcp" }
    }
}

/// How files are accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Commands,
    Mount,
}

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payload {
    File,
    Tree,
}

/// A program that is measured, with a running server.
pub(super) trait Contender {
    /// The label under which it takes part by this access, if it does.
    fn label(&self, access: Access) -> Option<Label>;

    /// Copies from this machine to a new name in the export.
    fn put(&self, payload: Payload, from: &Path, to: &Path) -> Command;

    /// Copies from a name in the export to a new name on this machine.
    fn get(&self, payload: Payload, from: &Path, to: &Path) -> Command;

    /// Lists a tree of the export, if there is such a command.
    fn list(&self, tree: &Path) -> Option<Command>;

    /// Mounts the export at an empty directory, and serves it until SIGTERM; none where the export
    /// itself is measured.
    fn mount(&self, at: &Path) -> Option<Command>;

    /// Whether its commands are measured by number of clients as well.
    fn by_clients(&self) -> bool;

    /// How it is set up, for the notes.
    fn how(&self) -> String;
}

/// The environment in which a contender is started.
pub(super) struct Site<'a> {
    /// The exported directory.
    pub(super) export: &'a Path,
    /// A directory for its own files, which only this user can enter.
    pub(super) own: PathBuf,
    /// The secret of both sides, where they need one.
    pub(super) secret: &'a Path,
    pub(super) logs: &'a Logs,
}

impl Site<'_> {
    /// Writes a file that only this user can read.
    pub(super) fn write(&self, name: &str, text: &str) -> Outcome<PathBuf> {
        use std::{io::Write, os::unix::fs::OpenOptionsExt};
        let path = self.own.join(name);
        let mut options = std::fs::OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes()))
            .map_err(|error| Failure::file("writing", &path, &error))?;
        Ok(path)
    }
}

/// Starts a server with a port that is free, and with another if a process has taken it meanwhile.
pub(super) fn on_free_port<T>(mut start: impl FnMut(u16) -> Outcome<T>) -> Outcome<T> {
    let mut attempts = 1;
    loop {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|found| found.local_addr());
        let port = free.map_err(Failure::system("finding a free port"))?.port();
        match start(port) {
            Err(failure) if attempts == PORTS => return Err(failure),
            Err(failure) if failure.code == crate::exit::Code::Interrupted => return Err(failure),
            Err(_) => attempts += 1,
            Ok(started) => return Ok(started),
        }
    }
}

/// Whether a process listens at this port of this machine.
pub(super) fn listens(port: u16) -> Option<()> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok().map(drop)
}
