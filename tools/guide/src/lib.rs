//! A transport of its own, small enough to be read in one sitting: see
//! `docs/writing-a-transport.md`, which walks through it.
//!
//! An endpoint `seq:///some/dir/name` is a `SOCK_SEQPACKET` socket at that path: packets stay
//! packets, arrive in order, and the end of a process is noticed at once. Everything that the
//! contract asks for beyond that is done by the program that loads it, or that has it built in.

#![deny(unsafe_code)]

mod socket;

use petasos_plugin::{ConnectError, Medium, Readiness, Received, Sent, Transport};
use socket::{Io, Poller, receive, send_packet};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU32, Ordering},
};

petasos_plugin::export!(Seq);

/// The longest packet.
const PACKET: usize = 32 << 10;
/// What the poller calls the listening socket. Others have the number of their line.
const LISTENER: u64 = u64::MAX;

/// An endpoint.
pub struct Seq {
    path: String,
    listener: OwnedFd,
    poller: Poller,
    /// By the number of the line.
    lines: Vec<Option<Line>>,
    names: Vec<(u64, bool)>,
}

struct Line {
    socket: OwnedFd,
    /// Whether there was no room for a packet, and the program waits for some.
    full: bool,
}

impl Seq {
    fn add(&mut self, line: u32, socket: OwnedFd) -> bool {
        if self.poller.add(&socket, line.into()).is_err() {
            return false;
        }
        let index = line as usize;
        self.lines.resize_with(self.lines.len().max(index + 1), || None);
        self.lines[index] = Some(Line { socket, full: false });
        true
    }
}

impl Transport for Seq {
    const SCHEME: &'static str = "seq";
    const TITLE: &'static str = "packets by sockets of this node";
    const ANY: &'static str = "seq://*";

    fn open(address: &str) -> Result<Seq, String> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let path = match path_of(address) {
            Some("*") => {
                let (process, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
                let directory = std::env::temp_dir();
                format!("{}/petasos-seq-{process}-{count}", directory.display())
            }
            Some(path) if path.starts_with('/') => path.to_owned(),
            _ => return Err("write it as seq:///path/of/a/socket, or seq://*".to_owned()),
        };
        let open = || {
            let (listener, poller) = (socket::listen_at(&path)?, Poller::new()?);
            poller.add(&listener, LISTENER)?;
            Ok((listener, poller))
        };
        let (listener, poller) = open().map_err(|error: std::io::Error| error.to_string())?;
        Ok(Seq { path, listener, poller, lines: Vec::new(), names: Vec::new() })
    }
}

/// What stands behind the scheme.
fn path_of(address: &str) -> Option<&str> {
    address.strip_prefix(Seq::SCHEME)?.strip_prefix("://")
}

impl Medium for Seq {
    fn address(&self) -> String {
        format!("{}://{}", Seq::SCHEME, self.path)
    }

    fn max_packet(&self) -> usize {
        PACKET
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.poller.fd.as_fd())
    }

    fn connect(&mut self, line: u32, to: &str) -> Result<(), ConnectError> {
        let path = path_of(to).filter(|path| path.starts_with('/'));
        let path = path.ok_or_else(|| ConnectError::Malformed("no path in it".to_owned()))?;
        let refused = |why: String| ConnectError::Refused(why);
        let socket = socket::connect_to(path).map_err(|error| refused(error.to_string()))?;
        match self.add(line, socket) {
            true => Ok(()),
            false => Err(refused("the system waits for no more sockets".to_owned())),
        }
    }

    fn accept(&mut self, line: u32) -> bool {
        socket::accept(&self.listener).is_some_and(|socket| self.add(line, socket))
    }

    fn send(&mut self, line: u32, packet: &[u8]) -> Sent {
        let Some(Some(Line { socket, full })) = self.lines.get_mut(line as usize) else {
            return Sent::Closed(String::new());
        };
        let sent = send_packet(socket, packet);
        let is_full = sent == Io::Later;
        if *full != is_full {
            *full = is_full;
            self.poller.want(socket, line.into(), is_full);
        }
        match sent {
            Io::Moved(_) => Sent::All,
            Io::Later => Sent::Later,
            Io::Closed => Sent::Closed(String::new()),
        }
    }

    fn receive(&mut self, line: u32, into: &mut [u8]) -> Received {
        let Some(Some(Line { socket, .. })) = self.lines.get(line as usize) else {
            return Received::Closed(String::new());
        };
        match receive(socket, into) {
            Io::Moved(len) => Received::Packet(len),
            Io::Later => Received::Later,
            Io::Closed => Received::Closed(String::new()),
        }
    }

    fn shut(&mut self, line: u32) {
        self.lines[line as usize] = None;
    }

    fn poll(&mut self, ready: &mut Readiness<'_>) -> Result<(), String> {
        self.poller.ready(ready.room(), &mut self.names);
        for (name, writable) in &self.names {
            match (*name, writable) {
                (LISTENER, _) => ready.acceptable(),
                (line, true) => ready.writable(line as u32),
                (line, false) => ready.readable(line as u32),
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        std::fs::remove_file(&self.path).ok();
    }
}
