//! What the author of a transport writes.

#[cfg(feature = "host")]
use petasos_fabric::{AllocError, Region, Slice};
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

    // For media of a program that can leave payloads where they are. Plug-ins cannot.

    /// Memory of the medium's own: what [`Medium::lend`] and [`Medium::fetch`] know. `None` if there
    /// is no such memory: then the program gets ordinary one.
    #[cfg(feature = "host")]
    fn alloc(&mut self, len: usize) -> Option<Result<Region, AllocError>> {
        let _ = len;
        None
    }

    /// Sends a packet whose payload stays where it is, on a line that was connected. Until
    /// [`Medium::is_lent`] says that it is no more, nothing else is sent on this line; that it has
    /// changed is reported as room is.
    #[cfg(feature = "host")]
    fn lend(&mut self, line: u32, header: &[u8], payload: &[Slice]) -> Lent {
        let _ = (line, header, payload);
        Lent::No
    }

    /// Whether the payload of a packet is still read where it lies.
    #[cfg(feature = "host")]
    fn is_lent(&self, line: u32) -> bool {
        let _ = line;
        false
    }

    /// Asks for the payload of a packet of which [`Received::Lent`] was the beginning. It comes by
    /// [`Medium::receive`]: as [`Received::Fetched`] if it is in this memory, or as a packet, as it
    /// always does without memory. Nothing else comes on this line before. [`Medium::shut`] returns
    /// when nothing is written to this memory any more.
    #[cfg(feature = "host")]
    fn fetch(&mut self, line: u32, into: Option<&[Slice]>) {
        let _ = (line, into);
    }
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
    /// The first `header` bytes of a packet, whose payload of so many bytes is to be fetched. Not
    /// from a plug-in.
    Lent {
        /// Bytes that were received.
        header: usize,
        /// Bytes that are still where the sender has them.
        payload: usize,
    },
    /// The payload is in the memory that was given for it. Not from a plug-in.
    Fetched,
}

/// The outcome of [`Medium::lend`].
#[cfg(feature = "host")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lent {
    /// The packet was taken, and its memory is lent.
    Taken,
    /// There is no room; [`Medium::poll`] reports when there is.
    Later,
    /// The medium cannot read this memory: send a copy.
    No,
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
