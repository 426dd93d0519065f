//! What goes to standard output: tables for people, JSON for programs.

use crate::{
    exit::{Code, Failure, Outcome, as_json},
    table::Table,
};
use serde::Serialize;
use std::io::{self, Write};

/// Prints a text with a line end. That the reader has gone is no failure of the work.
pub fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    written(writeln!(out, "{text}").and_then(|()| out.flush()))
}

/// What came of writing to standard output.
pub fn written(result: io::Result<()>) -> Outcome {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Code::Failed, format!("writing to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A text of others on one line, without what a terminal would obey: control characters, those that
/// turn the direction of writing, and other ends of lines are written as escapes.
pub fn plain(text: &str) -> String {
    let turning = ['\u{200e}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];
    let turns = |c: char| turning.iter().any(|range| range.contains(&c));
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() || turns(c) {
            true => shown.extend(c.escape_default()),
            false => shown.push(c),
        }
    }
    shown
}

/// Says a line on standard error. If that cannot be written there is nothing more to be done: the
/// exit code says it.
pub fn tell(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Says on standard error what is to be known beside the result: under `--json` as a line of JSON,
/// `{"notice": …}`.
pub fn note(text: &str) {
    match as_json() {
        true => tell(&serde_json::json!({ "notice": text }).to_string()),
        false => tell(&format!("petasos: {text}")),
    }
}

/// Prints a value as JSON, over several lines.
pub fn print_json(value: &impl Serialize) -> Outcome {
    print(&serde_json::to_string_pretty(value).map_err(Failure::system("writing JSON"))?)
}

/// Prints a value as one line of JSON.
pub fn print_json_line(value: &impl Serialize) -> Outcome {
    print(&serde_json::to_string(value).map_err(Failure::system("writing JSON"))?)
}

/// Says where a server's metrics are.
pub fn print_metrics(url: &str, json: bool) -> Outcome {
    match json {
        true => print_json_line(&serde_json::json!({ "metrics": url })),
        false => print(&format!("metrics at {url}")),
    }
}

/// A table with these columns; those whose heading begins with `>` are numbers, to the right.
pub fn table(columns: &[&str]) -> Table {
    Table::new(columns)
}

/// A time given in nanoseconds, with three digits that mean something.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{} µs", three(ns / 1e3)),
        ns if ns < 1e9 => format!("{} ms", three(ns / 1e6)),
        ns => format!("{} s", three(ns / 1e9)),
    }
}

/// A bandwidth given in bytes per nanosecond.
pub fn bandwidth(gb_per_s: f64) -> String {
    if gb_per_s < 1.0 {
        format!("{} MB/s", three(gb_per_s * 1e3))
    } else {
        format!("{} GB/s", three(gb_per_s))
    }
}

/// So many a second.
pub fn rate(per_second: f64) -> String {
    match per_second {
        rate if rate >= 1e6 => format!("{} M/s", three(rate / 1e6)),
        rate if rate >= 1e3 => format!("{} k/s", three(rate / 1e3)),
        rate => format!("{rate:.0} /s"),
    }
}

/// A number of bytes, in powers of 1024.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let (mut value, mut unit) = (bytes as f64 / 1024.0, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value.fract() == 0.0 {
        format!("{value} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

/// `1 file`, `2 files`.
pub fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn three(value: f64) -> String {
    match value {
        v if v < 10.0 => format!("{v:.2}"),
        v if v < 100.0 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// Reads a size, such as `4096`, `64KiB`, `256MiB`, `1.5GiB` or `2GB`.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let wrong = || format!("`{text}` is no size: write it as 4096, 64KiB or 1.5GiB");
    if number.is_empty() {
        return Err(wrong());
    }
    let unit: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        other => return Err(format!("`{other}` is no unit: write B, KiB, MiB, GiB or TiB")),
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit).ok_or_else(|| format!("{text} is too large"));
    }
    let value = number.parse::<f64>().map_err(|_| wrong())? * unit as f64;
    if value < 1e18 { Ok(value as u64) } else { Err(format!("{text} is too large")) }
}

/// Reads the bytes that may go a second, as a size.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        size if size < 1 << 10 => Err("at least 1KiB".to_owned()),
        size => Ok(size),
    }
}

/// Reads the time of one measurement, as [`parse_time`] does: 1 ms to 60 s.
///
/// # Errors
///
/// What is wrong with the text.
pub fn parse_measurement(text: &str) -> Result<std::time::Duration, String> {
    use std::time::Duration;
    match parse_time(text)? {
        time if time < Duration::from_millis(1) => Err("at least 1ms".to_owned()),
        time if time > Duration::from_secs(60) => Err("at most 60s".to_owned()),
        time => Ok(time),
    }
}

/// Reads a time, such as `500ms`, `2s`, `1.5s` or `2` (seconds).
pub fn parse_time(text: &str) -> Result<std::time::Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let wrong = || format!("`{text}` is no time: write it as 500ms, 2s, 1m or 8h");
    let unit = match unit.trim() {
        "" | "s" => 1.0,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(wrong()),
    };
    let seconds = number.parse::<f64>().map_err(|_| wrong())? * unit;
    std::time::Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(plain("a word, as it is: ü \\"), "a word, as it is: ü \\");
        assert_eq!(plain("a\nb\r\tc"), "a\\nb\\r\\tc");
        assert_eq!(plain("\x1b[2J\u{9b}\u{202e}"), "\\u{1b}[2J\\u{9b}\\u{202e}");
    }
    use std::time::Duration;

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64KiB", 65_536), ("1.5GiB", 3 << 29)] {
            assert_eq!(parse_size(text).unwrap(), bytes);
        }
        for bad in ["", "x", "-1", "1.2.3MiB", "5 parsecs", "99999999999TiB", "1e9"] {
            assert!(parse_size(bad).is_err(), "{bad:?} was taken");
        }
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(256 << 20), "256 MiB");
        assert_eq!(size(3 << 29), "1.5 GiB");
    }

    #[test]
    fn times() {
        assert_eq!(parse_time("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_time("2").unwrap(), Duration::from_secs(2));
        assert!(
            parse_time("soon").is_err() && parse_time("").is_err() && parse_time("-1s").is_err()
        );
        assert_eq!(time(601.4), "601 ns");
        assert_eq!(time(12_345.0), "12.3 µs");
        assert_eq!(bandwidth(0.05), "50.0 MB/s");
        assert_eq!(rate(1_234_567.0), "1.23 M/s");
    }
}
