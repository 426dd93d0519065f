//! All that the engine knows of one peer.

use super::{
    MAX_REQUESTS,
    credit::Grants,
    header::{Header, Status},
    ledger::{Ledger, Place},
    matching::Posted,
    operations::{Kind, Op, Pull, Sort, Source, Then},
    registry::Regions,
};
use crate::{
    Address, Event, Incarnation, LostReason, OpError, OpErrorKind, Peer, PeerState, RegionId,
};
use bytes::Bytes;
use slab::Slab;
use std::{
    collections::{HashMap, VecDeque},
    ops::{Deref, DerefMut},
};

/// What is known also of a peer with which nothing is going on.
#[derive(Debug)]
pub(super) struct Face {
    pub(super) handle: Peer,
    pub(super) address: Address,
    pub(super) incarnation: Option<Incarnation>,
    pub(super) state: PeerState,
    /// This endpoint itself.
    pub(super) own: bool,
    serials: u32,
    /// Messages that we may send which need a lease, and whether we asked for more and got none
    /// since.
    pub(super) credit: u32,
    pub(super) asked: bool,
    /// What it may send of these, once it has asked.
    pub(super) grants: Option<Box<Grants>>,
    /// Eager messages that we may send, and whether we know.
    pub(super) eager: u16,
    pub(super) places: Places,
    /// Eager messages that it may send in all, of these such for which it has not got the credit
    /// back, and credit to be given.
    pub(super) window: u16,
    pub(super) held: u16,
    pub(super) owed: u16,
    /// Announced expected messages that wait for receives: how many we may have with it, and it
    /// with us.
    pub(super) room: u16,
    pub(super) room_here: u16,
}

impl Face {
    pub(super) fn new(handle: Peer, address: Address, own: bool) -> Face {
        Face {
            handle,
            address,
            incarnation: None,
            state: PeerState::Connecting,
            own,
            serials: 0,
            credit: 0,
            asked: false,
            grants: None,
            eager: 0,
            places: Places::Unknown,
            window: 0,
            held: 0,
            owed: 0,
            room: super::TAGGED_ROOM,
            room_here: super::TAGGED_ROOM,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.state == PeerState::Up
    }
}

/// Whether the peer has said how many eager expected messages it has places for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    Unknown,
    Asked,
    Known,
}

/// And what is known of one with which something is.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) face: Face,

    pub(super) ops: Slab<Op>,

    /// Named by `next_output`, or going to be, or being served.
    pub(super) listed: bool,
    /// Something changed that may let a packet go.
    pub(super) stirred: bool,
    /// Answers, and other packets that are never held back.
    pub(super) control: VecDeque<Control>,
    /// Unexpected messages, in the order in which they must arrive.
    pub(super) messages: VecDeque<Message>,
    /// Expected ones.
    pub(super) tagged: VecDeque<u64>,
    /// Operations whose next packet needs a request.
    pub(super) asking: VecDeque<u64>,
    /// Data in fragments, taken in turns.
    pub(super) bulk: VecDeque<Bulk>,
    /// Packets that the transport has, oldest first.
    pub(super) flights: VecDeque<Flight>,
    /// Whose turn it is among the first four queues, and for how long bulk has waited.
    pub(super) turn: usize,
    pub(super) burst: u32,
    /// Our requests without an answer.
    pub(super) requests: Slab<Request>,
    /// Our bodies that it is not done with.
    pub(super) bodies: [u32; 2],
    /// Injected bytes in `messages`, with headers; and whether the program was told that it is
    /// full.
    pub(super) injected: usize,
    pub(super) full: bool,
    /// Of credit for messages, what is to be said: so much is granted, what it has is recalled, and
    /// what we have was recalled.
    pub(super) granted: u32,
    pub(super) recall: bool,
    pub(super) give: bool,
    /// Of expected messages: so many more places for eager ones, and for announced ones.
    pub(super) eager_granted: u16,
    pub(super) eager_asked: bool,
    pub(super) room_granted: u16,
    /// Of its puts that asked for no answer: fragments that were refused, and why the first one
    /// was.
    pub(super) refusals: u64,
    pub(super) refusal: Status,

    /// The packet that is coming in.
    pub(super) landing: Option<Landing>,
    /// Requests of its that wait for our answer.
    pub(super) serving: u32,
    /// Puts of its that failed and are not over, by its ids.
    pub(super) failed: HashMap<u64, Status>,
    /// Long messages of its that were not received yet: the lengths of the bodies, by its ids.
    pub(super) announced: HashMap<u64, u64>,
    /// Bodies of its that we have not said we are done with.
    pub(super) theirs: [u32; 2],
}

#[derive(Debug)]
pub(super) enum Control {
    Reply { id: u64, status: Status, old: Bytes },
    BodyDone { body: u64, sort: Sort },
}

#[derive(Debug)]
pub(super) enum Message {
    Injected(Bytes),
    Op(u64),
}

#[derive(Debug)]
pub(super) enum Bulk {
    Put(u64),
    Serve(Serve),
}

/// The answer to a request for data.
#[derive(Debug)]
pub(super) struct Serve {
    /// The asker's id.
    pub(super) id: u64,
    pub(super) what: Served,
    pub(super) len: u64,
    pub(super) done: u64,
}

#[derive(Debug)]
pub(super) enum Served {
    Region { region: RegionId, offset: u64 },
    Body { op: u64, offset: u64 },
}

/// What must be known of a packet when it was sent.
#[derive(Debug)]
pub(super) enum Flight {
    Nothing,
    Op(u64),
    Region(RegionId),
}

#[derive(Debug)]
pub(super) struct Request {
    serial: u32,
    pub(super) op: u64,
    /// Which bytes of the operation it is for.
    pub(super) base: u64,
    pub(super) len: u64,
    pub(super) got: u64,
}

/// What to do when the payload is there.
#[derive(Debug)]
pub(super) enum Landing {
    Nothing,
    Message {
        id: Option<u64>,
    },
    Long {
        body: u64,
        len: u64,
    },
    /// An eager message: where it goes if it was matched already.
    Tagged {
        tag: u64,
        id: Option<u64>,
        len: usize,
        posted: Option<Posted>,
    },
    Put {
        header: Header,
        region: Option<RegionId>,
        status: Status,
    },
    Atomic {
        header: Header,
    },
    Data {
        id: u64,
        len: u64,
        placed: bool,
    },
    Reply {
        id: u64,
        status: Status,
    },
}

impl Deref for Link {
    type Target = Face;
    fn deref(&self) -> &Face {
        &self.face
    }
}

impl DerefMut for Link {
    fn deref_mut(&mut self) -> &mut Face {
        &mut self.face
    }
}

impl Link {
    pub(super) fn new(face: Face) -> Link {
        Link {
            face,
            ops: Slab::new(),
            listed: false,
            stirred: false,
            control: VecDeque::new(),
            messages: VecDeque::new(),
            tagged: VecDeque::new(),
            asking: VecDeque::new(),
            bulk: VecDeque::new(),
            flights: VecDeque::new(),
            turn: 0,
            burst: 0,
            requests: Slab::new(),
            bodies: [0; 2],
            injected: 0,
            full: false,
            granted: 0,
            recall: false,
            give: false,
            eager_granted: 0,
            eager_asked: false,
            room_granted: 0,
            refusals: 0,
            refusal: Status::Good,
            landing: None,
            serving: 0,
            failed: HashMap::new(),
            announced: HashMap::new(),
            theirs: [0; 2],
        }
    }

    /// Whether there is nothing to be known but the face.
    pub(super) fn is_plain(&self) -> bool {
        let queues = self.control.len()
            + self.messages.len()
            + self.tagged.len()
            + self.asking.len()
            + self.bulk.len()
            + self.flights.len();
        let tables =
            self.ops.len() + self.requests.len() + self.failed.len() + self.announced.len();
        let open = [self.bodies, self.theirs] != [[0; 2]; 2] || self.serving > 0;
        let busy = self.listed || self.full || self.injected > 0 || self.landing.is_some();
        let untold = self.granted > 0 || self.recall || self.give || self.refusals > 0;
        let untold = untold || self.eager_granted > 0 || self.eager_asked || self.room_granted > 0;
        queues + tables == 0 && !open && !busy && !untold
    }

    /// Keeps no memory for what is empty.
    pub(super) fn trim(&mut self) {
        fn queue<T>(queue: &mut VecDeque<T>) {
            if queue.is_empty() {
                *queue = VecDeque::new();
            }
        }
        queue(&mut self.control);
        queue(&mut self.messages);
        queue(&mut self.tagged);
        queue(&mut self.asking);
        queue(&mut self.bulk);
        queue(&mut self.flights);
        // Numbers are not used again: the serials go on.
        if self.ops.is_empty() {
            self.ops = Slab::new();
        }
        if self.requests.is_empty() {
            self.requests = Slab::new();
        }
        self.failed.shrink_to_fit();
        self.announced.shrink_to_fit();
    }

    /// There may be something to send.
    pub(super) fn wake(&mut self, ledger: &mut Ledger) {
        self.stirred = true;
        if !self.listed && self.is_up() {
            self.listed = true;
            if !self.own {
                ledger.ready.push_back(self.handle.index);
            }
        }
    }

    fn next_serial(&mut self) -> u32 {
        self.serials = self.serials.wrapping_add(1);
        self.serials
    }

    // Operations.

    /// Takes in an operation, without queueing it.
    pub(super) fn insert(&mut self, mut op: Op, ledger: &mut Ledger) -> u64 {
        op.serial = self.next_serial();
        let (serial, token) = (op.serial, op.token);
        let id = u64::from(serial) << 32 | self.ops.insert(op) as u64;
        let peer = self.handle.index;
        ledger.tokens.insert(token, Place::Op { peer, id });
        id
    }

    pub(super) fn op(&mut self, id: u64) -> Option<&mut Op> {
        let op = self.ops.get_mut(id as u32 as usize)?;
        (u64::from(op.serial) == id >> 32).then_some(op)
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
            true => self.tagged.push_back(id),
            false => self.messages.push_back(Message::Op(id)),
        }
        self.wake(ledger);
    }

    /// Queues an operation that needs a request.
    pub(super) fn queue_asking(&mut self, id: u64, ledger: &mut Ledger) {
        if let Some(op) = self.op(id) {
            op.queued = true;
            self.asking.push_back(id);
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
            let token = op.token;
            let result = outcome.map_err(|kind| OpError::with_peer(kind, &self.address));
            ledger.finish(token, Some(Place::Op { peer, id }), result);
        }
        let Some(op) = self.op(id) else { return };
        if op.done && op.awaiting == 0 && !op.queued && !op.is_open() {
            let op = self.ops.remove(id as u32 as usize);
            ledger.live -= 1;
            if let Kind::Pull(Pull { source: Source::Body(body), then, .. }) = op.kind {
                let sort = match then {
                    Then::Tagged { .. } => Sort::Tagged,
                    _ => Sort::Long,
                };
                self.body_done(body, sort, ledger);
            }
        }
    }

    /// Tells the peer that its body is not needed any more.
    pub(super) fn body_done(&mut self, body: u64, sort: Sort, ledger: &mut Ledger) {
        self.control.push_back(Control::BodyDone { body, sort });
        self.wake(ledger);
    }

    /// Answers a request.
    pub(super) fn reply(&mut self, id: u64, status: Status, old: Bytes, ledger: &mut Ledger) {
        if status != Status::Good {
            ledger.counters.refused += 1;
        }
        self.control.push_back(Control::Reply { id, status, old });
        self.wake(ledger);
    }

    // Requests.

    pub(super) fn may_ask(&self) -> bool {
        self.requests.len() < MAX_REQUESTS as usize
    }

    pub(super) fn ask(&mut self, op: u64, base: u64, len: u64) -> u64 {
        let serial = self.next_serial();
        let request = Request { serial, op, base, len, got: 0 };
        u64::from(serial) << 32 | self.requests.insert(request) as u64
    }

    pub(super) fn request(&mut self, id: u64) -> Option<&mut Request> {
        let request = self.requests.get_mut(id as u32 as usize)?;
        (u64::from(request.serial) == id >> 32).then_some(request)
    }

    /// The request was answered, or will not be: its credit is free again.
    pub(super) fn answered(&mut self, id: u64, ledger: &mut Ledger) {
        let Some(op) = self.request(id).map(|request| request.op) else {
            return;
        };
        self.requests.remove(id as u32 as usize);
        if let Some(op) = self.op(op) {
            op.awaiting -= 1;
        }
        self.wake(ledger);
    }

    // The end.

    /// Ends everything that is under way. The transport touches nothing of it any more.
    pub(super) fn lose(&mut self, reason: &LostReason, regions: &mut Regions, ledger: &mut Ledger) {
        let lost = || OpErrorKind::PeerLost(reason.clone());
        match self.landing.take() {
            Some(Landing::Put { region: Some(region), .. }) => ledger.unhold(regions, region),
            Some(Landing::Tagged { posted: Some(posted), .. }) => {
                posted.finish(Err(OpError::with_peer(lost(), &self.address)), ledger);
            }
            _ => {}
        }
        for flight in std::mem::take(&mut self.flights) {
            if let Flight::Region(region) = flight {
                ledger.unhold(regions, region);
            }
        }
        let peer = self.handle.index;
        for (key, mut op) in std::mem::take(&mut self.ops) {
            ledger.live -= 1;
            if !op.done {
                let id = u64::from(op.serial) << 32 | key as u64;
                let outcome = op.outcome.take().unwrap_or_else(|| Err(lost()));
                let result = outcome.map_err(|kind| OpError::with_peer(kind, &self.address));
                ledger.finish(op.token, Some(Place::Op { peer, id }), result);
            }
        }
        let listed = self.listed;
        let mut face = Face::new(self.handle, self.address.clone(), self.own);
        (face.incarnation, face.state) = (self.incarnation, PeerState::Lost(reason.clone()));
        *self = Link { listed, ..Link::new(face) };
    }

    /// Takes a message from the bytes that wait to be injected.
    pub(super) fn uninject(&mut self, len: usize, room: usize, ledger: &mut Ledger) {
        self.injected -= len + super::header::PREFIX;
        if self.full && self.injected <= room / 2 {
            self.full = false;
            let peer = self.handle;
            ledger.events.push_back(Event::Writable { peer });
        }
    }
}
