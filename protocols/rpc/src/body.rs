//! The bytes of arguments and results, and what is kept of them.

use petasos_fabric::{Lease, Limits};
use std::{cell::Cell, ops::Deref, rc::Rc};

/// The bytes of arguments or a result: those of a message from some offset on.
#[derive(Debug, Default)]
pub(crate) struct Body {
    pub(crate) message: Lease,
    pub(crate) start: usize,
    /// For as long as it is kept.
    _place: Option<Place>,
}

impl Body {
    /// What is not kept for long, or not of the endpoint's pool.
    #[inline]
    pub(crate) fn new(message: Lease, start: usize) -> Body {
        Body { message, start, _place: None }
    }

    /// What the program may keep for as long as it likes: a result until it is read, or a request
    /// until it is answered.
    #[inline]
    pub(crate) fn kept(message: Lease, start: usize, kept: &Kept) -> Body {
        match message.len() <= Lease::LINES {
            true => Body::new(message, start),
            false => kept.keep(message, start),
        }
    }
}

impl Deref for Body {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.message[self.start..]
    }
}

/// Bounds how much of the endpoint's pool is kept for the program. What is beyond is copied, so
/// that the program alone pays for what it does not read, with memory for calls that it has made or
/// admitted; and a message can always be received, above all an answer.
#[derive(Debug)]
pub(crate) struct Kept {
    count: Rc<Cell<usize>>,
    /// Of the pool's leases.
    most: usize,
}

/// Counts for one body that is kept.
#[derive(Debug)]
struct Place(Rc<Cell<usize>>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.update(|count| count - 1);
    }
}

impl Kept {
    /// Of a pool with these limits, a quarter: a peer whose messages are all that is kept still has
    /// more than half of the pool for others, of which it may take a part as everyone may.
    pub(crate) fn new(limits: &Limits) -> Kept {
        /// A quarter of what a pool lends at most.
        const BYTES: usize = 64 << 20;
        let (quota, longest) = (limits.quota, limits.max_message.max(1));
        let bytes = BYTES.min(quota.lease_bytes / 2) / longest;
        let most = (limits.max_leases / 4).min(quota.leases / 2).min(bytes);
        Kept { count: Rc::default(), most }
    }

    #[cold]
    fn keep(&self, message: Lease, start: usize) -> Body {
        let count = self.count.get();
        self.count.set(count + 1);
        let _place = Some(Place(Rc::clone(&self.count)));
        // Those that were copied count as well: so no more than these are leases of the pool.
        match count < self.most {
            true => Body { message, start, _place },
            false => Body { message: Lease::from(message.to_vec()), start, _place },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::Pool;

    fn limits(max_leases: usize) -> Limits {
        let mut limits = Limits::default();
        limits.max_leases = max_leases;
        limits
    }

    #[test]
    fn a_part_of_the_pool_is_kept_and_the_rest_copied() {
        let (pool, kept) = (Pool::new(16), Kept::new(&limits(16)));
        let message = |byte| pool.lend(1000, |room| room.fill(byte)).expect("there is room");
        for _ in 0..3 {
            let mut bodies: Vec<Body> =
                (0..100).map(|byte| Body::kept(message(byte), 10, &kept)).collect();
            assert_eq!((pool.lent(), kept.count.get()), (4, 100));
            for (byte, body) in (0..).zip(&bodies) {
                assert_eq!(**body, [byte; 990]);
            }
            // While many copies are kept, nothing more of the pool is.
            bodies.drain(..4);
            bodies.push(Body::kept(message(1), 0, &kept));
            assert_eq!((pool.lent(), kept.count.get()), (0, 97));
        }
        assert_eq!(kept.count.get(), 0);
    }

    #[test]
    fn short_messages_are_of_no_pool() {
        let kept = Kept::new(&limits(4096));
        let bodies = [0, 56, 57, 112].map(|len| Lease::short(len, |room| room.fill(1)));
        let bodies = bodies.map(|message| Body::kept(message, 0, &kept));
        assert_eq!((kept.count.get(), bodies[3].len()), (0, 112));
    }

    #[test]
    fn quotas_and_long_messages_bound_it_too() {
        let most = |set: fn(&mut Limits)| {
            let mut limits = limits(4096);
            set(&mut limits);
            Kept::new(&limits).most
        };
        assert_eq!(most(|_| ()), 1024);
        assert_eq!(most(|limits| limits.max_leases = 3), 0);
        assert_eq!(most(|limits| limits.max_message = 1 << 20), 64);
        assert_eq!(most(|limits| limits.quota.leases = 6), 3);
        assert_eq!(most(|limits| limits.quota.lease_bytes = 80 << 10), 10);
    }
}
