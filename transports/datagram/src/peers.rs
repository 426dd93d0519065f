//! The peers of an endpoint: their handles and addresses, and what is to be reported of them.

use petasos_fabric::{Address, Incarnation, LostReason, Peer, ResolveError};
use std::{
    collections::{HashMap, VecDeque},
    mem,
};

/// What happened to a peer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Packets flow.
    Up(Peer, Incarnation),
    /// They do no more, or never did.
    Lost(Peer, LostReason),
}

impl News {
    fn peer(&self) -> Peer {
        match self {
            News::Up(peer, _) | News::Lost(peer, _) => *peer,
        }
    }
}

/// A slot of the table: the generation of its handles, and where its peer is, if it has one.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    address: Option<Address>,
    lost: bool,
}

/// All of them. A peer is here until it is forgotten, also when it is lost.
#[derive(Debug)]
pub(crate) struct Peers {
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Those that are not lost.
    by_address: HashMap<Address, Peer>,
    news: VecDeque<News>,
    most: usize,
}

impl Peers {
    /// A table for so many peers.
    pub(crate) fn new(most: usize) -> Peers {
        let (slots, free, by_address, news) = Default::default();
        Peers { slots, free, by_address, news, most }
    }

    /// Adds a peer, which is being reached.
    pub(crate) fn add(&mut self, address: &Address) -> Result<Peer, ResolveError> {
        if self.slots.len() - self.free.len() >= self.most {
            return Err(ResolveError::TooManyPeers { limit: self.most });
        }
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        (slot.address, slot.lost) = (Some(address.clone()), false);
        let peer = Peer { index, generation: slot.generation };
        self.by_address.insert(address.clone(), peer);
        Ok(peer)
    }

    /// The latest peer with this address that is not lost.
    pub(crate) fn find(&self, address: &Address) -> Option<Peer> {
        self.by_address.get(address).copied()
    }

    /// Where a peer is, or was; `None` for a stale handle.
    pub(crate) fn address(&self, peer: Peer) -> Option<&Address> {
        let slot = self.slots.get(peer.index as usize)?;
        slot.address.as_ref().filter(|_| slot.generation == peer.generation)
    }

    /// Packets flow with a peer that was being reached.
    pub(crate) fn up(&mut self, peer: Peer, incarnation: Incarnation) {
        if let Some(address) = self.address(peer) {
            tracing::debug!(peer = %address, ?incarnation, "a peer is connected");
            self.news.push_back(News::Up(peer, incarnation));
        }
    }

    /// A peer is lost: said once.
    pub(crate) fn lose(&mut self, peer: Peer, reason: LostReason) {
        let Some(address) = self.address(peer).cloned() else { return };
        if mem::replace(&mut self.slots[peer.index as usize].lost, true) {
            return;
        }
        tracing::debug!(peer = %address, %reason, "the connection to a peer is lost");
        self.release(&address, peer);
        self.news.push_back(News::Lost(peer, reason));
    }

    /// Nothing more is reported of a peer, and its handle is stale.
    pub(crate) fn forget(&mut self, peer: Peer) {
        let Some(address) = self.address(peer).cloned() else { return };
        self.release(&address, peer);
        self.news.retain(|news| news.peer() != peer);
        let slot = &mut self.slots[peer.index as usize];
        *slot = Slot { generation: slot.generation.wrapping_add(1), address: None, lost: false };
        self.free.push(peer.index);
    }

    /// The address is not this peer's any more.
    fn release(&mut self, address: &Address, peer: Peer) {
        if self.find(address) == Some(peer) {
            self.by_address.remove(address);
        }
    }

    /// Whether there is anything to report.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        !self.news.is_empty()
    }

    /// The next thing to report.
    #[inline]
    pub(crate) fn pop_news(&mut self) -> Option<News> {
        self.news.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(name: &str) -> Address {
        Address::parse(&format!("test://{name}")).unwrap()
    }

    #[test]
    fn handles_are_of_one_life() {
        let (mut peers, incarnation) = (Peers::new(2), Incarnation::random());
        let [a, b] = ["a", "b"].map(|name| peers.add(&address(name)).unwrap());
        assert!(matches!(peers.add(&address("c")), Err(ResolveError::TooManyPeers { limit: 2 })));
        peers.up(a, incarnation);
        peers.lose(a, LostReason::Closed);
        peers.lose(a, LostReason::Forgotten);
        assert_eq!((peers.find(&address("a")), peers.address(a)), (None, Some(&address("a"))));
        assert_eq!(peers.pop_news(), Some(News::Up(a, incarnation)));
        assert_eq!(peers.pop_news(), Some(News::Lost(a, LostReason::Closed)));
        assert_eq!(peers.pop_news(), None, "a loss is reported once");
        peers.up(b, incarnation);
        peers.forget(b);
        peers.forget(a);
        assert!(!peers.has_news(), "of one that was forgotten");
        let next = peers.add(&address("a")).unwrap();
        assert!(next != a && next.index == a.index);
        peers.lose(a, LostReason::Closed);
        peers.forget(a);
        assert_eq!((peers.address(a), peers.find(&address("a"))), (None, Some(next)));
        assert!(!peers.has_news());
    }

    /// A successor at an address is found, also while its predecessor is still here.
    #[test]
    fn a_successor_has_the_address() {
        let mut peers = Peers::new(8);
        let first = peers.add(&address("a")).unwrap();
        peers.lose(first, LostReason::Closed);
        let second = peers.add(&address("a")).unwrap();
        peers.forget(first);
        assert_eq!(peers.find(&address("a")), Some(second));
    }
}
