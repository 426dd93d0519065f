//! Expected messages that a transport carries around the engine, as it does with plain ones: short
//! ones that are complete when their bytes have been taken, and for which the peer has a place.

use super::{
    Engine, MAX_EAGER,
    header::{EXPECTED, expected_header, expected_message},
    matching::{Unexpected, Waiting},
};
use crate::{Buffer, Done, Event, Peer, Slice};

/// Where the data of an expected message goes, all of it.
#[derive(Debug)]
pub enum ExpectedBuffer<'a> {
    /// To the beginning of this memory, which is the host's, may be written, and is as long or
    /// longer.
    Memory(&'a Slice),
    /// Here; as long as the data.
    Buffer(&'a mut [u8]),
}

impl Engine {
    /// The header of an expected message of `len` bytes that may go now, before anything that waits
    /// here, and whose operation is complete when it is sent ([`Level::Reusable`]). `None`: it is
    /// to be [submitted](Engine::submit). The transport sends header and bytes as a packet, behind
    /// those that it has of the engine, and then says so ([`Engine::sent_expected_around`]).
    ///
    /// [`Level::Reusable`]: crate::Level::Reusable
    #[must_use]
    #[inline]
    pub fn expected_around(&self, peer: Peer, tag: u64, len: usize) -> Option<[u8; EXPECTED]> {
        let (entry, conn) = self.peers.entry_and_connection(peer)?;
        // Of one sender they are matched in the order in which they were sent.
        let first = conn.is_none_or(|conn| conn.queues.tagged.is_empty());
        let short = len <= self.config.eager.min(MAX_EAGER);
        let may = entry.is_up() && !entry.own && !entry.held && first && short;
        let may = may && entry.expected.eager() > 0;
        may.then(|| expected_header(tag, len as u32))
    }

    /// Such a message was sent: it has taken a place at the peer.
    #[inline]
    pub fn sent_expected_around(&mut self, peer: Peer) {
        if let Some(entry) = self.peers.entry_mut(peer) {
            entry.expected.use_place();
        }
    }

    /// Takes in a whole packet of `len` bytes, if it is an expected message that needs no answer
    /// and for which a receive is posted: in one step, where [`Engine::accept`] and
    /// [`Engine::landed`] take two. `place` is called once then, and moves the data, which lies
    /// behind these first bytes of the packet. The completion of the receive is appended to
    /// `events`, or raised as others are if some of these wait. False, and nothing was done but
    /// that receives whose memory is gone to other endpoints have ended: take it by `accept`.
    #[inline]
    pub fn take_expected(
        &mut self,
        peer: Peer,
        header: [u8; EXPECTED],
        len: usize,
        place: impl FnOnce(ExpectedBuffer<'_>),
        events: &mut Vec<Event>,
    ) -> bool {
        let Some((tag, payload)) = expected_message(header) else { return false };
        let payload = payload as usize;
        let Engine { peers, matching, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer).filter(|conn| conn.is_up()) else { return false };
        if payload > MAX_EAGER
            || payload + EXPECTED != len
            || conn.incoming.landing.is_some()
            || conn.expected.check_eager().is_err()
        {
            return false;
        }
        let Some(posted) = matching.take_posted(peer, tag, ledger) else { return false };
        conn.expected.hold();
        ledger.counters.packets_in += 1;
        ledger.counters.bytes_in += payload as u64;
        if payload > posted.into.len() || posted.into.host_ptr().is_none() {
            // One that is too long for its receive is cut.
            let mut buffer = Buffer::zeroed(payload);
            place(ExpectedBuffer::Buffer(&mut buffer));
            conn.matched(posted, Unexpected::new(peer, tag, Waiting::Buffered(buffer)), ledger);
            return true;
        }
        place(ExpectedBuffer::Memory(&posted.into));
        conn.free_place(ledger);
        let event = posted.done(Done::Tagged { peer, tag, len: payload as u64 }, ledger);
        match ledger.events.is_empty() {
            true => events.push(event),
            false => ledger.events.push_back(event),
        }
        true
    }
}
