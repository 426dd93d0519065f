//! Fences: operations that begin when those before them are over, and what waits behind one.

use crate::{Operation, Remote, Slice, Token};
use std::{
    collections::VecDeque,
    ops::{Deref, DerefMut},
};

/// An operation that carries a fence: [`Operation::fenced`] makes it.
///
/// The fence divides what this endpoint accepts for one peer, the operation's target
/// ([`Operation::target`]). Neither this operation nor any that is accepted behind it for the same
/// peer begins there before all that were accepted before it are over there: their puts and atomics
/// are visible, their gets have been read, their messages have arrived, injected ones included, or
/// they have ended with an error. An operation that completes when the target is done with its data
/// (a long message, an expected one whose data waits with its sender) is over when it completes:
/// behind one that the target does not receive, the fence waits.
///
/// Among the operations before the fence, and among those from it on, the order is what it is
/// without one: messages stay in order, accesses need not. Operations that have no target (to
/// receive, to close memory) neither wait for a fence nor hold one up, and cannot carry one: they
/// fail with `Unsupported`. So do all that carry one where
/// [`Capabilities::fences`](crate::Capabilities) says that there are none.
///
/// This is what `FI_FENCE` of libfabric asks of an operation. `shmem_fence` of OpenSHMEM is a fence
/// on the next operation to each peer, and asks less: it does not wait for gets.
///
/// What waits behind a fence was accepted, is counted among
/// [`Limits::max_operations`](crate::Limits) and as under way with its peer, and can be cancelled;
/// it ends with `PeerLost` if the peer is lost. A key that is released meanwhile stays good for it.
/// A [`Flush`](Operation::Flush) behind a fence waits for it, too. Until the fence is passed,
/// [`inject`](crate::Endpoint::inject) to this peer says `Full`, and `Event::Writable` follows.
/// Other peers are not concerned. If the operation is cancelled before it has begun, its fence stays,
/// and still holds up what was accepted behind it.
///
/// ```
/// use petasos_fabric::{
///     Access, Clock, Endpoint, Event, Level, Operation, Region, RemoteSpan, Slice, Token,
/// };
/// use std::collections::VecDeque;
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let target = Region::zeroed(4097);
/// let region = endpoint.register(&target.whole(), Access::WRITE)?;
/// let key = endpoint.export(region)?;
/// let remote = endpoint.import(&key)?;
///
/// // The data, and behind it a flag. The owner that sees the flag finds all the data.
/// let put = |nth, offset, from: Slice| Operation::Put {
///     token: Token(nth),
///     remote,
///     spans: [RemoteSpan { offset, len: from.len() as u64 }].into(),
///     local: [from].into(),
///     level: Level::Reusable,
///     event: None,
/// };
/// let data = put(1, 0, Region::from_vec(vec![7; 4096]).whole());
/// let flag = put(2, 4096, Region::from_vec(vec![1]).whole()).fenced();
/// assert!(flag.is_fenced() && flag.token() == Token(2));
/// endpoint.submit(&mut VecDeque::from([data, flag]));
/// let (clock, mut events) = (Clock::start(), Vec::new());
/// while target.slice(4096, 1).unwrap().to_vec() != [1] {
///     endpoint.progress(clock.now(), 64, &mut events);
/// }
/// assert_eq!(target.slice(0, 4096).unwrap().to_vec(), [7; 4096]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Fenced(Box<Operation>);

impl Fenced {
    /// The operation without its fence.
    #[must_use]
    pub fn into_plain(self) -> Operation {
        *self.0
    }
}

impl Deref for Fenced {
    type Target = Operation;
    fn deref(&self) -> &Operation {
        &self.0
    }
}

impl DerefMut for Fenced {
    fn deref_mut(&mut self) -> &mut Operation {
        &mut self.0
    }
}

impl Operation {
    /// The same operation with a fence: see [`Fenced`].
    #[must_use]
    pub fn fenced(self) -> Operation {
        match self {
            Operation::Fenced(_) => self,
            plain => Operation::Fenced(Fenced(Box::new(plain))),
        }
    }

    /// Whether it carries a fence.
    #[inline]
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self, Operation::Fenced(_))
    }

    /// The operation itself, if it carries a fence: for what looks at its kind alone.
    #[inline]
    #[must_use]
    pub fn plain(&self) -> &Operation {
        match self {
            Operation::Fenced(fenced) => fenced,
            plain => plain,
        }
    }

    /// The same, to be changed.
    #[inline]
    #[must_use]
    pub fn plain_mut(&mut self) -> &mut Operation {
        match self {
            Operation::Fenced(fenced) => fenced,
            plain => plain,
        }
    }
}

/// What waits behind the fences of one peer, in order: for endpoints, which know what is under way
/// with the peer. It begins with a fence.
#[derive(Debug, Default)]
pub struct Deferred {
    queue: VecDeque<Entry>,
    operations: usize,
}

#[derive(Debug)]
enum Entry {
    Fence,
    Operation(Operation),
    Release(Remote),
}

/// What comes next of all that waits.
#[derive(Debug)]
pub enum Next {
    /// A fence: [`Deferred::pass`], when nothing is under way with the peer.
    Fence,
    /// An operation that begins now.
    Operation(Operation),
    /// A key that was released, which all that were accepted before then do not need any more.
    Release(Remote),
}

impl Deferred {
    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many operations wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations
    }

    /// An operation was accepted.
    pub fn push(&mut self, operation: Operation) {
        let operation = match operation {
            Operation::Fenced(fenced) => {
                // Between two fences there is something.
                if !matches!(self.queue.back(), Some(Entry::Fence)) {
                    self.queue.push_back(Entry::Fence);
                }
                fenced.into_plain()
            }
            plain => plain,
        };
        self.operations += 1;
        self.queue.push_back(Entry::Operation(operation));
    }

    /// A key was released. True if it is kept, for an operation that waits.
    pub fn release(&mut self, remote: Remote) -> bool {
        for entry in self.queue.iter().rev() {
            match entry {
                Entry::Release(released) if *released == remote => return true,
                Entry::Operation(operation) if operation.remote() == Some(remote) => {
                    self.queue.push_back(Entry::Release(remote));
                    return true;
                }
                _ => {}
            }
        }
        false
    }

    /// Takes out what comes next, but no fence. `None`: nothing waits any more.
    pub fn take_next(&mut self) -> Option<Next> {
        match self.queue.pop_front()? {
            Entry::Fence => {
                self.queue.push_front(Entry::Fence);
                Some(Next::Fence)
            }
            Entry::Operation(operation) => {
                self.operations -= 1;
                Some(Next::Operation(operation))
            }
            Entry::Release(remote) => Some(Next::Release(remote)),
        }
    }

    /// The fence that comes next is passed.
    pub fn pass(&mut self) {
        if let Some(Entry::Fence) = self.queue.front() {
            self.queue.pop_front();
        }
    }

    /// Takes an operation out.
    pub fn cancel(&mut self, token: Token) -> Option<Operation> {
        let is = |entry: &Entry| matches!(entry, Entry::Operation(op) if op.token() == token);
        let at = self.queue.iter().position(is)?;
        let Some(Entry::Operation(operation)) = self.queue.remove(at) else { return None };
        self.operations -= 1;
        // Its fence stays: one of two that meet now.
        let fence = |at: Option<usize>| {
            at.is_some_and(|at| matches!(self.queue.get(at), Some(Entry::Fence)))
        };
        if fence(at.checked_sub(1)) && fence(Some(at)) {
            self.queue.remove(at);
        }
        Some(operation)
    }

    /// The token of an operation that uses this memory.
    #[must_use]
    pub fn using(&self, memory: &Slice) -> Option<Token> {
        self.queue.iter().find_map(|entry| match entry {
            Entry::Operation(operation) if operation.uses(memory) => Some(operation.token()),
            _ => None,
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Peer, Remote};

    const PEER: Peer = Peer { index: 1, generation: 0 };

    fn flush(nth: u64) -> Operation {
        Operation::Flush { token: Token(nth), peer: PEER }
    }

    fn map(nth: u64, remote: Remote) -> Operation {
        Operation::Map { token: Token(nth), remote }
    }

    /// Numbers of operations, 0 for a fence, keys that are released as negative numbers.
    fn all(mut deferred: Deferred) -> Vec<i64> {
        let mut order = Vec::new();
        while let Some(next) = deferred.take_next() {
            order.push(match next {
                Next::Fence => {
                    deferred.pass();
                    0
                }
                Next::Operation(operation) => operation.token().0 as i64,
                Next::Release(remote) => -i64::from(remote.index),
            });
        }
        assert_eq!((deferred.len(), deferred.is_empty()), (0, true));
        order
    }

    #[test]
    fn a_fence_is_before_its_operation() {
        let mut deferred = Deferred::default();
        for operation in [flush(1).fenced().fenced(), flush(2), flush(3).fenced(), flush(4)] {
            deferred.push(operation);
        }
        assert_eq!(deferred.len(), 4);
        assert!(matches!(deferred.take_next(), Some(Next::Fence)), "it stays until it is passed");
        assert_eq!(all(deferred), [0, 1, 2, 0, 3, 4]);
    }

    #[test]
    fn fences_of_cancelled_operations_stay_and_are_bounded() {
        let mut deferred = Deferred::default();
        deferred.push(flush(1).fenced());
        deferred.push(flush(2));
        for _ in 0..1000 {
            deferred.push(flush(3).fenced());
            assert!(deferred.cancel(Token(3)).is_some());
        }
        deferred.push(flush(4));
        deferred.push(flush(5).fenced());
        assert!(deferred.cancel(Token(4)).is_some() && deferred.cancel(Token(4)).is_none());
        assert!(deferred.queue.len() <= 5, "{deferred:?}");
        assert_eq!(all(deferred), [0, 1, 2, 0, 5]);
    }

    #[test]
    fn keys_are_released_behind_what_needs_them() {
        let key = |index| Remote { index, generation: 0, peer: PEER, len: 8 };
        let mut deferred = Deferred::default();
        deferred.push(map(1, key(7)).fenced());
        deferred.push(map(2, key(8)));
        assert!(!deferred.release(key(9)));
        for _ in 0..1000 {
            assert!(deferred.release(key(7)), "kept once");
        }
        deferred.push(flush(3));
        assert!(deferred.queue.len() < 10);
        assert_eq!(all(deferred), [0, 1, 2, -7, 3]);
    }
}
