//! What an endpoint is made of.

use crate::{
    Config, Counters, OpenError,
    access::Accesses,
    exposure::Exposures,
    kept::Kept,
    link::Link,
    net::{Net, Node, Sizes},
    providers::{Meeting, Provider},
};
use petasos_fabric::{
    Address, Capabilities, Credential, Endpoint, Enforcement, Event, Peer, Pool, Support, Time,
    two_sided::{self, Engine, header},
};
use rustix::event::epoll;
use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// An endpoint of the fabric over libfabric.
pub struct Ofi {
    /// Closed before what it works for: what was opened to others first, then the provider's endpoint.
    pub(crate) exposures: Exposures,
    pub(crate) kept: Kept,
    pub(crate) accesses: Accesses,
    pub(crate) net: Net,
    /// The endpoint by which peers meet, which vouches for them, notices their end, and rings.
    pub(crate) control: Box<dyn Endpoint>,
    pub(crate) engine: Engine,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: Config,
    pub(crate) provider: &'static Provider,
    /// The provider's own name, which both sides must have in common.
    pub(crate) protocol: String,
    /// By the slot of the peer.
    pub(crate) links: Vec<Option<Box<Link>>>,
    /// Serial numbers at which the next user of a slot begins.
    pub(crate) serials: Vec<u32>,
    pub(crate) met: HashMap<Peer, Peer>,
    /// Peers to be sent to.
    pub(crate) outgoing: VecDeque<u32>,
    /// Peers to be told what was taken.
    pub(crate) owing: Vec<u32>,
    /// Peers with parked packets.
    pub(crate) paused: Vec<u32>,
    /// Peers that are gone, and may have said more.
    pub(crate) ending: Vec<Peer>,
    /// Lost peers that came to us, whose handles are still known.
    pub(crate) gone: VecDeque<Peer>,
    /// Nodes that are not used any more: until when they stay, and what was under way with them.
    pub(crate) buried: VecDeque<(Node, Time, u32)>,
    /// Events that were found on the short way, and come first.
    pub(crate) early: Vec<Event>,
    pub(crate) mail: Vec<Event>,
    /// Whether peers ring for each other: where the provider has nothing to sleep on.
    pub(crate) rings: bool,
    /// Peers to be told something on the control connection.
    pub(crate) errands: Vec<u32>,
    pub(crate) epoll: OwnedFd,
    pub(crate) now: Time,
    /// Passes since the last sleep, and since something last came.
    pub(crate) passes: u32,
    pub(crate) quiet: u32,
    /// Naps in a row.
    pub(crate) naps: u32,
    pub(crate) idle: bool,
    pub(crate) armed: bool,
    pub(crate) counters: Counters,
}

impl Ofi {
    /// Opens an endpoint: `ofi+PROVIDER://HOST:PORT` (as [`petasos_tcp::TcpEndpoint::open`] has it, port 0
    /// for a free one), `ofi+shm://NAME`, or `ofi://HOST:PORT` for the best network that is here.
    pub fn open(address: &Address, config: Config) -> Result<Ofi, OpenError> {
        config.check().map_err(OpenError::Config)?;
        let provider = Provider::of(address)?;
        let control = provider.meet(address.rest(), &config)?;
        let own = provider.ours(control.address());
        let offer = provider.must_offer(host(own.rest()))?;
        let mut limits = config.limits;
        let mut fragment = Config::MAX_MESSAGE;
        // Version 2 loses the ends of long packets and of accesses on shared memory, or crashes on them: there
        // everything goes in packets that it takes before the call returns.
        let modest = provider.meeting == Meeting::Shm && offer.library().major() >= 2;
        if modest {
            fragment =
                offer.inject_size().saturating_sub(crate::frame::HEAD + header::MAX).max(256);
            limits.max_message = limits.max_message.min(fragment);
            limits.max_inject = limits.max_inject.min(fragment);
            limits.max_header = limits.max_header.min(fragment);
        }
        let sizes = Sizes {
            packet: crate::frame::HEAD + header::MAX + fragment,
            sends: config.sends,
            slabs: config.slabs,
            slab: config.slab,
        };
        let net = Net::open(&offer, sizes)?;
        let epoll = sleepable(&*control, &net).map_err(|error| OpenError::System {
            what: "waiting for several things",
            error: error.into(),
        })?;
        let mut capabilities = Capabilities::emulated(provider.scheme, limits);
        capabilities.credential = match provider.meeting {
            Meeting::Shm => Credential::PeerCredentials,
            Meeting::Tcp if config.secret.is_some() => Credential::SharedSecret,
            Meeting::Tcp => Credential::None,
        };
        let native = config.remote_access && net.facts().rma && !modest;
        if native {
            capabilities.remote_access = Support::Native;
            // In software the provider checks, in the owner's process.
            capabilities.enforcement = match provider.is_software() {
                true => Enforcement::Owner,
                false => Enforcement::Device,
            };
        }
        let mut numbers = two_sided::Config::new(limits, fragment);
        numbers.get_chunk = 256 << 10;
        let pool = Pool::new(limits.max_leases);
        Ok(Ofi {
            exposures: Exposures::default(),
            kept: Kept::new(if native { config.keep_registered } else { 0 }),
            accesses: Accesses::new(native),
            engine: Engine::new(own, control.incarnation(), numbers, pool),
            rings: net.wait_fd().is_none(),
            net,
            control,
            capabilities,
            config,
            provider,
            protocol: offer.provider(),
            links: Vec::new(),
            serials: Vec::new(),
            met: HashMap::new(),
            outgoing: VecDeque::new(),
            owing: Vec::new(),
            paused: Vec::new(),
            ending: Vec::new(),
            gone: VecDeque::new(),
            buried: VecDeque::new(),
            early: Vec::new(),
            mail: Vec::new(),
            errands: Vec::new(),
            epoll,
            now: Time::ZERO,
            passes: 0,
            quiet: 0,
            naps: 0,
            idle: false,
            armed: true,
            counters: Counters::default(),
        })
    }

    /// What the endpoint did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { kept_bytes: self.kept.bytes(), ..self.counters }
    }

    /// The provider that carries it, in libfabric's words.
    #[must_use]
    pub fn carrier(&self) -> &str {
        &self.protocol
    }

    /// Its own name in the provider's network, by which packets reach it.
    #[must_use]
    pub fn fabric_name(&self) -> &[u8] {
        self.net.name()
    }

    pub(crate) fn link(&mut self, peer: Peer) -> Option<&mut Link> {
        let link = self.links.get_mut(peer.index as usize)?.as_deref_mut()?;
        (link.peer == peer).then_some(link)
    }
}

/// The host of `HOST:PORT`, without brackets.
fn host(rest: &str) -> Option<&str> {
    let (host, _) = rest.rsplit_once(':')?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// A descriptor that is readable when one of both has something to do.
fn sleepable(control: &dyn Endpoint, net: &Net) -> rustix::io::Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let nothing = epoll::EventData::new_u64(0);
    if let Some(fd) = control.fd() {
        epoll::add(&epoll, fd, nothing, epoll::EventFlags::IN)?;
    }
    if let Some(fd) = net.wait_fd() {
        epoll::add(&epoll, fd, nothing, epoll::EventFlags::IN)?;
    }
    Ok(epoll)
}

impl AsFd for Ofi {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl std::fmt::Debug for Ofi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ofi({}, {})", self.engine.address(), self.protocol)
    }
}
