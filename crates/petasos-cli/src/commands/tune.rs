//! `petasos tune`: which settings are best for this machine.
//!
//! Two things are found out. *From which size on arguments and results are lent* and fetched by the
//! other side, rather than sent within the message: an echo of each size is measured both ways, in
//! turn. *How long to look again before sleeping*: as long as a wake-up takes, so that whoever waits
//! never takes more than twice what he would if he knew what comes.

use crate::{
    cli, client,
    exit::{Code, Failure, Outcome},
    figures::{self, Pair, Setting},
    grid::Grid,
    limits::{self, Plan},
    output,
    progress::Progress,
    scratch::Scratch,
};
use petasos::{Transport, Tuning, wire::Encoding};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// The smallest size that is looked at: shorter messages are sent by anybody.
const FIRST: usize = 8 << 10;
/// Bytes of a message that are not the user's, at most.
const HEADERS: usize = 256;
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
    transport: &'static str,
    sizes: Vec<Size>,
    /// None if a message is best for all that fits into one.
    lend_above: Option<usize>,
}

/// An echo of one size both ways: medians, in nanoseconds.
#[derive(Clone, Serialize)]
struct Size {
    bytes: usize,
    sent: f64,
    lent: f64,
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
        fs::create_dir_all(place_of(path)).map_err(|e| Failure::file("writing", path, &e))?;
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
    let progress = Progress::steps((transports.len() * tuner.rounds + 1) as u64);
    progress.step("waking up");
    let spin = tuner.spin()?;
    let mut found = Vec::new();
    for transport in transports {
        let measured = figures::on_client_core(&tuner.plan, || tuner.measure(transport, &progress));
        found.push(measured.map_err(|failure| failure.within(transport.title))?);
    }
    drop(progress);
    let mut tuning = Tuning::default();
    tuning.spin = Some(spin);
    let lend = |found: &Found| Some((found.transport.to_owned(), found.lend_above?));
    tuning.lend_above = found.iter().filter_map(lend).collect();
    if let Some(path) = &path {
        write(path, &tuning)?;
    }
    let report = Report { spin_us: spin.as_micros() as u64, transports: found, path };
    if options.json.json { output::print_json(&report) } else { show(&report, &tuning) }
}

fn place_of(path: &Path) -> &Path {
    let place = path.parent().filter(|place| !place.as_os_str().is_empty());
    place.unwrap_or(Path::new("."))
}

/// All of it, or what was there before.
fn write(path: &Path, tuning: &Tuning) -> Outcome {
    let failed = |error| Failure::file("writing", path, &error);
    let mut file = tempfile::NamedTempFile::new_in(place_of(path)).map_err(failed)?;
    let text = format!("# Written by `petasos tune`: what is best for this machine.\n{tuning}");
    std::io::Write::write_all(&mut file, text.as_bytes()).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
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
        let setting = |lend_above| Setting {
            transport,
            waiting: figures::spinning(&self.plan),
            plan: &self.plan,
            secret: &self.secret,
            store: None,
            scratch: &self.scratch,
            channel: None,
            lend_above: Some(lend_above),
            engines: 1,
        };
        let mut rounds: Vec<Vec<Size>> = Vec::new();
        for round in 0..self.rounds {
            progress.step(format!("{}: round {} of {}", transport.scheme, round + 1, self.rounds));
            // Memory differs from one process to the next.
            let (mut sending, mut lending) =
                (setting(usize::MAX).pair()?, setting(LEND_ALL).pair()?);
            let measured = self.sizes(&sending).into_iter().map(|bytes| {
                let sent = self.echo(&mut sending, &lending, bytes)?;
                let lent = self.echo(&mut lending, &sending, bytes)?;
                Ok(Size { bytes, sent, lent })
            });
            rounds.push(measured.collect::<Outcome<_>>()?);
        }
        let sizes: Vec<Size> = (0..rounds[0].len()).map(|at| typical(&rounds, at)).collect();
        Ok(Found { transport: transport.scheme, lend_above: lend_above(&sizes), sizes })
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
    }
    let spin = report.spin_us;
    text += &format!("spin for {spin} µs before sleeping: so long a wake-up takes\n\n{tuning}");
    if let Some(path) = &report.path {
        text += &format!("\nwritten to {}", path.display());
    }
    output::print(text.trim_end())
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
