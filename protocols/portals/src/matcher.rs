//! The matching core by itself, for measurements: no part of what is promised.

use crate::{
    List, MatchEntry, Memory, ProcessId,
    matching::Matching,
    message::{Arrival, Request},
};

/// A portal with entries in its priority list, and nothing around it.
#[derive(Debug)]
pub struct Matcher {
    core: Matching,
}

impl Matcher {
    /// With entries for these bits, ignoring those, in this order.
    #[must_use]
    pub fn new(patterns: impl IntoIterator<Item = (u64, u64)>) -> Matcher {
        let mut core = Matching::new(1, usize::MAX, 0);
        core.open(None);
        let memory = Memory::from(vec![0; 8]);
        for (bits, ignore) in patterns {
            let entry = MatchEntry { bits, ignore, ..MatchEntry::new(memory.clone()) };
            // There is room for as many as there is memory.
            let _ = core.append(0, List::Priority, entry, &mut Vec::new());
        }
        Matcher { core }
    }

    /// Matches an 8-byte put with these bits, and ends it: whether there was an entry for it.
    pub fn put(&mut self, bits: u64) -> bool {
        let arrival = Arrival {
            request: Request::Put,
            initiator: ProcessId::rank(0),
            user: 0,
            job: 0,
            portal: 0,
            bits,
            len: 8,
            offset: 0,
            header_data: 0,
        };
        let taken = self.core.deliver(&arrival);
        if let Ok(taken) = taken {
            self.core.finish(&taken, Ok(()), &mut Vec::new());
        }
        taken.is_ok()
    }
}
