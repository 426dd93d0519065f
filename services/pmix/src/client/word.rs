//! Requests whose end the daemon says in shared memory, to many at once: a message for each would
//! wake them one after the other, and cost the daemon a call each.
//!
//! Each rank has a word there, in which the daemon puts the number of the request that is done,
//! before it rings the doorbell on which all sleep. What ends otherwise comes over the socket, with
//! the doorbell, too. So no thread sleeps long there, for which a daemon that died cannot ring: one
//! that is not done soon tells the daemon so, and waits at its socket.

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

/// How long one waits for the doorbell.
const SLEEP: Duration = Duration::from_millis(20);

/// Whether a thread of this process waits so: there is one word.
#[derive(Debug, Default)]
pub(super) struct ByWord(AtomicBool);

impl ByWord {
    /// The number of a process's first request: at random, because the word may still say what was
    /// done for the process that had this rank before, or for another connection of this one. Never
    /// comes to an end, and is not 0.
    pub(super) fn first(&self) -> u64 {
        let [a, b, c, d, e, f, g, ..] = random();
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }

    fn begin(&self) -> Option<Waits<'_>> {
        // Not `then_some`: what is made and dropped again would say that no thread waits.
        (!self.0.swap(true, Ordering::Acquire)).then(|| Waits(self))
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
        self.say(&Asked::ByWord { id, what })?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Error, JobId, Node,
        daemon::FromDaemon,
        job::{JobMap, JobSpec, NodeInfo, Run},
        net::{Frames, Stream},
        shelf::{self, Shelf},
    };
    use std::{
        os::unix::net::UnixListener,
        sync::{Arc, mpsc::channel},
        thread::{self, JoinHandle},
    };

    const LONG: Duration = Duration::from_secs(60);
    const RANK: u32 = 1;

    /// What a daemon has of its one client.
    struct Daemon {
        shelf: Shelf,
        frames: Frames,
    }

    impl Daemon {
        fn hears(&mut self) -> Asked {
            loop {
                match self.frames.take().unwrap() {
                    Some(asked) => return asked,
                    None => drop(self.frames.fill_slowly().unwrap()),
                }
            }
        }

        /// The number of the request that comes.
        fn asked(&mut self) -> u64 {
            match self.hears() {
                Asked::ByWord { id, what: Request::Progress } => id,
                other => panic!("{other:?}"),
            }
        }

        fn says(&mut self, id: u64, result: Result<Answer, Error>) {
            self.frames.push(&FromDaemon::Answer { id, result }).unwrap();
            self.frames.flush().unwrap();
        }
    }

    /// A daemon that does this, and a client of it.
    fn with<T: Send + 'static>(
        daemon: impl FnOnce(Daemon) -> T + Send + 'static,
    ) -> (Link, Reader, JoinHandle<T>) {
        let directory = tempfile::tempdir().unwrap();
        let node = NodeInfo { name: "host".into(), base: String::new(), first: 0 };
        let job = JobMap::new(JobSpec {
            id: JobId(0),
            name: "a-job".to_owned(),
            nodes: vec![node],
            runs: vec![Run { node: Node(0), count: 2 }],
            info: Vec::new(),
        });
        let shelf = Shelf::create(&job.unwrap()).unwrap();
        std::os::unix::fs::symlink(shelf.path(), directory.path().join(shelf::NAME)).unwrap();
        let reader = shelf::open(directory.path()).unwrap().1.unwrap();
        let socket = directory.path().join("server");
        let listener = UnixListener::bind(&socket).unwrap();
        let link = Link::connect(&socket, &[1; 32]).unwrap();
        let mut frames = Frames::new(Stream::Unix(listener.accept().unwrap().0), 1 << 20);
        let daemon = thread::spawn(move || {
            while frames.take_raw().unwrap().is_none() {
                frames.fill_slowly().unwrap();
            }
            daemon(Daemon { shelf, frames })
        });
        (link, reader, daemon)
    }

    fn call(link: &Link, reader: &Reader) -> Result<Answer, JobError> {
        link.call_by_word(Request::Progress, LONG, reader, RANK)
    }

    #[test]
    fn what_is_done_is_read_in_the_word() {
        let (link, reader, daemon) = with(|mut daemon| {
            for nth in 0..100 {
                let id = daemon.asked();
                // Now the asker polls, now it sleeps.
                thread::sleep(Duration::from_micros(nth % 5 * 100));
                // Rung for others, and said of what is another process's.
                daemon.shelf.done(RANK, id ^ 1);
                daemon.shelf.done(0, id);
                daemon.shelf.ring();
                daemon.shelf.done(RANK, id);
                daemon.shelf.ring();
                if let Asked::OverSocket { .. } = daemon.hears() {
                    // This machine is slow.
                    daemon.says(id, Ok(Answer::Done));
                    daemon.hears();
                }
            }
        });
        for _ in 0..100 {
            assert_eq!(call(&link, &reader).unwrap(), Answer::Done);
            link.say(&Asked::Request { id: 0, what: Request::Progress }).unwrap();
        }
        daemon.join().unwrap();
    }

    #[test]
    fn what_fails_is_told_over_the_socket() {
        let error = Error::Ending("why".to_owned());
        let told = error.clone();
        let (link, reader, daemon) = with(move |mut daemon| {
            let id = daemon.asked();
            daemon.says(id, Err(told));
            daemon.shelf.ring();
            daemon
        });
        assert!(matches!(call(&link, &reader), Err(JobError::Refused(why)) if why == error));
        drop(daemon.join().unwrap());
    }

    #[test]
    fn who_waits_long_does_so_at_his_socket() {
        let (link, reader, daemon) = with(|mut daemon| {
            let id = daemon.asked();
            assert_eq!(daemon.hears(), Asked::OverSocket { id });
            // That is not looked at any more.
            daemon.shelf.done(RANK, id);
            daemon.shelf.ring();
            thread::sleep(Duration::from_millis(50));
            daemon.says(id, Ok(Answer::Info(Vec::new())));
            daemon
        });
        assert_eq!(call(&link, &reader).unwrap(), Answer::Info(Vec::new()));
        drop(daemon.join().unwrap());
    }

    #[test]
    fn a_daemon_that_dies_is_noticed() {
        let (link, reader, daemon) = with(|mut daemon| {
            daemon.asked();
        });
        assert!(matches!(call(&link, &reader), Err(JobError::Lost(_))));
        daemon.join().unwrap();
        assert!(matches!(call(&link, &reader), Err(JobError::Lost(_))));
    }

    #[test]
    fn one_thread_waits_so_at_a_time() {
        let (sender, receiver) = channel();
        let (link, reader, daemon) = with(move |mut daemon| {
            let id = daemon.asked();
            sender.send(()).unwrap();
            let mut others = 0;
            while others < 3 {
                match daemon.hears() {
                    Asked::Request { id, .. } => {
                        daemon.says(id, Ok(Answer::Done));
                        others += 1;
                    }
                    Asked::OverSocket { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            daemon.says(id, Ok(Answer::Done));
            daemon
        });
        let both = Arc::new((link, reader));
        let other = both.clone();
        let first = thread::spawn(move || call(&other.0, &other.1));
        receiver.recv().unwrap();
        (0..3).for_each(|_| assert_eq!(call(&both.0, &both.1).unwrap(), Answer::Done));
        assert_eq!(first.join().unwrap().unwrap(), Answer::Done);
        drop(daemon.join().unwrap());
    }
}
