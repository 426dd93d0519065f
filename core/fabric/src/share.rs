//! One sender's part of a pool.

use crate::{PeerQuota, PeerUsage, Quota};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

/// What one sender holds of a [`Pool`](crate::Pool): the leases of its messages, and places
/// promised to it.
///
/// No sender gets all. Of `N` buffers of which `F` are free, one may hold `F * F / N`, and always
/// one while there is any; the same holds of the bytes. So one alone gets three eighths of a pool;
/// and after `k` that got all they could, and give nothing back, about `N / (k + 1)` are left for
/// the others. Of 4,096 buffers some are free until about 120 senders have done that.
///
/// A promise is kept by one thread, the only one that takes from this pool. Buffers are dropped on
/// any.
///
/// ```
/// use petasos_fabric::Pool;
///
/// let pool = Pool::new(8);
/// let (greedy, modest) = (pool.share(4096), pool.share(4096));
/// let held: Vec<_> = std::iter::from_fn(|| greedy.lend(4096, |_| ())).collect();
/// // One sender cannot have all: there is something left for the other.
/// assert!(held.len() < 8 && greedy.held() == held.len());
/// assert!(modest.lend(4096, |_| ()).is_some());
/// ```
#[derive(Clone)]
pub struct Share(Arc<Inner>);

struct Inner {
    pool: Arc<Quota>,
    held: Quota,
    /// The most that it may hold, in number and in bytes.
    most: [AtomicUsize; 2],
    /// The length of the longest message, for which promises are made.
    longest: usize,
}

/// Of `all` things of which some are free, how many more one may take that holds `mine`: so that
/// afterwards it has no more than the square of what is then free, divided by all.
fn allowance(free: u64, all: u64, mine: u64) -> u64 {
    let (free, all) = (u128::from(free), u128::from(all.max(1)));
    let most = (free * free / all).max(1);
    let more = most.saturating_sub(mine.into());
    // Each that is taken makes the square smaller by twice the free part.
    (more * all).div_ceil(all + 2 * free).min(free) as u64
}

impl Share {
    /// A part of this pool for messages of up to `longest` bytes.
    pub(crate) fn new(pool: Arc<Quota>, longest: usize) -> Share {
        let held = Quota::new(usize::MAX >> 1);
        let most = [AtomicUsize::new(usize::MAX), AtomicUsize::new(usize::MAX)];
        Share(Arc::new(Inner { pool, held, most, longest: longest.max(1) }))
    }

    /// Bounds what this sender may hold, beside what is free: [`PeerQuota::leases`], and
    /// [`PeerQuota::lease_bytes`]. From any thread; what it holds already is not taken from it.
    pub fn set_quota(&self, quota: &PeerQuota) {
        let [leases, bytes] = &self.0.most;
        leases.store(quota.leases, Ordering::Relaxed);
        bytes.store(quota.lease_bytes, Ordering::Relaxed);
    }

    /// For how many more messages of the greatest length the quota alone has room.
    fn left_of_quota(&self) -> usize {
        let Inner { held, most: [leases, bytes], longest, .. } = &*self.0;
        let (leases, bytes) = (leases.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed));
        let (mine, mine_bytes) = held.usage();
        let weight = bytes.saturating_sub(mine_bytes as usize) / longest;
        leases.saturating_sub(mine as usize).min(weight.max(usize::from(mine == 0)))
    }

    /// Whether its quota is used up.
    #[must_use]
    pub fn is_at_quota(&self) -> bool {
        self.left_of_quota() == 0
    }

    /// Enters what is held.
    pub fn count(&self, usage: &mut PeerUsage) {
        let (leases, bytes) = self.0.held.usage();
        (usage.leases, usage.lease_bytes) = (leases as usize, bytes as usize);
    }

    /// For how many more messages of the greatest length there is room.
    #[must_use]
    pub fn left(&self) -> usize {
        let Inner { pool, held, longest, .. } = &*self.0;
        let ((things, bytes), (all, all_bytes)) = (pool.usage(), pool.all());
        if things >= all || bytes >= all_bytes {
            return 0;
        }
        let (mine, mine_bytes) = held.usage();
        let count = allowance(all - things, all, mine);
        let weight = allowance(all_bytes - bytes, all_bytes, mine_bytes) / *longest as u64;
        // A peer that holds none gets one, however long.
        let left = count.min(weight.max(u64::from(mine == 0))) as usize;
        left.min(self.left_of_quota())
    }

    /// Messages and places that are held.
    #[inline]
    #[must_use]
    pub fn held(&self) -> usize {
        self.0.held.taken()
    }

    /// Promises places for so many messages of the greatest length, no more than [`Share::left`]
    /// said.
    pub(crate) fn promise(&self, count: usize) {
        let Inner { pool, held, longest, .. } = &*self.0;
        pool.take_many(count, *longest);
        held.take_many(count, *longest);
    }

    /// So many promises are not needed any more.
    pub(crate) fn withdraw(&self, count: usize) {
        let Inner { pool, held, longest, .. } = &*self.0;
        held.give_back_many(count, *longest);
        pool.give_back_many(count, *longest);
    }

    /// By how many bytes the promise of a message of `len` bytes was too long.
    #[inline]
    pub(crate) fn excess(&self, len: usize) -> u64 {
        (self.0.longest - len) as u64
    }

    /// Gives such bytes back.
    pub(crate) fn lighten(&self, bytes: u64) {
        self.0.held.lighten(bytes);
        self.0.pool.lighten(bytes);
    }

    /// A buffer goes back.
    #[inline]
    pub(crate) fn give_back(&self, len: usize) {
        self.0.held.give_back(len);
        self.0.pool.give_back(len);
    }

    /// Counts a message of `len` bytes for which no place was promised; false if there is no room
    /// for it.
    pub(crate) fn take(&self, len: usize) -> bool {
        let taken = self.left() > 0 && self.0.pool.take(len);
        if taken {
            self.0.held.take_many(1, len);
        }
        taken
    }
}

impl fmt::Debug for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Share({} of {})", self.held(), self.0.pool.limit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    /// Takes all that a new sender may, and gives how many that are.
    fn greedy(pool: &Pool, longest: usize) -> (Share, usize) {
        let share = pool.share(longest);
        let mut count = 0;
        while share.left() > 0 {
            let left = share.left();
            share.promise(left);
            count += left;
        }
        (share, count)
    }

    #[test]
    fn the_first_ones_leave_something_for_the_others() {
        let pool = Pool::new(4096);
        let mut greedy = (0..100).map(|_| greedy(&pool, 1000)).collect::<Vec<_>>();
        let counts: Vec<usize> = greedy.iter().map(|(_, count)| *count).collect();
        assert!((1400..1700).contains(&counts[0]), "{counts:?}");
        assert!(counts.is_sorted_by(|a, b| a >= b) && counts[99] >= 1, "{counts:?}");
        let all: usize = counts.iter().sum();
        assert!(all < 4096 && pool.lent() == all);
        for (k, free) in counts
            .iter()
            .scan(4096, |free, n| {
                *free -= n;
                Some(*free)
            })
            .enumerate()
        {
            assert!(free >= 4096 / (k + 3) || k > 60, "{free} after {k}");
        }
        greedy.drain(..).for_each(|(share, count)| share.withdraw(count));
        assert_eq!(pool.lent(), 0);
    }

    #[test]
    fn there_is_one_for_each_until_there_is_none() {
        for leases in [1, 2, 5, 16] {
            let pool = Pool::new(leases);
            let shares: Vec<_> = (0..20).map(|_| greedy(&pool, 1000)).collect();
            let counts: Vec<usize> = shares.iter().map(|(_, count)| *count).collect();
            assert_eq!(counts.iter().sum::<usize>(), leases, "{counts:?}");
            assert!(leases < 3 || counts[0] < leases, "{counts:?}");
        }
    }

    #[test]
    fn bytes_are_bounded_as_well() {
        let pool = Pool::with_bytes(1000, 1 << 20);
        let (share, count) = greedy(&pool, 100 << 10);
        assert!((1..6).contains(&count), "{count}");
        // Short ones in the place of long ones: there is room for others.
        let leases: Vec<_> = (0..count).map(|_| share.buffer(1000).into_lease()).collect();
        share.lighten(count as u64 * share.excess(1000));
        assert!(share.left() > 0);
        assert_eq!((pool.lent(), share.held()), (count, count));
        drop(leases);
        assert_eq!((pool.lent(), share.held()), (0, 0));
        let vast = pool.share(1 << 30);
        assert_eq!(vast.left(), 1, "one, however long");
    }

    #[test]
    fn a_quota_bounds_what_one_sender_holds() {
        let pool = Pool::new(64);
        let (one, two) = (pool.share(1000), pool.share(1000));
        one.set_quota(&PeerQuota::UNLIMITED.with_leases(3));
        let mut held: Vec<_> = std::iter::from_fn(|| one.lend(200, |b| b.fill(1))).collect();
        assert!(held.len() == 3 && one.is_at_quota() && !two.is_at_quota());
        one.set_quota(&PeerQuota::UNLIMITED.with_leases(2));
        held.pop();
        assert_eq!(one.left(), 0);
        one.set_quota(&PeerQuota::UNLIMITED.with_leases(4));
        assert_eq!(one.left(), 2);
        // By bytes: as many as fit if they were the longest, and one in any case.
        one.set_quota(&PeerQuota::UNLIMITED.with_lease_bytes(2500));
        assert_eq!(one.left(), 2);
        held.clear();
        one.set_quota(&PeerQuota::UNLIMITED.with_lease_bytes(10));
        held.extend(std::iter::from_fn(|| one.lend(200, |b| b.fill(1))));
        assert_eq!(held.len(), 1);
        let mut usage = PeerUsage::default();
        one.count(&mut usage);
        assert_eq!((usage.leases, usage.lease_bytes), (1, 200));
        held.clear();
        one.set_quota(&PeerQuota::UNLIMITED.with_leases(0));
        assert!(one.lend(200, |b| b.fill(1)).is_none() && two.lend(200, |b| b.fill(1)).is_some());
    }

    #[test]
    fn lent_without_a_promise() {
        let pool = Pool::new(8);
        let (one, two) = (pool.share(4096), pool.share(4096));
        let mut held: Vec<_> = std::iter::from_fn(|| one.lend(200, |b| b.fill(1))).collect();
        assert!((2..5).contains(&held.len()), "{}", held.len());
        assert!(two.lend(200, |b| b.fill(2)).is_some_and(|lease| lease[..] == [2; 200]));
        assert!(one.lend(100, |b| b.fill(3)).is_some(), "what is short is no loan");
        held.pop();
        held.extend(one.lend(200, |b| b.fill(4)));
        drop(one);
        drop(held);
        assert_eq!(pool.lent(), 0);
    }
}
