//! What touches memory: looked through when a program asks.

use crate::{access::Kind, flush::Queued, local::Local, outgoing::Outgoing};
use petasos_fabric::{InUse, Slice};

impl Outgoing {
    fn uses(&self, memory: &Slice) -> bool {
        match self {
            Outgoing::Send { payload, .. } | Outgoing::Tagged { payload, .. } => {
                payload.overlaps(memory)
            }
            Outgoing::Long { body, .. } => body.overlaps(memory),
        }
    }
}

impl Queued {
    fn uses(&self, memory: &Slice) -> bool {
        let Queued::Access(access) = self else { return false };
        match &access.what {
            Kind::Put { copy, .. } | Kind::Get { copy } => copy.uses(memory),
            Kind::Atomic(_) | Kind::Map => false,
        }
    }
}

impl Local {
    /// What of this endpoint touches some memory.
    pub(crate) fn used(&self, memory: &Slice) -> Option<InUse> {
        if let Some(token) = self.matching.posted_into(memory) {
            return Some(InUse::new("a posted receive").by(token));
        }
        let under_way = |token| InUse::new("an operation under way").by(token);
        if let Some(fetch) = self.fetches.iter().find(|fetch| fetch.writes(memory)) {
            return Some(under_way(fetch.token).with(Some(fetch.peer)));
        }
        if let Some((token, peer)) = self.offers.of_memory(memory) {
            return Some(under_way(token).with(Some(self.peers.handle(peer))));
        }
        for (peer, entry) in self.peers.all() {
            let mut messages = entry.messages.iter().chain(&entry.tagged);
            let message = messages.find(|message| message.uses(memory)).map(Outgoing::token);
            let access = || entry.accesses.iter().find(|access| access.uses(memory));
            let queued = message.or_else(|| access().map(Queued::token));
            if let Some(token) = queued.or_else(|| entry.deferred.using(memory)) {
                return Some(under_way(token).with(Some(peer)));
            }
        }
        self.hub.regions.have(memory).then(|| InUse::new("a region that is registered"))
    }
}
