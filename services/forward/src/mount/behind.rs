//! Write-behind: a write is answered when its data is here, and goes to the server with others.
//!
//! Each file has a block that is being filled, blocks that wait, and blocks on their way. What is written
//! after a pause goes at once; what follows is gathered, if it continues what was written before, and goes
//! when a block is full, when some time has passed, or when a request waits for it. Blocks that overlap
//! go one after the other, and so do those of files that are appended to.
//!
//! An error is remembered by each file that has the node open to write, and told by its next write,
//! by `fsync`, and by `close`.

use super::{
    files::{Inode, Open},
    fs::Fs,
    intake::Incoming,
    pool::{BLOCK, Filled, Pool},
};
use bytes::Bytes;
use futures_channel::oneshot;
use petasos::fabric::Region;
use rustix::io::Errno;
use std::{
    collections::VecDeque,
    mem,
    ops::Range,
    rc::Rc,
    time::{Duration, Instant},
};

/// Blocks of one file that are on their way at a time.
const DEPTH: usize = 6;

/// How long a block that is not full waits for more.
const LINGER: Duration = Duration::from_millis(10);

/// Data that was written.
#[derive(Debug)]
pub(super) enum Data {
    /// Little.
    Bytes(Bytes),
    /// Much, or gathered.
    Block(Filled),
}

impl Data {
    pub(super) fn len(&self) -> usize {
        match self {
            Data::Bytes(bytes) => bytes.len(),
            Data::Block(block) => block.len,
        }
    }

    fn as_slice(&self) -> &[u8] {
        match self {
            Data::Bytes(bytes) => bytes,
            Data::Block(block) => &block.memory[..block.len],
        }
    }

    /// Adds more at the end; all of it is no longer than a block.
    pub(super) fn append(&mut self, more: &[u8], pool: &Pool) {
        if let Data::Bytes(bytes) = self {
            *self = Data::Block(pool.filled(bytes));
        }
        let Data::Block(block) = self else { unreachable!("it was made a block") };
        block.memory[block.len..block.len + more.len()].copy_from_slice(more);
        block.len += more.len();
    }
}

/// A piece of a file that the server has not confirmed.
struct Piece {
    open: Rc<Open>,
    number: u64,
    offset: u64,
    data: Data,
}

impl Piece {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.data.len() as u64
    }

    fn is_continued_by(&self, open: &Rc<Open>, offset: u64, len: usize) -> bool {
        Rc::ptr_eq(&self.open, open) && offset == self.range().end && self.data.len() + len <= BLOCK
    }
}

/// On its way.
#[derive(Debug)]
struct Flying {
    number: u64,
    range: Range<u64>,
    append: bool,
}

/// What of one file is not at the server yet.
#[derive(Default)]
pub(super) struct Behind {
    tail: Option<Piece>,
    queue: VecDeque<Piece>,
    flying: Vec<Flying>,
    /// Of the next piece.
    next: u64,
    /// When something was sent last.
    sent: Option<Instant>,
    /// A future comes back when a block that is not full has waited long enough.
    lingers: bool,
    changed: Vec<oneshot::Sender<()>>,
}

impl Behind {
    pub(super) fn is_empty(&self) -> bool {
        self.tail.is_none() && self.queue.is_empty() && self.flying.is_empty()
    }

    /// Whether something of this range is not at the server.
    pub(super) fn touches(&self, range: &Range<u64>) -> bool {
        let waiting = self.tail.iter().chain(&self.queue);
        let mut pieces = waiting.map(|piece| (piece.range(), piece.open.is_append()));
        let mut flying = self.flying.iter().map(|f| (f.range.clone(), f.append));
        // Where appended data lands is only known afterwards.
        let touches = |(other, append): (Range<u64>, bool)| append || overlap(&other, range);
        pieces.any(touches) || flying.any(touches)
    }

    /// Where the file ends, as far as it was written here.
    pub(super) fn end(&self) -> u64 {
        let waiting = self.tail.iter().chain(&self.queue).map(|piece| piece.range().end);
        waiting.chain(self.flying.iter().map(|f| f.range.end)).max().unwrap_or(0)
    }

    fn has_older_than(&self, number: u64) -> bool {
        let waiting = self.tail.iter().chain(&self.queue).map(|piece| piece.number);
        waiting.chain(self.flying.iter().map(|f| f.number)).any(|n| n < number)
    }

    fn add(&mut self, open: &Rc<Open>, offset: u64, data: Data, pool: &Pool) {
        match &mut self.tail {
            Some(tail) if tail.is_continued_by(open, offset, data.len()) => {
                tail.data.append(data.as_slice(), pool);
                if let Data::Block(block) = data {
                    pool.give(block.memory);
                }
            }
            tail => {
                self.queue.extend(tail.take());
                let (open, number) = (Rc::clone(open), self.next);
                self.next += 1;
                *tail = Some(Piece { open, number, offset, data });
            }
        }
        if self.tail.as_ref().is_some_and(|tail| tail.data.len() >= BLOCK) {
            self.queue.extend(self.tail.take());
        }
    }

    /// What may go now.
    fn depart(&mut self) -> Option<Piece> {
        let next = match self.queue.front() {
            Some(next) if self.flying.len() < DEPTH => next,
            None if self.flying.is_empty() && !self.has_just_sent() => self.tail.as_ref()?,
            _ => return None,
        };
        let (range, append) = (next.range(), next.open.is_append());
        if self.flying.iter().any(|f| f.append || append || overlap(&f.range, &range)) {
            return None;
        }
        self.sent = Some(Instant::now());
        self.flying.push(Flying { number: next.number, range, append });
        self.queue.pop_front().or_else(|| self.tail.take())
    }

    fn has_just_sent(&self) -> bool {
        self.sent.is_some_and(|sent| sent.elapsed() < LINGER)
    }

    fn landed(&mut self, number: u64) {
        self.flying.retain(|f| f.number != number);
        self.changed.clear();
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Fs {
    /// Takes what has come in for a file since the last time.
    pub(super) fn collect(&self, inode: &Rc<Inode>) {
        let intake = inode.intake.borrow().clone();
        let pieces = intake.map_or(Vec::new(), |intake| intake.take());
        if pieces.is_empty() {
            return;
        }
        inode.changed_here();
        self.node_changed(inode.ino);
        for Incoming { handle, offset, data, from_cache } in pieces {
            match self.open_file(handle).and_then(|open| Fs::open_to_write(open, from_cache)) {
                Ok(open) => {
                    self.grown(&open, offset, data.len());
                    inode.behind.borrow_mut().add(&open, offset, data, &self.pool);
                }
                Err(errno) => {
                    self.intakes.settle(data.len());
                    self.lose(inode, errno);
                }
            }
        }
    }

    /// The kernel takes a file to be so long at least once it has written this.
    pub(super) fn grown(&self, open: &Open, offset: u64, len: usize) {
        self.table.borrow_mut().grow(open.inode.ino, offset.saturating_add(len as u64));
    }

    /// Looks after a file of which something has come in.
    pub(super) fn tend_to(self: &Rc<Fs>, ino: u64) {
        let inode = self.inodes.borrow().get(&ino).map(Rc::clone);
        if let Some(inode) = inode {
            self.tend(&inode);
        }
    }

    /// Takes what has come in for a file, and sends what may go. From then on until all is at the server
    /// a future comes back to this: one that carries something, or waits for a block to become full.
    fn tend(self: &Rc<Fs>, inode: &Rc<Inode>) {
        loop {
            self.collect(inode);
            self.send_off(inode);
            let behind = &mut *inode.behind.borrow_mut();
            if behind.is_empty() {
                match &*inode.intake.borrow() {
                    Some(intake) if !intake.rest() => continue,
                    _ => return,
                }
            }
            if !behind.flying.is_empty() || mem::replace(&mut behind.lingers, true) {
                return;
            }
            let (fs, inode) = (Rc::clone(self), Rc::clone(inode));
            return self.spawn(async move {
                fs.timer.sleep(LINGER).await;
                inode.behind.borrow_mut().lingers = false;
                fs.tend(&inode);
            });
        }
    }

    /// Something that was written, and answered, is lost: each descriptor that has the file open to
    /// write is told.
    fn lose(&self, inode: &Inode, errno: Errno) {
        if let Some(intake) = &*inode.intake.borrow() {
            intake.refuse();
        }
        inode.each_open(|open| {
            if open.is_writable() {
                open.failed.set(Some(errno));
            }
        });
    }

    /// Takes over what was written. Returns when there is room for more.
    pub(super) async fn write_behind(self: &Rc<Fs>, open: &Rc<Open>, offset: u64, data: Data) {
        self.collect(&open.inode);
        self.intakes.add(data.len());
        open.inode.behind.borrow_mut().add(open, offset, data, &self.pool);
        if let Some(intake) = &*open.inode.intake.borrow() {
            intake.tend();
        }
        self.tend(&open.inode);
        while !self.intakes.has_room() {
            let (sender, room) = oneshot::channel();
            self.room.borrow_mut().push(sender);
            let _ = room.await;
        }
    }

    /// Waits until all that was written to a file is at the server, or was refused there.
    pub(super) async fn drain(self: &Rc<Fs>, inode: &Rc<Inode>) {
        self.collect(inode);
        let last = {
            let behind = &mut *inode.behind.borrow_mut();
            if behind.is_empty() {
                return;
            }
            let tail = behind.tail.take();
            behind.queue.extend(tail);
            behind.next
        };
        self.send_off(inode);
        loop {
            let landed = {
                let behind = &mut *inode.behind.borrow_mut();
                if !behind.has_older_than(last) {
                    return;
                }
                let (sender, landed) = oneshot::channel();
                behind.changed.push(sender);
                landed
            };
            // The other end is dropped.
            let _ = landed.await;
        }
    }

    /// Sends what may go.
    fn send_off(self: &Rc<Fs>, inode: &Rc<Inode>) {
        loop {
            let piece = inode.behind.borrow_mut().depart();
            let Some(piece) = piece else { return };
            let fs = Rc::clone(self);
            self.spawn(async move { fs.carry(piece).await });
        }
    }

    async fn carry(self: Rc<Fs>, piece: Piece) {
        let Piece { open, number, offset, data } = piece;
        let len = data.len();
        let turn = self.carriers.acquire().await;
        let written = match open.failed.get() {
            // What follows a write that was lost would wait as long for nothing.
            Some(Errno::IO) => Err(Errno::IO),
            _ => self.write_out(&open, offset, data).await,
        };
        drop(turn);
        if let Err(errno) = written {
            tracing::warn!(file = open.file.subject(), %errno, "what was written is lost");
            open.failed.set(Some(errno));
            self.lose(&open.inode, errno);
        }
        open.inode.behind.borrow_mut().landed(number);
        // What was listed while it was on its way.
        self.node_changed(open.inode.ino);
        self.intakes.settle(len);
        if self.intakes.has_room() {
            mem::take(&mut *self.room.borrow_mut());
        }
        self.tend(&open.inode);
    }

    /// Writes to the server, and waits for that.
    pub(super) async fn write_out(
        &self,
        open: &Open,
        offset: u64,
        data: Data,
    ) -> Result<(), Errno> {
        let inline = open.file.remote().welcome().inline as usize;
        let written = match data {
            Data::Bytes(bytes) if bytes.len() <= inline => {
                open.file.write_bytes(offset, bytes).await
            }
            Data::Bytes(bytes) => {
                let region = Region::from_vec(bytes.to_vec());
                open.file.write_at(offset, region.whole()).await
            }
            Data::Block(block) => {
                let region = block.memory.into_region();
                let data = region.slice(0, block.len).expect("no more than was filled");
                let written = open.file.write_at(offset, data).await;
                self.pool.give_region(region);
                written
            }
        };
        written.map(drop).map_err(|error| self.file_errno(open, &error))
    }
}
