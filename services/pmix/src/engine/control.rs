//! Signals that a process has sent to others of its job: the head passes them on to their nodes.

use super::{ClientId, Engine, Output, RequestId};
use crate::{
    error::{Error, Termination},
    message::{Answer, ControllerRequest, Message},
    names::{Group, Node, Proc},
};
use std::collections::BTreeSet;

/// The last signal that has a name; those of real-time programs cannot be sent so.
const LAST: i32 = 31;

impl Engine {
    /// A client asks; whether it may is known here.
    pub(super) fn signal(
        &mut self,
        client: ClientId,
        id: RequestId,
        asker: Proc,
        group: Option<Group>,
        signal: i32,
    ) -> Result<Option<Answer>, Error> {
        if !(1..=LAST).contains(&signal) {
            return Err(Error::Misuse(format!("{signal} is no signal")));
        }
        let whole = self.jobs.get(&asker.job).map(|job| Group::all(asker.job, job.map.size()));
        let group = group.or(whole).ok_or(Error::NotInGroup(asker))?;
        for span in group.spans() {
            self.check_may(asker, span.job)?;
            let last = Proc::new(span.job, span.last);
            self.node_of(last).ok_or(Error::NoSuchProc(last))?;
        }
        self.ask_head(client, id, asker, ControllerRequest::Signal { group, signal }, None)
    }

    /// At the head: it goes to the nodes of those that live, as far as is known here.
    pub(super) fn signal_asked(&mut self, group: Group, signal: i32) -> Result<Answer, Error> {
        let Some(first) = group.iter().next() else {
            return Err(Error::Misuse("no process is named".to_owned()));
        };
        let nodes: BTreeSet<Node> =
            self.procs_of(&group).filter_map(|proc| self.may_run(proc)).collect();
        if nodes.is_empty() {
            return Err(self.why_not_there(first));
        }
        for node in nodes {
            match node == self.me {
                true => self.signalled(group.clone(), signal),
                false => self.send(node, Message::Signal { group: group.clone(), signal }),
            }
        }
        Ok(Answer::Done)
    }

    /// Those of a group that there are. Another daemon may name any number, and is not counted after.
    fn procs_of(&self, group: &Group) -> impl Iterator<Item = Proc> {
        group.spans().iter().flat_map(|span| {
            let size = self.jobs.get(&span.job).map_or(0, |job| job.map.size());
            let end = span.last.saturating_add(1).min(size);
            (span.first..end).map(|rank| Proc::new(span.job, rank))
        })
    }

    /// How a process ended. One that has finalized may go on.
    fn end_of(&self, proc: Proc) -> Option<&Termination> {
        let done = self.jobs.get(&proc.job).and_then(|job| job.done.get(&proc.rank));
        done.or_else(|| self.gone_of(proc).filter(|why| !why.is_clean()))
    }

    /// Where a process runs, as far as is known here.
    fn may_run(&self, proc: Proc) -> Option<Node> {
        let node = self.node_of(proc).filter(|node| !self.members.is_lost(*node))?;
        self.end_of(proc).is_none().then_some(node)
    }

    /// Why it does not.
    fn why_not_there(&self, proc: Proc) -> Error {
        match (self.ran_on(proc), self.end_of(proc)) {
            (Some(node), Some(why)) => Error::ProcGone { proc, node, why: why.clone() },
            (Some(node), None) => Error::NodeLost { node, missing: self.procs_on(node, None) },
            (None, _) => Error::NoSuchProc(proc),
        }
    }

    /// Processes of this node get a signal.
    pub(super) fn signalled(&mut self, group: Group, signal: i32) {
        self.out.push_back(Output::Signal { group, signal });
    }
}
