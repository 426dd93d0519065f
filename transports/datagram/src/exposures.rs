//! The regions that are open to peers, and how they are closed.

use petasos_fabric::{Access, Peer, RegionId, Slice, Time, Token};
use std::{collections::HashMap, time::Duration};

/// A region that is open to peers.
pub(crate) struct Exposure<O> {
    pub(crate) opened: O,
    pub(crate) memory: Slice,
    pub(crate) access: Access,
    holders: Vec<Peer>,
    /// The last holder that was lost and returned nothing, and until when a write of it may land.
    /// No library says when that is over: see [`Config::mourning`](crate::Config::mourning).
    lost_holder: Option<(Peer, Time)>,
    /// It is closed to new accesses, and its grants were revoked.
    closing: bool,
    /// The operation that waits for its end.
    waiting: Option<Waiting>,
}

/// An operation that closes a region.
pub(crate) struct Waiting {
    pub(crate) token: Token,
    pub(crate) patience: Duration,
    /// Known from the next pass on.
    until: Option<Time>,
}

impl Waiting {
    pub(crate) fn new(token: Token, patience: Duration) -> Waiting {
        Waiting { token, patience, until: None }
    }
}

impl<O> Exposure<O> {
    pub(crate) fn new(opened: O, memory: Slice, access: Access) -> Exposure<O> {
        let (holders, lost_holder, closing, waiting) = (Vec::new(), None, false, None);
        Exposure { opened, memory, access, holders, lost_holder, closing, waiting }
    }

    /// Whether a peer was lost that had not returned its grant.
    pub(crate) fn has_lost_holder(&self) -> bool {
        self.lost_holder.is_some()
    }

    /// Whether it may be closed: no peer holds a grant, and nothing may land any more.
    fn is_free(&self, now: Time) -> bool {
        self.holders.is_empty() && self.lost_holder.is_none_or(|(_, until)| until <= now)
    }

    /// A peer returns its grant. False if it has none.
    fn release(&mut self, peer: Peer) -> bool {
        let at = self.holders.iter().position(|holder| *holder == peer);
        at.map(|at| self.holders.swap_remove(at)).is_some()
    }
}

/// What is to be done to close a region.
pub(crate) enum Close {
    /// It is not open to peers.
    Unknown,
    /// Another operation waits for that already.
    Twice,
    /// It is being closed; the operation now waits for that.
    Waits,
    /// These peers are to return their grants; the operation waits for that.
    Revoke(Vec<Peer>),
}

/// All of them.
pub(crate) struct Exposures<O> {
    list: HashMap<RegionId, Exposure<O>>,
    /// How many are being closed.
    closing: usize,
}

impl<O> Default for Exposures<O> {
    fn default() -> Exposures<O> {
        Exposures { list: HashMap::new(), closing: 0 }
    }
}

impl<O> Exposures<O> {
    /// Whether this region is open to peers.
    pub(crate) fn contains(&self, region: RegionId) -> bool {
        self.list.contains_key(&region)
    }

    pub(crate) fn add(&mut self, region: RegionId, exposure: Exposure<O>) {
        self.list.insert(region, exposure);
    }

    /// Gives a peer a grant, unless the region is being closed. Returns what the library opened.
    pub(crate) fn hold(&mut self, region: RegionId, peer: Peer) -> Option<&O> {
        let exposure = self.list.get_mut(&region).filter(|exposure| !exposure.closing)?;
        if !exposure.holders.contains(&peer) {
            exposure.holders.push(peer);
        }
        Some(&exposure.opened)
    }

    /// An operation closes a region.
    pub(crate) fn close(&mut self, region: RegionId, waiting: Waiting) -> Close {
        let Some(exposure) = self.list.get_mut(&region) else { return Close::Unknown };
        if exposure.waiting.is_some() {
            return Close::Twice;
        }
        exposure.waiting = Some(waiting);
        if std::mem::replace(&mut exposure.closing, true) {
            return Close::Waits;
        }
        self.closing += 1;
        Close::Revoke(exposure.holders.clone())
    }

    /// Whether any region is being closed.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        self.closing > 0
    }

    /// The regions that are being closed.
    pub(crate) fn closing(&self) -> Vec<RegionId> {
        let closing = self.list.iter().filter(|(_, exposure)| exposure.closing);
        closing.map(|(region, _)| *region).collect()
    }

    /// A peer returns its grant of a region that is being closed. False if it has none.
    pub(crate) fn release(&mut self, region: RegionId, peer: Peer) -> bool {
        let exposure = self.list.get_mut(&region).filter(|exposure| exposure.closing);
        exposure.is_some_and(|exposure| exposure.release(peer))
    }

    /// A peer has returned all its grants.
    pub(crate) fn release_all(&mut self, peer: Peer) {
        for exposure in self.list.values_mut() {
            exposure.release(peer);
        }
    }

    /// A peer is lost, with its grants: a write of it may land until this time.
    pub(crate) fn lose(&mut self, peer: Peer, until: Time) {
        for exposure in self.list.values_mut() {
            if exposure.release(peer) {
                exposure.lost_holder = Some((peer, until));
            }
        }
    }

    /// Removes a region that an operation closes, if it may be closed now.
    pub(crate) fn remove_if_free(
        &mut self,
        region: RegionId,
        now: Time,
    ) -> Option<(Exposure<O>, Waiting)> {
        let exposure = self.list.get_mut(&region)?;
        if !exposure.closing || !exposure.is_free(now) {
            return None;
        }
        let waiting = exposure.waiting.take()?;
        self.closing -= 1;
        Some((self.list.remove(&region)?, waiting))
    }

    /// The operation that has waited for a region until its patience was over, and a peer that
    /// still holds a grant.
    pub(crate) fn expire(&mut self, region: RegionId, now: Time) -> Option<(Token, Option<Peer>)> {
        let exposure = self.list.get_mut(&region)?;
        let late = |waiting: &mut Waiting| {
            *waiting.until.get_or_insert(now.after(waiting.patience)) <= now
        };
        let Waiting { token, .. } = exposure.waiting.take_if(late)?;
        let holder = exposure.holders.first().copied();
        Some((token, holder.or(exposure.lost_holder.map(|(peer, _)| peer))))
    }

    /// When to check again, if nothing happens before.
    pub(crate) fn until(&self) -> Time {
        if self.closing == 0 {
            return Time::NEVER;
        }
        let closing = self.list.values().filter(|exposure| exposure.closing);
        let times = closing.flat_map(|exposure| {
            let waits = exposure.waiting.as_ref().map(|w| w.until.unwrap_or(Time::ZERO));
            let lands = exposure.lost_holder.filter(|_| exposure.holders.is_empty());
            [waits, lands.map(|(_, until)| until)].into_iter().flatten()
        });
        times.min().unwrap_or(Time::NEVER)
    }
}
