//! Mercury's own programs: calls by `hg_rate`, large arguments by `hg_bw_write`, served by
//! `hg_perf_server`.
//!
//! They are built with Mercury if it is asked for (`-DBUILD_TESTING=ON -DBUILD_TESTING_PERF=ON`),
//! and no distribution has them. They tell a mean only, which stands for the median, after a
//! warm-up of their own. With `--bidirectional`, calls carry their bytes both ways, and the
//! programs report half of a call's time; 2.4.1 has no such option, and its answers are empty.
//! Calls under way at a time are begun together, and all awaited before the next ones: that is how
//! `hg_rate` counts. A large argument is pulled by the server, in one piece.

use crate::{
    Error, Session, Setup, Times, Transport, Unavailable, Waiting,
    program::{Arguments, Place, Program, Sides},
};
use std::{cell::Cell, time::Duration};

pub(crate) const NAME: &str = RATE.name;
pub(crate) const SMALLEST: usize = 8;
pub(crate) const HOW: &str = "the programs of Mercury, with its calls; the mean in place of the median; calls \
                              in flight begin together; a large argument is pulled";

const INSTALL: &str =
    "build Mercury with -DBUILD_TESTING=ON -DBUILD_TESTING_PERF=ON, and put its bin into PATH";
const RATE: Program = Program { name: "hg_rate", install: INSTALL };
const WRITE: Program = Program { name: "hg_bw_write", install: INSTALL };
const SERVER: Program = Program { name: "hg_perf_server", install: INSTALL };

pub(crate) fn version() -> Result<String, Unavailable> {
    // A call to itself: the program tells its version before it begins.
    let said = RATE.says(&["-c", "na", "-p", "sm", "-b", "-S", "-l", "1", "-y", "8", "-z", "8"])?;
    version_in(&said)
        .ok_or_else(|| Unavailable("hg_rate does not tell Mercury's version".to_owned()))
}

fn version_in(said: &str) -> Option<String> {
    let after = said.lines().find_map(|line| line.strip_prefix("# RPC rate v"))?;
    Some(after.trim().to_owned())
}

pub(crate) fn open(
    setup: &Setup,
    transport: Transport,
    waiting: Waiting,
) -> Result<Box<dyn Session>, Unavailable> {
    let over =
        if transport == Transport::Tcp { "-c ofi -p tcp -H 127.0.0.1" } else { "-c na -p sm" };
    let busy = if waiting == Waiting::Spinning { " -b" } else { "" };
    let both_ways = RATE.says(&["-h"])?.contains("--bidirectional");
    let sides = |client| Sides::new(client, setup, &[])?.with_server(&SERVER);
    Ok(Box::new(Mercury {
        calls: sides(&RATE)?,
        arguments: sides(&WRITE)?,
        common: format!("{over}{busy}"),
        both_ways,
    }))
}

struct Mercury {
    calls: Sides,
    arguments: Sides,
    common: String,
    /// Whether answers can carry bytes.
    both_ways: bool,
}

/// Arguments for this place, with these options for both sides and those for the client.
fn arguments(place: &Place, common: &str, client: &str) -> Arguments {
    let words = |options: String| -> Vec<String> {
        let mut words: Vec<_> = options.split_whitespace().map(str::to_owned).collect();
        // Its path may have spaces in it.
        words.extend(["-f".to_owned(), place.file.display().to_string()]);
        words
    };
    Arguments { server: words(common.to_owned()), client: words(format!("{common} {client}")) }
}

impl Mercury {
    /// Calls of this size, so many at a time: calls per second, and how many there were.
    fn calls(
        &mut self,
        bytes: usize,
        in_flight: usize,
        both_ways: bool,
        time: Duration,
    ) -> Result<(f64, u64), Error> {
        // A name for each, by which the usual time of a round is kept.
        let what = match (both_ways, in_flight) {
            (true, _) => "echo",
            (false, 1) => "1",
            (false, 16) => "16",
            (false, _) => "many",
        };
        let direction = if both_ways { " --bidirectional" } else { "" };
        let common = format!("{}{direction}", self.common);
        let rounds = Cell::new(0);
        let arguments = |place: &Place, iterations: u64| {
            rounds.set(iterations);
            let client = format!("-x {in_flight} -l {iterations} -y {bytes} -z {bytes}");
            arguments(place, &common, &client)
        };
        // Of a call both ways the programs count two.
        let ways = if both_ways { 2.0 } else { 1.0 };
        let seconds = |line: &Line| in_flight as f64 * ways / line.last;
        let line = self.calls.measure((what, bytes), time, arguments, parse, seconds)?;
        Ok((line.last / ways, rounds.get() * in_flight as u64))
    }
}

impl Session for Mercury {
    fn echo(&mut self, bytes: usize, time: Duration) -> Result<Times, Error> {
        let (rate, samples) = self.calls(bytes.max(SMALLEST), 1, self.both_ways, time)?;
        Ok(Times { median: 1e9 / rate, p99: None, p99_9: None, samples })
    }

    fn rate(&mut self, bytes: usize, in_flight: usize, time: Duration) -> Result<f64, Error> {
        Ok(self.calls(bytes.max(SMALLEST), in_flight, false, time)?.0)
    }

    fn stream(&mut self, bytes: usize, time: Duration) -> Result<f64, Error> {
        let common = self.common.clone();
        let arguments = |place: &Place, iterations: u64| {
            let client = format!("-w 1 -l {iterations} -y {bytes} -z {bytes}");
            arguments(place, &common, &client)
        };
        // The last number is microseconds.
        let line =
            self.arguments
                .measure(("write", bytes), time, arguments, parse, |line: &Line| line.last / 1e6)?;
        Ok(line.first * f64::from(1 << 20) / 1e9)
    }
}

/// The line of numbers, after the size: of calls the microseconds of one and how many in a second,
/// of arguments MiB/s and the microseconds of one.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    first: f64,
    last: f64,
}

fn parse(output: &str) -> Option<Line> {
    let line = output.lines().rev().find(|line| !line.trim().is_empty())?;
    let words: Vec<_> = line.split_whitespace().collect();
    let [_size, first, last] = words[..] else { return None };
    let line = Line { first: first.parse().ok()?, last: last.parse().ok()? };
    let sound = |value: f64| value.is_finite() && value > 0.0;
    (sound(line.first) && sound(line.last)).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Mercury 2.4.0 printed it.
    const CALLS: &str = "\
# Initializing NA in busy wait mode
# RPC rate v2.4.0
# 1 client process(es)
# Loop 100000 times from size 64 to 64 byte(s) with 1 handle(s) in-flight
# Size               Avg time (us)        Avg rate (RPC/s)
64                            0.31                 3249512
";
    const ARGUMENTS: &str = "\
# Write BW (server bulk pull) v2.4.0
# Size           Bandwidth (MiB/s)               Time (us)
1048576                   10522.60                   95.03
";

    #[test]
    fn captured_outputs() {
        assert_eq!(parse(CALLS), Some(Line { first: 0.31, last: 3_249_512.0 }));
        assert_eq!(parse(ARGUMENTS), Some(Line { first: 10_522.6, last: 95.03 }));
        assert_eq!(version_in(CALLS).unwrap(), "2.4.0");
    }

    #[test]
    fn what_is_no_result() {
        let heading = CALLS.lines().nth(4).unwrap();
        let refused = "# [error] HG_Forward() failed (HG_NOENTRY)\n";
        for output in ["", refused, heading, &CALLS.replace("0.31", "nan"), "64 0.00 0\n"] {
            assert_eq!(parse(output), None, "{output}");
        }
        assert_eq!(version_in(ARGUMENTS), None);
    }
}
