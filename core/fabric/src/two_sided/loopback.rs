//! What an endpoint sends to itself: the same packets, without a channel.

use super::{Engine, Outgoing, Placement};
use crate::{LostReason, Slice};

impl Engine {
    /// Whether there is something for this endpoint itself that can be moved on now.
    #[inline]
    pub(super) fn own_output(&self) -> bool {
        let listed = |peer| {
            self.peers
                .entry_and_connection(peer)
                .and_then(|(_, conn)| conn)
                .is_some_and(|conn| conn.listed)
        };
        self.own.is_some_and(listed)
    }

    /// Moves up to `budget` packets from this endpoint to itself; true if any.
    pub(super) fn deliver_to_self(&mut self, budget: usize) -> bool {
        let Some(own) = self.own else { return false };
        for moved in 0..budget {
            let Some(packet) = self.poll_transmit(own) else {
                return moved > 0;
            };
            let landed = match self.accept(own, &packet.header) {
                Ok(mut placement) => {
                    transfer(&packet.payload, &mut placement);
                    self.sent(own);
                    self.landed(own, placement)
                }
                Err(violation) => Err(violation),
            };
            if let Err(violation) = landed {
                self.peer_lost(own, LostReason::Protocol(violation.to_string()));
            }
        }
        true
    }
}

fn transfer(from: &Outgoing, to: &mut Placement) {
    match (from, to) {
        (Outgoing::Nothing, _) | (_, Placement::Discard) => {}
        (Outgoing::Bytes(bytes), to) => to.write(0, bytes),
        (Outgoing::Memory(pieces), Placement::Buffer(buffer)) => {
            let mut at = 0;
            for piece in pieces {
                piece.read(0, &mut buffer[at..at + piece.len()]);
                at += piece.len();
            }
        }
        (Outgoing::Memory(pieces), Placement::Memory(targets)) => {
            let rest = |piece: &Slice, at: usize| piece.part(at, piece.len() - at);
            let mut targets = targets.iter().cloned();
            let mut target: Option<Slice> = None;
            for piece in pieces {
                let mut at = 0;
                while let Some(from) = rest(piece, at).filter(|from| !from.is_empty()) {
                    let Some(to) = target.take().or_else(|| targets.next()) else {
                        return;
                    };
                    let moved = from.copy_to(&to);
                    at += moved;
                    target = rest(&to, moved).filter(|left| !left.is_empty());
                }
            }
        }
    }
}
