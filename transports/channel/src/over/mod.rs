//! A device over any endpoint of the fabric: the channels run wherever there is a transport.
//!
//! A packet is an injected message with a byte before it that says its class; put, get and atomics
//! are the endpoint's operations, and a remote key is the endpoint's own, after a name of this
//! device's. This is for tests of the channels over real processes and real memory, and for
//! transports whose own message path is slower than what the channels make of it.
//!
//! An immediate put is an injected message as well, which the target's side of this device writes
//! into the registered memory: where a message is a store, and a put is a system call or a request
//! and a reply, as between processes of a node, that is the shortest path, and it needs neither
//! memory of the sender's nor a completion. It names the memory by a name with a secret that is
//! part of the key: a peer that was not given the key writes nowhere. What the target refuses comes
//! back as a message, at least the first time. So the channels' short records go as immediate puts,
//! longer ones as the endpoint's put with event. Where the network itself carries that out
//! ([`native_event_from`](petasos_fabric::Capabilities)), immediate puts are not longer than that.
//!
//! The endpoint has no slots of two kinds. All packets are taken in whenever the device is polled,
//! so none holds up another; data packets that are not asked for yet are kept here. They are
//! bounded by the windows of the peers, not by a queue that they share; a peer that sends more than
//! any window holds is cut off.

mod device;
mod immediate;

use crate::{
    DeviceEvent, DeviceLimits,
    device::{Class, Fault, Node, Refusal, Registration, RemoteKey, Target, Ticket, gather},
    immediate::{Name, Opened},
};
use petasos_fabric::{
    Address, Done, Endpoint, Event, InjectError, Key, Lease, LostReason, OpError, OpErrorKind,
    Operation, Peer, RegionId, Remote, Slice, Support, Token,
};
use smallvec::SmallVec;
use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

/// The most accesses that wait for the endpoint to accept them.
const QUEUE: usize = 1024;
/// The most bytes of data packets of one node that wait to be asked for: more than the windows of a
/// correct peer hold.
const STASHED: usize = 256 << 20;
/// Imported keys that are kept for their next use.
const KEPT: usize = 256;
/// The token of operations whose completion is ignored. Tickets have tokens beyond it.
const IGNORED: u64 = 0;
/// Operations that close memory have numbers from here on.
const CLOSING: u64 = 1 << 63;

/// A [`Device`](crate::Device) that is an endpoint of the fabric.
#[derive(Debug)]
pub struct Over<E> {
    inner: E,
    scheme: &'static str,
    limits: DeviceLimits,
    /// By node, which is the peer's slot.
    peers: Vec<Option<Reached>>,
    /// Accesses that the endpoint has not accepted.
    queue: VecDeque<Operation>,
    /// Nodes that were told that it is full.
    full: Vec<Node>,
    /// Keys that were imported, oldest first.
    imported: VecDeque<Imported>,
    opened: HashMap<RegionId, Opened>,
    /// Nodes that are to be told of an immediate put that was refused.
    refused: Vec<(Node, Fault)>,
    /// Which node each access is with.
    tickets: HashMap<u64, Node>,
    /// Regions that are being closed, by the token; and how many there were.
    closing: HashMap<u64, Closing>,
    closings: u64,
    mail: VecDeque<DeviceEvent>,
    /// Data packets that were not asked for yet.
    stash: VecDeque<DeviceEvent>,
    events: Vec<Event>,
}

/// A region that is being closed.
#[derive(Debug)]
struct Closing {
    region: RegionId,
    /// What the endpoint holds until then.
    memory: Option<Slice>,
    /// The ticket of the caller, if it waits for the end.
    ticket: Option<Ticket>,
    /// The peer that still reached it when that was last asked.
    holder: Option<Address>,
}

/// A key of a node's.
#[derive(Debug)]
struct Imported {
    node: Node,
    key: RemoteKey,
    remote: Remote,
    name: Name,
}

/// A node that is up.
#[derive(Debug)]
struct Reached {
    peer: Peer,
    /// Accesses under way, and why the node was lost, if it was: reported when they have completed.
    running: usize,
    lost: Option<LostReason>,
    /// Bytes of its packets in the stash.
    stashed: usize,
}

impl<E: Endpoint> Over<E> {
    /// A device over this endpoint, which is not used otherwise.
    ///
    /// ```
    /// use petasos_channel::{Channels, Config, Over};
    /// use petasos_fabric::{Address, Endpoint};
    ///
    /// let shm = petasos_shm::Shm::open(&Address::parse("shm://*")?)?;
    /// let endpoint = Channels::new(Over::new(shm), Config::default());
    /// assert_eq!(endpoint.address().scheme(), "shm");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the endpoint has no put with event, or takes only messages that are too short.
    #[must_use]
    pub fn new(inner: E) -> Over<E> {
        let can = inner.capabilities();
        assert!(can.put_with_event != Support::None, "an endpoint with put and event");
        assert!(can.limits.max_inject > 256, "an endpoint that takes messages of 257 bytes");
        // Where the network itself writes what is longer, an immediate put, which is copied twice,
        // is for what is shorter.
        let short = can.native_event_from.map_or(u64::MAX, |from| from.saturating_sub(1));
        let short = usize::try_from(short).unwrap_or(usize::MAX);
        let limits = DeviceLimits {
            packet: can.limits.max_inject - 1,
            immediate: (can.limits.max_inject - immediate::HEADER).min(short),
            transfer: usize::try_from(can.limits.max_transfer).unwrap_or(usize::MAX).min(1 << 30),
            atomic: if can.atomics == Support::None { 0 } else { can.limits.max_atomic },
            processor_atomics: can.processor_atomics,
            registrations: can.limits.max_regions,
            passive_target: can.passive_target,
            serves_from: 0,
            serves_events_from: 0,
            enforcement: can.enforcement,
            puts_are_packets: false,
        };
        Over {
            scheme: can.scheme,
            limits,
            inner,
            peers: Vec::new(),
            queue: VecDeque::new(),
            full: Vec::new(),
            imported: VecDeque::new(),
            opened: HashMap::new(),
            refused: Vec::new(),
            tickets: HashMap::new(),
            closing: HashMap::new(),
            closings: 0,
            mail: VecDeque::new(),
            stash: VecDeque::new(),
            events: Vec::new(),
        }
    }

    /// The endpoint, to be read: only this device drives it.
    #[must_use]
    pub fn inner(&self) -> &E {
        &self.inner
    }

    fn reached(&mut self, node: Node) -> Option<&mut Reached> {
        self.peers.get_mut(node.0 as usize)?.as_mut()
    }

    fn peer(&mut self, node: Node) -> Result<Peer, Refusal> {
        let reached = self.reached(node).filter(|reached| reached.lost.is_none());
        reached.map(|reached| reached.peer).ok_or(Refusal::Gone)
    }

    /// The node of a peer that is up.
    fn node(&self, peer: Peer) -> Option<Node> {
        let reached = self.peers.get(peer.index as usize)?.as_ref()?;
        (reached.peer == peer).then_some(Node(peer.index))
    }

    /// Begins an access, which `make` makes of an imported key.
    fn begin(
        &mut self,
        node: Node,
        target: &Target,
        ticket: Ticket,
        make: impl FnOnce(Token, Remote) -> Operation,
    ) -> Result<(), Refusal> {
        let peer = self.peer(node)?;
        if self.queue.len() >= QUEUE {
            self.full.push(node);
            return Err(Refusal::Full);
        }
        let Some(Imported { remote, .. }) = self.import(node, peer, &target.key) else {
            let result = Err(Fault::Stale);
            self.mail.push_back(DeviceEvent::Done { ticket, result });
            return Ok(());
        };
        let (token, remote) = (Token(ticket.0 + 1), *remote);
        self.tickets.insert(token.0, node);
        if let Some(reached) = self.reached(node) {
            reached.running += 1;
        }
        self.queue.push_back(make(token, remote));
        self.inner.submit(&mut self.queue);
        Ok(())
    }

    fn import(&mut self, node: Node, peer: Peer, key: &RemoteKey) -> Option<&Imported> {
        let known = |imported: &Imported| imported.node == node && imported.key == *key;
        if let Some(at) = self.imported.iter().position(known) {
            return self.imported.get(at);
        }
        let (name, bytes) = key.as_bytes().split_first_chunk()?;
        let (name, bytes) = (*name, Key::from_bytes(bytes.to_vec()).ok()?);
        // The key must be that peer's own: no peer is accessed because another says so.
        let owner = bytes.parse().ok()?.owner;
        if self.inner.peer(peer)?.address != owner {
            return None;
        }
        let remote = self.inner.import(&bytes).ok()?;
        self.imported.push_back(Imported { node, key: key.clone(), remote, name });
        if self.imported.len() > KEPT
            && let Some(oldest) = self.imported.pop_front()
        {
            self.inner.release(oldest.remote);
        }
        self.imported.back()
    }

    /// Forgets what was imported of a node, and what it is owed.
    fn release(&mut self, node: Node) {
        let Over { imported, inner, refused, .. } = self;
        refused.retain(|(of, _)| *of != node);
        imported.retain(|of| {
            if of.node == node {
                inner.release(of.remote);
            }
            of.node != node
        });
    }

    /// A message came.
    fn message(&mut self, node: Node, message: &[u8]) {
        if self.immediate(node, message) {
            return;
        }
        let Some((class, bytes)) = message.split_first() else { return };
        let bytes = gather(&[bytes]);
        if *class == Class::Data as u8 {
            return self.stash(node, bytes);
        }
        self.mail.push_back(DeviceEvent::Packet { node, class: Class::Control, bytes });
    }

    /// Keeps a data packet until it is asked for.
    fn stash(&mut self, node: Node, bytes: Lease) {
        let Some(reached) = self.reached(node).filter(|reached| reached.lost.is_none()) else {
            return;
        };
        reached.stashed += bytes.len();
        if reached.stashed > STASHED {
            let why = format!("{STASHED} bytes of packets wait, which is more than it may send");
            (reached.lost, reached.stashed) = (Some(LostReason::Protocol(why)), 0);
            self.stash.retain(|packet| !is_packet_of(packet, node));
            return self.report_lost(node);
        }
        self.stash.push_back(DeviceEvent::Packet { node, class: Class::Data, bytes });
    }

    /// Hands out data packets that were kept.
    fn fetch_stashed(&mut self, most: usize, events: &mut Vec<DeviceEvent>) {
        for _ in 0..most.min(self.stash.len()) {
            let Some(packet) = self.stash.pop_front() else { return };
            if let DeviceEvent::Packet { node, bytes, .. } = &packet
                && let Some(Some(reached)) = self.peers.get_mut(node.0 as usize)
            {
                reached.stashed -= bytes.len();
            }
            events.push(packet);
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::PeerUp { peer, incarnation } => {
                let index = peer.index as usize;
                if self.peers.len() <= index {
                    self.peers.resize_with(index + 1, || None);
                }
                self.peers[index] = Some(Reached { peer, running: 0, lost: None, stashed: 0 });
                if let Some(info) = self.inner.peer(peer) {
                    let (node, address) = (Node(peer.index), info.address);
                    self.mail.push_back(DeviceEvent::Up { node, address, incarnation });
                }
            }
            Event::PeerLost { peer, reason } => match self.node(peer) {
                Some(node) => {
                    if let Some(reached) = self.reached(node) {
                        reached.lost = Some(reason);
                    }
                    self.report_lost(node);
                }
                None => {
                    let info = self.inner.peer(peer);
                    self.inner.forget(peer);
                    if let Some(info) = info {
                        let address = info.address;
                        let event = DeviceEvent::Unreachable { address, reason };
                        self.mail.push_back(event);
                    }
                }
            },
            Event::Message { peer, message } => {
                if let Some(node) = self.node(peer) {
                    self.message(node, &message);
                }
            }
            Event::LongMessage { body, .. } => {
                // Peers of this crate send none; one from another program is discarded.
                let token = Token(IGNORED);
                self.queue.push_back(Operation::Discard { token, body });
            }
            Event::PutArrived { peer, region, offset, len, data } => {
                if let (Some(node), Some(opened)) = (self.node(peer), self.opened.get(&region)) {
                    let tag = opened.tag;
                    let event = DeviceEvent::PutArrived { node, tag, offset, len, data };
                    self.mail.push_back(event);
                }
            }
            Event::Done { token, result } if token.0 & CLOSING != 0 => {
                let Some(closing) = self.closing.get_mut(&token.0) else { return };
                if let Err(error) = &result
                    && error.kind == OpErrorKind::StillReached
                {
                    // It is closed again until that succeeds: the caller has a patience of its own.
                    closing.holder = error.peer.clone();
                    let region = closing.region;
                    return self.close(token, region, Operation::PATIENCE);
                }
                let Some(Closing { ticket, .. }) = self.closing.remove(&token.0) else { return };
                if let Some(ticket) = ticket {
                    let result = result.map(|_| SmallVec::new()).map_err(|error| fault(&error));
                    self.mail.push_back(DeviceEvent::Done { ticket, result });
                }
            }
            Event::Done { token, result } if token.0 != IGNORED => {
                let ticket = Ticket(token.0 - 1);
                let result = result.map_err(|error| fault(&error)).map(|done| match done {
                    Done::Fetched(old) => old,
                    _ => SmallVec::new(),
                });
                self.mail.push_back(DeviceEvent::Done { ticket, result });
                if let Some(node) = self.tickets.remove(&token.0)
                    && let Some(reached) = self.reached(node)
                {
                    reached.running -= 1;
                    self.report_lost(node);
                }
            }
            Event::Writable { peer } => {
                let node = self.node(peer);
                self.mail.extend(node.map(|node| DeviceEvent::Room { node }));
            }
            _ => {}
        }
    }

    /// Reports that a node is lost, when nothing is under way with it any more.
    fn report_lost(&mut self, node: Node) {
        let Some(reached) = self.reached(node) else { return };
        if reached.running > 0 {
            return;
        }
        let Some(reason) = reached.lost.take() else { return };
        let peer = reached.peer;
        self.peers[node.0 as usize] = None;
        self.release(node);
        self.inner.forget(peer);
        // The packets that it sent come first.
        let stash = std::mem::take(&mut self.stash);
        let (last, rest): (VecDeque<_>, _) =
            stash.into_iter().partition(|packet| is_packet_of(packet, node));
        self.stash = rest;
        self.mail.extend(last);
        self.mail.push_back(DeviceEvent::Lost { node, reason });
    }
}

fn is_packet_of(event: &DeviceEvent, node: Node) -> bool {
    matches!(event, DeviceEvent::Packet { node: of, .. } if *of == node)
}

/// What an error of the endpoint's means here.
fn fault(error: &OpError) -> Fault {
    match error.kind {
        OpErrorKind::StaleKey | OpErrorKind::UnknownRegion => Fault::Stale,
        OpErrorKind::Denied { .. } => Fault::Denied,
        OpErrorKind::OutOfBounds { .. } => Fault::OutOfBounds,
        OpErrorKind::Misaligned { .. } => Fault::Misaligned,
        OpErrorKind::PeerLost(_) | OpErrorKind::UnknownPeer => Fault::Lost,
        _ => Fault::Unsupported,
    }
}

fn refusal(error: InjectError) -> Refusal {
    match error {
        InjectError::Full => Refusal::Full,
        _ => Refusal::Gone,
    }
}

impl<E: Endpoint> Over<E> {
    /// Closes a region of the endpoint's.
    fn close(&mut self, token: Token, region: RegionId, patience: Duration) {
        self.queue.push_back(Operation::Deregister { token, region, patience });
        self.inner.submit(&mut self.queue);
    }
}

fn region_of(registration: Registration) -> RegionId {
    RegionId { index: registration.0 as u32, generation: (registration.0 >> 32) as u32 }
}
