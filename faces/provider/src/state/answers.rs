//! What peers ask of this endpoint: keys to the memory that is registered here.

use super::{Endpoint, Shared, wire::Packet};
use petasos_fabric::{Endpoint as _, InjectError, Peer};

impl Endpoint {
    /// A peer asks for the key to the memory with this number.
    pub(super) fn asked(&mut self, shared: &Shared, peer: Peer, number: u64) {
        let key = self.regions.get(&number).and_then(|region| {
            let base = shared.memory.get(&number)?.base;
            Some((base, self.net.as_ref()?.export(*region).ok()?))
        });
        match &key {
            Some((base, key)) => {
                let key = key.as_bytes();
                self.answer(peer, &Packet::Key { number, base: *base, key });
            }
            None => self.answer(peer, &Packet::NoKey { number }),
        }
    }

    /// Says what there is to say. True if something was said.
    pub(super) fn give_answers(&mut self) -> bool {
        let Some(net) = &mut self.net else { return false };
        let before = self.answers.len();
        if before == 0 {
            return false;
        }
        // One peer that takes nothing in holds up no other.
        self.answers
            .retain(|(peer, bytes)| matches!(net.inject(*peer, &[bytes]), Err(InjectError::Full)));
        self.answers.len() < before
    }
}
