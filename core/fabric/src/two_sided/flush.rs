//! Flushes. Accesses to a peer are counted in batches; a flush closes the batch that is open, and
//! completes when all accesses of its batch, and of those before, are over.
//!
//! An access is over when nothing of it is under way any more. That is enough for what the peer
//! answers. Puts that ask for no answer are over when they are sent; for these the flush asks a
//! question ([`Header::Flush`]) behind them on the ordered channel. The answer says whether one of
//! them was refused since the last question. While a flush has not sent its question, puts that
//! begin ask for an answer, so that no refusal of theirs is told to an earlier flush.

use super::{
    Engine,
    connection::Connection,
    header::{Header, Status},
    ledger::Ledger,
    operations::{Kind, Op},
};
use crate::{Done, OpError, OpErrorKind, Peer, PeerState, Token};
use std::collections::VecDeque;

/// Names the accesses to a peer between two flushes. For transports that carry out accesses
/// themselves: see [`Engine::begin_access`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch(u32);

impl Batch {
    /// Of an operation that is no access, or of a peer that is not known.
    pub(super) const NONE: Batch = Batch(0);

    pub(super) fn is_some(self) -> bool {
        self != Batch::NONE
    }

    fn next(self) -> Batch {
        Batch(self.0.checked_add(1).unwrap_or(1))
    }

    /// How many batches later `other` is.
    fn distance(self, other: Batch) -> usize {
        let steps = other.0.wrapping_sub(self.0);
        // Zero names no batch.
        let over = u32::from(other.0 < self.0);
        steps.wrapping_sub(over) as usize
    }
}

/// What is known of the accesses of one batch.
#[derive(Debug, Default)]
struct Counts {
    /// Accesses that are not over.
    open: u32,
    /// Puts were sent that asked for no answer.
    unconfirmed: bool,
    /// The first refusal that became known.
    refused: Option<Box<OpErrorKind>>,
}

impl Counts {
    fn refuse(&mut self, kind: OpErrorKind) {
        // That a peer is lost ends the flush by itself.
        if !matches!(kind, OpErrorKind::Cancelled | OpErrorKind::PeerLost(_)) {
            self.refused.get_or_insert_with(|| Box::new(kind));
        }
    }

    fn result(self) -> Result<Done, OpErrorKind> {
        self.refused.map_or(Ok(Done::Flushed), |kind| Err(*kind))
    }
}

/// The accesses to a peer that no flush follows yet.
#[derive(Debug)]
pub(super) struct OpenBatch {
    batch: Batch,
    counts: Counts,
}

impl Default for OpenBatch {
    fn default() -> OpenBatch {
        OpenBatch { batch: Batch::NONE.next(), counts: Counts::default() }
    }
}

impl OpenBatch {
    fn begin(&mut self) -> Batch {
        self.counts.open += 1;
        self.batch
    }

    /// A put begins to be sent that asks for no answer: the next flush asks for it. It belongs to
    /// this batch, as all flushes have sent their questions.
    pub(super) fn put_unconfirmed(&mut self) {
        self.counts.unconfirmed = true;
    }

    /// Whether puts were sent since the last question that asked for no answer.
    pub(super) fn is_unconfirmed(&self) -> bool {
        self.counts.unconfirmed
    }

    /// The peer has answered a question behind all of them: why one of them was refused, if one
    /// was.
    pub(super) fn confirm(&mut self, status: Status) {
        self.counts.unconfirmed = false;
        if status != Status::Good {
            self.counts.refuse(Op::new(Token(0), Kind::Fence).refusal(status));
        }
    }

    fn close(&mut self) -> (Batch, Counts) {
        let batch = self.batch;
        self.batch = batch.next();
        (batch, std::mem::take(&mut self.counts))
    }
}

/// Flushes of one peer that have not completed.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Oldest first; their batches follow each other, and the open one follows them.
    waiting: VecDeque<Flush>,
    /// So many of them have sent their question, or need none.
    asked: usize,
}

#[derive(Debug)]
struct Flush {
    batch: Batch,
    counts: Counts,
    /// Its operation.
    op: u64,
    /// All of its batch is visible, or refused.
    confirmed: bool,
}

impl Flushes {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether one waits that has not sent its question: puts that begin now ask for an answer.
    pub(super) fn has_unasked(&self) -> bool {
        self.asked < self.waiting.len()
    }

    fn get_mut(&mut self, batch: Batch) -> Option<&mut Flush> {
        let first = self.waiting.front()?.batch;
        self.waiting.get_mut(first.distance(batch))
    }
}

impl Connection {
    /// Counts an access: in the batch that is open, or in that of an access that it goes on with.
    pub(super) fn begin_access(&mut self, of: Option<Batch>) -> Batch {
        match of {
            Some(batch) => {
                if let Some(counts) = self.counts(batch) {
                    counts.open += 1;
                }
                batch
            }
            None => self.entry.accesses.begin(),
        }
    }

    fn counts(&mut self, batch: Batch) -> Option<&mut Counts> {
        if batch == self.entry.accesses.batch {
            return Some(&mut self.entry.accesses.counts);
        }
        self.flushes.get_mut(batch).map(|flush| &mut flush.counts)
    }

    /// An access failed.
    #[cold]
    pub(super) fn access_refused(&mut self, batch: Batch, kind: OpErrorKind) {
        if let Some(counts) = self.counts(batch) {
            counts.refuse(kind);
        }
    }

    /// Nothing of an access is under way any more.
    pub(super) fn access_over(&mut self, batch: Batch, ledger: &mut Ledger) {
        if let Some(counts) = self.counts(batch) {
            counts.open -= 1;
        }
        if !self.flushes.is_empty() {
            self.advance_flushes(ledger);
        }
    }

    fn flush(&mut self, token: Token, ledger: &mut Ledger) {
        let (batch, counts) = self.entry.accesses.close();
        let mut op = Op::new(token, Kind::Flush);
        // Until its turn is over, also if it is cancelled.
        op.queued = true;
        let op = self.insert(op, ledger);
        self.flushes.waiting.push_back(Flush { batch, counts, op, confirmed: false });
        self.advance_flushes(ledger);
    }

    /// Completes the flushes whose accesses are over and need no answer, or have it.
    fn advance_flushes(&mut self, ledger: &mut Ledger) {
        while let Some(next) = self.flushes.waiting.get_mut(self.flushes.asked)
            && next.counts.open == 0
        {
            if next.counts.unconfirmed {
                self.wake(ledger);
                break;
            }
            next.confirmed = true;
            self.flushes.asked += 1;
        }
        while self.flushes.waiting.front().is_some_and(|flush| flush.confirmed)
            && let Some(flush) = self.flushes.waiting.pop_front()
        {
            self.flushes.asked -= 1;
            self.end_flush(flush, ledger);
        }
    }

    fn end_flush(&mut self, flush: Flush, ledger: &mut Ledger) {
        let Some(op) = self.op(flush.op) else { return };
        op.queued = false;
        if !op.stopped() {
            op.conclude(flush.counts.result());
        } else if let Some(earlier) = flush.counts.refused {
            // It was cancelled: the next one tells of the refusal.
            let next = match self.flushes.waiting.front_mut() {
                Some(next) => &mut next.counts,
                None => &mut self.entry.accesses.counts,
            };
            next.refused = Some(earlier);
        }
        self.settle(flush.op, ledger);
    }

    /// The question of a flush whose accesses have all been sent.
    pub(super) fn poll_flush(&mut self, ledger: &mut Ledger) -> Option<Header> {
        let next = self.flushes.waiting.get(self.flushes.asked)?;
        if next.counts.open > 0 {
            return None;
        }
        let op = next.op;
        self.flushes.asked += 1;
        let id = self.ask(op, 0, 0);
        if let Some(op) = self.op(op) {
            op.awaiting = 1;
        }
        self.advance_flushes(ledger);
        Some(Header::Flush { id })
    }

    /// The answer to that question.
    pub(super) fn flush_answered(&mut self, op: u64, status: Status, ledger: &mut Ledger) {
        let kind = self.op(op).map(|op| op.refusal(status));
        let Some(flush) = self.flushes.waiting.iter_mut().find(|flush| flush.op == op) else {
            return;
        };
        flush.confirmed = true;
        if status != Status::Good
            && let Some(kind) = kind
        {
            flush.counts.refuse(kind);
        }
        self.advance_flushes(ledger);
    }

    /// The peer asks how the puts went that asked for no answer.
    pub(super) fn answer_flush(&mut self, id: u64, ledger: &mut Ledger) {
        let status = std::mem::replace(&mut self.entry.refused_puts, Status::Good);
        self.answer(id, status, ledger);
    }
}

impl Engine {
    /// Accepts a flush for a peer that can be reached.
    pub(super) fn flush(&mut self, peer: Peer, token: Token) {
        let idle = self
            .peers
            .entry_and_connection(peer)
            .is_none_or(|(_, conn)| conn.is_none_or(|conn| conn.flushes.is_empty()));
        let Engine { peers, ledger, .. } = self;
        if idle
            && let Some(entry) = peers.entry_mut(peer)
            && entry.accesses.counts.open == 0
            && !entry.accesses.counts.unconfirmed
        {
            let (_, counts) = entry.accesses.close();
            let result = counts.result().map_err(|kind| OpError::with_peer(kind, &entry.address));
            ledger.live -= 1;
            return ledger.finish(token, None, result);
        }
        if let Some(conn) = peers.get_mut(peer) {
            conn.flush(token, ledger);
        }
    }

    /// An access failed when it was submitted; `batch` if it was counted before.
    #[cold]
    pub(super) fn note_refusal(&mut self, peer: Peer, batch: Option<Batch>, kind: &OpErrorKind) {
        match batch {
            None => self.refuse_access(peer, kind),
            Some(batch) => {
                if let Some(conn) = self.peers.get_mut(peer)
                    && !matches!(conn.state, PeerState::Lost(_))
                {
                    conn.access_refused(batch, kind.clone());
                }
            }
        }
    }

    /// Counts an access to a peer that the transport carries out itself: a put, a get or an atomic.
    /// A flush that is accepted after this call completes after [`Engine::end_access`], to which
    /// the batch goes.
    #[inline]
    pub fn begin_access(&mut self, peer: Peer) -> Batch {
        self.begin_outside(peer);
        self.peers.entry_mut(peer).map_or(Batch::NONE, |entry| entry.accesses.begin())
    }

    /// An access that the transport carried out is over: it is visible at the target, or failed.
    /// One that ends with `PeerLost` ends no flush: the loss of the peer, which follows, does.
    pub fn end_access(&mut self, peer: Peer, batch: Batch, failed: Option<&OpErrorKind>) {
        self.end_outside(peer);
        let Engine { peers, ledger, .. } = self;
        let Some(entry) = peers.entry_mut(peer) else { return };
        let lost = matches!(entry.state, PeerState::Lost(_))
            || matches!(failed, Some(OpErrorKind::PeerLost(_)));
        if lost || !batch.is_some() {
            return;
        }
        if batch == entry.accesses.batch {
            let counts = &mut entry.accesses.counts;
            counts.open -= 1;
            if let Some(kind) = failed {
                counts.refuse(kind.clone());
            }
        } else if let Some(conn) = peers.get_mut(peer) {
            if let Some(kind) = failed {
                conn.access_refused(batch, kind.clone());
            }
            conn.access_over(batch, ledger);
        }
    }

    /// An access failed that the transport would have carried out, and that was not counted: the
    /// next flush tells of it.
    #[cold]
    pub fn refuse_access(&mut self, peer: Peer, kind: &OpErrorKind) {
        if let Some(entry) = self.peers.entry_mut(peer)
            && !matches!(entry.state, PeerState::Lost(_))
        {
            entry.accesses.counts.refuse(kind.clone());
        }
    }

    /// As [`Engine::submit`], for an access that was counted: the engine goes on with it.
    pub fn submit_counted(&mut self, operation: crate::Operation, peer: Peer, batch: Batch) {
        self.submit_one(operation, Some(batch).filter(|batch| batch.is_some()));
        self.end_access(peer, batch, None);
    }
}

#[cfg(test)]
mod tests {
    use super::Batch;

    #[test]
    fn batches_follow_each_other_round_the_end_of_their_numbers() {
        let mut batch = Batch(u32::MAX - 2);
        for distance in 0..6 {
            assert!(batch.is_some());
            assert_eq!(Batch(u32::MAX - 2).distance(batch), distance);
            batch = batch.next();
        }
    }
}
