//! What this machine can do at best, measured beside our own figures in the same run.
//!
//! Absolute times move from machine to machine and from hour to hour; the ratio to a limit taken
//! a second earlier on the same cores does not. Each function here measures one limit, needs
//! nothing of Petasos, and takes about as long as its [`Plan`] allows, so that a command can show
//! its progress between them:
//!
//! | limit | of what |
//! |---|---|
//! | [`cache_line_round_trip`], [`message_round_trip`] | a call over shared memory, both sides spinning |
//! | [`short_round_trip`], [`copied_round_trip`] | a call with a payload over shared memory, both sides spinning |
//! | [`eventfd_round_trip`], [`futex_round_trip`] | the same, both sides asleep in between |
//! | [`calls_of_many`], [`tcp_calls_of_many`] | calls of many clients over shared memory, over TCP |
//! | [`tcp_round_trip`] | a call over TCP, spinning or asleep |
//! | [`new_connections`] | the first call of a new peer |
//! | [`memcpy`], [`vm_readv`], [`vm_writev`] | bulk over shared memory: mapped by both, or one copy between processes |
//! | [`tcp_stream`], [`tcp_fetch`] | bulk over TCP: without a pause, or one request at a time |
//!
//! Some need a second process: this executable, started again as [`HELPER_SUBCOMMAND`], for which
//! `main` calls [`run_helper`] and nothing else.

mod buffer;
mod connect;
mod copied;
mod cores;
mod crowd;
mod error;
mod helper;
mod helper_process;
mod memory;
mod order;
mod report;
mod spin;
mod stream;
mod tcp;
mod timing;
mod wake;

pub use connect::{new_connections, once};
pub use copied::copied_round_trip;
pub use cores::{Cores, on_client_core, pin};
pub use crowd::{BARE_LINES, BARE_SOCKETS, calls_of_many, tcp_calls_of_many};
pub use error::LimitError;
pub use helper::HELPER_SUBCOMMAND;
pub use helper_process::run_helper;
pub use memory::{memcpy, vm_readv, vm_writev};
pub use order::{Family, Waiting};
pub use report::{Bulk, BulkPoint, FOR_P99, FOR_P99_9, Once, Percentiles, RoundTrip, too_few};
pub use spin::{LONGEST_IN_SLOT, cache_line_round_trip, message_round_trip, short_round_trip};
pub use stream::{tcp_fetch, tcp_stream};
pub use tcp::{tcp_echo, tcp_round_trip};
pub use timing::{median, round_trips, single_times, transfers};
pub use wake::{eventfd_round_trip, futex_round_trip};

use std::time::Duration;

/// Bytes of the small message whose round trips are measured.
pub const MESSAGE_BYTES: usize = 64;

/// How much work a measurement may do, and where.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Time for one measurement; for bulk, for each size. Starting threads, processes and
    /// touching memory come on top. A measurement too slow for it still takes a few samples.
    pub time: Duration,
    /// Batches of round trips whose median is reported, at most.
    pub batches: u32,
    /// The cores of the two sides.
    pub cores: Cores,
}

/// Shorter plans are trials.
const TRIAL: Duration = Duration::from_millis(5);

impl Plan {
    /// Whether the time is so short that it is of interest whether all works, not how fast: one
    /// sample is enough then, of transfers too slow for it, and none is taken again.
    fn is_trial(&self) -> bool {
        self.time < TRIAL
    }
}

impl Default for Plan {
    /// 0.3 s, 200 batches, on the cores that [`Cores::pick`] finds.
    fn default() -> Self {
        Self { time: Duration::from_millis(300), batches: 200, cores: Cores::pick() }
    }
}

/// A measurement of a round trip.
pub type RoundTripFn = fn(&Plan) -> Result<RoundTrip, LimitError>;

/// A measurement of bulk data, for some sizes in bytes.
pub type BulkFn = fn(&Plan, &[usize]) -> Result<Bulk, LimitError>;

/// All round trips, with the names that their results carry.
pub const ROUND_TRIPS: [(&str, RoundTripFn); 6] = [
    (spin::CACHE_LINE, cache_line_round_trip),
    (spin::MESSAGE, message_round_trip),
    (wake::EVENTFD, eventfd_round_trip),
    (wake::FUTEX, futex_round_trip),
    (tcp::SPINNING, |plan| tcp_round_trip(plan, Waiting::Spinning)),
    (tcp::SLEEPING, |plan| tcp_round_trip(plan, Waiting::Sleeping)),
];

/// All bulk measurements, with the names that their results carry.
pub const BULKS: [(&str, BulkFn); 5] = [
    (memory::MEMCPY, memcpy),
    (memory::VM_READV, vm_readv),
    (memory::VM_WRITEV, vm_writev),
    (stream::STREAM, tcp_stream),
    (stream::FETCH, tcp_fetch),
];

#[cfg(test)]
mod tests;
