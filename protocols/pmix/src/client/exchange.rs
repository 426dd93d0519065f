//! What processes exchange: business cards, fences, published values, queries.

use super::{Job, JobError, PATIENCE, SLACK, cards::value_of, done, server::Server, unexpected};
use crate::{
    Entry, Error, Group, Info, Proc, Scope, Value,
    event::Range,
    message::{Answer, Persistence, Published, Request},
};
use std::time::Duration;

/// How [`Job::get_with`] looks for a key. The default waits until the process has committed, 5
/// minutes at most.
///
/// ```no_run
/// use petasos_pmix::{GetOptions, Job};
/// use std::time::Duration;
///
/// let job = Job::init()?;
/// let soon = GetOptions { timeout: Some(Duration::from_secs(2)), ..GetOptions::default() };
/// println!("{}", job.get_with(0, "port", soon)?);
/// # Ok::<(), petasos_pmix::JobError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct GetOptions {
    /// How long to wait for the other process to commit; `None`: 5 minutes.
    pub timeout: Option<Duration>,
    /// Do not wait: a key that is not known on this node is not found.
    pub immediate: bool,
    /// Wait for the key, even if the process has committed without it.
    pub wait: bool,
}

/// How [`Job::fence_with`] brings processes together. The default is all ranks of the job, with
/// their business cards, for 5 minutes at most.
///
/// ```no_run
/// use petasos_pmix::{FenceOptions, Group, Job};
///
/// let job = Job::init()?;
/// let half = Group::of((0..job.size() / 2).map(|rank| job.proc_of(rank)));
/// if half.contains(job.proc()) {
///     job.fence_with(FenceOptions { group: Some(half), ..FenceOptions::default() })?;
/// }
/// # Ok::<(), petasos_pmix::JobError>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FenceOptions {
    /// The processes, this one among them; `None`: all ranks of the job.
    pub group: Option<Group>,
    /// Whether business cards are not spread. A get then fetches them when they are needed.
    pub without_cards: bool,
    /// How long to wait for the others; `None`: 5 minutes.
    pub timeout: Option<Duration>,
}

impl Job {
    /// Puts a value on this process's business card. The others see it after [`Job::commit`], which
    /// also checks its size.
    pub fn put(&self, scope: Scope, key: &str, value: impl Into<Value>) {
        self.own.put(key, Entry { scope, value: value.into() });
    }

    /// Makes visible to the others what was put. A later value under a key replaces the earlier
    /// one.
    ///
    /// # Errors
    /// * [`JobError::Refused`] if a key is longer than [`MAX_KEY`](crate::MAX_KEY) or begins with
    ///   [`RESERVED`](crate::RESERVED), a value is larger than [`MAX_VALUE`](crate::MAX_VALUE), or
    ///   the whole business card is larger than 64 MiB. Nothing of the commit is visible then.
    /// * [`JobError::Lost`] if the daemon is lost.
    pub fn commit(&self) -> Result<(), JobError> {
        self.perform(Request::Commit(self.own.take_uncommitted()), SLACK)
    }

    /// The value that a rank has put under a key, or (with [`Proc::JOB`]) a value of the job.
    /// Fetches the rank's business card if it is not here, and waits until the rank has committed,
    /// 5 minutes at most.
    ///
    /// # Errors
    /// [`JobError::Refused`], with the rank and the key, if the rank committed without it
    /// ([`Error::NotFound`]), has ended ([`Error::ProcGone`], [`Error::NodeLost`]), or did not
    /// commit in time ([`Error::GetTimeout`]).
    pub fn get(&self, rank: u32, key: &str) -> Result<Value, JobError> {
        self.get_with(rank, key, GetOptions::default())
    }

    /// [`Job::get`], with options.
    ///
    /// # Errors
    /// As [`Job::get`].
    pub fn get_with(&self, rank: u32, key: &str, how: GetOptions) -> Result<Value, JobError> {
        let facts = self.data.facts();
        let proc = Proc::new(facts.id(), rank);
        // The daemon knows better where a rank is, once nodes may have been replaced.
        let current = rank == Proc::JOB || !self.data.may_be_outdated();
        if let Some(value) = facts.value(rank, key).filter(|_| current) {
            return Ok(value);
        }
        if proc == self.proc
            && let Some(value) = self.own.get(key)
        {
            return Ok(value);
        }
        // All job data of another launcher came at the start. Its server might wait for ranks that
        // do not exist.
        if self.server.is_foreign() && facts.node_of(rank).is_none() {
            return Err(match rank {
                Proc::JOB => Error::NotFound { proc, key: key.to_owned() },
                _ => Error::NoSuchProc(proc),
            }
            .into());
        }
        let restarts = self.cards.restarts();
        if let Some(value) = self.cards.find(restarts, proc, key) {
            return Ok(value);
        }
        let GetOptions { timeout, immediate, wait } = how;
        let request = Request::Get { proc, key: key.to_owned(), timeout, immediate, wait };
        match self.server.call(request, timeout.unwrap_or(PATIENCE) + SLACK)? {
            Answer::Value(value) => Ok(value),
            Answer::BusinessCard(card) => {
                let value = value_of(&card, key);
                // A process that shares no memory with the daemon cannot see when a business card
                // is of a process that has ended.
                if self.cards.datastore().is_some() || self.server.is_foreign() {
                    self.cards.keep(restarts, proc, card);
                }
                value.ok_or_else(|| Error::NotFound { proc, key: key.to_owned() }.into())
            }
            _ => Err(unexpected()),
        }
    }

    /// Waits until all ranks have called this, 5 minutes at most. Afterwards each node has the
    /// business cards of all, as they were committed before.
    ///
    /// # Errors
    /// [`JobError::Refused`], with the ranks that did not come, if not all came in time
    /// ([`Error::FenceTimeout`]) or one has ended ([`Error::FenceBroken`], [`Error::NodeLost`]).
    /// All ranks get that error. The business cards of a fence may have 128 MiB in all.
    pub fn fence(&self) -> Result<(), JobError> {
        self.fence_with(FenceOptions::default())
    }

    /// [`Job::fence`], with options.
    ///
    /// # Errors
    /// As [`Job::fence`], and [`Error::NotInGroup`] if this process is not in the group.
    pub fn fence_with(&self, how: FenceOptions) -> Result<(), JobError> {
        let FenceOptions { group, without_cards, timeout } = how;
        let whole = group.is_none();
        let request = Request::Fence { group, collect: !without_cards, timeout };
        let patience = timeout.unwrap_or(PATIENCE) + SLACK;
        match (&*self.server, self.cards.datastore()) {
            // Fences of the whole job end for all ranks of a node together, in shared memory.
            (Server::Native(connection), Some(datastore)) if whole => {
                let rank = self.proc.rank;
                done(connection.call_with_shared_completion(request, patience, datastore, rank)?)
            }
            _ => self.perform(request, patience),
        }
    }

    /// Publishes a value for all processes in `range` to look up. The head node keeps at most
    /// 65,536 keys of all processes.
    ///
    /// ```no_run
    /// use petasos_pmix::{Job, event::Range, message::Persistence};
    /// use std::time::Duration;
    ///
    /// let job = Job::init()?;
    /// if job.rank() == 0 {
    ///     job.publish("service", "tcp://10.0.0.1:4040", Range::Namespace, Persistence::Process)?;
    /// }
    /// let (address, publisher) = job.lookup("service", Some(Duration::from_secs(10)))?;
    /// println!("{publisher} offers {address}");
    /// # Ok::<(), petasos_pmix::JobError>(())
    /// ```
    ///
    /// # Errors
    /// [`JobError::Refused`] if the key is published already ([`Error::Published`]), the key or
    /// value is too large, or the head node does not answer within 30 seconds.
    pub fn publish(
        &self,
        key: &str,
        value: impl Into<Value>,
        range: Range,
        persistence: Persistence,
    ) -> Result<(), JobError> {
        let (key, value) = (key.to_owned(), value.into());
        self.perform(Request::Publish(Published { key, value, range, persistence }), PATIENCE)
    }

    /// Looks up a published value, and the process that published it. Waits for it at most `wait`;
    /// `None`: not at all.
    ///
    /// # Errors
    /// [`JobError::Refused`] if it is not published ([`Error::NotPublished`]) or was not in time
    /// ([`Error::LookupTimeout`]).
    pub fn lookup(&self, key: &str, wait: Option<Duration>) -> Result<(Value, Proc), JobError> {
        let request =
            Request::Lookup { keys: vec![key.to_owned()], wait, least: 0, within: Range::Global };
        match self.server.call(request, wait.unwrap_or_default() + PATIENCE)? {
            Answer::Found(found) => {
                let first = found.into_iter().next();
                first.map(|(_, value, owner)| (value, owner)).ok_or_else(unexpected)
            }
            _ => Err(unexpected()),
        }
    }

    /// Removes what this process published under a key, if it did.
    ///
    /// # Errors
    /// If the head node does not answer within 30 seconds.
    pub fn unpublish(&self, key: &str) -> Result<(), JobError> {
        self.perform(Request::Unpublish(vec![key.to_owned()]), PATIENCE)
    }

    /// Queries the running job: keys of job data, `petasos.processes`, `petasos.nodes`,
    /// `petasos.published`, `petasos.jobs`, `petasos.inventory`. Nodes have 3 seconds to report on
    /// their processes. The entry `petasos.silent` of the answer lists those that did not.
    ///
    /// # Errors
    /// [`JobError::Refused`] if a key is unknown ([`Error::UnknownQuery`]), the answer has more
    /// than 40 MiB, or the head node does not answer within 30 seconds.
    pub fn query(&self, keys: &[&str]) -> Result<Info, JobError> {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        match self.server.call(Request::Query(keys), PATIENCE)? {
            Answer::Info(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }
}
