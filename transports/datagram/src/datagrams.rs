//! The state of an endpoint.

use crate::{
    Config, Counters, OpenError,
    access::Accesses,
    cache::RegistrationCache,
    exposures::Exposures,
    frame::{CompletionData, Control, HEADER_LEN},
    grants::Grants,
    links::Links,
    lists::Lists,
    lost::Lost,
    network::{Medium, Meeting, Network},
    pace::Pace,
};
use petasos_fabric::{
    Address, Capabilities, Credential, Endpoint, Event, Home, Peer, Pool, Support, Time,
    two_sided::{self, Engine, header},
};
use rustix::event::epoll;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An endpoint of the fabric over the datagrams of a library.
pub struct Datagrams<N: Network> {
    pub(crate) home: Home,
    /// The order in which these are dropped: first the memory that was opened to others, then the
    /// library's endpoint.
    pub(crate) exposures: Exposures<N::Opened>,
    pub(crate) cache: RegistrationCache<N::Opened>,
    pub(crate) accesses: Accesses,
    pub(crate) grants: Grants<N::Key>,
    pub(crate) net: N,
    /// The endpoint by which peers meet: it authenticates them, notices their end, and rings.
    pub(crate) control: Box<dyn Endpoint>,
    pub(crate) engine: Engine,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: Config,
    pub(crate) medium: Medium,
    /// What peers must speak as well.
    pub(crate) protocol: String,
    /// Peers were told that it ends.
    pub(crate) parted: bool,
    pub(crate) links: Links,
    pub(crate) lists: Lists,
    pub(crate) lost: Lost,
    /// Events that were found on the fast path, and come first.
    pub(crate) early: Vec<Event>,
    /// Events of the control endpoint that were not taken in yet.
    pub(crate) control_events: Vec<Event>,
    /// Whether packets are a card's; what peers say about memory then: the card takes it in.
    pub(crate) carries_card: bool,
    pub(crate) memory_controls: Vec<(Peer, Control)>,
    /// Whether peers ring for each other: where the library has nothing to sleep on.
    pub(crate) rings: bool,
    pub(crate) epoll: OwnedFd,
    pub(crate) now: Time,
    pub(crate) pace: Pace,
    pub(crate) counters: Counters,
}

impl<N: Network> Datagrams<N> {
    /// Opens an endpoint at an address of the network: see the transports for their addresses.
    ///
    /// # Errors
    /// The configuration is not valid, the address is none of this network's, the endpoint by which
    /// peers meet cannot be opened there, or the library refused.
    pub fn open(address: &Address, config: Config) -> Result<Datagrams<N>, N::OpenError> {
        Datagrams::open_for(address, config, "", HEADER_LEN + header::MAX)
    }

    /// Opens an endpoint; `carries` is what its packets carry, before the library's protocol, if
    /// they are not those of the engine, and `headers` how long all headers of a packet are.
    pub(crate) fn open_for(
        address: &Address,
        config: Config,
        carries: &str,
        headers: usize,
    ) -> Result<Datagrams<N>, N::OpenError> {
        config.check().map_err(OpenError::Config)?;
        let (kind, medium) = N::kind(address)?;
        let control = medium.meet(address.rest(), &config)?;
        let own = medium.ours(control.address());
        let net = N::open(kind, host(own.rest()), headers, &config)?;
        let mut limits = config.limits;
        let fragment = net.facts().fragment.min(Config::MAX_MESSAGE);
        limits.max_message = limits.max_message.min(fragment);
        limits.max_inject = limits.max_inject.min(fragment);
        if fragment < Config::MAX_MESSAGE {
            limits.max_header = limits.max_header.min(fragment);
        }
        let epoll = sleepable(&*control, &net).map_err(|error| OpenError::System {
            what: "waiting for several things",
            error: error.into(),
        })?;
        let mut capabilities = Capabilities::emulated(medium.scheme, limits);
        capabilities.credential = match medium.meeting {
            Meeting::Shm => Credential::PeerCredentials,
            Meeting::Tcp if config.secret.is_some() => Credential::SharedSecret,
            Meeting::Tcp => Credential::None,
        };
        let native = config.remote_access && net.facts().access.is_some();
        let completion_data_from = match native && CompletionData::names(net.facts().data_bits) > 0
        {
            true => config.completion_data_from.unwrap_or(net.facts().completion_data_from).max(1),
            false => u64::MAX,
        };
        if native {
            capabilities.remote_access = Support::Native;
            capabilities.flush = Support::Native;
            capabilities.enforcement = net.facts().enforcement;
            if completion_data_from < u64::MAX {
                capabilities.put_with_event = Support::Native;
                capabilities.native_event_from = Some(completion_data_from);
            }
        }
        let mut numbers = two_sided::Config::new(limits, fragment);
        numbers.get_chunk = 256 << 10;
        let pool = Pool::new(limits.max_leases);
        let protocol = format!("{carries}{}", net.facts().protocol);
        Ok(Datagrams {
            home: Home::current(),
            exposures: Exposures::default(),
            cache: RegistrationCache::new(if native { config.keep_registered } else { 0 }),
            accesses: Accesses::new(),
            grants: Grants::new(),
            engine: Engine::new(own, control.incarnation(), numbers, pool),
            rings: net.wait_fd().is_none(),
            net,
            control,
            capabilities,
            config,
            medium,
            protocol,
            parted: false,
            links: Links::default(),
            lists: Lists::default(),
            lost: Lost::default(),
            early: Vec::new(),
            control_events: Vec::new(),
            memory_controls: Vec::new(),
            carries_card: !carries.is_empty(),
            epoll,
            now: Time::ZERO,
            pace: Pace::new(),
            counters: Counters::default(),
        })
    }

    /// Whether the library can access remote memory.
    pub(crate) fn has_native_access(&self) -> bool {
        self.capabilities.remote_access == Support::Native
    }

    /// What the endpoint did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { kept_bytes: self.cache.bytes(), lost: self.lost.count(), ..self.counters }
    }

    /// The protocol that carries its packets, in the library's words.
    #[must_use]
    pub fn carrier(&self) -> &str {
        &self.net.facts().protocol
    }

    /// Its own name in the library's network, by which packets reach it.
    #[must_use]
    pub fn fabric_name(&self) -> &[u8] {
        self.net.name()
    }
}

/// The host of `HOST:PORT`, without brackets.
fn host(rest: &str) -> Option<&str> {
    let (host, _) = rest.rsplit_once(':')?;
    Some(host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host))
}

/// A descriptor that is readable when one of both has something to do.
fn sleepable<N: Network>(control: &dyn Endpoint, net: &N) -> rustix::io::Result<OwnedFd> {
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

impl<N: Network> AsFd for Datagrams<N> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl<N: Network> std::fmt::Debug for Datagrams<N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Datagrams({}, {})", self.engine.address(), self.carrier())
    }
}
