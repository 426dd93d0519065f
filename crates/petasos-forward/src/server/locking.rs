//! Calls about locks.

use super::{
    call::Call,
    locks::{Holder, Range, Tried},
};
use crate::{FsError, FsResult, protocol::Lock};
use rustix::io::Errno;

impl Call {
    pub(super) async fn lock(&self, number: u64, lock: Lock, wait: bool) -> FsResult<()> {
        let range = self.range(number, lock)?;
        loop {
            let chance = {
                let _busy = self.session.busy(&self.core)?;
                let ino = self.file(number)?.ino;
                match self.core.locks.try_set(ino, range, wait)? {
                    Tried::Held => return Ok(()),
                    Tried::InTheWay(other) => {
                        let detail = format!("process {} holds {}", other.pid, words(&other));
                        return Err(FsError::new(Errno::AGAIN, detail));
                    }
                    Tried::Wait(chance) => chance,
                }
            };
            self.step_aside();
            chance.chance().await?;
        }
    }

    pub(super) fn unlock(&self, number: u64, lock: Lock) -> FsResult<()> {
        let range = self.range(number, lock)?;
        let _busy = self.session.busy(&self.core)?;
        self.core.locks.clear(self.file(number)?.ino, &range)
    }

    pub(super) fn test_lock(&self, number: u64, lock: Lock) -> FsResult<Option<Lock>> {
        let range = self.range(number, lock)?;
        let found = self.core.locks.test(self.file(number)?.ino, &range);
        Ok(found.map(|Range { start, end, exclusive, holder, pid, .. }| Lock {
            owner: holder.owner,
            pid,
            exclusive,
            start,
            end,
        }))
    }

    fn range(&self, file: u64, lock: Lock) -> FsResult<Range> {
        let Lock { owner, pid, exclusive, start, end } = lock;
        if start >= end {
            let detail = format!("a lock from {start} to {end}");
            return Err(FsError::new(Errno::INVAL, detail));
        }
        let holder = Holder { session: self.session.id, owner };
        Ok(Range { start, end, exclusive, holder, file, pid })
    }
}

fn words(range: &Range) -> String {
    let kind = if range.exclusive { "an exclusive" } else { "a shared" };
    match range.end {
        u64::MAX => format!("{kind} lock from {} on", range.start),
        end => format!("{kind} lock from {} to {end}", range.start),
    }
}
