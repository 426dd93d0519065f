//! Regions that are closed, and that initiators may still access.

use crate::regions::Regions;
use petasos_fabric::{Done, OpErrorKind, RegionId, Time, Token};
use std::time::Duration;

/// An operation that waits for the last access to a region to end.
struct Deregistration {
    token: Token,
    region: RegionId,
    patience: Duration,
    /// Known from the next pass on.
    until: Option<Time>,
}

#[derive(Default)]
pub(crate) struct Closing {
    waiting: Vec<Deregistration>,
    /// Closed regions that were still reached when a patience was over.
    expired: Vec<RegionId>,
}

impl Closing {
    /// Closes a region to new accesses, or waits again for one that was still reached. False if
    /// there is no such region.
    pub(crate) fn begin(
        &mut self,
        regions: &Regions,
        token: Token,
        region: RegionId,
        patience: Duration,
    ) -> bool {
        let again = self.expired.iter().position(|expired| *expired == region);
        if again.map(|at| self.expired.swap_remove(at)).is_none() && !regions.close(region) {
            return false;
        }
        self.waiting.push(Deregistration { token, region, patience, until: None });
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
        waiting.retain_mut(|Deregistration { token, region, patience, until }| {
            if regions.collect(*region) {
                ended.push((*token, Ok(Done::Deregistered)));
                return false;
            }
            let over = now.is_some_and(|now| *until.get_or_insert(now.after(*patience)) <= now);
            if over {
                expired.push(*region);
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
