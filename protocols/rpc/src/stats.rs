//! Observability: counters, latencies, traces.

use crate::Method;
use hdrhistogram::Histogram;
use petasos_fabric::Address;
use petasos_wire::rpc::Trace;
use serde::Serialize;
use std::{
    cell::{Cell, RefCell},
    collections::BTreeMap,
    time::Duration,
};

type Latencies = BTreeMap<&'static str, Histogram<u64>>;

/// Counters of an engine since its start, and latencies per method where they are measured.
///
/// ```
/// use petasos_rpc::{Engine, EngineConfig, CallOptions, Method, bytes};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default().measure(true));
/// let echo = Method::named("Echo::echo");
/// engine.register(echo, 0, bytes(|call| async move { Ok(call.to_vec()) }));
/// let target = engine.target(engine.address());
/// engine.block_on(target.call_bytes(echo, &CallOptions::default(), b"abc"))?;
/// let stats = engine.stats();
/// assert_eq!((stats.calls_made, stats.calls_served), (1, 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Calls made.
    pub calls_made: u64,
    /// Calls of ours that were dropped before they were answered.
    pub calls_cancelled: u64,
    /// One-way calls made.
    pub one_way_made: u64,
    /// Calls answered, one-way ones included.
    pub calls_served: u64,
    /// Of these, those whose handler failed.
    pub calls_failed: u64,
    /// Handlers stopped because the caller cancelled.
    pub cancelled_by_caller: u64,
    /// Handlers stopped because the call's time limit had passed.
    pub served_too_late: u64,
    /// One-way calls that were refused.
    pub one_way_dropped: u64,
    /// Frames that were dropped: garbage, or answers to calls that are over.
    pub garbage: u64,
    /// Memory that peers gave back: targets before they answered, and readers of arrays that they
    /// were given.
    pub lent_released: u64,
    /// Peers that were lost.
    pub peers_lost: u64,
    latencies: Latencies,
}

/// Latencies of one method, made or served, in nanoseconds, to 1 %.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct MethodStats {
    /// The method.
    pub method: &'static str,
    /// How many calls were measured.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile.
    pub p99_ns: u64,
    /// 99.9th percentile.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

/// What an engine holds now. All zero when nothing is under way.
///
/// ```
/// use petasos_rpc::{Engine, EngineConfig, Usage};
///
/// let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// assert_eq!(engine.usage(), Usage::default());
/// // What is never done is seen here: of a service that stays up nothing should grow.
/// engine.spawn(std::future::pending());
/// assert_eq!(engine.usage().tasks, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Usage {
    /// Calls of ours that are not over, or whose answer is owed.
    pub calls: usize,
    /// Credit in use: calls that peers have not answered.
    pub credit: usize,
    /// Calls waiting for credit.
    pub waiting: usize,
    /// Calls of peers whose handlers are at work.
    pub serving: usize,
    /// Results lent to callers until they have fetched them.
    pub lent_results: usize,
    /// Frames for which the transport has no room yet.
    pub deferred: usize,
    /// Operations of the transport under way.
    pub operations: usize,
    /// Arrays given to callers that have not given them back ([`Array::give`](crate::Array::give)).
    pub given: usize,
    /// Futures that were spawned, handlers that wait included.
    pub tasks: usize,
}

/// What an engine counts: see [`Stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) calls_made: Counter,
    pub(crate) calls_cancelled: Counter,
    pub(crate) one_way_made: Counter,
    pub(crate) calls_served: Counter,
    pub(crate) calls_failed: Counter,
    pub(crate) cancelled_by_caller: Counter,
    pub(crate) served_too_late: Counter,
    pub(crate) one_way_dropped: Counter,
    pub(crate) garbage: Counter,
    pub(crate) lent_released: Counter,
    pub(crate) peers_lost: Counter,
    latencies: RefCell<Latencies>,
}

/// One counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    #[inline]
    pub(crate) fn count(&self) {
        self.0.set(self.0.get().wrapping_add(1));
    }
}

impl Counters {
    pub(crate) fn record(&self, method: &'static str, took: Duration) {
        let mut latencies = self.latencies.borrow_mut();
        let histogram = latencies.entry(method).or_insert_with(|| {
            // 1 ns to 10 minutes, 1 % exact.
            Histogram::new_with_bounds(1, 600_000_000_000, 2).expect("bounds that exist")
        });
        histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Their values now.
    pub(crate) fn read(&self) -> Stats {
        Stats {
            calls_made: self.calls_made.0.get(),
            calls_cancelled: self.calls_cancelled.0.get(),
            one_way_made: self.one_way_made.0.get(),
            calls_served: self.calls_served.0.get(),
            calls_failed: self.calls_failed.0.get(),
            cancelled_by_caller: self.cancelled_by_caller.0.get(),
            served_too_late: self.served_too_late.0.get(),
            one_way_dropped: self.one_way_dropped.0.get(),
            garbage: self.garbage.0.get(),
            lent_released: self.lent_released.0.get(),
            peers_lost: self.peers_lost.0.get(),
            latencies: self.latencies.borrow().clone(),
        }
    }
}

impl Stats {
    /// Latencies per method; empty unless `EngineConfig::measure` is set.
    #[must_use]
    pub fn methods(&self) -> Vec<MethodStats> {
        let of = |(method, h): (&&'static str, &Histogram<u64>)| MethodStats {
            method,
            count: h.len(),
            mean_ns: h.mean(),
            p50_ns: h.value_at_quantile(0.5),
            p99_ns: h.value_at_quantile(0.99),
            p999_ns: h.value_at_quantile(0.999),
            max_ns: h.max(),
        };
        self.latencies.iter().map(of).collect()
    }
}

/// Whether there is a subscriber for traces; free if not.
#[inline]
pub(crate) fn traces() -> bool {
    tracing::enabled!(target: "petasos::call", tracing::Level::DEBUG)
}

/// The context of a new trace, if there is a subscriber for traces.
pub(crate) fn begin_trace(method: &Method, peer: &Address) -> Option<Trace> {
    traces().then(|| fresh_trace(method, peer))
}

#[cold]
fn fresh_trace(method: &Method, peer: &Address) -> Trace {
    let draw = || petasos_fabric::Incarnation::random().get();
    let trace = Trace { trace: u128::from(draw()) << 64 | u128::from(draw()), span: draw() };
    // The target's span refers to this trace and span.
    tracing::debug!(
        target: "petasos::call", method = method.name, %peer,
        trace = format_args!("{:032x}", trace.trace), span = format_args!("{:016x}", trace.span),
    );
    trace
}
