//! A queue for each client, and deficit round robin among the queues (Shreedhar and Varghese,
//! SIGCOMM 1995).
//!
//! Each queue in its turn may spend a quantum; it keeps what is left over while it has work.
//! So in the long run queues with work get the same share of what is spent, however many requests
//! each has, and however large they are.

use std::collections::{HashMap, VecDeque};

/// What a queue may spend in its turn.
const QUANTUM: u64 = 64 << 10;

/// The most that one piece of work counts for: bounds the rounds until it is its turn.
const MOST: u64 = 4 << 20;

/// Work that waits.
#[derive(Debug)]
pub(super) struct RoundRobin<W> {
    queues: HashMap<u64, Queue<W>>,
    /// Queues with work, the one whose turn it is first.
    ring: VecDeque<u64>,
    len: usize,
}

#[derive(Debug)]
struct Queue<W> {
    work: VecDeque<(u64, W)>,
    credit: u64,
}

impl<W> RoundRobin<W> {
    pub(super) fn new() -> RoundRobin<W> {
        RoundRobin { queues: HashMap::new(), ring: VecDeque::new(), len: 0 }
    }

    /// How much work waits.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds work at the end of queue `of`.
    pub(super) fn push(&mut self, of: u64, cost: u64, work: W) {
        let queue = self.queues.entry(of).or_insert_with(|| {
            self.ring.push_back(of);
            Queue { work: VecDeque::new(), credit: 0 }
        });
        queue.work.push_back((cost.min(MOST), work));
        self.len += 1;
    }

    /// The next work.
    pub(super) fn pop(&mut self) -> Option<W> {
        loop {
            let of = *self.ring.front()?;
            let queue = self.queues.get_mut(&of)?;
            let cost = queue.work.front().map_or(0, |(cost, _)| *cost);
            if queue.credit < cost {
                queue.credit += QUANTUM;
                self.ring.rotate_left(1);
                continue;
            }
            queue.credit -= cost;
            let work = queue.work.pop_front();
            if queue.work.is_empty() {
                self.queues.remove(&of);
                self.ring.pop_front();
            }
            let (_, work) = work?;
            self.len -= 1;
            return Some(work);
        }
    }

    /// Takes all that waits.
    pub(super) fn clear(&mut self) -> RoundRobin<W> {
        std::mem::replace(self, RoundRobin::new())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_beside_a_flood() {
        let mut queues = RoundRobin::new();
        for _ in 0..1000 {
            queues.push(1, 1 << 20, 1);
        }
        queues.push(2, 4096, 2);
        let place = std::iter::from_fn(|| queues.pop()).position(|of| of == 2);
        assert!(place.unwrap() <= 1, "{place:?}");
    }

    proptest! {
        #[test]
        fn shares_are_equal_and_order_is_kept(costs in proptest::collection::vec(
            proptest::collection::vec(1..3 * QUANTUM, 1..60), 2..6)) {
            let mut queues = RoundRobin::new();
            for (of, costs) in costs.iter().enumerate() {
                for (at, cost) in costs.iter().enumerate() {
                    queues.push(of as u64, *cost, (of, at, *cost));
                }
            }
            let mut spent = vec![0u64; costs.len()];
            let mut next = vec![0; costs.len()];
            let all = queues.len();
            let mut came = 0;
            while let Some((of, at, cost)) = queues.pop() {
                prop_assert_eq!(at, next[of]);
                next[of] += 1;
                spent[of] += cost;
                came += 1;
                let busy = |of: &usize| next[*of] < costs[*of].len();
                let of_busy: Vec<u64> = (0..costs.len()).filter(busy).map(|of| spent[of]).collect();
                if let (Some(most), Some(least)) = (of_busy.iter().max(), of_busy.iter().min()) {
                    prop_assert!(most - least <= 5 * QUANTUM, "{} {}", most, least);
                }
            }
            prop_assert_eq!(came, all);
            prop_assert!(queues.queues.is_empty() && queues.ring.is_empty() && queues.len() == 0);
        }
    }
}
