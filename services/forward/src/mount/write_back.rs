//! The write-back queue: a write is answered when its data is here, and goes to the server with
//! others.
//!
//! Each file has a block that is being filled, blocks that wait, and blocks in flight. What is
//! written after a pause is sent at once. What follows is gathered, if it continues what was
//! written before, and sent when a block is full, when some time has passed, or when a request
//! waits for it. Blocks that overlap are sent one after the other, and so are those of files that
//! are appended to.
//!
//! An error is kept by each open file of the node that is writable, and reported by its next write,
//! by `fsync`, and by `close`.

use super::{
    files::{Inode, Open},
    fs::Fs,
    pool::{BLOCK, Data, Pool},
    request_queue::WriteRequest,
};
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
const GATHER: Duration = Duration::from_millis(10);

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

/// A piece on its way to the server.
#[derive(Debug)]
struct InFlight {
    number: u64,
    range: Range<u64>,
    append: bool,
}

/// What of one file is not at the server yet.
#[derive(Default)]
pub(super) struct WriteBackQueue {
    tail: Option<Piece>,
    queue: VecDeque<Piece>,
    in_flight: Vec<InFlight>,
    /// Of the next piece.
    next: u64,
    /// When something was sent last.
    sent: Option<Instant>,
    /// A future will send a block that is not full when it has waited long enough.
    timer_set: bool,
    changed: Vec<oneshot::Sender<()>>,
}

impl WriteBackQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.tail.is_none() && self.queue.is_empty() && self.in_flight.is_empty()
    }

    /// Whether something of this range is not at the server.
    pub(super) fn touches(&self, range: &Range<u64>) -> bool {
        let waiting = self.tail.iter().chain(&self.queue);
        let mut pieces = waiting.map(|piece| (piece.range(), piece.open.is_append()));
        let mut in_flight = self.in_flight.iter().map(|f| (f.range.clone(), f.append));
        // Where appended data lands is only known afterwards.
        let touches = |(other, append): (Range<u64>, bool)| append || overlap(&other, range);
        pieces.any(touches) || in_flight.any(touches)
    }

    /// Where the file ends, as far as it was written here.
    pub(super) fn end(&self) -> u64 {
        let waiting = self.tail.iter().chain(&self.queue).map(|piece| piece.range().end);
        waiting.chain(self.in_flight.iter().map(|f| f.range.end)).max().unwrap_or(0)
    }

    fn has_older_than(&self, number: u64) -> bool {
        let waiting = self.tail.iter().chain(&self.queue).map(|piece| piece.number);
        waiting.chain(self.in_flight.iter().map(|f| f.number)).any(|n| n < number)
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

    /// Takes the next piece that may be sent now.
    fn next_to_send(&mut self) -> Option<Piece> {
        let next = match self.queue.front() {
            Some(next) if self.in_flight.len() < DEPTH => next,
            None if self.in_flight.is_empty() && !self.has_just_sent() => self.tail.as_ref()?,
            _ => return None,
        };
        let (range, append) = (next.range(), next.open.is_append());
        if self.in_flight.iter().any(|f| f.append || append || overlap(&f.range, &range)) {
            return None;
        }
        self.sent = Some(Instant::now());
        self.in_flight.push(InFlight { number: next.number, range, append });
        self.queue.pop_front().or_else(|| self.tail.take())
    }

    fn has_just_sent(&self) -> bool {
        self.sent.is_some_and(|sent| sent.elapsed() < GATHER)
    }

    fn completed(&mut self, number: u64) {
        self.in_flight.retain(|f| f.number != number);
        self.changed.clear();
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

impl Fs {
    /// Takes the queued write requests of a file.
    pub(super) fn collect(&self, inode: &Rc<Inode>) {
        let queue = inode.queue.borrow().clone();
        let pieces = queue.map_or(Vec::new(), |queue| queue.take());
        if pieces.is_empty() {
            return;
        }
        inode.changed_here();
        self.node_changed(inode.ino);
        for WriteRequest { handle, offset, data, from_cache } in pieces {
            match self.files.get(handle).and_then(|open| Fs::open_to_write(open, from_cache)) {
                Ok(open) => {
                    self.grown(&open, offset, data.len());
                    inode.write_back.borrow_mut().add(&open, offset, data, &self.pool);
                }
                Err(errno) => {
                    self.queues.settle(data.len());
                    self.report_loss(inode, errno);
                }
            }
        }
    }

    /// The kernel takes a file to be so long at least once it has written this.
    pub(super) fn grown(&self, open: &Open, offset: u64, len: usize) {
        self.table.borrow_mut().grow(open.inode.ino, offset.saturating_add(len as u64));
    }

    /// Takes and sends what is queued for a file.
    pub(super) fn write_back(self: &Rc<Fs>, ino: u64) {
        if let Some(inode) = self.files.known(ino) {
            self.advance_write_back(&inode);
        }
    }

    /// Takes what is queued for a file, and sends what may be sent. Until all is at the server, a
    /// future calls this again: one that sends a piece, or waits for a block to become full.
    fn advance_write_back(self: &Rc<Fs>, inode: &Rc<Inode>) {
        loop {
            self.collect(inode);
            self.send_ready(inode);
            let pending = &mut *inode.write_back.borrow_mut();
            if pending.is_empty() {
                match &*inode.queue.borrow() {
                    Some(queue) if !queue.try_idle() => continue,
                    _ => return,
                }
            }
            if !pending.in_flight.is_empty() || mem::replace(&mut pending.timer_set, true) {
                return;
            }
            let (fs, inode) = (Rc::clone(self), Rc::clone(inode));
            return self.spawn(async move {
                fs.timer.sleep(GATHER).await;
                inode.write_back.borrow_mut().timer_set = false;
                fs.advance_write_back(&inode);
            });
        }
    }

    /// A write that was answered is lost: each open file that is writable reports it.
    fn report_loss(&self, inode: &Inode, errno: Errno) {
        if let Some(queue) = &*inode.queue.borrow() {
            queue.close();
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
        self.queues.add(data.len());
        open.inode.write_back.borrow_mut().add(open, offset, data, &self.pool);
        if let Some(queue) = &*open.inode.queue.borrow() {
            queue.set_served();
        }
        self.advance_write_back(&open.inode);
        self.queues.room().await;
    }

    /// Waits until all that was written to a file is at the server, or was refused there.
    pub(super) async fn drain(self: &Rc<Fs>, inode: &Rc<Inode>) {
        self.collect(inode);
        let last = {
            let pending = &mut *inode.write_back.borrow_mut();
            if pending.is_empty() {
                return;
            }
            let tail = pending.tail.take();
            pending.queue.extend(tail);
            pending.next
        };
        self.send_ready(inode);
        loop {
            let done = {
                let pending = &mut *inode.write_back.borrow_mut();
                if !pending.has_older_than(last) {
                    return;
                }
                let (sender, done) = oneshot::channel();
                pending.changed.push(sender);
                done
            };
            // The other end is dropped.
            let _ = done.await;
        }
    }

    /// Sends what may be sent.
    fn send_ready(self: &Rc<Fs>, inode: &Rc<Inode>) {
        loop {
            let piece = inode.write_back.borrow_mut().next_to_send();
            let Some(piece) = piece else { return };
            let fs = Rc::clone(self);
            self.spawn(async move { fs.send_piece(piece).await });
        }
    }

    async fn send_piece(self: Rc<Fs>, piece: Piece) {
        let Piece { open, number, offset, data } = piece;
        let len = data.len();
        let permit = self.tasks.transfer().await;
        let written = match open.failed.get() {
            // After a lost write, the next one would only wait for the same timeout.
            Some(Errno::IO) => Err(Errno::IO),
            _ => self.write_out(&open, offset, data).await,
        };
        drop(permit);
        if let Err(errno) = written {
            tracing::warn!(file = open.file.subject(), %errno, "what was written is lost");
            open.failed.set(Some(errno));
            self.report_loss(&open.inode, errno);
        }
        open.inode.write_back.borrow_mut().completed(number);
        // What was listed while it was on its way.
        self.node_changed(open.inode.ino);
        self.queues.settle(len);
        self.advance_write_back(&open.inode);
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
