//! Peers by their handles, and the handles by which each member knows them.

use crate::{
    Member,
    handshake::Wish,
    pace::{self, BITS},
};
use petasos_fabric::{
    Address, Incarnation, LostReason, OpErrorKind, Operation, Patience, Peer, PeerInfo, PeerQuota,
    PeerState,
};
use std::{
    collections::{HashMap, VecDeque},
    mem,
};

/// A member, and its handle of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// Which of the members.
    pub(crate) member: usize,
    /// Its handle.
    pub(crate) peer: Peer,
}

/// A peer, as users know it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) handle: Peer,
    pub(crate) route: Route,
    /// It is being asked for its whole address, from which the route follows.
    pub(crate) asked: bool,
    /// Whether operations take that route: not before both handshake messages were sent. See
    /// [`Peers::open`].
    open: bool,
    pub(crate) state: PeerState,
    pub(crate) address: Address,
    pub(crate) incarnation: Option<Incarnation>,
    /// The program has resolved the peer, so the handle stays until it is forgotten.
    pub(crate) resolved: bool,
    /// `inject` returned `Full` by itself, or the member did.
    pub(crate) full: bool,
    pub(crate) full_there: bool,
    /// What it may have here, if that was set.
    pub(crate) quota: Option<PeerQuota>,
    /// Why an access was refused that no member was given, until a flush tells of it.
    pub(crate) refused: Option<Box<OpErrorKind>>,
    /// Operations that were submitted before it is open.
    pub(crate) waiting: VecDeque<Operation>,
}

impl Entry {
    /// Whether operations take the route.
    pub(crate) fn is_open(&self) -> bool {
        self.open
    }

    pub(crate) fn info(&self) -> PeerInfo {
        PeerInfo::new(self.address.clone(), self.incarnation, self.state.clone())
    }
}

/// A peer, as a member knows it.
#[derive(Debug)]
pub(crate) struct Link {
    /// The member's handle.
    peer: Peer,
    /// Ours, if it has one.
    pub(crate) ours: Option<Peer>,
    /// Its handshake message has arrived, and it stays. See [`Peers::introduce`].
    introduced: bool,
    /// Which handshake message of ours was sent, and which one is still to be sent.
    pub(crate) told: Option<Wish>,
    pub(crate) owed: Option<Wish>,
    /// The member has lost it. What came before may still be received.
    lost: bool,
    /// How long its handshake message may take, once the member reached it.
    pub(crate) patience: Option<Patience>,
}

impl Link {
    /// Whether its handshake message has arrived.
    pub(crate) fn is_introduced(&self) -> bool {
        self.introduced
    }
}

/// All that an operation has to know of a peer: the route to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Through {
    /// That of our handle; [`NONE`] of a peer that is not open, or lost.
    generation: u64,
    /// What an operation sets in the rhythm of the members ([`pace::given`]), and in which the
    /// lowest byte has the member as a bit.
    pub(crate) mask: u32,
    member: u32,
    /// Its handle there.
    pub(crate) there: Peer,
}

/// The generation of no handle.
const NONE: u64 = u64::MAX;

impl Through {
    /// No route.
    const CLOSED: Through =
        Through { generation: NONE, mask: 0, member: 0, there: Peer { index: 0, generation: 0 } };

    #[inline]
    pub(crate) fn member(&self) -> usize {
        self.member as usize
    }
}

/// All that a message has to know of its sender.
#[derive(Clone, Copy, Debug)]
struct Sender {
    /// That of the member's handle; [`NONE`] before the sender's handshake message has arrived.
    generation: u64,
    /// Our handle.
    ours: Peer,
}

impl Sender {
    const UNKNOWN: Sender = Sender { generation: NONE, ours: Peer { index: 0, generation: 0 } };
}

/// All peers.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    slots: Vec<(u32, Option<Entry>)>,
    /// For each slot what is looked up for each operation, in few bytes.
    through: Vec<Through>,
    free: Vec<u32>,
    by_address: HashMap<Address, Peer>,
    /// By member, and by the slot of its handle.
    links: Vec<Vec<Option<Link>>>,
    /// The same, what is looked up for each message: as many as any endpoint has members, so that
    /// none is looked for beyond them.
    senders: [Vec<Sender>; BITS],
    /// Lost peers that connected to us, whose handles are still known, oldest first.
    lost: VecDeque<Peer>,
    /// What [`Peers::address_of`] found last: errors come many at a time, and of one peer.
    found: Option<(usize, Address, Address)>,
}

/// How many lost peers are remembered.
const REMEMBERED: usize = 64;

impl Peers {
    pub(crate) fn new(members: usize) -> Peers {
        Peers { links: (0..members).map(|_| Vec::new()).collect(), ..Peers::default() }
    }

    /// The route to a peer, if operations take it: it is open, and the peer is not lost.
    #[inline]
    pub(crate) fn through(&self, peer: Peer) -> Option<&Through> {
        let through = self.through.get(peer.index as usize)?;
        (through.generation == u64::from(peer.generation)).then_some(through)
    }

    /// Operations take the route to a peer from now on. `None` for a stale handle, and if the peer
    /// is lost.
    pub(crate) fn open(&mut self, peer: Peer) -> Option<&mut Entry> {
        let (generation, entry) = self.slots.get_mut(peer.index as usize)?;
        let entry = entry.as_mut().filter(|_| *generation == peer.generation)?;
        if matches!(entry.state, PeerState::Lost(_)) {
            return None;
        }
        entry.open = true;
        let Route { member, peer: there } = entry.route;
        let (generation, mask) = (u64::from(peer.generation), pace::given(member));
        let through = Through { generation, mask, member: member as u32, there };
        self.through[peer.index as usize] = through;
        Some(entry)
    }

    /// A peer is lost: no operation takes its route any more.
    pub(crate) fn set_lost(&mut self, peer: Peer, reason: LostReason) -> Option<&mut Entry> {
        let (generation, entry) = self.slots.get_mut(peer.index as usize)?;
        let entry = entry.as_mut().filter(|_| *generation == peer.generation)?;
        entry.state = PeerState::Lost(reason);
        self.through[peer.index as usize] = Through::CLOSED;
        Some(entry)
    }

    #[inline]
    pub(crate) fn get(&self, peer: Peer) -> Option<&Entry> {
        let (generation, entry) = self.slots.get(peer.index as usize)?;
        entry.as_ref().filter(|_| *generation == peer.generation)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, peer: Peer) -> Option<&mut Entry> {
        let (generation, entry) = self.slots.get_mut(peer.index as usize)?;
        entry.as_mut().filter(|_| *generation == peer.generation)
    }

    /// The peer at this address that is not lost.
    pub(crate) fn find(&self, address: &Address) -> Option<Peer> {
        self.by_address.get(address).copied()
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a peer, which is found by its address unless another one is.
    pub(crate) fn add(&mut self, address: &Address, route: Route, resolved: bool) -> Peer {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.through.push(Through::CLOSED);
            self.slots.len() as u32 - 1
        });
        let (generation, slot) = &mut self.slots[index as usize];
        let handle = Peer { index, generation: *generation };
        self.found = None;
        *slot = Some(Entry {
            handle,
            route,
            asked: false,
            open: false,
            state: PeerState::Connecting,
            address: address.clone(),
            incarnation: None,
            resolved,
            full: false,
            full_there: false,
            quota: None,
            refused: None,
            waiting: VecDeque::new(),
        });
        self.name(address, handle);
        handle
    }

    /// A peer is found by this address, too.
    pub(crate) fn name(&mut self, address: &Address, peer: Peer) {
        self.by_address.entry(address.clone()).or_insert(peer);
        self.found = None;
    }

    /// A peer is not found any more.
    pub(crate) fn unname(&mut self, peer: Peer) {
        self.by_address.retain(|_, known| *known != peer);
        self.found = None;
    }

    /// Takes a peer out; its handle is stale from now on.
    pub(crate) fn remove(&mut self, peer: Peer) -> Option<Entry> {
        self.get(peer)?;
        self.unname(peer);
        self.through[peer.index as usize] = Through::CLOSED;
        let (generation, slot) = self.slots.get_mut(peer.index as usize)?;
        *generation = generation.wrapping_add(1);
        self.free.push(peer.index);
        slot.take()
    }

    /// All handles.
    pub(crate) fn handles(&self) -> Vec<Peer> {
        self.slots.iter().filter_map(|(_, entry)| Some(entry.as_ref()?.handle)).collect()
    }

    #[inline]
    pub(crate) fn link(&mut self, route: Route) -> Option<&mut Link> {
        let link = self.links[route.member].get_mut(route.peer.index as usize)?.as_mut()?;
        (link.peer == route.peer).then_some(link)
    }

    /// The peer whose messages come by this route; `None` before its handshake message has arrived.
    #[inline]
    pub(crate) fn introduced(&self, member: usize, peer: Peer) -> Option<Peer> {
        let sender = self.senders[member % BITS].get(peer.index as usize)?;
        (sender.generation == u64::from(peer.generation)).then_some(sender.ours)
    }

    /// The handshake message of the peer by this route has arrived, which has a handle of ours.
    pub(crate) fn introduce(&mut self, route: Route) {
        let link = self.link_or_new(route);
        (link.introduced, link.patience) = (true, None);
        let sender = match link.ours {
            Some(ours) => Sender { generation: u64::from(route.peer.generation), ours },
            None => Sender::UNKNOWN,
        };
        let senders = &mut self.senders[route.member];
        let index = route.peer.index as usize;
        if senders.len() <= index {
            senders.resize(index + 1, Sender::UNKNOWN);
        }
        senders[index] = sender;
    }

    /// The link by this route, made if there was none.
    pub(crate) fn link_or_new(&mut self, route: Route) -> &mut Link {
        let links = &mut self.links[route.member];
        let index = route.peer.index as usize;
        if links.len() <= index {
            links.resize_with(index + 1, || None);
        }
        let slot = &mut links[index];
        if slot.as_ref().is_none_or(|link| link.peer != route.peer) {
            let peer = route.peer;
            if let Some(sender) = self.senders[route.member].get_mut(index) {
                *sender = Sender::UNKNOWN;
            }
            *slot = Some(Link {
                peer,
                ours: None,
                introduced: false,
                told: None,
                owed: None,
                lost: false,
                patience: None,
            });
        }
        slot.as_mut().expect("just filled")
    }

    /// Remembers the handle of a lost peer that connected to us. Returns one that is to be
    /// forgotten.
    pub(crate) fn remember_lost(&mut self, peer: Peer) -> Option<Peer> {
        self.lost.push_back(peer);
        if self.lost.len() > REMEMBERED { self.lost.pop_front() } else { None }
    }

    /// A member has lost a peer. Returns our handle of it, if there is one and that is news. A peer
    /// that had identified itself keeps its link until it is forgotten.
    pub(crate) fn lose(&mut self, route: Route) -> Option<Peer> {
        let link = self.link(route)?;
        if !link.introduced {
            return self.unlink(route)?.ours;
        }
        (link.owed, link.patience) = (None, None);
        let news = !mem::replace(&mut link.lost, true);
        link.ours.filter(|_| news)
    }

    /// The address of the peer that a member knows by another one: of several, of one that is not
    /// lost.
    pub(crate) fn address_of(
        &mut self,
        member: &Member,
        nth: usize,
        there: &Address,
    ) -> Option<Address> {
        if let Some((of, at, address)) = &self.found
            && (*of, at) == (nth, there)
        {
            return Some(address.clone());
        }
        let entries = self.slots.iter().filter_map(|(_, entry)| entry.as_ref());
        let of_member = entries.filter(|entry| entry.route.member == nth);
        let named = of_member.filter(|entry| {
            member.endpoint.peer(entry.route.peer).is_some_and(|info| info.address == *there)
        });
        let found = named.min_by_key(|entry| matches!(entry.state, PeerState::Lost(_)))?;
        let address = found.address.clone();
        self.found = Some((nth, there.clone(), address.clone()));
        Some(address)
    }

    /// Takes a link out.
    pub(crate) fn unlink(&mut self, route: Route) -> Option<Link> {
        self.link(route)?;
        let index = route.peer.index as usize;
        if let Some(sender) = self.senders[route.member].get_mut(index) {
            *sender = Sender::UNKNOWN;
        }
        self.links[route.member][index].take()
    }
}
