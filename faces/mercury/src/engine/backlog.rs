//! What the endpoint had no room for yet: for each peer in the order in which it was asked for. A
//! peer that takes nothing in holds up no other.

use crate::quick::Quick;
use petasos_fabric::{Endpoint, Full, Operation, Payload, Peer, Slice, Token};
use std::collections::{HashMap, VecDeque};

/// Bytes that wait for one peer, from which on there is no room for more messages to it.
const MOST: u64 = 64 << 20;
/// What an operation counts beside its bytes.
const EACH: u64 = 256;

/// Operations of one peer, and their bytes.
#[derive(Default)]
struct Line {
    operations: VecDeque<Operation>,
    bytes: u64,
}

/// Operations that wait. Those without a target are a line of their own.
#[derive(Default)]
pub(super) struct Backlog {
    lines: HashMap<Option<Peer>, Line, Quick>,
    /// The lines, as their turns come.
    turns: VecDeque<Option<Peer>>,
}

fn bytes(operation: &Operation) -> u64 {
    EACH + match operation {
        Operation::Send { payload: Payload::Bytes(bytes), .. } => bytes.len() as u64,
        Operation::SendLong { header, body, .. } => (header.len() + body.len()) as u64,
        _ => 0,
    }
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whether anything waits for this peer.
    pub(super) fn has(&self, target: Option<Peer>) -> bool {
        !self.lines.is_empty() && self.lines.contains_key(&target)
    }

    /// Whether so much waits for this peer that no more messages to it are taken.
    pub(super) fn is_full(&self, peer: Peer) -> bool {
        self.lines.get(&Some(peer)).is_some_and(|line| line.bytes >= MOST)
    }

    /// Whether anything that waits reads or writes this memory.
    pub(super) fn uses(&self, memory: &Slice) -> bool {
        let mut all = self.lines.values().flat_map(|line| &line.operations);
        all.any(|operation| operation.uses(memory))
    }

    pub(super) fn push(&mut self, operation: Operation) {
        let target = operation.target();
        let line = self.lines.entry(target).or_insert_with(|| {
            self.turns.push_back(target);
            Line::default()
        });
        line.bytes += bytes(&operation);
        line.operations.push_back(operation);
    }

    /// Takes an operation out; false if it is not here.
    pub(super) fn remove(&mut self, token: Token) -> bool {
        let found = self.lines.iter().find_map(|(target, line)| {
            let at = line.operations.iter().position(|operation| operation.token() == token)?;
            Some((*target, at))
        });
        let Some((target, at)) = found else { return false };
        let line = self.lines.get_mut(&target).expect("it was found there");
        let operation = line.operations.remove(at).expect("it was found there");
        line.bytes -= bytes(&operation);
        if line.operations.is_empty() {
            self.lines.remove(&target);
            self.turns.retain(|turn| *turn != target);
        }
        true
    }

    /// Hands the endpoint what it has room for.
    pub(super) fn submit(&mut self, endpoint: &mut dyn Endpoint) {
        for _ in 0..self.turns.len() {
            let Some(target) = self.turns.pop_front() else { return };
            let line = self.lines.get_mut(&target).expect("each line has its turn");
            let (mut full, before) = (None, line.operations.len());
            while let Some(operation) = line.operations.pop_front() {
                let size = bytes(&operation);
                match endpoint.try_submit(operation) {
                    Ok(()) => line.bytes -= size,
                    Err(refused) => {
                        line.operations.push_front(refused.operation);
                        full = Some(refused.full);
                        break;
                    }
                }
            }
            let left = line.operations.len();
            match full {
                None => drop(self.lines.remove(&target)),
                // It has its turn still.
                Some(Full::Endpoint) if left == before => return self.turns.push_front(target),
                Some(Full::Endpoint) => return self.turns.push_back(target),
                Some(Full::Peer) => self.turns.push_back(target),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use petasos_fabric::Level;
    use std::time::Duration;

    fn send(token: u64, peer: Peer, bytes: &Bytes) -> Operation {
        let (token, payload) = (Token(token), Payload::Bytes(bytes.clone()));
        Operation::Send { token, peer, payload, level: Level::Reusable }
    }

    #[test]
    fn a_peer_that_is_full_holds_up_nobody_else() {
        let open = || petasos::open("self://*", &petasos::OpenOptions::default()).unwrap();
        let (mut here, one, two) = (open(), open(), open());
        let mut resolve = |at: &dyn Endpoint| {
            let address = at.address().clone();
            here.resolve(&address, Duration::from_secs(1)).unwrap()
        };
        let (slow, other) = (resolve(&*one), resolve(&*two));
        let hello = Bytes::from_static(b"hello");
        // The slow one takes nothing in.
        let refused = (0..).find_map(|nth| here.try_submit(send(nth, slow, &hello)).err());
        assert_eq!(refused.unwrap().full, Full::Peer);
        let mut backlog = Backlog::default();
        backlog.push(send(1 << 20, slow, &hello));
        backlog.push(send(1 << 21, slow, &hello));
        backlog.push(send(1 << 22, other, &hello));
        backlog.submit(&mut *here);
        assert!(backlog.has(Some(slow)) && !backlog.has(Some(other)));
        assert!(backlog.remove(Token(1 << 20)) && !backlog.remove(Token(1 << 20)));
        // Bytes are bounded, and those that are taken out count no more.
        let long = Bytes::from(vec![0; 1 << 20]);
        (0..64).for_each(|nth| backlog.push(send(nth, slow, &long)));
        assert!(backlog.is_full(slow) && !backlog.is_full(other));
        (0..64).for_each(|nth| assert!(backlog.remove(Token(nth))));
        assert!(!backlog.is_full(slow) && !backlog.is_empty());
        assert!(backlog.remove(Token(1 << 21)) && backlog.is_empty());
    }
}
