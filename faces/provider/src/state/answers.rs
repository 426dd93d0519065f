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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{State, open, wire::Bytes};
    use petasos_fabric::{PeerState, Sleep};
    use std::time::Duration;

    fn enabled() -> State {
        let mut state = State::new(None);
        let at = state.endpoints.insert(Endpoint::new(0, 0));
        let (endpoint, shared) = state.endpoint(at);
        endpoint.enable(open::open(None).unwrap(), shared).unwrap();
        state
    }

    /// A peer that has asked for keys, and is stopped, takes nothing in: its answers wait for it, and
    /// the endpoint sleeps meanwhile.
    #[test]
    fn answers_to_a_peer_that_is_stopped_cost_no_passes() {
        let (mut own, mut other) = (enabled(), enabled());
        let address = own.endpoints[0].net.as_ref().unwrap().address().clone();
        let net = other.endpoints[0].net.as_mut().unwrap();
        let peer = net.resolve(&address, Duration::from_secs(20)).unwrap();
        let is_up = |state: &State| {
            let net = state.endpoints[0].net.as_ref().unwrap();
            net.peer(peer).is_some_and(|info| info.state == PeerState::Up)
        };
        while !is_up(&other) || !is_up(&own) {
            other.progress_all();
            own.progress_all();
        }
        let mut ask = Bytes::new();
        Packet::Ask { number: 7 }.encode(&mut ask);
        let net = other.endpoints[0].net.as_mut().unwrap();
        for _ in 0..10 {
            net.inject(peer, &[&ask]).unwrap();
        }
        // From here on the other one is not driven.
        let back = own.endpoints[0].net.as_mut().unwrap();
        while back.inject(peer, &[b"\x05"]).is_ok() {}
        while own.endpoints[0].answers.len() < 10 {
            own.progress_all();
        }
        for _ in 0..1000 {
            own.progress_all();
        }
        let now = own.shared.now();
        assert!(matches!(own.endpoints[0].arm(now), Sleep::Until(_)));
        // When it goes on it has them.
        while !own.endpoints[0].answers.is_empty() {
            other.progress_all();
            own.progress_all();
        }
    }
}
