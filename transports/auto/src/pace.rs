//! Which members are polled in a pass: those over which nothing has come for a while less often.

use crate::{Member, Scope};

/// Passes after which a network over which nothing came is only polled now and then.
const WARM: u32 = 1024;
/// Such a network is polled once in this many passes.
const COLD: u32 = 64;
/// A network over which messages come is polled once in this many passes, while messages come over
/// shared memory, too.
const SHARED: u32 = 8;

/// The rhythm of an endpoint.
#[derive(Debug)]
pub(crate) struct Pace {
    passes: u32,
    /// The member that is first in the pass.
    first: usize,
    /// For each member, the pass in which it last had something to do.
    busy: Vec<u32>,
    /// A bit for each member that was given something and has not been polled since.
    given: u32,
    /// A bit for each member of this node.
    near: u32,
    /// The caller may have slept since the last pass: all members are polled.
    armed: bool,
}

impl Pace {
    pub(crate) fn new(members: &[Member]) -> Pace {
        let near = members.iter().enumerate();
        let near = near.filter(|(_, member)| member.scope == Scope::Node);
        let near = near.fold(0, |near, (nth, _)| near | 1 << nth);
        Pace { passes: 0, first: 0, busy: vec![0; members.len()], given: 0, near, armed: true }
    }

    /// A pass begins. Says whether all members are polled in it.
    #[inline]
    pub(crate) fn begin_pass(&mut self) -> bool {
        self.passes = self.passes.wrapping_add(1);
        self.first = if self.first + 1 < self.busy.len() { self.first + 1 } else { 0 };
        std::mem::take(&mut self.armed)
    }

    /// All members are polled in the next pass.
    pub(crate) fn poll_all(&mut self) {
        self.armed = true;
    }

    /// The member whose turn is this in the pass: none is always the first.
    #[inline]
    pub(crate) fn nth(&self, nth: usize, members: usize) -> usize {
        let at = self.first + nth;
        if at < members { at } else { at - members }
    }

    /// A member is given something.
    #[inline]
    pub(crate) fn give(&mut self, member: usize) {
        self.busy[member] = self.passes;
        self.given |= 1 << member;
    }

    /// A member is polled.
    #[inline]
    pub(crate) fn polled(&mut self, member: usize) {
        self.given &= !(1 << member);
    }

    /// Something came over a member.
    #[inline]
    pub(crate) fn worked(&mut self, member: usize) {
        self.busy[member] = self.passes;
    }

    /// Whether something has come or gone over a member lately.
    #[inline]
    pub(crate) fn is_warm(&self, member: usize) -> bool {
        self.passes.wrapping_sub(self.busy[member]) < WARM
    }

    /// Whether a member is polled in this pass.
    #[inline]
    pub(crate) fn is_due(&self, member: usize) -> bool {
        if (self.given | self.near) & (1 << member) != 0 || self.passes.is_multiple_of(COLD) {
            return true;
        }
        let near = self.near & 1 != 0 && self.is_warm(0);
        self.is_warm(member) && (!near || self.passes.is_multiple_of(SHARED))
    }
}
