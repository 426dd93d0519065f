//! What of the engine touches memory: looked through when a program asks, and kept nowhere.

use super::{
    Engine, Outgoing,
    connection::Connection,
    incoming::Landing,
    operations::{Kind, Op},
};
use crate::{InUse, Payload, Slice};

impl Op {
    /// Whether it may read or write this memory. What has completed has let its memory go.
    fn uses(&self, memory: &Slice) -> bool {
        match &self.kind {
            Kind::Message { payload, .. } | Kind::Body { data: payload, .. } => {
                payload.overlaps(memory)
            }
            Kind::Pull(pull) => pull.local.iter().any(|piece| piece.overlaps(memory)),
            Kind::Put(put) => put.local.iter().any(|piece| piece.overlaps(memory)),
            Kind::Atomic(_) | Kind::Flush | Kind::Fence => false,
        }
    }
}

impl Connection {
    fn in_use(&self, memory: &Slice) -> Option<InUse> {
        let peer = Some(self.handle);
        if let Some(Landing::Tagged { posted: Some(posted), .. }) = &self.incoming.landing
            && posted.into.overlaps(memory)
        {
            return Some(InUse::new("a receive that is being filled").by(posted.token).with(peer));
        }
        let op = self.outstanding.all().find(|op| op.uses(memory)).map(|op| op.token);
        let token = op.or_else(|| self.held_with(memory))?;
        Some(InUse::new("an operation under way").by(token).with(peer))
    }
}

impl Engine {
    /// What of the engine touches this memory, if anything does: operations, packets of theirs that
    /// the transport has, and regions. A transport adds what it has of its own.
    #[must_use]
    pub fn in_use(&self, memory: &Slice) -> Option<InUse> {
        if let Some(token) = self.matching.posted_into(memory) {
            return Some(InUse::new("a posted receive").by(token));
        }
        if let Some(used) = self.peers.busy().find_map(|conn| conn.in_use(memory)) {
            return Some(used);
        }
        self.regions.have(memory).then(|| InUse::new("a region that is registered"))
    }
}

impl Payload {
    /// Whether it is memory that shares bytes with this.
    #[must_use]
    pub fn overlaps(&self, memory: &Slice) -> bool {
        matches!(self, Payload::Memory(slice) if slice.overlaps(memory))
    }
}

impl Outgoing {
    /// Whether some of it is memory that shares bytes with this.
    #[must_use]
    pub fn overlaps(&self, memory: &Slice) -> bool {
        matches!(self, Outgoing::Memory(pieces) if pieces.iter().any(|p| p.overlaps(memory)))
    }
}
