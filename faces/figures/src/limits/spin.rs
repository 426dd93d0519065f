//! One cache line between two spinning threads: no call between processes can be faster.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;

use super::report::RoundTrip;
use super::{LimitError, MESSAGE_BYTES, Plan, pin, timing};

pub(super) const CACHE_LINE: &str = "cache_line";
pub(super) const MESSAGE: &str = "message_64";

pub(super) const SHORT: &str = "message_short";

/// Words of the longest message in a slot, which with the turn is a number of whole lines.
const WORDS: usize = 127;

/// Bytes of the longest message in a slot.
pub const LONGEST_IN_SLOT: usize = WORDS * size_of::<u64>();

/// What the threads share: whose turn it is (even: the client's), and a message.
///
/// The turn comes first and the whole is aligned, so that turn and message lie in as few lines as
/// a message and a word to say that it is there can have.
#[repr(C)]
pub(super) struct Slot {
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { turn: AtomicU64::new(0), words: [const { AtomicU64::new(0) }; WORDS] }
    }
}

/// Sets the flag when a side leaves, by success, error or panic: the other stops spinning.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// One cache line there and back: two threads take turns in adding one to a counter.
///
/// # Errors
///
/// [`LimitError::PeerStopped`] when the other thread ended early.
pub fn cache_line_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    let how = "an atomic counter in a line of its own";
    bounce(plan, CACHE_LINE, how, |_, _| Ok(()), |_| ())
}

/// A message of 64 bytes there and back through one slot, read and written on both sides.
///
/// # Errors
///
/// As [`short_round_trip`].
pub fn message_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    in_slot(plan, MESSAGE, MESSAGE_BYTES)
}

/// The same with so many bytes, at most [`LONGEST_IN_SLOT`] and in whole words.
///
/// # Errors
///
/// [`LimitError::PeerStopped`] when the other thread ended early, [`LimitError::Corrupt`] when
/// something else came back than what was sent.
pub fn short_round_trip(plan: &Plan, bytes: usize) -> Result<RoundTrip, LimitError> {
    in_slot(plan, SHORT, bytes)
}

/// Word by word: the turn makes sure that the other side does not write meanwhile.
fn in_slot(plan: &Plan, name: &'static str, bytes: usize) -> Result<RoundTrip, LimitError> {
    let words = bytes.div_ceil(size_of::<u64>()).min(WORDS);
    bounce(
        plan,
        name,
        &format!("{bytes} bytes through one slot, read and written on both sides"),
        |slot, step| match step {
            Step::Send(turn) => {
                slot.words[..words].iter().for_each(|word| word.store(turn, Ordering::Relaxed));
                Ok(())
            }
            Step::Received(turn) => {
                let wrong = |word: &AtomicU64| word.load(Ordering::Relaxed) != !turn;
                match slot.words[..words].iter().position(wrong) {
                    None => Ok(()),
                    Some(at) => {
                        let offset = at * size_of::<u64>();
                        Err(LimitError::Corrupt { name, offset, bytes })
                    }
                }
            }
        },
        // The answer differs from the question, so that an echo left over cannot pass.
        |slot| {
            for word in &slot.words[..words] {
                word.store(!word.load(Ordering::Relaxed), Ordering::Relaxed);
            }
        },
    )
}

/// What the client does around a round trip, with the turn it began at.
pub(super) enum Step {
    Send(u64),
    Received(u64),
}

/// Measures with and without a pause instruction in the loop that spins, half the time each, and
/// returns the faster: which one it is depends on the processor.
pub(super) fn bounce(
    plan: &Plan,
    name: &'static str,
    how: &str,
    client: impl Fn(&Slot, Step) -> Result<(), LimitError> + Sync,
    server: impl Fn(&Slot) + Sync,
) -> Result<RoundTrip, LimitError> {
    let half = Plan { time: plan.time / 2, ..*plan };
    let place = plan.cores.describe("spinning threads");
    let measure = |spin, pause| {
        let how = format!("{how}; {place}, {pause} pause instruction");
        bounce_with(&half, name, &how, spin, &client, &server)
    };
    if plan.cores.alone() {
        return measure(Spin::Yield, "no");
    }
    let (busy, paused) = (measure(Spin::Busy, "no")?, measure(Spin::Pause, "with a")?);
    Ok(if busy.median < paused.median { busy } else { paused })
}

/// What is done between two looks at the turn.
#[derive(Clone, Copy)]
enum Spin {
    Busy,
    Pause,
    /// For two threads on one core.
    Yield,
}

fn bounce_with(
    plan: &Plan,
    name: &'static str,
    how: &str,
    spin: Spin,
    client: &(impl Fn(&Slot, Step) -> Result<(), LimitError> + Sync),
    server: &(impl Fn(&Slot) + Sync),
) -> Result<RoundTrip, LimitError> {
    let slot = &*CachePadded::new(Slot::default());
    let stop = &*CachePadded::new(AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(plan.cores.server);
            let mut turn = 1;
            while wait_for(&slot.turn, turn, stop, spin) {
                server(slot);
                slot.turn.store(turn + 1, Ordering::Release);
                turn += 2;
            }
        });
        let client = scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(plan.cores.client);
            let mut turn = 0;
            timing::round_trips(plan, name, how, || {
                client(slot, Step::Send(turn))?;
                slot.turn.store(turn + 1, Ordering::Release);
                if !wait_for(&slot.turn, turn + 2, stop, spin) {
                    return Err(LimitError::PeerStopped { name });
                }
                client(slot, Step::Received(turn))?;
                turn += 2;
                Ok(())
            })
        });
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Spins until it is `turn`; false when the other side has stopped instead.
fn wait_for(at: &AtomicU64, turn: u64, stop: &AtomicBool, spin: Spin) -> bool {
    let mut spins = 0_u32;
    while at.load(Ordering::Acquire) != turn {
        match spin {
            Spin::Busy => {}
            Spin::Pause => hint::spin_loop(),
            Spin::Yield => thread::yield_now(),
        }
        spins = spins.wrapping_add(1);
        if spins.is_multiple_of(1024) && stop.load(Ordering::Relaxed) {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Plan {
        Plan { time: std::time::Duration::from_millis(10), ..Plan::default() }
    }

    #[test]
    fn nobody_spins_for_a_client_that_failed() {
        let fails = |_: &Slot, step: Step| match step {
            Step::Received(turn) if turn > 10 => Err(LimitError::EmptySize),
            _ => Ok(()),
        };
        // It ends with the failure; a busy machine may need some time until then.
        let plan = Plan { time: std::time::Duration::from_secs(60), ..Plan::default() };
        let result = bounce(&plan, "test", "", fails, |_| ());
        assert!(matches!(result, Err(LimitError::EmptySize)));
    }

    #[test]
    fn nobody_spins_for_a_server_that_failed() {
        let panics = std::panic::catch_unwind(|| {
            bounce(&quick(), "test", "", |_, _| Ok(()), |_| panic!("on purpose"))
        });
        // The panic goes on, where a thread that still spins would keep it for ever.
        assert!(panics.is_err());
    }
}
