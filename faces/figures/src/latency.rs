//! How long calls take, beside the round trip that the machine allows.

use crate::{
    beside::typical,
    client,
    exit::{Code, Failure, Outcome},
    limits::{self, Plan, RoundTrip, RoundTripFn},
    message::{message, same},
    pair::{Pair, ServerConnection},
    service::{BenchClient, MESSAGE},
    waiting::Waiting,
};
use petasos::{CallOptions, Transport, wire::Encoding};

/// How often the limit and calls are measured in turn.
const SLICES: u32 = 7;

/// A limit, and what was measured right after it.
pub struct Latency {
    pub machine: RoundTrip,
    /// Calls that do nothing.
    pub null: RoundTrip,
    /// Calls with 64 bytes there and back.
    pub small: RoundTrip,
}

impl Latency {
    pub fn ratio(&self) -> f64 {
        self.null.median / self.machine.median
    }

    /// What is to be said against it: of ours, or of the limit.
    pub fn doubt(&self) -> Option<&str> {
        [&self.null, &self.machine, &self.small]
            .into_iter()
            .find_map(|found| found.doubt.as_deref())
    }
}

/// The limit of a call over this transport, both sides waiting like that.
pub fn limit(transport: &Transport, waiting: Waiting) -> RoundTripFn {
    match (client::is_within_node(transport.scheme), waiting) {
        (true, Waiting::Sleeping) => limits::futex_round_trip,
        (true, _) => limits::cache_line_round_trip,
        (_, Waiting::Sleeping) => |plan| limits::tcp_round_trip(plan, limits::Waiting::Sleeping),
        _ => |plan| limits::tcp_round_trip(plan, limits::Waiting::Spinning),
    }
}

/// What the machine allows for a call with so many bytes there and back.
pub fn limit_of(
    transport: &Transport,
    waiting: Waiting,
    plan: &Plan,
    bytes: usize,
) -> Outcome<RoundTrip> {
    Ok(match (client::is_within_node(transport.scheme), waiting) {
        // Without the bytes, which count for little beside the waking.
        (true, Waiting::Sleeping) => limits::futex_round_trip(plan)?,
        (true, _) if bytes == 0 => limits::cache_line_round_trip(plan)?,
        (true, _) if bytes == limits::MESSAGE_BYTES => limits::message_round_trip(plan)?,
        (true, _) if bytes <= limits::LONGEST_IN_SLOT => limits::short_round_trip(plan, bytes)?,
        (true, _) => limits::copied_round_trip(plan, bytes)?,
        (_, Waiting::Sleeping) => limits::tcp_echo(plan, limits::Waiting::Sleeping, bytes.max(8))?,
        _ => limits::tcp_echo(plan, limits::Waiting::Spinning, bytes.max(8))?,
    })
}

impl Pair {
    /// Measures calls beside `limit`, in all about two times as long as the plan says.
    pub fn latency(&self, plan: &Plan, limit: RoundTripFn, encoding: Encoding) -> Outcome<Latency> {
        let slice = Plan { time: plan.time / SLICES, ..*plan };
        let mut slices = Vec::new();
        for _ in 0..SLICES {
            // It would take a core of the limit's.
            let machine = self.frozen(|| Ok(limit(&slice)?))?;
            let null = self.null_call(&slice, encoding)?;
            let small = self.small_call(&slice, encoding)?;
            slices.push(Latency { machine, null, small });
        }
        Ok(typical(slices, Latency::ratio))
    }
}

impl ServerConnection {
    /// The bench of the server, in an encoding.
    pub fn bench_in(&self, encoding: Encoding) -> BenchClient {
        self.bench().with(CallOptions::default().encoding(encoding))
    }

    /// Calls that do nothing, one after the other.
    pub fn null_call(&self, plan: &Plan, encoding: Encoding) -> Outcome<RoundTrip> {
        let (bench, engine) = (self.bench_in(encoding), &self.engine);
        limits::round_trips(plan, "null_call", "typed, asynchronous, with a deadline", || {
            Ok(engine.block_on(bench.null())?)
        })
    }

    /// Calls with 64 bytes there and back, one after the other.
    fn small_call(&self, plan: &Plan, encoding: Encoding) -> Outcome<RoundTrip> {
        let (bench, engine) = (self.bench_in(encoding), &self.engine);
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

    /// Calls with so many bytes there and back, one after the other.
    pub fn echo(&self, plan: &Plan, bytes: usize, encoding: Encoding) -> Outcome<RoundTrip> {
        let (bench, engine) = (self.bench_in(encoding), &self.engine);
        let mut sent = message(bytes);
        limits::round_trips(plan, "echo", "typed, asynchronous, with a deadline", || {
            sent = engine.block_on(bench.echo(std::mem::take(&mut sent)))?;
            same(&sent, bytes)
        })
    }
}
