//! Status and event codes of the PMIx Standard that are used here, and this project's own.
//!
//! Codes of users begin at −3000 (`PMIX_EXTERNAL_ERR_BASE`) and go down. Those of the Standard and
//! of OpenPMIx end at −2000. This project's own begin at −2901, between the two.

/// Not found.
pub const NOT_FOUND: i32 = -46;
/// A request was not done in time.
pub const TIMEOUT: i32 = -24;
/// The client is not permitted to do this.
pub const NO_PERMISSIONS: i32 = -23;
/// The other side cannot be reached.
pub const UNREACH: i32 = -25;
/// A wrong argument.
pub const BAD_PARAM: i32 = -27;
/// A message is malformed.
pub const UNPACK_FAILURE: i32 = -20;
/// Not supported.
pub const NOT_SUPPORTED: i32 = -47;
/// A key exists already.
pub const DUPLICATE_KEY: i32 = -53;
/// A connection to a process was lost.
pub const LOST_CONNECTION: i32 = -61;
/// A handler could not be registered.
pub const EVENT_REGISTRATION: i32 = -144;
/// A process ended abnormally; also an event.
pub const PROC_ABORTED: i32 = -7;
/// A process asked for the job to be aborted; an event.
pub const PROC_REQUESTED_ABORT: i32 = -8;
/// A watched process has made no progress for as long as it announced; an event.
pub const NO_PROGRESS: i32 = -109;
/// The job will be preempted soon; an event that a scheduler sends.
pub const PREEMPTED: i32 = -108;
/// A process ended; an event.
pub const PROC_TERMINATED: i32 = -201;
/// A node went down; an environment event.
pub const NODE_DOWN: i32 = -231;
/// Processors of a node went offline or came online; an environment event. This and the next three
/// are this project's own.
pub const CPUS_CHANGED: i32 = -2901;
/// A node has more or less memory than before; an environment event.
pub const MEMORY_CHANGED: i32 = -2902;
/// A network interface of a node appeared, disappeared, or changed its state; an environment event.
pub const NETWORK_CHANGED: i32 = -2903;
/// An accelerator of a node appeared or disappeared; an environment event.
pub const ACCELERATORS_CHANGED: i32 = -2904;
/// A handler ends its chain.
pub const ACTION_COMPLETE: i32 = -334;
/// A handler did nothing.
pub const NO_ACTION_TAKEN: i32 = -331;
/// The files of the job are on its nodes, and its ranks start; an event of this project's own.
pub const FILES_STAGED: i32 = -2905;
/// A failed process was started again under its rank; an event of this project's own.
pub const PROC_RESTARTED: i32 = -2910;
/// A lost node was replaced by a spare one, which has its ranks now; an event of this project's
/// own.
pub const NODE_REPLACED: i32 = -2911;
/// Some of the keys were found, but not all.
pub const PARTIAL_SUCCESS: i32 = -52;
/// Success.
pub const SUCCESS: i32 = 0;

/// Whether a code is an environment event (node, memory, network). Such an event reaches only the
/// nodes that have a handler for its code.
#[must_use]
pub fn is_environment(code: i32) -> bool {
    (-330..=-230).contains(&code) || (ACCELERATORS_CHANGED..=CPUS_CHANGED).contains(&code)
}
