//! The library without the contract: what our overhead is measured against.
//!
//! One endpoint, short messages that are sent by `fi_inject` where the provider takes them so, writes into memory of
//! the other side, and completions read one after another. For measurements alone.

use crate::{
    OpenError,
    net::{Happened, Mark, Net, Node, Opened, Sizes},
    providers::Provider,
};
use petasos_fabric::{Access, Address, Slice};

/// An endpoint of the library's.
pub struct Bare(Net);

/// Another one that it knows.
#[derive(Clone, Copy, Debug)]
pub struct Other(Node);

impl Bare {
    /// Opens one by the provider that this address means.
    pub fn open(address: &Address) -> Result<Bare, OpenError> {
        let provider = Provider::of(address)?;
        let offer = provider.must_offer(Some("127.0.0.1"))?;
        let sizes = Sizes { packet: 64 << 10, sends: 256, slabs: 4, slab: 1 << 20 };
        Ok(Bare(Net::open(&offer, sizes)?))
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

    /// Opens memory to be written: the provider's key, and where it lies. Closed when dropped.
    pub fn expose(&mut self, memory: &Slice) -> Option<Exposed> {
        self.0.open_memory(memory, Access::WRITE.with(Access::READ)).map(Exposed)
    }

    /// Begins to write to the beginning of memory that the other side opened. False if there is no room.
    pub fn put(&mut self, to: Other, local: &Slice, place: (u64, u64)) -> bool {
        let mark = Mark::Access { access: 0, serial: 0 };
        self.0.access(to.0, false, local.clone(), place, 0, mark).is_ok()
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
pub struct Exposed(Opened);

impl Exposed {
    /// The provider's key, and where it lies.
    #[must_use]
    pub fn place(&self) -> (u64, u64) {
        self.0.place()
    }
}
