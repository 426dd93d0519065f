//! Calls about open files, with data that the caller lends: the server moves it, block by block.
//!
//! While some blocks are on the network, others are with the disk. Their order in time does not
//! matter, but for files that are appended to.

use super::{blocks::BLOCK, call::Call, call::within_reach, config::WINDOW, files::OpenFile};
use crate::{FsError, FsResult, semaphore::Semaphore};
use futures_util::stream::{FuturesUnordered, StreamExt};
use petasos::{BulkError, BulkHandle, Context, RemoteBulk};
use rustix::io::Errno;
use std::{cell::Cell, io::IoSlice, sync::Arc};

/// Blocks of one call that are on the way or with the disk.
const DEPTH: usize = 6;

/// Of these, at most so many are being written: systems write to a file one at a time, and one
/// more that waits keeps the thread from idling.
const WRITING: usize = 2;

impl Call {
    pub(super) async fn write_from(
        &self,
        context: &Context,
        number: u64,
        offset: u64,
        data: &BulkHandle,
    ) -> FsResult<u64> {
        self.to_change()?;
        self.is_of(context)?;
        let file = self.file(number)?;
        file.to_write()?;
        let len = within_window(data)?;
        within_reach(if file.appends() { 0 } else { offset }, len)?;
        let remote = open(context, data)?;
        if len == 0 {
            return Ok(offset);
        }
        if file.appends() {
            return self.append(&file, &remote, len).await;
        }
        let writing = Semaphore::new(WRITING, usize::MAX);
        self.flow(len, async |at, size, go_on| {
            let mut block = self.core.blocks.get(self.session.client).await?;
            if !go_on() {
                return Ok(size);
            }
            remote.pull_into(at, block.lend(size)).await.map(drop).map_err(unreachable)?;
            let _turn = writing.acquire().await;
            if !go_on() {
                return Ok(size);
            }
            let file = Arc::clone(&file);
            let written = self.run(size as u64, move |_| {
                file.file.write_at(offset + at, &[IoSlice::new(&block.own()[..size])])
            });
            written.await?;
            self.count_written(size as u64);
            Ok(size)
        })
        .await?;
        Ok(offset + len)
    }

    /// One block after the other, each to the end.
    async fn append(&self, file: &Arc<OpenFile>, remote: &RemoteBulk, len: u64) -> FsResult<u64> {
        let _turn = file.appending.acquire().await;
        let (mut at, mut end) = (0, 0);
        while at < len {
            let size = (len - at).min(BLOCK as u64) as usize;
            self.earn(size as u64).await;
            let _moving = self.turn_to_move().await;
            let mut block = self.core.blocks.get(self.session.client).await?;
            remote.pull_into(at, block.lend(size)).await.map(drop).map_err(unreachable)?;
            let file = Arc::clone(file);
            let written = self.run(size as u64, move |_| {
                file.file.write_at(0, &[IoSlice::new(&block.own()[..size])])
            });
            end = written.await?;
            self.count_written(size as u64);
            at += size as u64;
        }
        Ok(end)
    }

    pub(super) async fn read_into(
        &self,
        context: &Context,
        number: u64,
        offset: u64,
        into: &BulkHandle,
    ) -> FsResult<u64> {
        self.is_of(context)?;
        let file = self.file(number)?;
        file.to_read()?;
        let len = within_window(into)?;
        within_reach(offset, 0)?;
        let len = len.min(i64::MAX as u64 - offset);
        let remote = open(context, into)?;
        let count = self.flow(len, async |at, size, go_on| {
            let mut block = self.core.blocks.get(self.session.client).await?;
            if !go_on() {
                return Ok(size);
            }
            let file = Arc::clone(&file);
            let read = self.run(size as u64, move |_| {
                let count = file.file.read_at(offset + at, &mut block.own()[..size])?;
                Ok((block, count.min(size)))
            });
            let (mut block, count) = read.await?;
            if count > 0 {
                remote.push(at, block.lend(count)).await.map(drop).map_err(unreachable)?;
            }
            Ok(count)
        });
        let count = count.await?;
        self.count_read(count);
        Ok(count)
    }

    /// Moves `len` bytes by blocks, several at a time: `piece` moves one, and says how much there
    /// was. A block that is short is the last; after a failure no other one begins. Gives how much
    /// there was up to the first short block.
    async fn flow<P>(&self, len: u64, piece: P) -> FsResult<u64>
    where
        P: AsyncFn(u64, usize, &dyn Fn() -> bool) -> FsResult<usize>,
    {
        let over = Cell::new(false);
        let go_on = || !over.get();
        let step = async |at: u64| {
            let size = (len - at).min(BLOCK as u64) as usize;
            self.earn(size as u64).await;
            let _turn = self.turn_to_move().await;
            (at, size, piece(at, size, &go_on).await)
        };
        let mut flow = FuturesUnordered::new();
        let (mut next, mut end, mut failure) = (0, len, None);
        loop {
            while flow.len() < DEPTH && next < end && failure.is_none() {
                flow.push(step(next));
                next += BLOCK as u64;
            }
            match flow.next().await {
                None => break,
                Some((at, size, Ok(count))) if count < size => end = end.min(at + count as u64),
                Some((_, _, Ok(_))) => {}
                Some((_, _, Err(error))) => {
                    over.set(true);
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(end), Err)
    }

    /// The call has to come from where the session began.
    fn is_of(&self, context: &Context) -> FsResult<()> {
        match context.peer() == self.session.peer {
            true => Ok(()),
            false => Err(FsError::new(Errno::ACCESS, "the session is another client's")),
        }
    }
}

fn within_window(lent: &BulkHandle) -> FsResult<u64> {
    match lent.len() {
        len @ 0..=WINDOW => Ok(len),
        len => {
            let detail = format!("{len} bytes are lent, where the most are {WINDOW}");
            Err(FsError::new(Errno::MSGSIZE, detail))
        }
    }
}

fn open(context: &Context, lent: &BulkHandle) -> FsResult<RemoteBulk> {
    let remote = context.engine().open(lent).map_err(unreachable)?;
    match remote.len() == lent.len() {
        true => Ok(remote),
        false => Err(FsError::new(Errno::INVAL, "the lent memory is not as long as it says")),
    }
}

/// What a caller lent cannot be reached.
fn unreachable(error: BulkError) -> FsError {
    FsError::new(Errno::FAULT, error.to_string())
}
