//! Processes that are watched. Each reports now and then that it makes progress. When one has not
//! for as long as it announced, the others get an event, once for each such pause.

use super::{
    Engine,
    timers::{Timer, Timers},
};
use petasos_fabric::Time;
use petasos_pmix::{
    Proc,
    event::{Event, Range},
    status,
};
use std::{collections::BTreeMap, time::Duration};

/// The shortest interval that a process can announce.
const SHORTEST: Duration = Duration::from_millis(1);

/// When a process last made progress.
#[derive(Clone, Copy, Debug)]
struct Progress {
    every: Duration,
    last: Time,
    /// The event of this pause was raised.
    reported: bool,
}

impl Progress {
    fn due(&self) -> Time {
        self.last.after(self.every)
    }
}

/// The watched processes of this node. One timer is for all of them: each time it is set for the
/// next one that is due.
#[derive(Debug)]
pub(super) struct ProgressMonitor {
    watched: BTreeMap<Proc, Progress>,
    timer: Time,
}

impl Default for ProgressMonitor {
    fn default() -> ProgressMonitor {
        ProgressMonitor { watched: BTreeMap::new(), timer: Time::NEVER }
    }
}

impl ProgressMonitor {
    /// Watches a process, or (without an interval) watches it no longer.
    fn watch(&mut self, proc: Proc, every: Option<Duration>, timers: &mut Timers<Timer>) {
        let Some(every) = every else { return self.forget(proc) };
        let (every, last) = (every.max(SHORTEST), timers.now());
        let progress = Progress { every, last, reported: false };
        self.watched.insert(proc, progress);
        self.set_timer(progress.due(), timers);
    }

    pub(super) fn forget(&mut self, proc: Proc) {
        self.watched.remove(&proc);
    }

    fn progressed(&mut self, proc: Proc, timers: &mut Timers<Timer>) {
        let Some(progress) = self.watched.get_mut(&proc) else { return };
        (progress.last, progress.reported) = (timers.now(), false);
        let due = progress.due();
        self.set_timer(due, timers);
    }

    fn set_timer(&mut self, at: Time, timers: &mut Timers<Timer>) {
        if at < self.timer {
            self.timer = at;
            timers.set(at, Timer::Progress);
        }
    }

    /// The timer was dropped with others.
    pub(super) fn set_timer_again(&mut self, timers: &mut Timers<Timer>) {
        let at = std::mem::replace(&mut self.timer, Time::NEVER);
        self.set_timer(at, timers);
    }

    /// The running processes that have made no progress for too long, with their intervals. Each is
    /// given once for each pause.
    fn stuck(
        &mut self,
        runs: impl Fn(Proc) -> bool,
        timers: &mut Timers<Timer>,
    ) -> Vec<(Proc, Duration)> {
        let (mut stuck, mut next) = (Vec::new(), Time::NEVER);
        // The timer may have been set for later first.
        if timers.now() < self.timer {
            return stuck;
        }
        let watched = self.watched.iter_mut();
        for (proc, progress) in watched.filter(|(proc, p)| !p.reported && runs(**proc)) {
            match progress.due() {
                due if due <= timers.now() => {
                    progress.reported = true;
                    stuck.push((*proc, progress.every));
                }
                due => next = next.min(due),
            }
        }
        self.timer = Time::NEVER;
        self.set_timer(next, timers);
        stuck
    }
}

impl Engine {
    /// A process is watched from now on, or no longer.
    pub(super) fn watch_progress(&mut self, proc: Proc, every: Option<Duration>) {
        if self.jobs.local(proc).is_some() {
            self.progress.watch(proc, every, &mut self.timers);
        }
    }

    /// A process reports that it makes progress.
    pub(super) fn progressed(&mut self, proc: Proc) {
        self.progress.progressed(proc, &mut self.timers);
    }

    /// Raises an event for each process that has made no progress for too long.
    pub(super) fn check_progress(&mut self) {
        let jobs = &self.jobs;
        let runs = |proc| jobs.local(proc).is_some_and(|local| local.termination().is_none());
        for (source, every) in self.progress.stuck(runs, &mut self.timers) {
            let node = self.me;
            let why = format!("it has made no progress for {every:?}");
            let info = vec![
                ("pmix.rank".to_owned(), source.rank.into()),
                ("pmix.nodeid".to_owned(), node.0.into()),
                ("petasos.why".to_owned(), why.into()),
            ];
            let (id, code, range) = (self.out.event_id(), status::NO_PROGRESS, Range::Namespace);
            self.raise(Event { id, code, source, node, range, non_default: false, info });
        }
    }
}
