//! The endpoint: its state, and what comes in.

use crate::{
    access::Step,
    closing::Closing,
    flush::Queued,
    hub::{Content, Hub, MAX_MESSAGE, Packet, Tagged},
    matching::{Arrived, Fetch, Matching, Posted},
    offer::{Offer, Offers},
    peers::{Peers, State},
    registry,
    remotes::Remotes,
};
use petasos_fabric::{
    Address, AddressError, Body, Capabilities, Done, Doorbell, Event, Limits, LostReason, OpError,
    OpErrorKind, Peer, Streak, Support, Time, Token, fence::Next,
};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// An endpoint of the fabric inside this process.
pub struct Local {
    pub(crate) hub: Arc<Hub>,
    pub(crate) capabilities: Capabilities,
    /// The time of the last `progress`.
    pub(crate) now: Option<Time>,
    pub(crate) peers: Peers,
    pub(crate) matching: Matching,
    pub(crate) remotes: Remotes,
    /// Bodies of long messages, which their senders offer.
    pub(crate) bodies: HashMap<Body, Arc<Offer>>,
    /// What this endpoint offers.
    pub(crate) offers: Offers,
    pub(crate) fetches: VecDeque<Fetch>,
    pub(crate) closing: Closing,
    pub(crate) ready: VecDeque<Event>,
    pub(crate) mail: VecDeque<Packet>,
    /// Operations accepted whose completion is not in `ready` yet.
    pub(crate) outstanding: usize,
    /// Peers of operations that were refused.
    pub(crate) refused: Vec<Peer>,
    pub(crate) armed: bool,
    /// Completions that were polled since the last pass.
    pub(crate) streak: Streak,
}

/// Why an endpoint was not opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Of another transport, or without a name.
    #[error("{0} is not for this transport: write self://NAME, or self://* for any name")]
    NotSelf(Address),
    /// Another endpoint of this process has the address.
    #[error("{0} is open already in this process")]
    Taken(Address),
    /// The system refused something.
    #[error("the system said: {0}")]
    System(String),
}

/// The scheme of the addresses.
pub(crate) const SCHEME: &str = "self";

impl Local {
    /// Opens an endpoint at `self://NAME`, or with a random name at `self://*`.
    ///
    /// # Errors
    /// If the address is of another transport or has no name, if another endpoint of this process
    /// has it, or if the system has no descriptor for a doorbell: see [`OpenError`].
    ///
    /// ```
    /// use petasos_fabric::Endpoint;
    /// use petasos_self::{Local, OpenError};
    ///
    /// let endpoint = Local::open(&"self://worker".parse()?)?;
    /// assert_eq!(endpoint.address().as_str(), "self://worker");
    /// let again = Local::open(&"self://worker".parse()?);
    /// assert!(matches!(again, Err(OpenError::Taken(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(address: &Address) -> Result<Local, OpenError> {
        if address.scheme() != SCHEME || address.rest().is_empty() {
            return Err(OpenError::NotSelf(address.clone()));
        }
        let address = if address.rest() == "*" {
            let name = getrandom::u64().map_err(|e| OpenError::System(e.to_string()))?;
            Address::parse(&format!("{SCHEME}://{name:016x}"))?
        } else {
            address.clone()
        };
        let mut limits = Limits::default();
        limits.max_message = MAX_MESSAGE;
        limits.max_peers = 1 << 20;
        let mut capabilities = Capabilities::emulated(SCHEME, limits);
        capabilities.remote_access = Support::Native;
        capabilities.atomics = Support::Native;
        capabilities.tagged = Support::Native;
        capabilities.put_with_event = Support::Native;
        capabilities.flush = Support::Native;
        capabilities.fences = true;
        capabilities.map = Support::Native;
        capabilities.part_keys = Support::Native;
        capabilities.passive_target = true;
        let doorbell = Doorbell::new().map_err(|e| OpenError::System(e.to_string()))?;
        let hub = Arc::new(Hub::new(address, doorbell, limits.max_leases));
        if !registry::add(&hub) {
            return Err(OpenError::Taken(hub.address.clone()));
        }
        Ok(Local {
            hub,
            capabilities,
            now: None,
            peers: Peers::default(),
            matching: Matching::default(),
            remotes: Remotes::default(),
            bodies: HashMap::new(),
            offers: Offers::default(),
            fetches: VecDeque::new(),
            closing: Closing::default(),
            ready: VecDeque::new(),
            mail: VecDeque::new(),
            outstanding: 0,
            refused: Vec::new(),
            armed: false,
            streak: Streak::default(),
        })
    }

    pub(crate) fn done(&mut self, token: Token, result: Result<Done, OpError>) {
        self.outstanding -= 1;
        self.ready.push_back(Event::Done { token, result });
    }

    /// Completes an operation with the peer at `index`.
    pub(crate) fn done_with(
        &mut self,
        index: u32,
        token: Token,
        result: Result<Done, OpErrorKind>,
    ) {
        let address = &self.peers.at(index).address;
        let result = result.map_err(|kind| OpError::with_peer(kind, address));
        self.done(token, result);
    }

    /// Completes an operation with a peer that may be forgotten, and whose slot another may have.
    pub(crate) fn done_by(&mut self, peer: Peer, token: Token, result: Result<Done, OpErrorKind>) {
        let result = result.map_err(|kind| match self.peers.get(peer) {
            Some(entry) => OpError::with_peer(kind, &entry.address),
            None => OpError::local(kind),
        });
        self.done(token, result);
    }

    /// Connects to the endpoint that has the peer's address now.
    pub(crate) fn connect(&mut self, index: u32) {
        static LINKS: AtomicU64 = AtomicU64::new(1);
        let Some(hub) = registry::find(&self.peers.at(index).address) else {
            return;
        };
        let link = LINKS.fetch_add(1, Ordering::Relaxed);
        if hub.push(link, Content::Hello(Arc::clone(&self.hub))).is_ok() {
            self.up(index, hub, link);
        }
    }

    fn up(&mut self, index: u32, hub: Arc<Hub>, link: u64) {
        let incarnation = hub.incarnation;
        self.peers.connect(index, hub, link);
        self.link_up(index, link);
        let peer = self.peers.handle(index);
        self.ready.push_back(Event::PeerUp { peer, incarnation });
    }

    /// Ends a connection. `told` is the link by which the other side knows already.
    pub(crate) fn lose(&mut self, index: u32, reason: LostReason, told: Option<u64>) {
        let peer = self.peers.handle(index);
        let entry = self.peers.at(index);
        let mut messages = std::mem::take(&mut entry.messages);
        messages.append(&mut entry.tagged);
        let accesses = std::mem::take(&mut entry.accesses);
        let mut held = std::mem::take(&mut entry.deferred);
        if let Some((hub, links)) = self.peers.lose(index, reason.clone()) {
            links.iter().for_each(|link| self.hub.forget_allotment(*link));
            for link in links.into_iter().filter(|link| Some(*link) != told) {
                // Closed is as good: then it is telling us the same.
                let _ = hub.push(link, Content::Bye(LostReason::Closed));
            }
        }
        let mut tokens: Vec<Token> = messages.iter().map(|message| message.token()).collect();
        tokens.extend(accesses.iter().map(|queued| queued.token()));
        tokens.extend(self.offers.lose(index));
        while let Some(next) = held.take_next() {
            match next {
                Next::Fence => held.pass(),
                Next::Operation(operation) => tokens.push(operation.token()),
                Next::Release(remote) => self.remotes.release(remote),
            }
        }
        self.fetches.retain(|fetch| {
            if fetch.peer == peer {
                tokens.push(fetch.token);
            }
            fetch.peer != peer
        });
        tokens.extend(self.matching.lose(peer).iter().map(|posted| posted.token));
        self.bodies.retain(|body, _| body.peer != peer);
        for token in tokens {
            let kind = OpErrorKind::PeerLost(reason.clone());
            self.done_with(index, token, Err(kind));
        }
    }

    pub(crate) fn lose_and_tell(&mut self, index: u32, reason: LostReason, told: Option<u64>) {
        let peer = self.peers.handle(index);
        self.lose(index, reason.clone(), told);
        self.ready.push_back(Event::PeerLost { peer, reason });
    }

    /// Moves connections on that are being made.
    pub(crate) fn tend_connecting(&mut self, index: u32, now: Time) {
        self.connect(index);
        let State::Connecting { patience, deadline } = &mut self.peers.at(index).state else {
            return;
        };
        let patience = *patience;
        let deadline = *deadline.get_or_insert_with(|| now.after(patience));
        if now >= deadline {
            let why = "no endpoint of this process has that name".to_owned();
            self.lose_and_tell(index, LostReason::Unreachable(patience, why), None);
        }
    }

    /// Takes in one packet.
    pub(crate) fn receive(&mut self, packet: Packet) {
        let Packet { link, content } = packet;
        if let Content::Hello(hub) = content {
            return self.hello(link, hub);
        }
        let Some(index) = self.peers.by_link(link) else {
            // Of a connection that this side has closed.
            if let Content::Tagged { data: Tagged::Eager(_), .. } = content {
                self.hub.eager.give_back(0);
            }
            return;
        };
        let peer = self.peers.handle(index);
        match content {
            Content::Hello(_) => {}
            Content::Bye(reason) => self.lose_and_tell(index, reason, Some(link)),
            Content::Message(message) => self.ready.push_back(Event::Message { peer, message }),
            Content::Long { header, offer } => {
                let (id, len) = (offer.id, offer.len);
                let body = Body { peer, id };
                self.bodies.insert(body, offer);
                let header = Box::new(header);
                self.ready.push_back(Event::LongMessage { peer, header, body, len });
            }
            Content::Tagged { tag, data, charge } => {
                let message = Arrived { peer, tag, data, _charge: charge };
                let fetch = self.matching.arrive(&self.hub, message);
                self.fetches.extend(fetch);
                self.end_gone();
            }
            Content::Arrived { region, offset, len, data } => {
                self.ready.push_back(Event::PutArrived { peer, region, offset, len, data })
            }
            Content::Finished(id) => {
                if let Some(token) = self.offers.finish(id) {
                    self.done(token, Ok(Done::Sent));
                }
            }
        }
    }

    /// Another endpoint has connected.
    fn hello(&mut self, link: u64, hub: Arc<Hub>) {
        if let Some(index) = self.peers.by_incarnation(hub.incarnation) {
            self.peers.add_link(index, link);
            return self.link_up(index, link);
        }
        if let Some(index) = self.peers.by_address(&hub.address) {
            if self.peers.at(index).up().is_none() {
                return self.up(index, hub, link);
            }
            self.lose_and_tell(index, LostReason::Restarted, None);
        }
        let limit = self.capabilities.limits.max_peers;
        match self.peers.add(hub.address.clone(), Duration::ZERO, limit) {
            Some(index) => self.up(index, hub, link),
            None => {
                let why = format!("{} has {limit} peers already", self.hub.address);
                let _ = hub.push(link, Content::Bye(LostReason::Refused(why)));
            }
        }
    }

    /// Moves remote accesses to a peer on. True if something was done.
    pub(crate) fn pump_accesses(&mut self, index: u32, budget: &mut u64) -> bool {
        let mut worked = false;
        loop {
            let entry = self.peers.at(index);
            let Some((hub, link)) = entry.up() else {
                return worked;
            };
            let Some(next) = entry.accesses.front_mut() else {
                return worked;
            };
            let before = *budget;
            let step = match next {
                Queued::Access(access) => access.step(&hub, link, budget),
                Queued::Flush(_, flush) => Step::Done(flush.end(&mut entry.refusals)),
            };
            entry.stalled = matches!(step, Step::Blocked);
            match step {
                Step::More | Step::Blocked => return worked || before != *budget,
                Step::Done(result) => {
                    let token = next.token();
                    if let (Queued::Access(access), Err(kind)) = (&*next, &result)
                        && access.is_flushed()
                    {
                        entry.refusals.in_turn(kind);
                    }
                    entry.accesses.pop_front();
                    self.done_with(index, token, result);
                    worked = true;
                }
            }
        }
    }

    /// Moves copies from senders on, the oldest first. True if something was done.
    pub(crate) fn pump_fetches(&mut self, budget: &mut usize) -> bool {
        let mut worked = false;
        while let Some(fetch) = self.fetches.front_mut() {
            let before = *budget;
            let Some(result) = fetch.step(budget) else {
                return worked || before != *budget;
            };
            worked = true;
            if let Some(fetch) = self.fetches.pop_front() {
                self.finish(&fetch);
                self.done_by(fetch.peer, fetch.token, result);
            }
        }
        worked
    }

    /// Tells the sender that its data is not needed any more.
    pub(crate) fn finish(&mut self, fetch: &Fetch) {
        if let Some(id) = fetch.offer() {
            self.release_body(fetch.peer, id);
        }
    }

    pub(crate) fn release_body(&self, peer: Peer, id: u64) {
        if let Some((hub, link)) = self.peers.get(peer).and_then(|entry| entry.up()) {
            // Closed: then its operations have ended already.
            let _ = hub.push(link, Content::Finished(id));
        }
    }

    pub(crate) fn post(&mut self, posted: Posted) {
        let fetch = self.matching.post(&self.hub, posted);
        self.fetches.extend(fetch);
        self.end_gone();
    }

    /// Ends receives of which the memory is gone to other endpoints.
    fn end_gone(&mut self) {
        for token in self.matching.take_gone() {
            self.done(token, Err(OpError::local(OpErrorKind::Cancelled)));
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        let mut mail = std::mem::take(&mut self.mail);
        mail.extend(self.hub.close());
        self.offers.revoke_all();
        for packet in mail {
            if let Content::Hello(hub) = packet.content {
                let _ = hub.push(packet.link, Content::Bye(LostReason::Closed));
            }
        }
        for entry in self.peers.iter() {
            if let State::Up { hub, links, .. } = &entry.state {
                for link in links {
                    let _ = hub.push(*link, Content::Bye(LostReason::Closed));
                }
            }
        }
        self.hub.regions.close_all();
        registry::remove(&self.hub);
    }
}
