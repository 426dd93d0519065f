//! A peer, and how it is measured.

use crate::{Error, Unavailable};
use serde::{Deserialize, Serialize};
use std::{ffi::OsString, fmt, path::PathBuf, time::Duration};

/// How bytes get to the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Shared memory.
    Shm,
    /// Unix sockets.
    Unix,
    /// TCP over the loopback interface.
    Tcp,
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Shm => "shm",
            Transport::Unix => "unix",
            Transport::Tcp => "tcp",
        })
    }
}

/// What both sides do while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waiting {
    /// They look again at once, and take a core each.
    Spinning,
    /// They sleep until the kernel wakes them.
    Sleeping,
}

/// Where a peer is measured.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The core of the side that measures; the caller has pinned its own thread there.
    pub client: Option<usize>,
    /// The core of the side that answers. If it is the client's, sides that spin yield.
    pub server: Option<usize>,
    /// A directory that only this user can enter: for sockets and the like. Paths of sockets are
    /// at most 107 bytes long, so it has to be short.
    pub scratch: PathBuf,
    /// The arguments with which this executable calls [`crate::serve`] and nothing else.
    pub entry: Vec<OsString>,
}

impl Setup {
    /// Both sides share a core.
    pub(crate) fn alone(&self) -> bool {
        self.client.is_some() && self.client == self.server
    }
}

pub(crate) type Open = fn(&Setup, Transport, Waiting) -> Result<Box<dyn Session>, Unavailable>;

/// Another stack, over one transport.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// What it calls itself.
    pub name: &'static str,
    /// How its bytes travel.
    pub transport: Transport,
    /// How both of its sides wait.
    pub waiting: Waiting,
    /// The smallest payload that it can measure, in bytes.
    pub smallest: usize,
    /// How it is used, in a line.
    pub how: &'static str,
    pub(crate) version: fn() -> Result<String, Unavailable>,
    pub(crate) open: Open,
}

impl Peer {
    /// The version of its package.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] when a program is not installed.
    pub fn version(&self) -> Result<String, Unavailable> {
        (self.version)()
    }

    /// Starts the other side, on the server's core, and connects to it.
    ///
    /// The session is to be dropped by the thread that opened it: its processes end with that
    /// thread. Nothing of them is left when it has been dropped.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] with a sentence that says why this peer cannot be measured here, and what
    /// to do about it.
    pub fn open(&self, setup: &Setup) -> Result<Box<dyn Session>, Unavailable> {
        (self.open)(setup, self.transport, self.waiting)
    }
}

/// How long calls took, in nanoseconds there and back.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Median over short batches of a batch's mean. Of `fi_pingpong` it is the mean of all, and of
    /// `ucx_perftest` the median of single ones: that is what they tell.
    pub median: f64,
    /// 99th percentile of single calls, where there is one.
    pub p99: Option<f64>,
    /// 99.9th percentile of single calls, where there is one.
    pub p99_9: Option<f64>,
    /// Single calls behind the percentiles; for the programs, iterations.
    pub samples: u64,
}

/// A peer that is ready to be measured, in rounds as short as one likes.
///
/// Each method warms up before it measures. Where the peer has no such thing, the result is
/// [`Error::Unsupported`]; all others say what failed.
pub trait Session {
    /// One call after the other with `bytes` bytes there and the same bytes back, for about `time`.
    ///
    /// # Errors
    ///
    /// See [`Session`].
    fn echo(&mut self, bytes: usize, time: Duration) -> Result<Times, Error>;

    /// Calls per second, with `in_flight` of them under way at a time, for about `time`.
    ///
    /// # Errors
    ///
    /// See [`Session`].
    fn rate(&mut self, bytes: usize, in_flight: usize, time: Duration) -> Result<f64, Error>;

    /// Bandwidth, in GB/s (10^9 bytes per second), of `bytes` bytes that go one way, a small answer
    /// awaited before the next are sent, for about `time`.
    ///
    /// # Errors
    ///
    /// See [`Session`].
    fn stream(&mut self, bytes: usize, time: Duration) -> Result<f64, Error>;
}
