//! The jobs: where their ranks run, the processes of this node, and what is known of the others.

use super::process::LocalProcess;
use crate::message::Message;
use petasos_fabric::Time;
use petasos_pmix::{
    BusinessCard, Group, JobId, Missing, Node, Proc, Termination, Value, job::JobMap,
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

#[derive(Debug)]
pub(super) struct Job {
    map: Arc<JobMap>,
    locals: BTreeMap<u32, LocalProcess>,
    /// Business cards of processes on other nodes, as far as they came here.
    cards: HashMap<u32, BusinessCard>,
    /// Processes of other nodes that are known to have failed.
    failed: BTreeMap<u32, Termination>,
    /// How often each rank was started again, if it was.
    restarts: BTreeMap<u32, u32>,
    /// At the controller: processes of other nodes that ended as they should.
    done: BTreeMap<u32, Termination>,
}

impl Job {
    pub(super) fn id(&self) -> JobId {
        self.map.id()
    }

    pub(super) fn map(&self) -> &Arc<JobMap> {
        &self.map
    }

    /// The name of a node's host.
    pub(super) fn host(&self, node: Node) -> Option<&str> {
        self.map.node(node).map(|node| node.name.as_str())
    }

    /// How often a rank was started again.
    pub(super) fn restarts_of(&self, rank: u32) -> u32 {
        self.restarts.get(&rank).copied().unwrap_or_default()
    }

    /// How a process of another node ended, if it has.
    pub(super) fn remote_end(&self, rank: u32) -> Option<&Termination> {
        self.done.get(&rank).or_else(|| self.failed.get(&rank))
    }

    /// The nodes of processes of a group that have failed elsewhere.
    pub(super) fn failed_on(&self, group: &Group) -> impl Iterator<Item = Node> {
        let failed = self.failed.keys().filter(|rank| group.contains(self.map.proc(**rank)));
        failed.filter_map(|rank| self.map.node_of(*rank))
    }

    /// The processes of this node.
    pub(super) fn locals(&self) -> impl Iterator<Item = (Proc, &LocalProcess)> {
        self.locals.iter().map(|(rank, local)| (self.map.proc(*rank), local))
    }
}

/// What became of the old process of a rank that is started again.
pub(super) struct Renewed {
    /// How the old process ended, if the rank is one of this node.
    pub(super) local: Option<Termination>,
    /// The business card of the new process came before the news of the restart.
    pub(super) has_card: bool,
}

#[derive(Debug, Default)]
pub(super) struct Jobs {
    all: BTreeMap<JobId, Job>,
    /// Somewhere a process has connected.
    wired: bool,
}

impl Jobs {
    pub(super) fn add(&mut self, map: Arc<JobMap>, me: Node) {
        let locals = map.ranks_on(me).iter().map(|rank| (*rank, LocalProcess::default()));
        let job = Job {
            locals: locals.collect(),
            map,
            cards: HashMap::new(),
            failed: BTreeMap::new(),
            restarts: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        self.all.insert(job.id(), job);
    }

    pub(super) fn get(&self, job: JobId) -> Option<&Job> {
        self.all.get(&job)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Job> {
        self.all.values()
    }

    pub(super) fn first(&self) -> Option<&Job> {
        self.all.values().next()
    }

    /// Whether a process has connected somewhere, so that all must.
    pub(super) fn is_wired(&self) -> bool {
        self.wired
    }

    /// Says whether it was known already.
    pub(super) fn set_wired(&mut self) -> bool {
        std::mem::replace(&mut self.wired, true)
    }

    /// Where a process runs.
    pub(super) fn node_of(&self, proc: Proc) -> Option<Node> {
        self.get(proc.job)?.map.node_of(proc.rank)
    }

    pub(super) fn local(&self, proc: Proc) -> Option<&LocalProcess> {
        self.get(proc.job)?.locals.get(&proc.rank)
    }

    pub(super) fn local_mut(&mut self, proc: Proc) -> Option<&mut LocalProcess> {
        self.all.get_mut(&proc.job)?.locals.get_mut(&proc.rank)
    }

    /// All processes of this node.
    pub(super) fn locals(&self) -> impl Iterator<Item = (Proc, &LocalProcess)> {
        self.iter().flat_map(Job::locals)
    }

    /// All processes of a job.
    pub(super) fn whole(&self, job: JobId) -> Option<Group> {
        self.get(job).map(|known| Group::all(job, known.map.size()))
    }

    /// The processes of a node that are in a group, or (without one) in any job.
    pub(super) fn procs_on(&self, node: Node, group: Option<&Group>) -> Missing {
        let mut missing = Missing::default();
        for job in self.iter() {
            let procs = job.map.ranks_on(node).iter().map(|rank| job.map.proc(*rank));
            let procs = procs.filter(|proc| group.is_none_or(|group| group.contains(*proc)));
            procs.for_each(|proc| missing.add(proc));
        }
        missing
    }

    /// The processes of a group that exist: another node or a client may name any number.
    pub(super) fn procs_of(&self, group: &Group) -> impl Iterator<Item = Proc> {
        group.spans().iter().flat_map(|span| {
            let size = self.get(span.job).map_or(0, |job| job.map.size());
            let end = span.last.saturating_add(1).min(size);
            (span.first..end).map(|rank| Proc::new(span.job, rank))
        })
    }

    /// Where the processes of a group are, as far as they exist.
    pub(super) fn nodes_of(&self, group: &Group) -> BTreeSet<Node> {
        self.procs_of(group).filter_map(|proc| self.node_of(proc)).collect()
    }

    pub(super) fn hosts_ranks(&self, node: Node) -> bool {
        self.iter().any(|job| !job.map.ranks_on(node).is_empty())
    }

    /// The name of a node's host.
    pub(super) fn host(&self, node: Node) -> Option<&str> {
        self.iter().find_map(|job| job.host(node))
    }

    pub(super) fn restarts_of(&self, proc: Proc) -> u32 {
        self.get(proc.job).map_or(0, |job| job.restarts_of(proc.rank))
    }

    /// How a process ended, as far as that is known here.
    pub(super) fn termination_of(&self, proc: Proc) -> Option<&Termination> {
        let local = self.local(proc).and_then(LocalProcess::termination);
        local.or_else(|| self.get(proc.job)?.failed.get(&proc.rank))
    }

    /// How a process ended, if it cannot go on: one that has finalized may.
    pub(super) fn end_of(&self, proc: Proc) -> Option<&Termination> {
        let done = self.get(proc.job).and_then(|job| job.done.get(&proc.rank));
        done.or_else(|| self.termination_of(proc).filter(|why| !why.is_clean()))
    }

    /// A process of another node has failed. False: that was known.
    pub(super) fn note_failed(&mut self, proc: Proc, why: Termination) -> bool {
        let Some(job) = self.all.get_mut(&proc.job) else { return false };
        let new = !job.failed.contains_key(&proc.rank);
        if new {
            job.failed.insert(proc.rank, why);
        }
        new
    }

    /// At the controller: a process of another node has ended as it should.
    pub(super) fn note_done(&mut self, proc: Proc, restarts: u32, why: Termination) {
        if let Some(job) = self.all.get_mut(&proc.job)
            && job.restarts_of(proc.rank) == restarts
        {
            job.done.insert(proc.rank, why);
        }
    }

    /// The business card of a process, if it is here: all of it.
    pub(super) fn card(&self, proc: Proc) -> Option<&BusinessCard> {
        match self.local(proc) {
            Some(local) => Some(local.card()),
            None => self.remote_card(proc),
        }
    }

    /// The business card of a process of another node, if it came here.
    pub(super) fn remote_card(&self, proc: Proc) -> Option<&BusinessCard> {
        self.get(proc.job)?.cards.get(&proc.rank)
    }

    /// A value that any process of a job has put under a key, of all business cards that are here.
    pub(super) fn find(&self, job: JobId, key: &str) -> Option<&Value> {
        let job = self.get(job)?;
        let own = job.locals.values().map(LocalProcess::card);
        own.chain(job.cards.values()).find_map(|card| Some(&card.entries.get(key)?.value))
    }

    /// Keeps a business card of a process of another node. False: a newer one is here, or it is of
    /// a process that was replaced.
    pub(super) fn keep_card(&mut self, proc: Proc, me: Node, card: BusinessCard) -> bool {
        let Some(job) = self.all.get_mut(&proc.job) else { return false };
        let elsewhere = job.map.node_of(proc.rank).is_some_and(|node| node != me);
        if !elsewhere || card.restarts < job.restarts_of(proc.rank) {
            return false;
        }
        let kept = job.cards.entry(proc.rank).or_default();
        let newer = (card.restarts, card.version) >= (kept.restarts, kept.version);
        if newer {
            *kept = card;
        }
        newer
    }

    /// A rank is started again: what is here is of its old process.
    pub(super) fn renew(&mut self, proc: Proc, restarts: u32, now: Time) -> Option<Renewed> {
        let job = self.all.get_mut(&proc.job)?;
        job.restarts.insert(proc.rank, restarts);
        job.failed.remove(&proc.rank);
        job.done.remove(&proc.rank);
        let has_card = job.cards.get(&proc.rank).is_some_and(|card| card.restarts >= restarts);
        if !has_card {
            job.cards.remove(&proc.rank);
        }
        let local = job.locals.get_mut(&proc.rank).map(|local| {
            let before = std::mem::replace(local, LocalProcess::again(restarts, now));
            before.termination().cloned().unwrap_or(Termination::Disconnected)
        });
        Some(Renewed { local, has_card })
    }

    /// The ranks of a lost node are on another from now on; `here`: that is this one.
    pub(super) fn move_ranks(&mut self, node: Node, by: Node, here: bool) {
        for job in self.all.values_mut() {
            let Some(map) = job.map.moved(node, by) else { continue };
            job.map = Arc::new(map);
            if !here {
                continue;
            }
            for rank in job.map.ranks_on(by) {
                job.failed.remove(rank);
                job.locals.insert(*rank, LocalProcess::moved_here());
            }
        }
    }

    /// Restarts and failures, for a node that may have missed them.
    pub(super) fn news(&self) -> impl Iterator<Item = Message> {
        self.iter().flat_map(|job| {
            let restarts = job.restarts.iter().map(|(rank, restarts)| Message::Restarted {
                proc: job.map.proc(*rank),
                restarts: *restarts,
            });
            let known = job.failed.iter().map(|(rank, why)| (*rank, why));
            let own = job.locals.iter();
            let own = own.filter_map(|(rank, local)| Some((*rank, local.failure()?)));
            let failures = known.chain(own).map(|(rank, why)| Message::Termination {
                proc: job.map.proc(rank),
                restarts: job.restarts_of(rank),
                why: why.clone(),
            });
            restarts.chain(failures)
        })
    }
}
