//! One cache line between two spinning threads: no call between processes can be faster.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crossbeam_utils::CachePadded;

use super::report::RoundTrip;
use super::{Cores, LimitError, MESSAGE_BYTES, Plan, pin, timing};

pub(super) const CACHE_LINE: &str = "cache_line";
pub(super) const MESSAGE: &str = "message_64";

const WORDS: usize = MESSAGE_BYTES / size_of::<u64>();

/// What the threads share: whose turn it is (even: the client's), and a message.
///
/// The turn comes first and the whole is aligned, so that turn and message lie in two neighbouring
/// lines, which is the least that 64 bytes and a word to say that they are there can have.
#[derive(Default)]
#[repr(C)]
struct Slot {
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl Slot {
    /// Copies the message out, word by word: the turn makes sure that nobody writes meanwhile.
    fn read(&self) -> [u64; WORDS] {
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    fn write(&self, message: &[u64; WORDS]) {
        for (word, value) in self.words.iter().zip(message) {
            word.store(*value, Ordering::Relaxed);
        }
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
pub(crate) fn cache_line_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    let how = "an atomic counter in a line of its own";
    bounce(plan, CACHE_LINE, how, |_, _| Ok(()), |_| ())
}

/// A message of 64 bytes there and back through one slot, copied in and out on both sides.
///
/// # Errors
///
/// [`LimitError::PeerStopped`] when the other thread ended early, [`LimitError::Corrupt`] when
/// something else came back than what was sent.
pub(crate) fn message_round_trip(plan: &Plan) -> Result<RoundTrip, LimitError> {
    bounce(
        plan,
        MESSAGE,
        "64 bytes through one slot, copied in and out on both sides",
        |slot, step| match step {
            Step::Send(turn) => {
                slot.write(&[turn; WORDS]);
                Ok(())
            }
            Step::Received(turn) => match slot.read().iter().position(|word| *word != !turn) {
                None => Ok(()),
                Some(at) => Err(LimitError::Corrupt {
                    name: MESSAGE,
                    offset: at * size_of::<u64>(),
                    bytes: MESSAGE_BYTES,
                }),
            },
        },
        // The answer differs from the question, so that an echo left over cannot pass.
        |slot| slot.write(&slot.read().map(|word| !word)),
    )
}

/// What the client does around a round trip, with the turn it began at.
enum Step {
    Send(u64),
    Received(u64),
}

fn bounce(
    plan: &Plan,
    name: &'static str,
    how: &str,
    client: impl Fn(&Slot, Step) -> Result<(), LimitError> + Send,
    server: impl Fn(&Slot) + Send,
) -> Result<RoundTrip, LimitError> {
    let slot = CachePadded::new(Slot::default());
    let stop = CachePadded::new(AtomicBool::new(false));
    let Cores { client: client_core, server: server_core } = plan.cores;
    let alone = plan.cores.alone();
    let how = format!("{how}; {}", plan.cores.describe("spinning threads"));
    let (slot, stop) = (&*slot, &*stop);
    thread::scope(|scope| {
        scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(server_core);
            let mut turn = 1;
            while wait_for(&slot.turn, turn, stop, alone) {
                server(slot);
                slot.turn.store(turn + 1, Ordering::Release);
                turn += 2;
            }
        });
        let client = scope.spawn(move || {
            let _stop = StopOnDrop(stop);
            pin(client_core);
            let mut turn = 0;
            timing::round_trips(plan, name, &how, || {
                client(slot, Step::Send(turn))?;
                slot.turn.store(turn + 1, Ordering::Release);
                if !wait_for(&slot.turn, turn + 2, stop, alone) {
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
///
/// Without a pause instruction, which costs up to 140 cycles: half of what is measured here.
fn wait_for(at: &AtomicU64, turn: u64, stop: &AtomicBool, alone: bool) -> bool {
    let mut spins = 0_u32;
    while at.load(Ordering::Acquire) != turn {
        spins = spins.wrapping_add(1);
        if alone {
            thread::yield_now();
        }
        if spins.is_multiple_of(1024) && stop.load(Ordering::Relaxed) {
            return false;
        }
    }
    true
}
