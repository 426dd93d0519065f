//! Many clients of one server, over nothing but a cache line each way for each of them.
//!
//! The server looks at all lines in turn, and never sleeps. A client looks for its answer for as
//! long as engines do, and then sleeps on a futex. There is no simpler way that lets so many share
//! a core.

use std::hint;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use rustix::io::Errno;
use rustix::thread::futex::{self, Timespec};

use super::{LimitError, Plan, pin};

/// Its name among limits.
pub const BARE_LINES: &str = "bare_lines";

/// How long a client looks for its answer.
const LOOKING: Duration = Duration::from_micros(50);
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
    let (over, left, stopped) =
        (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
    let ready = Barrier::new(clients + 1);
    let made = thread::scope(|scope| {
        scope.spawn(|| {
            let _stop = StopOnDrop(&stopped);
            pin(plan.cores.server);
            serve(&lines, &left, plan.cores.alone());
        });
        let (over, stopped, ready) = (&over, &stopped, &ready);
        let ask = |(at, line)| {
            let core = cores.get(at % cores.len().max(1)).copied();
            scope.spawn(move || {
                pin(core);
                ready.wait();
                line_of(line, over, stopped)
            })
        };
        let clients: Vec<_> = lines.iter().enumerate().map(ask).collect();
        ready.wait();
        thread::sleep(plan.time);
        over.store(true, Ordering::Relaxed);
        let ended: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        left.store(true, Ordering::Relaxed);
        let made = ended.into_iter().map(|made| match made {
            Ok(made) => made,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        made.collect::<Result<Vec<Made>, LimitError>>()
    })?;
    let calls: u64 = made.iter().map(|made| made.calls).sum();
    let begin = made.iter().map(|made| made.begin).min();
    let end = made.iter().map(|made| made.end).max();
    let time = begin.zip(end).map_or(plan.time, |(begin, end)| end.duration_since(begin));
    Ok(calls as f64 / time.as_secs_f64())
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

/// What a client made, and when.
struct Made {
    calls: u64,
    begin: Instant,
    end: Instant,
}

/// Asks again and again until it is over.
fn line_of(line: &Line, over: &AtomicBool, stopped: &AtomicBool) -> Result<Made, LimitError> {
    let (begin, mut calls) = (Instant::now(), 0);
    while calls == 0 || !over.load(Ordering::Relaxed) {
        calls += 1;
        ask(line, calls as u32, stopped)?;
    }
    Ok(Made { calls, begin, end: Instant::now() })
}

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
