//! The part of an endpoint that others reach: its inbox, regions and doorbell.

use crate::{
    allotment::{Allotment, Charge},
    offer::Offer,
    regions::Regions,
};
use bytes::Bytes;
use petasos_fabric::{Address, Doorbell, Incarnation, Lease, LostReason, Pool, Quota, RegionId};
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

/// The longest message.
pub(crate) const MAX_MESSAGE: usize = 65_536;
/// Messages that an inbox holds before senders have to wait.
const INBOX: usize = 1024;

pub(crate) struct Hub {
    pub(crate) address: Address,
    pub(crate) incarnation: Incarnation,
    pub(crate) pool: Pool,
    pub(crate) regions: Regions,
    pub(crate) doorbell: Arc<Doorbell>,
    /// Tagged messages that came eagerly and have not been matched.
    pub(crate) eager: Quota,
    /// What senders may have here, by their links.
    allotments: Mutex<HashMap<u64, Arc<Allotment>>>,
    inbox: Mutex<Inbox>,
    /// A thread drives the endpoint while its program does not.
    attended: AtomicBool,
}

#[derive(Default)]
struct Inbox {
    queue: VecDeque<Packet>,
    closed: bool,
    /// Senders that sleep until there is room.
    waiting: HashMap<Incarnation, Weak<Hub>>,
}

/// Something for an endpoint, on one of its links.
pub(crate) struct Packet {
    pub(crate) link: u64,
    pub(crate) content: Content,
}

pub(crate) enum Content {
    /// A new link, with this endpoint.
    Hello(Arc<Hub>),
    /// The link is closed.
    Bye(LostReason),
    Message(Lease),
    Long {
        header: Lease,
        offer: Arc<Offer>,
    },
    Tagged {
        tag: u64,
        data: Tagged,
        charge: Charge,
    },
    Arrived {
        region: RegionId,
        offset: u64,
        len: u64,
        data: u64,
    },
    /// The receiver is done with this offer.
    Finished(u64),
}

pub(crate) enum Tagged {
    /// The message itself; its sender is done with it.
    Eager(Bytes),
    Offer(Arc<Offer>),
}

/// Why a packet was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    Full,
    Closed,
}

impl Hub {
    pub(crate) fn new(address: Address, doorbell: Doorbell, max_leases: usize) -> Hub {
        let doorbell = Arc::new(doorbell);
        Hub {
            address,
            incarnation: Incarnation::random(),
            pool: Pool::new(max_leases),
            regions: Regions::new(doorbell.clone()),
            doorbell,
            eager: Quota::new(max_leases),
            allotments: Mutex::default(),
            inbox: Mutex::default(),
            attended: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_attended(&self) {
        self.attended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_attended(&self) -> bool {
        self.attended.load(Ordering::Relaxed)
    }

    fn allotments(&self) -> MutexGuard<'_, HashMap<u64, Arc<Allotment>>> {
        self.allotments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the sender on a link may have.
    pub(crate) fn allotment(&self, link: u64) -> Arc<Allotment> {
        let mut all = self.allotments();
        let new = || Arc::new(Allotment::new(self.pool.share(MAX_MESSAGE)));
        Arc::clone(all.entry(link).or_insert_with(new))
    }

    /// A link is closed.
    pub(crate) fn forget_allotment(&self, link: u64) {
        self.allotments().remove(&link);
    }

    fn lock(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a packet for which there must be room, as it answers something or comes once for each
    /// link.
    pub(crate) fn push(&self, link: u64, content: Content) -> Result<(), Refused> {
        let mut inbox = self.lock();
        if inbox.closed {
            return Err(Refused::Closed);
        }
        inbox.queue.push_back(Packet { link, content });
        drop(inbox);
        self.doorbell.ring();
        Ok(())
    }

    /// Adds the packet that `make` gives, if there is room. `make` gives none when the sender's
    /// share of the pool is used up.
    pub(crate) fn offer(
        &self,
        link: u64,
        make: impl FnOnce() -> Option<Content>,
    ) -> Result<(), Refused> {
        // The copy is made outside of the lock. Only the sender's own link depends on the order,
        // and it has one thread; a few messages over the bound do no harm.
        if self.full() {
            return Err(self.why());
        }
        let content = make().ok_or(Refused::Full)?;
        self.push(link, content)
    }

    fn full(&self) -> bool {
        let inbox = self.lock();
        inbox.closed || inbox.queue.len() >= INBOX
    }

    fn why(&self) -> Refused {
        if self.is_closed() { Refused::Closed } else { Refused::Full }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Whether a message of any length would be taken from this sender.
    pub(crate) fn has_room(&self, sender: &Allotment) -> bool {
        !self.full() && sender.has_lease()
    }

    /// Whether a sender may sleep until it is rung; false if there is room. True also when only its
    /// share of the pool is used up: a dropped lease rings no doorbell, so poll again soon.
    pub(crate) fn wait_for_room(&self, may: &Allotment, sender: &Arc<Hub>) -> bool {
        let mut inbox = self.lock();
        if inbox.closed || (inbox.queue.len() < INBOX && may.has_lease()) {
            return false;
        }
        inbox.waiting.insert(sender.incarnation, Arc::downgrade(sender));
        true
    }

    /// Whether packets have come.
    pub(crate) fn has_packets(&self) -> bool {
        !self.lock().queue.is_empty()
    }

    /// Takes at most `count` packets out, and rings the senders that wait for room.
    pub(crate) fn fetch(&self, count: usize, into: &mut VecDeque<Packet>) {
        let mut inbox = self.lock();
        let count = count.min(inbox.queue.len());
        into.extend(inbox.queue.drain(..count));
        let waiting = if inbox.queue.len() < INBOX && !inbox.waiting.is_empty() {
            std::mem::take(&mut inbox.waiting)
        } else {
            HashMap::new()
        };
        drop(inbox);
        for hub in waiting.values().filter_map(Weak::upgrade) {
            hub.doorbell.ring();
        }
    }

    /// Closes the inbox, and gives the packets that were in it.
    pub(crate) fn close(&self) -> VecDeque<Packet> {
        let mut inbox = self.lock();
        inbox.closed = true;
        let waiting = std::mem::take(&mut inbox.waiting);
        let rest = std::mem::take(&mut inbox.queue);
        drop(inbox);
        for hub in waiting.values().filter_map(Weak::upgrade) {
            hub.doorbell.ring();
        }
        rest
    }
}
