//! Operations that members were given, or are to be given.

use crate::{Member, expected::Peeking};
use petasos_fabric::{Address, KeyId, OpErrorKind, Operation, Peer, RegionId, Slice, Token};
use slab::Slab;
use std::collections::VecDeque;

/// Operations that may wait for room at one member.
pub(crate) const ROOM: usize = 256;
/// Operations that may wait for peers whose whole addresses are asked for.
const WAITING: usize = 4096;

/// An operation of a member, by the token under which it was given.
#[derive(Debug)]
pub(crate) enum Pending {
    /// The user's. Small, as each operation has one: the address of the peer is looked up when an
    /// error names it.
    User {
        token: Token,
        peer: Peer,
        member: u32,
        /// A flush: why an access before it was refused that the member was not given.
        refused: Option<Box<OpErrorKind>>,
    },
    /// The user's, with a peer that was forgotten since.
    Departed { token: Token, peer: Peer, member: u32, address: Address },
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
    /// For each member, operations for which it had no room.
    backlog: Vec<VecDeque<Operation>>,
    /// How many operations wait for peers whose whole addresses are asked for.
    waiting: usize,
}

impl Outstanding {
    pub(crate) fn new(members: usize) -> Outstanding {
        let backlog = (0..members).map(|_| VecDeque::new()).collect();
        Outstanding { pending: Slab::new(), backlog, waiting: 0 }
    }

    /// A token for a member's operation.
    pub(crate) fn token(&mut self, pending: Pending) -> Token {
        Token(self.pending.insert(pending) as u64)
    }

    /// A member has completed an operation.
    pub(crate) fn take(&mut self, name: Token) -> Option<Pending> {
        self.pending.try_remove(name.0 as usize)
    }

    /// The completion of an operation is not waited for any more.
    pub(crate) fn ignore(&mut self, name: Token) {
        if let Some(pending) = self.pending.get_mut(name.0 as usize) {
            *pending = Pending::Ignored;
        }
    }

    /// Whether an operation is the user's, and there is nothing to add to its success.
    #[inline]
    pub(crate) fn is_plain(&self, name: Token) -> bool {
        let pending = self.pending.get(name.0 as usize);
        matches!(pending, Some(Pending::User { refused: None, .. }))
    }

    /// The members' tokens of the user's operations with this token, and the members. Closing
    /// memory is not cancelled, as then no operation would close it.
    pub(crate) fn of_user(&self, wanted: Token) -> Vec<(Token, usize)> {
        let theirs = self.pending.iter().filter_map(|(name, pending)| match pending {
            Pending::User { token, member, .. } | Pending::Departed { token, member, .. }
                if *token == wanted =>
            {
                Some((Token(name as u64), *member as usize))
            }
            Pending::Peeking(peeking) if peeking.token == wanted => {
                Some((Token(name as u64), peeking.member))
            }
            _ => None,
        });
        theirs.collect()
    }

    /// A peer is forgotten: what is under way with it keeps its address.
    pub(crate) fn depart(&mut self, peer: Peer, address: &Address) {
        for (_, pending) in &mut self.pending {
            if let Pending::User { token, peer: of, member, .. } = *pending
                && of == peer
            {
                *pending = Pending::Departed { token, peer, member, address: address.clone() };
            }
        }
    }

    // The backlog.

    /// Whether a member has room for another operation.
    pub(crate) fn has_room(&self, member: usize) -> bool {
        self.backlog[member].len() < ROOM
    }

    /// Whether operations to this peer of a member wait, so that nothing may overtake them.
    #[inline]
    pub(crate) fn waits_for(&self, member: usize, there: Peer) -> bool {
        self.backlog[member].iter().any(|operation| operation.target() == Some(there))
    }

    /// Whether a member has taken all operations.
    #[inline]
    pub(crate) fn is_flushed(&self, member: usize) -> bool {
        self.backlog[member].is_empty()
    }

    pub(crate) fn push(&mut self, member: usize, operation: Operation) {
        self.backlog[member].push_back(operation);
    }

    /// A member that had taken all operations has taken some more: these are left.
    #[inline]
    pub(crate) fn left(&mut self, member: usize, operations: &mut VecDeque<Operation>) {
        if !operations.is_empty() {
            self.backlog[member].append(operations);
        }
    }

    /// An operation with this memory that its member has not taken: its token there.
    pub(crate) fn backlog_of(&self, memory: &Slice) -> Option<Token> {
        let mut waiting = self.backlog.iter().flatten();
        waiting.find(|operation| operation.uses(memory)).map(Operation::token)
    }

    /// The user's token of a member's operation, and the peer if it is not forgotten.
    pub(crate) fn user(&self, name: Token) -> Option<(Token, Option<Peer>)> {
        match self.pending.get(name.0 as usize)? {
            Pending::User { token, peer, .. } => Some((*token, Some(*peer))),
            Pending::Departed { token, .. } => Some((*token, None)),
            _ => None,
        }
    }

    /// The receive from any source that a member's operation is a part of.
    pub(crate) fn of_any(&self, name: Token) -> Option<usize> {
        match self.pending.get(name.0 as usize)? {
            Pending::Any { index, .. } => Some(*index),
            _ => None,
        }
    }

    /// Gives members the operations for which they have room.
    pub(crate) fn flush(&mut self, members: &mut [Member]) {
        for (member, backlog) in members.iter_mut().zip(&mut self.backlog) {
            if !backlog.is_empty() {
                member.endpoint.submit(backlog);
            }
        }
    }

    /// Takes an operation out that a member has not taken yet. False if it has.
    pub(crate) fn withdraw(&mut self, member: usize, name: Token) -> bool {
        let backlog = &mut self.backlog[member];
        let at = backlog.iter().position(|operation| operation.token() == name);
        at.and_then(|at| backlog.remove(at)).is_some()
    }

    /// Takes the operations with a peer out that members have not taken yet.
    pub(crate) fn withdraw_all(&mut self, peer: Peer) -> Vec<Token> {
        let Outstanding { pending, backlog, .. } = self;
        let mut names = Vec::new();
        for backlog in backlog {
            backlog.retain(|operation| {
                let name = operation.token();
                let of_it = matches!(
                    pending.get(name.0 as usize),
                    Some(Pending::User { peer: of, .. }) if *of == peer
                );
                if of_it {
                    names.push(name);
                }
                !of_it
            });
        }
        names
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
