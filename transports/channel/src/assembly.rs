//! A packet of the engine's that arrives in records, and what is fetched for it.

use crate::{Garbage, device::RemoteKey, header::Lent};
use petasos_fabric::{Slice, two_sided::Placement};
use std::collections::VecDeque;

/// A packet of the engine's that is being received.
#[derive(Debug)]
pub(crate) struct Assembly {
    placement: Placement,
    /// Bytes of the payload that have arrived or are being fetched.
    at: usize,
    total: usize,
    /// The last record has arrived.
    complete: bool,
    /// Records that lend memory, and how many fetches each still needs, begun or not.
    lent: VecDeque<(u32, usize)>,
    /// Fetches that have not begun.
    todo: VecDeque<Fetch>,
    /// Fetches under way.
    running: usize,
    /// Of these, into bounce buffers.
    buffers: usize,
}

/// A piece of lent memory that is to be fetched.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) seq: u32,
    pub(crate) key: RemoteKey,
    pub(crate) offset: u64,
    pub(crate) into: Into,
}

/// Where it is fetched to.
#[derive(Debug)]
pub(crate) enum Into {
    Memory(Slice),
    /// By way of a bounce buffer to the placement, from `at` on.
    Buffer {
        at: usize,
        len: usize,
    },
}

impl Into {
    fn is_buffer(&self) -> bool {
        matches!(self, Into::Buffer { .. })
    }
}

impl Assembly {
    /// A packet with a payload of `total` bytes, of which nothing has arrived.
    pub(crate) fn new(placement: Placement, total: usize) -> Assembly {
        let (lent, todo) = (VecDeque::new(), VecDeque::new());
        Assembly { placement, at: 0, total, complete: false, lent, todo, running: 0, buffers: 0 }
    }

    /// Bytes of the payload that have neither arrived nor are being fetched.
    pub(crate) fn left(&self) -> usize {
        self.total - self.at
    }

    /// Whether it takes another record: not all have arrived, and fewer than `most` fetches wait.
    pub(crate) fn takes_more(&self, most: usize) -> bool {
        !self.complete && self.todo.len() < most
    }

    /// The last record has arrived.
    ///
    /// # Errors
    /// Bytes of the payload are missing.
    pub(crate) fn end(&mut self) -> Result<(), Garbage> {
        if self.at != self.total {
            return Err(Garbage::new("less than the packet holds", self.at as u64));
        }
        self.complete = true;
        Ok(())
    }

    /// Whether all of it is where it belongs.
    pub(crate) fn is_whole(&self) -> bool {
        self.complete && self.lent.is_empty()
    }

    pub(crate) fn into_placement(self) -> Placement {
        self.placement
    }

    /// Writes what follows the first `skip` bytes of a record's body.
    pub(crate) fn write(&mut self, body: &Body<'_>, skip: usize) {
        body.copy(skip, &mut self.placement, self.at);
        self.at += body.len() - skip;
    }

    /// Writes data of a record that was fetched before its turn.
    pub(crate) fn write_fetched(&mut self, data: &Slice) {
        copy(data, 0, &mut self.placement, self.at);
        self.at += data.len();
    }

    // Fetching.

    /// The first record whose data is not all here.
    pub(crate) fn first_lent(&self) -> Option<u32> {
        self.lent.front().map(|(seq, _)| *seq)
    }

    /// The next fetch, if fewer than `most` are under way. It has begun, or is given back by
    /// [`Assembly::fetch_refused`].
    pub(crate) fn next_fetch(&mut self, most: usize) -> Option<Fetch> {
        if self.running >= most {
            return None;
        }
        let fetch = self.todo.pop_front()?;
        self.running += 1;
        self.buffers += usize::from(fetch.into.is_buffer());
        Some(fetch)
    }

    /// How many fetches into bounce buffers are under way, the one that begins counted.
    pub(crate) fn buffers(&self) -> usize {
        self.buffers
    }

    /// A fetch could not begin: it remains the next one.
    pub(crate) fn fetch_refused(&mut self, fetch: Fetch) {
        self.running -= 1;
        self.buffers -= usize::from(fetch.into.is_buffer());
        self.todo.push_front(fetch);
    }

    /// A fetch for this record is complete. With `bounce`, its data lies there, and belongs at this
    /// offset of the payload.
    pub(crate) fn fetched(&mut self, seq: u32, bounce: Option<(&Slice, usize)>) {
        if let Some((data, at)) = bounce {
            copy(data, 0, &mut self.placement, at);
        }
        self.running -= 1;
        self.buffers -= usize::from(bounce.is_some());
        if let Some((_, left)) = self.lent.iter_mut().find(|(of, _)| *of == seq) {
            *left -= 1;
        }
        while self.lent.front().is_some_and(|(_, left)| *left == 0) {
            self.lent.pop_front();
        }
    }

    /// Plans the fetches for the data of a record, in pieces of at most `most` bytes, or of at most
    /// a bounce buffer.
    pub(crate) fn plan(&mut self, seq: u32, lent: &Lent, most: usize, bounce: usize) {
        let (at, len) = (self.at, lent.len as usize);
        let before = self.todo.len();
        let mut add = |offset: usize, into| {
            let (key, offset) = (lent.key.clone(), offset as u64);
            self.todo.push_back(Fetch { seq, key, offset, into });
        };
        match &self.placement {
            Placement::Discard => {}
            Placement::Memory(pieces) if !pieces.iter().any(Slice::is_raw) => {
                for (piece, begin) in parts(pieces, at, len) {
                    for offset in (0..piece.len()).step_by(most) {
                        let len = most.min(piece.len() - offset);
                        let part = piece.part(offset, len);
                        if let Some(part) = part {
                            add(begin + offset, Into::Memory(part));
                        }
                    }
                }
            }
            // Memory that only its program keeps is filled by copies, too: a fetch from a lost peer
            // may end later than the packet.
            Placement::Buffer(_) | Placement::Memory(_) => {
                let step = bounce.min(most);
                for offset in (0..len).step_by(step) {
                    let len = step.min(len - offset);
                    add(offset, Into::Buffer { at: at + offset, len });
                }
            }
        }
        let count = self.todo.len() - before;
        if count > 0 {
            self.lent.push_back((seq, count));
        }
        self.at += len;
    }
}

/// The body of a record: in a packet, or in the cells of a FIFO.
pub(crate) enum Body<'a> {
    Packet(&'a [u8]),
    Cells(&'a Slice),
}

impl Body<'_> {
    pub(crate) fn len(&self) -> usize {
        match self {
            Body::Packet(bytes) => bytes.len(),
            Body::Cells(slice) => slice.len(),
        }
    }

    /// A copy of the first bytes, at most `N` of them.
    pub(crate) fn peek<const N: usize>(&self) -> ([u8; N], usize) {
        let (mut out, len) = ([0; N], self.len().min(N));
        match self {
            Body::Packet(bytes) => out[..len].copy_from_slice(&bytes[..len]),
            Body::Cells(slice) => slice.read(0, &mut out[..len]),
        }
        (out, len)
    }

    /// Copies what follows the first `skip` bytes to its place in the payload.
    fn copy(&self, skip: usize, placement: &mut Placement, at: usize) {
        match self {
            Body::Packet(bytes) => placement.write(at, &bytes[skip..]),
            Body::Cells(slice) => copy(slice, skip, placement, at),
        }
    }
}

/// Copies what follows the first `skip` bytes to its place in the payload.
fn copy(from: &Slice, skip: usize, placement: &mut Placement, at: usize) {
    let len = from.len() - skip;
    match placement {
        Placement::Discard => {}
        Placement::Buffer(buffer) => from.read(skip, &mut buffer[at..at + len]),
        Placement::Memory(pieces) => {
            for (piece, begin) in parts(pieces, at, len) {
                if let Some(part) = from.part(skip + begin, piece.len()) {
                    part.copy_to(&piece);
                }
            }
        }
    }
}

/// The pieces of memory that hold `len` bytes from `at` on, and the offset of each in these bytes.
fn parts(pieces: &[Slice], at: usize, len: usize) -> Vec<(Slice, usize)> {
    let (mut skip, mut done, mut out) = (at, 0, Vec::new());
    for piece in pieces {
        let from = skip.min(piece.len());
        let now = (len - done).min(piece.len() - from);
        skip -= from;
        if now > 0 {
            out.extend(piece.part(from, now).map(|part| (part, done)));
            done += now;
        }
    }
    out
}
