//! Events: what happened, and which processes are told.

use crate::{
    names::{Group, JobId, Node, Proc},
    status,
    value::Info,
};
use petasos_macros::Wire;

/// Said of an event (`true`): it is for handlers that are registered for its code, and for no
/// default ones.
pub const NON_DEFAULT: &str = "pmix.evnondef";
/// Said of an event (`true`): it is not kept for handlers that come later.
pub const NO_CACHE: &str = "pmix.evnocache";

/// The name of an event among all: where it entered, and the how manieth there.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    /// The node.
    pub node: Node,
    /// Counted there; see [`EventId::LOSS`].
    pub number: u64,
}

impl EventId {
    /// In place of a number: the event that a node is lost, which every daemon makes by itself.
    pub const LOSS: u64 = u64::MAX;
    /// The number of the event that a node was replaced, less the number of the job; that a node is
    /// lost is, for each job, one of those above.
    pub const REPLACED: u64 = u64::MAX - (1 << 33);
}

/// The processes that are told of an event (PMIx Standard 4.1, section 3.4.20).
#[derive(Wire, Clone, Debug, PartialEq, Eq)]
pub enum Range {
    /// The resource manager alone: the head node.
    Rm,
    /// This node.
    Local,
    /// The job of the source.
    Namespace,
    /// All jobs that run together.
    Session,
    /// All, the commands that look on included.
    Global,
    /// These.
    Custom(Group),
    /// The source itself.
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
#[derive(Wire, Clone, Debug, PartialEq)]
pub struct Event {
    /// Its name.
    pub id: EventId,
    /// What: a status code; negative ones are the Standard's.
    pub code: i32,
    /// The process that said so; [`Proc::JOB`] of a job when the daemons did.
    pub source: Proc,
    /// Where the source is.
    pub node: Node,
    /// The processes that are told.
    pub range: Range,
    /// Whether default handlers are left out.
    pub non_default: bool,
    /// More about it.
    pub info: Info,
}

impl Event {
    /// Whether this event concerns a process.
    #[must_use]
    pub fn concerns(&self, proc: Proc, node: Node) -> bool {
        self.range.covers(self.source, self.node, proc, node)
    }

    /// Whether it is an event of the environment.
    #[must_use]
    pub fn is_environment(&self) -> bool {
        status::is_environment(self.code)
    }
}

/// Whether codes that a handler registered (none: it is a default handler) take an event.
#[must_use]
pub fn takes(codes: &[i32], event: &Event) -> bool {
    if codes.is_empty() { !event.non_default } else { codes.contains(&event.code) }
}
