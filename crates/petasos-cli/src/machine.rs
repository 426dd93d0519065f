//! What a run was measured on, and when.

use crate::{limits::Cores, output};
use serde::Serialize;
use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

/// The facts that belong to figures.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_bytes: u64,
    pub(crate) kernel: String,
    pub(crate) client_core: Option<usize>,
    pub(crate) server_core: Option<usize>,
    /// UTC, as in ISO 8601.
    pub(crate) date: String,
    /// Of this command.
    pub(crate) version: &'static str,
    pub(crate) build: &'static str,
}

impl Machine {
    pub(crate) fn look(cores: Cores) -> Machine {
        let system = rustix::system::uname();
        let words = [system.sysname(), system.release(), system.machine()];
        let kernel = words.map(|word| word.to_string_lossy().into_owned()).join(" ");
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |past| past.as_secs());
        Machine {
            processor: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory("MemTotal").unwrap_or(0),
            kernel,
            client_core: cores.client,
            server_core: cores.server,
            date: iso(now),
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug: times mean little" } else { "release" },
        }
    }

    /// The facts, with what they are.
    pub(crate) fn facts(&self) -> Vec<(&'static str, String)> {
        let core = |core: Option<usize>| core.map_or("any".to_owned(), |core| core.to_string());
        let pinned =
            format!("client {}, server {}", core(self.client_core), core(self.server_core));
        vec![
            ("Processor", self.processor.clone()),
            ("Cores", self.cores.to_string()),
            ("Pinned to cores", pinned),
            ("Memory", output::size(self.memory_bytes >> 20 << 20)),
            ("Kernel", self.kernel.clone()),
            ("Petasos", format!("{} ({})", self.version, self.build)),
            ("Date", self.date.clone()),
        ]
    }
}

/// Memory of the machine of one kind, in bytes: `MemTotal`, `MemAvailable`.
pub(crate) fn memory(kind: &str) -> Option<u64> {
    let value = field("/proc/meminfo", kind)?;
    Some(value.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// What a line `NAME: VALUE` of a file says.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value = |line: &str| {
        let (found, value) = line.split_once(':')?;
        (found.trim() == name).then(|| value.trim().to_owned())
    };
    text.lines().find_map(value)
}

/// Seconds since 1970 as a date and a time of day.
fn iso(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Eras of 400 years that begin with March, so that the odd day is the last one of a year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second % 3600 / 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(iso(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(iso(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(iso(1_795_258_767), "2026-11-21 10:59:27 UTC");
    }

    #[test]
    fn what_is_here() {
        let machine = Machine::look(Cores::pick());
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(memory("MemAvailable").unwrap() <= machine.memory_bytes);
    }
}
