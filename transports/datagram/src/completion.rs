//! Data that the library writes to where it belongs, with completion data for the owner: names, by
//! which a peer's is known, and what has arrived.
//!
//! A packet without the data goes to the owner as well, and is taken when both have arrived, in
//! either order: see [`crate::nic`].

use crate::{datagrams::Datagrams, frame::CompletionData, network::Network};
use petasos_fabric::Peer;

impl<N: Network> Datagrams<N> {
    /// With what completion data from a peer begins: chosen when the peer first needs to know. 0 if
    /// there is no completion data here.
    pub(crate) fn completion_name(&mut self, peer: Peer) -> u64 {
        let names = CompletionData::names(self.net.facts().data_bits);
        let known = self.links.of(peer).map_or(0, |link| link.inward.completion_name());
        if names == 0 || known > 0 {
            return known;
        }
        for _ in 0..64 {
            let random = getrandom::u64().expect("the system's random source answers");
            let name = random & names;
            if name > 0 && self.links.name_completion(peer.index, name) {
                return name;
            }
        }
        0
    }

    /// Notes completion data. Returns the slot of a peer of which a packet is due now.
    pub(crate) fn completion_of(&mut self, data: u64) -> Option<u32> {
        let data = CompletionData::from_data(data);
        let index = self.links.by_completion(data.name);
        let link = index.and_then(|index| self.links.get_mut(index));
        let (Some(index), Some(link)) = (index, link) else {
            self.counters.stray_completion_data += 1;
            return None;
        };
        match link.inward.complete(data.number) {
            true => self.counters.completion_data_in += 1,
            false => self.counters.stray_completion_data += 1,
        }
        (link.inward.is_due() && !link.inward.is_paused()).then_some(index)
    }
}
