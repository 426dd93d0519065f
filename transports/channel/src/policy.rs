//! Which peers are hot, and which give way: plain values without a clock, for any transport that
//! keeps something per peer that it cannot keep for all.

use petasos_fabric::Time;
use std::time::Duration;

/// When a peer counts as hot: so many messages within a window of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Messages, at least 1.
    pub messages: u16,
    /// The window in which they are counted.
    pub window: Duration,
}

impl Default for Hot {
    /// 32 messages within a millisecond.
    fn default() -> Hot {
        Hot { messages: 32, window: Duration::from_millis(1) }
    }
}

/// The traffic of one peer: eight bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// The window that is counted, by its number, modulo 2^32.
    window: u32,
    now: u16,
    before: u16,
}

impl Traffic {
    /// Counts a message, and says whether the peer is hot: by the messages of this window, or of
    /// the whole one before it.
    pub fn note(&mut self, hot: &Hot, now: Time) -> bool {
        let nanos = u64::try_from(hot.window.as_nanos()).unwrap_or(u64::MAX).max(1);
        let window = (now.0 / nanos) as u32;
        match window.wrapping_sub(self.window) {
            0 => {}
            1 => (self.before, self.now) = (self.now, 0),
            _ => (self.before, self.now) = (0, 0),
        }
        self.window = window;
        self.now = self.now.saturating_add(1);
        self.now.max(self.before) >= hot.messages
    }
}

/// How much there is to be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cap {
    /// Holders at a time.
    pub count: usize,
    /// What they hold together, in bytes.
    pub bytes: usize,
    /// A holder that used its share within this time, or has had it for less, does not give way.
    pub idle: Duration,
}

/// What one holder has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The holder.
    pub holder: u32,
    /// How much, in bytes.
    pub bytes: usize,
    /// When it was last used; when it was given, if it was not.
    pub used: Time,
    /// It gives way already.
    pub leaving: bool,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is room.
    Grant,
    /// There will be room when this holder, the least recently used, has given way.
    Take(u32),
    /// There will be room when the holders that give way already have done so.
    Wait,
    /// There is no room, and no holder has been idle for long enough.
    Refuse,
}

impl Cap {
    /// What to do with a request for `bytes` more, beside `waiting` other requests of that size
    /// that wait for a holder to give way.
    #[must_use]
    pub fn decide(&self, shares: &[Share], bytes: usize, waiting: usize, now: Time) -> Verdict {
        let held: usize = shares.iter().map(|share| share.bytes).sum();
        if bytes > self.bytes || self.count == 0 {
            return Verdict::Refuse;
        }
        let fits = |count: usize, held: usize| {
            count + waiting < self.count && held + (waiting + 1) * bytes <= self.bytes
        };
        if fits(shares.len(), held) {
            return Verdict::Grant;
        }
        let leaving = shares.iter().filter(|share| share.leaving);
        let (going, gone) = leaving.fold((0, 0), |(n, b), share| (n + 1, b + share.bytes));
        if fits(shares.len() - going, held - gone) {
            return Verdict::Wait;
        }
        let idle = |share: &&Share| !share.leaving && now.since(share.used) >= self.idle;
        let oldest = shares.iter().filter(idle).min_by_key(|share| (share.used, share.holder));
        match oldest {
            Some(share) if fits(shares.len() - going - 1, held - gone - share.bytes) => {
                Verdict::Take(share.holder)
            }
            _ => Verdict::Refuse,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HOT: Hot = Hot { messages: 4, window: Duration::from_nanos(100) };

    #[test]
    fn a_burst_is_hot_and_a_trickle_is_not() {
        let mut burst = Traffic::default();
        let hot: Vec<_> = (0..5).map(|i| burst.note(&HOT, Time(1000 + i))).collect();
        assert_eq!(hot, [false, false, false, true, true]);
        // Still in the next window, and no more in the one after.
        assert!(burst.note(&HOT, Time(1100)));
        assert!(!burst.note(&HOT, Time(1200)));
        let mut trickle = Traffic::default();
        assert!((0..1000).all(|i| !trickle.note(&HOT, Time(1000 + i * 40))));
        assert_eq!(size_of::<Traffic>(), 8);
    }

    fn share(holder: u32, used: u64, leaving: bool) -> Share {
        Share { holder, bytes: 10, used: Time(used), leaving }
    }

    #[test]
    fn the_least_recently_used_gives_way_once_it_is_idle() {
        let cap = Cap { count: 2, bytes: 100, idle: Duration::from_nanos(50) };
        let one = [share(1, 10, false)];
        assert_eq!(cap.decide(&one, 10, 0, Time(20)), Verdict::Grant);
        let two = [share(1, 40, false), share(2, 10, false)];
        assert_eq!(cap.decide(&two, 10, 0, Time(59)), Verdict::Refuse);
        assert_eq!(cap.decide(&two, 10, 0, Time(60)), Verdict::Take(2));
        assert_eq!(cap.decide(&two, 10, 0, Time(500)), Verdict::Take(2));
        let leaving = [share(1, 40, false), share(2, 10, true)];
        assert_eq!(cap.decide(&leaving, 10, 0, Time(500)), Verdict::Wait);
        assert_eq!(cap.decide(&leaving, 10, 1, Time(500)), Verdict::Take(1));
        assert_eq!(cap.decide(&leaving, 101, 0, Time(500)), Verdict::Refuse);
    }

    proptest! {
        /// Whatever is requested, the cap holds, and only idle holders give way.
        #[test]
        fn the_cap_holds(
            requests in proptest::collection::vec((0u32..8, 1u64..200), 1..200),
            count in 0usize..4,
            bytes in 0usize..50,
        ) {
            let cap = Cap { count, bytes, idle: Duration::from_nanos(100) };
            let (mut shares, mut now) = (Vec::<Share>::new(), Time(1));
            for (holder, pause) in requests {
                now = Time(now.0 + pause);
                if let Some(share) = shares.iter_mut().find(|share| share.holder == holder) {
                    share.used = now;
                    continue;
                }
                match cap.decide(&shares, 10, 0, now) {
                    Verdict::Grant => shares.push(share(holder, now.0, false)),
                    Verdict::Take(victim) => {
                        let at = shares.iter().position(|s| s.holder == victim).unwrap();
                        let gone = shares.swap_remove(at);
                        prop_assert!(now.since(gone.used) >= cap.idle);
                        prop_assert!(shares.iter().all(|s| s.used >= gone.used));
                        shares.push(share(holder, now.0, false));
                    }
                    Verdict::Wait => prop_assert!(false, "no holder is leaving"),
                    Verdict::Refuse => {}
                }
                prop_assert!(shares.len() <= count && shares.len() * 10 <= bytes);
            }
        }
    }
}
