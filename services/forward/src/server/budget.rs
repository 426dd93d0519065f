//! Memory for data on the way: so much in all, and shared out fairly.

use crate::{FsError, FsResult};
use futures_channel::oneshot;
use rustix::io::Errno;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The largest that can be asked for at once.
pub(super) const MOST: u64 = 1 << 20;

/// What each client may have here within calls, whatever others have: one call of the largest.
const OWN: u64 = super::config::INLINE;

/// The memory that there is.
#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    used: u64,
    peak: u64,
    /// Bytes that came within calls which wait for something, and the most so far.
    early: u64,
    early_peak: u64,
    /// The same, of each client that has some.
    early_of: HashMap<u64, u64>,
    clients: HashMap<u64, Client>,
    /// Clients that wait, the next one first.
    ring: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Client {
    held: u64,
    waiting: VecDeque<Claim>,
}

#[derive(Debug)]
struct Claim {
    len: u64,
    answer: oneshot::Sender<Memory>,
}

/// So much memory, granted until it is dropped.
#[derive(Debug)]
pub(super) struct Memory {
    budget: Arc<Budget>,
    of: u64,
    len: u64,
}

/// Bytes that are here already, within a call: counted until they are part of [`Memory`], or
/// dropped.
#[derive(Debug)]
pub(super) struct InCall {
    budget: Arc<Budget>,
    of: u64,
    len: u64,
}

type Grants = Vec<(oneshot::Sender<Memory>, Memory)>;

impl Budget {
    /// So many bytes, but never less than eight of the largest pieces.
    pub(super) fn new(limit: u64) -> Arc<Budget> {
        Arc::new(Budget { limit: limit.max(8 * MOST), state: Mutex::default() })
    }

    /// In use now, at most so far, and the limit.
    pub(super) fn status(&self) -> [u64; 3] {
        let state = self.lock();
        [state.used, state.peak, self.limit]
    }

    /// In-call bytes that wait now, and at most so far.
    pub(super) fn early(&self) -> [u64; 2] {
        let state = self.lock();
        [state.early, state.early_peak]
    }

    /// Counts bytes that came within a call of client `of`, before the call waits for anything. In
    /// all there are never more of them than the limit, and 256 KiB for each client beyond it.
    ///
    /// # Errors
    /// `ENOBUFS` if as much waits already as there may be in all, and this client has its 256 KiB
    /// of it. A client that floods is refused, others are let in.
    pub(super) fn arrive(self: &Arc<Self>, of: u64, len: u64) -> FsResult<InCall> {
        let mut state = self.lock();
        let of_this = state.early_of.get(&of).copied().unwrap_or(0);
        if state.early + len > self.limit && of_this + len > OWN {
            let detail = format!("the limit of {} bytes of memory is reached", self.limit);
            return Err(FsError::new(Errno::NOBUFS, detail));
        }
        state.early += len;
        state.early_peak = state.early_peak.max(state.early);
        *state.early_of.entry(of).or_default() += len;
        Ok(InCall { budget: Arc::clone(self), of, len })
    }

    /// Waits for memory for client `of`. No client has more than a quarter of all, or, while others
    /// wait, more than its share. Dropping the future gives the claim up.
    pub(super) async fn acquire(self: &Arc<Self>, of: u64, len: u64) -> FsResult<Memory> {
        let len = len.min(MOST);
        let receiver = {
            let mut state = self.lock();
            if state.ring.is_empty() && state.admits(of, len, self.limit) {
                state.take(of, len);
                return Ok(self.memory(of, len));
            }
            let (answer, receiver) = oneshot::channel();
            let client = state.clients.entry(of).or_default();
            client.waiting.push_back(Claim { len, answer });
            let first = client.waiting.len() == 1;
            if first {
                state.ring.push_back(of);
            }
            // Others may wait for their own share only.
            let grants = self.grant(&mut state);
            drop(state);
            hand_out(grants);
            receiver
        };
        receiver.await.map_err(|_| Errno::SHUTDOWN.into())
    }

    fn memory(self: &Arc<Self>, of: u64, len: u64) -> Memory {
        Memory { budget: Arc::clone(self), of, len }
    }

    /// Grants the claims that can be granted.
    fn grant(self: &Arc<Self>, state: &mut State) -> Grants {
        let mut grants = Grants::new();
        let mut refused = 0;
        while refused < state.ring.len() {
            let Some(of) = state.ring.pop_front() else { break };
            while state.first(of).is_some_and(|claim| claim.answer.is_canceled()) {
                state.take_claim(of);
            }
            let Some(len) = state.first(of).map(|claim| claim.len) else {
                state.tidy(of);
                continue;
            };
            if state.used + len > self.limit {
                // It is next: smaller claims must not overtake it for ever.
                state.ring.push_front(of);
                break;
            }
            // It counts as a client that waits, so it stays in the ring for the check.
            state.ring.push_back(of);
            if !state.admits(of, len, self.limit) {
                refused += 1;
                continue;
            }
            refused = 0;
            let Some(claim) = state.take_claim(of) else { continue };
            if state.first(of).is_none() {
                state.ring.pop_back();
            }
            state.take(of, len);
            grants.push((claim.answer, self.memory(of, len)));
        }
        grants
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn admits(&self, of: u64, len: u64, limit: u64) -> bool {
        if self.used + len > limit {
            return false;
        }
        let held = self.clients.get(&of).map_or(0, |client| client.held);
        let others = self.ring.iter().any(|waiting| *waiting != of);
        let share = if others { self.share(limit) } else { limit / 4 };
        held == 0 || held + len <= share
    }

    /// What each client may have while others wait.
    fn share(&self, limit: u64) -> u64 {
        limit / self.clients.len().max(4) as u64
    }

    fn take(&mut self, of: u64, len: u64) {
        self.used += len;
        self.peak = self.peak.max(self.used);
        self.clients.entry(of).or_default().held += len;
    }

    /// The first claim of a client that waits.
    fn first(&self, of: u64) -> Option<&Claim> {
        self.clients.get(&of)?.waiting.front()
    }

    fn take_claim(&mut self, of: u64) -> Option<Claim> {
        self.clients.get_mut(&of)?.waiting.pop_front()
    }

    /// Forgets a client that has nothing and wants nothing.
    fn tidy(&mut self, of: u64) {
        if self.clients.get(&of).is_some_and(|it| it.held == 0 && it.waiting.is_empty()) {
            self.clients.remove(&of);
        }
    }
}

fn hand_out(grants: Grants) {
    for (sender, memory) in grants {
        // A future that was dropped this very moment drops the memory: the next one gets it.
        drop(sender.send(memory));
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.early -= self.len;
        if let Some(early) = state.early_of.get_mut(&self.of) {
            *early -= self.len;
            if *early == 0 {
                state.early_of.remove(&self.of);
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let mut state = self.budget.lock();
        state.used -= self.len;
        if let Some(client) = state.clients.get_mut(&self.of) {
            client.held -= self.len;
        }
        state.tidy(self.of);
        if state.ring.is_empty() {
            return;
        }
        let grants = self.budget.grant(&mut state);
        drop(state);
        hand_out(grants);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use proptest::prelude::*;
    use std::pin::Pin;

    fn now(budget: &Arc<Budget>, of: u64, len: u64) -> Option<Memory> {
        budget.acquire(of, len).now_or_never().map(|memory| memory.unwrap())
    }

    #[test]
    fn a_quarter_and_a_share() {
        let budget = Budget::new(8 * MOST);
        let of_one: Vec<_> = (0..3).map_while(|_| now(&budget, 1, MOST)).collect();
        assert_eq!(of_one.len(), 2, "a quarter");
        let others: Vec<_> = (2..8)
            .flat_map(|of| [now(&budget, of, MOST), now(&budget, of, MOST)])
            .flatten()
            .collect();
        assert_eq!(budget.status()[0], 8 * MOST);
        assert!(others.len() == 6);
        let mut late = Box::pin(budget.acquire(9, MOST));
        assert!(late.as_mut().now_or_never().is_none());
        drop(of_one);
        assert!(late.now_or_never().unwrap().is_ok());
        drop(others);
        assert_eq!(budget.status()[0], 0);
        assert!(budget.lock().clients.is_empty());
    }

    #[test]
    fn who_floods_is_refused_and_others_are_let_in() {
        let budget = Budget::new(8 * MOST);
        let mut flood = Vec::new();
        let refused = loop {
            match budget.arrive(1, OWN) {
                Ok(early) => flood.push(early),
                Err(error) => break error,
            }
            assert!(flood.len() <= 32);
        };
        assert_eq!((refused.errno(), flood.len()), (Errno::NOBUFS, 32));
        let others: Vec<_> = (2..10).map(|of| budget.arrive(of, OWN).unwrap()).collect();
        assert!(budget.arrive(2, 1).is_err(), "it has its part");
        assert_eq!(budget.early(), [8 * MOST + 8 * OWN; 2]);
        drop(others);
        assert!(budget.arrive(1, OWN).is_err());
        flood.pop();
        let last = budget.arrive(1, OWN).unwrap();
        drop((flood, last));
        assert_eq!(budget.early(), [0, 8 * MOST + 8 * OWN]);
        assert!(budget.lock().early_of.is_empty());
    }

    type Waiting = Pin<Box<dyn Future<Output = FsResult<Memory>>>>;

    proptest! {
        #[test]
        fn never_more_than_there_is_and_nothing_is_lost(
            steps in proptest::collection::vec((0u8..5, 0u64..6, 1..=MOST), 1..300)) {
            let budget = Budget::new(0);
            let mut claims: VecDeque<Waiting> = VecDeque::new();
            let mut held: VecDeque<Memory> = VecDeque::new();
            let mut here: VecDeque<InCall> = VecDeque::new();
            for (what, of, len) in steps {
                match what {
                    0 => here.extend(budget.arrive(of, len.min(OWN)).ok()),
                    1 => {
                        let budget = Arc::clone(&budget);
                        let mut claim: Waiting =
                            Box::pin(async move { budget.acquire(of, len).await });
                        match claim.as_mut().now_or_never() {
                            Some(memory) => held.extend(memory.ok()),
                            None => claims.push_back(claim),
                        }
                    }
                    2 => drop(held.pop_front()),
                    3 => drop(here.pop_front()),
                    _ => drop(claims.pop_front()),
                }
                let [used, peak, limit] = budget.status();
                prop_assert!(used <= limit && peak <= limit);
                let [early, peak] = budget.early();
                prop_assert!(early <= peak && peak <= limit + 6 * OWN);
                prop_assert_eq!(early, here.iter().map(|early| early.len).sum::<u64>());
            }
            // Each client that waits gets something in the end.
            let mut idle = 0;
            while !claims.is_empty() || !held.is_empty() {
                held.pop_front();
                let before = claims.len();
                claims.retain_mut(|claim| match claim.as_mut().now_or_never() {
                    Some(memory) => { held.extend(memory.ok()); false }
                    None => true,
                });
                idle = if claims.len() == before && held.is_empty() { idle + 1 } else { 0 };
                prop_assert!(idle < 3, "{} wait for ever", claims.len());
            }
            here.clear();
            prop_assert_eq!((budget.status()[0], budget.early()[0]), (0, 0));
            let state = budget.lock();
            prop_assert!(state.clients.is_empty() && state.ring.is_empty());
            prop_assert!(state.early_of.is_empty());
        }
    }
}
