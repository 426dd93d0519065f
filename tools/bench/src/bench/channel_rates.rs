//! Rates of short messages that depend on credit: with hardly any, with a slow receiver, and with
//! many senders to one receiver; and that receiver's memory.

use super::Bench;
use crate::{
    bare::{self, TAKE, WORK},
    beside::Beside,
    channel::{Carries, Channel},
    exit::{Code, Failure, Outcome},
    figures::Row,
    limits::{self, Plan},
    output,
    pair::Setting,
    server::Server,
    waiting::Waiting,
};
use petasos::Transport;
use rustix::process::{Resource, getrlimit};
use std::{
    fs,
    time::{Duration, Instant},
};

/// Bytes of a message.
const MESSAGE: usize = 64;

/// Messages between two answers.
const TIMES: usize = 2000;
const QUICK_TIMES: usize = 200;

/// The time that a slow receiver works on each message.
const WORKS: Duration = Duration::from_micros(5);

/// Messages to a slow receiver between two answers: more than most have credit for.
const TO_SLOW: usize = 5000;
const QUICK_TO_SLOW: usize = 100;

/// Senders to one.
const SENDERS: [usize; 3] = [10, 100, 1000];
const QUICK_SENDERS: [usize; 1] = [16];

/// Messages of each of many senders between two answers.
const OF_EACH: usize = 32;

/// Messages that one of them sends before the next one has its turn.
const BURST: usize = 8;

/// Descriptors of an endpoint with one peer, in the process that has many.
const DESCRIPTORS: u64 = 12;

/// How long no sender may make progress: a thousand of them on one thread, with few fetches of the
/// receiver at a time, take many seconds in all.
const PATIENCE: Duration = Duration::from_secs(30);

/// The figures of one round, each beside its reference.
#[derive(Default)]
struct Found {
    scarce: Option<Beside>,
    slow: Option<Beside>,
    /// Of messages to a slow receiver, the part that had to wait.
    waited: f64,
    crowds: Vec<Crowd>,
}

struct Crowd {
    senders: usize,
    rate: Beside,
    /// Bytes that the receiver has for each sender.
    memory: f64,
}

/// A channel, and how it is measured.
pub(super) struct Rates<'a> {
    pub(super) bench: &'a Bench,
    pub(super) transport: &'static Transport,
    pub(super) channel: &'static Channel,
    pub(super) plan: &'a Plan,
}

impl Rates<'_> {
    /// Rows of a channel that carries messages; none of others.
    pub(super) fn measure(&self) -> Outcome<Vec<Row>> {
        let Carries::Messages { shortest, .. } = self.channel.carries else {
            return Ok(Vec::new());
        };
        let bytes = MESSAGE.max(shortest);
        let mut rounds = Vec::new();
        for round in 0..self.bench.rounds {
            self.bench.round(
                self.transport,
                format_args!("rates of a channel: {}", self.channel.name),
                round,
            );
            rounds.push(self.round(bytes)?);
        }
        Ok(self.rows(bytes, rounds))
    }

    fn setting(&self, channel: &'static Channel) -> Setting<'_> {
        let waiting = Waiting::for_latency(self.plan);
        let setting = self.bench.setting(self.transport, waiting, self.plan);
        Setting { channel: Some(channel), ..setting }
    }

    fn round(&self, bytes: usize) -> Outcome<Found> {
        let mut message = vec![7; bytes];
        let setting = self.setting(self.channel);
        let (mut client, server) = setting.bare()?;
        let plain = self.stream(&mut client, &mut message)?;
        let mut rates = Found::default();
        if let Some(scarce) = self.channel.scarce() {
            let _frozen = server.freeze()?;
            let (mut client, scarce_server) = self.setting(scarce).bare()?;
            let value = self.stream(&mut client, &mut message)?;
            rates.scarce = Some(Beside { value, limit: plain, of: "the usual credit" });
            // Both end before their server.
            drop(client);
            drop(scarce_server);
        }
        let works = (WORKS.as_micros() as u16).to_le_bytes();
        message[1..3].copy_from_slice(&works);
        let (mut waited, mut sent) = (0, 0);
        let times = if self.bench.quick { QUICK_TO_SLOW } else { TO_SLOW };
        let value = per_second(self.plan, times, || {
            waited += client.stream_of(WORK, &mut message, times)?;
            sent += times;
            Ok(())
        })?;
        let limit = 1.0 / WORKS.as_secs_f64();
        rates.slow = Some(Beside { value, limit, of: "the receiver's own rate" });
        rates.waited = waited as f64 / sent.max(1) as f64;
        drop(client);
        for senders in self.senders() {
            rates.crowds.push(self.crowd(&setting, &server, (senders, plain), &mut message)?);
        }
        Ok(rates)
    }

    /// Messages a second, as many as there is room for.
    fn stream(&self, client: &mut bare::Client, message: &mut [u8]) -> Outcome<f64> {
        let times = if self.bench.quick { QUICK_TIMES } else { TIMES };
        per_second(self.plan, times, || client.stream_of(TAKE, message, times).map(drop))
    }

    /// How many senders there can be.
    fn senders(&self) -> Vec<usize> {
        let all = if self.bench.quick { &QUICK_SENDERS[..] } else { &SENDERS };
        let descriptors = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        let (fit, not): (Vec<_>, Vec<_>) =
            all.iter().copied().partition(|many| *many as u64 * DESCRIPTORS < descriptors);
        for many in not {
            self.bench.skip(format!(
                "{many} senders to one, which need {DESCRIPTORS} file descriptors each: \
                 {descriptors} are allowed (ulimit -Hn)"
            ));
        }
        fit
    }

    /// Many senders, driven in turn on the thread that measures.
    fn crowd(
        &self,
        setting: &Setting<'_>,
        server: &Server,
        (senders, plain): (usize, f64),
        message: &mut [u8],
    ) -> Outcome<Crowd> {
        let before = resident(server)?;
        let clients = (0..senders).map(|_| setting.bare_to(server));
        let mut clients = clients.collect::<Outcome<Vec<_>>>()?;
        let value =
            per_second(self.plan, senders * OF_EACH, || all_send(&mut clients, message, OF_EACH))?;
        let memory = resident(server)?.saturating_sub(before) as f64 / senders as f64;
        let rate = Beside { value, limit: plain, of: "one sender" };
        Ok(Crowd { senders, rate, memory })
    }

    fn rows(&self, bytes: usize, rounds: Vec<Found>) -> Vec<Row> {
        let (name, scheme) = (self.channel.name, self.transport.scheme);
        let size = output::size(bytes as u64);
        let mut rows = Vec::new();
        let mut row = |what: String, found: Vec<Beside>, how: &str| {
            if !found.is_empty() {
                let Beside { value, limit, of } = Beside::typical(found);
                let what = format!("{name}, {what}, {size}");
                rows.push(Row::new(scheme, what, (value, "messages/s"), Some((of, limit)), how));
            }
        };
        row(
            "hardly any credit".to_owned(),
            rounds.iter().filter_map(|rates| rates.scarce).collect(),
            "messages sent as fast as there is room, bare; with a window of two packets, two pieces \
             lent, or a FIFO of eight cells, against the usual credit in the same round",
        );
        let slow = format!(
            "messages sent as fast as there is room, bare, to a receiver that works {} µs on each and \
             receives no other meanwhile",
            WORKS.as_micros()
        );
        row(
            "slow receiver".to_owned(),
            rounds.iter().filter_map(|rates| rates.slow).collect(),
            &slow,
        );
        let of_many = "messages sent as fast as there is room, bare, by many endpoints in one process, \
                       which one thread drives in turn, to one receiver, against one sender in the same \
                       round";
        let crowds = rounds.first().map_or(0, |rates| rates.crowds.len());
        for nth in 0..crowds {
            let senders = rounds[0].crowds[nth].senders;
            let found = rounds.iter().map(|rates| rates.crowds[nth].rate).collect();
            row(format!("{senders} senders"), found, of_many);
        }
        let mut waited: Vec<f64> = rounds.iter().map(|rates| rates.waited).collect();
        let what = format!("{name}, slow receiver: waited for room, {size}");
        let value = (limits::median(&mut waited), "a message");
        rows.push(Row::new(scheme, what, value, None, slow));
        for nth in 0..crowds {
            let mut bytes: Vec<f64> = rounds.iter().map(|rates| rates.crowds[nth].memory).collect();
            let value = limits::median(&mut bytes);
            // Few senders may fit in memory that the receiver had before.
            if value > 0.0 {
                let what =
                    format!("{name}, memory for each of {} senders", rounds[0].crowds[nth].senders);
                let how = "the growth of the receiver's resident memory when all have sent";
                rows.push(Row::new(scheme, what, (value, "B"), None, how));
            }
        }
        rows
    }
}

/// The rate by the second, where one run of `work` is so many.
fn per_second(plan: &Plan, many: usize, work: impl FnMut() -> Outcome) -> Outcome<f64> {
    // A transfer of as many bytes; the result is in 10^9 bytes a second.
    Ok(limits::transfers(plan, many, 0, work)?.median * 1e9)
}

/// Each client sends so many messages, and waits for the answer to the last one.
fn all_send(clients: &mut [bare::Client], message: &mut [u8], each: usize) -> Outcome {
    let mut left = vec![each; clients.len()];
    let mut answered = vec![false; clients.len()];
    let (mut before, mut since) = (0, Instant::now());
    loop {
        let (mut waiting, mut to_do) = (0_usize, 0);
        for ((client, left), answered) in clients.iter_mut().zip(&mut left).zip(&mut answered) {
            for _ in 0..BURST.min(*left) {
                message[0] = if *left == 1 { bare::LAST } else { TAKE };
                if !client.offer(message)? {
                    break;
                }
                *left -= 1;
            }
            // Drives it as well.
            *answered |= !*answered && client.hears()?;
            waiting += usize::from(!*answered);
            to_do += *left;
        }
        if waiting == 0 {
            return Ok(());
        }
        if before != waiting + to_do {
            (before, since) = (waiting + to_do, Instant::now());
        }
        if since.elapsed() > PATIENCE {
            let text = format!("{waiting} of {} senders wait for {PATIENCE:?}", clients.len());
            return Err(Failure::new(Code::Unreachable, text));
        }
    }
}

/// Bytes of the server's resident memory.
fn resident(server: &Server) -> Outcome<u64> {
    let path = format!("/proc/{}/status", server.pid());
    let text = fs::read_to_string(&path)
        .map_err(|error| Failure::file("reading", path.as_ref(), &error))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| Failure::new(Code::Failed, "no VmRSS in its status"))
}
