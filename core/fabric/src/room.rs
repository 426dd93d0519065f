//! What has no room for an operation, and how operations are submitted past peers that have none.

use crate::{Endpoint, Operation, Peer};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Operations that one call of [`Endpoint::submit`] leaves in the queue before it ends.
const PASSED: usize = 1024;
/// Peers that it passes.
const PEERS: usize = 64;

/// What has no room for another operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// The peer of the operation ([`Operation::target`]) has its share of
    /// [`Limits::max_operations`](crate::Limits::max_operations) under way. Operations to other
    /// peers may be accepted. One [`Event::Writable`](crate::Event::Writable) of the peer follows
    /// when there is room again, unless it is lost before.
    #[error("too many operations are under way with the peer")]
    Peer,
    /// The whole endpoint. There is room when operations have completed: try again after
    /// `progress`.
    #[error("too many operations are under way at the endpoint")]
    Endpoint,
}

/// An operation that was not accepted, of which nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("{full}")]
pub struct Refused {
    /// The operation.
    pub operation: Operation,
    /// What has no room for it.
    pub full: Full,
}

/// Submits operations one by one, as [`Endpoint::submit`] does: for endpoints that do something
/// else first.
pub fn submit_each<E: Endpoint + ?Sized>(endpoint: &mut E, operations: &mut VecDeque<Operation>) {
    while let Some(operation) = operations.pop_front() {
        if let Err(refused) = endpoint.try_submit(operation) {
            return submit_past(endpoint, refused, operations);
        }
    }
}

/// Submits the operations behind one that was refused, and leaves those of peers that are full.
#[cold]
fn submit_past<E: Endpoint + ?Sized>(
    endpoint: &mut E,
    first: Refused,
    operations: &mut VecDeque<Operation>,
) {
    let (mut passed, mut peers) = (Vec::new(), SmallVec::<[Peer; 4]>::new());
    let mut refused = first;
    loop {
        peers.extend(refused.operation.target());
        passed.push(refused.operation);
        if refused.full == Full::Endpoint || peers.len() == PEERS {
            break;
        }
        let next = loop {
            if passed.len() == PASSED {
                break None;
            }
            let Some(operation) = operations.pop_front() else { break None };
            match operation.target() {
                Some(peer) if peers.contains(&peer) => passed.push(operation),
                _ => match endpoint.try_submit(operation) {
                    Ok(()) => {}
                    Err(refused) => break Some(refused),
                },
            }
        };
        match next {
            Some(next) => refused = next,
            None => break,
        }
    }
    passed.into_iter().rev().for_each(|operation| operations.push_front(operation));
}
