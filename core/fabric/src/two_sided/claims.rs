//! Expected messages that the program has claimed.

use super::matching::Unexpected;
use crate::Claimed;
use std::collections::HashMap;

/// Messages by the ids of their handles. They count against the promises to their peers, as they
/// did before: so these bound how many there are.
#[derive(Debug, Default)]
pub(super) struct Claims {
    messages: HashMap<u64, Unexpected>,
    latest: u64,
}

impl Claims {
    /// Sets a message aside: its handle.
    pub(super) fn insert(&mut self, message: Unexpected) -> Claimed {
        self.latest += 1;
        let claimed = Claimed { peer: message.peer, id: self.latest };
        self.messages.insert(claimed.id, message);
        claimed
    }

    /// Gives a message to the program.
    pub(super) fn take(&mut self, claimed: Claimed) -> Option<Unexpected> {
        let known = self.messages.get(&claimed.id).is_some_and(|m| m.peer == claimed.peer);
        if known { self.messages.remove(&claimed.id) } else { None }
    }

    /// Drops the messages for which `keep` says no.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&mut Unexpected) -> bool) {
        self.messages.retain(|_, message| keep(message));
    }
}
