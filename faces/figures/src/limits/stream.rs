//! Bulk data over TCP on the loopback interface, between two processes.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use super::buffer::Buffer;
use super::helper::Helper;
use super::memory::largest;
use super::order::Request;
use super::report::{Bulk, BulkPoint};
use super::{LimitError, Plan, on_client_core, tcp, timing};

pub(super) const STREAM: &str = "tcp_stream";
pub(super) const FETCH: &str = "tcp_fetch";

/// The sender hands the kernel this many bytes at once.
const WRITE: usize = 1 << 20;

/// A sample of a stream has at least these bytes: sockets buffer several MiB, so that a shorter
/// one may find all it asks for there already.
const SAMPLE: usize = 16 << 20;

/// A TCP stream that never pauses, timed for each transfer's bytes: what a pipeline can reach.
///
/// One buffer in each process, both reused.
///
/// # Errors
///
/// [`LimitError::System`] where sockets cannot be had, [`LimitError::Helper`] when the other
/// process fails, [`LimitError::OutOfMemory`], or [`LimitError::EmptySize`] for a size of 0.
pub fn tcp_stream(plan: &Plan, sizes: &[usize]) -> Result<Bulk, LimitError> {
    measure(plan, sizes, STREAM, 1, "the next transfer asked for before the last has come")
}

/// The same with one transfer at a time, asked for when the last has come: what a pull can reach.
///
/// # Errors
///
/// As [`tcp_stream`].
pub fn tcp_fetch(plan: &Plan, sizes: &[usize]) -> Result<Bulk, LimitError> {
    measure(plan, sizes, FETCH, 0, "one transfer at a time, its request included")
}

/// `ahead`: transfers asked for beyond the one that is being received.
fn measure(
    plan: &Plan,
    sizes: &[usize],
    name: &'static str,
    ahead: usize,
    flow: &str,
) -> Result<Bulk, LimitError> {
    let most = largest(sizes)?;
    let points = on_client_core(plan, || {
        let mut helper = Helper::start(plan, Request::Stream { bytes: most })?;
        let mut stream = tcp::connect(&mut helper)?;
        let mut target = Buffer::blank(most)?;
        let size = |&bytes: &usize| one_size(plan, name, &mut stream, &mut target, bytes, ahead);
        sizes.iter().map(size).collect::<Result<Vec<_>, LimitError>>()
    })?;
    let how = format!(
        "writes of 1 MiB over TCP on 127.0.0.1, no delay, {flow}; {}; median of transfers",
        plan.cores.describe("processes"),
    );
    Ok(Bulk { name, unit: "GB/s", points, how })
}

fn one_size(
    plan: &Plan,
    name: &'static str,
    stream: &mut TcpStream,
    target: &mut Buffer,
    bytes: usize,
    ahead: usize,
) -> Result<BulkPoint, LimitError> {
    let failed = LimitError::system("a transfer over TCP");
    target.fill(0xff);
    for _ in 0..ahead {
        ask(stream, bytes).map_err(&failed)?;
    }
    let point = timing::transfers(plan, bytes, SAMPLE * ahead, || {
        ask(stream, bytes).map_err(&failed)?;
        stream.read_exact(&mut target[..bytes]).map_err(&failed)
    })?;
    // The next size begins with nothing on its way.
    for _ in 0..ahead {
        stream.read_exact(&mut target[..bytes]).map_err(&failed)?;
    }
    target.check(name, bytes)?;
    Ok(point)
}

fn ask(stream: &mut TcpStream, bytes: usize) -> io::Result<()> {
    stream.write_all(&(bytes as u64).to_le_bytes())
}

/// The helper's side: sends as many bytes as each request says, at most `most`.
pub(super) fn serve(parent: &mut BufReader<UnixStream>, most: usize) -> io::Result<()> {
    let mut stream = tcp::accept(parent)?;
    let source = Buffer::pattern(most).map_err(io::Error::other)?;
    let mut request = [0; 8];
    loop {
        match stream.read_exact(&mut request) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let bytes = usize::try_from(u64::from_le_bytes(request)).unwrap_or(usize::MAX);
        let transfer = source.get(..bytes).ok_or_else(|| {
            io::Error::other(format!("asked for {bytes} bytes where {most} were announced"))
        })?;
        for piece in transfer.chunks(WRITE) {
            stream.write_all(piece)?;
        }
    }
}
