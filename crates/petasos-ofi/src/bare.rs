//! The library without the contract: what our overhead is measured against.
//!
//! One endpoint, short messages that are sent by `fi_inject` where the provider takes them so, and completions read
//! one after another. For measurements alone.

use crate::{
    OpenError,
    net::{Net, Node, Sizes},
    providers::Provider,
};
use petasos_fabric::Address;

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
}
