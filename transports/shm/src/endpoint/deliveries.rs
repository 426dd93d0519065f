//! Messages of which the sender wants to know that they have arrived.
//!
//! The receiver says how many cells of the ring it has consumed; a message has arrived when its
//! cells are among them. So there is no packet that acknowledges it, and no list at the receiver:
//! it reports the cells of such a message at once, and not at the next quarter of the ring.

use crate::{Shm, channel::kind, completions::Brief, ring::RingError};
use petasos_fabric::{Lease, Level, OpErrorKind, Operation, Payload, Peer, Token};
use std::collections::VecDeque;

/// The longest message that is sent so.
const LONGEST: usize = 4096;

/// What was sent to one peer, oldest first: where it ends in the ring, in cells since the
/// beginning.
#[derive(Debug, Default)]
pub(crate) struct Deliveries {
    sent: VecDeque<(u64, Token)>,
}

impl Deliveries {
    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// The next one that has arrived, when so many cells were consumed.
    fn arrived(&mut self, consumed: u64) -> Option<Token> {
        let arrived = self.sent.front().is_some_and(|(end, _)| *end <= consumed);
        if arrived { self.sent.pop_front().map(|(_, token)| token) } else { None }
    }

    /// Takes out all that are left.
    fn take(&mut self) -> impl Iterator<Item = Token> + use<> {
        std::mem::take(&mut self.sent).into_iter().map(|(_, token)| token)
    }

    fn remove(&mut self, token: Token) -> bool {
        let at = self.sent.iter().position(|(_, sent)| *sent == token);
        at.and_then(|at| self.sent.remove(at)).is_some()
    }
}

impl Shm {
    /// Sends a message that is complete when it has arrived, unless something waits before it.
    /// False if nothing was done: it takes the longer path.
    pub(super) fn send_asking(&mut self, operation: &Operation) -> bool {
        let Operation::Send { token, peer, payload: Payload::Bytes(bytes), level } = operation
        else {
            return false;
        };
        let (peer, len) = (*peer, bytes.len());
        if *level == Level::Reusable || len > self.config.max_message.min(LONGEST) {
            return false;
        }
        let Shm { channels, engine, counters, .. } = self;
        let Some((channel, pending)) = channels.to(peer) else { return false };
        let queued = channel.served || (engine.has_output() && engine.messages_queued(peer));
        let long = len > Lease::LINES;
        if queued || channel.ending.is_some() || (long && !engine.may_send(peer, len)) {
            return false;
        }
        match channel.pair.send_asking(kind::ASKING, bytes) {
            Ok(Some(end)) => {
                if long {
                    engine.sent_around(peer, len);
                }
                engine.begin_outside(peer);
                counters.sent += 1;
                counters.wake_ups += u64::from(channel.published(peer.index, pending));
                if channel.deliveries.is_empty() {
                    self.delivering.push(peer.index);
                }
                channel.deliveries.sent.push_back((end, *token));
                true
            }
            Ok(None) => false,
            Err(broken) => {
                // The longer path tells that the peer is lost.
                self.violated(peer.index, broken.to_string());
                false
            }
        }
    }

    /// Completes what has arrived. True if something has.
    pub(super) fn take_arrived(&mut self) -> bool {
        let before = self.completions.len();
        let mut at = 0;
        while let Some(&index) = self.delivering.get(at) {
            match self.take_arrived_at(index) {
                Ok(false) => at += 1,
                Ok(true) => _ = self.delivering.swap_remove(at),
                Err(broken) => {
                    self.delivering.swap_remove(at);
                    self.violated(index, broken.to_string());
                }
            }
        }
        self.completions.len() > before
    }

    /// The same of one peer. True if nothing is left.
    fn take_arrived_at(&mut self, index: u32) -> Result<bool, RingError> {
        let Shm { channels, engine, completions, .. } = self;
        let Some(channel) = channels.get_mut(index) else { return Ok(true) };
        let consumed = channel.pair.consumed()?;
        while let Some(token) = channel.deliveries.arrived(consumed) {
            engine.end_outside(channel.handle);
            completions.done(token, Brief::Sent);
        }
        Ok(channel.deliveries.is_empty())
    }

    /// Whether all of it waits for peers, which will ring.
    pub(super) fn wait_for_arrivals(&mut self) -> bool {
        let Shm { channels, delivering, .. } = self;
        delivering.iter().all(|index| {
            let Some(channel) = channels.get_mut(*index) else { return false };
            let first = channel.deliveries.sent.front().map(|(end, _)| *end);
            channel.pair.wait_for_report();
            match (first, channel.pair.consumed()) {
                (Some(end), Ok(consumed)) => consumed < end,
                _ => false,
            }
        })
    }

    /// The peer is lost, and its channel closed: what has not arrived fails.
    pub(super) fn end_deliveries(&mut self, index: u32, peer: Peer, kind: &OpErrorKind) {
        // It may be the reason that what it says of its ring makes no sense.
        let _ = self.take_arrived_at(index);
        self.delivering.retain(|other| *other != index);
        let Some(channel) = self.channel(index) else { return };
        for token in channel.deliveries.take() {
            self.complete(token, Some(peer), Err(kind.clone()));
        }
    }

    /// Takes back one that has not arrived, as far as is known: it may all the same. False if there
    /// is none with this token.
    pub(super) fn cancel_delivery(&mut self, token: Token) -> bool {
        for at in 0..self.delivering.len() {
            let index = self.delivering[at];
            let Some(channel) = self.channel(index) else { continue };
            let peer = channel.handle;
            if channel.deliveries.remove(token) {
                if channel.deliveries.is_empty() {
                    self.delivering.swap_remove(at);
                }
                self.engine.end_outside(peer);
                self.complete(token, Some(peer), Err(OpErrorKind::Cancelled));
                return true;
            }
        }
        false
    }
}
