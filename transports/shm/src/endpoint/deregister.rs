//! Closing regions: to new accesses at once, and for good when no peer is in them.

use crate::{Shm, assembly::Assembly, closing::Closing, exports::Export};
use petasos_fabric::{
    Address, Done, Event, OpError, OpErrorKind, Operation, RegionId, Slice, Token,
};
use std::time::Duration;

impl Shm {
    /// Closes a region, or goes on with that.
    pub(super) fn deregister(&mut self, token: Token, region: RegionId, patience: Duration) {
        if self.closing.resume(region, token, patience) {
            return self.close_regions();
        }
        let tag = self.exports.close(region);
        let memory = self.engine.region(region).map(|(memory, _)| memory.clone());
        let (Some(tag), Some(memory)) = (tag, memory) else {
            if self.closing.waits_for(region) {
                return self.complete(token, None, Err(OpErrorKind::UnknownRegion));
            }
            return self.engine.submit(Operation::Deregister { token, region, patience });
        };
        self.engine.shut(region);
        self.divert_packets();
        self.closing.begin((region, tag), memory, token, patience);
        self.close_regions();
    }

    /// Revokes a key to a part of a region, by which peers reach it through the engine alone.
    pub(super) fn revoke(&mut self, operation: Operation) {
        self.engine.submit(operation);
        if self.engine.is_closing() {
            self.divert_packets();
        }
    }

    /// Takes the memory of closed regions and revoked keys out of the packets that this side has:
    /// what arrives is discarded, and what waits to be sent becomes a copy.
    fn divert_packets(&mut self) {
        let Shm { channels, engine, .. } = self;
        for channel in channels.iter_mut() {
            if let Some(Assembly::Payload(placement, _)) = &mut channel.assembly {
                engine.divert(channel.handle, placement);
            }
            // All others that the engine gave us are in the ring.
            if let Some(packet) = &mut channel.stuck {
                engine.detach(channel.handle, 0, &mut packet.payload);
            }
        }
    }

    /// Lets go of the regions into which no peer reaches any more.
    fn close_regions(&mut self) {
        self.closing.release_pairs();
        let Shm { closing, channels, engine, .. } = self;
        let is_reached = |closing: &Closing, tag| {
            channels.iter().any(|channel| channel.pair.announced() == tag)
                || closing.within(tag).is_some()
        };
        for operation in closing.take_free(is_reached) {
            engine.submit(operation);
        }
    }

    /// The same in a pass, which knows the time: operations that have waited for long enough end.
    /// True if one ended.
    pub(super) fn check_closing(&mut self) -> bool {
        let (now, before) = (self.now, self.closing.waiting());
        self.close_regions();
        let Shm { closing, channels, engine, completions, .. } = self;
        // A peer that reaches into the region with this tag: its address, where that is known.
        let reached_by = |closing: &Closing, tag| -> Option<Option<Address>> {
            match channels.iter().find(|channel| channel.pair.announced() == tag) {
                Some(channel) => Some(engine.peer_info(channel.handle).map(|info| info.address)),
                None => closing.within(tag).map(|address| address.cloned()),
            }
        };
        for (token, peer) in closing.expire(now, reached_by) {
            let kind = OpErrorKind::StillReached;
            let error = match peer {
                Some(address) => OpError::with_peer(kind, &address),
                None => OpError::local(kind),
            };
            tracing::debug!(%error, "memory that was to be closed is still reached");
            completions.push(Event::Done { token, result: Err::<Done, _>(error) });
        }
        closing.waiting() < before
    }

    /// The end of the endpoint: its regions are closed, and memory in which a peer still is
    /// outlives it. Waits for no peer.
    pub(super) fn leave_memory_behind(&mut self) {
        let mut open: Vec<(u64, Slice)> = Vec::new();
        for Export { region, tag } in self.exports.close_all() {
            open.extend(self.engine.region(region).map(|(memory, _)| (tag, memory.clone())));
        }
        std::mem::take(&mut self.closing).leave_behind(open, self.channels.drain());
    }
}
