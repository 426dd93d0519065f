//! Input from other processes, for the fuzz targets. Not part of the interface.

use crate::{
    JobId, Node,
    job::{Facts, JobMap, JobSpec, NodeInfo, Run},
    native::{Asked, Frames, Stream},
    table::{self, Table},
};
use std::{io::Write, os::unix::net::UnixStream, sync::Arc};

/// A job of four ranks, two on each of two nodes.
///
/// # Panics
/// Never.
#[must_use]
pub fn job() -> Arc<JobMap> {
    let node =
        |at| NodeInfo { name: format!("n{at}"), base: "tcp://10.0.0.1:".into(), first: 9000 };
    let runs = [0, 1].map(|at| Run { node: Node(at), count: 2 }).to_vec();
    let (name, nodes, info) = ("job".to_owned(), vec![node(0), node(1)], Vec::new());
    let spec = JobSpec { id: JobId(0), name, nodes, runs, info };
    Arc::new(JobMap::new(spec).expect("a job"))
}

/// The data of a job as its processes map it: whatever the bytes are, every lookup returns.
pub fn table(bytes: &[u8]) {
    let Some(table) = Table::open(bytes.to_vec(), 0) else { return };
    for rank in [0, 1, 3, table.size().wrapping_sub(1), u32::MAX] {
        for key in ["pmix.hname", "pmix.local.size", "pmix.petasos.address", "key", "nothing"] {
            let _ = table.value(rank, key);
        }
    }
    // The counts in it bound what is built from it.
    let spec = table.spec();
    assert!(spec.nodes.len() + spec.runs.len() + spec.info.len() <= bytes.len());
}

/// The data of a job of four ranks.
#[must_use]
pub fn table_seed() -> Vec<u8> {
    table::write(&job())
}

/// A stream of frames and lines, which comes in pieces.
///
/// # Panics
/// If what is taken off it is more than has come.
pub fn frames(bytes: &[u8]) {
    let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
    ours.set_nonblocking(true).expect("a socket");
    let mut frames = Frames::new(Stream::Unix(ours), 1 << 16);
    let (mut sent, mut taken) = (0, 0);
    for piece in bytes.chunks(bytes.len() / 4 + 1) {
        theirs.write_all(piece).expect("it is read soon");
        sent += piece.len();
        while frames.fill().is_ok_and(|some| some) {}
        loop {
            let before = frames.come().len();
            // What the lengths and ends of lines are, the bytes themselves say.
            let went_on = match before % 3 {
                0 => frames.take_line(64).map(|line| line.is_some()),
                1 => frames.take::<Asked>().map(|value| value.is_some()),
                _ => frames.take_raw().map(|frame| frame.is_some()),
            };
            let left = frames.come().len();
            taken += before - left;
            assert!(taken + left == sent, "{taken} taken and {left} left of {sent}");
            match went_on {
                Ok(true) => {}
                Ok(false) => break,
                Err(_) => return,
            }
        }
    }
}
