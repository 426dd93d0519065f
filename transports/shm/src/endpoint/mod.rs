//! The endpoint: its state, its beginning and its end. Its parts are the operations of that state.

mod accept;
mod accesses;
mod at_once;
mod connect;
mod contract;
pub(crate) mod deliveries;
mod deregister;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod join;
mod packets;
mod poll;
mod receive;
#[cfg(all(test, not(loom)))]
mod tests;
mod transmit;

use crate::{
    Config, Counters, OpenError,
    access::Accesses,
    arrivals::Arrivals,
    attempts::Attempts,
    channel::Channel,
    channels::Channels,
    closing::{Abandoned, Closing},
    completions::Completions,
    cross_memory,
    exports::Exports,
    name::{Name, SCHEME},
    poller::Poller,
    schedule::PollSchedule,
    socket::Listener,
    table::SLOTS,
    watchlist::Watchlist,
};
use petasos_fabric::{
    Address, Capabilities, Credential, Done, Doorbell, Enforcement, Event, Home, Incarnation,
    LostReason, OpError, OpErrorKind, Peer, PeerState, Pool, Remote, Support, Time, Token,
    two_sided::{self, Engine},
};
use rustix::{
    io::Errno,
    process::{Resource, Rlimit, geteuid, getrlimit, setrlimit},
};
use std::{collections::VecDeque, sync::Arc};

/// Lost peers that were never resolved here stay readable until so many others followed.
const DEPARTED: usize = 1024;

/// An endpoint over the shared memory of this machine.
pub struct Shm {
    home: Home,
    config: Config,
    uid: u32,
    engine: Engine,
    capabilities: Capabilities,
    counters: Counters,

    poller: Poller,
    schedule: PollSchedule,
    doorbell: Arc<Doorbell>,
    /// Our incarnation, at an address that peers are told: whether they can read it there shows
    /// whether they can reach our memory.
    probe: Arc<u64>,

    channels: Channels,
    /// Accesses that do not go through the engine, or not yet.
    accesses: Accesses,
    /// Handles that the program has released, and accesses still name.
    released: Vec<Remote>,
    /// Connections that are being made, by this endpoint and by others.
    attempts: Attempts,
    arrivals: Arrivals,

    /// Peers whose rings are polled.
    watched: Watchlist,
    departed: VecDeque<Peer>,

    /// Regions that peers may reach.
    exports: Exports,
    /// Regions that are closed, and that peers may still be in.
    closing: Closing,
    /// Peers to which messages are under way that complete when they have arrived.
    delivering: Vec<u32>,
    completions: Completions,

    now: Time,
    armed: bool,
}

fn system(what: &'static str) -> impl Fn(Errno) -> OpenError {
    move |error| OpenError::System { what, reason: error.to_string() }
}

impl Shm {
    /// Opens an endpoint at `shm://NAME`, `shm://UID@NAME`, `shm:///PATH`, or, with `shm://` or
    /// `shm://*`, under a random name.
    ///
    /// # Errors
    /// If the name is taken, belongs to another user, or is malformed, or if the system refuses:
    /// see [`OpenError`].
    ///
    /// ```
    /// use petasos_fabric::Endpoint;
    /// use petasos_shm::Shm;
    ///
    /// let endpoint = Shm::open(&"shm://*".parse()?)?;
    /// // The address is complete: others reach the endpoint there.
    /// assert!(!endpoint.address().as_str().contains('*'));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(address: &Address) -> Result<Shm, OpenError> {
        Shm::open_with(address, Config::default())
    }

    /// The same, with other settings.
    ///
    /// # Errors
    /// As [`Shm::open`], and [`OpenError::Config`] for settings out of their bounds.
    pub fn open_with(address: &Address, config: Config) -> Result<Shm, OpenError> {
        if address.scheme() != SCHEME {
            return Err(OpenError::WrongScheme(address.clone()));
        }
        config.check().map_err(OpenError::Config)?;
        raise_descriptor_limit();
        let uid = geteuid().as_raw();
        let incarnation = Incarnation::random();
        let name = match address.rest() {
            "" | "*" => {
                let of = (!config.admit.is_empty()).then_some(uid);
                Name::random(of, Incarnation::random().get())
            }
            rest => Name::parse(rest)
                .map_err(|reason| OpenError::Malformed { address: address.clone(), reason })?,
        };
        if let Name::Of(owner, _) = &name
            && *owner != uid
        {
            return Err(OpenError::NotYours { address: address.clone(), owner: *owner, uid });
        }
        let address = Address::parse(&format!("{SCHEME}://{}", name.rest()))?;
        let listener = Listener::bind(&name, uid, !config.admit.is_empty());
        let listener = listener.map_err(|error| match error {
            Errno::ADDRINUSE => match crate::socket::taken_by(&name, uid).filter(|by| *by != uid) {
                Some(by) => OpenError::TakenBy { address: address.clone(), by },
                None => OpenError::Taken(address.clone()),
            },
            error => system("listening on a socket")(error),
        })?;
        let poller = Poller::new().map_err(system("epoll"))?;
        let doorbell = Arc::new(Doorbell::new().map_err(system("an event descriptor"))?);
        let arrivals = Arrivals::new(listener, &poller).map_err(system("epoll"))?;
        poller.add_notifier(&*doorbell).map_err(system("epoll"))?;
        let exports = Exports::new().map_err(system("a table in memory"))?;
        let limits = config.limits();
        let pool = Pool::with_bytes(config.max_leases, config.max_lease_bytes);
        let numbers = two_sided::Config::new(limits, config.max_message);
        Ok(Shm {
            home: Home::current(),
            capabilities: capabilities(&config),
            engine: Engine::new(address, incarnation, numbers, pool),
            config,
            uid,
            counters: Counters::default(),
            poller,
            schedule: PollSchedule::new(),
            doorbell,
            probe: Arc::new(incarnation.get()),
            channels: Channels::new(),
            accesses: Accesses::default(),
            released: Vec::new(),
            attempts: Attempts::default(),
            arrivals,
            watched: Watchlist::default(),
            departed: VecDeque::new(),
            exports,
            closing: Closing::default(),
            delivering: Vec::new(),
            completions: Completions::default(),
            now: Time::ZERO,
            armed: false,
        })
    }

    /// Counts since the endpoint was opened, and its state now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let channels = || self.channels.iter();
        Counters {
            peers: channels().count(),
            segments: channels().map(|channel| channel.segments.len()).sum(),
            leases: self.engine.lent(),
            turned_away: self.arrivals.turned_away(),
            accepts: self.arrivals.tries(),
            ..self.counters
        }
    }

    fn channel(&mut self, index: u32) -> Option<&mut Channel> {
        self.channels.get_mut(index)
    }

    fn complete(&mut self, token: Token, peer: Option<Peer>, result: Result<Done, OpErrorKind>) {
        let address = || Some(self.engine.peer_info(peer?)?.address);
        let result = result.map_err(|kind| match address() {
            Some(address) => OpError::with_peer(kind, &address),
            None => OpError::local(kind),
        });
        self.completions.push(Event::Done { token, result });
    }

    // The end of a peer.

    /// The peer broke the protocol: it is cut off at once.
    fn violated(&mut self, index: u32, what: String) {
        self.counters.violations += 1;
        self.lose(index, LostReason::Protocol(what));
    }

    /// Declares a peer lost.
    fn lose(&mut self, index: u32, reason: LostReason) {
        let Some(peer) = self.engine.peer_at(index) else {
            return;
        };
        let uninvited = self.channel(index).is_some_and(|channel| channel.uninvited);
        self.let_go(peer, &reason);
        self.engine.peer_lost(peer, reason);
        if uninvited {
            self.departed.push_back(peer);
            if self.departed.len() > DEPARTED
                && let Some(oldest) = self.departed.pop_front()
                && matches!(self.engine.peer_info(oldest), Some(info) if matches!(info.state, PeerState::Lost(_)))
            {
                self.engine.reuse(oldest);
            }
        }
    }

    /// Closes the channel, and fails what does not go through the engine.
    fn let_go(&mut self, peer: Peer, reason: &LostReason) {
        let index = peer.index;
        self.attempts.remove(peer);
        self.ring_pending();
        self.end_deliveries(index, peer, &OpErrorKind::PeerLost(reason.clone()));
        if let Some(channel) = self.channels.remove(index) {
            // Its bell is known to the peer, too, and stays in the set until no process has it.
            self.poller.remove(&channel.doorbell);
            self.poller.remove(channel.process.socket());
            let address = self.engine.peer_info(peer).map(|info| info.address);
            self.closing.keep(Abandoned::of(*channel, address));
        }
        self.watched.remove(index);
        self.accesses.unschedule(index);
        while let Some(access) = self.accesses.take(index) {
            let kind = OpErrorKind::PeerLost(reason.clone());
            self.complete(access.token(), Some(peer), Err(kind));
        }
    }
}

fn capabilities(config: &Config) -> Capabilities {
    let reached = config.cross_memory && cross_memory::allowed().is_ok();
    let native = if reached { Support::Native } else { Support::Emulated };
    let mut all = Capabilities::emulated(SCHEME, config.limits());
    all.remote_access = native;
    all.flush = native;
    all.fences = true;
    all.put_with_event = native;
    all.map = Support::Native;
    all.passive_target = reached;
    all.enforcement = Enforcement::Initiator;
    all.credential = Credential::PeerCredentials;
    all
}

/// Each peer takes four descriptors: the soft limit goes up to the hard one.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

impl Drop for Shm {
    /// Closes everything, and waits for no peer: memory that a peer is copying from or to right now
    /// is let go once it has left, or is gone.
    fn drop(&mut self) {
        // What peers look at is the parent's.
        if self.home.is_current() {
            self.leave_memory_behind();
        }
    }
}

impl std::fmt::Debug for Shm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Shm({})", self.engine.address())
    }
}

const _: () = assert!(SLOTS <= u32::MAX as usize);
