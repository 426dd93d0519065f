//! Fences: a group comes together, with everybody's cards if that is wanted.
//!
//! The nodes that host the group form a tree, in the order of their numbers. When all processes of
//! a node and all its children have come, it tells its parent; when the root knows that all have,
//! it tells its children. A fence is named by its group and the how manieth of that group it is.
//! When somebody's time is over the root asks down the tree who is missing, and then ends the
//! fence for all, with that answer. A participant that dies, or a node that is lost, ends it at
//! once. Who comes later to a fence that has failed is told so.
//!
//! Where a node took the place of one that was lost, the tree is another one, and fences of the group are counted
//! anew: each message says after which replacement it was sent. Who was in no fence when the node was lost has failed
//! in the next one, so that all of the group have seen it before they come together again.

use super::{ClientId, Engine, RequestId, Timer, Waiting, requests::limit};
use crate::{
    error::{Error, Termination},
    message::{Answer, FenceStep, Message, Replacement},
    names::{Group, JobId, Missing, Node, Proc},
    value::BusinessCard,
};
use petasos_fabric::Time;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

/// Groups that have had fences, in all.
const MAX_GROUPS: usize = 1 << 16;
/// How many fences of a group a process may be ahead of the first that is not over.
const MAX_OPEN: usize = 1 << 12;
/// Fences of a group that others may have begun or ended, or that have failed before all of this node came.
const MAX_KNOWN: usize = 2 * MAX_OPEN;
/// Bytes of all cards that a fence spreads: they travel in one message.
const MAX_COLLECTED: usize = 128 << 20;

/// A group that has fences.
#[derive(Debug)]
pub(super) struct Signature {
    hosts: Arc<[Node]>,
    parent: Option<Node>,
    children: Vec<Node>,
    /// The number of the last replacement of a node of this group.
    replaced: u32,
    /// Processes of this node that have not been told yet that a node of the group was lost.
    owed: BTreeMap<Proc, Error>,
    /// How often each process of this node has come, since that replacement.
    calls: BTreeMap<Proc, u64>,
    open: BTreeMap<u64, Fence>,
    /// Those that failed before all processes of this node came, with those that have not yet.
    failed: BTreeMap<u64, (Error, BTreeSet<Proc>)>,
    /// All before this one are over.
    floor: u64,
    /// So are these.
    over: BTreeSet<u64>,
}

#[derive(Debug)]
struct Fence {
    missing: BTreeSet<Proc>,
    /// Children that have not come.
    children: BTreeSet<Node>,
    waiting: Vec<(ClientId, RequestId)>,
    cards: Vec<(Proc, BusinessCard)>,
    /// How many bytes these take.
    bytes: usize,
    /// The parent was told.
    up: bool,
    census: Option<Census>,
}

impl Fence {
    /// Takes cards; of too many none are kept, and it fails.
    fn collect(&mut self, cards: impl IntoIterator<Item = (Proc, BusinessCard)>) {
        for (proc, card) in cards {
            self.bytes += card.size();
            self.cards.push((proc, card));
        }
        if self.bytes > MAX_COLLECTED {
            self.cards = Vec::new();
        }
    }
}

/// Who is missing?
#[derive(Debug)]
struct Census {
    /// Until then it may be said.
    until: Time,
    silent: BTreeSet<Node>,
    missing: Missing,
}

impl Signature {
    /// Whether it has begun, and is not over.
    pub(super) fn is_open(&self, nth: u64) -> bool {
        self.open.contains_key(&nth)
    }

    fn is_over(&self, nth: u64) -> bool {
        nth < self.floor || self.over.contains(&nth)
    }

    fn end(&mut self, nth: u64) {
        self.over.insert(nth);
        while self.over.remove(&self.floor) {
            self.floor += 1;
        }
    }

    fn root(&self) -> Node {
        self.hosts[0]
    }

    /// Whether a node may say this, from where it is in the tree.
    fn may_say(&self, from: Node, step: &FenceStep) -> bool {
        let host = || self.hosts.binary_search(&from).is_ok();
        match step {
            FenceStep::Up(_) | FenceStep::Missing(_) => self.children.contains(&from),
            FenceStep::Down(_) | FenceStep::Count => self.parent == Some(from),
            FenceStep::Fail(_) | FenceStep::Late => self.parent.is_none() && host(),
            FenceStep::Check => host(),
        }
    }

    /// Whether this is one more than anybody needs. Word that others are over may be on its way, so that a number alone
    /// says nothing; but what is far ahead when there are many has no sense.
    fn is_too_many(&self, nth: u64) -> bool {
        let known = self.open.len() + self.over.len();
        let new = !self.is_over(nth) && !self.is_open(nth);
        new && known >= MAX_KNOWN && nth - self.floor >= MAX_KNOWN as u64
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
        let whole = self.jobs.get(&proc.job).map(|job| Group::all(proc.job, job.map.size()));
        let group = group.or(whole).ok_or(Error::NotInGroup(proc))?;
        if proc.job == JobId::TOOLS || !group.contains(proc) {
            return Err(Error::NotInGroup(proc));
        }
        let signature = self.signature(&group)?;
        if let Some(error) = signature.owed.remove(&proc) {
            return Err(error);
        }
        let calls = signature.calls.get_mut(&proc).ok_or(Error::NotInGroup(proc))?;
        let nth = *calls;
        if nth.saturating_sub(signature.floor) >= MAX_OPEN as u64 {
            return Err(limit("open fences of a group", MAX_OPEN + 1, MAX_OPEN));
        }
        *calls += 1;
        self.open_fence(&group, nth);
        let card = if collect { self.card_for_others(proc) } else { None };
        let signature = self.signature(&group)?;
        if let Some((error, still)) = signature.failed.get_mut(&nth) {
            let error = error.clone();
            still.remove(&proc);
            if still.is_empty() {
                signature.failed.remove(&nth);
            }
            return Err(error);
        }
        let Some(fence) = signature.open.get_mut(&nth) else {
            return Err(Error::Misuse(format!("fence {nth} of {group} is over")));
        };
        fence.missing.remove(&proc);
        fence.waiting.push((client, id));
        fence.collect(card.map(|card| (proc, card)));
        self.wait(client, id, timeout, Waiting::Fence { group: group.clone(), nth, late: false });
        self.fence_moves(&group, nth);
        Ok(None)
    }

    /// What is known of a group; made when it is first named.
    fn signature(&mut self, group: &Group) -> Result<&mut Signature, Error> {
        if !self.signatures.contains_key(group) {
            if self.signatures.len() >= MAX_GROUPS {
                return Err(limit("groups", MAX_GROUPS + 1, MAX_GROUPS));
            }
            let signature = self.new_signature(group)?;
            self.signatures.insert(group.clone(), signature);
        }
        Ok(self.signatures.get_mut(group).expect("it was just made"))
    }

    fn new_signature(&self, group: &Group) -> Result<Signature, Error> {
        let mut hosts = BTreeSet::new();
        let mut whole = None;
        for span in group.spans() {
            let first = Proc::new(span.job, span.first);
            let job = self.jobs.get(&span.job).ok_or(Error::NoSuchProc(first))?;
            if span.last >= job.map.size() {
                return Err(Error::NoSuchProc(Proc::new(span.job, span.last)));
            }
            if group.spans().len() == 1 && group.len() == u64::from(job.map.size()) {
                // The common case: everybody. The list is shared.
                whole = Some(job.map.hosts().clone());
                break;
            }
            hosts.extend((span.first..=span.last).filter_map(|rank| job.map.node_of(rank)));
        }
        let hosts = whole.unwrap_or_else(|| hosts.into_iter().collect());
        let mut calls = BTreeMap::new();
        for job in self.jobs.values() {
            let own = job.locals.keys().map(|rank| job.map.proc(*rank));
            calls.extend(own.filter(|proc| group.contains(*proc)).map(|proc| (proc, 0)));
        }
        let (fanout, len) = (self.config.fanout.max(1) as usize, hosts.len());
        let at = hosts.binary_search(&self.me).map_err(|_| {
            Error::Misuse(format!("{} hosts no process of the group {group}", self.me))
        })?;
        let parent = at.checked_sub(1).map(|before| hosts[before / fanout]);
        let children = (at * fanout + 1).min(len)..(at * fanout + 1 + fanout).min(len);
        let children = hosts[children].to_vec();
        let replaced = self.replaced.last_of(|proc| group.contains(proc));
        let (open, failed, over) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let (owed, floor) = (BTreeMap::new(), 0);
        Ok(Signature { hosts, parent, children, replaced, owed, calls, open, failed, floor, over })
    }

    /// Opens a fence that is not over; if it cannot succeed, ends it at once.
    fn open_fence(&mut self, group: &Group, nth: u64) {
        let Some(signature) = self.signatures.get_mut(group) else { return };
        if signature.is_over(nth) || signature.open.contains_key(&nth) {
            return;
        }
        // Whoever has come more often has been to this one; only the others are missing.
        let missing = signature.calls.iter().filter(|(_, calls)| **calls <= nth.saturating_add(1));
        let fence = Fence {
            missing: missing.map(|(proc, _)| *proc).collect(),
            children: signature.children.iter().copied().collect(),
            waiting: Vec::new(),
            cards: Vec::new(),
            bytes: 0,
            up: false,
            census: None,
        };
        let lost = self.members.lost().iter().find(|n| signature.hosts.binary_search(n).is_ok());
        let lost = lost.copied();
        signature.open.insert(nth, fence);
        if !signature.children.is_empty() {
            let probe = self.now.after(self.config.probe);
            self.agenda.set(probe, Timer::Probe(group.clone(), nth));
        }
        if let Some(node) = lost {
            let missing = self.procs_on(node, Some(group));
            return self.fail_fence(group, nth, Error::NodeLost { node, missing });
        }
        let mut check = BTreeSet::new();
        let mut broken = None;
        for (id, job) in &self.jobs {
            for (rank, local) in &job.locals {
                let proc = Proc::new(*id, *rank);
                let signature = &self.signatures[group];
                let came = signature.calls.get(&proc).is_none_or(|calls| *calls > nth);
                if let (Some(why), false) = (local.gone_for_good(), came) {
                    broken.get_or_insert((proc, why.clone()));
                }
            }
            let gone = job.gone.keys().map(|rank| Proc::new(*id, *rank));
            let gone = gone.filter(|proc| group.contains(*proc));
            check.extend(gone.filter_map(|proc| job.map.node_of(proc.rank)));
        }
        if let Some((proc, why)) = broken {
            return self.break_fence(group, nth, proc, why);
        }
        for node in check {
            self.say(node, group, nth, FenceStep::Check);
        }
    }

    fn say(&mut self, to: Node, group: &Group, nth: u64, step: FenceStep) {
        let replaced = self.signatures.get(group).map_or(0, |signature| signature.replaced);
        self.send(to, Message::Fence { group: group.clone(), replaced, nth, step });
    }

    /// Tells the parent, or at the root everybody, once all have come.
    fn fence_moves(&mut self, group: &Group, nth: u64) {
        let Some(signature) = self.signatures.get_mut(group) else { return };
        let parent = signature.parent;
        let Some(fence) = signature.open.get_mut(&nth) else { return };
        if fence.bytes > MAX_COLLECTED {
            let error = limit("bytes of cards in a fence", fence.bytes, MAX_COLLECTED);
            return self.fail_fence(group, nth, error);
        }
        if !fence.missing.is_empty() || !fence.children.is_empty() || fence.up {
            return;
        }
        fence.up = true;
        let cards = std::mem::take(&mut fence.cards);
        match parent {
            Some(parent) => self.say(parent, group, nth, FenceStep::Up(cards)),
            None => self.fence_down(group, nth, Ok(cards)),
        }
    }

    /// It is over: tells the children and the processes here.
    fn fence_down(
        &mut self,
        group: &Group,
        nth: u64,
        result: Result<Vec<(Proc, BusinessCard)>, Error>,
    ) {
        let Some(signature) = self.signatures.get(group) else { return };
        for child in signature.children.clone() {
            self.say(child, group, nth, FenceStep::Down(result.clone()));
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
        let Some(signature) = self.signatures.get_mut(group) else { return };
        if signature.is_over(nth) {
            return;
        }
        signature.end(nth);
        let fence = signature.open.remove(&nth);
        let (missing, waiting) = match fence {
            Some(fence) => (fence.missing, fence.waiting),
            None => {
                let missing = signature.calls.iter().filter(|(_, calls)| **calls <= nth);
                (missing.map(|(proc, _)| *proc).collect(), Vec::new())
            }
        };
        if let Err(error) = &result
            && !missing.is_empty()
            // Who comes to one that is not kept is told that it is over.
            && signature.failed.len() < MAX_KNOWN
        {
            signature.failed.insert(nth, (error.clone(), missing));
        }
        for (client, id) in waiting {
            self.answer(client, id, result.clone().map(|()| Answer::Done));
        }
    }

    /// It cannot succeed: everybody is told, by way of the root.
    fn fail_fence(&mut self, group: &Group, nth: u64, error: Error) {
        let Some(signature) = self.signatures.get(group) else { return };
        let root = signature.root();
        if root == self.me {
            return self.fence_down(group, nth, Err(error));
        }
        self.say(root, group, nth, FenceStep::Fail(error.clone()));
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
        // Of a fence that failed with a node which was replaced since then nothing matters any more.
        let Ok(signature) = self.signature(group) else { return };
        if signature.replaced != replaced || !signature.may_say(from, &step) {
            return;
        }
        if signature.is_too_many(nth) {
            return self.cut_off(from, &limit("fences of a group", MAX_KNOWN + 1, MAX_KNOWN));
        }
        match step {
            FenceStep::Up(cards) => {
                self.open_fence(group, nth);
                let Some(fence) = self.fence_of(group, nth) else { return };
                if fence.children.remove(&from) {
                    fence.collect(cards);
                }
                if let Some(census) = &mut fence.census {
                    census.silent.remove(&from);
                }
                self.fence_moves(group, nth);
                self.census_moves(group, nth);
            }
            FenceStep::Down(result) => {
                self.fence_down(group, nth, result);
            }
            FenceStep::Fail(error) => {
                if !self.signatures[group].is_over(nth) {
                    self.fence_down(group, nth, Err(error));
                }
            }
            FenceStep::Late | FenceStep::Count => {
                self.open_fence(group, nth);
                self.take_census(group, nth);
            }
            FenceStep::Missing(missing) => {
                let Some(fence) = self.fence_of(group, nth) else { return };
                let Some(census) = &mut fence.census else { return };
                if census.silent.remove(&from) {
                    census.missing.join(missing);
                }
                self.census_moves(group, nth);
            }
            // Opening it finds out.
            FenceStep::Check => self.check_fence(group, nth),
        }
    }

    fn fence_of(&mut self, group: &Group, nth: u64) -> Option<&mut Fence> {
        self.signatures.get_mut(group)?.open.get_mut(&nth)
    }

    /// It takes long: a process that has ended as it should is not known to all, and where nobody
    /// has come nobody looks. So those parts of the tree that have not come are asked to.
    pub(super) fn probe_fence(&mut self, group: &Group, nth: u64) {
        let children = self.fence_of(group, nth).map(|fence| fence.children.clone());
        for child in children.into_iter().flatten() {
            self.say(child, group, nth, FenceStep::Check);
        }
    }

    /// Somebody knows that a process here is gone, or asks: does it lack in this fence?
    fn check_fence(&mut self, group: &Group, nth: u64) {
        self.open_fence(group, nth);
        let Some(fence) = self.fence_of(group, nth) else { return };
        let missing: Vec<Proc> = fence.missing.iter().copied().collect();
        for proc in missing {
            let why = self.local(proc).and_then(|local| local.gone_for_good().cloned());
            if let Some(why) = why {
                return self.break_fence(group, nth, proc, why);
            }
        }
    }

    /// A request's time is over: first the root is asked who is missing. If it does not say,
    /// what is known here has to do.
    pub(super) fn fence_late(
        &mut self,
        client: ClientId,
        id: RequestId,
        group: Group,
        nth: u64,
        late: bool,
    ) {
        let Some(root) = self.signatures.get(&group).map(Signature::root) else { return };
        if !late {
            let waiting = Waiting::Fence { group: group.clone(), nth, late: true };
            self.wait(client, id, Some(self.config.census * 2), waiting);
            match root == self.me {
                true => self.take_census(&group, nth),
                false => self.say(root, &group, nth, FenceStep::Late),
            }
            return;
        }
        let mut missing = self.missing_here(&group, nth);
        if root != self.me {
            missing.add_silent(root);
        }
        self.fail_fence(&group, nth, Error::FenceTimeout { group: group.clone(), nth, missing });
    }

    fn missing_here(&mut self, group: &Group, nth: u64) -> Missing {
        let mut missing = Missing::default();
        if let Some(fence) = self.fence_of(group, nth) {
            fence.missing.iter().for_each(|proc| missing.add(*proc));
        }
        missing
    }

    /// Asks the children that have not come who is missing there.
    fn take_census(&mut self, group: &Group, nth: u64) {
        let missing = self.missing_here(group, nth);
        let (now, census) = (self.now, self.config.census);
        let Some(fence) = self.fence_of(group, nth) else { return };
        if fence.census.is_some() {
            return;
        }
        let silent = fence.children.clone();
        let until = now.after(census);
        fence.census = Some(Census { until, silent: silent.clone(), missing });
        for child in silent {
            self.say(child, group, nth, FenceStep::Count);
        }
        self.agenda.set(until, Timer::Census(group.clone(), nth));
        self.census_moves(group, nth);
    }

    /// The answer, once all have said theirs.
    fn census_moves(&mut self, group: &Group, nth: u64) {
        let complete = |f: &&mut Fence| f.census.as_ref().is_some_and(|c| c.silent.is_empty());
        if self.fence_of(group, nth).filter(complete).is_some() {
            self.census_over(group, nth);
        }
    }

    /// Those who have said nothing by now are named for that.
    pub(super) fn census_over(&mut self, group: &Group, nth: u64) {
        let now = self.now;
        let Some(fence) = self.fence_of(group, nth) else { return };
        // The timer may be that of another fence, which had this number before a replacement.
        let over = |census: &mut Census| census.silent.is_empty() || now >= census.until;
        let Some(census) = fence.census.take_if(over) else { return };
        let mut missing = census.missing;
        census.silent.into_iter().for_each(|node| missing.add_silent(node));
        match self.signatures.get(group).and_then(|signature| signature.parent) {
            Some(parent) => self.say(parent, group, nth, FenceStep::Missing(missing)),
            // All were on their way: it is complete in a moment, or asked about again.
            None if missing.is_empty() => {}
            None => {
                let group = group.clone();
                self.fail_fence(&group.clone(), nth, Error::FenceTimeout { group, nth, missing });
            }
        }
    }

    /// A process of this node is gone: the fences that lack it fail.
    pub(super) fn fences_lacking(&mut self, proc: Proc, why: &Termination) {
        let lacking: Vec<(Group, u64)> = self
            .signatures
            .iter()
            .filter(|(_, signature)| signature.calls.contains_key(&proc))
            .flat_map(|(group, signature)| {
                let open = signature.open.iter().filter(|(_, f)| f.missing.contains(&proc));
                open.map(|(nth, _)| (group.clone(), *nth))
            })
            .collect();
        for (group, nth) in lacking {
            self.break_fence(&group, nth, proc, why.clone());
        }
        for signature in self.signatures.values_mut() {
            signature.failed.retain(|_, (_, still)| {
                still.remove(&proc);
                !still.is_empty()
            });
        }
    }

    /// A process of this node takes the place of one that is gone: the next fence to which it comes is the first
    /// that is not over, so that it comes together with those that have failed without it.
    pub(super) fn fences_anew(&mut self, proc: Proc) {
        for signature in self.signatures.values_mut() {
            let Some(calls) = signature.calls.get(&proc) else { continue };
            let mut next = (*calls).max(signature.floor);
            while signature.is_over(next) {
                next += 1;
            }
            signature.calls.insert(proc, next);
            signature.owed.remove(&proc);
            signature.failed.retain(|nth, (_, still)| {
                if *nth < next {
                    still.remove(&proc);
                }
                !still.is_empty()
            });
        }
    }

    /// A process of another node is gone: its daemon is asked whether open fences lack it.
    pub(super) fn check_fences(&mut self, proc: Proc, node: Node) {
        let open: Vec<(Group, u64)> = self
            .signatures
            .iter()
            .filter(|(group, _)| group.contains(proc))
            .flat_map(|(group, s)| s.open.keys().map(|nth| (group.clone(), *nth)))
            .collect();
        for (group, nth) in open {
            self.say(node, &group, nth, FenceStep::Check);
        }
    }

    /// A node is lost, and with it every fence in which it has a part.
    pub(super) fn fences_without(&mut self, node: Node) {
        let with_it = |signature: &Signature| signature.hosts.binary_search(&node).is_ok();
        let groups = self.signatures.iter().filter(|(_, signature)| with_it(signature));
        let groups: Vec<Group> = groups.map(|(group, _)| group.clone()).collect();
        for group in groups {
            let error = Error::NodeLost { node, missing: self.procs_on(node, Some(&group)) };
            let Some(signature) = self.signatures.get_mut(&group) else { continue };
            // Who is in one is told by its end.
            let waits =
                |proc: &Proc| signature.open.values().any(|fence| !fence.missing.contains(proc));
            let owed: Vec<Proc> =
                signature.calls.keys().filter(|proc| !waits(proc)).copied().collect();
            signature.owed.extend(owed.into_iter().map(|proc| (proc, error.clone())));
        }
        let open: Vec<(Group, u64)> = self
            .signatures
            .iter()
            .filter(|(_, signature)| signature.hosts.binary_search(&node).is_ok())
            .flat_map(|(group, s)| s.open.keys().map(|nth| (group.clone(), *nth)))
            .collect();
        for (group, nth) in open {
            let missing = self.procs_on(node, Some(&group));
            // Everybody hears of the loss.
            self.end_fence(&group, nth, Err(Error::NodeLost { node, missing }));
        }
    }

    /// The ranks of a node are on another: fences of groups with some of them begin anew, over another tree. None is
    /// open, since all of these have failed with the node.
    pub(super) fn fences_moved(&mut self, what: &Replacement) {
        let with_some = |group: &&Group| what.procs().any(|proc| group.contains(proc));
        let groups: Vec<Group> = self.signatures.keys().filter(with_some).cloned().collect();
        for group in groups {
            let Some(before) = self.signatures.remove(&group) else { continue };
            if let Ok(mut signature) = self.new_signature(&group) {
                signature.owed = before.owed;
                self.signatures.insert(group, signature);
            }
        }
    }
}
