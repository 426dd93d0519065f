//! The state of an endpoint.

use crate::{
    AutoAddress, Member, Node, OpenError, SCHEME, Scope, address::MOST, greetings::Greetings,
    handshake::LONGEST, outstanding::Outstanding, pace::Pace, peers::Peers, regions::Regions,
};
use petasos_fabric::{
    Address, Capabilities, Credential, Enforcement, Event, Incarnation, Limits, Peer, Support, Time,
};
use rustix::event::epoll;
use std::os::fd::OwnedFd;

/// An endpoint of several transports: see the crate's page.
///
/// ```
/// use petasos_auto::{Auto, Member, Node, Scope};
/// use petasos_fabric::{Address, Endpoint};
///
/// let shm = petasos_shm::Shm::open(&Address::parse("shm://*")?)?;
/// let tcp = petasos_tcp::TcpEndpoint::open(&Address::parse("tcp://*")?, Default::default())?;
/// let members = vec![
///     Member { endpoint: Box::new(shm), scope: Scope::Node },
///     Member { endpoint: Box::new(tcp), scope: Scope::Network },
/// ];
/// let endpoint = Auto::open(Node::here(), members)?;
/// assert_eq!(endpoint.address().scheme(), "auto");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Auto {
    pub(crate) members: Vec<Member>,
    pub(crate) address: Address,
    pub(crate) node: Node,
    pub(crate) incarnation: Incarnation,
    pub(crate) capabilities: Capabilities,
    pub(crate) peers: Peers,
    pub(crate) regions: Regions,
    pub(crate) outstanding: Outstanding,
    /// Events that are reported next.
    pub(crate) early: Vec<Event>,
    pub(crate) greetings: Greetings,
    /// Peers for which `inject` returned `Full` by itself.
    pub(crate) full: Vec<Peer>,
    pub(crate) epoll: OwnedFd,
    pub(crate) now: Time,
    pub(crate) pace: Pace,
}

/// The route that was chosen to a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Chosen {
    /// The peer's address at the member that reaches it.
    pub address: Address,
    /// Why this route was chosen, as a sentence for users.
    pub why: String,
}

impl Auto {
    /// Makes one endpoint of several, from 1 to 6. `node` is where this process is: [`Node::here`].
    /// Members for the node come first, then networks in the order of preference; the last one
    /// answers peers that ask for the whole address.
    ///
    /// # Errors
    /// There are no members, or too many; two have the same scheme; an address contains a comma, or
    /// all together are too long; a transport's messages are too short for a handshake message; or
    /// the system refused a descriptor.
    pub fn open(node: Node, mut members: Vec<Member>) -> Result<Auto, OpenError> {
        let count = members.len();
        if count == 0 || count > MOST {
            return Err(OpenError::Members { count });
        }
        members.sort_by_key(|member| member.scope);
        let mut addresses: Vec<Address> = Vec::new();
        for member in &members {
            let address = member.endpoint.address();
            if addresses.iter().any(|other| other.scheme() == address.scheme()) {
                return Err(OpenError::Twice(address.scheme().to_owned()));
            }
            if address.as_str().contains(',') {
                return Err(OpenError::Comma(address.clone()));
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
            addresses.push(address.clone());
        }
        let address = AutoAddress::compose(node, &addresses)?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(std::io::Error::from)?;
        for fd in members.iter().filter_map(|member| member.endpoint.fd()) {
            let nothing = epoll::EventData::new_u64(0);
            epoll::add(&epoll, fd, nothing, epoll::EventFlags::IN).map_err(std::io::Error::from)?;
        }
        Ok(Auto {
            capabilities: common(&members),
            peers: Peers::new(count),
            regions: Regions::default(),
            outstanding: Outstanding::new(count),
            members,
            address,
            node,
            incarnation: Incarnation::random(),
            early: Vec::new(),
            greetings: Greetings::default(),
            full: Vec::new(),
            epoll,
            now: Time::ZERO,
            pace: Pace::new(count),
        })
    }

    /// The route that was chosen to this peer, and why; `None` for a stale handle, and while the
    /// peer is asked for its whole address.
    #[must_use]
    pub fn chosen(&self, peer: Peer) -> Option<Chosen> {
        let entry = self.peers.get(peer)?;
        let Ok(AutoAddress::Whole { node, members }) = AutoAddress::parse(&entry.address) else {
            return None;
        };
        let member = &self.members[entry.route.member];
        let address = member.endpoint.peer(entry.route.peer)?.address;
        let scheme = address.scheme();
        let why = match (node == self.node, member.scope) {
            (true, Scope::Node) => "it is on this node: the same boot, network name space and user",
            (true, Scope::Network) => {
                "it is on this node, but not both have a transport for one node only"
            }
            (false, _) => "it is on another node, or belongs to another container or user",
        };
        let both = |address: &&Address| {
            self.members.iter().any(|m| {
                m.endpoint.address().scheme() == address.scheme() && m.scope == Scope::Network
            })
        };
        let others: Vec<&str> = match member.scope {
            Scope::Node => Vec::new(),
            Scope::Network => members.iter().filter(both).map(Address::scheme).collect(),
        };
        let why = match others.len() {
            0 | 1 => why.to_owned(),
            _ => format!(
                "{why}; of {}, which both have, {scheme} is preferred",
                others.join(" and ")
            ),
        };
        Some(Chosen { address, why })
    }

    /// The member by which a peer is asked for its whole address.
    pub(crate) fn asker(&self) -> usize {
        self.members.len() - 1
    }
}

impl std::fmt::Debug for Auto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Auto({})", self.address)
    }
}

/// What all members can do.
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
