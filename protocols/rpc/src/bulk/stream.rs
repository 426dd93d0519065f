//! Pipelines: blocks are moved while the program works on others.

use super::{RemoteBulk, remote::Transfer};
use crate::BulkError;
use petasos_fabric::{Buffer, Region, Slice};
use std::{cell::RefCell, collections::VecDeque, ops::Deref, rc::Rc};

impl RemoteBulk {
    /// Pulls all data in blocks of `block` bytes: `depth` of them are on the way while the program
    /// works on another. At most `depth + 1` blocks of memory are in use.
    ///
    /// # Panics
    /// If `block` or `depth` is zero.
    #[must_use]
    pub fn blocks(&self, block: usize, depth: usize) -> BlockStream {
        BlockStream::new(self.clone(), block, depth)
    }

    /// The other direction: blocks that are pushed one after the other, `depth` at a time.
    ///
    /// # Panics
    /// If `depth` is zero.
    #[must_use]
    pub fn sink(&self, depth: usize) -> Sink {
        Sink::new(self.clone(), depth)
    }
}

/// Blocks of bulk memory, in order, pulled ahead of their use: the first pulls begin with the first
/// [`BlockStream::next`].
///
/// Dropping it cancels the pulls under way.
///
/// ```
/// use petasos_rpc::{Access, Engine, EngineConfig, Region};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let bulk = engine.bulk(Region::from_vec(vec![1; 1_000_000]), Access::READ)?;
/// let remote = engine.open(&bulk.handle())?;
/// // Four blocks of 64 KiB are on the way while one is worked on: at most 320 KiB of memory.
/// let mut blocks = remote.blocks(64 << 10, 4);
/// let mut sum = 0;
/// engine.block_on(async {
///     while let Some(block) = blocks.next().await {
///         sum += block?.to_vec().iter().map(|byte| u64::from(*byte)).sum::<u64>();
///     }
///     Ok::<(), petasos_rpc::BulkError>(())
/// })?;
/// assert_eq!(sum, 1_000_000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BlockStream {
    bulk: RemoteBulk,
    block: usize,
    depth: usize,
    next: u64,
    coming: VecDeque<(u64, Transfer)>,
    spare: Rc<RefCell<Vec<Region>>>,
}

impl BlockStream {
    fn new(bulk: RemoteBulk, block: usize, depth: usize) -> BlockStream {
        assert!(block > 0 && depth > 0, "blocks and depth must not be zero");
        let (coming, spare) = (VecDeque::new(), Rc::default());
        BlockStream { bulk, block, depth, next: 0, coming, spare }
    }

    /// The next block; `None` after the last one, and after an error.
    ///
    /// # Errors
    /// As [`RemoteBulk::pull_into`].
    ///
    /// Dropping the future loses nothing: the next call returns the block.
    pub async fn next(&mut self) -> Option<Result<Block, BulkError>> {
        while self.coming.len() < self.depth && self.next < self.bulk.len() {
            let len = (self.bulk.len() - self.next).min(self.block as u64) as usize;
            let spare = self.spare.borrow_mut().pop();
            let fresh = || Region::from_buffer(Buffer::scratch(self.block));
            let region = spare.unwrap_or_else(fresh);
            let into = region.slice(0, len).expect("a block holds a block");
            match self.bulk.start_pull(self.next, into) {
                Ok(transfer) => self.coming.push_back((self.next, transfer)),
                Err(error) => return Some(Err(self.fail(error))),
            }
            self.next += len as u64;
        }
        let (offset, transfer) = self.coming.front_mut()?;
        let (offset, result) = (*offset, transfer.await);
        self.coming.pop_front();
        Some(match result {
            Ok(memory) => Ok(Block { offset, memory, spare: Rc::clone(&self.spare) }),
            Err(error) => Err(self.fail(error)),
        })
    }

    fn fail(&mut self, error: BulkError) -> BulkError {
        self.coming.clear();
        self.next = self.bulk.len();
        error
    }
}

/// A block that was pulled. Its memory is reused when it is dropped.
#[derive(Debug)]
pub struct Block {
    /// Where it begins in the bulk memory, in bytes.
    pub offset: u64,
    memory: Slice,
    spare: Rc<RefCell<Vec<Region>>>,
}

impl Deref for Block {
    type Target = Slice;
    fn deref(&self) -> &Slice {
        &self.memory
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.spare.borrow_mut().extend(self.memory.region().cloned());
    }
}

/// Blocks pushed into bulk memory, several at a time.
///
/// Dropping it cancels the pushes under way; [`Sink::finish`] waits for them instead.
///
/// ```
/// use petasos_rpc::{Access, Engine, EngineConfig, Region};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// let memory = Region::zeroed(300);
/// let bulk = engine.bulk(memory.clone(), Access::WRITE)?;
/// let mut sink = engine.open(&bulk.handle())?.sink(2);
/// engine.block_on(async {
///     for (offset, byte) in [(0, 1), (100, 2), (200, 3)] {
///         sink.push(offset, Region::from_vec(vec![byte; 100]).whole()).await?;
///     }
///     sink.finish().await
/// })?;
/// assert_eq!(memory.slice(199, 2).unwrap().to_vec(), [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Sink {
    bulk: RemoteBulk,
    depth: usize,
    going: VecDeque<Transfer>,
}

impl Sink {
    fn new(bulk: RemoteBulk, depth: usize) -> Sink {
        assert!(depth > 0, "the depth must not be zero");
        Sink { bulk, depth, going: VecDeque::new() }
    }

    /// Pushes a block to `offset`, in bytes. Waits only if `depth` blocks are on the way already,
    /// and then returns the memory of the oldest.
    ///
    /// If the future is dropped before it is ready, this block is not pushed; those before it are.
    ///
    /// # Errors
    /// That of the oldest push, if it failed, or of this one, as [`RemoteBulk::push`].
    pub async fn push(&mut self, offset: u64, block: Slice) -> Result<Option<Slice>, BulkError> {
        let mut back = None;
        if self.going.len() >= self.depth
            && let Some(oldest) = self.going.front_mut()
        {
            let result = oldest.await;
            self.going.pop_front();
            back = Some(result?);
        }
        self.going.push_back(self.bulk.start_push(offset, block)?);
        Ok(back)
    }

    /// Waits until all blocks are in place.
    ///
    /// Dropping the future cancels the pushes under way, as dropping the sink does.
    ///
    /// # Errors
    /// That of the first push that failed.
    pub async fn finish(mut self) -> Result<(), BulkError> {
        while let Some(oldest) = self.going.front_mut() {
            let result = oldest.await;
            self.going.pop_front();
            result?;
        }
        Ok(())
    }
}
