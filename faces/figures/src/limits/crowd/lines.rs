//! Nothing but a cache line each way for each client: the server looks at all lines in turn, and a
//! client that has looked for its answer for long enough sleeps on a futex.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread;
use std::time::Instant;

use crossbeam_utils::CachePadded;
use rustix::io::Errno;
use rustix::thread::futex::{self, Timespec};

use super::super::{LimitError, Plan};
use super::{LOOKING, rate_of};

/// Its name among limits.
pub const BARE_LINES: &str = "bare_lines";

/// Looks between two looks at the clock.
const LOOKS: u32 = 64;
/// How long a client sleeps before it looks whether the server is still there.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// What a client and the server share.
#[derive(Default)]
struct Line {
    /// The number of the client's last question.
    question: CachePadded<AtomicU32>,
    answer: CachePadded<Answer>,
}

#[derive(Default)]
struct Answer {
    /// The number of the last question that was answered.
    number: AtomicU32,
    /// The client sleeps, or is about to.
    asleep: AtomicBool,
}

/// Sets the flag when the server leaves, also by a panic: no client waits for it then.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Questions answered in a second, of so many clients together, which share these cores.
///
/// # Errors
///
/// [`LimitError::System`] when the kernel refuses a futex, [`LimitError::PeerStopped`] when the
/// server ended early.
pub fn calls_of_many(plan: &Plan, cores: &[usize], clients: usize) -> Result<f64, LimitError> {
    let lines: Vec<Line> = (0..clients).map(|_| Line::default()).collect();
    let stopped = AtomicBool::new(false);
    let serve = |left: &AtomicBool| {
        let _stop = StopOnDrop(&stopped);
        serve(&lines, left, plan.cores.alone());
        Ok(())
    };
    rate_of(plan, cores, lines.iter().collect(), serve, |line, number| ask(line, number, &stopped))
}

/// Answers until no client is left.
fn serve(lines: &[Line], left: &AtomicBool, shared: bool) {
    let mut answered = vec![0; lines.len()];
    while !left.load(Ordering::Relaxed) {
        for (line, answered) in lines.iter().zip(&mut answered) {
            let question = line.question.load(Ordering::Acquire);
            if question == *answered {
                continue;
            }
            *answered = question;
            line.answer.number.store(question, Ordering::Release);
            fence(Ordering::SeqCst);
            if line.answer.asleep.load(Ordering::Relaxed) {
                // A side that was not asleep yet sees the answer.
                let _ = futex::wake(&line.answer.number, futex::Flags::PRIVATE, 1);
            }
        }
        if shared { thread::yield_now() } else { hint::spin_loop() }
    }
}

/// Asks, and waits for the answer.
fn ask(line: &Line, question: u32, stopped: &AtomicBool) -> Result<(), LimitError> {
    line.question.store(question, Ordering::Release);
    let is_there = || line.answer.number.load(Ordering::Acquire) == question;
    let (mut since, mut looks) = (None, 0_u32);
    while !is_there() {
        hint::spin_loop();
        looks = looks.wrapping_add(1);
        if !looks.is_multiple_of(LOOKS) {
            continue;
        }
        if stopped.load(Ordering::Relaxed) {
            return Err(LimitError::PeerStopped { name: BARE_LINES });
        }
        if since.get_or_insert_with(Instant::now).elapsed() >= LOOKING {
            sleep(&line.answer, question)?;
        }
    }
    Ok(())
}

/// Sleeps until the answer is there, or for a nap.
fn sleep(answer: &Answer, question: u32) -> Result<(), LimitError> {
    answer.asleep.store(true, Ordering::Relaxed);
    fence(Ordering::SeqCst);
    let last = answer.number.load(Ordering::Relaxed);
    let slept = match last == question {
        true => Ok(()),
        false => futex::wait(&answer.number, futex::Flags::PRIVATE, last, Some(&NAP)),
    };
    answer.asleep.store(false, Ordering::Relaxed);
    match slept {
        Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
        Err(errno) => Err(LimitError::system("sleeping until answered")(errno)),
    }
}
