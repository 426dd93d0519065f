//! Calls about locks.

use super::{
    call::Call,
    locks::{Holder, Range, Tried},
};
use crate::{FsError, FsResult, protocol::Lock, storage::Storage};
use futures_util::future::{Either, select};
use rustix::io::Errno;
use std::{pin::pin, sync::Arc, time::Duration};

impl Call {
    pub(super) async fn lock(&self, number: u64, lock: Lock, wait: bool) -> FsResult<()> {
        let range = self.range(number, lock)?;
        let mut alarm = None;
        loop {
            let file = self.file(number)?;
            file.lock_loss.as_ref().map_or(Ok(()), |lock_loss| lock_loss.check())?;
            let left = self.take_from_silent(file.ino, &range).await?;
            // Another client may be faster.
            let left = left.or(self.core.config.limits.lease);
            let chance = {
                let _busy = self.session.busy()?;
                let ino = self.file(number)?.ino;
                match self.core.locks.try_set(ino, range, wait)? {
                    Tried::Held => return Ok(()),
                    Tried::Conflict(other) => {
                        let detail = format!("process {} holds {}", other.pid, words(&other));
                        return Err(FsError::new(Errno::AGAIN, detail));
                    }
                    Tried::Wait(chance) => chance,
                }
            };
            self.step_aside();
            let Some(left) = left else {
                chance.chance().await?;
                continue;
            };
            // A wake-up for another request does as well: this one checks again then.
            let sleep = alarm.take().unwrap_or_else(|| {
                let timer = Arc::clone(&self.core.timer);
                Box::pin(async move { timer.sleep(left).await })
            });
            match select(pin!(chance.chance()), sleep).await {
                Either::Left((chance, sleep)) => {
                    chance?;
                    alarm = Some(sleep);
                }
                Either::Right(_) => {}
            }
        }
    }

    pub(super) fn unlock(&self, number: u64, lock: Lock) -> FsResult<()> {
        let range = self.range(number, lock)?;
        let _busy = self.session.busy()?;
        let file = self.file(number)?;
        self.core.locks.clear(file.ino, &range)?;
        file.lock_loss.as_ref().map_or(Ok(()), |lock_loss| lock_loss.settle())
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

    /// Takes locks that are in the way from clients that are silent. Gives how long the client that
    /// is in the way now may be silent yet, if there is one.
    async fn take_from_silent(&self, ino: u64, wanted: &Range) -> FsResult<Option<Duration>> {
        let Some(lease) = self.core.config.limits.lease else { return Ok(None) };
        while let Some(held) = self.core.locks.test(ino, wanted) {
            // One that has ended gives its locks back by itself.
            let Ok(holder) = self.core.sessions.get(held.holder.session) else { return Ok(None) };
            let silent = holder.silent_for();
            if silent < lease {
                return Ok(Some(lease - silent));
            }
            tracing::info!(peer = %holder.peer, ?silent, "a lock is taken from a silent client");
            let take = move |_: &dyn Storage| {
                holder.take_locks(ino, held.file);
                Ok(())
            };
            self.run(0, take).await?;
        }
        Ok(None)
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
