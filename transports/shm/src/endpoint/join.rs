//! How two endpoints get a pair, whichever of them connects.
//!
//! The side that connects makes the pair, sends a greeting with its table, the pair and its
//! doorbell, and waits; the side that accepts checks all of it and answers with its own table and
//! doorbell. Before anything else, each asks the kernel which user the other side is.
//!
//! Of two attempts that cross, the one of the larger incarnation wins: the other side's is told to
//! try again, and takes the greeting that is on its way in the meantime. No process can take the
//! address of a peer that lives.

use crate::{
    Shm,
    channel::Channel,
    control::Greeting,
    doorbell::{NextPending, PeerDoorbell},
    pair::Pair,
    peer_segments::{GrantedSegments, PeerSegments},
    poller::Source,
    process::PeerProcess,
    socket::Credentials,
    table::PeerTable,
};
use petasos_fabric::{EventFd, LostReason, Peer, PeerState};
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// All that a connection is made of, beside its socket.
pub(super) struct Joined {
    pub(super) pair: Pair,
    pub(super) table: PeerTable,
    pub(super) doorbell: EventFd,
    pub(super) peer_doorbell: OwnedFd,
    pub(super) credentials: Credentials,
    /// The peer connected by itself, and its handle was not asked for yet.
    pub(super) uninvited: bool,
}

impl Shm {
    /// What this endpoint says of itself.
    pub(super) fn greeting(&self) -> Greeting {
        Greeting {
            address: self.engine.address().clone(),
            incarnation: self.engine.incarnation(),
            sizes: self.config.sizes(),
            probe: Arc::as_ptr(&self.probe).expose_provenance() as u64,
        }
    }

    /// Whether this endpoint talks with processes of this user.
    pub(super) fn admits(&self, uid: u32) -> bool {
        uid == self.uid || self.config.admit.contains(&uid)
    }

    /// The pair is complete: packets flow.
    pub(super) fn join(&mut self, peer: Peer, greeting: Greeting, socket: OwnedFd, joined: Joined) {
        let Joined { pair, table, doorbell, peer_doorbell, credentials, uninvited } = joined;
        self.attempts.remove(peer);
        let watched = self
            .poller
            .change(&socket, Source::Socket, peer)
            .and_then(|()| self.poller.add_doorbell(&doorbell, peer));
        if let Err(error) = watched {
            return self.lose(peer.index, LostReason::System(error.to_string()));
        }
        let peer_doorbell = match credentials.uid == self.uid {
            true => PeerDoorbell::Event(EventFd::from(peer_doorbell)),
            false => PeerDoorbell::Socket,
        };
        let mut process = PeerProcess::new(socket, credentials, peer_doorbell);
        if self.config.cross_memory {
            process.probe_cross_memory(greeting.probe, greeting.incarnation);
        }
        let channel = Channel {
            handle: peer,
            incarnation: greeting.incarnation,
            pair,
            table,
            process,
            doorbell,
            uninvited,
            stuck: None,
            unposted: false,
            served: false,
            watched: false,
            next_pending: NextPending::NONE,
            overdrawn: false,
            assembly: None,
            touched: self.now,
            deliveries: Default::default(),
            ending: None,
            segments: PeerSegments::default(),
            granted: GrantedSegments::default(),
        };
        self.channels.insert(channel);
        self.start_watching(peer.index);
        self.accesses.schedule(peer.index);
        self.engine.peer_up(peer, greeting.incarnation);
        debug_assert!(
            self.engine.peer_info(peer).is_some_and(|info| info.state == PeerState::Up),
            "a seat is for a peer that is connecting"
        );
    }
}
