//! Frames to peers: to the transport at once, or later when it has no room.

use crate::{
    peers::{Peers, Record, SELF},
    transport::Transport,
};
use petasos_fabric::{Peer, driver::Kick};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    sync::Arc,
};

pub(crate) struct Outbox {
    /// Peers that have deferred frames.
    congested: Cell<u32>,
    /// Frames of this engine to itself, for the next pass.
    loopback: RefCell<VecDeque<Vec<u8>>>,
    waker: Arc<Kick>,
}

impl Outbox {
    pub(crate) fn new(waker: Arc<Kick>) -> Outbox {
        Outbox { congested: Cell::new(0), loopback: RefCell::default(), waker }
    }

    /// Sends a frame in parts to a peer, if there is one.
    #[inline(always)]
    pub(crate) fn send(
        &self,
        transport: &Transport,
        peers: &RefCell<Peers>,
        peer: Peer,
        parts: &[&[u8]],
    ) {
        // Mostly no peer has deferred frames. Then the transport alone has to know the peer.
        if self.congested.get() != 0 || peer == SELF || !transport.inject(peer, parts) {
            self.send_later(transport, peers, peer, parts);
        }
    }

    /// Sends a frame that may have to wait for others before it, or for room.
    #[cold]
    fn send_later(
        &self,
        transport: &Transport,
        peers: &RefCell<Peers>,
        peer: Peer,
        parts: &[&[u8]],
    ) {
        if let Some(record) = peers.borrow_mut().get(peer) {
            self.transmit(transport, record, parts);
        }
    }

    /// Sends a frame, or defers it behind others if the transport has no room.
    #[inline(always)]
    pub(crate) fn transmit(&self, transport: &Transport, record: &mut Record, parts: &[&[u8]]) {
        if !record.is_direct() || !transport.inject(record.peer(), parts) {
            self.defer(record, parts.concat());
        }
    }

    /// Keeps a frame until there is room, or, to this engine itself, until the next pass.
    #[cold]
    fn defer(&self, record: &mut Record, frame: Vec<u8>) {
        if record.peer() != SELF {
            let first = record.defer(frame);
            return self.congested.update(|peers| peers + u32::from(first));
        }
        self.loopback.borrow_mut().push_back(frame);
        // The engine must not sleep before the next pass.
        self.waker.ring();
    }

    /// The transport has room for this peer again.
    pub(crate) fn resume(&self, transport: &Transport, record: &mut Record) {
        let peer = record.peer();
        let cleared = record.resume(|frame| transport.inject(peer, &[frame]));
        self.congested.update(|peers| peers - u32::from(cleared));
    }

    /// A peer is lost, and its deferred frames with it.
    pub(crate) fn forget(&self, record: &Record) {
        self.congested.update(|peers| peers - u32::from(!record.is_direct()));
    }

    /// How many frames wait for this engine itself.
    pub(crate) fn loopback_len(&self) -> usize {
        self.loopback.borrow().len()
    }

    pub(crate) fn next_loopback(&self) -> Option<Vec<u8>> {
        self.loopback.borrow_mut().pop_front()
    }
}
