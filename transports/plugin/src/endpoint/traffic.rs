//! Packets of peers that are up.

use super::*;
use crate::{Received, Sent};

impl<M: Medium> Packets<M> {
    /// The line to a peer is ready: with room, or at its end.
    pub(super) fn outward_ready(&mut self, peer: Peer, readable: bool, writable: bool) {
        let Some(out) = self.pair(peer).out else { return };
        if readable {
            match self.medium.receive(out, &mut self.buffer) {
                Received::Later => {}
                Received::Packet(_) => {
                    let why = "it sent on a line that goes the other way".to_owned();
                    return self.outward_ended(peer, why);
                }
                Received::Closed(why) => return self.outward_ended(peer, why),
            }
        }
        if writable {
            match self.engine.is_up(peer) {
                true => self.write(peer),
                false => self.greet(peer),
            }
        }
    }

    /// Reads up to `budget` packets of a peer. What it sent last is read before it is lost.
    pub(super) fn read(&mut self, peer: Peer, budget: usize) {
        for _ in 0..budget {
            let &mut Pair { inward: Some(inward), out, .. } = self.pair(peer) else { return };
            match self.medium.receive(inward, &mut self.buffer) {
                Received::Packet(len) => {
                    if let Err(broken) = self.engine.deliver(peer, &self.buffer[..len]) {
                        return self.lose(peer, LostReason::Protocol(broken.to_string()));
                    }
                }
                Received::Later if out.is_some() => return,
                Received::Closed(why) if !why.is_empty() => {
                    return self.lose(peer, LostReason::System(why));
                }
                Received::Later | Received::Closed(_) => {
                    return self.lose(peer, LostReason::Closed);
                }
            }
        }
    }

    /// Sends the packets for a peer, until there are no more, or there is no room.
    pub(super) fn write(&mut self, peer: Peer) {
        while self.engine.is_up(peer) {
            let pair = &mut self.pairs[peer.index as usize];
            let Some(out) = pair.out else { return };
            if pair.unsent.is_empty() {
                let Some(packet) = self.engine.poll_transmit(peer) else { return };
                packet.copy_to(&mut pair.unsent);
                // The copy is sent: the memory of the packet is free again.
                self.engine.sent(peer);
            }
            match self.medium.send(out, &pair.unsent) {
                Sent::All => pair.unsent.clear(),
                Sent::Later => return,
                Sent::Closed(why) => return self.outward_ended(peer, why),
            }
        }
    }
}
