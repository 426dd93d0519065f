//! What an endpoint is made of.

use crate::{
    Config, Counters, OpenError,
    access::Accesses,
    exposure::Exposures,
    frame::{HEAD, Notice},
    kept::Kept,
    link::Link,
    lost::Lost,
    network::{Medium, Meeting, Network, Node},
};
use petasos_fabric::{
    Address, Capabilities, Credential, Endpoint, Event, Home, Peer, Pool, Support, Time,
    two_sided::{self, Engine, header},
};
use rustix::event::epoll;
use std::{
    collections::{HashMap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

/// An endpoint of the fabric over the datagrams of a library.
pub struct Datagrams<N: Network> {
    pub(crate) home: Home,
    /// Closed before what it works for: what was opened to others first, then the library's endpoint.
    pub(crate) exposures: Exposures<N::Opened>,
    pub(crate) kept: Kept<N::Opened>,
    pub(crate) accesses: Accesses<N::Key>,
    pub(crate) net: N,
    /// The endpoint by which peers meet, which vouches for them, notices their end, and rings.
    pub(crate) control: Box<dyn Endpoint>,
    pub(crate) engine: Engine,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: Config,
    pub(crate) medium: Medium,
    /// By the slot of the peer.
    pub(crate) links: Vec<Option<Box<Link>>>,
    /// Serial numbers at which the next user of a slot begins.
    pub(crate) serials: Vec<u32>,
    pub(crate) met: HashMap<Peer, Peer>,
    /// The slots of peers, by what their notices begin with.
    pub(crate) notices: HashMap<u64, u32>,
    /// Peers to be sent to.
    pub(crate) outgoing: VecDeque<u32>,
    /// Peers to be told what was taken.
    pub(crate) owing: Vec<u32>,
    /// Peers with deferred packets.
    pub(crate) paused: Vec<u32>,
    /// Peers that are gone, and may have said more.
    pub(crate) ending: Vec<Peer>,
    /// Lost peers that came to us, whose handles are still known.
    pub(crate) gone: VecDeque<Peer>,
    /// Nodes that are not used any more: until when they stay, and of whom they were.
    pub(crate) buried: VecDeque<(Node, Time, Peer)>,
    pub(crate) lost: Lost,
    /// Events that were found on the short way, and come first.
    pub(crate) early: Vec<Event>,
    pub(crate) mail: Vec<Event>,
    /// Whether peers ring for each other: where the library has nothing to sleep on.
    pub(crate) rings: bool,
    /// Peers to be told something on the control connection.
    pub(crate) errands: Vec<u32>,
    pub(crate) epoll: OwnedFd,
    pub(crate) now: Time,
    /// Passes, and messages taken on the short way, since the last sleep; passes since something last came; and how many
    /// until the control endpoint has its turn, and packets that had come at its last one.
    pub(crate) passes: u32,
    pub(crate) quiet: u32,
    pub(crate) turn: u32,
    pub(crate) attended: u64,
    /// Naps in a row.
    pub(crate) naps: u32,
    pub(crate) idle: bool,
    pub(crate) armed: bool,
    /// The library was just asked, and had nothing.
    pub(crate) looked: bool,
    pub(crate) counters: Counters,
}

impl<N: Network> Datagrams<N> {
    /// Opens an endpoint at an address: which ones there are, and what they mean, is the network's to say.
    ///
    /// # Errors
    /// The address is none of this network's, nobody can meet there, or the library refused.
    pub fn open(address: &Address, config: Config) -> Result<Datagrams<N>, N::OpenError> {
        config.check().map_err(OpenError::Config)?;
        let (kind, medium) = N::kind(address)?;
        let control = medium.meet(address.rest(), &config)?;
        let own = medium.ours(control.address());
        let net = N::open(kind, host(own.rest()), HEAD + header::MAX, &config)?;
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
        let notices_from = match native && Notice::names(net.facts().notice_bits) > 0 {
            true => config.notices_from.unwrap_or(net.facts().notices_from).max(1),
            false => u64::MAX,
        };
        if native {
            capabilities.remote_access = Support::Native;
            capabilities.enforcement = net.facts().enforcement;
            if notices_from < u64::MAX {
                capabilities.put_with_event = Support::Native;
                capabilities.native_event_from = Some(notices_from);
            }
        }
        let mut numbers = two_sided::Config::new(limits, fragment);
        numbers.get_chunk = 256 << 10;
        let pool = Pool::new(limits.max_leases);
        Ok(Datagrams {
            home: Home::here(),
            exposures: Exposures::default(),
            kept: Kept::new(if native { config.keep_registered } else { 0 }),
            accesses: Accesses::new(native, notices_from),
            engine: Engine::new(own, control.incarnation(), numbers, pool),
            rings: net.wait_fd().is_none(),
            net,
            control,
            capabilities,
            config,
            medium,
            links: Vec::new(),
            serials: Vec::new(),
            met: HashMap::new(),
            notices: HashMap::new(),
            outgoing: VecDeque::new(),
            owing: Vec::new(),
            paused: Vec::new(),
            ending: Vec::new(),
            gone: VecDeque::new(),
            buried: VecDeque::new(),
            lost: Lost::default(),
            early: Vec::new(),
            mail: Vec::new(),
            errands: Vec::new(),
            epoll,
            now: Time::ZERO,
            passes: 0,
            quiet: 0,
            turn: 0,
            attended: 0,
            naps: 0,
            idle: false,
            armed: true,
            looked: false,
            counters: Counters::default(),
        })
    }

    /// What the endpoint did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters { kept_bytes: self.kept.bytes(), lost: self.lost.count(), ..self.counters }
    }

    /// What carries it, in the library's words.
    #[must_use]
    pub fn carrier(&self) -> &str {
        &self.net.facts().protocol
    }

    /// Its own name in the library's network, by which packets reach it.
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
