//! What may crash, tried in processes of its own.

use crate::process::{again, role};
use std::{ops::Range, time::Duration};

/// How long a process may take for one range of seeds: on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(300);
/// How many seeds one process tries.
const BATCH: u64 = 250;
/// Which seeds: in a process that tries them, and of a test that is told which.
const SEEDS: &str = "PETASOS_SEEDS";

/// Has processes try so many seeds, in each of which the test `name` (its path in the test binary)
/// is run again, with these variables in the environment, and comes back here with `attempt`, which
/// gets the seeds. `PETASOS_SEEDS=FIRST..END` says which others to try, in this process.
///
/// # Panics
/// If one of the processes crashes or fails.
pub fn survived(
    name: &str,
    count: u64,
    variables: &[(&str, &str)],
    attempt: impl FnOnce(Range<u64>),
) {
    let range = |text: String| -> Option<Range<u64>> {
        let (first, end) = text.split_once("..")?;
        Some(first.parse().ok()?..end.parse().ok()?)
    };
    if let Ok(text) = std::env::var(SEEDS) {
        return attempt(range(text).expect("FIRST..END"));
    }
    assert_eq!(role(), None, "a process that tries is told what");
    for first in (0..count).step_by(BATCH as usize) {
        let seeds = format!("{first}..{}", count.min(first + BATCH));
        let starter = again(name, "tries").env(SEEDS, &seeds);
        let starter = variables.iter().fold(starter, |starter, (name, is)| starter.env(name, is));
        let status = starter.start().wait(PATIENCE);
        assert!(status.success(), "{name}: {status}; again with {SEEDS}={seeds}");
    }
}
