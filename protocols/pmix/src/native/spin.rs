//! Whether to poll once more before sleeping: an awaited message often comes within microseconds,
//! and waking a thread takes longer.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a thread polls.
const POLL_TIME: Duration = Duration::from_micros(40);
/// The thread yields the processor between polls. If a yield takes this long, another thread needed
/// the processor.
const TAKEN: Duration = Duration::from_micros(200);
/// How long threads then do not poll, but sleep, so that they are woken at once.
const CROWDED: Duration = Duration::from_millis(50);

/// When another thread needed the processor.
#[derive(Debug, Default)]
pub struct Spin {
    crowded: Option<Instant>,
}

impl Spin {
    /// Yields the processor. Says whether to poll once more, for a thread that began to poll at
    /// `since`.
    pub fn again(&mut self, since: Instant) -> bool {
        let begin = Instant::now();
        let crowded = self.crowded.is_some_and(|at| begin.duration_since(at) < CROWDED);
        if crowded || begin.duration_since(since) >= POLL_TIME {
            return false;
        }
        thread::yield_now();
        if begin.elapsed() >= TAKEN {
            self.crowded = Some(Instant::now());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_for_a_moment_and_not_where_others_compute() {
        let (mut spin, since) = (Spin::default(), Instant::now());
        while spin.again(since) {}
        assert!(spin.crowded.is_some() || since.elapsed() >= POLL_TIME);
        spin.crowded = Instant::now().checked_add(Duration::from_secs(9999));
        assert!(!spin.again(Instant::now()));
    }
}
