//! Reading ahead, where the kernel does not do enough of it: without root's rights it asks for 128
//! KiB at a time, and waits.
//!
//! A program that reads a file from front to back in small pieces gets them out of blocks that are
//! fetched before they are asked for. A block is used for a short time, and only if it has all that
//! is asked for: so a file that grows, or is changed elsewhere, is read anew.

use super::{
    files::{Open, Read},
    fs::Fs,
    pool::{BLOCK, Pool},
};
use futures_channel::oneshot;
use petasos::fabric::Exclusive;
use std::{
    cell::Cell,
    collections::VecDeque,
    rc::Rc,
    sync::Arc,
    time::{Duration, Instant},
};

/// Requests of at least so many bytes are the kernel's own reading ahead.
const ENOUGH: usize = BLOCK / 2;

/// So many requests that continue each other make a sequential reader.
const RUN: u32 = 3;

/// Blocks ahead of a reader.
const BLOCKS: usize = 3;

/// Blocks of all readers of a mount.
const ALL: usize = 64;

/// How long what was fetched is good for.
const FRESH: Duration = Duration::from_secs(1);

/// The blocks that are read ahead of one open file's reader.
#[derive(Default)]
pub(super) struct ReadAhead {
    /// Where the next request begins, if it continues the last one.
    next: u64,
    run: u32,
    blocks: VecDeque<Block>,
    serial: u64,
}

struct Block {
    serial: u64,
    offset: u64,
    state: State,
}

enum State {
    /// What waits for it.
    Coming(Vec<oneshot::Sender<()>>),
    Here(Rc<Fetched>),
}

/// How many blocks all readers of a mount have ahead, and where their memory goes.
pub(super) struct BlocksAhead {
    pool: Arc<Pool>,
    count: Cell<usize>,
}

/// One of them: it counts until this is dropped.
struct Claim(Rc<BlocksAhead>);

impl BlocksAhead {
    pub(super) fn new(pool: &Arc<Pool>) -> Rc<BlocksAhead> {
        Rc::new(BlocksAhead { pool: Arc::clone(pool), count: Cell::default() })
    }

    /// `None` if there are as many as may be.
    fn claim(self: &Rc<Self>) -> Option<Claim> {
        let count = self.count.get();
        (count < ALL).then(|| {
            self.count.set(count + 1);
            Claim(Rc::clone(self))
        })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
    }
}

/// A block that came. Its memory goes back to the pool with its last user.
pub(super) struct Fetched {
    claim: Claim,
    memory: Option<Exclusive>,
    len: usize,
    at: Instant,
}

impl Fetched {
    pub(super) fn part(&self, start: usize, len: usize) -> &[u8] {
        self.memory.as_ref().map_or(&[], |memory| &memory[start..start + len])
    }
}

impl Drop for Fetched {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.claim.0.pool.give(memory);
        }
    }
}

impl ReadAhead {
    /// What was fetched is not to be used any more.
    pub(super) fn clear(&mut self) {
        self.blocks.clear();
        self.run = 0;
    }

    /// Notes a request. True if it is one of a sequential reader.
    fn follows(&mut self, offset: u64, len: usize) -> bool {
        // Requests that the kernel has under way at the same time may come in another order.
        let (back, forth) = ((BLOCK / 8) as u64, (BLOCK / 4) as u64);
        if offset + back < self.next || offset > self.next + forth {
            self.clear();
        }
        self.run = self.run.saturating_add(1);
        self.next = offset + len as u64;
        self.run >= RUN
    }
}

impl Fs {
    /// A read out of what was fetched ahead, if that is how this file is read.
    pub(super) async fn read_ahead(
        self: &Rc<Fs>,
        open: &Rc<Open>,
        offset: u64,
        size: usize,
    ) -> Option<Read> {
        // What is being written here is not at the server yet.
        let written = !open.inode.write_back.borrow().is_empty();
        if size >= ENOUGH || !self.options.reads_ahead() || written {
            return None;
        }
        if !open.read_ahead.borrow_mut().follows(offset, size) {
            return None;
        }
        let block = offset / BLOCK as u64 * BLOCK as u64;
        let start = (offset - block) as usize;
        // What lies in two blocks is rare: the kernel asks for parts of aligned windows.
        if start + size > BLOCK {
            return None;
        }
        self.fetch_ahead(open, block);
        let fetched = loop {
            let coming = {
                let ahead = &mut *open.read_ahead.borrow_mut();
                match &mut ahead.blocks.iter_mut().find(|b| b.offset == block)?.state {
                    State::Here(fetched) => break Rc::clone(fetched),
                    State::Coming(waiting) => {
                        let (sender, coming) = oneshot::channel();
                        waiting.push(sender);
                        coming
                    }
                }
            };
            let _ = coming.await;
        };
        // At the end of the file there may be more by now.
        let whole = start + size <= fetched.len && fetched.at.elapsed() < FRESH;
        whole.then(|| Read::Ahead(fetched, start, size))
    }

    /// Has the blocks from this one on fetched, as far as they are not, and lets go of those
    /// before.
    fn fetch_ahead(self: &Rc<Fs>, open: &Rc<Open>, from: u64) {
        let ahead = &mut *open.read_ahead.borrow_mut();
        ahead.blocks.retain(|b| match &b.state {
            State::Here(fetched) => b.offset >= from && fetched.at.elapsed() < FRESH,
            State::Coming(_) => true,
        });
        for nth in 0..=BLOCKS as u64 {
            let offset = from + nth * BLOCK as u64;
            let ended = |b: &Block| match &b.state {
                State::Here(fetched) => b.offset < offset && fetched.len < BLOCK,
                State::Coming(_) => false,
            };
            if ahead.blocks.iter().any(|b| b.offset == offset) {
                continue;
            }
            if ahead.blocks.iter().any(ended) {
                return;
            }
            let Some(claim) = self.blocks_ahead.claim() else { return };
            ahead.serial += 1;
            let serial = ahead.serial;
            ahead.blocks.push_back(Block { serial, offset, state: State::Coming(Vec::new()) });
            let (fs, open) = (Rc::clone(self), Rc::clone(open));
            self.spawn(async move { fs.fetch(claim, open, serial, offset).await });
        }
    }

    async fn fetch(self: Rc<Fs>, claim: Claim, open: Rc<Open>, serial: u64, offset: u64) {
        let _permit = self.tasks.transfer().await;
        let got = self.read_now(&open, offset, BLOCK).await;
        let (memory, len) = match got {
            Ok(Read::Block(memory, len)) => (Some(memory), len),
            _ => (None, 0),
        };
        let at = Instant::now();
        let fetched = Rc::new(Fetched { claim, memory, len, at });
        let mut ahead = open.read_ahead.borrow_mut();
        // Unless it was given up meanwhile. Dropping the senders wakes what waits.
        if let Some(block) = ahead.blocks.iter_mut().find(|b| b.serial == serial) {
            block.state = State::Here(fetched);
        }
    }
}
