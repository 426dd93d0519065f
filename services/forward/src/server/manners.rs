//! Who asks again and again for what makes no sense is made to wait.
//!
//! Refusing costs the server little, but whoever does nothing else than being refused takes a
//! processor from all others. What is counted here are refusals that a client of the library, or a
//! program in a mount, has seldom; where they become a habit each call waits for a while before it is
//! served, and counts as being served meanwhile. Calls that make sense win back the lost reputation.

use rustix::io::Errno;
use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// How long a call of such a client waits.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// What one refusal counts as, and a call that makes sense takes back one of.
const REFUSAL: u32 = 4;

/// From when on it is a habit, and the most that is kept in mind.
const HABIT: u32 = 64 * REFUSAL;
const MOST: u32 = 4 * HABIT;

/// What one client is known for: all its sessions.
#[derive(Debug, Default)]
pub(super) struct Manners(AtomicU32);

impl Manners {
    /// Whether its calls are to wait.
    pub(super) fn are_bad(&self) -> bool {
        self.0.load(Relaxed) >= HABIT
    }

    /// A call has ended so.
    pub(super) fn learn(&self, refused: Option<Errno>) {
        let before = self.0.load(Relaxed);
        let now = match refused.is_some_and(makes_no_sense) {
            true => (before + REFUSAL).min(MOST),
            false => before.saturating_sub(1),
        };
        // Threads that learn at the same time may lose a value, which does not matter.
        if now != before {
            self.0.store(now, Relaxed);
        }
    }
}

/// Paths that lead out, numbers that nothing has, lengths that nothing can have, memory that is not there.
fn makes_no_sense(errno: Errno) -> bool {
    [Errno::XDEV, Errno::BADF, Errno::MSGSIZE, Errno::FBIG, Errno::FAULT, Errno::INVAL]
        .contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_habit_is_acquired_and_lost() {
        let manners = Manners::default();
        for _ in 0..1000 {
            // What happens to everybody.
            manners.learn(Some(Errno::NOENT));
            manners.learn(Some(Errno::INVAL));
            (0..REFUSAL).for_each(|_| manners.learn(None));
        }
        assert!(!manners.are_bad());
        (0..1000).for_each(|_| manners.learn(Some(Errno::XDEV)));
        assert!(manners.are_bad());
        let again = (0..).find(|_| {
            manners.learn(None);
            !manners.are_bad()
        });
        assert_eq!(again, Some(MOST - HABIT));
    }
}
