//! Data that stays with its sender until the receiver takes it.

use petasos_fabric::{Payload, Slice, Token};
use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The body of a long or of a big tagged message. It goes to the side that takes it first: the
/// receiver to copy it, or the sender to revoke it.
pub(crate) struct Offer {
    /// Names the sender's operation.
    pub(crate) id: u64,
    pub(crate) len: u64,
    state: Mutex<State>,
}

enum State {
    Open(Payload),
    /// The receiver copies it, piece by piece, under the lock.
    Taken(Payload),
    /// The sender has it back.
    Over,
}

impl Offer {
    pub(crate) fn new(id: u64, payload: Payload) -> Offer {
        Offer { id, len: payload.len() as u64, state: Mutex::new(State::Open(payload)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The receiver takes it. False if the sender has it back, or it was taken before.
    pub(crate) fn take(&self) -> bool {
        let mut state = self.lock();
        match mem::replace(&mut *state, State::Over) {
            State::Open(payload) => {
                *state = State::Taken(payload);
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }

    /// The sender has it back, unless the receiver has taken it: then false.
    fn revoke(&self) -> bool {
        let mut state = self.lock();
        let open = matches!(*state, State::Open(_));
        if open {
            *state = State::Over;
        }
        open
    }

    /// The sender has it back, whether or not the receiver has taken it. Waits for the copy of one
    /// piece at most: when this returns, the receiver does not read the memory any more.
    fn withdraw(&self) {
        *self.lock() = State::Over;
    }

    /// Copies `len` bytes from `at` on to the same place, for the receiver that has taken it. False
    /// if the sender has it back.
    pub(crate) fn copy(&self, at: usize, len: usize, into: &Slice) -> bool {
        match &*self.lock() {
            State::Taken(Payload::Bytes(bytes)) => into.write(at, &bytes[at..at + len]),
            State::Taken(Payload::Memory(slice)) => {
                if let (Some(from), Some(to)) = (slice.part(at, len), into.part(at, len)) {
                    from.copy_to(&to);
                }
            }
            State::Open(_) | State::Over => return false,
        }
        true
    }

    /// Whether its data is in this memory, and the receiver may read it.
    fn reads(&self, memory: &Slice) -> bool {
        match &*self.lock() {
            State::Open(payload) | State::Taken(payload) => payload.overlaps(memory),
            State::Over => false,
        }
    }

    /// Whether it can still be taken.
    pub(crate) fn is_open(&self) -> bool {
        matches!(*self.lock(), State::Open(_))
    }
}

/// An operation whose data waits for the other side.
struct Waiting {
    token: Token,
    peer: u32,
    offer: Arc<Offer>,
}

/// The offers of this endpoint that receivers may still take.
#[derive(Default)]
pub(crate) struct Offers {
    waiting: HashMap<u64, Waiting>,
    /// How many there are to each peer.
    counts: Vec<usize>,
    next: u64,
}

impl Offers {
    /// The name of the next one that is added.
    pub(crate) fn next_id(&self) -> u64 {
        self.next
    }

    /// Adds the offer of an operation, which was made to the peer with this index.
    pub(crate) fn add(&mut self, token: Token, peer: u32, offer: Arc<Offer>) {
        self.next = offer.id + 1;
        let index = peer as usize;
        if self.counts.len() <= index {
            self.counts.resize(index + 1, 0);
        }
        self.counts[index] += 1;
        self.waiting.insert(offer.id, Waiting { token, peer, offer });
    }

    /// The receiver is done with an offer. Returns the operation's token.
    pub(crate) fn finish(&mut self, id: u64) -> Option<Token> {
        self.remove(id).map(|waiting| waiting.token)
    }

    fn remove(&mut self, id: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        self.counts[waiting.peer as usize] -= 1;
        Some(waiting)
    }

    /// One of data in this memory: the operation, and the peer.
    pub(crate) fn of_memory(&self, memory: &Slice) -> Option<(Token, u32)> {
        let waiting = self.waiting.values().find(|waiting| waiting.offer.reads(memory))?;
        Some((waiting.token, waiting.peer))
    }

    /// How many there are to a peer.
    pub(crate) fn of(&self, peer: u32) -> usize {
        self.counts.get(peer as usize).copied().unwrap_or(0)
    }

    /// Revokes the offer of an operation, and returns the peer to which it was made; `None` if that
    /// has taken it.
    pub(crate) fn revoke(&mut self, token: Token) -> Option<u32> {
        let (&id, waiting) = self.waiting.iter().find(|(_, waiting)| waiting.token == token)?;
        let peer = waiting.peer;
        if !waiting.offer.revoke() {
            return None;
        }
        self.remove(id);
        Some(peer)
    }

    /// Takes out the offers to a peer that is lost, also those that it has taken: its process may
    /// live, and go on until it hears of it. Returns the operations' tokens.
    pub(crate) fn lose(&mut self, peer: u32) -> Vec<Token> {
        if let Some(count) = self.counts.get_mut(peer as usize) {
            *count = 0;
        }
        let lost = self.waiting.extract_if(|_, waiting| waiting.peer == peer);
        let lost = lost.map(|(_, waiting)| {
            waiting.offer.withdraw();
            waiting.token
        });
        lost.collect()
    }

    /// Revokes all that no receiver has taken, at the end of the endpoint.
    pub(crate) fn revoke_all(&self) {
        for waiting in self.waiting.values() {
            waiting.offer.revoke();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::Region;

    /// The sender loses a receiver that has taken a body, and is in the middle of copying it.
    #[test]
    fn a_body_is_not_read_once_its_sender_has_it_back() {
        let (body, into) = (Region::from_vec(vec![7; 8]), Region::zeroed(8).whole());
        let offer = Arc::new(Offer::new(1, Payload::Memory(body.whole())));
        let mut offers = Offers::default();
        offers.add(Token(5), 3, offer.clone());
        assert!(!offer.copy(0, 4, &into), "it was not taken");
        assert!(offer.take() && !offer.take() && offer.copy(0, 4, &into));
        assert_eq!(offers.revoke(Token(5)), None, "it is too late to cancel");
        assert_eq!(offers.lose(3), [Token(5)]);
        assert!(!offer.copy(4, 4, &into) && body.is_unique());
        assert_eq!(into.to_vec(), [7, 7, 7, 7, 0, 0, 0, 0]);
    }
}
