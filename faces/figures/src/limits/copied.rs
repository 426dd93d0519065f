//! A message that is too long for a slot between two spinning threads: what a call with a large
//! payload can reach.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::report::RoundTrip;
use super::spin::{Step, bounce};
use super::{LimitError, Plan};

const COPIED: &str = "message_copied";

/// A message of so many bytes there and back through one buffer, copied in and out on both sides.
///
/// The buffer has a lock, for which neither side ever waits: the turn says which side has it.
///
/// # Errors
///
/// [`LimitError::PeerStopped`] when the other thread ended early, [`LimitError::Corrupt`] when
/// something else came back than what was sent.
pub fn copied_round_trip(plan: &Plan, bytes: usize) -> Result<RoundTrip, LimitError> {
    let buffer = || Mutex::new(vec![0_u8; bytes]);
    let (shared, of_client, of_server) = (buffer(), buffer(), buffer());
    let copy = |from: &Mutex<Vec<u8>>, to: &Mutex<Vec<u8>>| lock(to).copy_from_slice(&lock(from));
    bounce(
        plan,
        COPIED,
        &format!("{bytes} bytes through one buffer, copied in and out on both sides"),
        |_, step| match step {
            Step::Send(turn) => {
                lock(&of_client).iter_mut().take(1).for_each(|byte| *byte = turn as u8);
                copy(&of_client, &shared);
                Ok(())
            }
            Step::Received(turn) => {
                copy(&shared, &of_client);
                // The answer differs from the question, so that one left over cannot pass.
                match lock(&of_client).first() {
                    Some(byte) if *byte != !(turn as u8) => {
                        Err(LimitError::Corrupt { name: COPIED, offset: 0, bytes })
                    }
                    _ => Ok(()),
                }
            }
        },
        |_| {
            copy(&shared, &of_server);
            lock(&of_server).iter_mut().take(1).for_each(|byte| *byte = !*byte);
            copy(&of_server, &shared);
        },
    )
}

fn lock(buffer: &Mutex<Vec<u8>>) -> MutexGuard<'_, Vec<u8>> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_any_size() {
        let plan = &Plan { time: std::time::Duration::from_millis(10), ..Plan::default() };
        for bytes in [0, 1, 1024, 65_536] {
            let result = copied_round_trip(plan, bytes).unwrap();
            assert!(result.median > 0.0, "{result:?}");
        }
    }
}
