//! Requests whose end the daemon says in shared memory, to many at once: a message for each would wake them one after
//! the other, and cost the daemon a call each.
//!
//! Each rank has a word there, in which the daemon puts the number of the request that is done, before it rings the
//! bell on which all sleep. What ends otherwise comes over the socket, with the bell, too. So nobody sleeps long there,
//! for whom a daemon that died cannot ring: who is not done soon tells the daemon so, and waits at his socket.

use super::{JobError, link::Link};
use crate::{
    daemon::Asked,
    message::{Answer, Request},
    net::handshake::random,
    shelf::Reader,
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// How long one waits for the bell.
const SLEEP: Duration = Duration::from_millis(20);

/// Whether a thread of this process waits so: there is one word.
#[derive(Debug, Default)]
pub(super) struct ByWord(AtomicBool);

impl ByWord {
    /// The number of a process's first request: at random, because the word may still say what was done for the
    /// process that had this rank before, or for another connection of this one. Never comes to an end, and is not 0.
    pub(super) fn first(&self) -> u64 {
        let [a, b, c, d, e, f, g, ..] = random();
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }

    fn begin(&self) -> Option<Waits<'_>> {
        (!self.0.swap(true, Ordering::Acquire)).then_some(Waits(self))
    }
}

/// While it is there, no other thread waits so.
struct Waits<'a>(&'a ByWord);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl Link {
    /// As [`Link::call`], for what ends for many at once.
    pub(super) fn call_by_word(
        &self,
        what: Request,
        patience: Duration,
        shelf: &Reader,
        rank: u32,
    ) -> Result<Answer, JobError> {
        let Some(_waits) = self.by_word.begin() else { return self.call(what, patience) };
        let id = self.number();
        if let Err(error) = self.say(&Asked::ByWord { id, what }) {
            return Err(self.lost(&error));
        }
        if self.is_done(id, || shelf.done(rank) == Some(id), shelf) {
            return Ok(Answer::Done);
        }
        // Where the daemon is gone the socket says so, and why.
        let _ = self.say(&Asked::OverSocket { id });
        self.answer(id, patience)
    }

    /// Waits for a moment until it is; false if it is not, or has an answer.
    fn is_done(&self, id: u64, done: impl Fn() -> bool, shelf: &Reader) -> bool {
        let since = Instant::now();
        while self.looks_on(since) {
            if done() {
                return true;
            }
        }
        loop {
            // What is done after this look is rung for after this number.
            let rings = shelf.rings();
            if done() {
                return true;
            }
            let left = SLEEP.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            shelf.sleep(rings, left);
            if done() {
                return true;
            }
            // Rung for others, or because something else came of it.
            if self.is_answered(id) {
                return false;
            }
        }
    }
}
