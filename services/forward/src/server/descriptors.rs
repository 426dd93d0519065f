//! The open files of all clients: each is a descriptor of this process, of which there is a number.
//!
//! A part of them is never given to clients: connections come, and the server opens files for calls
//! of its own accord. Of the rest a client may have as many as are left (a dynamic threshold, as
//! switches share their buffers: A. K. Choudhury and E. L. Hahne, IEEE/ACM Transactions on
//! Networking 6(2), 1998). So one alone has half, two have a third each, and there is always
//! something for a client that comes late, without anything being taken from another.

use super::log_limit::LogLimit;
use crate::{FsError, FsResult, descriptors::limit};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What a call may have open for itself, on one thread.
const OF_A_THREAD: u64 = 4;

/// What there is beside: listeners, the export, standard streams, what libraries keep.
const OF_THE_SERVER: u64 = 32;

/// The open files of all clients.
#[derive(Debug)]
pub(super) struct Descriptors {
    state: Mutex<State>,
    /// What clients may have together, and what the process may have.
    most: u64,
    limit: u64,
    log: LogLimit,
}

#[derive(Debug, Default)]
struct State {
    taken: u64,
    by: HashMap<u64, u64>,
}

/// A descriptor of a client's; given back when dropped.
#[derive(Debug)]
pub(super) struct Descriptor {
    all: Arc<Descriptors>,
    client: u64,
}

impl Descriptors {
    /// Of what this process may have now.
    pub(super) fn new(threads: usize) -> Arc<Descriptors> {
        Descriptors::of(limit(), threads)
    }

    fn of(limit: u64, threads: usize) -> Arc<Descriptors> {
        // A quarter for connections; where there are few, all that is not the clients' has three.
        let own = limit / 4 + OF_THE_SERVER + OF_A_THREAD * threads as u64;
        let most = limit - own.min(limit - limit / 4);
        let (state, log) = (Mutex::default(), LogLimit::default());
        Arc::new(Descriptors { state, most, limit, log })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A descriptor for something that a client is about to open.
    pub(super) fn take(self: &Arc<Self>, client: u64) -> FsResult<Descriptor> {
        let mut state = self.lock();
        let free = self.most - state.taken;
        let has = state.by.get(&client).copied().unwrap_or(0);
        if has >= free {
            drop(state);
            let detail = format!(
                "this client has {has} open files, which is its share of {}: the server may have \
                 {} descriptors (RLIMIT_NOFILE), and {free} of its clients' are free",
                self.most, self.limit
            );
            self.log.log(|| tracing::warn!("a client may open no more files: {detail}"));
            return Err(FsError::new(Errno::MFILE, detail));
        }
        state.taken += 1;
        state.by.insert(client, has + 1);
        Ok(Descriptor { all: Arc::clone(self), client })
    }

    /// Says of which limit an error tells that the system gave.
    pub(super) fn explain(&self, error: FsError) -> FsError {
        let what = match error.errno() {
            Errno::MFILE => format!("all {} descriptors of the server (RLIMIT_NOFILE)", self.limit),
            Errno::NFILE => "all descriptors of the server's system (fs.file-max)".to_owned(),
            _ => return error,
        };
        if error.detail().is_empty() {
            self.log.log(|| tracing::warn!("no file can be opened: {what} are in use"));
        }
        error.about(|| format!("{what} are in use"))
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let mut state = self.all.lock();
        state.taken -= 1;
        match state.by.get_mut(&self.client) {
            Some(has) if *has > 1 => *has -= 1,
            _ => drop(state.by.remove(&self.client)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all_of(all: &Arc<Descriptors>, client: u64) -> Vec<Descriptor> {
        std::iter::from_fn(|| all.take(client).ok()).collect()
    }

    #[test]
    fn one_has_half_and_others_find_some() {
        let all = Descriptors::of(1 << 20, 4);
        assert!(all.most > 700_000, "{}", all.most);
        let all = Descriptors::of(176, 4);
        assert_eq!(all.most, 176 - 44 - 32 - 16);
        let first = all_of(&all, 1);
        assert_eq!(first.len(), 42);
        let refused = all.take(1).unwrap_err();
        assert_eq!(refused.errno(), Errno::MFILE);
        for number in ["42 open files", "84", "176 descriptors (RLIMIT_NOFILE)"] {
            assert!(refused.detail().contains(number), "{refused}");
        }
        let mut second = all_of(&all, 2);
        assert_eq!(second.len(), 21);
        assert!(!all_of(&all, 3).is_empty());
        drop(first);
        let more = all_of(&all, 2);
        assert!(more.len() > 10, "what one gave back is for the others");
        second.extend(more);
        drop(second);
        let state = all.lock();
        assert_eq!((state.taken, state.by.len()), (0, 0));
    }

    #[test]
    fn where_there_are_few() {
        for limit in [0, 1, 16, 64] {
            assert_eq!(Descriptors::of(limit, 64).most, limit / 4);
        }
    }

    #[test]
    fn which_limit_it_was() {
        let all = Descriptors::of(100, 1);
        assert!(all.explain(Errno::MFILE.into()).detail().contains("all 100 descriptors"));
        assert!(all.explain(Errno::NFILE.into()).detail().contains("fs.file-max"));
        assert_eq!(all.explain(Errno::NOENT.into()).detail(), "");
        assert_eq!(all.explain(FsError::new(Errno::MFILE, "known")).detail(), "known");
    }
}
