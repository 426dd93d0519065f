//! What came of a job.

use petasos_pmix::Termination;
use std::{collections::BTreeMap, time::Duration};

/// How a job ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// As an exit code: that of the first rank that failed; 0 if none did.
    pub code: i32,
    /// Why, if not well: which rank on which host, and what became of it.
    pub why: Option<String>,
    /// Whether the reader of its output has closed it, as `head` does: then the job ends with code
    /// 141 unless it is to go on, and programs in a pipeline say nothing of that.
    pub unread: bool,
    /// Why output of the ranks is lost, as where a disk is full: the job ends then with a code that
    /// is not 0, unless it is to go on; in the end it is not 0 in any case.
    pub output_lost: Option<String>,
    /// What became of each rank: on which host, and how it ended.
    pub ranks: BTreeMap<u32, (String, Termination)>,
    /// How often ranks were started again, if they were.
    pub restarts: BTreeMap<u32, u32>,
    /// Hosts that were lost and replaced: the host, why it was lost, and the spare that took its
    /// place.
    pub replaced: Vec<(String, String, String)>,
    /// What was brought to the nodes, once all of it was there.
    pub staged: Option<Staged>,
}

/// Files that are on the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Staged {
    /// How many there are on each host.
    pub files: u64,
    /// How many bytes they have there.
    pub bytes: u64,
    /// On how many hosts.
    pub hosts: usize,
    /// How long it took.
    pub took: Duration,
}
