//! Processes that are watched: each says now and then that it makes progress, and when one has not for as long
//! as it said it would, the others hear of it, once for each such pause.

use super::{Engine, Timer};
use crate::{
    event::{Event, Range},
    names::Proc,
    status,
};
use petasos_fabric::Time;
use std::time::Duration;

/// The shortest time within which a process can be asked to say something.
const SHORTEST: Duration = Duration::from_millis(1);

/// When a process last made progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    every: Duration,
    last: Time,
    /// The others know that it makes none.
    told: bool,
}

impl Progress {
    fn due(&self) -> Time {
        self.last.after(self.every)
    }
}

impl Engine {
    /// A process is watched from now on, or no longer.
    pub(super) fn watch_progress(&mut self, proc: Proc, every: Option<Duration>) {
        let last = self.now;
        let watched = every.map(|every| Progress { every: every.max(SHORTEST), last, told: false });
        let Some(local) = self.local_mut(proc) else { return };
        local.progress = watched;
        if let Some(progress) = watched {
            self.look_at_progress(progress.due());
        }
    }

    /// A process says that it makes progress.
    pub(super) fn progressed(&mut self, proc: Proc) {
        let now = self.now;
        let Some(progress) = self.local_mut(proc).and_then(|local| local.progress.as_mut()) else {
            return;
        };
        (progress.last, progress.told) = (now, false);
        let due = progress.due();
        self.look_at_progress(due);
    }

    /// One timer is for all processes: each time it is set for the next one that is due.
    pub(super) fn look_at_progress(&mut self, at: Time) {
        if at < self.progress_at {
            self.progress_at = at;
            self.agenda.set(at, Timer::Progress);
        }
    }

    /// The others are told of those that have made none for too long.
    pub(super) fn check_progress(&mut self) {
        // It was set for later first.
        if self.now < self.progress_at {
            return;
        }
        let (now, me) = (self.now, self.me);
        let (mut stuck, mut next) = (Vec::new(), Time::NEVER);
        for job in self.jobs.values_mut() {
            for (rank, local) in job.locals.iter_mut().filter(|(_, local)| local.gone.is_none()) {
                let Some(progress) = local.progress.as_mut().filter(|p| !p.told) else { continue };
                match progress.due() {
                    due if due <= now => {
                        progress.told = true;
                        stuck.push((job.map.proc(*rank), progress.every));
                    }
                    due => next = next.min(due),
                }
            }
        }
        self.progress_at = Time::NEVER;
        self.look_at_progress(next);
        for (source, every) in stuck {
            let why = format!("it has made no progress for {every:?}");
            let info = vec![
                ("pmix.rank".to_owned(), source.rank.into()),
                ("pmix.nodeid".to_owned(), me.0.into()),
                ("petasos.why".to_owned(), why.into()),
            ];
            let (id, code, range) = (self.event_id(), status::NO_PROGRESS, Range::Namespace);
            self.raise(Event { id, code, source, node: me, range, non_default: false, info });
        }
    }
}
