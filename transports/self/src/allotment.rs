//! What one sender may have of a receiver's memory. The sender enters what it takes; the receiver
//! sets the quota and reads what is used.

use petasos_fabric::{Lease, PeerQuota, PeerUsage, Share};
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
};

/// What an expected message that waits costs beside its data, in bytes.
const ENVELOPE: usize = 64;
/// So many headers may wait in any case.
const HEADERS: usize = 16;

/// What one sender may have, on one link.
pub(crate) struct Allotment {
    /// Its leases.
    share: Share,
    quota: Mutex<PeerQuota>,
    /// Bytes of expected messages that may wait for a receive, and those that do.
    unexpected: AtomicUsize,
    waiting: AtomicUsize,
    /// It may send no message, however short.
    held: AtomicBool,
    leases: Refusals,
    room: Refusals,
}

/// How often a sender had to wait.
#[derive(Default)]
struct Refusals {
    count: AtomicU64,
    /// It is waiting.
    now: AtomicBool,
}

impl Refusals {
    fn note(&self, refused: bool) {
        if !self.now.swap(refused, Ordering::Relaxed) && refused {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Allotment {
    /// Without a quota.
    pub(crate) fn new(share: Share) -> Allotment {
        Allotment {
            share,
            quota: Mutex::default(),
            unexpected: AtomicUsize::new(usize::MAX),
            waiting: AtomicUsize::new(0),
            held: AtomicBool::new(false),
            leases: Refusals::default(),
            room: Refusals::default(),
        }
    }

    pub(crate) fn set_quota(&self, quota: &PeerQuota) {
        *self.quota.lock().unwrap_or_else(PoisonError::into_inner) = *quota;
        self.share.set_quota(quota);
        self.unexpected.store(quota.unexpected, Ordering::Relaxed);
        self.held.store(quota.deferred, Ordering::Relaxed);
    }

    /// Adds what is used.
    pub(crate) fn count(&self, usage: &mut PeerUsage) {
        let mut own = PeerUsage::default();
        self.share.count(&mut own);
        usage.quota = *self.quota.lock().unwrap_or_else(PoisonError::into_inner);
        usage.leases += own.leases;
        usage.lease_bytes += own.lease_bytes;
        usage.unexpected += self.waiting.load(Ordering::Relaxed);
        usage.leases_refused += self.leases.count.load(Ordering::Relaxed);
        usage.unexpected_refused += self.room.count.load(Ordering::Relaxed);
    }

    /// Whether a message of any length finds a lease.
    pub(crate) fn has_lease(&self) -> bool {
        !self.held.load(Ordering::Relaxed) && self.share.left() > 0
    }

    /// A lease of `len` bytes that `fill` writes, if there is one for this sender.
    pub(crate) fn lend(&self, len: usize, fill: impl FnOnce(&mut [u8])) -> Option<Lease> {
        if self.held.load(Ordering::Relaxed) {
            return None;
        }
        let lease = self.share.lend(len, fill);
        if len > Lease::LINES {
            self.leases.note(lease.is_none() && self.share.is_at_quota());
        }
        lease
    }

    /// Whether the header of an expected message finds room.
    pub(crate) fn has_header(&self) -> bool {
        self.has_room(ENVELOPE, HEADERS * ENVELOPE)
    }

    fn has_room(&self, cost: usize, beside: usize) -> bool {
        let most = self.unexpected.load(Ordering::Relaxed).saturating_add(beside);
        self.waiting.load(Ordering::Relaxed) + cost <= most
    }

    /// Room for an expected message of `len` bytes that comes with its data. Its one thread is the
    /// only one that takes.
    pub(crate) fn take_whole(self: &Arc<Self>, len: usize) -> Option<Charge> {
        self.has_room(ENVELOPE + len, 0).then(|| self.charge(ENVELOPE + len))
    }

    /// Room for the header alone.
    pub(crate) fn take_header(self: &Arc<Self>) -> Option<Charge> {
        let charge = self.has_header().then(|| self.charge(ENVELOPE));
        self.room.note(charge.is_none());
        charge
    }

    fn charge(self: &Arc<Self>, cost: usize) -> Charge {
        self.waiting.fetch_add(cost, Ordering::Relaxed);
        Charge { of: Arc::clone(self), cost }
    }
}

/// Room that an expected message takes until it is dropped, or goes to its receive.
pub(crate) struct Charge {
    of: Arc<Allotment>,
    cost: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.of.waiting.fetch_sub(self.cost, Ordering::Relaxed);
    }
}
