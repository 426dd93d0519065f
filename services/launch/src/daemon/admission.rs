//! When connections are taken, and what those may cost that are refused.
//!
//! Every process of the machine can connect to the port for clients of OpenPMIx as fast as the
//! kernel lets them. Each that is refused takes a moment of the daemon's one thread, so these
//! moments have a share of its time; past that the listener rests, and new connections wait in the
//! kernel's queue. That is long ([`QUEUE`]), so that each has its turn: a connection that finds it
//! full is tried again only after a second. A client that is let in has proved to be of this user,
//! and has to prove the rest within a time ([`PATIENCE`]).
//!
//! A listener also rests where descriptors are short: the kernel has nothing to give, and would say
//! so again at once. Connections stop being taken a little before, for what the daemon needs
//! itself.

use petasos_fabric::Time;
use rustix::{
    io::{Errno, fcntl_dupfd_cloexec},
    process::{Resource, Rlimit, getrlimit, setrlimit},
};
use std::{
    io,
    os::fd::{AsFd, AsRawFd},
    time::Duration,
};

/// Refusing may take one part in so many of the time. A client waits until those before it are
/// refused, so many times as long as that takes.
const SHARE: u32 = 10;
/// And so much at once.
const BURST: Duration = Duration::from_millis(2);
/// One refusal counts for so long at most.
const ONE: Duration = Duration::from_millis(1);
/// Where there is no descriptor, it is looked for one again after this time.
const PAUSE: Duration = Duration::from_millis(100);
/// Within this time a client proves that it is of the job.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Clients that have not yet, at a time; the next ones wait.
pub(crate) const MOST_UNPROVEN: usize = 256;
/// Connections that are taken in one turn of the daemon.
pub(crate) const BATCH: usize = 64;
/// Connections that wait until they are taken; the system may allow fewer (`net.core.somaxconn`).
pub(crate) const QUEUE: i32 = 4096;
/// Descriptors that no connection takes: for processes, for files, for another guard.
const RESERVE: u64 = 32;
/// Lines about clients that were refused, at most.
const MOST_TOLD: u32 = 20;

/// The limit on descriptors: what it is for this process, and was before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Files {
    pub(crate) before: Rlimit,
    /// `None`: there is none.
    now: Option<u64>,
}

impl Files {
    /// Three descriptors for each rank, and one for its connection, are soon more than the usual
    /// limit: has it be as high as it may.
    pub(crate) fn raise() -> Files {
        let before = getrlimit(Resource::Nofile);
        // Where it may not be raised, starting a rank fails, and says why.
        let raised = Rlimit { current: before.maximum, maximum: before.maximum };
        let _ = setrlimit(Resource::Nofile, raised);
        Files { before, now: getrlimit(Resource::Nofile).current }
    }

    /// Whether a connection can be taken, and enough is left: new descriptors have the lowest
    /// number that is free.
    fn have_room(&self, any: impl AsFd) -> Result<bool, Errno> {
        let next = fcntl_dupfd_cloexec(any, 0)?.as_raw_fd().cast_unsigned();
        let taken = u64::from(next);
        Ok(self.now.is_none_or(|limit| taken + RESERVE.min(limit / 4) < limit))
    }
}

/// What is known of clients that were refused.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) files: Files,
    /// No connection is taken before this time.
    no_files: Time,
    /// None of clients of OpenPMIx.
    rests: Time,
    /// How much refusing has taken, beyond its share, at that time.
    spent: Duration,
    at: Time,
    told: u32,
    told_of_files: bool,
}

impl Admission {
    pub(crate) fn new(files: Files) -> Admission {
        Admission {
            files,
            no_files: Time::ZERO,
            rests: Time::ZERO,
            spent: Duration::ZERO,
            at: Time::ZERO,
            told: 0,
            told_of_files: false,
        }
    }

    /// Whether connections are taken at all now.
    pub(crate) fn is_open(&self, now: Time) -> bool {
        now >= self.no_files
    }

    /// Whether connections of clients of OpenPMIx are.
    pub(crate) fn is_open_to_all(&self, now: Time) -> bool {
        self.is_open(now) && now >= self.rests
    }

    /// When that will change.
    pub(crate) fn deadline(&self, now: Time) -> Time {
        [self.no_files, self.rests].into_iter().filter(|at| *at > now).min().unwrap_or(Time::NEVER)
    }

    /// Whether there is a descriptor for the next connection; if not, what is to be said of it.
    pub(crate) fn has_room(&mut self, any: impl AsFd, now: Time) -> Result<(), Option<String>> {
        match self.files.have_room(any) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.no_files(now, None)),
            Err(error) => Err(self.no_files(now, Some(error))),
        }
    }

    /// A connection could not be taken: gives what is to be said of it, if all have to wait for
    /// that.
    pub(crate) fn failed(&mut self, error: &io::Error, now: Time) -> Option<String> {
        let error = Errno::from_io_error(error)?;
        let short = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&error);
        short.then(|| self.no_files(now, Some(error))).flatten()
    }

    fn no_files(&mut self, now: Time, error: Option<Errno>) -> Option<String> {
        self.no_files = now.after(PAUSE);
        if std::mem::replace(&mut self.told_of_files, true) {
            return None;
        }
        let limit = self.files.now.map_or_else(String::new, |limit| format!(" of {limit}"));
        let why = match error {
            None | Some(Errno::MFILE) => {
                format!("this process's limit{limit} on open files (ulimit -Hn) is reached")
            }
            Some(Errno::NFILE) => {
                "the system's limit on open files (fs.file-max) is reached".into()
            }
            Some(error) => error.to_string(),
        };
        Some(format!("connections have to wait: {why}"))
    }

    /// A client was refused, which took so long. Says whether to tell of it.
    pub(crate) fn refused(&mut self, now: Time, took: Duration) -> bool {
        self.spent = self.spent.saturating_sub(now.since(self.at) / SHARE) + took.min(ONE);
        self.at = now;
        if self.spent > BURST {
            // Until all of it is made up for: to be woken for one at a time would cost more than
            // that.
            self.rests = now.after(self.spent * SHARE);
        }
        self.told += 1;
        self.told <= MOST_TOLD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admission() -> Admission {
        let limit = getrlimit(Resource::Nofile);
        Admission::new(Files { before: limit, now: limit.current })
    }

    fn milliseconds(n: u64) -> Time {
        Time::ZERO.after(Duration::from_millis(n))
    }

    #[test]
    fn refusing_takes_its_share_and_no_more() {
        let mut admission = admission();
        let (mut taken, mut now) = (Duration::ZERO, milliseconds(0));
        let each = Duration::from_micros(100);
        while now < milliseconds(10_000) {
            if admission.is_open_to_all(now) {
                admission.refused(now, each);
                taken += each;
                now = now.after(each);
            } else {
                assert!(admission.deadline(now) > now);
                now = admission.deadline(now);
            }
        }
        let most = Duration::from_secs(10) / SHARE + BURST + each;
        assert!(taken <= most && taken * 2 > most, "{taken:?} of {most:?}");
        // Others are not kept out by that, and after a pause none is.
        assert!(admission.is_open(now));
        let later = now.after(Duration::from_secs(1));
        assert!(admission.is_open_to_all(later));
        assert_eq!(admission.deadline(later), Time::NEVER);
        assert!(!admission.refused(later, each), "that was told often enough");
    }

    #[test]
    fn where_descriptors_are_short_all_wait_and_it_is_said_once() {
        let mut admission = admission();
        let now = milliseconds(50);
        let error = io::Error::from(Errno::MFILE);
        assert!(admission.failed(&error, now).unwrap().contains("open files"));
        assert!(!admission.is_open(now) && !admission.is_open_to_all(now));
        assert!(admission.is_open(admission.deadline(now)));
        assert_eq!(admission.failed(&error, now), None);
        let now = admission.deadline(now);
        assert_eq!(admission.failed(&io::Error::from(Errno::CONNABORTED), now), None);
        assert!(admission.is_open(now));
    }

    #[test]
    fn some_descriptors_are_kept_back() {
        let any = std::fs::File::open("/dev/null").unwrap();
        let next = any.as_raw_fd().cast_unsigned();
        let limit = getrlimit(Resource::Nofile);
        let room = |now| Files { before: limit, now }.have_room(&any).unwrap();
        assert!(room(None) && room(Some(u64::from(next) + 500)));
        // Tests beside this one open and close some: 3 is the lowest that is ever free, and a
        // quarter of four is kept back.
        assert!(!room(Some(4)));
    }
}
