//! What the author of a transport writes.

use std::{os::fd::BorrowedFd, time::Duration};

/// A transport that moves packets: whole, in order, on lines that go one way.
///
/// All else is the program's: peers, messages, memory, completion. A line goes from the endpoint
/// that connected to the endpoint that accepted. Its number is chosen by the caller: small, dense,
/// and used again after [`Medium::shut`], so that it can index a vector. No method blocks.
pub trait Medium: Send {
    /// The address of this endpoint, complete, also when it was opened with a wildcard.
    fn address(&self) -> String;

    /// The longest packet in bytes: at least [`MIN_PACKET`], at most [`MAX_PACKET`]. The same for
    /// all endpoints that talk to each other.
    fn max_packet(&self) -> usize;

    /// A descriptor that is readable while [`Medium::poll`] would find something. Always the same.
    /// Without one, the endpoint is polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// Begins a line to the endpoint at an address, which has this transport's scheme. It may be
    /// established later: until then [`Medium::send`] says `Later`.
    ///
    /// # Errors
    /// [`ConnectError::Refused`] if nothing is there, which is tried again;
    /// [`ConnectError::Malformed`] for an address that makes no sense.
    fn connect(&mut self, line: u32, to: &str) -> Result<(), ConnectError>;

    /// Takes a line that another endpoint began, if there is one.
    fn accept(&mut self, line: u32) -> bool;

    /// Sends a packet, all of it or nothing, on a line that was connected.
    fn send(&mut self, line: u32, packet: &[u8]) -> Sent;

    /// Receives a packet from a line that was accepted. The end of a line comes after its last
    /// packet. For a line that was connected: whether it has ended.
    fn receive(&mut self, line: u32, into: &mut [u8]) -> Received;

    /// Ends a line. The other side sees its end, after the packets that were sent.
    fn shut(&mut self, line: u32);

    /// Reports what is ready to `ready`, as long as that takes it. What is not dealt with is to be
    /// reported again: this consumes nothing.
    ///
    /// # Errors
    /// If the endpoint is of no more use, why.
    fn poll(&mut self, ready: &mut Readiness<'_>) -> Result<(), String>;

    /// Called before the descriptor is waited for. For how long that may be, or `None` if there is
    /// something to do at once.
    fn arm(&mut self) -> Option<Duration> {
        Some(Duration::MAX)
    }

    /// The endpoint ends, in the process that opened it: removes names, tells peers. A forked child
    /// drops its copy without this.
    fn end(&mut self) {}
}

/// A [`Medium`] that can be exported: see [`export!`](crate::export).
pub trait Transport: Medium + Sized + 'static {
    /// The scheme of its addresses: small letters, digits and `-`.
    const SCHEME: &'static str;
    /// What it is, in a few words.
    const TITLE: &'static str;
    /// An address that any number of endpoints can be opened with, as `tcp://127.0.0.1:0` is for
    /// TCP.
    const ANY: &'static str;

    /// Opens an endpoint at an address with this scheme.
    ///
    /// # Errors
    /// Why not, in words for the user.
    fn open(address: &str) -> Result<Self, String>;
}

/// The least that [`Medium::max_packet`] may say, in bytes.
pub const MIN_PACKET: usize = 1024;
/// The most that [`Medium::max_packet`] may say, in bytes.
pub const MAX_PACKET: usize = 16 << 20;

/// Why a line was not begun.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nothing listens there now.
    Refused(String),
    /// Nothing ever will: what is wrong with the address.
    Malformed(String),
}

/// The outcome of [`Medium::send`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The bytes were taken.
    All,
    /// There is no room; [`Medium::poll`] reports when there is.
    Later,
    /// The line has ended. Why, if that is known.
    Closed(String),
}

/// The outcome of [`Medium::receive`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// A packet of so many bytes.
    Packet(usize),
    /// There is none now.
    Later,
    /// The line has ended. Why, if that is known.
    Closed(String),
}

/// Takes what [`Medium::poll`] reports.
pub struct Readiness<'a> {
    into: &'a mut [crate::table::Ready],
    count: usize,
}

impl<'a> Readiness<'a> {
    /// Reports go here.
    pub fn new(into: &'a mut [crate::table::Ready]) -> Readiness<'a> {
        Readiness { into, count: 0 }
    }

    /// How many more it takes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.into.len() - self.count
    }

    /// How many it has.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// There is a line to accept.
    pub fn acceptable(&mut self) {
        self.add(crate::table::LISTENER, crate::table::Ready::READABLE);
    }

    /// There is a packet to receive, or the end of the line.
    pub fn readable(&mut self, line: u32) {
        self.add(line, crate::table::Ready::READABLE);
    }

    /// There is room to send after [`Sent::Later`], or the line has ended.
    pub fn writable(&mut self, line: u32) {
        self.add(line, crate::table::Ready::WRITABLE);
    }

    /// The places that are free.
    #[cfg(feature = "host")]
    pub(crate) fn spare(&mut self) -> &mut [crate::table::Ready] {
        &mut self.into[self.count..]
    }

    /// So many of the free places have been filled.
    #[cfg(feature = "host")]
    pub(crate) fn extend(&mut self, count: usize) {
        self.count = (self.count + count).min(self.into.len());
    }

    fn add(&mut self, line: u32, what: u32) {
        if let Some(place) = self.into.get_mut(self.count) {
            *place = crate::table::Ready { line, what };
            self.count += 1;
        }
    }
}
