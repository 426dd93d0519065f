//! What an administrator can read of connections, refusals and endpoints that broke the rules.

use super::Counters;
use petasos_fabric::Time;
use petasos_tenant::Name;
use serde::Serialize;
use std::collections::VecDeque;

/// Entries that are kept of connections, and so many of refusals and of endpoints that broke the rules:
/// connections that come and go do not hide these.
const KEPT: usize = 1024;
/// Among so many of the last ones the same refusal is looked for: an endpoint that is refused tries again.
const LOOKED_AT: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    Connected,
    Refused,
    Ended,
    Expelled,
}

/// One thing that happened.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Entry {
    /// When, in nanoseconds of the broker's clock; of the last time, if it happened often.
    pub time_ns: u64,
    /// `connected`, `refused`, `ended` or `expelled`.
    pub(crate) what: What,
    /// The endpoint that made the connection.
    pub from: String,
    /// To whom.
    pub to: String,
    /// The rule, or the limit, or what it did.
    pub why: String,
    /// How often.
    pub times: u64,
    /// What an ended connection has carried.
    pub carried: Counters,
}

/// The last entries.
#[derive(Default)]
pub(super) struct Log {
    connections: VecDeque<Entry>,
    others: VecDeque<Entry>,
}

impl Log {
    pub(super) fn add(
        &mut self,
        now: Time,
        what: What,
        from: &Name,
        to: &Name,
        why: &str,
        carried: Counters,
    ) {
        let (from, to) = (from.to_string(), to.to_string());
        let list = match what {
            What::Connected | What::Ended => &mut self.connections,
            What::Refused | What::Expelled => &mut self.others,
        };
        if what == What::Refused {
            let same = |entry: &&mut Entry| {
                entry.what == what && entry.from == from && entry.to == to && entry.why == why
            };
            if let Some(entry) = list.iter_mut().rev().take(LOOKED_AT).find(same) {
                (entry.times, entry.time_ns) = (entry.times + 1, now.0);
                return;
            }
        }
        if list.len() >= KEPT {
            list.pop_front();
        }
        let why = why.to_owned();
        list.push_back(Entry { time_ns: now.0, what, from, to, why, times: 1, carried });
    }

    pub(super) fn entries(&self) -> Vec<Entry> {
        let mut all: Vec<Entry> = self.others.iter().chain(&self.connections).cloned().collect();
        all.sort_by_key(|entry| entry.time_ns);
        all
    }
}
