//! The description of a job that all nodes have before it starts: its nodes, which rank is where,
//! and what follows from that. Keys of job data are answered locally, and never travel.

use crate::{
    names::{JobId, Node, Proc},
    value::Value,
};
use petasos_macros::Wire;
use std::{collections::BTreeMap, sync::Arc};

/// The key of the number of spare nodes that a job began with, if any.
pub const SPARES: &str = "petasos.spares";
/// The most ranks of a job.
pub const MAX_RANKS: u32 = 1 << 24;

/// A node of the job.
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub struct NodeInfo {
    /// The host's name.
    pub name: String,
    /// The beginning of the addresses of the processes on it, to which a number is appended; empty:
    /// they have none.
    pub base: String,
    /// The number of its first process. The next processes follow.
    pub first: u16,
}

/// Consecutive ranks on one node.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The node.
    pub node: Node,
    /// How many ranks.
    pub count: u32,
}

/// The description of a job, as it travels.
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct JobSpec {
    /// Its number.
    pub id: JobId,
    /// Its name, which no other job has.
    pub name: String,
    /// All nodes, in order; also those without ranks.
    pub nodes: Vec<NodeInfo>,
    /// The nodes of the ranks, from rank 0 on.
    pub runs: Vec<Run>,
    /// Further job data, by key.
    pub info: Vec<(String, Value)>,
}

/// Why the description of a job is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// Too many ranks.
    #[error("a job of {0} ranks is too large: at most {MAX_RANKS} are allowed")]
    TooLarge(u64),
    /// Ranks on a node that is not there.
    #[error("ranks are placed on {0}, which is not in the list of nodes")]
    NoSuchNode(Node),
}

/// A checked description of a job, with indexes for what is looked up often.
///
/// ```
/// use petasos_pmix::{
///     JobId, Node,
///     job::{JobMap, JobSpec, NodeInfo, Run},
/// };
///
/// let base = |name: &str| format!("tcp://{name}:");
/// let node = |name: &str| NodeInfo { name: name.into(), base: base(name), first: 9000 };
/// let map = JobMap::new(JobSpec {
///     id: JobId(0),
///     name: "a-job".to_owned(),
///     nodes: vec![node("a"), node("b")],
///     runs: vec![Run { node: Node(0), count: 2 }, Run { node: Node(1), count: 1 }],
///     info: Vec::new(),
/// })?;
/// assert_eq!((map.size(), map.node_of(2)), (3, Some(Node(1))));
/// assert_eq!(map.address(1).as_deref(), Some("tcp://a:9001"));
/// # Ok::<(), petasos_pmix::job::JobError>(())
/// ```
#[derive(Debug)]
pub struct JobMap {
    spec: JobSpec,
    /// The namespace for clients of OpenPMIx, if it is not the name.
    namespace: Option<String>,
    node_of: Vec<Node>,
    on: BTreeMap<Node, Vec<u32>>,
    hosts: Arc<[Node]>,
}

impl JobMap {
    /// Checks a description.
    ///
    /// # Errors
    /// [`JobError::TooLarge`] beyond [`MAX_RANKS`], [`JobError::NoSuchNode`] for ranks on a node
    /// that is not in the list.
    pub fn new(spec: JobSpec) -> Result<JobMap, JobError> {
        let size: u64 = spec.runs.iter().map(|run| u64::from(run.count)).sum();
        if size > u64::from(MAX_RANKS) {
            return Err(JobError::TooLarge(size));
        }
        let (mut node_of, mut on) = (Vec::new(), BTreeMap::<Node, Vec<u32>>::new());
        for run in spec.runs.iter().filter(|run| run.count > 0) {
            if run.node.0 as usize >= spec.nodes.len() {
                return Err(JobError::NoSuchNode(run.node));
            }
            let first = node_of.len() as u32;
            on.entry(run.node).or_default().extend(first..first + run.count);
            node_of.resize(node_of.len() + run.count as usize, run.node);
        }
        let hosts = on.keys().copied().collect();
        Ok(JobMap { spec, namespace: None, node_of, on, hosts })
    }

    /// Clients of OpenPMIx know the job by this namespace, which others cannot guess.
    #[must_use]
    pub fn with_namespace(self, namespace: String) -> JobMap {
        JobMap { namespace: Some(namespace), ..self }
    }

    /// The namespace by which clients of OpenPMIx know the job. Only its ranks are told.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.namespace.as_ref().unwrap_or(&self.spec.name)
    }

    /// The description, as it travels.
    #[must_use]
    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.spec.id
    }

    /// How many ranks it has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.node_of.len() as u32
    }

    /// The nodes that have ranks, in order.
    #[must_use]
    pub fn hosts(&self) -> &Arc<[Node]> {
        &self.hosts
    }

    /// The node of a rank.
    #[must_use]
    pub fn node_of(&self, rank: u32) -> Option<Node> {
        self.node_of.get(rank as usize).copied()
    }

    /// The ranks on a node, in order.
    #[must_use]
    pub fn ranks_on(&self, node: Node) -> &[u32] {
        self.on.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The index of a rank among those of its node.
    #[must_use]
    pub fn local_rank(&self, rank: u32) -> Option<u32> {
        let ranks = self.ranks_on(self.node_of(rank)?);
        ranks.binary_search(&rank).ok().map(|at| at as u32)
    }

    /// The information about a node.
    #[must_use]
    pub fn node(&self, node: Node) -> Option<&NodeInfo> {
        self.spec.nodes.get(node.0 as usize)
    }

    /// The URL of a rank's endpoint, as it was assigned before the start.
    #[must_use]
    pub fn address(&self, rank: u32) -> Option<String> {
        Facts::address(self, rank)
    }

    /// The value of a key of job data, of one rank or (with [`Proc::JOB`]) of the job.
    #[must_use]
    pub fn value(&self, rank: u32, key: &str) -> Option<Value> {
        Facts::value(self, rank, key)
    }

    /// The same job with the ranks of one node moved to another, which has none; `None` if there
    /// are none to move, or the other node has ranks.
    #[must_use]
    pub fn moved(&self, from: Node, to: Node) -> Option<JobMap> {
        if self.ranks_on(from).is_empty() || !self.ranks_on(to).is_empty() {
            return None;
        }
        let mut spec = self.spec.clone();
        spec.runs.iter_mut().filter(|run| run.node == from).for_each(|run| run.node = to);
        JobMap::new(spec).ok()
    }

    /// The process of a rank.
    #[must_use]
    pub fn proc(&self, rank: u32) -> Proc {
        Proc::new(self.spec.id, rank)
    }
}

/// Lookups in the description of a job, wherever it is stored, and what follows from them.
pub(crate) trait Facts {
    fn id(&self) -> JobId;
    fn name(&self) -> &str;
    fn size(&self) -> u32;
    /// How many nodes have ranks.
    fn host_count(&self) -> u32;
    fn node_of(&self, rank: u32) -> Option<Node>;
    /// The index of a rank among those of its node.
    fn local_rank(&self, rank: u32) -> Option<u32>;
    /// How many ranks a node has.
    fn count_on(&self, node: Node) -> u32;
    fn node_name(&self, node: Node) -> Option<String>;
    /// The beginning of the addresses of the processes of a node, and the number of the first: see
    /// [`NodeInfo`].
    fn place(&self, node: Node) -> Option<(String, u16)>;
    /// Further job data.
    fn info(&self, key: &str) -> Option<Value>;

    /// See [`JobMap::address`].
    fn address(&self, rank: u32) -> Option<String> {
        let (base, first) = self.place(self.node_of(rank)?)?;
        let number = u32::from(first).checked_add(self.local_rank(rank)?)?;
        (!base.is_empty()).then(|| format!("{base}{number}"))
    }

    /// See [`JobMap::value`].
    fn value(&self, rank: u32, key: &str) -> Option<Value> {
        if let Some(value) = self.info(key) {
            return Some(value);
        }
        Some(match key {
            "pmix.nspace" => self.name().into(),
            "pmix.job.size" | "pmix.univ.size" | "pmix.max.size" => self.size().into(),
            "pmix.num.nodes" => self.host_count().into(),
            "pmix.rank" if rank < self.size() => rank.into(),
            "pmix.lrank" | "pmix.nrank" => self.local_rank(rank)?.into(),
            "pmix.local.size" => self.count_on(self.node_of(rank)?).into(),
            "pmix.nodeid" => self.node_of(rank)?.0.into(),
            "pmix.hname" => self.node_name(self.node_of(rank)?)?.into(),
            "pmix.petasos.address" => self.address(rank)?.into(),
            _ => return None,
        })
    }
}

impl Facts for JobMap {
    fn id(&self) -> JobId {
        self.spec.id
    }

    fn name(&self) -> &str {
        &self.spec.name
    }

    fn size(&self) -> u32 {
        JobMap::size(self)
    }

    fn host_count(&self) -> u32 {
        self.hosts.len() as u32
    }

    fn node_of(&self, rank: u32) -> Option<Node> {
        JobMap::node_of(self, rank)
    }

    fn local_rank(&self, rank: u32) -> Option<u32> {
        JobMap::local_rank(self, rank)
    }

    fn count_on(&self, node: Node) -> u32 {
        self.ranks_on(node).len() as u32
    }

    fn node_name(&self, node: Node) -> Option<String> {
        self.node(node).map(|node| node.name.clone())
    }

    fn place(&self, node: Node) -> Option<(String, u16)> {
        self.node(node).map(|node| (node.base.clone(), node.first))
    }

    fn info(&self, key: &str) -> Option<Value> {
        self.spec.info.iter().find(|(name, _)| name == key).map(|(_, value)| value.clone())
    }
}
