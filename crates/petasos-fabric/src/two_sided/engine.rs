//! The engine as transports see it.

use super::{Config, Counters, Imported, Packet, Placement, Violation};
use crate::{
    Access, Address, Event, ExportError, ImportError, Incarnation, InjectError, Key, LostReason,
    Operation, Peer, PeerInfo, Pool, RegionId, RegisterError, Remote, ResolveError, Slice, Token,
    key::KeyParts,
};
use std::collections::VecDeque;

/// The state machine: see the [module's documentation](super).
#[derive(Debug)]
pub struct Engine {
    config: Config,
}

#[allow(unused_variables, clippy::missing_panics_doc)]
impl Engine {
    /// An engine for the endpoint at `address`; buffers for messages come from `pool`.
    ///
    /// # Panics
    /// If the numbers of `config` contradict each other.
    #[must_use]
    pub fn new(address: Address, incarnation: Incarnation, config: Config, pool: Pool) -> Engine {
        todo!()
    }

    /// The address of this endpoint.
    #[must_use]
    pub fn address(&self) -> &Address {
        todo!()
    }

    /// This life of it.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        todo!()
    }

    /// The engine's numbers.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The pool of buffers for messages.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        todo!()
    }

    /// What the engine did so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        todo!()
    }

    // Peers.

    /// A new peer, `Connecting` until [`Engine::peer_up`]. For this endpoint's own address: a peer
    /// that is up at once, and served by the engine itself ([`Engine::is_self`]).
    ///
    /// Makes a new entry even if there is one with this address; see [`Engine::find_peer`].
    pub fn add_peer(&mut self, address: &Address) -> Result<Peer, ResolveError> {
        todo!()
    }

    /// The latest peer with this address that is not lost.
    #[must_use]
    pub fn find_peer(&self, address: &Address) -> Option<Peer> {
        todo!()
    }

    /// The current handle of the peer in a slot of the table.
    #[must_use]
    pub fn peer_at(&self, index: u32) -> Option<Peer> {
        todo!()
    }

    /// Whether this is the endpoint itself: no channel is needed, `next_output` never names it.
    #[must_use]
    pub fn is_self(&self, peer: Peer) -> bool {
        todo!()
    }

    /// What is known of a peer; `None` for a stale handle.
    #[must_use]
    pub fn peer_info(&self, peer: Peer) -> Option<PeerInfo> {
        todo!()
    }

    /// Whether packets flow with this peer.
    #[must_use]
    pub fn is_up(&self, peer: Peer) -> bool {
        todo!()
    }

    /// Packets may flow. Raises `Event::PeerUp`. Only for a peer that is connecting.
    pub fn peer_up(&mut self, peer: Peer, incarnation: Incarnation) {
        todo!()
    }

    /// No packets flow any more: completes all that is under way with the peer, raises
    /// `Event::PeerLost` unless it is lost already. From this call on, the transport touches no
    /// memory of the peer's packets and placements any more.
    pub fn peer_lost(&mut self, peer: Peer, reason: LostReason) {
        todo!()
    }

    /// Removes a peer from the table; its handle is stale, its slot may be used again. What is
    /// under way fails with `PeerLost(Forgotten)`, without `Event::PeerLost`. The transport has let
    /// go of its packets and placements before.
    pub fn forget(&mut self, peer: Peer) {
        todo!()
    }

    // Memory.

    /// Opens memory to the peers.
    pub fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        todo!()
    }

    /// The memory behind a region that is registered, and what peers may do with it.
    #[must_use]
    pub fn region(&self, region: RegionId) -> Option<(&Slice, Access)> {
        todo!()
    }

    /// The key of a region with the engine's route alone.
    pub fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        todo!()
    }

    /// The parts of that key, to which a transport adds routes of its own before [`Key::compose`].
    pub fn key_parts(&self, region: RegionId) -> Result<KeyParts, ExportError> {
        todo!()
    }

    /// Takes in a key whose owner, `parts.owner`, the transport has resolved to `peer`. A key
    /// without the engine's route is taken, too: the transport has routes of its own, or says
    /// [`ImportError::NoRoute`] itself.
    pub fn import(&mut self, parts: KeyParts, peer: Peer) -> Result<Remote, ImportError> {
        todo!()
    }

    /// What was imported; `None` for a stale handle.
    #[must_use]
    pub fn imported(&self, remote: Remote) -> Option<&Imported> {
        todo!()
    }

    /// Gives back what `import` gave. Operations under way finish.
    pub fn release(&mut self, remote: Remote) {
        todo!()
    }

    // Operations.

    /// Whether another operation may be submitted now.
    #[must_use]
    pub fn has_room(&self) -> bool {
        todo!()
    }

    /// Accepts an operation; call only while [`Engine::has_room`]. Exactly one `Event::Done`
    /// follows, never before this returns.
    pub fn submit(&mut self, operation: Operation) {
        todo!()
    }

    /// Accepts operations from the front of the queue as long as there is room.
    pub fn submit_all(&mut self, operations: &mut VecDeque<Operation>) {
        todo!()
    }

    /// Asks that an operation end soon; as in the contract.
    pub fn cancel(&mut self, token: Token) {
        todo!()
    }

    /// Queues a copy of a short message. Raises `Event::Writable` after `InjectError::Full`.
    pub fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        todo!()
    }

    /// Whether messages to this peer wait here: then one that is sent around the engine would
    /// overtake them.
    #[must_use]
    pub fn messages_queued(&self, peer: Peer) -> bool {
        todo!()
    }

    // Packets that come.

    /// Takes the header of the next packet from a peer, and says where its payload shall go.
    /// Always followed by [`Engine::landed`], also when there is no payload, except after
    /// [`Placement::Busy`] and after the peer is lost.
    pub fn accept(&mut self, peer: Peer, header: &[u8]) -> Result<Placement, Violation> {
        todo!()
    }

    /// The payload is where the placement said.
    pub fn landed(&mut self, peer: Peer, placement: Placement) -> Result<(), Violation> {
        todo!()
    }

    /// Takes a whole packet, copying the payload. `false` means busy: nothing has happened, ask
    /// again later with the same packet.
    pub fn deliver(&mut self, peer: Peer, packet: &[u8]) -> Result<bool, Violation> {
        todo!()
    }

    // Packets that go.

    /// A peer with packets to send. It is the caller's from now on, until `poll_transmit` says
    /// `None` for it.
    pub fn next_output(&mut self) -> Option<Peer> {
        todo!()
    }

    /// Whether `next_output` has a peer to name: then do not sleep.
    #[must_use]
    pub fn has_output(&self) -> bool {
        todo!()
    }

    /// The next packet for a peer. `None` when there is none now, and the peer will be named by
    /// `next_output` when there is.
    pub fn poll_transmit(&mut self, peer: Peer) -> Option<Packet> {
        todo!()
    }

    /// The bytes of the oldest packet to this peer for which this was not said yet have been
    /// taken: its memory may be used again.
    pub fn sent(&mut self, peer: Peer) {
        todo!()
    }

    // Events.

    /// Whether there are events to take.
    #[must_use]
    pub fn has_events(&self) -> bool {
        todo!()
    }

    /// Moves up to `budget` events, in order, to `events`; serves what this endpoint sent to
    /// itself. True if there were any.
    pub fn take_events(&mut self, budget: usize, events: &mut Vec<Event>) -> bool {
        todo!()
    }
}
