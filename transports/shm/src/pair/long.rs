//! The long rings: the bytes of messages that are longer than a part.

use super::Line;
use crate::ring::{Consumer, Incoming, Piece, Producer, Report, RingError, Shared};
use petasos_fabric::memory::memfd::Mapping;
use std::ops::Range;

/// What the parts of long messages are called in their ring.
pub(crate) const PART: u8 = 7;

/// The ring of the messages that this side sends.
pub(super) struct LongSender {
    producer: Producer<Shared>,
    /// What the receiver writes: consumed cells.
    out: Line,
    /// Where the ring lies in the mapping.
    at: Range<usize>,
    /// Whether there may be something in its pages, and whether it was used lately.
    used: bool,
    busy: bool,
}

impl LongSender {
    pub(super) fn new(producer: Producer<Shared>, out: Line, at: Range<usize>) -> LongSender {
        LongSender { producer, out, at, used: false, busy: false }
    }

    /// See [`Producer::rewind`].
    pub(super) fn rewind(&mut self, len: usize) {
        self.producer.rewind(Report { consumed: &self.out[0] }, len);
    }

    /// Whether a message of this length has room.
    pub(super) fn has_room(&mut self, len: usize) -> Result<bool, RingError> {
        self.producer.has_room_for(Report { consumed: &self.out[0] }, len)
    }

    /// Sends a message that was announced, and that has room.
    pub(super) fn send(&mut self, pieces: &[Piece<'_>], len: usize) {
        (self.used, self.busy) = (true, true);
        self.producer.send_parts(PART, pieces, len);
    }

    /// Whether there may be something in the pages.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        self.used
    }

    /// See [`Pair::trim_long`](super::Pair::trim_long).
    pub(super) fn trim(&mut self, mapping: &Mapping) -> bool {
        if std::mem::take(&mut self.busy) || !self.used {
            return self.used;
        }
        if self.producer.is_drained(Report { consumed: &self.out[0] }) {
            self.used = false;
            // Zeroes are what an empty ring begins with; the receiver writes nothing in it.
            if mapping.discard(self.at.start, self.at.len()).is_ok() {
                self.producer.cleared();
            }
        }
        self.used
    }

    /// Sends something, announced or not.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(super) fn forge(&mut self, kind: u8, bytes: &[u8]) -> Result<bool, RingError> {
        let report = Report { consumed: &self.out[0] };
        match kind {
            crate::ring::SHORT => self.producer.send_short(report, bytes),
            _ => self.producer.send(report, kind, &[Piece::of(bytes)], bytes.len()),
        }
    }
}

/// The ring of the messages to this side.
#[repr(C)]
pub(super) struct LongReceiver {
    /// Of a message that was announced, so many bytes are still to come.
    missing: usize,
    consumer: Consumer<Shared>,
    /// What the sender reads: consumed cells.
    back: Line,
}

impl LongReceiver {
    pub(super) fn new(consumer: Consumer<Shared>, back: Line) -> LongReceiver {
        LongReceiver { missing: 0, consumer, back }
    }

    /// How many bytes of a message are still to come.
    #[inline(always)]
    pub(super) fn missing(&self) -> usize {
        self.missing
    }

    /// A message of this length comes.
    #[inline]
    pub(super) fn announced(&mut self, len: usize) {
        self.missing = len;
    }

    #[inline]
    pub(super) fn ring(&self) -> &Consumer<Shared> {
        &self.consumer
    }

    /// The next part, if there is one.
    pub(super) fn peek(&mut self) -> Result<Option<Incoming>, RingError> {
        match self.consumer.peek()? {
            Some(part) if part.kind != PART || part.announced || part.len == 0 => {
                Err(RingError::NoPart { kind: part.kind, len: part.len })
            }
            Some(part) if part.len > self.missing => {
                Err(RingError::NoPart { kind: part.kind, len: part.len })
            }
            part => Ok(part),
        }
    }

    /// Gives back the cells of a part. True if that was reported to the sender.
    pub(super) fn finish(&mut self, part: Incoming) -> bool {
        self.missing -= part.len;
        let report = Report { consumed: &self.back[0] };
        let reported = self.consumer.finish(part, report);
        if self.missing > 0 {
            return reported;
        }
        // The sender shall see that its ring is empty.
        self.consumer.report_all(report);
        true
    }
}
