//! Events at a process: its handlers, and the events that it raises.

use super::{Job, JobError, Reply, SLACK, unexpected};
use crate::{
    Info, Value,
    chain::{Registration, Returned},
    event::{Event, NON_DEFAULT, Range},
    message::{Answer, Request},
};

impl Job {
    /// Registers an event handler. A thread of its own calls handlers, one after the other, in the
    /// order that [`chain`](crate::chain) describes. The handler also gets events of the last two
    /// minutes. It may call methods of this job.
    /// A process may have 1,024 handlers. Gives the number of the handler.
    ///
    /// ```no_run
    /// use petasos_pmix::{Job, Reply, chain::Registration, status};
    ///
    /// let job = Job::init()?;
    /// let codes = vec![status::PROC_ABORTED];
    /// let failures = Registration { codes, ..Registration::default() };
    /// let handler = job.on_event(failures, |event, _| {
    ///     println!("{} failed", event.source);
    ///     Reply::seen()
    /// })?;
    /// job.remove_handler(handler)?;
    /// # Ok::<(), petasos_pmix::JobError>(())
    /// ```
    ///
    /// # Errors
    /// [`JobError::Refused`] if there is a first (or last) handler already, or too many handlers;
    /// [`JobError::Lost`] if the daemon is lost.
    pub fn on_event(
        &self,
        with: Registration,
        call: impl FnMut(&Event, &[Returned]) -> Reply + Send + 'static,
    ) -> Result<u64, JobError> {
        let codes = with.codes.clone();
        let handler = self.events.add(with, call, &self.server)?;
        match self.perform(Request::Register { handler, codes }, SLACK) {
            Ok(()) => Ok(handler),
            Err(error) => {
                let _ = self.events.remove(handler);
                Err(error)
            }
        }
    }

    /// Removes an event handler. A call of it that is under way goes on.
    ///
    /// # Errors
    /// If there is no such handler, or the daemon is lost.
    pub fn remove_handler(&self, handler: u64) -> Result<(), JobError> {
        self.events.remove(handler)?;
        self.perform(Request::Deregister(handler), SLACK)
    }

    /// Raises an event. The processes in `range` get it, and handlers of this process are called as
    /// well. Two keys in `info` control it: [`NON_DEFAULT`] and
    /// [`NO_CACHE`](crate::event::NO_CACHE). It does not wait for handlers.
    ///
    /// # Errors
    /// [`JobError::Refused`] if the code is 0, which is that of success, or if names and values in
    /// `info` have more than 64 KiB in all; [`JobError::Lost`] if the daemon is lost.
    pub fn notify(&self, code: i32, range: Range, mut info: Info) -> Result<(), JobError> {
        let is_set =
            |(key, value): &(String, Value)| key == NON_DEFAULT && *value == Value::Bool(true);
        let non_default = info.iter().any(is_set);
        info.retain(|(key, _)| key != NON_DEFAULT);
        let request =
            Request::Notify { code, range: range.clone(), non_default, info: info.clone() };
        let Answer::Notified(id) = self.server.call(request, SLACK)? else {
            return Err(unexpected());
        };
        let (source, node) = (self.proc, self.node);
        self.events.own(Event { id, code, source, node, range, non_default, info }, &self.server);
        Ok(())
    }
}
