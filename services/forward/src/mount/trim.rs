//! Memory that an idle mount returns to the system.

use super::pool::Pool;
use petasos::{Engine, fabric::return_freed_memory};
use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

/// Memory goes when it was not needed for so long, and is kept for twice as long at most.
const IDLE: Duration = Duration::from_secs(5);

/// So many files that the kernel has forgotten leave memory that is worth being given back.
const MANY: usize = 1_000;

/// Returns memory that was not needed for a while.
pub(super) struct Trim {
    engine: Engine,
    pool: Arc<Pool>,
    /// Files that the kernel has forgotten since the last check.
    forgotten: Cell<usize>,
    /// Whether a task checks from time to time.
    scheduled: Cell<bool>,
}

impl Trim {
    pub(super) fn new(engine: &Engine, pool: &Arc<Pool>) -> Rc<Trim> {
        let (engine, pool) = (engine.clone(), Arc::clone(pool));
        Rc::new(Trim { engine, pool, forgotten: Cell::default(), scheduled: Cell::default() })
    }

    /// The kernel has forgotten a file.
    pub(super) fn note_forgotten(&self) {
        self.forgotten.set(self.forgotten.get() + 1);
    }

    /// Has memory that is not needed given back from time to time, as long as there is any.
    pub(super) fn schedule(self: &Rc<Trim>) {
        if self.scheduled.get() || (self.pool.kept() == 0 && self.forgotten.get() < MANY) {
            return;
        }
        self.scheduled.set(true);
        let (trim, timer) = (Rc::downgrade(self), self.engine.clone());
        self.engine.spawn(async move {
            loop {
                timer.sleep(IDLE).await;
                let Some(trim) = trim.upgrade() else { break };
                let forgotten = trim.forgotten.take();
                trim.pool.trim();
                if forgotten == 0 && trim.pool.kept() == 0 {
                    return_freed_memory();
                    trim.scheduled.set(false);
                    break;
                }
            }
        });
    }
}
