//! What a network library does for an endpoint: it sends packets to other endpoints of the library,
//! reports what has arrived and what is complete, and opens memory to others.

use crate::{Config, OpenError};
use petasos_fabric::{Access, Address, Enforcement, Slice, two_sided::Outgoing};
use std::os::fd::BorrowedFd;

pub use crate::nodes::Node;

/// How endpoints meet before the library knows of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// By TCP connections, at `HOST:PORT`.
    Tcp,
    /// By sockets of this machine, at a `NAME`.
    Shm,
}

/// A kind of address.
#[derive(Clone, Copy, Debug)]
pub struct Medium {
    /// The scheme of its addresses.
    pub scheme: &'static str,
    /// The scheme that stands for the best network: addresses with it are taken as this network's.
    pub best: &'static str,
    /// How its endpoints find each other.
    pub meeting: Meeting,
}

/// What is fixed for the life of an endpoint of the library.
#[derive(Clone, Debug)]
pub struct Facts {
    /// What both sides must have in common, in the library's words; at most
    /// [`MAX_PROTOCOL`](crate::frame::MAX_PROTOCOL) bytes.
    pub protocol: String,
    /// The longest payload of a packet, in bytes. Headers come on top: [`Network::open`] is told
    /// how much.
    pub fragment: usize,
    /// The longest packet that is taken before the call returns, in bytes: see [`Network::inject`].
    pub inject: usize,
    /// The longest access to remote memory, in bytes; `None` if the library has none that is worth
    /// using.
    pub access: Option<usize>,
    /// How many bits of *completion data* a write carries to the owner of the memory, which gets
    /// them when all of the write has arrived ([`RemoteOp::PutWithData`],
    /// [`Happened::CompletionData`]): up to 64, 0 if the library has nothing of the kind.
    pub data_bits: u32,
    /// From which length on that is faster than a packet, in bytes; `u64::MAX` if it is not, or is
    /// not known to be.
    pub completion_data_from: u64,
    /// Where rights on memory that was opened are checked.
    pub enforcement: Enforcement,
}

/// The caller's mark of an operation that it posted; the completion carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A packet.
    Packet {
        /// The slot of the peer.
        link: u32,
        /// Which of the slot's users it is of.
        serial: u32,
    },
    /// A piece of an access.
    Access {
        /// The slot of the access.
        access: u32,
        /// Which of the slot's users it is of.
        serial: u32,
    },
}

/// An operation on memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteOp {
    /// It is read.
    Get,
    /// It is written.
    Put,
    /// It is written, and its owner gets this completion data, of [`Facts::data_bits`] bits, when
    /// all has arrived.
    PutWithData(u64),
}

/// Why an operation was not posted: nothing of it has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No room now; poll, and try again.
    Full,
    /// The library refused, with this code.
    Failed(isize),
}

/// What became of a packet that the library took before the call returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// It was sent; no completion follows.
    Left,
    /// The library keeps it for now: its completion follows when it was sent.
    Waits,
}

/// A packet that has arrived, in memory of the network.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// One of the network's buffers.
    pub buffer: u32,
    /// Where it begins there.
    pub at: usize,
    /// In bytes.
    pub len: usize,
}

/// What the library reports.
#[derive(Clone, Copy, Debug)]
pub enum Happened {
    /// A packet lies here, until [`Network::next`] is called again.
    Packet(Packet),
    /// An operation has completed: with success, or with the library's code.
    Done(Mark, Result<(), i32>),
    /// All of a write to our memory has arrived, with this completion data. Any process that
    /// reaches the library's port may send any data.
    CompletionData(u64),
    /// The library is broken: nothing can be received any more.
    Broken(i32),
}

/// One endpoint of a library: reliable datagrams to others of its kind, and access to their memory.
///
/// * Packets arrive whole, once, or not at all; they may overtake each other. They come from any
///   process: the sender is named by the packet's header, which the caller checks.
/// * Calls never block. What is posted is held by the network (memory, and whatever else the
///   library works on) until its mark has come back, or the network is dropped; memory that the
///   library does not let go of then is never freed.
/// * Each posted mark comes back once, whatever becomes of the node, unless the network is dropped.
///   That may be long after the node was lost, or never: so memory that only its program keeps
///   ([`Slice::raw`]) is not posted, nor opened; packets that are copied may have it.
/// * Nodes, keys and opened memory are names: what they stand for is the network's, goes with it,
///   and is used and given back on the thread that drives it. Those of another network are refused.
pub trait Network: Send + Sized + 'static {
    /// Which of the library's networks an address means.
    type Kind: Copy;
    /// Why an endpoint was not opened.
    type OpenError: std::error::Error + From<OpenError>;
    /// Memory that is open to others, and held: closed after it was dropped, by
    /// [`Network::close_memory`], or with the network.
    type Opened: Send;
    /// The library's key to a node's memory, in the form in which the library takes it.
    type Key: Clone + Send + std::fmt::Debug;

    /// The longest packet of [`Network::send_short`], in bytes.
    const SHORT: usize;

    /// Which network an address means.
    fn kind(address: &Address) -> Result<(Self::Kind, Medium), Self::OpenError>;

    /// Opens an endpoint for packets of [`Config::MAX_MESSAGE`] bytes, and `headers` more before
    /// them, or, if that is more than it takes, for those that [`Facts::fragment`] then says.
    /// `host` is the address of this machine that others connect to, if they do.
    fn open(
        kind: Self::Kind,
        host: Option<&str>,
        headers: usize,
        config: &Config,
    ) -> Result<Self, Self::OpenError>;

    /// The endpoint's facts.
    fn facts(&self) -> &Facts;

    /// What others pass to [`Network::insert`] to reach this endpoint; at most
    /// [`MAX_NAME`](crate::frame::MAX_NAME) bytes.
    fn name(&self) -> &[u8];

    /// The text of an error code of the library.
    fn error(&self, code: isize) -> String;

    /// A descriptor that is readable when there is something to poll for, after
    /// [`Network::try_wait`]; `None` if there is nothing of the kind, and peers have to ring for
    /// each other.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Whether one may sleep on the descriptor: nothing is waiting to be polled.
    fn try_wait(&mut self) -> bool;

    /// Makes a node known; `name` is what [`Network::name`] returned there, or anything else that a
    /// peer may send.
    ///
    /// # Errors
    /// Why the name was refused.
    fn insert(&mut self, name: &[u8]) -> Result<Node, String>;

    /// Forgets a node that `insert` returned. Called once for each.
    fn remove(&mut self, node: Node);

    /// The endpoint with this name ended: removes what it left on this machine, if its process was
    /// killed. The name comes from a peer, and is checked.
    fn clean_up(&mut self, name: &[u8]) {
        let _ = name;
    }

    /// Sends what `fill` writes, in so many bytes that the library takes them before the call
    /// returns: at most [`Facts::inject`].
    fn inject(
        &mut self,
        to: Node,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        mark: Mark,
    ) -> Result<Taken, Refusal>;

    /// Sends a short packet, of [`Network::SHORT`] bytes at most, which is copied. Its mark comes
    /// back.
    fn send_short(
        &mut self,
        to: Node,
        headers: &[&[u8]],
        parts: &[&[u8]],
        mark: Mark,
    ) -> Result<(), Refusal>;

    /// Sends a packet: header, and payload from where it lies, unless both together are no longer
    /// than a slot's buffer ([`Slots::BUFFER`](crate::slots::Slots::BUFFER)), and are copied. Its
    /// mark comes back; until then the payload is held. Refused, it is given back.
    fn send(
        &mut self,
        to: Node,
        header: &[u8],
        payload: Outgoing,
        mark: Mark,
    ) -> Result<(), (Refusal, Outgoing)>;

    /// Reads or writes memory of a node's, at an offset in what was opened, with a key that was
    /// made for this node. `local` is held until the mark comes back; a write is complete when it
    /// has arrived. At most [`Facts::access`] bytes. To read into memory that cannot be written is
    /// refused.
    fn access(
        &mut self,
        node: Node,
        op: RemoteOp,
        local: Slice,
        key: &Self::Key,
        offset: u64,
        mark: Mark,
    ) -> Result<(), Refusal>;

    /// Whether a send or an access is under way of this memory, also one with a node that is lost.
    fn holds(&self, memory: &Slice) -> bool;
    /// How many sends and accesses are under way.
    fn running(&self) -> usize;

    /// This many of them are with nodes that are lost, and may never complete: makes room for as
    /// many others, as far as the library has it.
    fn spare(&mut self, lost: usize);

    /// The next event, if there is one.
    fn next(&mut self) -> Option<Happened>;

    /// Whether an event for `next` was read already.
    fn has_more(&self) -> bool;

    /// Whether there is an event for `next`.
    fn poll(&mut self) -> bool;

    /// Copies from the packet that `next` returned: as many bytes as there is room for.
    ///
    /// # Panics
    /// If that is beyond its end.
    fn read(&self, packet: Packet, at: usize, into: &mut [u8]);

    /// Copies from the packet that `next` returned into memory, as much as there is room for.
    /// Returns how much; 0 if that is beyond its end.
    fn copy(&self, packet: Packet, at: usize, into: &Slice) -> usize;

    /// Opens memory to nodes. `None` if it cannot be.
    fn open_memory(&mut self, memory: &Slice, access: Access) -> Option<Self::Opened>;

    /// Closes memory whose [`Network::Opened`] was dropped: no peer reaches it after that.
    fn close_memory(&mut self);

    /// What others need to access it, encoded: at most [`MAX_LOCATION`](crate::frame::MAX_LOCATION)
    /// bytes.
    fn location(opened: &Self::Opened) -> Vec<u8>;

    /// A key to memory at a node, made of what [`Network::location`] returned there, or of anything
    /// else that a peer may send. `None` if those bytes are no key of this library.
    fn key(&mut self, node: Node, place: &[u8]) -> Option<Self::Key>;
}
