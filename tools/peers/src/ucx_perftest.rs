//! `ucx_perftest`: tagged messages of UCX to and fro, without calls, spinning or asleep.
//!
//! Its rates are of messages that go one way without an answer, which no calls can be compared
//! with: they are left out. It tells one percentile in a run, so a measurement is two runs. Where
//! it is to sleep it does so only when nothing has come by then, which between two busy cores may
//! be seldom: its median may be that of spinning.

use crate::{
    Error, Session, Setup, Times, Transport, Unavailable, Waiting,
    program::{Arguments, Place, Program, Sides},
};
use std::time::Duration;

pub(crate) const NAME: &str = PROGRAM.name;
pub(crate) const SMALLEST: usize = 8;
pub(crate) const HOW: &str = "the program, with tagged messages of UCX; no calls; of single messages, \
                              the median and the 99th percentile";

const PROGRAM: Program = Program { name: "ucx_perftest", install: "apt-get install ucx-utils" };

pub(crate) fn version() -> Result<String, Unavailable> {
    PROGRAM.find()?;
    // Of the same package; the program itself does not tell.
    let said = Program { name: "ucx_info", ..PROGRAM }.says(&["-v"])?;
    version_in(&said)
        .ok_or_else(|| Unavailable("ucx_info -v does not tell UCX's version".to_owned()))
}

/// Both `# Version 1.13.1` and `# Library version: 1.18.0` are there.
fn version_in(said: &str) -> Option<String> {
    let number = |line: &str| {
        let after = line.strip_prefix("# ")?.to_lowercase();
        let after = after.trim_start_matches("library ").strip_prefix("version")?.to_owned();
        Some(after.trim_start_matches([':', ' ']).trim().to_owned())
    };
    said.lines().find_map(number)
}

pub(crate) fn open(
    setup: &Setup,
    transport: Transport,
    waiting: Waiting,
) -> Result<Box<dyn Session>, Unavailable> {
    let transports = if transport == Transport::Tcp { "tcp" } else { "sm" };
    let variables = [("UCX_TLS", transports), ("UCX_LOG_LEVEL", "error")];
    Ok(Box::new(Perftest { sides: Sides::new(&PROGRAM, setup, &variables)?, waiting }))
}

struct Perftest {
    sides: Sides,
    waiting: Waiting,
}

impl Perftest {
    fn run(
        &mut self,
        what: &'static str,
        bytes: usize,
        options: &str,
        time: Duration,
    ) -> Result<Line, Error> {
        let wait = if self.waiting == Waiting::Sleeping { "sleep" } else { "poll" };
        let arguments = |place: &Place, iterations: u64| {
            let (port, warm) = (place.port, iterations / 10);
            let common = format!(
                "-f -v -p {port} -E {wait} -t {what} -s {bytes} -n {iterations} -w {warm} {options}"
            );
            let words: Vec<String> = common.split_whitespace().map(str::to_owned).collect();
            let client = [vec!["127.0.0.1".to_owned()], words.clone()].concat();
            Arguments { server: words, client }
        };
        // Messages to and fro are one iteration, and each is half of its time.
        let messages = if what == LATENCY { 2.0 } else { 1.0 };
        self.sides.measure((what, bytes), time, arguments, parse, |line| messages / line.rate)
    }
}

const LATENCY: &str = "tag_lat";
const BANDWIDTH: &str = "tag_bw";

impl Session for Perftest {
    fn echo(&mut self, bytes: usize, time: Duration) -> Result<Times, Error> {
        let bytes = bytes.max(SMALLEST);
        let median = self.run(LATENCY, bytes, "-R 50", time / 2)?;
        let p99 = self.run(LATENCY, bytes, "-R 99", time / 2)?;
        let there_and_back = |line: &Line| 2e3 * line.percentile;
        Ok(Times {
            median: there_and_back(&median),
            p99: Some(there_and_back(&p99)),
            p99_9: None,
            samples: p99.iterations,
        })
    }

    fn rate(&mut self, _: usize, _: usize, _: Duration) -> Result<f64, Error> {
        Err(Error::Unsupported { peer: NAME, what: "rate of calls" })
    }

    fn stream(&mut self, bytes: usize, time: Duration) -> Result<f64, Error> {
        let bytes = bytes.max(SMALLEST);
        let line = self.run(BANDWIDTH, bytes, "-O 1", time)?;
        Ok(line.rate * bytes as f64 / 1e9)
    }
}

/// The last line of numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    iterations: u64,
    /// Microseconds of a message one way, at the percentile that was asked for.
    percentile: f64,
    /// Messages one way in a second.
    rate: f64,
}

fn parse(output: &str) -> Option<Line> {
    let mut lines = output.lines().skip_while(|line| !line.starts_with("iterations,"));
    let headings: Vec<_> = lines.next()?.split(',').collect();
    let values: Vec<_> = lines.last()?.split(',').collect();
    let of = |wanted: &dyn Fn(&str) -> bool| {
        let at = headings.iter().position(|heading| wanted(heading))?;
        values.get(at)?.trim().parse::<f64>().ok()
    };
    let line = Line {
        iterations: of(&|heading| heading == "iterations")? as u64,
        percentile: of(&|heading| heading.ends_with("percentile_lat"))?,
        rate: of(&|heading| heading == "overall_mr")?,
    };
    (line.percentile > 0.0 && line.rate > 0.0).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As UCX 1.13.1 printed it.
    const LATENCIES: &str = "\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
100000,0.095,0.102,0.102,599.91,599.91,9828941,9828941
";
    const BANDWIDTHS: &str = "\
iterations,50.0_percentile_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr
1000,73.041,75.613,75.613,13225.24,13225.24,13225,13225
";

    #[test]
    fn captured_outputs() {
        let line = Line { iterations: 100_000, percentile: 0.095, rate: 9_828_941.0 };
        assert_eq!(parse(LATENCIES), Some(line));
        assert_eq!(parse(BANDWIDTHS).unwrap().rate, 13_225.0);
        // A long run prints a line each second, and the whole at the end.
        let long = LATENCIES.replace("100000,", "50000,9,9,9,9,9,9,9\n100000,");
        assert_eq!(parse(&long), Some(line));
    }

    #[test]
    fn what_is_no_result() {
        let heading = LATENCIES.lines().next().unwrap();
        let refused = "[1795258767.02] [vm:26638:0] perftest.c:405 UCX ERROR client failed.\n";
        for output in ["", refused, heading, &LATENCIES.replace("0.095", "nan"), "iterations,\n1\n"]
        {
            assert_eq!(parse(output), None, "{output}");
        }
    }

    #[test]
    fn versions() {
        let old = "# Version 1.13.1\n# Git branch '<unknown>', revision 0000000\n";
        assert_eq!(version_in(old).unwrap(), "1.13.1");
        assert_eq!(version_in("# Library version: 1.18.0\n").unwrap(), "1.18.0");
        assert_eq!(version_in("nothing\n"), None);
    }
}
