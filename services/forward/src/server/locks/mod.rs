//! Locks on parts of files, among the clients of the server.
//!
//! A request that waits is woken whenever something is freed, and then tries again: so no lock is
//! granted to a request that has gone.
//!
//! A lock that would be waited for by holders in a circle is refused, as POSIX wants it: each of
//! them would wait for ever.

mod ranges;

use crate::{FsError, FsResult};
use futures_channel::oneshot;
use ranges::Ranges;
pub(super) use ranges::{Holder, Range};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// The locks on all files.
#[derive(Debug)]
pub(super) struct Locks {
    state: Mutex<State>,
    /// Of one session.
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    files: HashMap<u64, OfFile>,
    /// How many each session has.
    counts: HashMap<u64, usize>,
    /// What each holder waits for: in which file, and with which serial number.
    wanted: HashMap<Holder, Vec<(u64, u64, Range)>>,
    serial: u64,
}

#[derive(Debug, Default)]
struct OfFile {
    ranges: Ranges,
    /// In order of arrival.
    waiting: Vec<Waiter>,
}

#[derive(Debug)]
struct Waiter {
    serial: u64,
    session: u64,
    wake: oneshot::Sender<()>,
}

/// How it ended to try.
pub(super) enum Tried<'a> {
    /// The lock is held.
    Held,
    /// This one is in the way.
    Conflict(Range),
    /// Something is in the way: to be woken when that may have changed.
    Wait(Waiting<'a>),
}

/// Waits for a chance. Dropping it leaves nothing behind.
pub(super) struct Waiting<'a> {
    locks: &'a Locks,
    ino: u64,
    serial: u64,
    holder: Holder,
    wake: oneshot::Receiver<()>,
}

impl Waiting<'_> {
    /// Waits until it is worth another try.
    pub(super) async fn chance(mut self) -> FsResult<()> {
        (&mut self.wake).await.map_err(|_| super::errors::stale())
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.locks.lock();
        if let Some(file) = state.files.get_mut(&self.ino) {
            file.waiting.retain(|waiter| waiter.serial != self.serial);
            state.tidy(self.ino);
        }
        if let Some(wanted) = state.wanted.get_mut(&self.holder) {
            wanted.retain(|(_, serial, _)| *serial != self.serial);
            if wanted.is_empty() {
                state.wanted.remove(&self.holder);
            }
        }
    }
}

/// Holders that are looked at for a circle: a longer one waits, as for any lock.
const LONGEST_CIRCLE: usize = 64;

impl Locks {
    /// No locks, and at most so many of one session.
    pub(super) fn new(most: usize) -> Locks {
        Locks { state: Mutex::default(), most }
    }

    /// How many a session holds.
    pub(super) fn count(&self, session: u64) -> usize {
        self.lock().counts.get(&session).copied().unwrap_or(0)
    }

    /// Tries to set a lock on file `ino`. With `wait`, it can be waited for; `EDEADLK` where what
    /// is in the way waits for this holder.
    pub(super) fn try_set(&self, ino: u64, wanted: Range, wait: bool) -> FsResult<Tried<'_>> {
        let mut state = self.lock();
        let file = state.files.entry(ino).or_default();
        if let Some(other) = file.ranges.conflict(&wanted) {
            if !wait {
                return Ok(Tried::Conflict(other));
            }
            if state.is_circle(ino, &wanted) {
                let detail = "the holder of the lock waits for one of this process";
                return Err(FsError::new(Errno::DEADLK, detail));
            }
            let (sender, wake) = oneshot::channel();
            state.serial += 1;
            let (serial, holder) = (state.serial, wanted.holder);
            let session = holder.session;
            state.wanted.entry(holder).or_default().push((ino, serial, wanted));
            if let Some(file) = state.files.get_mut(&ino) {
                file.waiting.push(Waiter { serial, session, wake: sender });
            }
            return Ok(Tried::Wait(Waiting { locks: self, ino, serial, holder, wake }));
        }
        self.check(&mut state, ino, &wanted, true)?;
        let file = state.files.entry(ino).or_default();
        let more = file.ranges.set(wanted);
        // A lock that became a shared one may let others in.
        let woken = std::mem::take(&mut file.waiting);
        state.count(wanted.holder.session, more);
        drop(state);
        wake(woken);
        Ok(Tried::Held)
    }

    /// The first lock that would be in the way.
    pub(super) fn test(&self, ino: u64, wanted: &Range) -> Option<Range> {
        self.lock().files.get(&ino)?.ranges.conflict(wanted)
    }

    /// Frees a part of a file.
    pub(super) fn clear(&self, ino: u64, part: &Range) -> FsResult<()> {
        let mut state = self.lock();
        self.check(&mut state, ino, part, false)?;
        let Some(file) = state.files.get_mut(&ino) else { return Ok(()) };
        let more = file.ranges.clear(part.holder, part.start, part.end);
        let woken = std::mem::take(&mut file.waiting);
        state.count(part.holder.session, more);
        state.tidy(ino);
        drop(state);
        wake(woken);
        Ok(())
    }

    /// Frees what goes with an open file.
    pub(super) fn close(&self, ino: u64, session: u64, number: u64) {
        let mut state = self.lock();
        let Some(file) = state.files.get_mut(&ino) else { return };
        let gone = file.ranges.remove(|held| held.holder.session == session && held.file == number);
        if gone == 0 {
            return;
        }
        let woken = std::mem::take(&mut file.waiting);
        state.count(session, -(gone as isize));
        state.tidy(ino);
        drop(state);
        wake(woken);
    }

    /// Ends the waiting of a session.
    pub(super) fn give_up(&self, session: u64) {
        let mut ended = Vec::new();
        for file in self.lock().files.values_mut() {
            ended.extend(file.waiting.extract_if(.., |waiter| waiter.session == session));
        }
    }

    /// Frees all that a session has.
    pub(super) fn end(&self, session: u64) {
        let mut state = self.lock();
        if state.counts.remove(&session).is_none() {
            return;
        }
        let mut woken = Vec::new();
        state.files.retain(|_, file| {
            if file.ranges.remove(|held| held.holder.session == session) > 0 {
                woken.append(&mut file.waiting);
            }
            !file.ranges.is_empty() || !file.waiting.is_empty()
        });
        drop(state);
        wake(woken);
    }

    fn check(&self, state: &mut State, ino: u64, part: &Range, sets: bool) -> FsResult<()> {
        let growth = match state.files.get(&ino) {
            Some(file) => file.ranges.growth(part, sets),
            None => usize::from(sets),
        };
        let count = state.counts.get(&part.holder.session).copied().unwrap_or(0);
        if growth > 0 && count + growth > self.most {
            state.tidy(ino);
            let detail = format!("the limit of {} locks of a session is reached", self.most);
            return Err(FsError::new(Errno::NOLCK, detail));
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&mut self, session: u64, more: isize) {
        let count = self.counts.entry(session).or_default();
        *count = count.saturating_add_signed(more);
        if *count == 0 {
            self.counts.remove(&session);
        }
    }

    /// Whether a holder of a lock in the way waits, directly or through others that wait, for the
    /// owner that wants this one.
    fn is_circle(&self, ino: u64, wanted: &Range) -> bool {
        let in_the_way = |ino: u64, wanted: &Range| {
            let ranges = self.files.get(&ino).map(|file| &file.ranges);
            let holders = ranges.into_iter().flat_map(|ranges| ranges.conflicts(wanted));
            holders.map(|held| held.holder).collect::<Vec<_>>()
        };
        let mut seen = in_the_way(ino, wanted);
        let mut at = 0;
        while at < seen.len().min(LONGEST_CIRCLE) {
            for (ino, _, wants) in self.wanted.get(&seen[at]).into_iter().flatten() {
                for holder in in_the_way(*ino, wants) {
                    if holder == wanted.holder {
                        return true;
                    }
                    if !seen.contains(&holder) {
                        seen.push(holder);
                    }
                }
            }
            at += 1;
        }
        false
    }

    fn tidy(&mut self, ino: u64) {
        if self.files.get(&ino).is_some_and(|it| it.ranges.is_empty() && it.waiting.is_empty()) {
            self.files.remove(&ino);
        }
    }
}

fn wake(waiters: Vec<Waiter>) {
    for waiter in waiters {
        // A request that was given up needs no waking.
        let _ = waiter.wake.send(());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    fn range(session: u64, start: u64, end: u64, exclusive: bool) -> Range {
        let holder = Holder { session, owner: 1 };
        Range { start, end, exclusive, holder, file: 5, pid: 9 }
    }

    fn held(locks: &Locks, wanted: Range) -> bool {
        matches!(locks.try_set(1, wanted, false).unwrap(), Tried::Held)
    }

    #[test]
    fn waiting_ends_when_the_way_is_free() {
        let locks = Locks::new(10);
        assert!(held(&locks, range(1, 0, 10, true)));
        assert!(!held(&locks, range(2, 5, 6, false)));
        let Tried::Wait(mut first) = locks.try_set(1, range(2, 5, 6, false), true).unwrap() else {
            panic!("it is in the way");
        };
        let Tried::Wait(second) = locks.try_set(1, range(3, 5, 6, true), true).unwrap() else {
            panic!("it is in the way");
        };
        assert!((&mut first.wake).now_or_never().is_none());
        drop(second);
        assert_eq!(locks.lock().files[&1].waiting.len(), 1);
        locks.close(1, 1, 6);
        assert!((&mut first.wake).now_or_never().is_none(), "another file's");
        locks.close(1, 1, 5);
        assert!(first.chance().now_or_never().unwrap().is_ok());
        assert!(held(&locks, range(2, 5, 6, false)));
        let Tried::Wait(ended) = locks.try_set(1, range(3, 0, 9, true), true).unwrap() else {
            panic!("it is in the way");
        };
        locks.give_up(3);
        assert_eq!(ended.chance().now_or_never().unwrap().unwrap_err().errno(), Errno::STALE);
        locks.end(2);
        let state = locks.lock();
        assert!(state.files.is_empty() && state.counts.is_empty());
    }

    #[test]
    fn a_circle_is_refused() {
        let locks = Locks::new(10);
        let wants = |session: u64, ino: u64| {
            locks.try_set(ino, range(session, 0, 10, true), true).map(|tried| match tried {
                Tried::Wait(waiting) => Some(waiting),
                _ => None,
            })
        };
        let refused = |session, ino| wants(session, ino).err().map(|error| error.errno());
        // Three files, each of whose holders wants the next one's.
        for session in [1, 2, 3] {
            assert!(wants(session, session).unwrap().is_none(), "it is free");
        }
        let first = wants(1, 2).unwrap();
        let second = wants(2, 3).unwrap();
        assert!(first.is_some() && second.is_some());
        assert_eq!(refused(3, 1), Some(Errno::DEADLK));
        // A fourth one that waits is in no circle.
        assert!(wants(4, 1).unwrap().is_some());
        // Where one gives up, there is none any more.
        drop(second);
        let third = wants(3, 1).unwrap();
        assert!(third.is_some());
        assert_eq!(refused(2, 3), Some(Errno::DEADLK));
        // Two that read and both want to write.
        let shared = |session| locks.try_set(7, range(session, 0, 1, false), false).unwrap();
        assert!(matches!((shared(5), shared(6)), (Tried::Held, Tried::Held)));
        let waits = wants(5, 7).unwrap();
        assert_eq!(refused(6, 7), Some(Errno::DEADLK));
        drop((first, third, waits));
        assert!(locks.lock().wanted.is_empty());
    }

    #[test]
    fn a_session_has_so_many() {
        let locks = Locks::new(3);
        assert!(held(&locks, range(1, 0, 1, true)));
        assert!(held(&locks, range(1, 2, 9, true)));
        let split = range(1, 4, 5, false);
        assert_eq!(locks.try_set(1, split, false).err().unwrap().errno(), Errno::NOLCK);
        locks.clear(1, &range(1, 4, 5, false)).unwrap();
        assert_eq!(locks.count(1), 3);
        assert_eq!(locks.clear(1, &range(1, 6, 7, false)).unwrap_err().errno(), Errno::NOLCK);
        assert!(held(&locks, range(1, 0, 100, true)), "one lock in place of all");
        assert_eq!(locks.count(1), 1);
    }
}
