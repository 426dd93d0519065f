//! Requests whose completion the daemon announces in shared memory, to many processes at once: a
//! message for each would wake them one after the other, and cost the daemon a call each.
//!
//! Each rank has a word there, in which the daemon writes the number of the completed request
//! before it rings the doorbell on which all sleep. Any other answer comes over the socket, and the
//! doorbell is rung as well. A daemon that died cannot ring. So no thread sleeps long there: one
//! whose request is not completed soon tells the daemon so, and waits at its socket.

use super::{JobError, connection::Connection};
use crate::{
    datastore::Reader,
    message::{Answer, Request},
    native::Asked,
    random::random,
};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

/// How long a thread waits for the doorbell.
const SLEEP: Duration = Duration::from_millis(20);

/// Whether a thread of this process waits in this way: there is one word for each rank.
#[derive(Debug, Default)]
pub(super) struct SharedCompletion(AtomicBool);

impl SharedCompletion {
    /// The number before a process's first request. It is random, because the word may still have
    /// the number of a request of the process that had this rank before, or of another connection
    /// of this one. Numbers from here on never overflow, and are not 0.
    pub(super) fn first_number(&self) -> u64 {
        let [a, b, c, d, e, f, g, ..] = random();
        u64::from_le_bytes([a, b, c, d, e, f, g, 0])
    }

    fn begin(&self) -> Option<Guard<'_>> {
        // Not `then_some`: a guard that is made and dropped at once would clear the flag.
        (!self.0.swap(true, Ordering::Acquire)).then(|| Guard(self))
    }
}

/// While it lives, no other thread waits in this way.
struct Guard<'a>(&'a SharedCompletion);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl Connection {
    /// As [`Connection::call`], for a request that completes for many processes at once.
    pub(super) fn call_with_shared_completion(
        &self,
        what: Request,
        patience: Duration,
        datastore: &Reader,
        rank: u32,
    ) -> Result<Answer, JobError> {
        let Some(_guard) = self.completion.begin() else { return self.call(what, patience) };
        let id = self.number();
        self.send(&Asked::ByWord { id, what })?;
        if self.is_done(id, || datastore.completed(rank) == Some(id), datastore) {
            return Ok(Answer::Done);
        }
        // If the daemon is gone, the socket reports that, and why.
        let _ = self.send(&Asked::OverSocket { id });
        self.answer(id, patience)
    }

    /// Waits for a moment for the completion. False: it did not come, or another answer has.
    fn is_done(&self, id: u64, done: impl Fn() -> bool, datastore: &Reader) -> bool {
        let since = Instant::now();
        while self.keep_polling(since) {
            if done() {
                return true;
            }
        }
        loop {
            // A request that completes after the check below is rung for after this number.
            let rings = datastore.rings();
            if done() {
                return true;
            }
            let left = SLEEP.saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            datastore.sleep(rings, left);
            if done() {
                return true;
            }
            // Rung for others, or for another answer to this request.
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
        datastore::{self, Datastore},
        job::{JobMap, JobSpec, NodeInfo, Run},
        native::{Frames, FromDaemon, Stream},
    };
    use std::{
        os::unix::net::UnixListener,
        sync::{Arc, mpsc::channel},
        thread::{self, JoinHandle},
    };

    const LONG: Duration = Duration::from_secs(60);
    const RANK: u32 = 1;

    /// The daemon's side of its one client.
    struct Daemon {
        datastore: Datastore,
        frames: Frames,
    }

    impl Daemon {
        fn receive(&mut self) -> Asked {
            loop {
                match self.frames.take().unwrap() {
                    Some(asked) => return asked,
                    None => drop(self.frames.fill_slowly().unwrap()),
                }
            }
        }

        /// The number of the next request.
        fn asked(&mut self) -> u64 {
            match self.receive() {
                Asked::ByWord { id, what: Request::Progress } => id,
                other => panic!("{other:?}"),
            }
        }

        fn answer(&mut self, id: u64, result: Result<Answer, Error>) {
            self.frames.push(&FromDaemon::Answer { id, result }).unwrap();
            self.frames.flush().unwrap();
        }
    }

    /// A daemon that runs this function, and a client of it.
    fn with<T: Send + 'static>(
        daemon: impl FnOnce(Daemon) -> T + Send + 'static,
    ) -> (Connection, Reader, JoinHandle<T>) {
        let directory = tempfile::tempdir().unwrap();
        let node = NodeInfo { name: "host".into(), base: String::new(), first: 0 };
        let job = JobMap::new(JobSpec {
            id: JobId(0),
            name: "a-job".to_owned(),
            nodes: vec![node],
            runs: vec![Run { node: Node(0), count: 2 }],
            info: Vec::new(),
        });
        let datastore = Datastore::create(&job.unwrap()).unwrap();
        std::os::unix::fs::symlink(datastore.path(), directory.path().join(datastore::NAME))
            .unwrap();
        let reader = datastore::open(directory.path()).unwrap().1.unwrap();
        let socket = directory.path().join("server");
        let listener = UnixListener::bind(&socket).unwrap();
        let connection = Connection::connect(&socket, &[1; 32]).unwrap();
        let mut frames = Frames::new(Stream::Unix(listener.accept().unwrap().0), 1 << 20);
        let daemon = thread::spawn(move || {
            while frames.take_raw().unwrap().is_none() {
                frames.fill_slowly().unwrap();
            }
            daemon(Daemon { datastore, frames })
        });
        (connection, reader, daemon)
    }

    fn call(connection: &Connection, reader: &Reader) -> Result<Answer, JobError> {
        connection.call_with_shared_completion(Request::Progress, LONG, reader, RANK)
    }

    #[test]
    fn completions_are_read_in_the_word() {
        let (connection, reader, daemon) = with(|mut daemon| {
            for nth in 0..100 {
                let id = daemon.asked();
                // The client polls in some rounds, and sleeps in others.
                thread::sleep(Duration::from_micros(nth % 5 * 100));
                // Rung for others, and for the request of another process.
                daemon.datastore.complete(RANK, id ^ 1);
                daemon.datastore.complete(0, id);
                daemon.datastore.ring();
                daemon.datastore.complete(RANK, id);
                daemon.datastore.ring();
                if let Asked::OverSocket { .. } = daemon.receive() {
                    // This machine is slow.
                    daemon.answer(id, Ok(Answer::Done));
                    daemon.receive();
                }
            }
        });
        for _ in 0..100 {
            assert_eq!(call(&connection, &reader).unwrap(), Answer::Done);
            connection.send(&Asked::Request { id: 0, what: Request::Progress }).unwrap();
        }
        daemon.join().unwrap();
    }

    #[test]
    fn a_failure_is_answered_over_the_socket() {
        let error = Error::Ending("why".to_owned());
        let told = error.clone();
        let (connection, reader, daemon) = with(move |mut daemon| {
            let id = daemon.asked();
            daemon.answer(id, Err(told));
            daemon.datastore.ring();
            daemon
        });
        assert!(matches!(call(&connection, &reader), Err(JobError::Refused(why)) if why == error));
        drop(daemon.join().unwrap());
    }

    #[test]
    fn a_long_wait_is_at_the_socket() {
        let (connection, reader, daemon) = with(|mut daemon| {
            let id = daemon.asked();
            assert_eq!(daemon.receive(), Asked::OverSocket { id });
            // The client does not read this any more.
            daemon.datastore.complete(RANK, id);
            daemon.datastore.ring();
            thread::sleep(Duration::from_millis(50));
            daemon.answer(id, Ok(Answer::Info(Vec::new())));
            daemon
        });
        assert_eq!(call(&connection, &reader).unwrap(), Answer::Info(Vec::new()));
        drop(daemon.join().unwrap());
    }

    #[test]
    fn a_daemon_that_dies_is_noticed() {
        let (connection, reader, daemon) = with(|mut daemon| {
            daemon.asked();
        });
        assert!(matches!(call(&connection, &reader), Err(JobError::Lost(_))));
        daemon.join().unwrap();
        assert!(matches!(call(&connection, &reader), Err(JobError::Lost(_))));
    }

    #[test]
    fn one_thread_waits_for_shared_completion_at_a_time() {
        let (sender, receiver) = channel();
        let (connection, reader, daemon) = with(move |mut daemon| {
            let id = daemon.asked();
            sender.send(()).unwrap();
            let mut others = 0;
            while others < 3 {
                match daemon.receive() {
                    Asked::Request { id, .. } => {
                        daemon.answer(id, Ok(Answer::Done));
                        others += 1;
                    }
                    Asked::OverSocket { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            daemon.answer(id, Ok(Answer::Done));
            daemon
        });
        let both = Arc::new((connection, reader));
        let other = both.clone();
        let first = thread::spawn(move || call(&other.0, &other.1));
        receiver.recv().unwrap();
        (0..3).for_each(|_| assert_eq!(call(&both.0, &both.1).unwrap(), Answer::Done));
        assert_eq!(first.join().unwrap().unwrap(), Answer::Done);
        drop(daemon.join().unwrap());
    }
}
