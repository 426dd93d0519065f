//! Fences: a group comes together, and spreads the business cards of all if that is wanted.
//!
//! The nodes that host the group form a tree, in the order of their numbers. When all processes of
//! a node and all its children have come, it tells its parent; when the root knows that all have,
//! it tells its children. A fence is named by its group and its number among the fences of that
//! group. When the time of a request is over, the root asks down the tree which processes are
//! missing, and then ends the fence for all, with that answer. A participant that dies, or a node
//! that is lost, ends it at once. A process that comes later to a fence that has failed gets that
//! error.
//!
//! Where a node took the place of one that was lost, the tree is another one, and fences of the
//! group are counted anew: each message says after which replacement it was sent. A process that
//! was in no fence when the node was lost fails in its next one, so that all of the group have seen
//! the loss before they come together again.

mod group;

use super::{ClientId, Engine, RequestId, clients::Waiting, requests::limit, timers::Timer};
use crate::message::{FenceStep, Message, Replacement};
use group::{Fence, GroupFences};
use petasos_pmix::{
    BusinessCard, Error, Group, JobId, Missing, Node, Proc, Termination, message::Answer,
};
use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

/// Groups that have had fences, in all.
const MAX_GROUPS: usize = 1 << 16;
/// How many fences of a group a process may be ahead of the first that is not over.
const MAX_OPEN: usize = 1 << 12;
/// Fences of a group that other nodes may have begun or ended, or that have failed before all
/// processes of this node came.
const MAX_KNOWN: usize = 2 * MAX_OPEN;

/// The groups that have fences.
#[derive(Debug, Default)]
pub(super) struct Fences(HashMap<Group, GroupFences>);

impl Fences {
    /// Whether a fence has begun, and is not over.
    pub(super) fn is_open(&self, group: &Group, nth: u64) -> bool {
        self.0.get(group).is_some_and(|fences| fences.is_open(nth))
    }

    fn fence_mut(&mut self, group: &Group, nth: u64) -> Option<&mut Fence> {
        self.0.get_mut(group)?.fence_mut(nth)
    }

    /// The open fences of some groups.
    fn open_of(&self, which: impl Fn(&Group, &GroupFences) -> bool) -> Vec<(Group, u64)> {
        let groups = self.0.iter().filter(|(group, fences)| which(group, fences));
        groups
            .flat_map(|(group, fences)| fences.open_numbers().map(|nth| (group.clone(), nth)))
            .collect()
    }

    fn missing_here(&mut self, group: &Group, nth: u64) -> Missing {
        let mut missing = Missing::default();
        if let Some(fence) = self.fence_mut(group, nth) {
            fence.missing_here().for_each(|proc| missing.add(proc));
        }
        missing
    }
}

impl Engine {
    /// A process comes to a fence.
    pub(super) fn fence(
        &mut self,
        client: ClientId,
        id: RequestId,
        proc: Proc,
        group: Option<Group>,
        collect: bool,
        timeout: Option<Duration>,
    ) -> Result<Option<Answer>, Error> {
        let group = group.or_else(|| self.jobs.whole(proc.job)).ok_or(Error::NotInGroup(proc))?;
        if proc.job == JobId::TOOLS || !group.contains(proc) {
            return Err(Error::NotInGroup(proc));
        }
        let nth = self.fences_of(&group)?.arrive(proc)?;
        self.open_fence(&group, nth);
        let card = if collect { self.card_for_others(proc) } else { None };
        self.fences_of(&group)?.join(&group, nth, proc, (client, id), card)?;
        self.wait(client, id, timeout, Waiting::Fence { group: group.clone(), nth, late: false });
        self.advance_fence(&group, nth);
        Ok(None)
    }

    /// The fences of a group; made when it is first named.
    fn fences_of(&mut self, group: &Group) -> Result<&mut GroupFences, Error> {
        if !self.fences.0.contains_key(group) {
            if self.fences.0.len() >= MAX_GROUPS {
                return Err(limit("groups", MAX_GROUPS + 1, MAX_GROUPS));
            }
            let fences = self.new_fences(group)?;
            self.fences.0.insert(group.clone(), fences);
        }
        Ok(self.fences.0.get_mut(group).expect("it was just made"))
    }

    fn new_fences(&self, group: &Group) -> Result<GroupFences, Error> {
        let mut hosts = BTreeSet::new();
        let mut whole = None;
        for span in group.spans() {
            let first = Proc::new(span.job, span.first);
            let map = self.map(span.job).ok_or(Error::NoSuchProc(first))?;
            if span.last >= map.size() {
                return Err(Error::NoSuchProc(Proc::new(span.job, span.last)));
            }
            if group.spans().len() == 1 && group.len() == u64::from(map.size()) {
                // The common case, all ranks of the job: the list is shared.
                whole = Some(map.hosts().clone());
                break;
            }
            hosts.extend((span.first..=span.last).filter_map(|rank| map.node_of(rank)));
        }
        let hosts = whole.unwrap_or_else(|| hosts.into_iter().collect());
        let locals = self.jobs.locals().map(|(proc, _)| proc);
        let locals = locals.filter(|proc| group.contains(*proc));
        let replaced = self.replacements.last_of(|proc| group.contains(proc));
        let fanout = self.config.fanout.max(1) as usize;
        GroupFences::new(hosts, self.me, fanout, replaced, locals).ok_or_else(|| {
            Error::Misuse(format!("{} hosts no process of the group {group}", self.me))
        })
    }

    /// Opens a fence that is not over. If it cannot succeed, ends it at once.
    fn open_fence(&mut self, group: &Group, nth: u64) {
        let Some(fences) = self.fences.0.get_mut(group) else { return };
        if !fences.open(nth) {
            return;
        }
        let lost = self.members.lost().iter().find(|node| fences.is_host(**node)).copied();
        if !fences.children().is_empty() {
            self.timers.set_after(self.config.probe, Timer::Probe(group.clone(), nth));
        }
        if let Some(node) = lost {
            let missing = self.jobs.procs_on(node, Some(group));
            return self.fail_fence(group, nth, Error::NodeLost { node, missing });
        }
        let first = self.jobs.locals().find_map(|(proc, local)| {
            let why = local.final_termination().filter(|_| fences.awaits(proc, nth))?;
            Some((proc, why.clone()))
        });
        if let Some((proc, why)) = first {
            return self.break_fence(group, nth, proc, why);
        }
        let check: BTreeSet<Node> = self.jobs.iter().flat_map(|job| job.failed_on(group)).collect();
        for node in check {
            self.send_step(node, group, nth, FenceStep::Check);
        }
    }

    fn send_step(&mut self, to: Node, group: &Group, nth: u64, step: FenceStep) {
        let replaced = self.fences.0.get(group).map_or(0, GroupFences::replaced);
        self.send(to, Message::Fence { group: group.clone(), replaced, nth, step });
    }

    /// Once all have come, tells the parent, or at the root all participants.
    fn advance_fence(&mut self, group: &Group, nth: u64) {
        let Some(fences) = self.fences.0.get_mut(group) else { return };
        let parent = fences.parent();
        let Some(fence) = fences.fence_mut(nth) else { return };
        if let Err(error) = fence.check_size() {
            return self.fail_fence(group, nth, error);
        }
        let Some(cards) = fence.complete() else { return };
        match parent {
            Some(parent) => self.send_step(parent, group, nth, FenceStep::Up(cards)),
            None => self.fence_down(group, nth, Ok(cards)),
        }
    }

    /// A fence is over: tells the children and the processes of this node.
    fn fence_down(
        &mut self,
        group: &Group,
        nth: u64,
        result: Result<Vec<(Proc, BusinessCard)>, Error>,
    ) {
        let Some(fences) = self.fences.0.get(group) else { return };
        for child in fences.children().to_vec() {
            self.send_step(child, group, nth, FenceStep::Down(result.clone()));
        }
        match result {
            Ok(cards) => {
                cards.into_iter().for_each(|(proc, card)| self.keep_card(proc, card));
                self.end_fence(group, nth, Ok(()));
            }
            Err(error) => self.end_fence(group, nth, Err(error)),
        }
    }

    fn end_fence(&mut self, group: &Group, nth: u64, result: Result<(), Error>) {
        let Some(fences) = self.fences.0.get_mut(group) else { return };
        for (client, id) in fences.end(nth, &result) {
            self.answer(client, id, result.clone().map(|()| Answer::Done));
        }
    }

    /// A fence cannot succeed: all participants are told, by way of the root.
    fn fail_fence(&mut self, group: &Group, nth: u64, error: Error) {
        let Some(root) = self.fences.0.get(group).map(GroupFences::root) else { return };
        if root == self.me {
            return self.fence_down(group, nth, Err(error));
        }
        self.send_step(root, group, nth, FenceStep::Fail(error.clone()));
        self.end_fence(group, nth, Err(error));
    }

    fn break_fence(&mut self, group: &Group, nth: u64, proc: Proc, why: Termination) {
        let node = self.ran_on(proc).unwrap_or(self.me);
        let error = Error::FenceBroken { group: group.clone(), nth, proc, node, why };
        self.fail_fence(group, nth, error);
    }

    pub(super) fn fence_message(
        &mut self,
        from: Node,
        group: &Group,
        replaced: u32,
        nth: u64,
        step: FenceStep,
    ) {
        // A fence that failed with a node which has been replaced since no longer matters.
        let Ok(fences) = self.fences_of(group) else { return };
        if fences.replaced() != replaced || !fences.may_send(from, &step) {
            return;
        }
        if fences.is_too_many(nth) {
            return self.cut_off(from, &limit("fences of a group", MAX_KNOWN + 1, MAX_KNOWN));
        }
        match step {
            FenceStep::Up(cards) => {
                self.open_fence(group, nth);
                let Some(fence) = self.fences.fence_mut(group, nth) else { return };
                fence.child_came(from, cards);
                self.advance_fence(group, nth);
                self.advance_census(group, nth);
            }
            FenceStep::Down(result) => self.fence_down(group, nth, result),
            FenceStep::Fail(error) => {
                if !fences.is_over(nth) {
                    self.fence_down(group, nth, Err(error));
                }
            }
            FenceStep::Late | FenceStep::Count => {
                self.open_fence(group, nth);
                self.take_census(group, nth);
            }
            FenceStep::Missing(missing) => {
                let Some(fence) = fences.fence_mut(nth) else { return };
                fence.counted(from, missing);
                self.advance_census(group, nth);
            }
            FenceStep::Check => self.check_fence(group, nth),
        }
    }

    /// A fence takes long. A process that has finalized is not known to all, and where no process
    /// has come, no node checks. So those parts of the tree that have not come are asked to.
    pub(super) fn probe_fence(&mut self, group: &Group, nth: u64) {
        let children = self.fences.fence_mut(group, nth).map(|fence| fence.missing_children());
        for child in children.into_iter().flatten() {
            self.send_step(child, group, nth, FenceStep::Check);
        }
    }

    /// Another node asks, or knows that a process of this node has ended: does this fence lack one?
    fn check_fence(&mut self, group: &Group, nth: u64) {
        self.open_fence(group, nth);
        let Some(fence) = self.fences.fence_mut(group, nth) else { return };
        let ended = |proc| Some((proc, self.jobs.local(proc)?.final_termination()?.clone()));
        let first = fence.missing_here().find_map(ended);
        if let Some((proc, why)) = first {
            self.break_fence(group, nth, proc, why);
        }
    }

    /// The time of a request is over. First the root is asked which processes are missing. If it
    /// does not answer, the error has what is known here.
    pub(super) fn fence_late(
        &mut self,
        client: ClientId,
        id: RequestId,
        group: Group,
        nth: u64,
        late: bool,
    ) {
        let Some(root) = self.fences.0.get(&group).map(GroupFences::root) else { return };
        if !late {
            let waiting = Waiting::Fence { group: group.clone(), nth, late: true };
            self.wait(client, id, Some(self.config.census * 2), waiting);
            match root == self.me {
                true => self.take_census(&group, nth),
                false => self.send_step(root, &group, nth, FenceStep::Late),
            }
            return;
        }
        let mut missing = self.fences.missing_here(&group, nth);
        if root != self.me {
            missing.add_silent(root);
        }
        self.fail_fence(&group, nth, Error::FenceTimeout { group: group.clone(), nth, missing });
    }

    /// Asks the children that have not come which processes are missing there.
    fn take_census(&mut self, group: &Group, nth: u64) {
        let until = self.now().after(self.config.census);
        let Some(fence) = self.fences.fence_mut(group, nth) else { return };
        let Some(children) = fence.start_census(until) else { return };
        for child in children {
            self.send_step(child, group, nth, FenceStep::Count);
        }
        self.timers.set(until, Timer::Census(group.clone(), nth));
        self.advance_census(group, nth);
    }

    /// Ends the census once all children have answered.
    fn advance_census(&mut self, group: &Group, nth: u64) {
        if self.fences.fence_mut(group, nth).is_some_and(|fence| fence.is_counted()) {
            self.census_over(group, nth);
        }
    }

    /// The census is over: the error names the children that have not answered.
    pub(super) fn census_over(&mut self, group: &Group, nth: u64) {
        let now = self.now();
        let Some(fences) = self.fences.0.get_mut(group) else { return };
        let parent = fences.parent();
        let counted = fences.fence_mut(nth).and_then(|fence| fence.end_census(now));
        let Some(missing) = counted else { return };
        match parent {
            Some(parent) => self.send_step(parent, group, nth, FenceStep::Missing(missing)),
            // All were on their way: the fence is complete in a moment, or the census is repeated.
            None if missing.is_empty() => {}
            None => {
                let error = Error::FenceTimeout { group: group.clone(), nth, missing };
                self.fail_fence(group, nth, error);
            }
        }
    }

    /// A process of this node has ended: the fences that lack it fail.
    pub(super) fn fences_lacking(&mut self, proc: Proc, why: &Termination) {
        let all = self.fences.0.iter();
        let lacking: Vec<(Group, u64)> = all
            .flat_map(|(group, fences)| {
                fences.lacking(proc).into_iter().map(|nth| (group.clone(), nth))
            })
            .collect();
        for (group, nth) in lacking {
            self.break_fence(&group, nth, proc, why.clone());
        }
        self.fences.0.values_mut().for_each(|fences| fences.forget(proc));
    }

    /// A process of this node takes the place of one that has ended: the next fence to which it
    /// comes is the first that is not over. So it comes together with the processes whose fence
    /// failed without it.
    pub(super) fn restart_fences(&mut self, proc: Proc) {
        self.fences.0.values_mut().for_each(|fences| fences.restart(proc));
    }

    /// A process of another node has failed: its daemon is asked whether open fences lack it.
    pub(super) fn check_fences(&mut self, proc: Proc, node: Node) {
        for (group, nth) in self.fences.open_of(|group, _| group.contains(proc)) {
            self.send_step(node, &group, nth, FenceStep::Check);
        }
    }

    /// A node is lost, and with it every fence in which it takes part.
    pub(super) fn fences_without(&mut self, node: Node) {
        for (group, fences) in self.fences.0.iter_mut().filter(|(_, all)| all.is_host(node)) {
            let missing = self.jobs.procs_on(node, Some(group));
            fences.owe(&Error::NodeLost { node, missing });
        }
        for (group, nth) in self.fences.open_of(|_, fences| fences.is_host(node)) {
            // No need to tell other nodes: all learn of the loss.
            let missing = self.jobs.procs_on(node, Some(&group));
            self.end_fence(&group, nth, Err(Error::NodeLost { node, missing }));
        }
    }

    /// The ranks of a node are on another: fences of groups with some of them begin anew, over
    /// another tree. None is open, since all of these have failed with the node.
    pub(super) fn fences_moved(&mut self, what: &Replacement) {
        let with_some = |group: &&Group| what.procs().any(|proc| group.contains(proc));
        let groups: Vec<Group> = self.fences.0.keys().filter(with_some).cloned().collect();
        for group in groups {
            let Some(before) = self.fences.0.remove(&group) else { continue };
            if let Ok(new) = self.new_fences(&group) {
                self.fences.0.insert(group, before.renewed(new));
            }
        }
    }
}
