//! The service behind `petasos ping` and `petasos bench`.

use petasos::{
    BulkHandle, Context, Loan, RemoteBulk, Wire,
    fabric::{Region, Slice},
    service,
};
use std::{
    cell::{Cell, RefCell},
    hint::black_box,
};

/// Bytes of the small message of the measurements.
pub const MESSAGE: usize = crate::limits::MESSAGE_BYTES;

/// The most that one transfer moves: what the server keeps memory for.
const LARGEST_TRANSFER: u64 = 1 << 30;

/// Bytes that are under way at a time: each transfer has memory of its own.
const MOST_BYTES: u64 = 4 * LARGEST_TRANSFER;

/// Memory that is kept for the next transfers: so many pieces at most, and so many bytes.
const MOST_SPARE: (usize, usize) = (128, LARGEST_TRANSFER as usize);

/// Bytes that are worked on at once: they stay in the nearest cache.
const PIECE: usize = 16 << 10;

/// Which way bulk data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Direction {
    /// From the caller's memory to the server.
    Pull,
    /// From the server to the caller's memory.
    Push,
}

/// How a pipeline goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Flow {
    /// Bytes of a block.
    pub block: u64,
    /// Blocks in flight.
    pub depth: u32,
    /// How often each block is gone through once it is here.
    pub passes: u32,
    /// Whether the data is moved at all; else memory that is here is worked on.
    pub moves: bool,
}

/// Answers, and moves data.
#[service(name = "petasos.Bench")]
pub trait Bench {
    /// Does nothing.
    async fn null(&self);
    /// Gives a small message back.
    async fn small(&self, message: [u8; MESSAGE]) -> [u8; MESSAGE];
    /// Gives a message of any size back.
    async fn echo(&self, message: Vec<u8>) -> Vec<u8>;
    /// Takes a message of any size.
    async fn take(&self, message: Vec<u8>);
    /// Looks at both ends of the caller's numbers where they lie, and gives their sum; nothing if
    /// they do not lie where they can be read.
    async fn ends(&self, context: Context, numbers: Loan<u64>) -> Result<Option<u64>, String>;
    /// Pulls all of the caller's memory, block by block, and works on each: gives the sum of all
    /// its words, once for each pass.
    async fn pipeline(
        &self,
        context: Context,
        memory: BulkHandle,
        flow: Flow,
    ) -> Result<u64, String>;
    /// Moves all of the caller's memory, so many times, between it and memory that the server
    /// keeps: what was pulled is pushed.
    async fn transfer(
        &self,
        context: Context,
        memory: BulkHandle,
        way: Direction,
        times: u32,
    ) -> Result<(), String>;
}

/// The implementation.
#[derive(Default)]
pub struct Measured {
    /// Memory used again, so that the system is not measured giving it.
    spare: RefCell<Vec<Region>>,
    /// Bytes under way.
    moving: Cell<u64>,
}

/// A transfer that counts; ends also when the caller goes away.
struct Moving<'a> {
    bench: &'a Measured,
    memory: Region,
    len: u64,
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.bench.moving.set(self.bench.moving.get() - self.len);
        let mut spare = self.bench.spare.borrow_mut();
        spare.push(self.memory.clone());
        // The smallest first, and they go first: the largest serves all.
        spare.sort_by_key(Region::len);
        let (most, bytes) = MOST_SPARE;
        while spare.len() > most || spare.iter().map(Region::len).sum::<usize>() > bytes {
            spare.remove(0);
        }
    }
}

impl Measured {
    fn begin(&self, len: u64) -> Result<Moving<'_>, String> {
        if len > LARGEST_TRANSFER {
            return Err(format!("{len} bytes are more than the {LARGEST_TRANSFER} of a transfer"));
        }
        if self.moving.get() + len > MOST_BYTES {
            return Err(format!("{MOST_BYTES} bytes are under way, try again later"));
        }
        self.moving.set(self.moving.get() + len);
        let mut spare = self.spare.borrow_mut();
        let fits = spare.iter().position(|region| region.len() as u64 >= len);
        let memory = fits.map_or_else(|| Region::zeroed(len as usize), |found| spare.remove(found));
        Ok(Moving { bench: self, memory, len })
    }
}

/// The sum of all words of the bytes, those that are no whole word left out.
pub fn sum(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().fold(0, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
}

/// Goes through a block so many times: what a program does with its data.
fn work(block: &Slice, passes: u32, piece: &mut [u8]) -> u64 {
    let mut all = 0_u64;
    for at in (0..block.len()).step_by(piece.len()) {
        let part = &mut piece[..PIECE.min(block.len() - at)];
        block.read(at, part);
        for _ in 0..passes {
            all = all.wrapping_add(sum(black_box(part)));
        }
    }
    all
}

async fn go(remote: &RemoteBulk, way: Direction, local: &Slice) -> Result<(), petasos::BulkError> {
    match way {
        Direction::Pull => remote.pull_into(0, local.clone()).await?,
        Direction::Push => remote.push(0, local.clone()).await?,
    };
    Ok(())
}

impl Bench for Measured {
    async fn null(&self) {}

    async fn small(&self, message: [u8; MESSAGE]) -> [u8; MESSAGE] {
        message
    }

    async fn echo(&self, message: Vec<u8>) -> Vec<u8> {
        message
    }

    async fn take(&self, message: Vec<u8>) {
        black_box(message);
    }

    async fn ends(&self, context: Context, numbers: Loan<u64>) -> Result<Option<u64>, String> {
        let numbers = context.engine().borrow(&numbers).await.map_err(|e| e.to_string())?;
        let end = |at: usize| numbers.get(at).filter(|_| numbers.is_in_place());
        Ok(end(0).zip(end(numbers.len().wrapping_sub(1))).map(|(a, b)| a.wrapping_add(b)))
    }

    async fn pipeline(
        &self,
        context: Context,
        memory: BulkHandle,
        flow: Flow,
    ) -> Result<u64, String> {
        let remote = context.engine().open(&memory).map_err(|e| e.to_string())?;
        let Flow { block, depth, passes, moves } = flow;
        let room = block.saturating_mul(u64::from(depth) + 1);
        if block == 0 || depth == 0 || room > LARGEST_TRANSFER {
            let text = format!("{depth} blocks of {block} bytes: at least one of each");
            return Err(format!("{text}, and {LARGEST_TRANSFER} bytes in all at most"));
        }
        let (mut piece, mut all) = (vec![0; PIECE], 0_u64);
        if moves {
            let mut blocks = remote.blocks(block as usize, depth as usize);
            while let Some(block) = blocks.next().await {
                let block = block.map_err(|e| e.to_string())?;
                all = all.wrapping_add(work(&block, passes, &mut piece));
            }
        } else {
            let local = self.begin(block)?;
            let here = local.memory.slice(0, block as usize).ok_or("no memory of that size")?;
            for _ in 0..remote.len().div_ceil(block) {
                all = all.wrapping_add(work(&here, passes, &mut piece));
            }
        }
        Ok(all)
    }

    async fn transfer(
        &self,
        context: Context,
        memory: BulkHandle,
        way: Direction,
        times: u32,
    ) -> Result<(), String> {
        let remote = context.engine().open(&memory).map_err(|e| e.to_string())?;
        let len = remote.len();
        let moving = self.begin(len)?;
        let local = moving.memory.slice(0, len as usize).ok_or("no memory of that size")?;
        for _ in 0..times {
            go(&remote, way, &local).await.map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}
