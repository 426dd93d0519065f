//! What an endpoint is made of.

use crate::{
    Node, OpenError, Places, SCHEME,
    handshake::LONGEST,
    keys::Regions,
    peers::{Peers, Way},
    places::MOST,
    submit::Pending,
};
use petasos_fabric::{
    Address, Capabilities, Credential, Endpoint, Enforcement, Event, Incarnation, Limits,
    Operation, Peer, Support, Time,
};
use rustix::event::epoll;
use slab::Slab;
use std::{collections::VecDeque, os::fd::OwnedFd};

/// How far a transport goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// To processes of this node: of what [`Node::here`] calls one.
    Node,
    /// To whoever can be named.
    Network,
}

/// A transport under the common address.
pub struct Member {
    /// Its endpoint, fresh from being opened: nobody was resolved there.
    pub endpoint: Box<dyn Endpoint>,
    /// How far it goes.
    pub reach: Reach,
}

/// An endpoint of several transports: see the crate's page.
pub struct Auto {
    pub(crate) members: Vec<Member>,
    pub(crate) address: Address,
    pub(crate) node: Node,
    pub(crate) incarnation: Incarnation,
    pub(crate) capabilities: Capabilities,
    pub(crate) peers: Peers,
    pub(crate) regions: Regions,
    /// What was handed to members, by the token under which it was.
    pub(crate) pending: Slab<Pending>,
    /// For each member, what it had no room for.
    pub(crate) backlog: Vec<VecDeque<Operation>>,
    /// What happened and is told next.
    pub(crate) early: Vec<Event>,
    /// Cards that are owed, or waited for.
    pub(crate) greetings: Vec<Way>,
    /// Peers to whom `inject` said `Full` by itself.
    pub(crate) full: Vec<Peer>,
    /// Operations that wait for peers who are asked.
    pub(crate) waiting: usize,
    /// Lost peers that came to us, whose handles are still known.
    pub(crate) gone: VecDeque<Peer>,
    pub(crate) epoll: OwnedFd,
    pub(crate) now: Time,
    pub(crate) passes: u32,
    /// Members that were given a card and have not had their turn since.
    pub(crate) carding: Vec<usize>,
    /// For each member, the pass in which it last had something to do.
    pub(crate) busy: Vec<u32>,
    /// A bit for each member that was given something and has not had its turn since.
    pub(crate) given: u32,
    pub(crate) armed: bool,
}

/// The way that was chosen to a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chosen {
    /// Where the peer is, in the terms of the member that goes there.
    pub way: Address,
    /// Why that one.
    pub why: String,
}

impl Auto {
    /// Makes one endpoint of several. `node` is where this process is: [`Node::here`]. Members that go to the node
    /// come first, networks in the order of preference; the last one answers those who ask for the whole address.
    pub fn open(node: Node, mut members: Vec<Member>) -> Result<Auto, OpenError> {
        let count = members.len();
        if count == 0 || count > MOST {
            return Err(OpenError::Members { count });
        }
        members.sort_by_key(|member| member.reach);
        let mut ways: Vec<Address> = Vec::new();
        for member in &members {
            let way = member.endpoint.address();
            if ways.iter().any(|other| other.scheme() == way.scheme()) {
                return Err(OpenError::Twice(way.scheme().to_owned()));
            }
            if way.as_str().contains(',') {
                return Err(OpenError::Comma(way.clone()));
            }
            let capabilities = member.endpoint.capabilities();
            let found = capabilities.limits.max_inject.min(capabilities.limits.max_message);
            if found < LONGEST {
                return Err(OpenError::TooShort {
                    scheme: capabilities.scheme,
                    found,
                    needed: LONGEST,
                });
            }
            ways.push(way.clone());
        }
        let address = Places::compose(node, &ways)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        for fd in members.iter().filter_map(|member| member.endpoint.fd()) {
            let nothing = epoll::EventData::new_u64(0);
            epoll::add(&epoll, fd, nothing, epoll::EventFlags::IN).map_err(std::io::Error::from)?;
        }
        Ok(Auto {
            capabilities: common(&members),
            peers: Peers::new(count),
            regions: Regions::default(),
            pending: Slab::new(),
            backlog: (0..count).map(|_| VecDeque::new()).collect(),
            members,
            address,
            node,
            incarnation: Incarnation::random(),
            early: Vec::new(),
            greetings: Vec::new(),
            full: Vec::new(),
            waiting: 0,
            gone: VecDeque::new(),
            epoll,
            now: Time::ZERO,
            passes: 0,
            carding: Vec::new(),
            busy: vec![0; count],
            given: 0,
            armed: true,
        })
    }

    /// The way that was chosen to this peer, and why; `None` for a stale handle, and while the peer is asked where
    /// it is.
    #[must_use]
    pub fn chosen(&self, peer: Peer) -> Option<Chosen> {
        let entry = self.peers.get(peer)?;
        let Ok(Places::Known { node, ways }) = Places::parse(&entry.address) else { return None };
        let member = &self.members[entry.way.member];
        let way = member.endpoint.peer(entry.way.peer)?.address;
        let scheme = way.scheme();
        let why = match (node == self.node, member.reach) {
            (true, Reach::Node) => "it is on this node: the same boot, network name space and user",
            (true, Reach::Network) => "it is on this node, but not both listen to the node alone",
            (false, _) => "it is on another node, or of another container or user",
        };
        let both = |way: &&Address| {
            self.members
                .iter()
                .any(|m| m.endpoint.address().scheme() == way.scheme() && m.reach == Reach::Network)
        };
        let others: Vec<&str> = match member.reach {
            Reach::Node => Vec::new(),
            Reach::Network => ways.iter().filter(both).map(Address::scheme).collect(),
        };
        let why = match others.len() {
            0 | 1 => why.to_owned(),
            _ => format!(
                "{why}; of {}, which both have, {scheme} is preferred",
                others.join(" and ")
            ),
        };
        Some(Chosen { way, why })
    }

    /// A member is given something.
    #[inline]
    pub(crate) fn give(&mut self, member: usize) {
        self.busy[member] = self.passes;
        self.given |= 1 << member;
    }

    /// The member that is last asked for the whole address of somebody.
    pub(crate) fn asker(&self) -> usize {
        self.members.len() - 1
    }
}

impl std::fmt::Debug for Auto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auto({})", self.address)
    }
}

/// What all can do.
fn common(members: &[Member]) -> Capabilities {
    let all = || members.iter().map(|member| member.endpoint.capabilities());
    let least = |what: fn(&Capabilities) -> Support| {
        let rank = |support: &Support| match support {
            Support::Native => 2,
            Support::Emulated => 1,
            _ => 0,
        };
        all().map(what).min_by_key(rank).unwrap_or(Support::None)
    };
    let every = |what: fn(&Capabilities) -> bool| all().all(what);
    let mut limits = Limits::default();
    let smallest = |what: fn(&Limits) -> usize| {
        all().map(|capabilities| what(&capabilities.limits)).min().unwrap_or(0)
    };
    limits.max_inject = smallest(|limits| limits.max_inject);
    limits.max_message = smallest(|limits| limits.max_message);
    limits.max_header = smallest(|limits| limits.max_header);
    limits.max_atomic = smallest(|limits| limits.max_atomic);
    limits.max_transfer = all().map(|c| c.limits.max_transfer).min().unwrap_or(0);
    limits.max_pieces = smallest(|limits| limits.max_pieces);
    limits.max_regions = smallest(|limits| limits.max_regions);
    limits.max_peers = smallest(|limits| limits.max_peers);
    limits.max_leases = smallest(|limits| limits.max_leases);
    let mut capabilities = Capabilities::emulated(SCHEME, limits);
    capabilities.remote_access = least(|c| c.remote_access);
    capabilities.atomics = least(|c| c.atomics);
    capabilities.tagged = Support::None;
    capabilities.put_with_event = least(|c| c.put_with_event);
    capabilities.map = least(|c| c.map);
    capabilities.passive_target = every(|c| c.passive_target);
    capabilities.third_party = every(|c| c.third_party);
    capabilities.ordered_access = every(|c| c.ordered_access);
    capabilities.processor_atomics = every(|c| c.processor_atomics);
    let strictness = |enforcement: Enforcement| match enforcement {
        Enforcement::Owner => 2,
        Enforcement::Device => 1,
        _ => 0,
    };
    let enforcement = all().map(|c| c.enforcement).min_by_key(|e| strictness(*e));
    capabilities.enforcement = enforcement.unwrap_or(Enforcement::Owner);
    let proof = |credential: Credential| match credential {
        Credential::PeerCredentials => 2,
        Credential::SharedSecret => 1,
        _ => 0,
    };
    let credential = all().map(|c| c.credential).min_by_key(|c| proof(*c));
    capabilities.credential = credential.unwrap_or(Credential::None);
    capabilities
}
