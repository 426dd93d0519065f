//! The accesses of an endpoint to memory of its peers that the library carries out.

use crate::{
    grants::Target,
    network::{Mark, RemoteOp},
    window::Window,
};
use petasos_fabric::{
    Access as Rights, Address, Cursor, Done, Event, LostReason, OpError, OpErrorKind, Operation,
    Peer, Slice, Time, Token, two_sided::Batch,
};
use slab::Slab;
use std::collections::{HashMap, VecDeque};

/// Pieces of one access under way.
const PIECES: u32 = 8;
/// Accesses at a time; beyond, the engine has them.
const MOST: usize = 4096;

/// One access.
#[derive(Debug)]
pub(crate) struct Access {
    serial: u32,
    operation: Operation,
    peer: Peer,
    batch: Batch,
    address: Address,
    target: Target,
    total: u64,
    handed: Cursor,
    /// For memory that the library does not get.
    window: Option<Window>,
    running: u32,
    /// Nothing more is posted: how it ends when nothing is under way.
    outcome: Option<OpErrorKind>,
    /// A piece of it failed.
    failed: bool,
    /// Its peer is lost: what is under way takes no room from others any more.
    lost: bool,
}

impl Access {
    /// An access of `total` bytes; `operation` is a put or a get, which counts in `batch`.
    pub(crate) fn new(
        operation: Operation,
        peer: Peer,
        batch: Batch,
        address: Address,
        target: Target,
        total: u64,
    ) -> Access {
        let window = match &operation {
            Operation::Put { local, .. } | Operation::Get { local, .. } => Window::of(local),
            _ => None,
        };
        Access {
            serial: 0,
            operation,
            peer,
            batch,
            address,
            target,
            total,
            handed: Cursor::default(),
            window,
            running: 0,
            outcome: None,
            failed: false,
            lost: false,
        }
    }

    pub(crate) fn token(&self) -> Token {
        self.operation.token()
    }

    pub(crate) fn peer(&self) -> Peer {
        self.peer
    }

    pub(crate) fn target(&self) -> Target {
        self.target
    }

    pub(crate) fn is_get(&self) -> bool {
        matches!(self.operation, Operation::Get { .. })
    }

    pub(crate) fn batch(&self) -> Batch {
        self.batch
    }

    /// Why it fails, if it does.
    pub(crate) fn failure(&self) -> Option<&OpErrorKind> {
        self.outcome.as_ref()
    }

    pub(crate) fn into_operation(self) -> Operation {
        self.operation
    }

    /// Whether these rights allow it.
    pub(crate) fn is_allowed_by(&self, rights: Rights) -> bool {
        rights.allows(if self.is_get() { Rights::READ } else { Rights::WRITE })
    }

    /// Whether nothing of it was posted, and it is not to end.
    pub(crate) fn is_new(&self) -> bool {
        self.handed.moved() == 0 && self.outcome.is_none()
    }

    /// Whether all of it was posted.
    pub(crate) fn is_posted(&self) -> bool {
        self.handed.moved() == self.total
    }

    /// Whether more of it is to be posted.
    pub(crate) fn has_more(&self) -> bool {
        self.outcome.is_none() && !self.failed && !self.is_posted()
    }

    /// Whether a piece is to be posted now.
    pub(crate) fn wants_piece(&self) -> bool {
        self.has_more() && self.running < PIECES
    }

    /// The next piece: our memory, the offset in theirs, and where both sides are after it. `None`
    /// also while pieces under way have to complete first.
    pub(crate) fn next(&mut self, most: usize) -> Option<(Slice, u64, Cursor)> {
        let put = !self.is_get();
        let (Operation::Put { local, spans, .. } | Operation::Get { local, spans, .. }) =
            &self.operation
        else {
            return None;
        };
        let mut at = self.handed;
        let room = self.window.as_ref().map_or(most, |window| window.room(&at).min(most));
        let stretch = at.take(local, spans, room)?;
        let (local, offset) = (stretch.local()?, stretch.offset);
        let piece = match &mut self.window {
            None => local,
            Some(window) => window.piece(&self.handed, &local, self.total, put)?,
        };
        Some((piece, offset, at))
    }

    /// A piece has completed, well or not.
    fn piece_done(&mut self, good: bool) {
        self.running -= 1;
        if self.running == 0
            && let Some(window) = &mut self.window
            && let Operation::Put { local, spans, .. } | Operation::Get { local, spans, .. } =
                &self.operation
        {
            let got = good && matches!(self.operation, Operation::Get { .. });
            window.end(&self.handed, local, spans, got);
        }
    }

    /// Whether the library may write to its memory as long as a piece is under way.
    pub(crate) fn is_written(&self) -> bool {
        self.is_get() && self.window.is_none()
    }

    pub(crate) fn remote_op(&self) -> RemoteOp {
        if self.is_get() { RemoteOp::Get } else { RemoteOp::Put }
    }

    /// The mark of its pieces, in this slot.
    pub(crate) fn mark(&self, slot: usize) -> Mark {
        Mark::Access { access: slot as u32, serial: self.serial }
    }

    /// It ends with the first of such errors, when nothing is under way.
    pub(crate) fn stop(&mut self, kind: OpErrorKind) {
        self.outcome.get_or_insert(kind);
    }

    /// A piece failed: the peer cannot be reached any more, and its loss, which follows, ends the
    /// access.
    pub(crate) fn set_failed(&mut self) {
        self.failed = true;
    }

    pub(crate) fn is_failed(&self) -> bool {
        self.failed
    }

    /// Whether nothing is under way or to be posted.
    fn is_over(&self) -> bool {
        self.running == 0 && (self.outcome.is_some() || (self.is_posted() && !self.failed))
    }

    /// How it ends.
    pub(crate) fn end(self) -> Event {
        let done = if self.is_get() { Done::Got } else { Done::Put };
        let result = match self.outcome {
            Some(kind) => Err(OpError::with_peer(kind, &self.address)),
            None => Ok(done),
        };
        Event::Done { token: self.operation.token(), result }
    }
}

/// All accesses, and payloads of packets that the library writes.
#[derive(Debug)]
pub(crate) struct Accesses {
    list: Slab<Access>,
    tokens: HashMap<Token, usize>,
    /// Payloads of packets that the library writes: by the link's slot and the packet's serial
    /// number.
    payloads: HashMap<(u32, u32), (Peer, Target)>,
    /// Accesses with pieces to be posted.
    ready: VecDeque<usize>,
    /// Gets whose peer is lost, while the library has their memory: until when, slot, and serial
    /// number. By their times.
    orphans: VecDeque<(Time, usize, u32)>,
    /// Pieces and payloads under way with peers that are not lost.
    running: usize,
    serial: u32,
}

impl Accesses {
    pub(crate) fn new() -> Accesses {
        Accesses {
            list: Slab::new(),
            tokens: HashMap::new(),
            payloads: HashMap::new(),
            ready: VecDeque::new(),
            orphans: VecDeque::new(),
            running: 0,
            serial: 0,
        }
    }

    /// One that moves bytes of this memory.
    pub(crate) fn using(&self, memory: &Slice) -> Option<&Access> {
        self.list.iter().map(|(_, access)| access).find(|access| access.operation.uses(memory))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there may be one more.
    pub(crate) fn has_room(&self) -> bool {
        self.list.len() < MOST
    }

    /// Adds an access, whose serial number is set here. Returns its slot.
    pub(crate) fn add(&mut self, mut access: Access) -> usize {
        self.serial = self.serial.wrapping_add(1);
        access.serial = self.serial;
        let token = access.operation.token();
        let slot = self.list.insert(access);
        self.tokens.insert(token, slot);
        slot
    }

    pub(crate) fn get(&self, slot: usize) -> Option<&Access> {
        self.list.get(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: usize) -> Option<&mut Access> {
        self.list.get_mut(slot)
    }

    /// The slot of the access with this token.
    pub(crate) fn find(&self, token: Token) -> Option<usize> {
        self.tokens.get(&token).copied()
    }

    /// The slots of the accesses that `which` says.
    pub(crate) fn slots(&self, which: impl Fn(&Access) -> bool) -> Vec<usize> {
        self.list.iter().filter(|(_, access)| which(access)).map(|(slot, _)| slot).collect()
    }

    pub(crate) fn remove(&mut self, slot: usize) -> Option<Access> {
        let access = self.list.try_remove(slot)?;
        let token = access.operation.token();
        if self.tokens.get(&token) == Some(&slot) {
            self.tokens.remove(&token);
        }
        Some(access)
    }

    fn is_there(&self, slot: usize, serial: u32) -> bool {
        self.list.get(slot).is_some_and(|access| access.serial == serial)
    }

    /// Removes an access of which nothing is under way or to be posted.
    pub(crate) fn remove_if_over(&mut self, slot: usize) -> Option<Access> {
        match self.list.get(slot)?.is_over() {
            true => self.remove(slot),
            false => None,
        }
    }

    // Posting.

    /// The access has pieces to be posted.
    pub(crate) fn add_ready(&mut self, slot: usize) {
        self.ready.push_back(slot);
    }

    /// How many have.
    pub(crate) fn ready(&self) -> usize {
        self.ready.len()
    }

    /// The next access with pieces to be posted.
    pub(crate) fn pop_ready(&mut self) -> Option<usize> {
        self.ready.pop_front()
    }

    /// Whether accesses wait for room, of which no event tells.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Pieces and payloads under way with peers that are not lost.
    #[inline]
    pub(crate) fn running(&self) -> usize {
        self.running
    }

    /// The piece of an access up to `after` was posted.
    pub(crate) fn piece_posted(&mut self, slot: usize, after: Cursor) {
        if let Some(access) = self.list.get_mut(slot) {
            access.handed = after;
            access.running += 1;
            self.running += 1;
        }
    }

    /// The library has completed a piece, well or not. Returns the access, unless it ended before,
    /// as its peer was lost.
    pub(crate) fn piece_done(
        &mut self,
        slot: usize,
        serial: u32,
        good: bool,
    ) -> Option<&mut Access> {
        let access = self.list.get_mut(slot).filter(|access| access.serial == serial)?;
        access.piece_done(good);
        self.running -= usize::from(!access.lost);
        Some(access)
    }

    /// The library writes the payload of a packet.
    pub(crate) fn add_payload(&mut self, link: u32, serial: u32, peer: Peer, target: Target) {
        self.payloads.insert((link, serial), (peer, target));
        self.running += 1;
    }

    /// It has written it. Returns the peer and its region, unless the peer was lost.
    pub(crate) fn payload_done(&mut self, link: u32, serial: u32) -> Option<(Peer, Target)> {
        let payload = self.payloads.remove(&(link, serial))?;
        self.running -= 1;
        Some(payload)
    }

    // Lost peers.

    /// The peer is lost: forgets the payloads that the library writes for it.
    pub(crate) fn forget_payloads(&mut self, peer: Peer) {
        let before = self.payloads.len();
        self.payloads.retain(|_, (of, _)| *of != peer);
        self.running -= before - self.payloads.len();
    }

    /// The peer of an access is lost. Returns the serial number if pieces are under way.
    pub(crate) fn lose(&mut self, slot: usize, reason: &LostReason) -> Option<u32> {
        let access = self.list.get_mut(slot)?;
        if access.failed || !access.is_posted() || access.running > 0 {
            access.stop(OpErrorKind::PeerLost(reason.clone()));
        }
        access.lost = true;
        self.running -= access.running as usize;
        (access.running > 0).then_some(access.serial)
    }

    /// An access to a lost peer ends when its pieces have completed, or at this time. Times are in
    /// order.
    pub(crate) fn add_orphan(&mut self, until: Time, slot: usize, serial: u32) {
        self.orphans.push_back((until, slot, serial));
    }

    /// The next such access whose time has come.
    pub(crate) fn pop_late_orphan(&mut self, now: Time) -> Option<usize> {
        while let Some((until, slot, serial)) = self.orphans.front().copied()
            && until <= now
        {
            self.orphans.pop_front();
            if self.is_there(slot, serial) {
                return Some(slot);
            }
        }
        None
    }

    /// When to check again, if nothing happens before.
    pub(crate) fn until(&self) -> Time {
        let first = self.orphans.iter().find(|(_, slot, serial)| self.is_there(*slot, *serial));
        first.map_or(Time::NEVER, |(until, ..)| *until)
    }

    /// Whether there is anything to be served.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.is_waiting() || !self.orphans.is_empty()
    }
}
