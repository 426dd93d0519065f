//! The library without the contract: what our overhead is measured against.
//!
//! One endpoint, short messages, writes into memory of the other side, and completions read one
//! after another. For measurements alone.

use crate::{Config, Happened, Mark, Network, Node, RemoteOp};
use petasos_fabric::{Access, Address, Slice, two_sided::Outgoing};

/// A network that can be used with nothing in between.
pub trait Plain: Network {
    /// The least that it takes to send a short message. False if there is no room.
    fn send_plain(&mut self, to: Node, bytes: &[u8]) -> bool;
    /// How long the message is that came, if one did.
    fn receive_plain(&mut self) -> Option<usize>;
}

/// An endpoint of the library's.
pub struct Bare<N>(N);

/// Another one that it knows.
#[derive(Clone, Copy, Debug)]
pub struct Other(Node);

impl<N: Plain> Bare<N> {
    /// Opens one of the kind that this address means.
    pub fn open(address: &Address) -> Result<Bare<N>, N::OpenError> {
        let (kind, _) = N::kind(address)?;
        N::open(kind, Some("127.0.0.1"), 64, &Config::default()).map(Bare)
    }

    /// Its name, for the other side.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.0.name()
    }

    /// Makes another one known; `None` if that is no name.
    pub fn insert(&mut self, name: &[u8]) -> Option<Other> {
        self.0.insert(name).map(Other).ok()
    }

    /// Sends a short message. False if there is no room now.
    #[inline]
    pub fn send(&mut self, to: Other, bytes: &[u8]) -> bool {
        self.0.send_plain(to.0, bytes)
    }

    /// How long the message is that came, if one did.
    #[inline]
    pub fn receive(&mut self) -> Option<usize> {
        self.0.receive_plain()
    }

    /// The longest message, in bytes.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.0.facts().fragment
    }

    /// Sends memory as a message, from where it lies. False if there is no room now.
    pub fn send_memory(&mut self, to: Other, memory: &Slice) -> bool {
        let payload = Outgoing::Memory([memory.clone()].into_iter().collect());
        self.0.send(to.0, &[], payload, Mark::Packet { link: 0, serial: 0 }).is_ok()
    }

    /// Copies the next message that came into memory, as much of it as there is room for. False if
    /// there is none now.
    pub fn take(&mut self, into: &Slice) -> bool {
        while let Some(happened) = self.0.next() {
            if let Happened::Packet(packet) = happened {
                self.0.copy(packet, 0, into);
                return true;
            }
        }
        false
    }

    /// Opens memory to be written; closed when dropped. `None` if the library has no access of its
    /// own here.
    pub fn expose(&mut self, memory: &Slice) -> Option<Exposed<N>> {
        self.0.facts().access?;
        self.0.open_memory(memory, Access::WRITE.with(Access::READ)).map(Exposed)
    }

    /// Leave to reach what the other side opened.
    pub fn key(&mut self, of: Other, place: &[u8]) -> Option<N::Key> {
        self.0.key(of.0, place)
    }

    /// Begins to write to the beginning of memory that the other side opened. False if there is no
    /// room.
    pub fn put(&mut self, to: Other, local: &Slice, key: &N::Key) -> bool {
        let mark = Mark::Access { access: 0, serial: 0 };
        self.0.access(to.0, RemoteOp::Put, local.clone(), key, 0, mark).is_ok()
    }

    /// Moves everything on: how many writes ended, and how many messages came.
    pub fn poll(&mut self) -> (u32, u32) {
        let (mut done, mut came) = (0, 0);
        while let Some(happened) = self.0.next() {
            match happened {
                Happened::Done(Mark::Access { .. }, _) => done += 1,
                Happened::Packet(_) => came += 1,
                _ => {}
            }
        }
        (done, came)
    }
}

/// Memory that the other side may write.
pub struct Exposed<N: Network>(N::Opened);

impl<N: Network> Exposed<N> {
    /// What the other side needs to reach it.
    #[must_use]
    pub fn location(&self) -> Vec<u8> {
        N::location(&self.0)
    }
}
