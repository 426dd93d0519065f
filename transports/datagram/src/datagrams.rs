//! What is below a NIC: numbered packets to peers and from them, and how peers are met and lost.

use crate::{
    Config, Counters, OpenError,
    cache::RegistrationCache,
    frame::{CHANNELS, CompletionData, Control},
    grants::Grants,
    links::Links,
    lists::Lists,
    lost::Lost,
    network::{Medium, Meeting, Network},
    pace::Pace,
    peers::Peers,
};
use petasos_fabric::{Address, Credential, Endpoint, Event, Home, Incarnation, Peer, Time};
use rustix::event::epoll;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// An endpoint of a library, and its peers.
pub(crate) struct Datagrams<N: Network> {
    pub(crate) home: Home,
    /// The order in which these are dropped: first the memory that was opened to others, then the
    /// library's endpoint.
    pub(crate) cache: RegistrationCache<N::Opened>,
    pub(crate) grants: Grants<N::Key>,
    pub(crate) net: N,
    /// The endpoint by which peers meet: it authenticates them, notices their end, and rings.
    pub(crate) control: Box<dyn Endpoint>,
    address: Address,
    pub(crate) peers: Peers,
    pub(crate) credential: Credential,
    /// Whether the library accesses memory of peers.
    pub(crate) native: bool,
    /// From which length on the library may write data that goes with a packet; `u64::MAX` if it
    /// does not.
    pub(crate) payloads_from: u64,
    pub(crate) config: Config,
    pub(crate) medium: Medium,
    /// What peers must speak as well.
    pub(crate) protocol: String,
    pub(crate) links: Links,
    pub(crate) lists: Lists,
    pub(crate) lost: Lost,
    /// Events of the control endpoint that were not taken in yet.
    pub(crate) control_events: Vec<Event>,
    /// What peers say about memory, for the NIC.
    pub(crate) memory_controls: Vec<(Peer, Control)>,
    /// Whether peers ring for each other: where the library has nothing to sleep on.
    pub(crate) rings: bool,
    epoll: OwnedFd,
    pub(crate) now: Time,
    pub(crate) pace: Pace,
    pub(crate) counters: Counters,
}

impl<N: Network> Datagrams<N> {
    /// Opens an endpoint at an address of the network; `headers` is how long all headers of a
    /// packet are.
    ///
    /// # Errors
    /// The configuration is not valid, the address is none of this network's, the endpoint by which
    /// peers meet cannot be opened there, or the library refused.
    pub(crate) fn open(
        address: &Address,
        config: Config,
        headers: usize,
    ) -> Result<Datagrams<N>, N::OpenError> {
        config.check().map_err(OpenError::Config)?;
        let (kind, medium) = N::kind(address)?;
        let control = medium.meet(address.rest(), &config)?;
        let address = medium.ours(control.address());
        let net = N::open(kind, host(address.rest()), headers, &config)?;
        let epoll = sleepable(&*control, &net).map_err(|error| OpenError::System {
            what: "waiting for several things",
            error: error.into(),
        })?;
        let credential = match medium.meeting {
            Meeting::Shm => Credential::PeerCredentials,
            Meeting::Tcp if config.secret.is_some() => Credential::SharedSecret,
            Meeting::Tcp => Credential::None,
        };
        let facts = net.facts();
        let native = config.remote_access && facts.access.is_some();
        let payloads_from = match native && CompletionData::names(facts.data_bits) > 0 {
            true => config.completion_data_from.unwrap_or(facts.completion_data_from).max(1),
            false => u64::MAX,
        };
        let protocol = format!("{CHANNELS}{}", facts.protocol);
        Ok(Datagrams {
            home: Home::current(),
            cache: RegistrationCache::new(if native { config.keep_registered } else { 0 }),
            grants: Grants::new(),
            rings: net.wait_fd().is_none(),
            net,
            control,
            address,
            peers: Peers::new(config.limits.max_peers),
            credential,
            native,
            payloads_from,
            config,
            medium,
            protocol,
            links: Links::default(),
            lists: Lists::default(),
            lost: Lost::default(),
            control_events: Vec::new(),
            memory_controls: Vec::new(),
            epoll,
            now: Time::ZERO,
            pace: Pace::new(),
            counters: Counters::default(),
        })
    }

    /// Where it is.
    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// Which life of it.
    pub(crate) fn incarnation(&self) -> Incarnation {
        self.control.incarnation()
    }

    /// What the endpoint did so far.
    pub(crate) fn counters(&self) -> Counters {
        Counters { kept_bytes: self.cache.bytes(), lost: self.lost.count(), ..self.counters }
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
