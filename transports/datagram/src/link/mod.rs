//! What is kept of a peer.

mod controls;
mod inbound;
mod outbound;

use crate::{frame::Header, network::Node};
use controls::Controls;
use inbound::Inbound;
use outbound::Outbound;
use petasos_fabric::{LostReason, Peer, Time};

/// Packets to a peer that it has not taken, at most. Part of the protocol.
pub(crate) const WINDOW: u32 = 64;

/// The state of a connection.
#[derive(Debug)]
pub(crate) enum State {
    /// The peer is being reached, or its greeting has not arrived.
    Meeting,
    /// Packets flow.
    Up,
    /// The connection has ended; what the peer sent before is still taken, until this time.
    Ending(LostReason, Time),
}

/// How the peer knows when to ring for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It rings with all it sends.
    Rings,
    /// It was told that we poll.
    Silent,
    /// It was told to ring again, and has not said since when.
    Asked,
    /// It rings, and we wait for what it sent before: this many packets in all.
    Owed(u32),
}

/// Where packets to the peer go, as its greeting said.
#[derive(Debug)]
struct Remote {
    node: Node,
    /// The peer's name in the library's network.
    name: Vec<u8>,
    /// Our slot in the peer's table, and the ticket that it gave us.
    slot: u32,
    ticket: u64,
}

/// A peer, by its slot.
#[derive(Debug)]
pub(crate) struct Link {
    peer: Peer,
    /// The handle of the peer at the control endpoint.
    control: Peer,
    pub(crate) state: State,
    /// What the peer writes into the headers of its packets.
    ticket: u64,
    remote: Option<Remote>,
    pub(crate) out: Outbound,
    pub(crate) inward: Inbound,
    /// Control messages that have not been sent yet.
    pub(crate) controls: Controls,
    /// The peer wants to be rung for.
    pub(crate) rings: bool,
    pub(crate) watch: Watch,
}

impl Link {
    /// The link to a peer that is being reached.
    pub(crate) fn new(peer: Peer, control: Peer, ticket: u64) -> Link {
        Link {
            peer,
            control,
            state: State::Meeting,
            ticket,
            remote: None,
            out: Outbound::default(),
            inward: Inbound::new(),
            controls: Controls::default(),
            rings: true,
            watch: Watch::Rings,
        }
    }

    #[inline]
    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    /// The handle of the peer at the control endpoint.
    #[inline]
    pub(crate) fn control(&self) -> Peer {
        self.control
    }

    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    #[inline]
    pub(crate) fn is_greeted(&self) -> bool {
        !matches!(self.state, State::Meeting)
    }

    /// What the peer writes into the headers of its packets.
    #[inline]
    pub(crate) fn ticket(&self) -> u64 {
        self.ticket
    }

    /// The peer's greeting has arrived: packets flow.
    pub(crate) fn greeted(&mut self, node: Node, name: Vec<u8>, slot: u32, ticket: u64) {
        self.remote = Some(Remote { node, name, slot, ticket });
        self.state = State::Up;
    }

    /// Where packets to the peer go.
    #[inline]
    pub(crate) fn node(&self) -> Option<Node> {
        self.remote.as_ref().map(|remote| remote.node)
    }

    /// The peer's name in the library's network; empty until it is known.
    #[inline]
    pub(crate) fn name(&self) -> &[u8] {
        self.remote.as_ref().map_or(&[], |remote| &remote.name)
    }

    /// The header of the next packet to the peer.
    #[inline]
    pub(crate) fn header(&self) -> Header {
        let (slot, ticket) = self.remote.as_ref().map_or((0, 0), |r| (r.slot, r.ticket));
        let (taken, number) = (self.inward.taken() as u16, self.out.sent() as u16);
        Header { slot, taken, number, ticket }
    }
}
