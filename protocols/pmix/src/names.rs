//! Names of nodes, jobs, processes, and groups of processes.

use petasos_macros::Wire;
use petasos_wire::{DecodeError, Decoder, Encoder, Format, Wire};
use std::fmt;

/// A node of the machine that takes part, by its index in the list of nodes. The head node is 0.
#[derive(Wire, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node(pub u32);

impl Node {
    /// The head node, from which the job is run.
    pub const HEAD: Node = Node(0);
}

/// A job (a *namespace*) among those that run together.
#[derive(Wire, Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u32);

impl JobId {
    /// No job: tools that observe running jobs.
    pub const TOOLS: JobId = JobId(u32::MAX);
}

/// A process: a rank of a job.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Proc {
    /// Its job.
    pub job: JobId,
    /// Its rank, or [`Proc::JOB`].
    pub rank: u32,
}

impl Proc {
    /// In place of a rank: the job as a whole.
    pub const JOB: u32 = u32::MAX;

    /// A process.
    #[must_use]
    pub const fn new(job: JobId, rank: u32) -> Proc {
        Proc { job, rank }
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

impl fmt::Display for Proc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.job, self.rank) {
            (JobId::TOOLS, rank) => write!(f, "tool {rank}"),
            (JobId(0), Proc::JOB) => f.write_str("the job"),
            (JobId(0), rank) => write!(f, "rank {rank}"),
            (JobId(job), Proc::JOB) => write!(f, "job {job}"),
            (JobId(job), rank) => write!(f, "rank {rank} of job {job}"),
        }
    }
}

/// Consecutive ranks of one job.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The job.
    pub job: JobId,
    /// The first rank.
    pub first: u32,
    /// The last rank, not before the first.
    pub last: u32,
}

/// A set of processes: spans in order, none of which touches the next.
///
/// ```
/// use petasos_pmix::{Group, JobId, Proc};
///
/// let even = Group::of((0..8).step_by(2).map(|rank| Proc::new(JobId(0), rank)));
/// assert_eq!(even.len(), 4);
/// assert!(even.contains(Proc::new(JobId(0), 6)) && !even.contains(Proc::new(JobId(0), 7)));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(Vec<Span>);

impl Group {
    /// The processes of these spans. A span whose last rank is before its first is empty.
    #[must_use]
    pub fn new(spans: impl IntoIterator<Item = Span>) -> Group {
        let mut spans: Vec<Span> = spans.into_iter().filter(|s| s.first <= s.last).collect();
        spans.sort_unstable();
        let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
        for span in spans {
            match merged.last_mut() {
                Some(before)
                    if before.job == span.job && span.first <= before.last.saturating_add(1) =>
                {
                    before.last = before.last.max(span.last);
                }
                _ => merged.push(span),
            }
        }
        Group(merged)
    }

    /// These processes.
    #[must_use]
    pub fn of(procs: impl IntoIterator<Item = Proc>) -> Group {
        Group::new(procs.into_iter().map(|p| Span { job: p.job, first: p.rank, last: p.rank }))
    }

    /// Ranks 0 to `size` of a job.
    #[must_use]
    pub fn all(job: JobId, size: u32) -> Group {
        match size.checked_sub(1) {
            Some(last) => Group(vec![Span { job, first: 0, last }]),
            None => Group::default(),
        }
    }

    /// The spans, in order.
    #[must_use]
    pub fn spans(&self) -> &[Span] {
        &self.0
    }

    /// Whether this process is one of them.
    #[must_use]
    pub fn contains(&self, proc: Proc) -> bool {
        let at = self.0.partition_point(|s| (s.job, s.last) < (proc.job, proc.rank));
        self.0.get(at).is_some_and(|s| s.job == proc.job && s.first <= proc.rank)
    }

    /// How many processes there are.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.iter().map(|s| u64::from(s.last - s.first) + 1).sum()
    }

    /// Whether it is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All processes, in order.
    pub fn iter(&self) -> impl Iterator<Item = Proc> + '_ {
        self.0.iter().flat_map(|s| (s.first..=s.last).map(|rank| Proc { job: s.job, rank }))
    }
}

/// Encoded as its spans. Decoding brings any spans into order.
impl Wire for Group {
    const SHAPE: u64 = <Vec<Span>>::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        self.0.encode(out);
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Group, DecodeError> {
        <Vec<Span>>::decode(from).map(Group::new)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, span) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match (span.first, span.last) {
                (first, last) if first == last => write!(f, "{comma}{first}")?,
                (first, last) => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

/// The processes that were waited for in vain: the first of them by name, and how many more.
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct Missing {
    /// Some of them, at most [`Missing::NAMED`], in order.
    pub procs: Vec<Proc>,
    /// How many more there are.
    pub more: u64,
    /// Nodes that did not report their missing processes, at most [`Missing::NAMED`].
    pub silent: Vec<Node>,
}

impl Missing {
    /// How many are named at most.
    pub const NAMED: usize = 16;

    /// Adds a process.
    pub fn add(&mut self, proc: Proc) {
        let at = self.procs.partition_point(|p| *p < proc);
        if self.procs.get(at) != Some(&proc) {
            self.procs.insert(at, proc);
        }
        self.trim();
    }

    /// Adds a node that did not report.
    pub fn add_silent(&mut self, node: Node) {
        if self.silent.len() < Self::NAMED && !self.silent.contains(&node) {
            self.silent.push(node);
        }
    }

    /// Adds the missing processes of another part of the machine.
    pub fn join(&mut self, other: Missing) {
        self.more = self.more.saturating_add(other.more);
        other.procs.into_iter().for_each(|proc| self.add(proc));
        other.silent.into_iter().for_each(|node| self.add_silent(node));
    }

    fn trim(&mut self) {
        while self.procs.len() > Self::NAMED {
            self.procs.pop();
            self.more = self.more.saturating_add(1);
        }
    }

    /// Whether no process is missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.procs.is_empty() && self.more == 0 && self.silent.is_empty()
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("no process by now");
        }
        let names = self.procs.iter().map(Proc::to_string);
        let silent = self.silent.iter().map(|node| format!("{node}, which does not answer"));
        f.write_str(&names.chain(silent).collect::<Vec<_>>().join(", "))?;
        if self.more > 0 {
            write!(f, " and {} more", self.more)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(job: u32, first: u32, last: u32) -> Span {
        Span { job: JobId(job), first, last }
    }

    #[test]
    fn a_group_has_one_form() {
        let a = Group::new([span(0, 4, 6), span(0, 0, 3), span(1, 7, 9), span(0, 9, 8)]);
        let b = Group::of(a.iter().collect::<Vec<_>>().into_iter().rev());
        assert_eq!(a, b);
        assert_eq!(a.spans(), [span(0, 0, 6), span(1, 7, 9)]);
        assert_eq!(a.len(), 10);
        for rank in 0..12 {
            assert_eq!(a.contains(Proc::new(JobId(0), rank)), rank <= 6);
            assert_eq!(a.contains(Proc::new(JobId(1), rank)), (7..=9).contains(&rank));
        }
        assert!(!Group::default().contains(Proc::new(JobId(0), 0)));
    }

    #[test]
    fn the_missing_are_named_up_to_a_number() {
        let mut missing = Missing::default();
        for rank in (0..40).rev() {
            missing.add(Proc::new(JobId(0), rank));
        }
        missing.add(Proc::new(JobId(0), 3));
        assert_eq!((missing.procs.len(), missing.more), (16, 24));
        let text = missing.to_string();
        assert!(text.starts_with("rank 0, rank 1,") && text.ends_with("and 24 more"), "{text}");
    }
}
