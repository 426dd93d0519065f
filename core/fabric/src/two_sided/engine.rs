//! The engine as transports see it.

use super::{
    Config, Counters, Imported, Packet, Placement, Violation,
    connection::Connection,
    header,
    ledger::Ledger,
    matching::Matching,
    peers::Peers,
    registry::{Exposed, Imports, Regions},
};
use crate::{
    Access, Address, Completion, Event, ExportError, ImportError, Incarnation, InjectError, Key,
    KeyId, LostReason, OpError, OpErrorKind, Operation, Peer, PeerInfo, PeerState, Pool, Refused,
    RegionId, RegisterError, Remote, ResolveError, Slice, Token, key::KeyParts,
};
use bytes::Bytes;
use std::ops::Range;

/// The state machine: see the [module's documentation](super).
#[derive(Debug)]
pub struct Engine {
    address: Address,
    incarnation: Incarnation,
    pub(super) config: Config,
    pub(super) pool: Pool,
    pub(super) peers: Peers,
    pub(super) regions: Regions,
    pub(super) imports: Imports,
    pub(super) matching: Matching,
    pub(super) ledger: Ledger,
    /// The handle of this endpoint itself, once it was asked for.
    pub(super) own: Option<Peer>,
}

impl Engine {
    /// An engine for the endpoint at `address`; buffers for messages come from `pool`.
    ///
    /// # Panics
    /// If the numbers of `config` contradict each other.
    #[must_use]
    pub fn new(address: Address, incarnation: Incarnation, config: Config, pool: Pool) -> Engine {
        config.check();
        Engine {
            address,
            incarnation,
            regions: Regions::new(config.limits.max_regions, config.limits.max_keys),
            imports: Imports::new(config.max_imports),
            matching: Matching::new(config.max_unexpected),
            config,
            pool,
            peers: Peers::default(),
            ledger: Ledger::default(),
            own: None,
        }
    }

    /// The address of this endpoint.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// This life of it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The engine's numbers.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The pool of buffers for messages.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// What the engine did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.ledger.counters
    }

    // Peers.

    /// A new peer, `Connecting` until [`Engine::peer_up`]. For this endpoint's own address: a peer
    /// that is up at once, and served by the engine itself ([`Engine::is_self`]).
    ///
    /// Makes a new entry even if there is one with this address; see [`Engine::find_peer`].
    ///
    /// # Errors
    /// [`ResolveError::TooManyPeers`] beyond `limits.max_peers`.
    pub fn add_peer(&mut self, address: &Address) -> Result<Peer, ResolveError> {
        let limit = self.config.limits.max_peers;
        if self.peers.len() >= limit {
            return Err(ResolveError::TooManyPeers { limit });
        }
        let own = *address == self.address && self.own.is_none();
        let peer = self.peers.insert(address, own);
        if own {
            self.own = Some(peer);
            self.peer_up(peer, self.incarnation);
        }
        Ok(peer)
    }

    /// The latest peer with this address that is not lost.
    #[must_use]
    pub fn find_peer(&self, address: &Address) -> Option<Peer> {
        self.peers.find(address)
    }

    /// The current handle of the peer in a slot of the table.
    #[must_use]
    pub fn peer_at(&self, index: u32) -> Option<Peer> {
        self.peers.at(index).map(|conn| conn.handle)
    }

    /// Whether this is the endpoint itself: no channel is needed, `next_output` never names it.
    #[must_use]
    pub fn is_self(&self, peer: Peer) -> bool {
        self.own == Some(peer)
    }

    /// What is known of a peer; `None` for a stale handle.
    #[must_use]
    pub fn peer_info(&self, peer: Peer) -> Option<PeerInfo> {
        let conn = self.peers.get(peer)?;
        let (address, state) = (conn.address.clone(), conn.state.clone());
        let attended = if conn.own { self.ledger.attended } else { conn.attended };
        Some(PeerInfo::new(address, conn.incarnation, state).with_attended(attended))
    }

    /// How a peer is, of all that [`Engine::peer_info`] tells: for what asks of each operation.
    #[must_use]
    pub fn state_of(&self, peer: Peer) -> Option<&PeerState> {
        self.peers.get(peer).map(|conn| &conn.state)
    }

    /// Which life of a peer this is, once it is up.
    #[must_use]
    pub fn incarnation_of(&self, peer: Peer) -> Option<Incarnation> {
        self.peers.get(peer)?.incarnation
    }

    /// Whether packets flow with this peer.
    #[must_use]
    pub fn is_up(&self, peer: Peer) -> bool {
        self.peers.get(peer).is_some_and(|conn| conn.is_up())
    }

    /// Packets may flow. Raises `Event::PeerUp`. Only for a peer that is connecting.
    pub fn peer_up(&mut self, peer: Peer, incarnation: Incarnation) {
        let Engine { config, peers, ledger, .. } = self;
        if let Some(conn) = peers.get_mut(peer)
            && conn.state == PeerState::Connecting
        {
            conn.state = PeerState::Up;
            conn.incarnation = Some(incarnation);
            tracing::debug!(peer = %conn.address, ?incarnation, "a peer is connected");
            ledger.events.push_back(Event::PeerUp { peer, incarnation });
            if ledger.attended || config.limits.quota.deferred {
                conn.tell_mode(&config.limits.quota, ledger);
            }
            conn.wake(ledger);
            conn.may_go_on(ledger);
        }
    }

    /// No packets flow any more: completes all that is under way with the peer, raises
    /// `Event::PeerLost` unless it is lost already. From this call on, the transport touches no
    /// memory of the peer's packets and placements any more.
    pub fn peer_lost(&mut self, peer: Peer, reason: LostReason) {
        if self.end(peer, &reason) {
            if let Some(conn) = self.peers.get(peer) {
                tracing::debug!(peer = %conn.address, %reason, "the connection to a peer is lost");
            }
            let event = Event::PeerLost { peer, reason };
            self.ledger.events.push_back(event);
        }
    }

    /// Tells the peers, those of later included, that a thread drives this endpoint while its
    /// program does not: as [`Endpoint::set_attended`](crate::Endpoint::set_attended).
    pub fn set_attended(&mut self) {
        let Engine { config, peers, ledger, .. } = self;
        ledger.attended = true;
        for conn in peers.all_mut().filter(|conn| conn.is_up() && !conn.own) {
            conn.tell_mode(&config.limits.quota, ledger);
        }
    }

    /// Whether nothing is under way with a peer, in either direction, as far as this side knows.
    #[must_use]
    pub fn is_idle(&self, peer: Peer) -> bool {
        let conn = self.peers.entry_and_connection(peer).map(|(_, conn)| conn);
        conn.is_some_and(|conn| conn.is_none_or(|conn| conn.is_plain()))
    }

    /// Gives back memory that the table keeps for a peer's traffic, as far as nothing is under way:
    /// for transports with many peers that are seldom heard of.
    pub fn trim(&mut self, peer: Peer) {
        self.peers.trim(peer);
    }

    /// Removes a peer from the table, as [`Endpoint::forget`](crate::Endpoint::forget) has it; its
    /// slot may be used again. The transport has let go of its packets and placements before.
    pub fn forget(&mut self, peer: Peer) {
        self.reuse(peer);
        self.ledger.events.retain(|event| event.peer() != Some(peer));
    }

    /// The same of a peer that was lost, when the table has no room for more of them: what is still
    /// to be reported of it is.
    pub fn reuse(&mut self, peer: Peer) {
        self.end(peer, &LostReason::Forgotten);
        self.ledger.live -= self.peers.get(peer).map_or(0, |entry| entry.outside as usize);
        self.matching.drop_messages(peer, true);
        self.peers.remove(peer);
        if self.own == Some(peer) {
            self.own = None;
        }
    }

    /// Ends all that is under way with a peer; false if it is lost already.
    fn end(&mut self, peer: Peer, reason: &LostReason) -> bool {
        let Engine { peers, regions, imports, matching, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else {
            return false;
        };
        if matches!(conn.state, PeerState::Lost(_)) {
            return false;
        }
        conn.expected.withdraw(matching);
        let released = conn.lose(reason, regions, ledger);
        released.into_iter().for_each(|remote| imports.remove(remote));
        let Some(conn) = peers.get(peer) else { return false };
        let address = conn.address.clone();
        peers.release_address(&address, peer);
        matching.drop_messages(peer, false);
        let kind = OpErrorKind::PeerLost(reason.clone());
        matching.end_waiting_for(peer, &OpError::with_peer(kind, &address), ledger);
        true
    }

    // Memory.

    /// Opens memory to the peers.
    ///
    /// # Errors
    /// [`RegisterError::TooMany`] and [`RegisterError::ReadOnly`], as
    /// [`Endpoint::register`](crate::Endpoint::register).
    pub fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        self.regions.register(memory, access)
    }

    /// The memory behind a region that is registered, and what peers may do with it.
    #[must_use]
    pub fn region(&self, region: RegionId) -> Option<(&Slice, Access)> {
        let entry = self.regions.get(region.into())?;
        Some((&entry.memory, entry.access))
    }

    /// The key of a region with the engine's route alone.
    ///
    /// # Errors
    /// [`ExportError::UnknownRegion`] if the region is not registered, or not any more.
    pub fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        Key::compose(&self.key_parts(region)?)
    }

    /// A key to a part of a region, with the engine's route alone: this endpoint serves all
    /// accesses by it. `Operation::Revoke` ends it.
    ///
    /// # Errors
    /// As [`Endpoint::export_part`](crate::Endpoint::export_part).
    pub fn export_part(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        let id = self.regions.export_part(region, &range, access)?;
        let key = self.parts_of(Exposed::Part(id)).and_then(|parts| Key::compose(&parts));
        match key {
            Ok(key) => Ok((id, key)),
            Err(error) => {
                self.regions.take_back(id);
                Err(error)
            }
        }
    }

    /// Opens a part of a region under a number.
    ///
    /// # Errors
    /// As [`Endpoint::export_number`](crate::Endpoint::export_number).
    pub fn export_number(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        self.regions.export_number(region, &range, access, number)
    }

    /// The parts of that key, to which a transport adds routes of its own before [`Key::compose`].
    ///
    /// # Errors
    /// As [`Engine::export`].
    pub fn key_parts(&self, region: RegionId) -> Result<KeyParts, ExportError> {
        self.parts_of(region.into())
    }

    fn parts_of(&self, at: Exposed) -> Result<KeyParts, ExportError> {
        let entry = self.regions.get(at).zip(self.regions.target(at));
        let (entry, target) = entry.ok_or(ExportError::UnknownRegion)?;
        let route = Bytes::copy_from_slice(&target.to_bytes());
        Ok(KeyParts {
            owner: self.address.clone(),
            incarnation: self.incarnation,
            len: entry.memory.len() as u64,
            access: entry.access,
            routes: vec![(Key::ROUTE_TWO_SIDED, route)],
        })
    }

    /// Takes in a key whose owner, `parts.owner`, the transport has resolved to `peer`. A key
    /// without the engine's route is taken, too: the transport has routes of its own, or says
    /// [`ImportError::NoRoute`] itself.
    ///
    /// # Errors
    /// [`ImportError::Stale`] if the peer is not the owner, or is known as another incarnation;
    /// [`ImportError::TooMany`] beyond the limit of imported keys.
    pub fn import(&mut self, parts: KeyParts, peer: Peer) -> Result<Remote, ImportError> {
        let conn = self.peers.get(peer).filter(|l| l.address == parts.owner);
        match conn.map(|conn| conn.incarnation) {
            Some(known) if known.is_none_or(|known| known == parts.incarnation) => {}
            _ => return Err(ImportError::Stale(parts.owner)),
        }
        self.imports.insert(parts, peer)
    }

    /// Prepares the use of what a peer has opened under a number.
    ///
    /// # Errors
    /// [`ImportError::UnknownPeer`] for a stale handle; [`ImportError::TooMany`] beyond the limit
    /// of imported keys.
    pub fn import_number(
        &mut self,
        peer: Peer,
        number: u64,
        len: u64,
    ) -> Result<Remote, ImportError> {
        let conn = self.peers.get(peer).ok_or(ImportError::UnknownPeer)?;
        let parts = KeyParts {
            owner: conn.address.clone(),
            // Not looked at: any life is good that the handle is of.
            incarnation: conn.incarnation.unwrap_or(self.incarnation),
            len,
            access: Access::ALL,
            routes: Vec::new(),
        };
        self.imports.insert_number(number, parts, peer)
    }

    /// What was imported; `None` for a stale handle.
    #[must_use]
    #[inline]
    pub fn imported(&self, remote: Remote) -> Option<&Imported> {
        self.imports.get(remote)
    }

    /// Gives back what `import` gave. Operations under way finish.
    pub fn release(&mut self, remote: Remote) {
        if self.defer_release(remote) {
            return;
        }
        self.imports.remove(remote);
    }

    // Operations.

    /// Accepts an operation if there is room ([`Engine::room_for`]).
    ///
    /// # Errors
    /// As [`Endpoint::try_submit`](crate::Endpoint::try_submit).
    pub fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        if let Err(full) = self.room_for(&operation) {
            return Err(Refused { operation, full });
        }
        if self.config.in_order && self.is_deferred(&operation) {
            self.submit_held(operation);
        } else {
            self.submit(operation);
        }
        Ok(())
    }

    /// Accepts an operation for which there is room ([`Engine::room_for`]). Exactly one
    /// `Event::Done` follows, never before this returns.
    pub fn submit(&mut self, operation: Operation) {
        match operation {
            Operation::PostReceive { token, source, tag, ignore, into } => {
                self.submit_receive(token, source, tag, ignore, into);
            }
            operation => self.submit_one(operation, None),
        }
    }

    /// Checks remote access (put, get, atomic) that a transport carries out by a route of its own,
    /// as [`Engine::submit`] would: handles, rights, bounds, lengths. Gives its length in bytes.
    ///
    /// # Errors
    /// What the operation would end with: [`OpErrorKind::UnknownRegion`], [`OpErrorKind::Denied`],
    /// [`OpErrorKind::OutOfBounds`], [`OpErrorKind::LengthMismatch`] and the like.
    pub fn check_access(&self, operation: &Operation) -> Result<u64, OpErrorKind> {
        self.check_one(operation)
    }

    /// Asks that an operation end soon; as in the contract.
    pub fn cancel(&mut self, token: Token) {
        self.cancel_one(token);
    }

    /// Queues a copy of a short message. Raises `Event::Writable` after `InjectError::Full`.
    ///
    /// # Errors
    /// As [`Endpoint::inject`](crate::Endpoint::inject).
    pub fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let conn = self.peers.get(peer).ok_or(InjectError::UnknownPeer)?;
        if matches!(conn.state, PeerState::Lost(_)) {
            return Err(InjectError::PeerLost);
        }
        let max = self.config.limits.max_inject;
        let len = parts.iter().map(|part| part.len()).sum();
        if len > max {
            return Err(InjectError::TooLong { len, max });
        }
        if conn.held {
            self.peers.get_mut(peer).map(Connection::holds_injected);
            return Err(InjectError::Full);
        }
        match self.inject_message(peer, parts, len) {
            true => Ok(()),
            false => Err(InjectError::Full),
        }
    }

    /// Whether messages to this peer wait here, or are to: then one that is sent around the engine
    /// would overtake them. They wait while the peer is served, and also when it has no packet to
    /// give, for credit, say.
    #[must_use]
    pub fn messages_queued(&self, peer: Peer) -> bool {
        !self.peers.entry_and_connection(peer).is_some_and(|(entry, conn)| {
            let empty = conn.is_none_or(|conn| conn.queues.messages_len() == 0);
            entry.is_up() && !entry.own && empty && !entry.credit.is_deferred() && !entry.held
        })
    }

    // Packets that come.

    /// Takes the header of the next packet from a peer, and says where its payload shall go. Always
    /// followed by [`Engine::landed`], also when there is no payload, except after the peer is
    /// lost.
    ///
    /// # Errors
    /// [`Violation`] if the header breaks the protocol: the transport cuts the peer off.
    pub fn accept(&mut self, peer: Peer, header: &[u8]) -> Result<Placement, Violation> {
        let result = self.accept_packet(peer, header);
        self.ledger.counters.violations += u64::from(result.is_err());
        result
    }

    /// The payload is where the placement said.
    ///
    /// # Errors
    /// [`Violation`], as [`Engine::accept`].
    pub fn landed(&mut self, peer: Peer, placement: Placement) -> Result<(), Violation> {
        let result = self.land(peer, placement);
        self.ledger.counters.violations += u64::from(result.is_err());
        result
    }

    /// Takes a whole packet, copying the payload.
    ///
    /// # Errors
    /// [`Violation`], as [`Engine::accept`], and if the packet is shorter or longer than its header
    /// says.
    pub fn deliver(&mut self, peer: Peer, packet: &[u8]) -> Result<(), Violation> {
        let len = packet.len() as u64;
        let frame = match packet.first_chunk() {
            Some(prefix) => header::frame(*prefix)?,
            None => return Err(Violation::new("packet cut short", len)),
        };
        if frame.header + frame.payload != packet.len() {
            return Err(Violation::new("packet of a bad length", len));
        }
        let (header, payload) = packet.split_at(frame.header);
        if let Some(taken) = self.deliver_message(peer, header, payload) {
            return taken;
        }
        let mut placement = self.accept(peer, header)?;
        placement.write(0, payload);
        self.landed(peer, placement)
    }

    // Packets that go.

    /// A peer with packets to send. It is the caller's from now on, until `poll_transmit` says
    /// `None` for it.
    pub fn next_output(&mut self) -> Option<Peer> {
        let Engine { peers, ledger, .. } = self;
        while let Some(index) = ledger.ready.pop_front() {
            // The slot may have been another peer's, and be the endpoint's own by now.
            if let Some(conn) = peers.at_mut(index)
                && conn.listed
                && !conn.own
            {
                if conn.is_up() {
                    return Some(conn.handle);
                }
                conn.listed = false;
            }
        }
        None
    }

    /// Whether `next_output` has a peer to name: then do not sleep.
    #[inline]
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.ledger.ready.is_empty()
    }

    /// Whether there is plainly nothing to take or to send: one cheap check for frequent callers.
    /// False now and then without need, for an endpoint that talks to itself.
    #[inline]
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let Ledger { events, ready, waiting, seldom, .. } = &self.ledger;
        let listed = events.len() | ready.len() | waiting.len() | seldom.len();
        listed | usize::from(self.own.is_some()) == 0
    }

    /// The next packet for a peer. `None` when there is none now, and the peer will be named by
    /// `next_output` when there is.
    pub fn poll_transmit(&mut self, peer: Peer) -> Option<Packet> {
        let Engine { config, peers, regions, ledger, .. } = self;
        let conn = peers.get_mut(peer)?;
        let packet = conn.poll(config, regions, ledger);
        conn.listed &= packet.is_some();
        packet
    }

    /// The bytes of the oldest packet to this peer for which this was not said yet have been
    /// taken: its memory may be used again.
    pub fn sent(&mut self, peer: Peer) {
        let Engine { peers, regions, ledger, .. } = self;
        if let Some(conn) = peers.get_mut(peer) {
            conn.sent(regions, ledger);
        }
    }

    // Events.

    /// Whether there are events to take.
    #[inline]
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.ledger.events.is_empty()
            || self.own_output()
            || (self.ledger.seldom.len() > 0 && (self.has_room_to_tell() || self.has_released()))
    }

    /// Puts an event of the transport's own behind those that wait here.
    pub fn raise(&mut self, event: Event) {
        self.ledger.events.push_back(event);
    }

    /// Moves up to `budget` events, in order, to `events`; serves what this endpoint sent to
    /// itself, and peers that wait for credit. True if anything was done.
    #[inline]
    pub fn take_events(&mut self, budget: usize, events: &mut Vec<Event>) -> bool {
        !self.is_quiet() && self.take_all_events(budget, events)
    }

    /// The next event, if it is a completion: what [`Endpoint::poll_completion`] of a transport
    /// says, which has nothing to report before the engine does.
    ///
    /// [`Endpoint::poll_completion`]: crate::Endpoint::poll_completion
    #[inline]
    pub fn poll_completion(&mut self) -> Option<Completion> {
        match self.ledger.events.is_empty() {
            true => None,
            false => self.ledger.poll_completion(),
        }
    }

    fn take_all_events(&mut self, budget: usize, events: &mut Vec<Event>) -> bool {
        self.ledger.streak.end();
        let granted = self.has_waiting() && self.serve_waiting();
        let mut moved = granted;
        if self.has_released() && self.config.in_order {
            self.go_on();
            moved = true;
        }
        moved |= self.deliver_to_self(budget);
        self.tell_room();
        let count = self.ledger.events.len().min(budget);
        events.extend(self.ledger.events.drain(..count));
        moved || count > 0
    }
}
