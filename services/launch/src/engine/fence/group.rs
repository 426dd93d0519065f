//! The fences of one group at one node: which are open or over, and how each stands.

use super::{
    super::{ClientId, RequestId, limits::limit},
    MAX_KNOWN, MAX_OPEN,
};
use crate::message::FenceStep;
use petasos_fabric::Time;
use petasos_pmix::{BusinessCard, Error, Group, Missing, Node, Proc};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Bytes of all business cards that a fence spreads: they travel in one message.
const MAX_COLLECTED: usize = 128 << 20;

/// A group that has fences.
#[derive(Debug)]
pub(super) struct GroupFences {
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

impl GroupFences {
    /// The fences of a group on these nodes, in order, with these processes on this node. `None`:
    /// this node is none of them.
    pub(super) fn new(
        hosts: Arc<[Node]>,
        me: Node,
        fanout: usize,
        replaced: u32,
        locals: impl IntoIterator<Item = Proc>,
    ) -> Option<GroupFences> {
        let at = hosts.binary_search(&me).ok()?;
        let parent = at.checked_sub(1).map(|before| hosts[before / fanout]);
        let len = hosts.len();
        let children = (at * fanout + 1).min(len)..(at * fanout + 1 + fanout).min(len);
        Some(GroupFences {
            parent,
            children: hosts[children].to_vec(),
            hosts,
            replaced,
            owed: BTreeMap::new(),
            calls: locals.into_iter().map(|proc| (proc, 0)).collect(),
            open: BTreeMap::new(),
            failed: BTreeMap::new(),
            floor: 0,
            over: BTreeSet::new(),
        })
    }

    /// Fences are counted anew after a replacement. Processes that have not been told of the loss
    /// of a node still have to be.
    pub(super) fn renewed(self, mut new: GroupFences) -> GroupFences {
        new.owed = self.owed;
        new
    }

    pub(super) fn root(&self) -> Node {
        self.hosts[0]
    }

    pub(super) fn parent(&self) -> Option<Node> {
        self.parent
    }

    pub(super) fn children(&self) -> &[Node] {
        &self.children
    }

    pub(super) fn is_host(&self, node: Node) -> bool {
        self.hosts.binary_search(&node).is_ok()
    }

    pub(super) fn replaced(&self) -> u32 {
        self.replaced
    }

    /// Whether a fence has begun, and is not over.
    pub(super) fn is_open(&self, nth: u64) -> bool {
        self.open.contains_key(&nth)
    }

    pub(super) fn is_over(&self, nth: u64) -> bool {
        nth < self.floor || self.over.contains(&nth)
    }

    /// The numbers of the fences that are open.
    pub(super) fn open_numbers(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }

    pub(super) fn fence_mut(&mut self, nth: u64) -> Option<&mut Fence> {
        self.open.get_mut(&nth)
    }

    /// Whether a node may send this, from where it is in the tree.
    pub(super) fn may_send(&self, from: Node, step: &FenceStep) -> bool {
        match step {
            FenceStep::Up(_) | FenceStep::Missing(_) => self.children.contains(&from),
            FenceStep::Down(_) | FenceStep::Count => self.parent == Some(from),
            FenceStep::Fail(_) | FenceStep::Late => self.parent.is_none() && self.is_host(from),
            FenceStep::Check => self.is_host(from),
        }
    }

    /// Whether this fence is one more than any program needs. The news that others are over may be
    /// on its way, so a number alone proves nothing; but one far ahead of many others makes no
    /// sense.
    pub(super) fn is_too_many(&self, nth: u64) -> bool {
        let known = self.open.len() + self.over.len();
        let new = !self.is_over(nth) && !self.is_open(nth);
        new && known >= MAX_KNOWN && nth - self.floor >= MAX_KNOWN as u64
    }

    /// A process of this node comes to its next fence: gives the number of that.
    pub(super) fn arrive(&mut self, proc: Proc) -> Result<u64, Error> {
        if let Some(error) = self.owed.remove(&proc) {
            return Err(error);
        }
        let calls = self.calls.get_mut(&proc).ok_or(Error::NotInGroup(proc))?;
        let nth = *calls;
        if nth.saturating_sub(self.floor) >= MAX_OPEN as u64 {
            return Err(limit("open fences of a group", MAX_OPEN + 1, MAX_OPEN));
        }
        *calls += 1;
        Ok(nth)
    }

    /// Whether a process of this node has yet to come to a fence.
    pub(super) fn awaits(&self, proc: Proc, nth: u64) -> bool {
        self.calls.get(&proc).is_some_and(|calls| *calls <= nth)
    }

    /// Opens a fence. False: it is open, or over.
    pub(super) fn open(&mut self, nth: u64) -> bool {
        if self.is_over(nth) || self.is_open(nth) {
            return false;
        }
        // A process that has come more often has been to this one; only the others are missing.
        let missing = self.calls.iter().filter(|(_, calls)| **calls <= nth.saturating_add(1));
        let missing = missing.map(|(proc, _)| *proc).collect();
        let children = self.children.iter().copied().collect();
        self.open.insert(nth, Fence { missing, children, ..Fence::default() });
        true
    }

    /// A process that came waits for the end of a fence; if that has failed, that is its answer.
    /// `group` is named in errors.
    pub(super) fn join(
        &mut self,
        group: &Group,
        nth: u64,
        proc: Proc,
        (client, id): (ClientId, RequestId),
        card: Option<BusinessCard>,
    ) -> Result<(), Error> {
        if let Some((error, still)) = self.failed.get_mut(&nth) {
            let error = error.clone();
            still.remove(&proc);
            if still.is_empty() {
                self.failed.remove(&nth);
            }
            return Err(error);
        }
        let Some(fence) = self.open.get_mut(&nth) else {
            return Err(Error::Misuse(format!("fence {nth} of {group} is over")));
        };
        fence.missing.remove(&proc);
        fence.waiting.push((client, id));
        fence.collect(card.map(|card| (proc, card)));
        Ok(())
    }

    /// A fence is over: gives the requests that wait for it. A failure is kept for the processes
    /// that have not come yet.
    pub(super) fn end(
        &mut self,
        nth: u64,
        result: &Result<(), Error>,
    ) -> Vec<(ClientId, RequestId)> {
        if self.is_over(nth) {
            return Vec::new();
        }
        self.over.insert(nth);
        while self.over.remove(&self.floor) {
            self.floor += 1;
        }
        let (missing, waiting) = match self.open.remove(&nth) {
            Some(fence) => (fence.missing, fence.waiting),
            None => {
                let missing = self.calls.iter().filter(|(_, calls)| **calls <= nth);
                (missing.map(|(proc, _)| *proc).collect(), Vec::new())
            }
        };
        if let Err(error) = result
            && !missing.is_empty()
            // A process that comes to a failure that is not kept is told that the fence is over.
            && self.failed.len() < MAX_KNOWN
        {
            self.failed.insert(nth, (error.clone(), missing));
        }
        waiting
    }

    /// The open fences that a process of this node has not come to.
    pub(super) fn lacking(&self, proc: Proc) -> Vec<u64> {
        let open = self.open.iter().filter(|(_, fence)| fence.missing.contains(&proc));
        open.map(|(nth, _)| *nth).collect()
    }

    /// A process of this node has ended: no failure is kept for it.
    pub(super) fn forget(&mut self, proc: Proc) {
        self.failed.retain(|_, (_, still)| {
            still.remove(&proc);
            !still.is_empty()
        });
    }

    /// Another process takes the place of one of this node: the next fence to which it comes is the
    /// first that is not over.
    pub(super) fn restart(&mut self, proc: Proc) {
        let Some(calls) = self.calls.get(&proc) else { return };
        let mut next = (*calls).max(self.floor);
        while self.is_over(next) {
            next += 1;
        }
        self.calls.insert(proc, next);
        self.owed.remove(&proc);
        self.failed.retain(|nth, (_, still)| {
            if *nth < next {
                still.remove(&proc);
            }
            !still.is_empty()
        });
    }

    /// A node of the group is lost. A process that waits in a fence learns it by the end of that;
    /// the others learn it at their next fence.
    pub(super) fn owe(&mut self, error: &Error) {
        let waits = |proc: &Proc| self.open.values().any(|fence| !fence.missing.contains(proc));
        let owed: Vec<Proc> = self.calls.keys().filter(|proc| !waits(proc)).copied().collect();
        self.owed.extend(owed.into_iter().map(|proc| (proc, error.clone())));
    }
}

/// A fence that is open.
#[derive(Debug, Default)]
pub(super) struct Fence {
    /// Processes of this node that have not come.
    missing: BTreeSet<Proc>,
    /// Children that have not come.
    children: BTreeSet<Node>,
    waiting: Vec<(ClientId, RequestId)>,
    cards: Vec<(Proc, BusinessCard)>,
    /// How many bytes the business cards take.
    bytes: usize,
    /// The parent was told.
    up: bool,
    census: Option<Census>,
}

/// A count of the missing processes.
#[derive(Debug)]
struct Census {
    /// How long children may take to answer.
    until: Time,
    silent: BTreeSet<Node>,
    missing: Missing,
}

impl Fence {
    /// Takes business cards. Of too many none are kept, and the fence fails.
    fn collect(&mut self, cards: impl IntoIterator<Item = (Proc, BusinessCard)>) {
        for (proc, card) in cards {
            self.bytes += card.size();
            self.cards.push((proc, card));
        }
        if self.bytes > MAX_COLLECTED {
            self.cards = Vec::new();
        }
    }

    /// The error of a fence with too many bytes of business cards.
    pub(super) fn check_size(&self) -> Result<(), Error> {
        match self.bytes > MAX_COLLECTED {
            true => Err(limit("bytes of business cards in a fence", self.bytes, MAX_COLLECTED)),
            false => Ok(()),
        }
    }

    /// A child has come, with all below it.
    pub(super) fn child_came(&mut self, child: Node, cards: Vec<(Proc, BusinessCard)>) {
        if self.children.remove(&child) {
            self.collect(cards);
        }
        if let Some(census) = &mut self.census {
            census.silent.remove(&child);
        }
    }

    /// The business cards of all, once all processes here and all children have come; only once.
    pub(super) fn complete(&mut self) -> Option<Vec<(Proc, BusinessCard)>> {
        if !self.missing.is_empty() || !self.children.is_empty() || self.up {
            return None;
        }
        self.up = true;
        Some(std::mem::take(&mut self.cards))
    }

    pub(super) fn missing_children(&self) -> Vec<Node> {
        self.children.iter().copied().collect()
    }

    /// The processes of this node that have not come.
    pub(super) fn missing_here(&self) -> impl Iterator<Item = Proc> {
        self.missing.iter().copied()
    }

    /// Begins to count the missing processes, unless that is under way: gives the children to ask.
    pub(super) fn start_census(&mut self, until: Time) -> Option<Vec<Node>> {
        if self.census.is_some() {
            return None;
        }
        let mut missing = Missing::default();
        self.missing_here().for_each(|proc| missing.add(proc));
        self.census = Some(Census { until, silent: self.children.clone(), missing });
        Some(self.missing_children())
    }

    /// A child has counted.
    pub(super) fn counted(&mut self, child: Node, missing: Missing) {
        if let Some(census) = &mut self.census
            && census.silent.remove(&child)
        {
            census.missing.join(missing);
        }
    }

    /// Whether all children have counted.
    pub(super) fn is_counted(&self) -> bool {
        self.census.as_ref().is_some_and(|census| census.silent.is_empty())
    }

    /// The missing processes, once all children have counted or have had their time. Children that
    /// have not are named as silent. The timer that asks may be that of another fence, which had
    /// this number before a replacement.
    pub(super) fn end_census(&mut self, now: Time) -> Option<Missing> {
        let over = |census: &mut Census| census.silent.is_empty() || now >= census.until;
        let census = self.census.take_if(over)?;
        let mut missing = census.missing;
        census.silent.into_iter().for_each(|node| missing.add_silent(node));
        Some(missing)
    }
}
