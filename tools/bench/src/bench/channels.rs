//! Each channel bare and under RPC, by size, against the bare device.
//!
//! Bare: through the fabric contract, without calls. Under RPC: calls that carry the same bytes
//! over endpoints that use the same channel. The device: two threads or processes that share
//! memory, or a connection, and nothing else.

use super::{Bench, channel_rates::Rates};
use crate::{
    bare,
    beside::Beside,
    channel::{Carries, Channel},
    client,
    exit::{Code, Failure, Outcome},
    figures::Row,
    latency, limits,
    limits::{Bulk, Plan},
    message, output,
    pair::{Pair, Setting},
    plots::Plot,
    server::Server,
    service::Direction,
    waiting::Waiting,
};
use petasos::{
    Transport, TypedCall,
    fabric::{Access, Region, Slice, Support},
    wire::Encoding,
};
use std::collections::VecDeque;

/// Lengths of messages, also at the boundaries of cache lines and of channels.
const MESSAGES: [usize; 18] =
    [0, 8, 16, 32, 56, 64, 112, 113, 128, 256, 512, 1024, 2048, 4096, 8192, 16_000, 32_000, 64_000];
const QUICK_MESSAGES: [usize; 6] = [0, 64, 112, 256, 4096, 16_000];

/// The same over NICs.
const NIC_MESSAGES: [usize; 7] = [0, 64, 512, 4096, 8192, 16_000, 64_000];

/// Bytes of a get.
const GETS: [usize; 8] = [64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1 << 20];
const QUICK_GETS: [usize; 3] = [64, 4096, 262_144];

/// Gets in flight for bandwidth.
const GETS_IN_FLIGHT: usize = 4;

/// Calls in flight for bandwidth.
const CALLS_IN_FLIGHT: usize = 64;

/// Messages between two answers for bandwidth: so many bytes, within these bounds.
const WINDOW: (usize, usize, usize) = (1 << 20, 16, 1024);

/// Bytes of a transfer of a bare stream: it has no messages.
const STREAM: usize = 1 << 20;

pub(super) fn steps(bench: &Bench, transport: &Transport) -> usize {
    let of = |channel: &Channel| 1 + usize::from(channel.has_messages());
    bench.rounds * Channel::of(transport.scheme).map(of).sum::<usize>()
}

pub(super) fn measure(bench: &Bench, transport: &'static Transport) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    for channel in Channel::of(transport.scheme) {
        let plan = bench.plan_of(10);
        let setting = bench.setting(transport, Waiting::for_latency(&plan), &plan);
        let setting = Setting { channel: Some(channel), ..setting };
        let experiment = Experiment { bench, transport, channel, setting, plan };
        rows.extend(limits::on_client_core(&bench.plan, || experiment.measure())?);
        let rates = Rates { bench, transport, channel, plan: &experiment.plan };
        rows.extend(limits::on_client_core(&bench.plan, || rates.measure())?);
    }
    Ok(rows)
}

struct Experiment<'a> {
    bench: &'a Bench,
    transport: &'static Transport,
    channel: &'static Channel,
    setting: Setting<'a>,
    plan: Plan,
}

/// Bare, and under RPC, each beside the device.
struct Both {
    bare: Beside,
    rpc: Beside,
}

/// A size, round by round.
struct Size {
    bytes: usize,
    times: Vec<Both>,
    rates: Vec<Both>,
}

impl Experiment<'_> {
    fn measure(&self) -> Outcome<Vec<Row>> {
        let mut sizes: Vec<Size> = Vec::new();
        for round in 0..self.bench.rounds {
            self.bench.round(self.transport, format_args!("channel: {}", self.channel.name), round);
            let mut pair = self.setting.pair()?;
            if self.channel.carries == (Carries::Gets { of_transport: true })
                && pair.engine.capabilities().map == Support::None
            {
                return Ok(Vec::new());
            }
            let mut work = || {
                // One of the two servers spins at a time.
                let (mut client, server) = pair.frozen(|| self.setting.bare())?;
                if sizes.is_empty() {
                    sizes = self.sizes(client.longest());
                }
                for size in &mut sizes {
                    self.size(&pair, (&mut client, &server), size)?;
                }
                // Both end before their server.
                drop(client);
                Ok(())
            };
            work().map_err(|failure| pair.explain(failure))?;
        }
        Ok(sizes.into_iter().flat_map(|size| self.rows(size)).collect())
    }

    fn sizes(&self, most: usize) -> Vec<Size> {
        let quick = self.bench.quick;
        let sizes: Vec<usize> = match self.channel.carries {
            Carries::Messages { shortest, longest } => {
                let all = match (quick, self.channel.of_nic) {
                    (true, _) => &QUICK_MESSAGES[..],
                    (false, true) => &NIC_MESSAGES[..],
                    (false, false) => &MESSAGES[..],
                };
                let within = |bytes: &usize| (shortest..=longest.min(most)).contains(bytes);
                all.iter().copied().filter(within).collect()
            }
            Carries::Gets { .. } => if quick { &QUICK_GETS[..] } else { &GETS[..] }.to_vec(),
        };
        let empty = |bytes| Size { bytes, times: Vec::new(), rates: Vec::new() };
        sizes.into_iter().map(empty).collect()
    }

    /// One round of a size.
    fn size(
        &self,
        pair: &Pair,
        (client, server): (&mut bare::Client, &Server),
        size: &mut Size,
    ) -> Outcome {
        let bytes = size.bytes;
        let frozen = pair.server.freeze()?;
        let (time, rate) = {
            let _frozen = server.freeze()?;
            self.device(bytes)?
        };
        let (bare_time, bare_rate) = match self.channel.carries {
            Carries::Messages { .. } => self.bare_messages(client, bytes)?,
            Carries::Gets { of_transport } => self.bare_gets(client, bytes, of_transport)?,
        };
        drop(frozen);
        let _frozen = server.freeze()?;
        let (rpc_time, rpc_rate) = match self.channel.carries {
            Carries::Messages { .. } => self.echoes(pair, bytes)?,
            Carries::Gets { of_transport } => self.pulls(pair, bytes, of_transport)?,
        };
        let both = |bare, rpc, (of, limit)| Both {
            bare: Beside { value: bare, limit, of },
            rpc: Beside { value: rpc, limit, of },
        };
        size.times.push(both(bare_time, rpc_time, time));
        if let (Some(bare), Some(rpc), Some(rate)) = (bare_rate, rpc_rate, rate) {
            size.rates.push(both(bare, rpc, rate));
        }
        Ok(())
    }

    /// The device's time and bandwidth.
    fn device(&self, bytes: usize) -> Outcome<(Limit, Option<Limit>)> {
        let plan = &self.plan;
        let round_trip = || latency::limit_of(self.transport, self.setting.waiting, plan, bytes);
        let shared = client::is_within_node(self.transport.scheme);
        match self.channel.carries {
            Carries::Messages { .. } => {
                let found = round_trip()?;
                let name = if shared { "bare message" } else { found.name };
                let rate = match bytes {
                    0 => None,
                    _ if shared => Some(named(&limits::memcpy(plan, &[bytes])?)),
                    _ => Some(named(&limits::tcp_stream(plan, &[STREAM])?)),
                };
                Ok(((name, found.median), rate))
            }
            Carries::Gets { of_transport } if shared => {
                let bulk = match of_transport {
                    true => limits::memcpy(plan, &[bytes])?,
                    // Where one process may not access the other, both map shared memory.
                    false => limits::vm_readv(plan, &[bytes])
                        .or_else(|_| limits::memcpy(plan, &[bytes]))?,
                };
                let (name, rate) = named(&bulk);
                Ok(((name, bytes as f64 / rate), Some((name, rate))))
            }
            Carries::Gets { .. } => {
                // A request and an answer while asleep, or a round trip while spinning: the faster.
                let fetched = limits::tcp_fetch(plan, &[bytes])?;
                let echoed = round_trip()?;
                let time = (fetched.name, bytes as f64 / fetched.first());
                let time = if echoed.median < time.1 { (echoed.name, echoed.median) } else { time };
                Ok((time, Some(named(&limits::tcp_stream(plan, &[STREAM])?))))
            }
        }
    }

    fn bare_messages(&self, client: &mut bare::Client, bytes: usize) -> Outcome<Found> {
        let time = client.echo(&self.plan, bytes)?;
        if bytes == 0 {
            return Ok((time, None));
        }
        let mut message = message::message(bytes);
        let (most, few, many) = WINDOW;
        let times = (most / bytes).clamp(few, many);
        let point =
            limits::transfers(&self.plan, bytes * times, 0, || client.stream(&mut message, times))?;
        Ok((time, Some(point.median)))
    }

    fn bare_gets(
        &self,
        client: &mut bare::Client,
        bytes: usize,
        of_transport: bool,
    ) -> Outcome<Found> {
        let target = client.memory(bytes, of_transport)?;
        let into: Vec<Slice> = (0..GETS_IN_FLIGHT).map(|_| Region::zeroed(bytes).whole()).collect();
        let time = limits::round_trips(&self.plan, "get", "", || client.get(&target, &into[..1]))?;
        let moved =
            limits::transfers(&self.plan, bytes * into.len(), 0, || client.get(&target, &into))?;
        Ok((time.median, Some(moved.median)))
    }

    fn echoes(&self, pair: &Pair, bytes: usize) -> Outcome<Found> {
        let time = pair.echo(&self.plan, bytes, Encoding::Native)?;
        if bytes == 0 {
            return Ok((time.median, None));
        }
        let (bench, message) = (pair.bench(), message::message(bytes));
        // Each sample ends with its last call: answers come in bursts.
        let (most, _, many) = WINDOW;
        let times = (most / bytes).clamp(4 * CALLS_IN_FLIGHT, many);
        let point = limits::transfers(&self.plan, bytes * times, 0, || {
            pair.engine.block_on(async {
                let mut calls = VecDeque::new();
                for _ in 0..times {
                    if calls.len() >= CALLS_IN_FLIGHT
                        && let Some(oldest) = calls.pop_front()
                    {
                        let oldest: TypedCall<()> = oldest;
                        oldest.await?;
                    }
                    calls.push_back(bench.take(message.clone()));
                }
                for call in calls {
                    call.await?;
                }
                Ok::<_, Failure>(())
            })
        })?;
        Ok((time.median, Some(point.median)))
    }

    fn pulls(&self, pair: &Pair, bytes: usize, of_transport: bool) -> Outcome<Found> {
        let memory = pair.memory(bytes, of_transport)?;
        let lent = pair.engine.bulk(memory.whole(), Access::READ)?;
        let bench = pair.bench();
        let time = limits::round_trips(&self.plan, "pull", "", || {
            let call = bench.transfer(lent.handle(), Direction::Pull, 1);
            pair.engine.block_on(call)?.map_err(|text| Failure::new(Code::Failed, text))
        })?;
        pair.engine.block_on(lent.close())?;
        let moved = pair.transfers(&self.plan, Direction::Pull, &memory, bytes)?;
        Ok((time.median, Some(moved.median)))
    }

    fn rows(&self, size: Size) -> Vec<Row> {
        let (name, scheme) = (self.channel.name, self.transport.scheme);
        let how = match self.channel.carries {
            Carries::Messages { .. } if self.channel.of_nic => {
                "a channel over the network's NIC alone, or each size by the thresholds that \
                 `petasos tune` found; else as other transports' channels"
            }
            Carries::Messages { .. } => {
                "bare: messages through the fabric contract; under RPC: echoes, and for bandwidth 64 \
                 calls in flight that take a message"
            }
            Carries::Gets { .. } => {
                "bare: gets through the fabric contract, 4 in flight for bandwidth; under RPC: a \
                 call in which the server pulls, and for bandwidth many pulls in a call; very \
                 short data travels with the call"
            }
        };
        let panel = self.channel.panel(self.transport.scheme);
        let bytes = output::size(size.bytes as u64);
        let mut rows = Vec::new();
        for (plot, unit, found) in
            [(Plot::Channels, "ns", size.times), (Plot::ChannelBandwidth, "GB/s", size.rates)]
        {
            if found.is_empty() {
                continue;
            }
            let (bare, rpc) = found.into_iter().map(|both| (both.bare, both.rpc)).unzip();
            for (series, found) in
                [(format!("{name}, bare"), bare), (format!("{name}, under RPC"), rpc)]
            {
                let Beside { value, limit, of } = Beside::typical(found);
                let what = format!("{series}, {bytes}");
                let row = Row::new(scheme, what, (value, unit), Some((of, limit)), how);
                rows.push(row.at(plot, &panel, &series, size.bytes as f64).dense());
            }
        }
        rows
    }
}

/// A limit: its name, and what it is.
type Limit = (&'static str, f64);

fn named(bulk: &Bulk) -> Limit {
    (bulk.name, bulk.first())
}

/// The time of one, and the bandwidth of many where there are bytes.
type Found = (f64, Option<f64>);
