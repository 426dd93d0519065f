//! A penalty for clients that send senseless calls again and again: their calls wait.
//!
//! Refusing costs the server little, but a client that sends nothing else takes a processor from
//! all others. What is counted here are refusals that a client of the library, or a program in a
//! mount, seldom gets. Beyond a limit each call waits for a while before it is served, and counts
//! as being served meanwhile. Calls that make sense lower the count again.

use rustix::io::Errno;
use std::{
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::Duration,
};

/// How long a call of such a client waits.
pub(super) const PAUSE: Duration = Duration::from_millis(10);

/// What one refusal adds to the count. A call that makes sense takes one off.
const REFUSAL: u32 = 4;

/// The count from which on calls wait, and the largest count.
const LIMIT: u32 = 64 * REFUSAL;
const MOST: u32 = 4 * LIMIT;

/// The count of one client, over all its sessions.
#[derive(Debug, Default)]
pub(super) struct Penalty(AtomicU32);

impl Penalty {
    /// Whether its calls are to wait.
    pub(super) fn applies(&self) -> bool {
        self.0.load(Relaxed) >= LIMIT
    }

    /// Counts the result of a call.
    pub(super) fn count(&self, refused: Option<Errno>) {
        let before = self.0.load(Relaxed);
        let now = match refused.is_some_and(makes_no_sense) {
            true => (before + REFUSAL).min(MOST),
            false => before.saturating_sub(1),
        };
        // Threads that count at the same time may lose a value, which does not matter.
        if now != before {
            self.0.store(now, Relaxed);
        }
    }
}

/// Paths that lead out of the export, unknown file numbers, impossible lengths, memory that is not
/// there.
fn makes_no_sense(errno: Errno) -> bool {
    [Errno::XDEV, Errno::BADF, Errno::MSGSIZE, Errno::FBIG, Errno::FAULT, Errno::INVAL]
        .contains(&errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_penalty_is_imposed_and_lifted() {
        let penalty = Penalty::default();
        for _ in 0..1000 {
            // What happens to every client.
            penalty.count(Some(Errno::NOENT));
            penalty.count(Some(Errno::INVAL));
            (0..REFUSAL).for_each(|_| penalty.count(None));
        }
        assert!(!penalty.applies());
        (0..1000).for_each(|_| penalty.count(Some(Errno::XDEV)));
        assert!(penalty.applies());
        let again = (0..).find(|_| {
            penalty.count(None);
            !penalty.applies()
        });
        assert_eq!(again, Some(MOST - LIMIT));
    }
}
