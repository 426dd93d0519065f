//! What a context has to call back, in the order in which it came about.

use crate::{
    abi::{Cb, Code, CoreCb},
    address::AddrRef,
    bulk::BulkRef,
    handle::HandleRef,
    wire::Header,
};
use petasos_fabric::{EventFd, Lease, Peer, Region};
use std::{
    collections::VecDeque,
    ffi::c_void,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

/// A pointer of the program's, which comes back to it as it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg(pub(crate) *mut c_void);

// SAFETY: nothing here looks at what it points at.
unsafe impl Send for Arg {}

/// The bytes of a request.
pub(crate) enum Payload {
    /// The message as it came.
    Lent(Lease),
    /// A copy of it: too many wait to keep what is lent.
    Copied(Vec<u8>),
    /// The message, and what came with it.
    Long(Vec<u8>, Region, Counted),
}

/// Bytes of long input or output that arrive or wait: they count until this is dropped.
pub(crate) struct Counted {
    all: Arc<AtomicU64>,
    len: u64,
}

impl Counted {
    /// So many more, unless they are more than `most` then.
    pub(crate) fn new(all: &Arc<AtomicU64>, len: u64, most: u64) -> Option<Counted> {
        let one = Counted { all: all.clone(), len };
        let before = all.fetch_add(len, Ordering::Relaxed);
        // Else dropping it takes them back.
        before.checked_add(len).is_some_and(|all| all <= most).then_some(one)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.all.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Payload {
    pub(crate) fn message(&self) -> &[u8] {
        match self {
            Payload::Lent(lease) => lease,
            Payload::Copied(bytes) | Payload::Long(bytes, ..) => bytes,
        }
    }
}

/// A request that came, and that no handle has yet.
pub(crate) struct Arrived {
    pub(crate) peer: Peer,
    pub(crate) source: AddrRef,
    pub(crate) header: Header,
    pub(crate) payload: Payload,
}

/// Whom to call about an address.
pub(crate) enum LookupCb {
    Upper(Cb),
    Core(CoreCb),
}

/// A transfer that is over.
pub(crate) struct Transferred {
    pub(crate) callback: Cb,
    pub(crate) arg: Arg,
    pub(crate) origin: BulkRef,
    pub(crate) local: BulkRef,
    pub(crate) op: u32,
    pub(crate) size: u64,
    pub(crate) code: Code,
}

/// Something to call back.
pub(crate) enum Entry {
    Request(Box<Arrived>),
    Forward(HandleRef, Code),
    Respond(HandleRef, Code),
    Lookup { callback: LookupCb, arg: Arg, addr: AddrRef },
    Bulk(Box<Transferred>),
}

/// The queue of a context.
pub(crate) struct Queue {
    pub(crate) id: u8,
    entries: Mutex<VecDeque<Entry>>,
    len: AtomicUsize,
    /// Wakes a program that sleeps on the context's descriptor.
    pub(crate) wake: EventFd,
    sleeping: AtomicBool,
}

impl Queue {
    pub(crate) fn new(id: u8) -> std::io::Result<Queue> {
        Ok(Queue {
            id,
            entries: Mutex::default(),
            len: AtomicUsize::new(0),
            wake: EventFd::new()?,
            sleeping: AtomicBool::new(false),
        })
    }

    pub(crate) fn push(&self, entry: Entry) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push_back(entry);
        // Before the look at the threads that sleep, as seen by all threads.
        self.len.store(entries.len(), Ordering::SeqCst);
        drop(entries);
        self.rouse();
    }

    pub(crate) fn pop(&self) -> Option<Entry> {
        if self.len() == 0 {
            return None;
        }
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.pop_front();
        self.len.store(entries.len(), Ordering::Release);
        entry
    }

    /// Callbacks of the program's that wait to be called, and handles that only this queue
    /// has.
    pub(crate) fn waits(&self) -> (usize, usize) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut callbacks, mut alone) = (0, 0);
        for entry in &*entries {
            callbacks += usize::from(match entry {
                Entry::Request(_) => false,
                Entry::Forward(handle, _) => handle.callback(true).is_some(),
                Entry::Respond(handle, _) => handle.callback(false).is_some(),
                Entry::Lookup { .. } => true,
                Entry::Bulk(over) => over.callback.is_some(),
            });
            if let Entry::Forward(handle, _) | Entry::Respond(handle, _) = entry {
                alone += usize::from(handle.refs() == 1);
            }
        }
        (callbacks, alone)
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Acquire)
    }

    /// The program is about to sleep on the descriptor, unless there is something.
    pub(crate) fn lie_down(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        self.len.load(Ordering::SeqCst) == 0
    }

    /// The program sleeps no more.
    pub(crate) fn get_up(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
        self.wake.take();
    }

    /// Ends that sleep.
    pub(crate) fn rouse(&self) {
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake.signal();
        }
    }
}
