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
//! library still writes the payloads of a put with event: see [`crate::completion`]. The engine
//! also serves all accesses by keys to parts of regions: not every library keeps a peer within less
//! than a page or a mapping, and a key that a lost peer held could not be revoked at once.

use crate::{
    access::Access,
    datagrams::Datagrams,
    frame::{Control, Permission},
    grants::{Grant, Target},
    network::{Network, Refusal},
};
use petasos_fabric::{Key, LostReason, OpErrorKind, Operation, Peer, Token};

/// The longest piece of an access.
const PIECE: usize = 1 << 20;

impl<N: Network> Datagrams<N> {
    /// Takes in an access that the library is to do. Returns an operation that is for the engine.
    pub(crate) fn accept_access(&mut self, operation: Operation) -> Option<Operation> {
        let (Operation::Put { remote, .. } | Operation::Get { remote, .. }) = &operation else {
            return Some(operation);
        };
        let peer = remote.peer;
        // No grant is given for a part.
        let imported = self.engine.imported(*remote).filter(|imported| !imported.is_of_part());
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
        if few || crowded || !self.accesses.has_room() {
            return Some(operation);
        }
        let batch = self.engine.begin_access(peer);
        let access = Access::new(operation, peer, batch, info.address, target, total);
        match self.grants.get_mut(peer, target) {
            Some(Grant::Given { rights, .. }) if access.is_allowed_by(*rights) => {
                let slot = self.accesses.add(access);
                self.accesses.add_ready(slot);
            }
            Some(Grant::Asked(waiting)) => waiting.push(self.accesses.add(access)),
            Some(_) => self.submit_counted(access),
            None => {
                let slot = self.accesses.add(access);
                self.grants.ask(peer, target, Some(slot));
                self.send_control(peer, Control::Ask(target));
            }
        }
        None
    }

    /// The owner has granted access to a region, or refused it.
    pub(crate) fn granted(&mut self, index: u32, target: Target, permission: Option<Permission>) {
        let Some(link) = self.links.get(index) else { return };
        let peer = link.peer();
        let node = link.node();
        let Some(grant) = self.grants.get_mut(peer, target) else {
            return self.cut_off(index, "a grant that was not asked for");
        };
        let Grant::Asked(waiting) = grant else {
            return self.cut_off(index, "a grant that is not waited for");
        };
        let waiting = std::mem::take(waiting);
        let given = permission.zip(node).and_then(|(permission, node)| {
            Some((self.net.key(node, &permission.location)?, permission.access, permission.notice))
        });
        match given {
            Some((key, rights, name)) => {
                *grant = Grant::Given { key, rights, name, running: 0 };
                for slot in waiting {
                    let access = self.accesses.get(slot);
                    match access.is_some_and(|access| access.is_allowed_by(rights)) {
                        true => self.accesses.add_ready(slot),
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
            if let Some(access) = self.accesses.remove(slot) {
                self.submit_counted(access);
            }
        }
    }

    fn submit_counted(&mut self, access: Access) {
        let (peer, batch) = (access.peer(), access.batch());
        self.engine.submit_counted(access.into_operation(), peer, batch);
    }

    /// The owner revokes a grant: it closes the memory.
    pub(crate) fn revoked(&mut self, index: u32, target: Target) {
        let Some(link) = self.links.get(index) else { return };
        let peer = link.peer();
        if !self.grants.revoke(peer, target) {
            return self.cut_off(index, "a grant was revoked that was not given");
        }
        self.return_grant(peer, target);
        let of_it = |access: &Access| access.peer() == peer && access.target() == target;
        for slot in self.accesses.slots(of_it) {
            let Some(access) = self.accesses.get_mut(slot) else { continue };
            if access.is_new() {
                self.leave_to_engine(vec![slot]);
            } else if !access.is_posted() && !access.is_failed() {
                access.stop(OpErrorKind::StaleKey);
                self.settle_access(slot);
            }
        }
    }

    /// Returns a grant that was revoked, once nothing is under way by it.
    pub(crate) fn return_grant(&mut self, peer: Peer, target: Target) {
        if self.grants.remove_returnable(peer, target) {
            self.send_control(peer, Control::Released(target));
        }
    }

    /// Posts pieces of the accesses in turn, and ends gets whose peer was lost long enough ago.
    /// True if anything was done.
    pub(crate) fn serve_accesses(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..self.accesses.ready() {
            let Some(slot) = self.accesses.pop_ready() else { break };
            worked |= self.post_pieces(slot);
        }
        while let Some(slot) = self.accesses.pop_late_orphan(self.now) {
            self.end_access(slot);
            worked = true;
        }
        worked
    }

    fn post_pieces(&mut self, slot: usize) -> bool {
        let most = self.config.sends / 2;
        let most_at_once = self.net.facts().access.unwrap_or(0).min(PIECE);
        let mut posted = false;
        let (mut failed, mut full) = (None, false);
        let Datagrams { accesses, grants, net, links, .. } = self;
        let Some(access) = accesses.get(slot) else { return false };
        let (peer, target) = (access.peer(), access.target());
        let Some(Grant::Given { key, running, .. }) = grants.get_mut(peer, target) else {
            return false;
        };
        let index = peer.index;
        let Some(link) = links.get_mut(index) else { return false };
        let Some(node) = link.node().filter(|_| link.is_up()) else { return false };
        while let Some(access) = accesses.get_mut(slot)
            && access.wants_piece()
        {
            let (op, mark) = (access.remote_op(), access.mark(slot));
            if accesses.running() >= most {
                accesses.add_ready(slot);
                break;
            }
            let next = accesses.get_mut(slot).and_then(|access| access.next(most_at_once));
            let Some((piece, offset, after)) = next else {
                break;
            };
            match net.access(node, op, piece, key, offset, mark) {
                Ok(()) => {
                    accesses.piece_posted(slot, after);
                    link.out.begin_operations(1);
                    *running += 1;
                    self.counters.accesses += 1;
                    posted = true;
                }
                Err(Refusal::Full) => {
                    full = true;
                    accesses.add_ready(slot);
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
        let good = result.is_ok();
        let Some(access) = self.accesses.piece_done(slot, serial, good) else { return };
        let (peer, target) = (access.peer(), access.target());
        let known = self.links.of(peer).map(|link| link.out.end_operation()).is_some();
        self.grants.completed(peer, target);
        self.return_grant(peer, target);
        let Some(access) = self.accesses.get_mut(slot) else { return };
        if let Err(code) = result
            && known
        {
            access.set_failed();
            return self.fail(peer.index, code as isize);
        }
        if access.has_more() {
            self.accesses.add_ready(slot);
        }
        self.settle_access(slot);
    }

    /// Ends an access of which nothing is under way or to be posted.
    fn settle_access(&mut self, slot: usize) {
        if let Some(access) = self.accesses.remove_if_over(slot) {
            self.complete_access(access);
        }
    }

    fn end_access(&mut self, slot: usize) {
        if let Some(access) = self.accesses.remove(slot) {
            self.complete_access(access);
        }
    }

    fn complete_access(&mut self, access: Access) {
        let (peer, batch, failure) = (access.peer(), access.batch(), access.failure().cloned());
        self.engine.raise(access.end());
        self.engine.end_access(peer, batch, failure.as_ref());
    }

    /// Cancels an access. False if there is none with this token.
    pub(crate) fn cancel_access(&mut self, token: Token) -> bool {
        let Some(slot) = self.accesses.find(token) else { return false };
        if let Some(access) = self.accesses.get_mut(slot)
            && !access.is_posted()
        {
            access.stop(OpErrorKind::Cancelled);
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
        if self.accesses.is_empty() && self.grants.is_empty() {
            return under_way;
        }
        self.grants.forget(peer);
        self.accesses.forget_payloads(peer);
        let until = self.now.after(self.config.mourning);
        for slot in self.accesses.slots(|access| access.peer() == peer) {
            let Some(serial) = self.accesses.lose(slot, reason) else {
                self.settle_access(slot);
                continue;
            };
            under_way.push((slot as u32, serial));
            match self.accesses.get(slot).is_some_and(Access::is_written) {
                true => self.accesses.add_orphan(until, slot, serial),
                // The memory of a put is only read, and the library has none that is raw.
                false => self.end_access(slot),
            }
        }
        under_way
    }
}
