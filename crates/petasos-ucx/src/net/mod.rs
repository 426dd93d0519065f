//! One worker of UCX's, with what belongs to it, behind calls that are safe.
//!
//! What makes them so:
//!
//! * All memory that the library is given lies at a fixed place and is held here until the library has let go of it: its
//!   completion came, or the worker is destroyed. That includes memory of users, of which a holder is kept.
//! * What comes is copied from the library's memory, never referred to, and in the callback unless it may be kept.
//! * Callbacks come from within calls of ours, on the thread that makes them: they put what they have to tell into
//!   queues ([`arrivals`]), and no borrow of these is alive while the library is called.
//! * One thread at a time calls in (`&mut self`), which is what was agreed with the library
//!   (`UCS_THREAD_MODE_SERIALIZED`).

mod arrivals;
mod fixed;
mod memory;
mod network;
mod objects;
mod post;

pub(crate) use objects::Context;

use crate::{
    OpenError,
    kinds::{Kind, Reach},
    sys::ucp_ep,
};
use arrivals::{Current, Landing};
use memory::Held;
use objects::Worker;
use petasos_datagram::{Config, Facts, Mark, slots};
use petasos_fabric::Enforcement;
use std::{
    ptr::NonNull,
    sync::Arc,
    time::{Duration, Instant},
};

/// One for each send and access.
type Slots = slots::Slots<(Mark, Held)>;

/// How long what was sent may take to leave when an endpoint ends.
const FAREWELL: Duration = Duration::from_millis(200);

/// A worker of UCX's. What it does is said by [`petasos_datagram::Network`].
pub struct Net {
    /// First: destroyed before what it works on.
    worker: Arc<Worker>,
    slots: Slots,
    /// By the number of a node. Those that were left without a word stay until the worker goes: see `remove`.
    nodes: Vec<Option<NonNull<ucp_ep>>>,
    /// Numbers that are free.
    free: Vec<u32>,
    /// The packet that was given last.
    current: Current,
    kind: &'static Kind,
    name: Vec<u8>,
    facts: Facts,
}

// SAFETY: the library's objects have no tie to the thread that made them; they are used by one thread at a time, since
// every call takes `&mut self` (or reads what is fixed, or what `next` last gave), which is what was agreed with it.
unsafe impl Send for Net {}

impl Net {
    fn open_kind(
        kind: &'static Kind,
        host: Option<&str>,
        heads: usize,
        config: &Config,
    ) -> Result<Net, OpenError> {
        kind.permitted()?;
        let access = kind.accesses(config);
        let context = Context::open(kind, host, access)?;
        let slots = Slots::new(config.sends);
        let landing = Landing::new(slots.count(), heads + Config::MAX_MESSAGE);
        let worker = Worker::open(context, kind, landing, slots.memory())?;
        let name = worker.name()?;
        let facts = Facts {
            protocol: kind.protocol(&worker.library.version_text()),
            fragment: Config::MAX_MESSAGE,
            inject: Slots::BUFFER,
            access: access.then_some(1 << 30),
            notice_bits: 0,
            notices_from: u64::MAX,
            enforcement: match kind.reach {
                Reach::Owner => Enforcement::Owner,
                Reach::Library => Enforcement::Initiator,
                Reach::Card => Enforcement::Device,
            },
        };
        let (nodes, free, current) = (Vec::new(), Vec::new(), Current::Nothing);
        Ok(Net { worker: Arc::new(worker), slots, nodes, free, current, kind, name, facts })
    }
}

impl Drop for Net {
    /// What the library took leaves, as far as others let it.
    fn drop(&mut self) {
        if !self.worker.context.is_here() {
            return;
        }
        self.let_go();
        let begin = Instant::now();
        self.worker.begin_flush();
        while !self.worker.is_flushed() && begin.elapsed() < FAREWELL {
            self.worker.progress();
            std::thread::yield_now();
        }
    }
}
