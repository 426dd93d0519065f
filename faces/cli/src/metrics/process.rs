//! What the kernel counts of this process, under the names that other exporters use.

use super::Text;
use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

/// Adds what `/proc` says. What it does not say is left out.
pub(super) fn write(text: &mut Text) {
    let version = [(env!("CARGO_PKG_VERSION"), 1)];
    text.gauges("petasos_build_info", "The version of this server.", &version, "version");
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    if let Some(found) = Stat::parse(&stat) {
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let seconds = found.ticks as f64 / ticks;
        text.fraction("process_cpu_seconds_total", "Time on a core, in seconds.", seconds);
        let resident = found.pages.saturating_mul(rustix::param::page_size() as u64);
        text.gauge("process_resident_memory_bytes", "Memory in use, in bytes.", resident);
        if let Some(start) = started(found.start as f64 / ticks) {
            let help = "When it began, in seconds since 1970.";
            text.gauge("process_start_time_seconds", help, start);
        }
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        // One of them is that of this very look.
        let open = open.count().saturating_sub(1);
        text.gauge("process_open_fds", "Descriptors in use.", open);
    }
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    if let Some(most) = most {
        text.gauge("process_max_fds", "The most descriptors.", most);
    }
}

/// Seconds since 1970 of a time after the machine's start.
fn started(after_boot: f64) -> Option<f64> {
    let uptime = fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?.as_secs_f64();
    Some((now - uptime + after_boot).round())
}

/// Of `/proc/self/stat`.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    /// Ticks on a core, in the process and in the kernel for it.
    ticks: u64,
    /// Ticks after the machine's start.
    start: u64,
    pages: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Stat> {
        // The name before it may have anything in it.
        let (_, rest) = text.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // Counted from the third field of proc(5).
        let of = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat { ticks: of(14)? + of(15)?, start: of(22)?, pages: of(24)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_the_kernel() {
        let text = "7 (a) b) S 1 7 7 0 -1 4194560 100 0 0 0 30 12 0 0 20 0 1 0 555 9000 321 18446";
        assert_eq!(Stat::parse(text), Some(Stat { ticks: 42, start: 555, pages: 321 }));
        assert_eq!(Stat::parse("nonsense"), None);
    }

    #[test]
    fn of_this_process() {
        let mut text = Text::default();
        write(&mut text);
        let text = text.into_string();
        for name in ["cpu_seconds_total", "resident_memory_bytes", "start_time_seconds", "open_fds"]
        {
            assert!(text.contains(&format!("\nprocess_{name} ")), "{name}: {text}");
        }
    }
}
