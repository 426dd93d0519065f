//! Memory that an idle mount returns to the system.

use super::fs::Fs;
use petasos::fabric::return_freed_memory;
use std::{
    cell::Cell,
    rc::{Rc, Weak},
    time::Duration,
};

/// Memory goes when it was not needed for so long, and is kept for twice as long at most.
const IDLE: Duration = Duration::from_secs(5);

/// So many files that the kernel has forgotten leave memory that is worth being given back.
const MANY: usize = 1_000;

/// What is known of the memory that could be returned.
#[derive(Debug, Default)]
pub(super) struct Trim {
    /// Files that the kernel has forgotten since the last check.
    forgotten: Cell<usize>,
    /// Whether a task checks from time to time.
    scheduled: Cell<bool>,
}

impl Trim {
    pub(super) fn note_forgotten(&self) {
        self.forgotten.set(self.forgotten.get() + 1);
    }
}

impl Fs {
    /// Has memory that is not needed given back from time to time, as long as there is any.
    pub(super) fn schedule_trim(self: &Rc<Fs>) {
        let trim = &self.trim;
        if trim.scheduled.get() || (self.pool.kept() == 0 && trim.forgotten.get() < MANY) {
            return;
        }
        trim.scheduled.set(true);
        let (fs, timer) = (Rc::downgrade(self), self.engine.clone());
        self.engine.spawn(async move {
            loop {
                timer.sleep(IDLE).await;
                let Some(fs) = Weak::upgrade(&fs) else { break };
                let forgotten = fs.trim.forgotten.take();
                fs.pool.trim();
                if forgotten == 0 && fs.pool.kept() == 0 {
                    return_freed_memory();
                    fs.trim.scheduled.set(false);
                    break;
                }
            }
        });
    }
}
