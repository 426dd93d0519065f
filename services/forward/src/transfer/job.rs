//! What the parts of one transfer share, on the engine's thread.

use super::{
    Cause, Connection, Event, Observer, Options, Problem, Progress, Report,
    disk::{Disk, Rate},
    tasks::{Budget, Share, TaskSet},
};
use crate::{
    RelPath,
    client::RemoteError,
    protocol::{Extent, Hash, SetAttr},
};
use petasos::fabric::Region;
use rustix::io::Errno;
use std::{
    cell::{Cell, RefCell, RefMut},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Instant,
};

/// What is compared at a time.
pub(super) const BLOCK: u64 = 4 << 20;

/// The longest piece that is moved: what servers move at a time. Longer ones would be more memory
/// on the way, which the system has to clear for each process that is new, and which no cache
/// holds.
const PIECE: u64 = 1 << 20;

/// Threads for the disk.
pub(super) const THREADS: usize = 2;

/// Pieces of one file on the way at a time.
pub(super) const PIECES: usize = 6;

/// Sessions in which one file is tried.
pub(super) const TRIES: u32 = 8;

/// Blocks whose hashes one call asks for.
pub(super) const HASHES: usize = 16;

/// Large pieces on the way at a time: a server takes so many calls of one client.
const MOST_PIECES: u64 = 96;

/// A part of the memory is for small files that are ready; the rest for pieces.
const SMALL_PART: u64 = 8;

/// What the parts of one transfer share.
pub(super) struct Job {
    pub(super) connection: Rc<Connection>,
    pub(super) options: Options,
    pub(super) progress: Arc<Progress>,
    pub(super) tasks: TaskSet,
    pub(super) disk: Disk,
    pub(super) rate: Option<Arc<Rate>>,
    /// Files on the way.
    pub(super) slots: Rc<Budget>,
    /// Memory for pieces.
    memory: Rc<Budget>,
    spare: RefCell<Vec<Region>>,
    report: RefCell<Report>,
    watch: Observer,
    begun: Instant,
    reconnected: Cell<u64>,
}

/// Memory for a piece.
pub(super) struct Memory {
    pub(super) region: Region,
    pub(super) len: usize,
    pub(super) share: Share,
}

impl Job {
    pub(super) fn new(
        connection: &Rc<Connection>,
        options: &Options,
        progress: &Arc<Progress>,
        watch: Observer,
    ) -> Result<Rc<Job>, Cause> {
        let starting = |error: std::io::Error| Cause::Local {
            doing: "starting a thread",
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        };
        let memory = options.memory - options.memory / SMALL_PART;
        let memory = memory.clamp(BLOCK, MOST_PIECES * BLOCK);
        Ok(Rc::new(Job {
            connection: Rc::clone(connection),
            options: options.clone(),
            progress: Arc::clone(progress),
            tasks: TaskSet::default(),
            disk: Disk::start(THREADS).map_err(starting)?,
            rate: options.rate.map(|rate| Arc::new(Rate::new(rate))),
            slots: Budget::new(options.parallel.max(1) as u64),
            memory: Budget::new(memory),
            spare: RefCell::default(),
            report: RefCell::default(),
            watch,
            begun: Instant::now(),
            reconnected: Cell::new(connection.reconnected()),
        }))
    }

    pub(super) fn report(&self) -> RefMut<'_, Report> {
        self.report.borrow_mut()
    }

    pub(super) fn say(&self, event: Event<'_>) {
        (self.watch)(event);
    }

    /// Something was not moved. What fails because the server is gone is counted, and not told one
    /// by one.
    pub(super) fn failed(&self, problem: Problem) {
        let for_that = problem.cause.lost() || matches!(problem.cause, Cause::Directory);
        if for_that && let Some(failure) = self.connection.failure() {
            let mut report = self.report();
            report.unreached += 1;
            report.lost.get_or_insert(failure);
            return;
        }
        (self.watch)(Event::Failed(&problem));
        self.report().problems.push(problem);
    }

    pub(super) fn left_out(&self, path: &[u8], what: &'static str) {
        (self.watch)(Event::LeftOut(path, what));
        self.report().left_out += 1;
    }

    /// A file is there.
    pub(super) fn file(&self) {
        self.report().files += 1;
        self.progress.files.fetch_add(1, Relaxed);
    }

    /// A file was there, of so many bytes.
    pub(super) fn same(&self, bytes: u64) {
        self.report().same += 1;
        self.progress.files.fetch_add(1, Relaxed);
        self.progress.done(bytes);
    }

    /// Bytes were moved.
    pub(super) fn moved(&self, bytes: u64) {
        self.report().bytes += bytes;
        self.progress.done(bytes);
    }

    /// Whether the server was lost for good: nothing more is begun.
    pub(super) fn is_over(&self) -> bool {
        self.connection.is_over()
    }

    /// After a loss: waits for the next session, if there is to be one.
    pub(super) async fn next_session(&self) -> Result<(), Cause> {
        self.connection.stat(&RelPath::root(), true).await?;
        Ok(())
    }

    pub(super) fn finish(&self) -> Report {
        let mut report = self.report.take();
        if report.lost.is_none()
            && let Some(failure) = self.connection.failure()
        {
            // What comes last was not done.
            report.unreached += 1;
            report.lost = Some(failure);
        }
        report.took = self.begun.elapsed();
        report.reconnected = self.connection.reconnected() - self.reconnected.get();
        report
    }

    /// The largest piece: what the server wants lent at once, and a part of a block.
    pub(super) fn piece(&self) -> u64 {
        let window = self.connection.remote().welcome().window.clamp(64 << 10, PIECE);
        1 << window.ilog2()
    }

    /// Waits for memory.
    pub(super) async fn memory(&self, len: u64) -> Memory {
        let share = self.memory.take(len).await;
        let piece = self.piece() as usize;
        let len = len as usize;
        let region = match len > piece / 2 && len <= piece {
            true => {
                let spare = self.spare.borrow_mut().pop().filter(|spare| spare.len() == piece);
                spare.unwrap_or_else(|| Region::zeroed(piece))
            }
            false => Region::from_vec(vec![0; len]),
        };
        Memory { region, len, share }
    }

    /// Memory that is not used any more may be used again.
    pub(super) fn reuse(&self, memory: Memory) {
        let Memory { region, share, .. } = memory;
        if region.is_unique() && region.len() as u64 == self.piece() {
            self.spare.borrow_mut().push(region);
        }
        drop(share);
    }
}

/// Parts of a file in pieces, none of which lies in two blocks.
pub(super) fn pieces(parts: &[Extent], piece: u64) -> Vec<Extent> {
    let mut pieces = Vec::new();
    for part in parts {
        let (mut at, end) = (part.offset, part.offset.saturating_add(part.len));
        while at < end {
            let next = (at / piece + 1).saturating_mul(piece).min(end);
            pieces.push(Extent { offset: at, len: next - at });
            at = next;
        }
    }
    pieces
}

/// The blocks in which there is something of these parts, of a file of this length; in order.
pub(super) fn blocks(parts: &[Extent], size: u64) -> Vec<Extent> {
    let mut blocks: Vec<Extent> = Vec::new();
    for part in parts.iter().filter(|part| part.len > 0 && part.offset < size) {
        let last = (part.offset.saturating_add(part.len).min(size) - 1) / BLOCK;
        for number in part.offset / BLOCK..=last {
            let offset = number * BLOCK;
            if blocks.last().is_none_or(|block| block.offset < offset) {
                blocks.push(Extent { offset, len: BLOCK.min(size - offset) });
            }
        }
    }
    blocks
}

/// The parts of both, in order, as [`blocks`] takes them.
pub(super) fn either(mut one: Vec<Extent>, other: Vec<Extent>) -> Vec<Extent> {
    one.extend(other);
    one.sort_by_key(|part| part.offset);
    one
}

/// Runs of blocks that follow each other, so long at most.
pub(super) fn runs(blocks: &[Extent], most: usize) -> impl Iterator<Item = &[Extent]> {
    blocks.chunk_by(|a, b| a.offset + a.len == b.offset).flat_map(move |run| run.chunks(most))
}

/// The block in which something lies.
pub(super) fn block_of(offset: u64) -> u64 {
    offset / BLOCK * BLOCK
}

/// What a server sent as parts of a file: in order, within its length, at most `most`.
pub(super) fn checked(parts: Vec<Extent>, from: u64, size: u64) -> Vec<Extent> {
    let mut at = from;
    let mut checked = Vec::with_capacity(parts.len().min(1024));
    for part in parts {
        let offset = part.offset.max(at);
        let end = part.offset.saturating_add(part.len).min(size);
        if offset < end {
            checked.push(Extent { offset, len: end - offset });
            at = end;
        }
    }
    checked
}

/// All parts of a file at the server that have data.
pub(super) async fn extents(
    file: &crate::client::RemoteFile,
    size: u64,
) -> Result<Vec<Extent>, RemoteError> {
    /// The most that one answer has.
    const PAGE: usize = 1024;
    let mut all: Vec<Extent> = Vec::new();
    loop {
        let from = all.last().map_or(0, |last| last.offset + last.len);
        let page = file.extents(from).await?;
        let full = page.len() >= PAGE;
        let page = checked(page, from, size);
        if page.is_empty() {
            return Ok(all);
        }
        all.extend(page);
        if !full {
            return Ok(all);
        }
    }
}

/// Hashes of a run of blocks at the server.
pub(super) async fn hashes(
    file: &crate::client::RemoteFile,
    run: &[Extent],
) -> Result<Vec<Hash>, RemoteError> {
    let (Some(first), Some(last)) = (run.first(), run.last()) else { return Ok(Vec::new()) };
    let range = Extent { offset: first.offset, len: last.offset + last.len - first.offset };
    file.hashes(range, BLOCK).await
}

/// What may be set where the other side keeps no attributes.
pub(super) fn settable(set: SetAttr, attributes: bool) -> SetAttr {
    if attributes { set } else { SetAttr::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(offset: u64, len: u64) -> Extent {
        Extent { offset, len }
    }

    #[test]
    fn files_in_pieces() {
        assert_eq!(pieces(&[extent(0, 0)], 4), []);
        assert_eq!(
            pieces(&[extent(3, 6), extent(20, 1)], 4),
            [extent(3, 1), extent(4, 4), extent(8, 1), extent(20, 1)]
        );
    }

    #[test]
    fn files_in_blocks() {
        let size = 3 * BLOCK + 5;
        let found =
            blocks(&[extent(1, 1), extent(7, 1), extent(BLOCK * 2 - 1, 2), extent(size, 9)], size);
        assert_eq!(found.iter().map(|b| b.offset / BLOCK).collect::<Vec<_>>(), [0, 1, 2]);
        let last = blocks(&[extent(3 * BLOCK, 5)], size);
        assert_eq!(last, [extent(3 * BLOCK, 5)]);
        let runs: Vec<_> = runs(&[found[0], found[1], last[0]], 64).map(<[_]>::len).collect();
        assert_eq!(runs, [2, 1]);
    }

    #[test]
    fn what_a_server_says_of_holes() {
        let odd = vec![extent(5, 5), extent(0, 3), extent(8, u64::MAX), extent(u64::MAX, 1)];
        assert_eq!(checked(odd, 2, 100), [extent(5, 5), extent(10, 90)]);
    }
}
