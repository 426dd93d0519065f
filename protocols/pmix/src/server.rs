//! What the server of a job, which the launcher provides, speaks and writes. A program that is a
//! member of a job needs nothing of it.
//!
//! * [`ClientMessage`] and [`DaemonMessage`], in [`Frames`] over a Unix socket: the native
//!   protocol.
//! * [`Datastore`] and [`write_table`]: what the processes of a node map or read.
//! * [`packing`]: the encoding of OpenPMIx 4.1, for its clients.
//! * Names and random bytes, as both ends need them: directories, hosts, tokens.

pub use crate::{
    datastore::{Datastore, JOB as JOB_FILE, NAME as DATASTORE_LINK},
    directory::{another as other_base, base, is_private},
    hosts::{MAX_NODES, expand as expand_hosts, host_name, product as expand_word, split},
    native::{ClientMessage, DaemonMessage, Frames, MAX_FRAME, Spin, Stream, greeting},
    random::{hex, random},
    table::write as write_table,
};

/// The packing of OpenPMIx 4.1, and the conversion of its values to [`Value`](crate::Value) and
/// back.
pub mod packing {
    pub use crate::{conversion::*, packing::*};
}
