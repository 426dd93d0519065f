//! How long calls take, beside the round trip that the machine allows.

use crate::{
    beside::typical,
    exit::{Code, Failure, Outcome},
    figures::Pair,
    limits::{self, Plan, RoundTrip, RoundTripFn},
    server::Waiting,
    service::MESSAGE,
};
use petasos::Transport;

/// How often the limit and calls are measured in turn.
const SLICES: u32 = 7;

/// A limit, and what was measured right after it.
pub(crate) struct Latency {
    pub(crate) machine: RoundTrip,
    /// Calls that do nothing.
    pub(crate) null: RoundTrip,
    /// Calls with 64 bytes there and back.
    pub(crate) small: RoundTrip,
}

impl Latency {
    pub(crate) fn ratio(&self) -> f64 {
        self.null.median / self.machine.median
    }
}

/// The limit of a call over this transport, both sides waiting like that.
pub(crate) fn limit(transport: &Transport, waiting: Waiting) -> RoundTripFn {
    match (transport.scheme, waiting) {
        ("shm", Waiting::Sleeping) => limits::futex_round_trip,
        ("shm", _) => limits::cache_line_round_trip,
        (_, Waiting::Sleeping) => |plan| limits::tcp_round_trip(plan, limits::Waiting::Sleeping),
        _ => |plan| limits::tcp_round_trip(plan, limits::Waiting::Spinning),
    }
}

impl Pair {
    /// Measures calls beside `limit`, in all about two times as long as the plan says.
    pub(crate) fn latency(&self, plan: &Plan, limit: RoundTripFn) -> Outcome<Latency> {
        let slice = Plan { time: plan.time / SLICES, ..*plan };
        let mut slices = Vec::new();
        for _ in 0..SLICES {
            let machine = {
                // It would take a core of the limit's.
                let _frozen = self.server.freeze()?;
                limit(&slice)?
            };
            let (null, small) = (self.null_call(&slice)?, self.small_call(&slice)?);
            slices.push(Latency { machine, null, small });
        }
        Ok(typical(slices, Latency::ratio))
    }

    /// Calls that do nothing, one after the other.
    fn null_call(&self, plan: &Plan) -> Outcome<RoundTrip> {
        let (bench, engine) = (self.bench(), &self.engine);
        limits::round_trips(plan, "null_call", "typed, asynchronous, with a deadline", || {
            Ok(engine.block_on(bench.null())?)
        })
    }

    /// Calls with 64 bytes there and back, one after the other.
    fn small_call(&self, plan: &Plan) -> Outcome<RoundTrip> {
        let (bench, engine) = (self.bench(), &self.engine);
        let mut message = [0; MESSAGE];
        let how = "64 bytes there and back, typed, asynchronous, with a deadline";
        limits::round_trips(plan, "call_64", how, || {
            message[0] = u8::wrapping_add(message[0], 1);
            match engine.block_on(bench.small(message))? == message {
                true => Ok(()),
                false => Err(Failure::new(Code::Mismatch, "another message came back")),
            }
        })
    }
}
