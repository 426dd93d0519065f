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
    /// Bytes of data that is here already and waits for leave to be.
    early: u64,
    clients: HashMap<u64, Client>,
    /// Clients that wait, the next one first.
    ring: VecDeque<u64>,
}

#[derive(Debug, Default)]
struct Client {
    held: u64,
    early: u64,
    waiting: VecDeque<Claim>,
}

/// A claim that waits.
#[derive(Debug)]
struct Claim {
    len: u64,
    data: Data,
    sender: oneshot::Sender<Memory>,
}

/// Where the data is for which memory is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// To be moved or read, once there is memory: waiting costs nothing.
    There,
    /// Here already, as it came with the call.
    Here,
}

/// Leave to use so much memory, until it is dropped.
#[derive(Debug)]
pub(super) struct Memory {
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

    /// Waits for memory for client `of`. Nobody has more than a quarter of all, or, while others
    /// wait, more than his share. Dropping the future gives the claim up.
    ///
    /// # Errors
    /// `ENOBUFS` for data that is here already, if as much waits as there is memory, and more than
    /// its share of that is this client's.
    pub(super) async fn acquire(
        self: &Arc<Self>,
        of: u64,
        len: u64,
        data: Data,
    ) -> FsResult<Memory> {
        let len = len.min(MOST);
        let receiver = {
            let mut state = self.lock();
            if state.ring.is_empty() && state.admits(of, len, self.limit) {
                state.take(of, len);
                return Ok(self.memory(of, len));
            }
            if data == Data::Here {
                let share = state.share(self.limit);
                let early = state.clients.get(&of).map_or(0, |client| client.early);
                if state.early + len > self.limit && early + len > share {
                    let detail = format!("the limit of {} bytes of memory is reached", self.limit);
                    return Err(FsError::new(Errno::NOBUFS, detail));
                }
            }
            let (sender, receiver) = oneshot::channel();
            state.line_up(of, Claim { len, data, sender });
            let client = state.clients.entry(of).or_default();
            if client.waiting.len() == 1 {
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

    /// Gives to those who wait what can be given.
    fn grant(self: &Arc<Self>, state: &mut State) -> Grants {
        let mut grants = Grants::new();
        let mut refused = 0;
        while refused < state.ring.len() {
            let Some(of) = state.ring.pop_front() else { break };
            let Some(client) = state.clients.get_mut(&of) else { continue };
            let gone = client.waiting.iter().take_while(|claim| claim.sender.is_canceled()).count();
            for _ in 0..gone {
                state.leave_line(of);
            }
            let claims = state.clients.get(&of).map(|client| &client.waiting);
            let Some(len) = claims.and_then(|claims| Some(claims.front()?.len)) else {
                state.tidy(of);
                continue;
            };
            if state.used + len > self.limit {
                // It is next: smaller claims must not overtake it for ever.
                state.ring.push_front(of);
                break;
            }
            // It counts as one who waits, so it stands in the ring while that is looked at.
            state.ring.push_back(of);
            if !state.admits(of, len, self.limit) {
                refused += 1;
                continue;
            }
            refused = 0;
            let Some((claim, last)) = state.leave_line(of) else { continue };
            if last {
                state.ring.pop_back();
            }
            state.take(of, len);
            grants.push((claim.sender, self.memory(of, len)));
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

    fn line_up(&mut self, of: u64, claim: Claim) {
        let client = self.clients.entry(of).or_default();
        if claim.data == Data::Here {
            self.early += claim.len;
            client.early += claim.len;
        }
        client.waiting.push_back(claim);
    }

    /// Takes a client's first claim; also says whether it was the last.
    fn leave_line(&mut self, of: u64) -> Option<(Claim, bool)> {
        let client = self.clients.get_mut(&of)?;
        let claim = client.waiting.pop_front()?;
        if claim.data == Data::Here {
            self.early -= claim.len;
            client.early -= claim.len;
        }
        Some((claim, client.waiting.is_empty()))
    }

    fn take(&mut self, of: u64, len: u64) {
        self.used += len;
        self.peak = self.peak.max(self.used);
        self.clients.entry(of).or_default().held += len;
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
        // Who gave up this very moment drops the memory, and so gives it to the next one.
        drop(sender.send(memory));
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
        budget.acquire(of, len, Data::There).now_or_never().map(|memory| memory.unwrap())
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
        let mut late = Box::pin(budget.acquire(9, MOST, Data::Here));
        assert!(late.as_mut().now_or_never().is_none());
        drop(of_one);
        assert!(late.now_or_never().unwrap().is_ok());
        drop(others);
        assert_eq!(budget.status()[0], 0);
        assert!(budget.lock().clients.is_empty());
    }

    #[test]
    fn who_floods_is_refused_and_others_wait() {
        let budget = Budget::new(8 * MOST);
        let _held: Vec<_> = (0..8).map(|of| now(&budget, of, MOST).unwrap()).collect();
        let mut flood = Vec::new();
        let refused = loop {
            let mut claim = Box::pin(budget.acquire(1, MOST, Data::Here));
            match claim.as_mut().now_or_never() {
                None => flood.push(claim),
                Some(answer) => break answer.unwrap_err(),
            }
            assert!(flood.len() <= 8);
        };
        assert_eq!(refused.errno(), Errno::NOBUFS);
        let mut other = Box::pin(budget.acquire(2, MOST, Data::Here));
        assert!(other.as_mut().now_or_never().is_none(), "waits");
        let mut later = Box::pin(budget.acquire(1, MOST, Data::There));
        assert!(later.as_mut().now_or_never().is_none(), "nothing is here yet");
    }

    type Waiting = Pin<Box<dyn Future<Output = FsResult<Memory>>>>;

    proptest! {
        #[test]
        fn never_more_than_there_is_and_nothing_is_lost(
            steps in proptest::collection::vec((0u8..4, 0u64..6, 1..=MOST), 1..300)) {
            let budget = Budget::new(0);
            let mut claims: VecDeque<Waiting> = VecDeque::new();
            let mut held: VecDeque<Memory> = VecDeque::new();
            for (what, of, len) in steps {
                match what {
                    0 | 1 => {
                        let budget = Arc::clone(&budget);
                        let data = if len % 2 == 0 { Data::Here } else { Data::There };
                        let mut claim: Waiting =
                            Box::pin(async move { budget.acquire(of, len, data).await });
                        match claim.as_mut().now_or_never() {
                            Some(memory) => held.extend(memory.ok()),
                            None => claims.push_back(claim),
                        }
                    }
                    2 => drop(held.pop_front()),
                    _ => drop(claims.pop_front()),
                }
                let [used, peak, limit] = budget.status();
                prop_assert!(used <= limit && peak <= limit);
            }
            // Whoever waits gets something in the end.
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
            prop_assert_eq!(budget.status()[0], 0);
            let state = budget.lock();
            prop_assert_eq!(state.early, 0);
            prop_assert!(state.clients.is_empty() && state.ring.is_empty());
        }
    }
}
