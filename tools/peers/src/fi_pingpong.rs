//! `fi_pingpong`: tagged messages of libfabric to and fro, both sides spinning; no calls.
//!
//! It tells a mean only, without a warm-up: there are no percentiles, and the mean stands for the
//! median. Over TCP the first message takes some 40 ms, as much as thousands of others. So each
//! measurement is two runs, a short one and a long one, and what counts is what the long one took
//! beyond the short one. It makes no more than one message at a time.

use crate::{
    Error, Session, Setup, Times, Transport, Unavailable, Waiting,
    program::{Arguments, Place, Program, Sides},
};
use std::{collections::HashMap, time::Duration};

pub(crate) const NAME: &str = PROGRAM.name;
pub(crate) const SMALLEST: usize = 0;
pub(crate) const HOW: &str = "the program, with reliable datagrams and tagged messages of libfabric; no \
                              calls, and the mean in place of the median";

const PROGRAM: Program = Program { name: "fi_pingpong", install: "apt-get install libfabric-bin" };

pub(crate) fn version() -> Result<String, Unavailable> {
    PROGRAM.find()?;
    // Of the same package; the program itself does not tell.
    let info = Program { name: "fi_info", ..PROGRAM };
    let said = info.says(&["--version"])?;
    let version = said.lines().find_map(|line| line.strip_prefix("libfabric: "));
    version.map(|version| version.trim().to_owned()).ok_or_else(|| {
        Unavailable("fi_info --version does not tell libfabric's version".to_owned())
    })
}

pub(crate) fn open(
    setup: &Setup,
    transport: Transport,
    _: Waiting,
) -> Result<Box<dyn Session>, Unavailable> {
    let provider = if transport == Transport::Tcp { "tcp" } else { "shm" };
    let sides = Sides::new(&PROGRAM, setup, &[])?;
    Ok(Box::new(Pingpong { sides, provider, usual: HashMap::new() }))
}

/// Iterations of the short run.
const SHORT: u64 = 50;

struct Pingpong {
    sides: Sides,
    provider: &'static str,
    /// Microseconds of a message one way, by size.
    usual: HashMap<usize, f64>,
}

impl Pingpong {
    /// Microseconds of a message one way.
    fn one_way(&mut self, bytes: usize, time: Duration) -> Result<Line, Error> {
        let provider = self.provider;
        let arguments = |place: &Place, iterations: u64| {
            let common = format!("-p {provider} -e rdm -m tagged -S {bytes} -I {iterations}");
            let words = |side: String| -> Vec<String> {
                side.split_whitespace()
                    .chain(common.split_whitespace())
                    .map(str::to_owned)
                    .collect()
            };
            let mut client = words(format!("-P {}", place.port));
            client.push("127.0.0.1".to_owned());
            Arguments { server: words(format!("-B {}", place.port)), client }
        };
        let sides = &self.sides;
        let run = |messages| sides.run_once(time, |place| arguments(place, messages), parse);
        let short = run(SHORT)?;
        let usual = match self.usual.get(&bytes) {
            Some(usual) => *usual,
            None => run(10 * SHORT)?.beyond(10 * SHORT, &short),
        };
        // An iteration is two messages.
        let most = (time.as_secs_f64() / (2e-6 * usual)).clamp(10.0 * SHORT as f64, 1e8) as u64;
        let long = run(most)?;
        let one_way = long.beyond(most, &short);
        self.usual.insert(bytes, one_way);
        Ok(Line { one_way, ..long })
    }
}

impl Session for Pingpong {
    fn echo(&mut self, bytes: usize, time: Duration) -> Result<Times, Error> {
        let line = self.one_way(bytes, time)?;
        let median = 2e3 * line.one_way;
        Ok(Times { median, p99: None, p99_9: None, samples: line.sent })
    }

    fn rate(&mut self, _: usize, in_flight: usize, _: Duration) -> Result<f64, Error> {
        let what = if in_flight == 1 { "rate of calls" } else { "more than one message in flight" };
        Err(Error::Unsupported { peer: NAME, what })
    }

    fn stream(&mut self, bytes: usize, time: Duration) -> Result<f64, Error> {
        let line = self.one_way(bytes, time)?;
        Ok(bytes as f64 / (1e3 * line.one_way))
    }
}

/// What the program says of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Line {
    /// Messages each way, rounded to two digits or so by the program.
    sent: u64,
    /// Microseconds of a message one way.
    one_way: f64,
}

impl Line {
    /// Microseconds of a message one way in a run of so many iterations, without what `short` took;
    /// with it, if that gives nothing.
    fn beyond(&self, iterations: u64, short: &Line) -> f64 {
        let total = iterations as f64 * self.one_way - SHORT as f64 * short.one_way;
        let beyond = total / (iterations - SHORT) as f64;
        if beyond > 0.0 { beyond } else { self.one_way }
    }
}

/// Reads the line below the heading.
fn parse(output: &str) -> Option<Line> {
    let mut lines = output.lines().skip_while(|line| !line.starts_with("bytes"));
    let headings: Vec<_> = lines.next()?.split_whitespace().collect();
    let values: Vec<_> = lines.next()?.split_whitespace().collect();
    let of = |heading: &str| {
        let at = headings.iter().position(|found| *found == heading)?;
        values.get(at).copied()
    };
    let (bytes, sent) = (number(of("bytes")?)?, number(of("#sent")?)?);
    let (time, rate): (f64, f64) = (of("usec/xfer")?.parse().ok()?, of("MB/sec")?.parse().ok()?);
    // The time has two digits after the point, a tenth of them in the shortest ones; and so the
    // rate is better, as long as sizes are not rounded: `64k` is 65536, but so is 65600.
    let exact = bytes > 0.0 && bytes < 1000.0 && rate > 1.0;
    let one_way = if exact { bytes / rate } else { time };
    (one_way > 0.0).then_some(Line { sent: sent as u64, one_way })
}

/// Reads `64`, `64k`, `2.4m` or `12g`.
fn number(text: &str) -> Option<f64> {
    let digits = text.trim_end_matches(['k', 'm', 'g']);
    let unit = match &text[digits.len()..] {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        _ => return None,
    };
    Some(digits.parse::<f64>().ok()? * unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As libfabric 1.17.0 printed it.
    const SMALL: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      20k     =20k     2.4m        0.01s    243.28       0.26       3.80
";
    const EMPTY: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
0       1k      =1k      0           0.00s      0.00       0.54       1.84
";
    const LARGE: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
16m     100     =100     3.1g        0.41s   8181.67    2050.58       0.00
";

    #[test]
    fn captured_outputs() {
        let small = parse(SMALL).unwrap();
        assert_eq!(small.sent, 20_000);
        assert!((small.one_way - 0.263).abs() < 0.001, "{small:?}");
        assert_eq!(parse(EMPTY), Some(Line { sent: 1000, one_way: 0.54 }));
        assert_eq!(parse(LARGE), Some(Line { sent: 100, one_way: 2050.58 }));
    }

    #[test]
    fn what_the_first_message_takes_does_not_count() {
        let line = |one_way| Line { sent: 0, one_way };
        // 20 ms to begin, and 5 microseconds each.
        let (short, long) = (line(405.0), line(25.0));
        assert_eq!(long.beyond(1000, &short), 5.0);
        assert_eq!(line(1.0).beyond(1000, &short), 1.0);
    }

    #[test]
    fn what_is_no_result() {
        let error = "[error] util/pingpong.c:408 : failed to connect: Connection refused\n";
        let heading = SMALL.lines().next().unwrap();
        for output in ["", error, heading, "bytes\n64\n", &SMALL.replace("0.26", "soon")] {
            assert_eq!(parse(output), None, "{output}");
        }
        for text in ["", "k", "1t", "é", "4kk"] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
