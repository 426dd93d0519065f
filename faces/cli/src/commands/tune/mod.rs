//! `petasos tune`: which settings are best for this machine.
//!
//! Three things are found out. *From which size on arguments and results are lent* and fetched by
//! the other side, rather than sent within the message: an echo of each size is measured both ways,
//! in turn. *How long to look again before sleeping*: as long as a wake-up takes, so that a side
//! that waits never takes more than twice what it would if it knew what comes. *Which size takes
//! which channel*, over the networks of libfabric and UCX: a bare echo of each size by short
//! packets, by an exclusive channel, and fetched by the receiver. From which size on immediate puts
//! cost more than others only a device that has them can tell.
//!
//! What the file says of other transports than those that are measured stays in it.

mod choice;
mod file;

use crate::{
    channel::{self, Channel},
    cli, client,
    exit::{Code, Failure, Outcome},
    grid::Grid,
    limits::{self, Plan},
    output,
    pair::{Pair, Setting},
    progress::Progress,
    scratch::Scratch,
    waiting::Waiting,
};
use choice::{Choice, Through};
use petasos::{Transport, Tuning, TuningError, wire::Encoding};
use serde::Serialize;
use std::{fs, path::PathBuf, time::Duration};

/// The smallest size that is looked at: shorter messages are sent either way.
const FIRST: usize = 8 << 10;
/// Bytes of a message that are not the user's, at most.
const HEADERS: usize = 256;
/// The smallest message by which channels are compared. The largest is the longest.
const THROUGH: usize = 64;
/// The channels that are compared, the one that the receiver fetches from last.
const CHANNELS: [&str; 3] = [channel::MP, channel::EXCLUSIVE, channel::SHARED];
/// What lends everything, as far as that can be.
const LEND_ALL: usize = 1024;

#[derive(Serialize)]
struct Report {
    spin_us: u64,
    transports: Vec<Found>,
    /// Where it was written, if it was.
    path: Option<PathBuf>,
}

/// What was found out about a transport.
#[derive(Serialize)]
struct Found {
    /// The scheme of the addresses of its endpoints, with the provider.
    transport: &'static str,
    sizes: Vec<Size>,
    /// None if a message is best for all that fits into one.
    lend_above: Option<usize>,
    /// Empty for a transport that has one channel.
    channels: Vec<Through>,
    /// None for such a transport.
    choice: Option<Choice>,
}

/// An echo of one size both ways: medians, in nanoseconds.
#[derive(Clone, Serialize)]
struct Size {
    bytes: usize,
    sent: f64,
    lent: f64,
}

/// Says what is wrong with what is known of this machine, which everything then goes on without.
pub(crate) fn check() {
    if let Err(error) = Tuning::load() {
        output::note(&format!("{error}; going on without\n  try: petasos tune"));
    }
}

pub(crate) fn run(options: &cli::Tune) -> Outcome {
    let transports = client::transports(&options.transport)?;
    let path = match (&options.out, options.dry_run) {
        (_, true) => None,
        (Some(path), _) => Some(path.clone()),
        (None, _) => Some(Tuning::path().ok_or_else(|| {
            let text = "there is no place for settings: neither PETASOS_TUNING nor HOME is set";
            Failure::new(Code::Usage, text).advise("petasos tune --out FILE")
        })?),
    };
    if let Some(path) = &path {
        fs::create_dir_all(file::place_of(path)).map_err(|e| Failure::file("writing", path, &e))?;
        file::look(path)?;
    }
    let scratch = Scratch::new()?;
    let time = Duration::from_millis(if options.quick { 10 } else { 60 });
    let tuner = Tuner {
        plan: Plan { time, ..Plan::default() },
        rounds: if options.quick { 3 } else { 7 },
        quick: options.quick,
        scratch: scratch.path().to_owned(),
        secret: scratch.secret()?,
    };
    let has_channels = |t: &&&Transport| Channel::named(t.scheme, channel::MP).is_some();
    let parts = transports.len() + transports.iter().filter(has_channels).count();
    let progress = Progress::steps((parts * tuner.rounds + 1) as u64);
    progress.step("waking up");
    let spin = tuner.spin()?;
    let mut found = Vec::new();
    for transport in transports {
        let measured = limits::on_client_core(&tuner.plan, || tuner.measure(transport, &progress));
        found.push(measured.map_err(|failure| failure.within(transport.title))?);
    }
    drop(progress);
    let tuning = tuning(spin, &found).map_err(Failure::system("saying what was found out"))?;
    if let Some(path) = &path {
        let schemes: Vec<&str> = found.iter().map(|found| found.transport).collect();
        for dropped in file::write(path, &tuning, &schemes)?.dropped {
            output::note(&format!("{}, {dropped}: it is not in the new file", path.display()));
        }
    }
    let report = Report { spin_us: spin.as_micros() as u64, transports: found, path };
    if options.json.json { output::print_json(&report) } else { show(&report, &tuning) }
}

/// What a file says of it.
fn tuning(spin: Duration, found: &[Found]) -> Result<Tuning, TuningError> {
    let mut tuning = Tuning::default();
    tuning.set("spin_us", spin.as_micros() as u64)?;
    for found in found {
        if let Some(bytes) = found.lend_above {
            tuning.set(&format!("{}.lend_above", found.transport), bytes as u64)?;
        }
        if let Some(thresholds) = found.choice.and_then(|choice| choice.thresholds()) {
            thresholds.tune(&mut tuning, found.transport)?;
        }
    }
    Ok(tuning)
}

struct Tuner {
    plan: Plan,
    rounds: usize,
    quick: bool,
    scratch: PathBuf,
    secret: PathBuf,
}

impl Tuner {
    /// How long a wake-up takes.
    fn spin(&self) -> Outcome<Duration> {
        let mut times = Vec::new();
        for _ in 0..self.rounds {
            times.push(limits::futex_round_trip(&self.plan)?.median / 2.0);
        }
        Ok(Duration::from_micros((limits::median(&mut times) / 1e3).clamp(1.0, 1000.0) as u64))
    }

    fn measure(&self, transport: &'static Transport, progress: &Progress) -> Outcome<Found> {
        let setting = |lend_above| self.setting(transport, None, Some(lend_above));
        let mut rounds: Vec<Vec<Size>> = Vec::new();
        let mut scheme = transport.scheme;
        for round in 0..self.rounds {
            progress.step(format!("{}: round {} of {}", transport.scheme, round + 1, self.rounds));
            // Memory differs from one process to the next.
            let (mut sending, mut lending) =
                (setting(usize::MAX).pair()?, setting(LEND_ALL).pair()?);
            // Of a family of networks, that of the best one.
            scheme = sending.engine.capabilities().scheme;
            let measured = self.sizes(&sending).into_iter().map(|bytes| {
                let sent = self.echo(&mut sending, &lending, bytes)?;
                let lent = self.echo(&mut lending, &sending, bytes)?;
                Ok(Size { bytes, sent, lent })
            });
            rounds.push(measured.collect::<Outcome<_>>()?);
        }
        let sizes: Vec<Size> = (0..rounds[0].len()).map(|at| typical(&rounds, at)).collect();
        let channels = match Channel::named(transport.scheme, channel::MP) {
            Some(_) => self.channels(transport, progress)?,
            None => Vec::new(),
        };
        let choice = (!channels.is_empty()).then(|| Choice::of(&channels));
        let lend_above = lend_above(&sizes);
        Ok(Found { transport: scheme, lend_above, sizes, channels, choice })
    }

    /// The channels over the NIC of this transport.
    fn channels(
        &self,
        transport: &'static Transport,
        progress: &Progress,
    ) -> Outcome<Vec<Through>> {
        let plan = Plan { time: self.plan.time / 2, ..self.plan };
        let (mut rounds, mut bytes): (Vec<Vec<Through>>, Vec<usize>) = Default::default();
        for round in 0..self.rounds {
            let (scheme, rounds_in_all) = (transport.scheme, self.rounds);
            progress.step(format!("{scheme}: channels, round {} of {rounds_in_all}", round + 1));
            let mut times = Vec::new();
            for name in CHANNELS {
                let setting = self.setting(transport, Channel::named(scheme, name), None);
                let (client, _server) = setting.bare()?;
                // It goes before its server does.
                let mut client = client;
                bytes = self.through(client.longest());
                let time = |bytes: &usize| client.echo(&plan, *bytes);
                times.push(bytes.iter().map(time).collect::<Outcome<Vec<f64>>>()?);
            }
            let of = |(at, bytes): (usize, &usize)| {
                let [mp, exclusive, shared] = [0, 1, 2].map(|channel| times[channel][at]);
                Through { bytes: *bytes, mp, exclusive, shared }
            };
            rounds.push(bytes.iter().enumerate().map(of).collect());
        }
        let middle = |at: usize, of: fn(&Through) -> f64| {
            limits::median(&mut rounds.iter().map(|round| of(&round[at])).collect::<Vec<f64>>())
        };
        let typical = |(at, bytes): (usize, &usize)| Through {
            bytes: *bytes,
            mp: middle(at, |through| through.mp),
            exclusive: middle(at, |through| through.exclusive),
            shared: middle(at, |through| through.shared),
        };
        Ok(bytes.iter().enumerate().map(typical).collect())
    }

    /// The sizes by which channels are compared: up to the longest message.
    fn through(&self, longest: usize) -> Vec<usize> {
        let factor = if self.quick { 8 } else { 2 };
        let sizes = std::iter::successors(Some(THROUGH), |bytes| bytes.checked_mul(factor));
        let mut sizes: Vec<usize> = sizes.take_while(|bytes| *bytes < longest).collect();
        sizes.push(longest);
        sizes
    }

    fn setting(
        &self,
        transport: &'static Transport,
        channel: Option<&'static Channel>,
        lend_above: Option<usize>,
    ) -> Setting<'_> {
        Setting {
            transport,
            waiting: Waiting::for_latency(&self.plan),
            plan: &self.plan,
            secret: &self.secret,
            store: None,
            scratch: &self.scratch,
            channel,
            lend_above,
            engines: 1,
        }
    }

    /// All that fit into a message.
    fn sizes(&self, pair: &Pair) -> Vec<usize> {
        let most = pair.engine.capabilities().limits.max_inject.saturating_sub(HEADERS);
        let factor = if self.quick { 4 } else { 2 };
        std::iter::successors(Some(FIRST), |bytes| bytes.checked_mul(factor))
            .take_while(|bytes| *bytes <= most)
            .collect()
    }

    /// The median time of an echo, while the server of the other pair takes no core.
    fn echo(&self, pair: &mut Pair, other: &Pair, bytes: usize) -> Outcome<f64> {
        let echo = || Ok(pair.echo(&self.plan, bytes, Encoding::Native)?.median);
        other.frozen(echo).map_err(|failure| pair.explain(failure))
    }
}

/// The round with the median ratio.
fn typical(rounds: &[Vec<Size>], at: usize) -> Size {
    let mut sizes: Vec<Size> = rounds.iter().map(|round| round[at].clone()).collect();
    sizes.sort_by(|a, b| (a.lent / a.sent).total_cmp(&(b.lent / b.sent)));
    sizes[sizes.len() / 2].clone()
}

/// The size from which on lending is no slower.
fn lend_above(sizes: &[Size]) -> Option<usize> {
    let slower = sizes.iter().rposition(|size| size.lent > size.sent);
    sizes.get(slower.map_or(0, |at| at + 1)).map(|size| size.bytes)
}

fn show(report: &Report, tuning: &Tuning) -> Outcome {
    let mut text = String::new();
    for found in &report.transports {
        let line = |size: &Size| {
            vec![
                output::size(size.bytes as u64),
                output::time(size.sent),
                output::time(size.lent),
                format!("{:.2}", size.lent / size.sent),
            ]
        };
        let grid = Grid {
            caption: format!("An echo over {}: in the message, or lent", found.transport),
            columns: [">bytes each way", ">sent", ">lent", ">ratio"].map(str::to_owned).to_vec(),
            lines: found.sizes.iter().map(line).collect(),
        };
        text += &format!("{}\n{}\n", grid.caption, grid.table());
        text += &match found.lend_above {
            Some(bytes) => format!("lent from {} on\n\n", output::size(bytes as u64)),
            None => "sent, as long as a message holds it\n\n".to_owned(),
        };
        if let Some(choice) = found.choice {
            text += &show_channels(found, choice);
        }
    }
    let spin = report.spin_us;
    text += &format!("spin for {spin} µs before sleeping: so long a wake-up takes\n\n{tuning}");
    if let Some(path) = &report.path {
        text += &format!("\nwritten to {}", path.display());
    }
    output::print(text.trim_end())
}

fn show_channels(found: &Found, choice: Choice) -> String {
    let line = |through: &Through| {
        let times = [through.mp, through.exclusive, through.shared].map(output::time);
        [vec![output::size(through.bytes as u64)], times.to_vec()].concat()
    };
    let grid = Grid {
        caption: format!("A bare echo over {}, by channel", found.transport),
        columns: ["bytes each way", CHANNELS[0], CHANNELS[1], CHANNELS[2]]
            .map(|name| format!(">{name}"))
            .to_vec(),
        lines: found.channels.iter().map(line).collect(),
    };
    let size = |bytes: usize| output::size(bytes as u64);
    let exclusive = match choice.exclusive {
        Some((from, to)) => format!("an exclusive channel from {} to {}", size(from), size(to)),
        None => "never an exclusive channel".to_owned(),
    };
    let mp = size(choice.mp);
    format!("{}\n{}\nshort packets up to {mp}, {exclusive}\n\n", grid.caption, grid.table())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lending_begins_where_it_is_never_slower_again() {
        let sizes = |lent: &[f64]| -> Vec<Size> {
            let size = |(at, lent): (usize, &f64)| Size { bytes: 1 << at, sent: 1.0, lent: *lent };
            lent.iter().enumerate().map(size).collect()
        };
        assert_eq!(lend_above(&sizes(&[2.0, 0.5, 2.0, 1.0, 0.5])), Some(8));
        assert_eq!(lend_above(&sizes(&[0.5, 0.5])), Some(1));
        assert_eq!(lend_above(&sizes(&[0.5, 2.0])), None);
        assert_eq!(lend_above(&[]), None);
    }
}
