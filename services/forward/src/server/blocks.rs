//! Blocks of memory that travel: lent to the network, then filled from a file, and used again.

use super::budget::{Budget, MOST, Memory};
use crate::{FsResult, timer::TimerThread};
use petasos::fabric::{Exclusive, Region, Slice};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

/// Bytes of a block.
pub(super) const BLOCK: usize = 1 << 20;
const _: () = assert!(BLOCK as u64 <= MOST, "a block can be asked for");

/// Blocks without use that are kept.
const SPARE: usize = 16;

/// How often to see whether the network has let go of memory.
const RELEASE_CHECK: Duration = Duration::from_millis(20);

/// Where blocks come from.
pub(super) struct Blocks {
    budget: Arc<Budget>,
    timer: Arc<TimerThread>,
    state: Mutex<State>,
    this: Weak<Blocks>,
}

#[derive(Default)]
struct State {
    spare: Vec<Exclusive>,
    /// What the network still holds after a transfer that was given up. It counts until then.
    unreleased: Vec<(Region, Memory)>,
}

/// A block: a caller's own, or lent to the network. Counts as used until it is dropped and the
/// network has let go of it.
pub(super) struct Block {
    held: Option<(Held, Memory)>,
    blocks: Arc<Blocks>,
}

enum Held {
    Own(Exclusive),
    Lent(Region),
}

impl Blocks {
    pub(super) fn new(budget: Arc<Budget>, timer: Arc<TimerThread>) -> Arc<Blocks> {
        Arc::new_cyclic(|this| Blocks {
            budget,
            timer,
            state: Mutex::default(),
            this: Weak::clone(this),
        })
    }

    /// Waits for a block for client `of`. Dropping the future gives the claim up.
    pub(super) async fn get(self: &Arc<Self>, of: u64) -> FsResult<Block> {
        let memory = self.budget.acquire(of, BLOCK as u64).await?;
        let spare = self.lock().spare.pop();
        let own = match spare {
            Some(own) => Held::Own(own),
            // New memory has no other holder.
            None => Region::zeroed(BLOCK).into_exclusive().map_or_else(Held::Lent, Held::Own),
        };
        Ok(Block { held: Some((own, memory)), blocks: Arc::clone(self) })
    }

    fn keep(&self, own: Exclusive) {
        let mut state = self.lock();
        if state.spare.len() < SPARE {
            state.spare.push(own);
        }
    }

    /// Keeps count of memory until the network has let go of it.
    fn count_until_released(&self, region: Region, memory: Memory) {
        let mut state = self.lock();
        state.unreleased.push((region, memory));
        let first = state.unreleased.len() == 1;
        drop(state);
        if first {
            self.check_later();
        }
    }

    fn check_later(&self) {
        let this = Weak::clone(&self.this);
        self.timer.later(RELEASE_CHECK, move || {
            let Some(this) = this.upgrade() else { return };
            let (free, again) = {
                let mut state = this.lock();
                let all = std::mem::take(&mut state.unreleased);
                let (free, held): (Vec<_>, Vec<_>) =
                    all.into_iter().partition(|(region, _)| region.is_unique());
                state.unreleased = held;
                (free, !state.unreleased.is_empty())
            };
            drop(free);
            if again {
                this.check_later();
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Block {
    /// A part of it to lend to the network, from its beginning.
    pub(super) fn lend(&mut self, len: usize) -> Slice {
        let (held, memory) = self.take();
        let region = match held {
            Held::Own(own) => own.into_region(),
            Held::Lent(region) => region,
        };
        let slice = region.slice(0, len.min(BLOCK)).expect("no longer than the block");
        self.held = Some((Held::Lent(region), memory));
        slice
    }

    /// Its memory, for oneself: what was lent is back, or a copy of it is made.
    pub(super) fn own(&mut self) -> &mut [u8] {
        let (held, memory) = self.take();
        let own = match held {
            Held::Own(own) => own,
            Held::Lent(region) => region.into_exclusive().unwrap_or_else(|lent| {
                let copy = Region::from_vec(lent.to_vec());
                copy.into_exclusive().expect("a new region has no other holder")
            }),
        };
        let (held, _) = self.held.insert((Held::Own(own), memory));
        match held {
            Held::Own(own) => own,
            Held::Lent(_) => unreachable!("it was put there just now"),
        }
    }

    fn take(&mut self) -> (Held, Memory) {
        self.held.take().expect("a block has memory until it is dropped")
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let Some((held, memory)) = self.held.take() else { return };
        match held {
            Held::Own(own) => self.blocks.keep(own),
            Held::Lent(region) => match region.into_exclusive() {
                Ok(own) => self.blocks.keep(own),
                Err(region) => self.blocks.count_until_released(region, memory),
            },
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Block")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn memory_counts_until_the_network_lets_go() {
        let budget = Budget::new(8 << 20);
        let timer = Arc::new(TimerThread::start().unwrap());
        let blocks = Blocks::new(Arc::clone(&budget), timer);
        let mut block = blocks.get(1).now_or_never().unwrap().unwrap();
        block.own()[..3].copy_from_slice(b"abc");
        let lent = block.lend(3);
        assert_eq!(lent.to_vec(), b"abc");
        drop(block);
        assert_eq!(budget.status()[0], BLOCK as u64);
        drop(lent);
        while budget.status()[0] > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut block = blocks.get(1).now_or_never().unwrap().unwrap();
        drop(block.lend(1));
        drop(block);
        assert_eq!((budget.status()[0], blocks.lock().spare.len()), (0, 1));
    }
}
