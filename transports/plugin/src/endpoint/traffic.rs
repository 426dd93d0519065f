//! Packets of peers that are up.

use super::*;
use crate::{Lent, Received, Sent};

/// Payloads from this length on stay where they are, if the medium can do that: what is shorter is
/// copied in less time than it takes to ask for it.
const LENT: usize = 16 << 10;

impl<M: Medium> Packets<M> {
    /// The line to a peer is ready: with room, or at its end.
    pub(super) fn outward_ready(&mut self, peer: Peer, readable: bool, writable: bool) {
        let Some(out) = self.pair(peer).out else { return };
        if readable {
            match self.medium.receive(out, &mut self.buffer) {
                Received::Later => {}
                Received::Packet(_) | Received::Lent { .. } | Received::Fetched => {
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
                    let taken = match self.pair(peer).arriving.take() {
                        None => self.engine.deliver(peer, &self.buffer[..len]).map_err(broken),
                        Some((mut placement, payload)) if payload == len => {
                            placement.write(0, &self.buffer[..len]);
                            self.engine.landed(peer, placement).map_err(broken)
                        }
                        Some((_, payload)) => Err(format!("{len} bytes of a payload of {payload}")),
                    };
                    if let Err(why) = taken {
                        return self.lose(peer, LostReason::Protocol(why));
                    }
                }
                Received::Lent { header, payload } => {
                    if let Err(why) = self.fetch(peer, inward, header, payload) {
                        return self.lose(peer, LostReason::Protocol(why));
                    }
                }
                Received::Fetched => {
                    let placement = self.pair(peer).arriving.take();
                    let landed = match placement {
                        Some((placement, _)) => self.engine.landed(peer, placement).map_err(broken),
                        None => Err("a payload that was not asked for".to_owned()),
                    };
                    if let Err(why) = landed {
                        return self.lose(peer, LostReason::Protocol(why));
                    }
                }
                // What is under way to memory here comes first.
                Received::Later if out.is_some() || self.pair(peer).arriving.is_some() => return,
                Received::Closed(why) if !why.is_empty() => {
                    return self.lose(peer, LostReason::System(why));
                }
                Received::Later | Received::Closed(_) => {
                    return self.lose(peer, LostReason::Closed);
                }
            }
        }
    }

    /// The beginning of a packet has come: says where the rest is to go.
    fn fetch(
        &mut self,
        peer: Peer,
        line: u32,
        header: usize,
        payload: usize,
    ) -> Result<(), String> {
        let bytes = &self.buffer[..header];
        let prefix = bytes.first_chunk().ok_or("a header that is cut short")?;
        let frame = header::frame(*prefix).map_err(broken)?;
        let agree = (frame.header, frame.payload) == (header, payload);
        if !agree || payload > self.buffer.len() || self.pair(peer).arriving.is_some() {
            return Err(format!("a header of {header} bytes for a payload of {payload}"));
        }
        let placement = self.engine.accept(peer, &self.buffer[..header]).map_err(broken)?;
        let into = match &placement {
            Placement::Memory(slices) => Some(&slices[..]),
            _ => None,
        };
        self.medium.fetch(line, into);
        self.pair(peer).arriving = Some((placement, payload));
        Ok(())
    }

    /// Sends the packets for a peer, until there are no more, or there is no room.
    pub(super) fn write(&mut self, peer: Peer) {
        while self.engine.is_up(peer) {
            let pair = &mut self.pairs[peer.index as usize];
            let Some(out) = pair.out else { return };
            if pair.lent.is_some() {
                if self.medium.is_lent(out) {
                    return;
                }
                pair.lent = None;
                self.engine.sent(peer);
            }
            if pair.unsent.is_empty() {
                let packet = pair.held.take().or_else(|| self.engine.poll_transmit(peer));
                let Some(packet) = packet else { return };
                match lend(&mut self.medium, out, &packet) {
                    Lent::Taken => {
                        pair.lent = Some(packet.payload);
                        return;
                    }
                    Lent::Later => {
                        pair.held = Some(packet);
                        return;
                    }
                    Lent::Closed(why) => return self.outward_ended(peer, why),
                    Lent::No => {}
                }
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

/// Sends a packet without its payload, if that is long enough, and memory that the medium knows.
fn lend<M: Medium>(medium: &mut M, line: u32, packet: &Packet) -> Lent {
    match &packet.payload {
        Outgoing::Memory(slices) if packet.payload.len() >= LENT => {
            medium.lend(line, &packet.header, slices)
        }
        _ => Lent::No,
    }
}

fn broken(violation: impl ToString) -> String {
    violation.to_string()
}
