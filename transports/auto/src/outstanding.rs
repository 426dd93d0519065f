//! Operations that members were given, or are to be given.
//!
//! A member has the program's operations under the program's tokens, so that there is nothing to
//! look up when they complete. What has another meaning here (a part of a receive from any source,
//! say) has a *name*: a token of a range of its own. An operation of the program's whose token is
//! in that range by chance is given a name, too.

use crate::{Member, expected::Peeking, submit::concerns};
use petasos_fabric::{KeyId, OpErrorKind, Operation, Peer, RegionId, Remote, Slice, Token};
use slab::Slab;
use std::collections::VecDeque;

/// Operations that may wait for room at one member.
pub(crate) const ROOM: usize = 256;
/// Operations that may wait for peers whose whole addresses are asked for.
const WAITING: usize = 4096;

/// Names begin with these bits, behind which there is a number.
const NAMES: u64 = 0xD1B5_4A32 << 32;

/// Whether a token is one of the names.
#[inline]
pub(crate) fn is_name(token: Token) -> bool {
    token.0 >> 32 == NAMES >> 32
}

/// What stands behind a name.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The user's, whose token is like a name, or to whose result there is something to add.
    User {
        token: Token,
        peer: Peer,
        member: u32,
        /// A flush: why an access before it was refused that the member was not given.
        refused: Option<Box<OpErrorKind>>,
    },
    /// A member's part in a receive of the user's from any source.
    Any { index: usize, member: u32 },
    /// A member's part in a peek of the user's from any source.
    Peeking(Box<Peeking>),
    /// A member's part in closing a region.
    Closing { region: RegionId, member: usize },
    /// A member's part in revoking a key.
    Revoking { key: KeyId, member: usize },
    /// Its completion is not waited for.
    Ignored,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Outstanding {
    pending: Slab<Pending>,
    /// For each member, operations for which it had no room; and a bit for each that has some.
    backlog: Vec<VecDeque<Operation>>,
    behind: u32,
    /// How many operations wait for peers whose whole addresses are asked for.
    waiting: usize,
}

impl Outstanding {
    pub(crate) fn new(members: usize) -> Outstanding {
        let backlog = (0..members).map(|_| VecDeque::new()).collect();
        Outstanding { pending: Slab::new(), backlog, behind: 0, waiting: 0 }
    }

    /// A name for a member's operation.
    pub(crate) fn token(&mut self, pending: Pending) -> Token {
        let number = u32::try_from(self.pending.insert(pending)).expect("operations are bounded");
        Token(NAMES | u64::from(number))
    }

    fn get(&self, name: Token) -> Option<&Pending> {
        self.pending.get(slot(name)?)
    }

    /// A member has completed an operation that has a name.
    pub(crate) fn take(&mut self, name: Token) -> Option<Pending> {
        self.pending.try_remove(slot(name)?)
    }

    /// The completion of an operation is not waited for any more.
    pub(crate) fn ignore(&mut self, name: Token) {
        if let Some(pending) = slot(name).and_then(|slot| self.pending.get_mut(slot)) {
            *pending = Pending::Ignored;
        }
    }

    /// The names of the user's operations with this token, and the members. Closing memory is not
    /// cancelled, as then no operation would close it.
    pub(crate) fn of_user(&self, wanted: Token) -> Vec<(Token, usize)> {
        let theirs = self.pending.iter().filter_map(|(name, pending)| match pending {
            Pending::User { token, member, .. } if *token == wanted => {
                Some((Token(NAMES | name as u64), *member as usize))
            }
            Pending::Peeking(peeking) if peeking.token == wanted => {
                Some((Token(NAMES | name as u64), peeking.member))
            }
            _ => None,
        });
        theirs.collect()
    }

    // The backlog.

    /// Whether a member has room for another operation.
    pub(crate) fn has_room(&self, member: usize) -> bool {
        self.backlog[member].len() < ROOM
    }

    /// Whether operations to this peer of a member wait, so that nothing may overtake them.
    #[inline]
    pub(crate) fn waits_for(&self, member: usize, there: Peer) -> bool {
        !self.is_flushed(member)
            && self.backlog[member].iter().any(|operation| operation.target() == Some(there))
    }

    /// Whether one waits that accesses this region of a member's.
    pub(crate) fn waits_with(&self, member: usize, remote: Remote) -> bool {
        self.backlog[member].iter().any(|operation| operation.remote() == Some(remote))
    }

    /// Whether a member has taken all operations.
    #[inline]
    pub(crate) fn is_flushed(&self, member: usize) -> bool {
        self.behind & (1 << member) == 0
    }

    /// Whether any has not.
    #[inline]
    pub(crate) fn is_behind(&self) -> bool {
        self.behind != 0
    }

    /// The same of the member whose bit is the only one in the lowest byte of this.
    #[inline]
    pub(crate) fn is_flushed_mask(&self, mask: u32) -> bool {
        self.behind & mask == 0
    }

    pub(crate) fn push(&mut self, member: usize, operation: Operation) {
        self.backlog[member].push_back(operation);
        self.behind |= 1 << member;
    }

    /// A member that had taken all operations has taken some more: these are left.
    #[inline]
    pub(crate) fn left(&mut self, member: usize, operations: &mut VecDeque<Operation>) {
        if !operations.is_empty() {
            self.keep(member, operations);
        }
    }

    #[cold]
    #[inline(never)]
    fn keep(&mut self, member: usize, operations: &mut VecDeque<Operation>) {
        self.backlog[member].append(operations);
        self.behind |= 1 << member;
    }

    /// An operation with this memory that its member has not taken: the member, the token there,
    /// and its handle of the peer.
    pub(crate) fn backlog_of(&self, memory: &Slice) -> Option<(usize, Token, Option<Peer>)> {
        self.backlog.iter().enumerate().find_map(|(member, backlog)| {
            let operation = backlog.iter().find(|operation| operation.uses(memory))?;
            Some((member, operation.token(), concerns(operation)))
        })
    }

    /// The user's token of a member's operation, and the peer.
    pub(crate) fn user(&self, name: Token) -> Option<(Token, Peer)> {
        match self.get(name)? {
            Pending::User { token, peer, .. } => Some((*token, *peer)),
            _ => None,
        }
    }

    /// The receive from any source that a member's operation is a part of.
    pub(crate) fn of_any(&self, name: Token) -> Option<usize> {
        match self.get(name)? {
            Pending::Any { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// Gives members the operations for which they have room.
    #[inline]
    pub(crate) fn flush(&mut self, members: &mut [Member]) {
        if self.behind != 0 {
            self.flush_some(members);
        }
    }

    #[cold]
    fn flush_some(&mut self, members: &mut [Member]) {
        for (nth, (member, backlog)) in members.iter_mut().zip(&mut self.backlog).enumerate() {
            if !backlog.is_empty() {
                member.endpoint.submit(backlog);
            }
            self.behind &= !(u32::from(backlog.is_empty()) << nth);
        }
    }

    /// Takes an operation out that a member has not taken yet. False if it has.
    pub(crate) fn withdraw(&mut self, member: usize, name: Token) -> bool {
        let backlog = &mut self.backlog[member];
        let at = backlog.iter().position(|operation| operation.token() == name);
        let found = at.and_then(|at| backlog.remove(at)).is_some();
        self.behind &= !(u32::from(backlog.is_empty()) << member);
        found
    }

    /// Takes the operations with a member's peer out that it has not taken yet: their tokens, or
    /// names.
    pub(crate) fn withdraw_all(&mut self, member: usize, there: Peer) -> Vec<Token> {
        let backlog = &mut self.backlog[member];
        let mut tokens = Vec::new();
        backlog.retain(|operation| {
            let of_it = concerns(operation) == Some(there);
            if of_it {
                tokens.push(operation.token());
            }
            !of_it
        });
        self.behind &= !(u32::from(backlog.is_empty()) << member);
        tokens
    }

    // Operations that wait for the whole address of their peer.

    /// Whether another operation may wait for a peer for which so many do: no more than there is
    /// room left for others.
    pub(crate) fn may_wait(&self, of_peer: usize) -> bool {
        of_peer < WAITING.saturating_sub(self.waiting).max(1)
    }

    pub(crate) fn begin_waiting(&mut self) {
        self.waiting += 1;
    }

    pub(crate) fn end_waiting(&mut self, count: usize) {
        self.waiting -= count;
    }
}

/// Where what stands behind a name is.
fn slot(name: Token) -> Option<usize> {
    is_name(name).then_some(name.0 as u32 as usize)
}
