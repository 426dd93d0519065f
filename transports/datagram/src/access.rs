//! Put and get by the library: the initiator's side. The owner's is in [`crate::exposure`].
//!
//! A key of these transports holds nothing of the library's. An initiator that wants to access
//! memory by it asks the owner, on the connection on which both were authenticated, and shows that
//! it has the key. The answer is a *grant*: the library's key for that memory, which is made then.
//! Before the memory is closed, the owner revokes all grants: the initiator begins nothing more,
//! and returns the grant when what was under way has completed. So no access meets memory that is
//! closed, to which some libraries respond by ending the connection, and none is still landing when
//! closing completes.
//!
//! Short accesses, those with events, and all that cannot be granted are left to the engine. The
//! library still writes the payloads of a put with event: see [`crate::completion`].

use crate::{
    datagrams::Datagrams,
    frame::{Control, Leave, TARGET},
    network::{Mark, Network, Refusal, RemoteOp},
};
use petasos_fabric::{
    Access as Rights, Address, Cursor, Done, Event, Key, LostReason, OpError, OpErrorKind,
    Operation, Peer, Slice, Time, Token,
};
use slab::Slab;
use std::collections::{HashMap, VecDeque};

/// The longest piece of an access.
const PIECE: usize = 1 << 20;
/// Pieces of one access under way.
const PIECES: u32 = 8;
/// Accesses at a time; beyond, the engine has them.
const MOST: usize = 4096;

/// What names a region of a peer's: the engine's route in its key.
pub(crate) type Target = [u8; TARGET];

/// The state of the grant of a region.
#[derive(Debug)]
pub(crate) enum Grant<K> {
    /// The owner was asked; these accesses wait.
    Asked(Vec<usize>),
    /// Granted, with this many pieces under way; completion data to the owner begins with `name`.
    Given { key: K, rights: Rights, name: u64, running: u32 },
    /// It was revoked, and pieces are under way.
    Revoked { running: u32 },
    /// The owner refused it.
    Refused,
}

/// All accesses.
#[derive(Debug)]
pub(crate) struct Accesses<K> {
    /// Whether the library can access remote memory.
    pub(crate) native: bool,
    /// From which length on the library writes payloads of packets; `u64::MAX` if it does not.
    pub(crate) completion_data_from: u64,
    list: Slab<Access>,
    tokens: HashMap<Token, usize>,
    pub(crate) grants: HashMap<(Peer, Target), Grant<K>>,
    /// Payloads of packets that the library writes: by the link's slot and the packet's serial
    /// number.
    pub(crate) payloads: HashMap<(u32, u32), (Peer, Target)>,
    /// Accesses with pieces to be posted.
    ready: VecDeque<usize>,
    /// Gets whose peer is lost, while the library has their memory: until when, slot, and serial
    /// number. By their times.
    orphans: VecDeque<(Time, usize, u32)>,
    /// Pieces and payloads under way with peers that are not lost.
    pub(crate) running: usize,
    serial: u32,
}

/// One access.
#[derive(Debug)]
struct Access {
    serial: u32,
    operation: Operation,
    peer: Peer,
    address: Address,
    target: Target,
    total: u64,
    handed: Cursor,
    running: u32,
    /// Nothing more is posted: how it ends when nothing is under way.
    outcome: Option<OpErrorKind>,
    /// A piece of it failed.
    failed: bool,
    /// Its peer is lost: what is under way takes no room from others any more.
    lost: bool,
}

impl<K> Accesses<K> {
    pub(crate) fn new(native: bool, completion_data_from: u64) -> Accesses<K> {
        Accesses {
            native,
            completion_data_from,
            list: Slab::new(),
            tokens: HashMap::new(),
            grants: HashMap::new(),
            payloads: HashMap::new(),
            ready: VecDeque::new(),
            orphans: VecDeque::new(),
            running: 0,
            serial: 0,
        }
    }

    /// Whether accesses wait for room, of which no event tells.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Whether there is anything to be served.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.is_waiting() || !self.orphans.is_empty()
    }

    /// When to check again, if nothing happens before.
    pub(crate) fn until(&self) -> Time {
        let first = self.orphans.iter().find(|(_, slot, serial)| self.is_there(*slot, *serial));
        first.map_or(Time::NEVER, |(until, ..)| *until)
    }

    fn is_there(&self, slot: usize, serial: u32) -> bool {
        self.list.get(slot).is_some_and(|access| access.serial == serial)
    }

    /// Whether a peer granted, or may grant, access to its memory, and nothing is under way by
    /// that.
    pub(crate) fn can_return(&self, peer: Peer) -> bool {
        let mut held = false;
        for (_, grant) in self.grants.iter().filter(|((of, _), _)| *of == peer) {
            match grant {
                Grant::Asked(_) | Grant::Given { running: 0, .. } => held = true,
                Grant::Given { .. } | Grant::Revoked { .. } => return false,
                Grant::Refused => {}
            }
        }
        held
    }
}

impl<N: Network> Datagrams<N> {
    /// Takes in an access that the library is to do. Returns an operation that is for the engine.
    pub(crate) fn accept_access(&mut self, operation: Operation) -> Option<Operation> {
        let (Operation::Put { remote, .. } | Operation::Get { remote, .. }) = &operation else {
            return Some(operation);
        };
        let peer = remote.peer;
        let imported = self.engine.imported(*remote);
        let route = imported.and_then(|imported| imported.parts.route(Key::ROUTE_TWO_SIDED));
        let target = route.and_then(|bytes| Target::try_from(&bytes[..]).ok());
        let incarnation = imported.map(|imported| imported.parts.incarnation);
        let info = self.engine.peer_info(peer);
        let same = info.as_ref().is_some_and(|info| info.incarnation == incarnation);
        let up = self.links.of(peer).is_some_and(|link| link.is_up());
        let (Some(target), Some(info), true) = (target, info, up && same) else {
            return Some(operation);
        };
        // The engine reports what is wrong with it.
        let Ok(total) = self.engine.check_access(&operation) else { return Some(operation) };
        if let Operation::Put { event: Some(_), .. } = operation {
            self.ask_for_grant(peer, target, total);
            return Some(operation);
        }
        // When too many operations never complete, the owner serves further accesses.
        let crowded = self.lost.count() > self.config.lost;
        let few = total < self.config.remote_access_from.max(1);
        if few || crowded || self.accesses.list.len() >= MOST {
            return Some(operation);
        }
        let Accesses { list, tokens, grants, ready, serial, .. } = &mut self.accesses;
        if let Some(Grant::Refused) = grants.get(&(peer, target)) {
            return Some(operation);
        }
        *serial = serial.wrapping_add(1);
        let token = operation.token();
        let slot = list.insert(Access {
            serial: *serial,
            operation,
            peer,
            address: info.address,
            target,
            total,
            handed: Cursor::default(),
            running: 0,
            outcome: None,
            failed: false,
            lost: false,
        });
        tokens.insert(token, slot);
        match grants.get_mut(&(peer, target)) {
            Some(Grant::Given { rights, .. }) if list[slot].allowed(*rights) => {
                ready.push_back(slot)
            }
            Some(Grant::Asked(waiting)) => waiting.push(slot),
            Some(_) => return self.take_access(slot).map(|access| access.operation),
            None => {
                grants.insert((peer, target), Grant::Asked(vec![slot]));
                self.send_control(peer, Control::Ask(target));
            }
        }
        None
    }

    fn take_access(&mut self, slot: usize) -> Option<Access> {
        let access = self.accesses.list.try_remove(slot)?;
        let token = access.operation.token();
        if self.accesses.tokens.get(&token) == Some(&slot) {
            self.accesses.tokens.remove(&token);
        }
        Some(access)
    }

    /// The owner has granted access to a region, or refused it.
    pub(crate) fn granted(&mut self, index: u32, target: Target, leave: Option<Leave>) {
        let Some(link) = self.links.get(index) else { return };
        let peer = link.peer();
        let node = link.node();
        let Some(grant) = self.accesses.grants.get_mut(&(peer, target)) else {
            return self.cut_off(index, "a grant that was not asked for");
        };
        let Grant::Asked(waiting) = grant else {
            return self.cut_off(index, "a grant that is not waited for");
        };
        let waiting = std::mem::take(waiting);
        let given = leave.zip(node).and_then(|(leave, node)| {
            Some((self.net.key(node, &leave.place)?, leave.access, leave.notice))
        });
        match given {
            Some((key, rights, name)) => {
                *grant = Grant::Given { key, rights, name, running: 0 };
                for slot in waiting {
                    let list = &self.accesses.list;
                    match list.get(slot).is_some_and(|access| access.allowed(rights)) {
                        true => self.accesses.ready.push_back(slot),
                        // The owner reports what is wrong with it.
                        false => self.leave_to_engine(vec![slot]),
                    }
                }
            }
            None => {
                *grant = Grant::Refused;
                self.leave_to_engine(waiting);
            }
        }
    }

    /// Accesses that have not begun go to the engine.
    fn leave_to_engine(&mut self, slots: Vec<usize>) {
        for slot in slots {
            if let Some(access) = self.take_access(slot) {
                self.engine.submit(access.operation);
            }
        }
    }

    /// The owner revokes a grant: it closes the memory.
    pub(crate) fn revoked(&mut self, index: u32, target: Target) {
        let Some(link) = self.links.get(index) else { return };
        let peer = link.peer();
        let grant = self.accesses.grants.get_mut(&(peer, target));
        let Some(Grant::Given { running, .. }) = grant else {
            return self.cut_off(index, "a grant was revoked that was not given");
        };
        let running = *running;
        self.accesses.grants.insert((peer, target), Grant::Revoked { running });
        self.return_grant(peer, target);
        let of_it = |access: &Access| access.peer == peer && access.target == target;
        let list = &self.accesses.list;
        let slots: Vec<usize> =
            list.iter().filter(|(_, a)| of_it(a)).map(|(slot, _)| slot).collect();
        for slot in slots {
            let Some(access) = self.accesses.list.get_mut(slot) else { continue };
            if access.handed.moved() == 0 && access.outcome.is_none() {
                self.leave_to_engine(vec![slot]);
            } else if access.handed.moved() < access.total && !access.failed {
                access.outcome.get_or_insert(OpErrorKind::StaleKey);
                self.settle_access(slot);
            }
        }
    }

    /// Returns a grant that was revoked, once nothing is under way by it.
    pub(crate) fn return_grant(&mut self, peer: Peer, target: Target) {
        if let Some(Grant::Revoked { running: 0 }) = self.accesses.grants.get(&(peer, target)) {
            self.accesses.grants.remove(&(peer, target));
            self.send_control(peer, Control::Released(target));
        }
    }

    /// Posts pieces of the accesses in turn, and ends gets whose peer was lost long enough ago.
    /// True if anything was done.
    pub(crate) fn serve_accesses(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..self.accesses.ready.len() {
            let Some(slot) = self.accesses.ready.pop_front() else { break };
            worked |= self.post_pieces(slot);
        }
        while let Some((until, slot, serial)) = self.accesses.orphans.front().copied()
            && until <= self.now
        {
            self.accesses.orphans.pop_front();
            if self.accesses.is_there(slot, serial) {
                self.end_access(slot);
                worked = true;
            }
        }
        worked
    }

    fn post_pieces(&mut self, slot: usize) -> bool {
        let most = self.config.sends / 2;
        let most_at_once = self.net.facts().access.unwrap_or(0).min(PIECE);
        let mut posted = false;
        let (mut failed, mut full) = (None, false);
        let Datagrams { accesses, net, links, .. } = self;
        let Accesses { list, grants, ready, running, .. } = accesses;
        let Some(access) = list.get_mut(slot) else { return false };
        let Some(Grant::Given { key, running: by_it, .. }) =
            grants.get_mut(&(access.peer, access.target))
        else {
            return false;
        };
        let index = access.peer.index;
        let Some(link) = links.get_mut(index) else { return false };
        let Some(node) = link.node().filter(|_| link.is_up()) else { return false };
        while access.outcome.is_none()
            && !access.failed
            && access.handed.moved() < access.total
            && access.running < PIECES
        {
            if *running >= most {
                ready.push_back(slot);
                break;
            }
            let Some((piece, offset, after)) = access.next(most_at_once) else {
                break;
            };
            let op = match access.operation {
                Operation::Get { .. } => RemoteOp::Get,
                _ => RemoteOp::Put,
            };
            let mark = Mark::Access { access: slot as u32, serial: access.serial };
            match net.access(node, op, piece, key, offset, mark) {
                Ok(()) => {
                    access.handed = after;
                    access.running += 1;
                    link.out.begin_operations(1);
                    (*by_it, *running) = (*by_it + 1, *running + 1);
                    self.counters.accesses += 1;
                    posted = true;
                }
                Err(Refusal::Full) => {
                    full = true;
                    ready.push_back(slot);
                    break;
                }
                Err(Refusal::Failed(code)) => {
                    failed = Some(code);
                    break;
                }
            }
        }
        if posted && link.rings && self.rings {
            self.ring(index);
        }
        if let Some(code) = failed {
            self.fail(index, code);
        }
        if full {
            self.full(index);
        }
        posted
    }

    /// The library has completed a piece.
    pub(crate) fn access_done(&mut self, slot: u32, serial: u32, result: Result<(), i32>) {
        if self.lost.count() > 0 {
            self.lost_piece_done(slot, serial);
        }
        let slot = slot as usize;
        let Accesses { list, running, .. } = &mut self.accesses;
        // Otherwise its peer was lost, and it ended before.
        let Some(access) = list.get_mut(slot).filter(|a| a.serial == serial) else { return };
        access.running -= 1;
        *running -= usize::from(!access.lost);
        let (peer, target) = (access.peer, access.target);
        let known = self.links.of(peer).map(|link| link.out.end_operation()).is_some();
        if let Some(Grant::Given { running, .. } | Grant::Revoked { running }) =
            self.accesses.grants.get_mut(&(peer, target))
        {
            *running -= 1;
        }
        self.return_grant(peer, target);
        let Some(access) = self.accesses.list.get_mut(slot) else { return };
        match result {
            // Whatever failed, the peer cannot be reached any more; its loss, which follows, ends
            // the access.
            Err(code) if known => {
                access.failed = true;
                return self.fail(peer.index, code as isize);
            }
            _ => {}
        }
        if access.outcome.is_none() && !access.failed && access.handed.moved() < access.total {
            self.accesses.ready.push_back(slot);
        }
        self.settle_access(slot);
    }

    /// Ends an access of which nothing is under way or to be posted.
    fn settle_access(&mut self, slot: usize) {
        if let Some(access) = self.accesses.list.get(slot)
            && access.running == 0
            && (access.outcome.is_some()
                || (access.handed.moved() == access.total && !access.failed))
        {
            self.end_access(slot);
        }
    }

    fn end_access(&mut self, slot: usize) {
        let Some(access) = self.take_access(slot) else { return };
        let done =
            if matches!(access.operation, Operation::Get { .. }) { Done::Got } else { Done::Put };
        let result = match access.outcome {
            Some(kind) => Err(OpError::with_peer(kind, &access.address)),
            None => Ok(done),
        };
        self.engine.raise(Event::Done { token: access.operation.token(), result });
    }

    /// Cancels an access. False if there is none with this token.
    pub(crate) fn cancel_access(&mut self, token: Token) -> bool {
        let Some(&slot) = self.accesses.tokens.get(&token) else { return false };
        if let Some(access) = self.accesses.list.get_mut(slot)
            && access.handed.moved() < access.total
        {
            access.outcome.get_or_insert(OpErrorKind::Cancelled);
            self.settle_access(slot);
        }
        true
    }

    /// A peer is lost: its accesses end. Gets with pieces under way end when the library has
    /// completed these, for until then it may write to their memory, or after
    /// [`Config::mourning`](crate::Config::mourning): not every library ever completes what a dead
    /// process was to answer. The network holds the memory of all until the library has completed
    /// them. The loss of the peer is reported at once.
    ///
    /// Returns slots and serial numbers of those with pieces under way.
    pub(crate) fn end_accesses(&mut self, peer: Peer, reason: &LostReason) -> Vec<(u32, u32)> {
        let mut under_way = Vec::new();
        if self.accesses.list.is_empty() && self.accesses.grants.is_empty() {
            return under_way;
        }
        self.accesses.grants.retain(|(of, _), _| *of != peer);
        let Accesses { payloads, running, .. } = &mut self.accesses;
        let before = payloads.len();
        payloads.retain(|_, (of, _)| *of != peer);
        *running -= before - payloads.len();
        let until = self.now.after(self.config.mourning);
        let list = &self.accesses.list;
        let slots: Vec<usize> =
            list.iter().filter(|(_, a)| a.peer == peer).map(|(slot, _)| slot).collect();
        for slot in slots {
            let Accesses { list, orphans, running, .. } = &mut self.accesses;
            let Some(access) = list.get_mut(slot) else { continue };
            if access.failed || access.handed.moved() < access.total || access.running > 0 {
                access.outcome.get_or_insert(OpErrorKind::PeerLost(reason.clone()));
            }
            access.lost = true;
            if access.running > 0 {
                under_way.push((slot as u32, access.serial));
            }
            *running -= access.running as usize;
            match access.operation {
                _ if access.running == 0 => self.settle_access(slot),
                Operation::Get { .. } => orphans.push_back((until, slot, access.serial)),
                // The memory of a put is only read.
                _ => self.end_access(slot),
            }
        }
        under_way
    }
}

impl Access {
    fn allowed(&self, rights: Rights) -> bool {
        rights.allows(match self.operation {
            Operation::Get { .. } => Rights::READ,
            _ => Rights::WRITE,
        })
    }

    /// The next piece: our memory, the offset in theirs, and where both sides are after it.
    fn next(&self, most: usize) -> Option<(Slice, u64, Cursor)> {
        let (Operation::Put { local, spans, .. } | Operation::Get { local, spans, .. }) =
            &self.operation
        else {
            return None;
        };
        let mut at = self.handed;
        let stretch = at.take(local, spans, most)?;
        Some((stretch.local()?, stretch.offset, at))
    }
}
