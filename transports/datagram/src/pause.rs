//! How a wait of an endpoint that ends passes its time.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long the processor is asked for again at once: a library whose peers live is done by then.
const BRISK: Duration = Duration::from_millis(1);

/// Passes a moment of a wait that began at `begin`: after the first millisecond it is one of sleep, as
/// the library then waits for a peer that does not answer.
pub fn pause(begin: Instant) {
    if begin.elapsed() < BRISK {
        thread::yield_now();
    } else {
        thread::sleep(BRISK);
    }
}
