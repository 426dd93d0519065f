//! Who is measured: a server of theirs, the commands that copy to it and from it, and its mount.
//!
//! All servers export the same directory, so that all read the same files, from the same pages of
//! the system's cache, and write to the same file system.

use super::{
    local::Local, petasos::Petasos, process::Logs, rclone::Rclone, rsync::Rsync, ssh::Ssh,
};
use crate::exit::{Failure, Outcome};
use petasos::Transport;
use serde::Serialize;
use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

/// How long a server or a mount may take until it can be used.
pub(super) const READY: Duration = Duration::from_secs(20);

/// How often a server is started again whose port somebody else has taken meanwhile.
const PORTS: usize = 3;

/// What kind of contender it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// The same on the local disk, which nobody can do without.
    Limit,
    Ours,
    Peer,
}

/// A contender, as the tables name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Who {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// By which way the bytes go: the scheme of a transport, or `disk`.
    pub(super) over: &'static str,
}

impl Who {
    pub(super) fn peer(name: &'static str) -> Who {
        Who { name, kind: Kind::Peer, over: "tcp" }
    }
}

/// How files are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Commands,
    Mount,
}

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    File,
    Tree,
}

/// Someone who is measured, with a running server.
pub(super) trait Contender {
    /// By what name it takes part in this way, if it does.
    fn who(&self, way: Way) -> Option<Who>;

    /// Copies what is here to a name in the export that is not there yet.
    fn put(&self, what: What, from: &Path, to: &Path) -> Command;

    /// Copies what is at a name in the export to a name here that is not there yet.
    fn get(&self, what: What, from: &Path, to: &Path) -> Command;

    /// Lists a tree of the export, if there is such a command.
    fn list(&self, tree: &Path) -> Option<Command>;

    /// Mounts the export at an empty directory, and serves it until it is told to end; nothing where
    /// the export itself is what is measured.
    fn mount(&self, at: &Path) -> Option<Command>;

    /// Whether its commands are measured by number of clients as well.
    fn by_clients(&self) -> bool;

    /// How it is set up, for the notes.
    fn how(&self) -> String;
}

/// What a contender is started with.
pub(super) struct Site<'a> {
    /// What is exported.
    pub(super) export: &'a Path,
    /// Where it may keep files of its own, with nobody else's rights.
    pub(super) own: PathBuf,
    /// What both sides know, where something is to be known.
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

/// A way to start one.
type Start = Box<dyn Fn(Site<'_>) -> Outcome<Box<dyn Contender>>>;

/// One who may take part, which is seen when it starts.
pub(super) struct Applicant {
    /// The name of the directories that are theirs.
    pub(super) key: String,
    pub(super) start: Start,
    pub(super) ours: bool,
}

/// All there are, the limit first: we once for each of these transports.
pub(super) fn all(transports: &[&'static Transport]) -> Vec<Applicant> {
    fn theirs<C: Contender + 'static>(
        key: &str,
        start: impl Fn(Site<'_>) -> Outcome<C> + 'static,
    ) -> Applicant {
        let start: Start = Box::new(move |site| Ok(Box::new(start(site)?)));
        Applicant { key: key.to_owned(), start, ours: false }
    }
    let ours = transports.iter().copied().map(|transport| Applicant {
        ours: true,
        ..theirs(&format!("petasos-{}", transport.scheme), |site| Petasos::start(&site, transport))
    });
    let local = theirs("local", |_| Local::new());
    let peers = [
        theirs("ssh", |site| Ssh::start(&site)),
        theirs("rclone", |site| Rclone::start(&site)),
        theirs("rsync", |site| Rsync::start(&site)),
    ];
    std::iter::once(local).chain(ours).chain(peers).collect()
}

/// Starts a server that wants to be told its port: with one that is free, and with another if
/// somebody was faster.
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

/// Whether somebody listens at this port of this machine.
pub(super) fn listens(port: u16) -> Option<()> {
    let address = (Ipv4Addr::LOCALHOST, port).into();
    TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok().map(drop)
}
