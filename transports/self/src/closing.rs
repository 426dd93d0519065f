//! Regions that are closed and keys that are revoked, by which initiators may still access memory.

use crate::regions::Regions;
use petasos_fabric::{Done, KeyId, OpErrorKind, RegionId, Time, Token};
use std::time::Duration;

/// An operation that waits for the last access to a region, or by a key, to end.
struct Waiting {
    token: Token,
    /// In the table of regions.
    slot: RegionId,
    done: Done,
    patience: Duration,
    /// Known from the next pass on.
    until: Option<Time>,
}

#[derive(Default)]
pub(crate) struct Closing {
    waiting: Vec<Waiting>,
    /// What was closed and still reached when a patience was over.
    expired: Vec<RegionId>,
}

impl Closing {
    /// Closes a region to new accesses, or waits again for one that was still reached. False if
    /// there is no such region.
    pub(crate) fn deregister(
        &mut self,
        regions: &Regions,
        token: Token,
        region: RegionId,
        patience: Duration,
    ) -> bool {
        self.begin(regions, !regions.is_part(region), (token, Done::Deregistered), region, patience)
    }

    /// The same for a key to a part of a region.
    pub(crate) fn revoke(
        &mut self,
        regions: &Regions,
        token: Token,
        key: KeyId,
        patience: Duration,
    ) -> bool {
        let slot = RegionId { index: key.index, generation: key.generation };
        self.begin(regions, regions.is_part(slot), (token, Done::Revoked), slot, patience)
    }

    fn begin(
        &mut self,
        regions: &Regions,
        right_kind: bool,
        (token, done): (Token, Done),
        slot: RegionId,
        patience: Duration,
    ) -> bool {
        // Keys that have ended with their region are not to be waited for.
        self.expired.retain(|expired| regions.is_known(*expired));
        let again = || self.expired.iter().position(|expired| *expired == slot);
        match right_kind.then(again) {
            None => return false,
            Some(Some(at)) => drop(self.expired.swap_remove(at)),
            Some(None) if regions.close(slot) => {}
            Some(None) => return false,
        }
        self.waiting.push(Waiting { token, slot, done, patience, until: None });
        true
    }

    /// Takes out the operations whose last access has ended, and those whose patience is over, with
    /// their results.
    pub(crate) fn collect(
        &mut self,
        regions: &Regions,
        now: Option<Time>,
    ) -> Vec<(Token, Result<Done, OpErrorKind>)> {
        let Closing { waiting, expired } = self;
        let mut ended = Vec::new();
        waiting.retain_mut(|Waiting { token, slot, done, patience, until }| {
            if regions.collect(*slot) {
                ended.push((*token, Ok(done.clone())));
                return false;
            }
            let over = now.is_some_and(|now| *until.get_or_insert(now.after(*patience)) <= now);
            if over {
                expired.push(*slot);
                ended.push((*token, Err(OpErrorKind::StillReached)));
            }
            !over
        });
        ended
    }

    /// When the first patience is over, as far as that is known.
    pub(crate) fn until(&self) -> Option<Time> {
        self.waiting.iter().filter_map(|waiting| waiting.until).min()
    }
}
