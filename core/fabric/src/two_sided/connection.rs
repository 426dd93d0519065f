//! All that the engine knows of one peer.

use super::{
    credit::{Credit, CreditReport},
    expected::{Expected, ExpectedReport},
    fence::Fences,
    flush::{Flushes, OpenBatch},
    header::Status,
    incoming::{Incoming, Landing},
    ledger::{Ledger, Location},
    operations::{Kind, Op, Pull, Purpose, Sort, Source},
    outstanding::{Outstanding, Request},
    queues::{self, Control, Queues, Schedule},
    registry::{Exposed, Regions},
};
use crate::{Address, Incarnation, LostReason, OpError, OpErrorKind, Peer, PeerState, Remote};
use bytes::Bytes;
use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
};

/// What is known of every peer, also of one with which nothing is under way.
#[derive(Debug)]
pub(super) struct PeerEntry {
    pub(super) handle: Peer,
    pub(super) address: Address,
    pub(super) incarnation: Option<Incarnation>,
    pub(super) state: PeerState,
    /// This endpoint itself.
    pub(super) own: bool,
    serials: u32,
    /// Operations wait for a fence.
    pub(super) held: bool,
    /// Operations that the transport carries out itself.
    pub(super) outside: u32,
    /// An operation was refused: there is to be an event when there is room.
    pub(super) refused: bool,
    /// For messages that need a lease.
    pub(super) credit: Credit,
    /// For expected messages.
    pub(super) expected: Expected,
    /// Our accesses since the last flush.
    pub(super) accesses: OpenBatch,
    /// Of the peer's puts that asked for no answer: why the first was refused since the last flush.
    pub(super) refused_puts: Status,
    /// A thread drives the peer's endpoint while its program does not.
    pub(super) attended: bool,
}

impl PeerEntry {
    pub(super) fn new(handle: Peer, address: Address, own: bool) -> PeerEntry {
        PeerEntry {
            handle,
            address,
            incarnation: None,
            state: PeerState::Connecting,
            own,
            serials: 0,
            held: false,
            outside: 0,
            refused: false,
            credit: Credit::default(),
            expected: Expected::default(),
            accesses: OpenBatch::default(),
            refused_puts: Status::Good,
            attended: false,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == PeerState::Up
    }

    pub(super) fn next_serial(&mut self) -> u32 {
        self.serials = self.serials.wrapping_add(1);
        self.serials
    }
}

/// All that is known of a peer with which something is under way.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) entry: PeerEntry,
    /// Named by `next_output`, or going to be, or being served.
    pub(super) listed: bool,
    /// Something changed that may let a packet go.
    pub(super) changed: bool,
    pub(super) queues: Queues,
    pub(super) schedule: Schedule,
    /// Packets that the transport has, oldest first.
    pub(super) in_flight: VecDeque<InFlight>,
    pub(super) outstanding: Outstanding,
    pub(super) flushes: Flushes,
    pub(super) fences: Option<Box<Fences>>,
    pub(super) incoming: Incoming,
    pub(super) credit_report: CreditReport,
    pub(super) expected_report: ExpectedReport,
}

/// What must be known of a packet when it was sent.
#[derive(Debug)]
pub(super) enum InFlight {
    Nothing,
    Op(u64),
    /// With memory that peers reach.
    Memory(Exposed),
}

impl Deref for Connection {
    type Target = PeerEntry;
    fn deref(&self) -> &PeerEntry {
        &self.entry
    }
}

impl DerefMut for Connection {
    fn deref_mut(&mut self) -> &mut PeerEntry {
        &mut self.entry
    }
}

impl Connection {
    pub(super) fn new(entry: PeerEntry) -> Connection {
        Connection {
            entry,
            listed: false,
            changed: false,
            queues: Queues::default(),
            schedule: Schedule::default(),
            in_flight: VecDeque::new(),
            outstanding: Outstanding::default(),
            flushes: Flushes::default(),
            fences: None,
            incoming: Incoming::default(),
            credit_report: CreditReport::default(),
            expected_report: ExpectedReport::default(),
        }
    }

    /// Whether there is nothing to know but the entry.
    pub(super) fn is_plain(&self) -> bool {
        !self.listed
            && !self.entry.held
            && self.queues.is_empty()
            && self.in_flight.is_empty()
            && self.outstanding.is_empty()
            && self.incoming.is_empty()
            && self.credit_report.is_empty()
            && self.expected_report.is_empty()
    }

    /// Keeps no memory for what is empty.
    pub(super) fn trim(&mut self) {
        self.queues.trim();
        queues::trim(&mut self.in_flight);
        self.outstanding.trim();
        self.incoming.trim();
    }

    /// There may be something to send.
    pub(super) fn wake(&mut self, ledger: &mut Ledger) {
        self.changed = true;
        if !self.listed && self.is_up() {
            self.listed = true;
            if !self.own {
                ledger.ready.push_back(self.handle.index);
            }
        }
    }

    // Operations.

    /// Takes in an operation, without queueing it.
    pub(super) fn insert(&mut self, mut op: Op, ledger: &mut Ledger) -> u64 {
        op.serial = self.next_serial();
        if self.entry.held {
            self.earlier_began(&op);
        }
        let token = op.token;
        let id = self.outstanding.insert(op);
        let peer = self.handle.index;
        ledger.tokens.insert(token, Location::Op { peer, id });
        id
    }

    pub(super) fn op(&mut self, id: u64) -> Option<&mut Op> {
        self.outstanding.op(id)
    }

    /// Queues a message.
    pub(super) fn queue_message(&mut self, id: u64, ledger: &mut Ledger) {
        let Some(op) = self.op(id) else { return };
        op.queued = true;
        let tagged = match &op.kind {
            Kind::Message { tag, .. } => tag.is_some(),
            Kind::Body { announce, .. } => announce.sort() == Sort::Tagged,
            _ => false,
        };
        match tagged {
            true => self.queues.tagged.push_back(id),
            false => self.queues.push_message(id),
        }
        self.wake(ledger);
    }

    /// Queues an operation that needs a request.
    pub(super) fn queue_asking(&mut self, id: u64, ledger: &mut Ledger) {
        if let Some(op) = self.op(id) {
            op.queued = true;
            self.queues.asking.push_back(id);
            self.wake(ledger);
        }
    }

    /// Tells how an operation ended once that is known and its memory is free; forgets it once
    /// the peer cannot name it any more.
    pub(super) fn settle(&mut self, id: u64, ledger: &mut Ledger) {
        let peer = self.handle.index;
        let Some(op) = self.op(id) else { return };
        if op.flying > 0 || op.placing {
            return;
        }
        if let Some(outcome) = op.outcome.take() {
            op.done = true;
            op.release();
            let (token, batch) = (op.token, op.batch);
            if batch.is_some()
                && let Err(kind) = &outcome
            {
                self.access_refused(batch, kind.clone());
            }
            let result = outcome.map_err(|kind| OpError::with_peer(kind, &self.address));
            ledger.finish(token, Some(Location::Op { peer, id }), result);
        }
        let Some(op) = self.op(id) else { return };
        if op.done && op.awaiting == 0 && !op.queued && !op.is_open() {
            let op = self.outstanding.remove(id);
            ledger.live -= 1;
            if self.entry.held {
                self.earlier_over(&op, ledger);
            }
            if op.batch.is_some() {
                self.access_over(op.batch, ledger);
            }
            if let Kind::Pull(Pull { source: Source::Body(body), purpose, .. }) = op.kind {
                let sort = match purpose {
                    Purpose::Tagged { .. } => Sort::Tagged,
                    _ => Sort::Long,
                };
                self.body_done(body, sort, ledger);
            }
        }
    }

    /// Tells the peer that its body is not needed any more.
    pub(super) fn body_done(&mut self, body: u64, sort: Sort, ledger: &mut Ledger) {
        self.queues.control.push_back(Control::BodyDone { body, sort });
        self.wake(ledger);
    }

    /// Answers a request, of which nothing was refused now.
    pub(super) fn answer(&mut self, id: u64, status: Status, ledger: &mut Ledger) {
        self.queues.control.push_back(Control::Reply { id, status, old: Bytes::new() });
        self.wake(ledger);
    }

    /// Answers a request.
    pub(super) fn reply(&mut self, id: u64, status: Status, old: Bytes, ledger: &mut Ledger) {
        if status != Status::Good {
            ledger.counters.refused += 1;
        }
        self.queues.control.push_back(Control::Reply { id, status, old });
        self.wake(ledger);
    }

    // Requests.

    /// A request of ours for bytes of an operation: its id.
    pub(super) fn ask(&mut self, op: u64, base: u64, len: u64) -> u64 {
        let serial = self.next_serial();
        self.outstanding.ask(serial, op, base, len)
    }

    pub(super) fn request(&mut self, id: u64) -> Option<&mut Request> {
        self.outstanding.request(id)
    }

    /// The request was answered, or will not be: another one may be sent.
    pub(super) fn answered(&mut self, id: u64, ledger: &mut Ledger) {
        if self.outstanding.answered(id) {
            self.wake(ledger);
        }
    }

    // The end.

    /// Ends everything that is under way. The transport touches nothing of it any more. Gives the
    /// handles that the program has released and that were needed until now.
    pub(super) fn lose(
        &mut self,
        reason: &LostReason,
        regions: &mut Regions,
        ledger: &mut Ledger,
    ) -> Vec<Remote> {
        let lost = || OpErrorKind::PeerLost(reason.clone());
        match self.incoming.landing.take() {
            Some(Landing::Put { at: Some(at), .. }) => ledger.unhold(regions, at),
            Some(Landing::Tagged { posted: Some(posted), .. }) => {
                posted.finish(Err(OpError::with_peer(lost(), &self.address)), ledger);
            }
            _ => {}
        }
        for flight in std::mem::take(&mut self.in_flight) {
            if let InFlight::Memory(at) = flight {
                ledger.unhold(regions, at);
            }
        }
        let peer = self.handle.index;
        for (id, mut op) in self.outstanding.take_ops() {
            ledger.live -= 1;
            if !op.done {
                let outcome = op.outcome.take().unwrap_or_else(|| Err(lost()));
                let result = outcome.map_err(|kind| OpError::with_peer(kind, &self.address));
                ledger.finish(op.token, Some(Location::Op { peer, id }), result);
            }
        }
        let released = self.end_held(&lost(), ledger);
        ledger.live -= self.entry.outside as usize;
        let listed = self.listed;
        let mut entry = PeerEntry::new(self.handle, self.address.clone(), self.own);
        (entry.incarnation, entry.state) = (self.incarnation, PeerState::Lost(reason.clone()));
        *self = Connection { listed, ..Connection::new(entry) };
        released
    }
}
