//! The state of an endpoint.

use crate::{
    AutoAddress, Member, Node, OpenError, Scope, address::MOST, capabilities, departed::Departed,
    expected::Expected, greetings::Greetings, handshake::LONGEST, outstanding::Outstanding,
    pace::Pace, peers::Peers, regions::Regions,
};
use petasos_fabric::{Address, Capabilities, Event, Incarnation, Peer, Remote, Time};
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
/// let endpoint = Auto::open(Node::local(), members)?;
/// assert_eq!(endpoint.address().scheme(), "auto");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Auto {
    pub(crate) members: Vec<Member>,
    pub(crate) address: Address,
    pub(crate) node: Node,
    pub(crate) incarnation: Incarnation,
    /// With every peer.
    pub(crate) capabilities: Capabilities,
    /// With the peers on the route of each member.
    pub(crate) by_member: Vec<Capabilities>,
    pub(crate) peers: Peers,
    pub(crate) regions: Regions,
    pub(crate) departed: Departed,
    pub(crate) outstanding: Outstanding,
    pub(crate) expected: Expected,
    /// Events that are reported next.
    pub(crate) early: Vec<Event>,
    /// Handles that the program has released, and operations that no member was given still name.
    pub(crate) released: Vec<Remote>,
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
    /// Makes one endpoint of several, from 1 to 6. `node` is where this process is: [`Node::local`].
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
        let common = capabilities::common(&members);
        Ok(Auto {
            by_member: members.iter().map(|m| capabilities::over(m, &common)).collect(),
            capabilities: common,
            peers: Peers::new(count),
            regions: Regions::default(),
            departed: Departed::default(),
            outstanding: Outstanding::new(count),
            expected: Expected::default(),
            pace: Pace::new(&members),
            members,
            address,
            node,
            incarnation: Incarnation::random(),
            early: Vec::new(),
            released: Vec::new(),
            greetings: Greetings::default(),
            full: Vec::new(),
            epoll,
            now: Time::ZERO,
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

    /// What this endpoint can do over each of its members: the member's scheme, and what
    /// [`capabilities_of`](petasos_fabric::Endpoint::capabilities_of) says of a peer that is up and
    /// has this route. Members for the node come first.
    pub fn routes(&self) -> impl Iterator<Item = (&str, &Capabilities)> {
        let schemes = self.members.iter().map(|member| member.endpoint.address().scheme());
        schemes.zip(&self.by_member)
    }

    /// An event is reported next.
    pub(crate) fn report(&mut self, event: Event) {
        self.early.push(event);
        self.pace.add_chores();
    }

    /// `inject` returned `Full` by itself: it is reported when there is room.
    pub(crate) fn owe_room(&mut self, peer: Peer) {
        self.full.push(peer);
        self.pace.add_chores();
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
