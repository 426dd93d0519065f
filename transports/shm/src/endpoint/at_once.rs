//! Short operations that are carried out when they are submitted: no queue, no list of what is
//! under way, no clone of what they hold. Their completions are raised by the next pass.
//!
//! Whatever is not plain (something waits before it, the memory is not mapped, the peer is not
//! connected, a limit is exceeded, the key is stale) takes the longer path, which tells what is
//! wrong, too. So nothing here fails.

use crate::{
    Shm,
    access::{Short, place},
    channel::kind,
    completions::Brief,
    ring::{MAX_SHORT, Piece, RingError},
};
use petasos_fabric::{
    Access as Rights, Lease, Level, Operation, Payload, Peer, Remote, RemoteSpan, Slice,
};

/// So many completions may wait for the next pass; operations beyond take the longer path, which
/// is bounded as a whole.
const WAITING: usize = 256;
/// The longest message that is copied when it is submitted.
const MESSAGE: usize = 4096;

impl Shm {
    /// Carries out an operation, if that can be done at once. False if it takes the longer path:
    /// then nothing of it was done.
    #[inline]
    pub(super) fn carry_out(&mut self, operation: &Operation) -> bool {
        // One that has to wait for a fence does.
        if self.completions.len() >= WAITING || self.engine.is_deferring() {
            return false;
        }
        let (token, done) = match operation {
            Operation::Put { token, remote, local, spans, event: None, .. }
                if self.access_at_once(remote, local, spans, Rights::WRITE) =>
            {
                (*token, Brief::Put)
            }
            Operation::Get { token, remote, local, spans }
                if self.access_at_once(remote, local, spans, Rights::READ) =>
            {
                (*token, Brief::Got)
            }
            Operation::Send { token, peer, payload, level: Level::Reusable }
                if self.send_at_once(*peer, payload) =>
            {
                (*token, Brief::Sent)
            }
            Operation::SendTagged { token, peer, tag, payload, level: Level::Reusable }
                if self.send_tagged_at_once(*peer, *tag, payload) =>
            {
                (*token, Brief::Sent)
            }
            _ => return false,
        };
        self.completions.done(token, done);
        true
    }

    /// A put or a get of one short piece, if its region is mapped here. It is over when this
    /// returns, so that no flush has to wait for it.
    fn access_at_once(
        &mut self,
        remote: &Remote,
        local: &[Slice],
        spans: &[RemoteSpan],
        needed: Rights,
    ) -> bool {
        let ([local], [span]) = (local, spans) else { return false };
        let most = (Short::MOST as u64).min(self.config.transfer_budget as u64);
        if span.len == 0
            || span.len > most.min(self.capabilities.limits.max_transfer)
            || span.len != local.len() as u64
            || span.offset.checked_add(span.len).is_none_or(|end| end > remote.len)
            || local.host_ptr().is_none()
            || (needed == Rights::READ && !local.is_writable())
        {
            return false;
        }
        let Shm { engine, channels, accesses, counters, .. } = self;
        let Some(imported) = engine.imported(*remote) else { return false };
        let Some((slot, tag)) = place(imported) else { return false };
        let Some((channel, _)) = channels.to(remote.peer) else { return false };
        // Those that wait go first.
        let first = accesses.of(remote.peer.index) == 0;
        let moved = first
            && channel.ending.is_none()
            && channel.incarnation == imported.parts.incarnation
            && imported.parts.access.allows(needed)
            && channel.move_short(&Short { slot, tag, local, span: *span, needed });
        counters.mapped_bytes += if moved { span.len } else { 0 };
        moved
    }

    /// A message that is complete when it is in the ring, unless others wait before it.
    fn send_at_once(&mut self, peer: Peer, payload: &Payload) -> bool {
        let len = payload.len();
        if len > self.config.max_message.min(MESSAGE) {
            return false;
        }
        let Shm { channels, engine, counters, .. } = self;
        let Some((channel, pending)) = channels.to(peer) else { return false };
        let queued = channel.served || (engine.has_output() && engine.messages_queued(peer));
        let long = len > Lease::LINES;
        if queued || (long && !engine.may_send(peer, len)) {
            return false;
        }
        let sent = match payload {
            Payload::Bytes(bytes) if len <= MAX_SHORT => channel.pair.send_short(bytes),
            Payload::Bytes(bytes) => channel.pair.send(kind::MESSAGE, &[Piece::of(bytes)], len),
            Payload::Memory(memory) if len <= MAX_SHORT && memory.host_ptr().is_some() => {
                let mut room = [0; MAX_SHORT];
                memory.read(0, &mut room[..len]);
                channel.pair.send_short(&room[..len])
            }
            Payload::Memory(_) => return false,
        };
        if sent == Ok(true) {
            if long {
                engine.sent_around(peer, len);
            }
            counters.wake_ups += u64::from(channel.published(peer.index, pending));
        }
        self.is_sent(peer, sent)
    }

    /// The same for an expected message, if the peer has a place for it.
    fn send_tagged_at_once(&mut self, peer: Peer, tag: u64, payload: &Payload) -> bool {
        let Payload::Bytes(bytes) = payload else { return false };
        let Shm { channels, engine, counters, .. } = self;
        let Some((channel, pending)) = channels.to(peer) else { return false };
        // Packets of the engine's that wait go first: one may say how many places there are.
        if channel.served || engine.has_output() || bytes.len() > MESSAGE {
            return false;
        }
        let Some(header) = engine.expected_around(peer, tag, bytes.len()) else { return false };
        let sent = channel.pair.send_expected(&header, bytes);
        if sent == Ok(true) {
            engine.sent_expected_around(peer);
            counters.wake_ups += u64::from(channel.published(peer.index, pending));
        }
        self.is_sent(peer, sent)
    }

    fn is_sent(&mut self, peer: Peer, sent: Result<bool, RingError>) -> bool {
        self.counters.sent += u64::from(sent == Ok(true));
        sent.unwrap_or_else(|broken| {
            // The longer path tells that the peer is lost.
            self.violated(peer.index, broken.to_string());
            false
        })
    }
}
