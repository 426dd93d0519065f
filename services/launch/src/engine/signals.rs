//! Signals that a process sends to others of its job: the controller passes them on to their nodes.

use super::{ClientId, Engine, Output, RequestId};
use crate::message::{ControllerRequest, Message};
use petasos_pmix::{Error, Group, Node, Proc, message::Answer};
use std::collections::BTreeSet;

/// The last signal that has a name. Those of real-time programs cannot be sent.
const LAST: i32 = 31;

impl Engine {
    /// A client asks for a signal. Whether it may is decided here.
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
        let whole = || self.jobs.whole(asker.job);
        let group = group.or_else(whole).ok_or(Error::NotInGroup(asker))?;
        for span in group.spans() {
            self.check_may(asker, span.job)?;
            let last = Proc::new(span.job, span.last);
            self.jobs.node_of(last).ok_or(Error::NoSuchProc(last))?;
        }
        self.ask_controller(client, id, asker, ControllerRequest::Signal { group, signal }, None)
    }

    /// At the controller: sends it to the nodes of the processes that run, as far as is known here.
    pub(super) fn signal_asked(&mut self, group: Group, signal: i32) -> Result<Answer, Error> {
        let Some(first) = group.iter().next() else {
            return Err(Error::Misuse("no process is named".to_owned()));
        };
        let procs = self.jobs.procs_of(&group);
        let nodes: BTreeSet<Node> = procs.filter_map(|proc| self.may_run(proc)).collect();
        if nodes.is_empty() {
            return Err(self.why_not_running(first));
        }
        for node in nodes {
            match node == self.me {
                true => self.deliver_signal(group.clone(), signal),
                false => self.send(node, Message::Signal { group: group.clone(), signal }),
            }
        }
        Ok(Answer::Done)
    }

    /// Where a process runs, as far as is known here.
    fn may_run(&self, proc: Proc) -> Option<Node> {
        let node = self.jobs.node_of(proc).filter(|node| !self.members.is_lost(*node))?;
        self.jobs.end_of(proc).is_none().then_some(node)
    }

    /// Why a process does not run.
    fn why_not_running(&self, proc: Proc) -> Error {
        match (self.ran_on(proc), self.jobs.end_of(proc)) {
            (Some(node), Some(why)) => Error::ProcGone { proc, node, why: why.clone() },
            (Some(node), None) => Error::NodeLost { node, missing: self.jobs.procs_on(node, None) },
            (None, _) => Error::NoSuchProc(proc),
        }
    }

    /// Processes of this node get a signal.
    pub(super) fn deliver_signal(&mut self, group: Group, signal: i32) {
        self.out.push(Output::Signal { group, signal });
    }
}
