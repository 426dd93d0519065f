//! What a mount gives back to the system when it has little to do.

use super::fs::Fs;
use petasos::fabric::return_freed_memory;
use std::{
    cell::Cell,
    rc::{Rc, Weak},
    time::Duration,
};

/// Memory goes when it was not needed for so long, and is kept for twice as long at most.
const REST: Duration = Duration::from_secs(5);

/// So many files that the kernel has forgotten leave memory that is worth being given back.
const MANY: usize = 1_000;

/// What there is to give back.
#[derive(Debug, Default)]
pub(super) struct Rest {
    /// Files that the kernel has forgotten since it was looked at.
    forgotten: Cell<usize>,
    /// Whether a task looks at it from time to time.
    tended: Cell<bool>,
}

impl Rest {
    pub(super) fn forgets_one(&self) {
        self.forgotten.set(self.forgotten.get() + 1);
    }
}

impl Fs {
    /// Has memory that is not needed given back from time to time, as long as there is any.
    pub(super) fn tend_memory(self: &Rc<Fs>) {
        let rest = &self.rest;
        if rest.tended.get() || (self.pool.kept() == 0 && rest.forgotten.get() < MANY) {
            return;
        }
        rest.tended.set(true);
        let (fs, timer) = (Rc::downgrade(self), self.engine.clone());
        self.engine.spawn(async move {
            loop {
                timer.sleep(REST).await;
                let Some(fs) = Weak::upgrade(&fs) else { break };
                let forgotten = fs.rest.forgotten.take();
                fs.pool.shed();
                if forgotten == 0 && fs.pool.kept() == 0 {
                    return_freed_memory();
                    fs.rest.tended.set(false);
                    break;
                }
            }
        });
    }
}
