//! Fair shares: how many units of something (calls, blocks in flight) each client may hold at a
//! time.
//!
//! A client that asks for a thousand things at once would otherwise stand in every queue a thousand
//! times, and get most of whatever the server does in order of arrival. So the requests of a client
//! wait here while it holds its share. Each client always gets one unit: a client that is stuck
//! with what it holds takes nothing from others.

use futures_channel::oneshot;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// For how long a client that holds nothing counts as one that wants something: most ask again as
/// soon as they have what they asked for, and others are not to fill the moment in between.
const GRACE: Duration = Duration::from_millis(20);

/// Divides so many units among clients.
#[derive(Debug)]
pub(super) struct FairShare {
    total: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    clients: HashMap<u64, Client>,
    /// The clients that hold nothing any more, and since when, in order. One may have come back.
    leaving: VecDeque<(Instant, u64)>,
}

#[derive(Debug, Default)]
struct Client {
    has: usize,
    waiting: VecDeque<oneshot::Sender<Share>>,
    /// Since when it has nothing and wants nothing.
    left: Option<Instant>,
}

/// One unit, held until it is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Arc<FairShare>,
    of: u64,
}

type Grants = Vec<(oneshot::Sender<Share>, Share)>;

impl FairShare {
    pub(super) fn new(total: usize) -> Arc<FairShare> {
        Arc::new(FairShare { total, state: Mutex::default() })
    }

    /// Waits until client `of` has less than its share. Dropping the future leaves the queue.
    pub(super) async fn take(self: &Arc<Self>, of: u64) -> Share {
        loop {
            let receiver = match self.try_take(of) {
                Ok(share) => return share,
                Err(receiver) => receiver,
            };
            // Its sender is kept as long as this client has something, and then gets a share.
            if let Ok(share) = receiver.await {
                return share;
            }
        }
    }

    fn try_take(self: &Arc<Self>, of: u64) -> Result<Share, oneshot::Receiver<Share>> {
        let mut state = self.lock();
        state.forget(Instant::now());
        let client = state.clients.entry(of).or_default();
        client.left = None;
        client.waiting.retain(|waiting| !waiting.is_canceled());
        let most = self.most(&state);
        let client = state.clients.entry(of).or_default();
        if client.waiting.is_empty() && client.has < most {
            client.has += 1;
            return Ok(Share { shares: Arc::clone(self), of });
        }
        let (sender, receiver) = oneshot::channel();
        client.waiting.push_back(sender);
        Err(receiver)
    }

    /// How many units each client may hold.
    fn most(&self, state: &State) -> usize {
        (self.total / state.clients.len().max(1)).max(1)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a unit back, and grants what may be granted now.
    fn give_back(self: &Arc<Self>, of: u64, now: Instant) -> Grants {
        let mut state = self.lock();
        if let Some(client) = state.clients.get_mut(&of) {
            client.has -= 1;
            if client.has == 0 && client.waiting.iter().all(oneshot::Sender::is_canceled) {
                client.left = Some(now);
                client.waiting.clear();
                state.leaving.push_back((now, of));
            }
        }
        let fewer = state.forget(now);
        let (most, mut grants) = (self.most(&state), Grants::new());
        if fewer {
            // There is more for each of the others.
            for (of, client) in &mut state.clients {
                self.grant(*of, client, most, &mut grants);
            }
        } else if let Some(client) = state.clients.get_mut(&of) {
            self.grant(of, client, most, &mut grants);
        }
        grants
    }

    fn grant(self: &Arc<Self>, of: u64, client: &mut Client, most: usize, grants: &mut Grants) {
        while client.has < most
            && let Some(first) = client.waiting.pop_front()
        {
            if !first.is_canceled() {
                client.has += 1;
                grants.push((first, Share { shares: Arc::clone(self), of }));
            }
        }
    }
}

impl State {
    /// Forgets the clients that left some time ago. True if there was one.
    fn forget(&mut self, now: Instant) -> bool {
        let before = self.clients.len();
        while let Some((left, of)) = self.leaving.front().copied()
            && now.saturating_duration_since(left) >= GRACE
        {
            self.leaving.pop_front();
            if self.clients.get(&of).is_some_and(|client| client.left == Some(left)) {
                self.clients.remove(&of);
            }
        }
        self.clients.len() < before
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        for (sender, share) in self.shares.give_back(self.of, Instant::now()) {
            // A future that was dropped this very moment drops the share: the next one gets it.
            drop(sender.send(share));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use proptest::prelude::*;
    use std::pin::Pin;

    fn now(shares: &Arc<FairShare>, of: u64) -> Option<Share> {
        shares.take(of).now_or_never()
    }

    /// Some time passes in which no client asks for anything.
    fn pass(shares: &FairShare) {
        let later = Instant::now() + GRACE;
        shares.lock().forget(later);
    }

    #[test]
    fn alone_all_and_beside_others_a_share() {
        let shares = FairShare::new(8);
        let mut mine: Vec<_> = (0..20).map_while(|_| now(&shares, 1)).collect();
        assert_eq!(mine.len(), 8, "no other client is there");
        let theirs: Vec<_> = (0..20).map_while(|_| now(&shares, 2)).collect();
        assert_eq!(theirs.len(), 4);
        let mut next = Box::pin(shares.take(1));
        mine.truncate(4);
        assert!(next.as_mut().now_or_never().is_none());
        mine.truncate(3);
        let mut other = Box::pin(shares.take(2));
        assert!(other.as_mut().now_or_never().is_none());
        mine.extend(next.now_or_never());
        assert_eq!(mine.len(), 4);
        drop(mine);
        assert!(other.as_mut().now_or_never().is_none(), "the other one was here a moment ago");
        pass(&shares);
        drop(theirs);
        assert!(other.now_or_never().is_some());
        let many: Vec<_> = (3..30).map(|of| now(&shares, of).unwrap()).collect();
        assert!(now(&shares, 3).is_none(), "each client gets one, and no more");
        drop(many);
        pass(&shares);
        let state = shares.lock();
        assert!(state.clients.is_empty() && state.leaving.is_empty());
    }

    type Waiting = Pin<Box<dyn Future<Output = Share>>>;

    proptest! {
        #[test]
        fn no_client_is_forgotten(steps in proptest::collection::vec((0u8..5, 0u64..5), 1..200)) {
            let shares = FairShare::new(6);
            let mut waiting: VecDeque<Waiting> = VecDeque::new();
            let mut held: VecDeque<Share> = VecDeque::new();
            for (what, of) in steps {
                match what {
                    0 | 1 => {
                        let shares = Arc::clone(&shares);
                        let mut one: Waiting = Box::pin(async move { shares.take(of).await });
                        match one.as_mut().now_or_never() {
                            Some(share) => held.push_back(share),
                            None => waiting.push_back(one),
                        }
                    }
                    2 => drop(held.pop_front()),
                    3 => drop(waiting.pop_front()),
                    _ => pass(&shares),
                }
            }
            while !held.is_empty() || !waiting.is_empty() {
                let before = (held.len(), waiting.len());
                held.pop_front();
                waiting.retain_mut(|one| match one.as_mut().now_or_never() {
                    Some(share) => { held.push_back(share); false }
                    None => true,
                });
                prop_assert!((held.len(), waiting.len()) != before, "{:?} for ever", before);
            }
            pass(&shares);
            prop_assert!(shares.lock().clients.is_empty());
        }
    }
}
