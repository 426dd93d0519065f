//! What the system has counted of a process: time on a core, time of waiting for one, switches.

use crate::exit::{Failure, Outcome};
use std::{fs, ops::Sub, path::Path};

/// Of all threads of a process that are still there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Account {
    /// Nanoseconds on a core, in the process or in the kernel for it.
    pub on_core: f64,
    /// Nanoseconds ready to run, with no core to run on.
    pub waiting: f64,
    /// How often it slept, and how often a core was taken from it.
    pub slept: f64,
    pub taken: f64,
}

impl Account {
    pub fn of(process: u32) -> Outcome<Account> {
        let mut all = Account::default();
        let tasks = format!("/proc/{process}/task");
        let entries = fs::read_dir(&tasks);
        for entry in entries.map_err(|e| Failure::file("reading", Path::new(&tasks), &e))? {
            let Ok(entry) = entry else { continue };
            let read = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
            // What a thread that ends meanwhile had is not counted.
            all.add(&read("schedstat"), &read("status"));
        }
        Ok(all)
    }

    fn add(&mut self, schedule: &str, status: &str) {
        let mut times = schedule.split_whitespace().map(|word| word.parse().unwrap_or(0.0));
        self.on_core += times.next().unwrap_or(0.0);
        self.waiting += times.next().unwrap_or(0.0);
        let of = |name: &str| -> f64 {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0.0)
        };
        self.slept += of("voluntary_ctxt_switches:");
        self.taken += of("nonvoluntary_ctxt_switches:");
    }
}

/// How often a core was taken from this thread so far.
pub fn losses() -> u64 {
    let mut account = Account::default();
    account.add("", &fs::read_to_string("/proc/thread-self/status").unwrap_or_default());
    account.taken as u64
}

impl Sub for Account {
    type Output = Account;

    fn sub(self, before: Account) -> Account {
        Account {
            on_core: self.on_core - before.on_core,
            waiting: self.waiting - before.waiting,
            slept: self.slept - before.slept,
            taken: self.taken - before.taken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_of_a_thread() {
        let mut account = Account::default();
        let status = "Name:\tx\nvoluntary_ctxt_switches:\t17\nnonvoluntary_ctxt_switches:\t3\n";
        account.add("300 40 5\n", status);
        account.add("", "");
        assert_eq!(account, Account { on_core: 300.0, waiting: 40.0, slept: 17.0, taken: 3.0 });
    }

    #[test]
    fn of_this_process() {
        let before = Account::of(std::process::id()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(5));
        let all = Account::of(std::process::id()).unwrap() - before;
        assert!(all.slept >= 1.0, "{all:?}");
    }
}
