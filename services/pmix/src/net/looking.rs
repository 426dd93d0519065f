//! Whether it is worth while to look again before sleep: what is waited for often comes within
//! microseconds, and to be woken takes longer.

use std::{
    thread,
    time::{Duration, Instant},
};

/// For how long somebody looks again.
const MOMENT: Duration = Duration::from_micros(40);
/// The processor is offered meanwhile. An offer that takes so long was taken by somebody who computes.
const LONG: Duration = Duration::from_micros(200);
/// For how long nobody looks again then, but sleeps, so that he is woken at once.
const CROWDED: Duration = Duration::from_millis(50);

/// What was found out about that.
#[derive(Debug, Default)]
pub(crate) struct Looking {
    crowded: Option<Instant>,
}

impl Looking {
    /// Offers the processor; says whether to look again, for who has done so since then.
    pub(crate) fn goes_on(&mut self, since: Instant) -> bool {
        let begin = Instant::now();
        let crowded = self.crowded.is_some_and(|at| begin.duration_since(at) < CROWDED);
        if crowded || begin.duration_since(since) >= MOMENT {
            return false;
        }
        thread::yield_now();
        if begin.elapsed() >= LONG {
            self.crowded = Some(Instant::now());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_for_a_moment_and_not_where_others_compute() {
        let (mut looking, since) = (Looking::default(), Instant::now());
        while looking.goes_on(since) {}
        assert!(looking.crowded.is_some() || since.elapsed() >= MOMENT);
        looking.crowded = Instant::now().checked_add(Duration::from_secs(9999));
        assert!(!looking.goes_on(Instant::now()));
    }
}
