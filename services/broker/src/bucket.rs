//! Rates: a bucket of tokens that fills with time.

use petasos_fabric::Time;
use std::time::Duration;

/// A bucket holds what a twentieth of a second brings, and something is taken while it is not
/// empty, however much that is: so what is longer than the bucket passes, and is paid for later.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Tokens a second; `None` for no limit.
    rate: Option<u64>,
    /// In billionths of a token, below zero after something long.
    tokens: i128,
    filled: Time,
}

const BILLION: i128 = 1_000_000_000;

impl Bucket {
    /// A full one, for `rate` a second; without a limit for `None`.
    #[must_use]
    pub fn new(rate: Option<u64>, now: Time) -> Bucket {
        let mut bucket = Bucket { rate, tokens: 0, filled: now };
        bucket.tokens = bucket.most();
        bucket
    }

    fn most(&self) -> i128 {
        i128::from(self.rate.unwrap_or_default()) * BILLION / 20
    }

    fn fill(&mut self, now: Time) {
        let Some(rate) = self.rate else { return };
        let passed = now.since(self.filled).as_nanos() as i128;
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + passed * i128::from(rate)).min(self.most());
    }

    /// When something may be taken: `now`, or later.
    pub fn ready(&mut self, now: Time) -> Time {
        self.fill(now);
        match self.rate {
            None => now,
            Some(_) if self.tokens > 0 => now,
            Some(0) => Time::NEVER,
            Some(rate) => {
                let wait = (1 - self.tokens) / i128::from(rate) + 1;
                now.after(Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX)))
            }
        }
    }

    /// Takes so many.
    pub fn take(&mut self, tokens: u64) {
        if self.rate.is_some() {
            self.tokens -= i128::from(tokens) * BILLION;
        }
    }

    /// Another rate from now on.
    pub fn set_rate(&mut self, rate: Option<u64>, now: Time) {
        if self.rate != rate {
            *self = Bucket::new(rate, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_a_second_it_is_the_rate() {
        for (rate, size) in [(1_000_000, 1), (1_000_000, 4096), (50_000, 130_000), (3, 1)] {
            let (mut now, end) = (Time::ZERO, Time(100 * 1_000_000_000));
            let mut bucket = Bucket::new(Some(rate), now);
            let mut taken = 0;
            while now < end {
                let ready = bucket.ready(now);
                if ready > now {
                    now = ready;
                    continue;
                }
                bucket.take(size);
                taken += size;
            }
            let (wanted, slack) = (rate * 100, rate / 20 + size + 1);
            assert!(taken.abs_diff(wanted) <= slack, "{taken} of {wanted} by {size}");
        }
    }

    #[test]
    fn without_a_limit_and_with_none_at_all() {
        let mut bucket = Bucket::new(None, Time::ZERO);
        bucket.take(u64::MAX);
        assert_eq!(bucket.ready(Time(5)), Time(5));
        bucket.set_rate(Some(0), Time(5));
        assert_eq!(bucket.ready(Time(u64::MAX / 2)), Time::NEVER);
    }
}
