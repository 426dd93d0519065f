//! What a run was measured on, and when.

use crate::{limits::Cores, output};
use serde::Serialize;
use std::{
    fs,
    sync::OnceLock,
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The facts that belong to figures.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
    pub client_core: Option<usize>,
    pub server_core: Option<usize>,
    /// The part of the cores' time that others took before this run began, if it was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use_before: Option<f64>,
    /// UTC, as in ISO 8601.
    pub date: String,
    /// Of this command.
    pub version: &'static str,
    pub build: &'static str,
}

impl Machine {
    pub fn detect(cores: Cores) -> Machine {
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
            in_use_before: IN_USE.get().copied().flatten(),
            date: iso(now),
            version: env!("CARGO_PKG_VERSION"),
            build: if cfg!(debug_assertions) { "debug: times mean little" } else { "release" },
        }
    }

    /// The facts, with what they are.
    pub fn facts(&self) -> Vec<(&'static str, String)> {
        let core = |core: Option<usize>| core.map_or("any".to_owned(), |core| core.to_string());
        let pinned =
            format!("client {}, server {}", core(self.client_core), core(self.server_core));
        let others = self.in_use_before.map(|part| ("In use by others before", percent(part)));
        let mut facts = vec![
            ("Processor", self.processor.clone()),
            ("Cores", self.cores.to_string()),
            ("Pinned to cores", pinned),
            ("Memory", output::size(self.memory_bytes >> 20 << 20)),
            ("Kernel", self.kernel.clone()),
            ("Petasos", format!("{} ({})", self.version, self.build)),
            ("Date", self.date.clone()),
        ];
        facts.extend(others);
        facts
    }
}

/// How long is looked at what others do.
const LOOK: Duration = Duration::from_millis(100);

/// From this part of the cores' time on the machine is busy.
const BUSY: f64 = 0.15;

/// The part of the cores' time that others took before anything was measured.
static IN_USE: OnceLock<Option<f64>> = OnceLock::new();

/// Looks at what others do on this machine, before anything is measured. Gives a line to be said
/// where that is so much that figures will be of a busy machine.
pub fn load_of_others() -> Option<String> {
    let in_use = *IN_USE.get_or_init(|| {
        let before = Ticks::now()?;
        thread::sleep(LOOK);
        Ticks::now()?.in_use_since(before)
    });
    in_use.filter(|part| *part > BUSY).map(|part| {
        format!(
            "this machine is busy: others take {} of its cores' time; latencies, and tails above all, \
             are those of a busy machine",
            percent(part)
        )
    })
}

fn percent(part: f64) -> String {
    format!("{:.0} %", part * 100.0)
}

/// Time of all cores since the machine's start, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    all: u64,
    idle: u64,
}

impl Ticks {
    fn now() -> Option<Ticks> {
        Ticks::parse(&fs::read_to_string("/proc/stat").ok()?)
    }

    fn parse(text: &str) -> Option<Ticks> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let times: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
        // Idle, and waiting for a disk; guests' time, after the first eight, is counted before.
        let idle = times.get(3)? + times.get(4).unwrap_or(&0);
        Some(Ticks { all: times.iter().take(8).sum(), idle })
    }

    /// None if no time has passed.
    fn in_use_since(self, before: Ticks) -> Option<f64> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let idle = self.idle.saturating_sub(before.idle).min(all);
        Some(1.0 - idle as f64 / all as f64)
    }
}

/// Memory of the machine of one kind, in bytes: `MemTotal`, `MemAvailable`.
pub fn memory(kind: &str) -> Option<u64> {
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
    fn what_others_take() {
        let of = |idle: u64, busy: u64| {
            Ticks::parse(&format!("cpu  {busy} 0 0 {idle} 0 0 0 0 7 7\ncpu0 1 1 1 1\n")).unwrap()
        };
        assert_eq!(of(175, 25).in_use_since(of(100, 0)), Some(0.25));
        assert_eq!(of(100, 0).in_use_since(of(100, 0)), None);
        // Idle time that was counted back, as kernels do.
        assert_eq!(of(90, 20).in_use_since(of(100, 0)), Some(1.0));
        assert_eq!(Ticks::parse("nonsense"), None);
        let now = Ticks::now().unwrap();
        assert!(now.all >= now.idle && now.all > 0, "{now:?}");
    }

    /// What others take is looked at once, and stands in JSON and in reports.
    #[test]
    fn what_others_take_is_said() {
        let busy = load_of_others();
        let machine = Machine::detect(Cores::pick());
        let in_use = machine.in_use_before.expect("it was looked at");
        assert!((0.0..=1.0).contains(&in_use), "{in_use}");
        assert_eq!(serde_json::to_value(&machine).unwrap()["in_use_before"], in_use);
        let facts = machine.facts();
        let fact = facts.iter().find(|(what, _)| *what == "In use by others before");
        assert_eq!(fact.map(|fact| fact.1.clone()), Some(percent(in_use)));
        assert_eq!(busy.is_some(), in_use > BUSY);
        assert!(busy.is_none_or(|line| line.contains(&percent(in_use))));
        assert_eq!(load_of_others().is_some(), in_use > BUSY, "and not again");
        assert_eq!(Machine::detect(Cores::pick()).in_use_before, Some(in_use));
    }

    #[test]
    fn what_is_here() {
        let machine = Machine::detect(Cores::pick());
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert!(machine.kernel.starts_with("Linux "), "{machine:?}");
        assert!(memory("MemAvailable").unwrap() <= machine.memory_bytes);
    }
}
