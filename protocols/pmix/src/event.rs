//! Events: what happened, and which processes are told.

use crate::{
    names::{Group, JobId, Node, Proc},
    status,
    value::Info,
};
use petasos_macros::Wire;

/// A key in the information of an event. `true`: only handlers for its code get it, and no default
/// handlers.
pub const NON_DEFAULT: &str = "pmix.evnondef";
/// A key in the information of an event. `true`: it is not kept for handlers that come later.
pub const NO_CACHE: &str = "pmix.evnocache";

/// The name of an event: the node at which it was raised, and a number.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The node.
    pub node: Node,
    /// The number at that node; see [`EventId::LOSS`].
    pub number: u64,
}

impl EventId {
    /// In place of a number: the loss of the node. Every daemon raises this event itself.
    pub const LOSS: u64 = u64::MAX;
    /// In place of a number: the node was replaced; less the number of the job. The loss of a node
    /// has, for each job, one of the numbers above this.
    pub const REPLACED: u64 = u64::MAX - (1 << 33);
}

/// The processes that are told of an event (PMIx Standard 4.1, section 3.4.20).
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// Only the resource manager, which is the head node.
    Rm,
    /// All processes of the node of the source.
    Local,
    /// All processes of the job of the source.
    Namespace,
    /// All processes of all jobs that run together.
    Session,
    /// All processes, and tools.
    Global,
    /// These processes.
    Custom(Group),
    /// Only the source itself.
    ProcLocal,
}

impl Range {
    /// Whether an event of `source`, which is on `source_node`, concerns `proc` on `node`.
    #[must_use]
    pub fn covers(&self, source: Proc, source_node: Node, proc: Proc, node: Node) -> bool {
        match self {
            Range::Rm => false,
            Range::Local => source_node == node,
            Range::Namespace => source.job == proc.job,
            Range::Session => proc.job != JobId::TOOLS,
            Range::Global => true,
            Range::Custom(group) => group.contains(proc),
            Range::ProcLocal => source == proc,
        }
    }
}

/// Something that happened.
///
/// ```
/// use petasos_pmix::{
///     JobId, Node, Proc,
///     event::{Event, EventId, Range, takes},
///     status,
/// };
///
/// let event = Event {
///     id: EventId { node: Node(2), number: 1 },
///     code: status::PROC_ABORTED,
///     source: Proc::new(JobId(0), 7),
///     node: Node(2),
///     range: Range::Namespace,
///     non_default: false,
///     info: Vec::new(),
/// };
/// assert!(event.concerns(Proc::new(JobId(0), 0), Node(0)));
/// assert!(!event.concerns(Proc::new(JobId(1), 0), Node(0)));
/// assert!(takes(&[status::PROC_ABORTED], &event) && takes(&[], &event));
/// ```
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name.
    pub id: EventId,
    /// A status code; negative ones are the Standard's.
    pub code: i32,
    /// The process that raised it, or [`Proc::JOB`] of a job if a daemon did.
    pub source: Proc,
    /// The node of the source.
    pub node: Node,
    /// The processes that are told.
    pub range: Range,
    /// Whether default handlers are left out.
    pub non_default: bool,
    /// Further information.
    pub info: Info,
}

impl Event {
    /// Whether this event concerns a process.
    #[must_use]
    pub fn concerns(&self, proc: Proc, node: Node) -> bool {
        self.range.covers(self.source, self.node, proc, node)
    }

    /// Whether it is an environment event: see [`is_environment`](crate::status::is_environment).
    #[must_use]
    pub fn is_environment(&self) -> bool {
        status::is_environment(self.code)
    }
}

/// Whether the codes of a handler (none: a default handler) take an event.
#[must_use]
pub fn takes(codes: &[i32], event: &Event) -> bool {
    if codes.is_empty() { !event.non_default } else { codes.contains(&event.code) }
}
