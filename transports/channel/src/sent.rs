//! What was sent to a peer and is still needed here.

use crate::{header::distance, loans::Loan};
use std::collections::VecDeque;

/// Short packets without acknowledgement, and the engine's packets that these belong to.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// By number, oldest first, with what each lends.
    packets: VecDeque<(u32, Option<Loan>)>,
    /// Packets of the engine's of which it was not told yet that they are sent: the last record of
    /// each that lends memory.
    unreported: VecDeque<Option<u32>>,
}

impl Sent {
    /// How many short packets have no acknowledgement.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.packets.len()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.unreported.is_empty()
    }

    /// A short packet was sent.
    #[inline]
    pub(crate) fn add(&mut self, seq: u32, loan: Option<Loan>) {
        self.packets.push_back((seq, loan));
    }

    /// Removes the oldest short packet, if it is before the acknowledgement `ack`. Returns what it
    /// lent.
    #[inline]
    pub(crate) fn remove_acknowledged(&mut self, ack: u32) -> Option<Option<Loan>> {
        let (seq, _) = self.packets.front()?;
        if distance(*seq, ack) <= 0 {
            return None;
        }
        self.packets.pop_front().map(|(_, loan)| loan)
    }

    /// Removes all short packets. Returns what they lent.
    pub(crate) fn take_loans(&mut self) -> impl Iterator<Item = Loan> {
        self.packets.drain(..).filter_map(|(_, loan)| loan)
    }

    /// All of a packet of the engine's was sent; `lent` is its last record that lends memory.
    #[inline]
    pub(crate) fn add_unreported(&mut self, lent: Option<u32>) {
        self.unreported.push_back(lent);
    }

    /// Removes the oldest packet of which the engine is now to be told: all records before `ack`
    /// were acknowledged, and it lends nothing any more. False if there is none.
    #[inline]
    pub(crate) fn remove_free(&mut self, ack: u32) -> bool {
        let free = |lent: &Option<u32>| lent.is_none_or(|seq| distance(seq, ack) > 0);
        let remove = self.unreported.front().is_some_and(free);
        if remove {
            self.unreported.pop_front();
        }
        remove
    }
}
