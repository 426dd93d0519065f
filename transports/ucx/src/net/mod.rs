//! One worker of UCX's, with what belongs to it, behind calls that are safe.
//!
//! What makes them safe:
//!
//! * All memory that the library is given lies at a fixed place and is held here until the library
//!   has let go of it: its completion came, or the worker is destroyed. That includes memory of
//!   users, of which a holder is kept.
//! * What comes is copied from the library's memory, never referred to, and in the callback unless
//!   it may be kept.
//! * Callbacks come from within calls of ours, on the thread that makes them: they put what they
//!   have to tell into queues ([`arrivals`]), and no borrow of these is alive while the library is
//!   called.
//! * One thread at a time calls in (`&mut self`), which is what was agreed with the library
//!   (`UCS_THREAD_MODE_SERIALIZED`). So all objects of the library are a [`Net`]'s own, and go
//!   before its worker does. The holder of a node, a key or opened memory has a name for it
//!   (`petasos_datagram::nodes`), which no other `Net` knows.
//! * What a peer said is compared with what the library packs for us, before the library reads it
//!   ([`crate::form`]).

mod arrivals;
mod descriptors;
mod emptying;
mod ending;
mod fixed;
mod memory;
mod network;
mod objects;
mod post;

pub(crate) use objects::Context;

use crate::{
    OpenError,
    form::{AddressForm, KeyForm},
    kinds::{Kind, Reach},
    sys::ucp_ep,
};
use arrivals::{Current, Landing};
use memory::{Held, Registered, Unpacked};
use objects::Worker;
use petasos_datagram::{Config, Facts, Mark, Nodes, Objects, slots};
use petasos_fabric::{Enforcement, Region, Slice};
use std::{
    mem::{ManuallyDrop, forget, replace, take},
    ptr::NonNull,
    time::{Duration, Instant},
};

/// One for each send and access.
type Slots = slots::Slots<(Mark, Held)>;

/// How long packets may take to be sent when an endpoint ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// How many workers are tried until one has a queue in shared memory that no process has written
/// to. Its address is not known to any then; but a process that has a wrong one, or that of an
/// earlier endpoint, may have taken a place in the queue before its elements were made: then
/// nothing more is ever read from it.
const TRIES: usize = 4;

/// A worker of UCX's. What it does is said by [`petasos_datagram::Network`].
pub struct Net {
    /// Ended before what it works on is dropped; or leaked, and all that with it.
    worker: ManuallyDrop<Worker>,
    slots: Slots,
    /// How many there were at first.
    sends: usize,
    /// Endpoints. Those that cannot be closed stay until the worker is destroyed: see `disconnect`.
    nodes: Nodes<NonNull<ucp_ep>>,
    /// Keys to memory of nodes.
    keys: Objects<Unpacked>,
    /// Memory that nodes reach.
    opened: Objects<Registered>,
    /// Whether any ever was: then the library may owe answers to nodes.
    lent: bool,
    /// Memory that nodes accessed until now: held until the worker is destroyed, which may still
    /// work for them.
    last: Vec<Slice>,
    /// The packet that `next` returned last.
    current: Current,
    kind: &'static Kind,
    name: Vec<u8>,
    /// What addresses and keys have to look like.
    addresses: AddressForm,
    key_form: Option<KeyForm>,
    facts: Facts,
}

// SAFETY: the library's objects have no tie to the thread that made them. All of them belong to
// this value, and are used and destroyed by calls that take `&mut self` (or read what is fixed, or
// what `next` last gave), or when it is dropped: by one thread at a time, which is what was agreed
// with the library.
unsafe impl Send for Net {}

impl Net {
    fn open_kind(
        kind: &'static Kind,
        host: Option<&str>,
        headers: usize,
        config: &Config,
    ) -> Result<Net, OpenError> {
        kind.permitted()?;
        let access = kind.accesses(config);
        let begin = || -> Result<_, OpenError> {
            let context = Context::open(kind, host, access)?;
            let slots = Slots::new(config.sends);
            let landing = Landing::new(slots.count(), headers.saturating_add(Config::MAX_MESSAGE));
            let worker = Worker::open(context, kind, landing, slots.memory())?;
            let name = worker.name()?;
            let (transports, library) = (kind.transports, worker.library);
            let form = AddressForm::of(&name, transports, library.minor());
            let version = library.version_text();
            let form = form.ok_or(OpenError::Form { version, transports })?;
            Ok((slots, worker, name, form))
        };
        let mut begun = begin()?;
        let version = begun.1.library.version_text();
        let mut tries = 1;
        while begun.3.is_written_to() {
            if tries == TRIES {
                return Err(OpenError::WrittenTo { version, transports: kind.transports, tries });
            }
            // The new queue lies elsewhere, because the old one is there until the new one is made.
            begun = begin()?;
            tries += 1;
        }
        let (slots, worker, name, addresses) = begun;
        let facts = Facts {
            protocol: kind.protocol(&version),
            fragment: Config::MAX_MESSAGE,
            inject: Slots::BUFFER,
            access: access.then_some(1 << 30),
            data_bits: 0,
            completion_data_from: u64::MAX,
            enforcement: match kind.reach {
                Reach::Owner => Enforcement::Owner,
                Reach::Library => Enforcement::Initiator,
                Reach::Nic => Enforcement::Device,
            },
        };
        let mut net = Net {
            worker: ManuallyDrop::new(worker),
            slots,
            sends: config.sends,
            nodes: Nodes::default(),
            keys: Objects::default(),
            opened: Objects::default(),
            lent: false,
            last: Vec::new(),
            current: Current::Nothing,
            kind,
            name,
            addresses,
            key_form: None,
            facts,
        };
        net.learn_keys();
        Ok(net)
    }

    /// Learns the form of keys from one of our own. If it is not a known form, owners serve all
    /// access.
    fn learn_keys(&mut self) {
        let page = Region::zeroed(4096).whole();
        self.key_form = self.map(&page).and_then(|opened| KeyForm::of(opened.key()));
        self.close_returned();
        if self.key_form.is_none() {
            self.facts.access = None;
        }
    }
}

impl Net {
    /// Lets the library send what it took, as far as the peers take it. False if something is left.
    fn flush_at_end(&mut self) -> bool {
        self.let_go();
        let begin = Instant::now();
        // What arrives while one flush goes on may be answered behind it: the last is over at once.
        while !self.flushes_at_once() {
            if begin.elapsed() >= FAREWELL {
                return false;
            }
            self.worker.progress();
            std::thread::yield_now();
        }
        true
    }

    /// Begins to flush, unless that is under way already. True if nothing waits to be sent.
    fn flushes_at_once(&self) -> bool {
        let is_over = || self.worker.is_flushed() && (!self.lent || self.worker.emptying.is_over());
        if !is_over() {
            return false;
        }
        self.worker.begin_flush();
        if self.lent {
            self.nodes.iter().for_each(|ep| self.worker.flush(*ep));
        }
        is_over()
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let flushed = self.worker.context.is_here() && self.flush_at_end();
        // Operations that were not flushed may still use a key, and memory that was opened: then
        // both are the worker's until it is destroyed, or left with it.
        let opened = self.opened.all();
        if flushed {
            for key in self.keys.all() {
                self.destroy(key);
            }
            for memory in opened {
                self.last.extend(self.unmap(memory));
            }
        } else {
            forget(opened);
        }
        // SAFETY: nothing of this is used after it was dropped.
        if unsafe { !Worker::end(&mut self.worker, self.lent && !flushed) } {
            forget((replace(&mut self.slots, Slots::new(1)), take(&mut self.last)));
        }
    }
}
