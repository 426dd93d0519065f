//! How files get to the nodes of a job before its ranks start: a plug-in interface. The engine says
//! which files, which nodes, and when it has to be given up; it knows no way to move a byte itself.
//!
//! ```text
//! head node                       daemon of each node with ranks
//! estimate
//!                                 receive: ready to take files; where, as bytes for the head node
//! place, on a thread of its own   (its threads take the files)
//!                                 what `receive` gave is dropped; then the ranks start
//! ```

use crate::files::Files;
use petasos_pmix::Node;
use std::{
    collections::BTreeMap,
    fmt,
    future::Future,
    net::IpAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

/// A way to bring files to nodes.
pub trait FileMover: fmt::Debug + Send + Sync {
    /// Its name: both sides find each other by it.
    fn name(&self) -> &str;

    /// How long it will take to bring the files to so many other hosts, and to this one if ranks
    /// run here. Nothing is moved, and no question asked, for this.
    fn estimate(&self, files: &Files, others: u32, here: bool) -> Estimate;

    /// On a node: gets ready to take files into the directory `into`, which is the job's alone,
    /// from a head node that knows the same key and reaches this node at the address `at`; none:
    /// the head node is this very process.
    ///
    /// # Errors
    /// Why it cannot.
    fn receive(&self, into: &Path, at: Option<IpAddr>, key: &Key) -> Result<Receiving, String>;

    /// At the head node: brings all files to all nodes, and comes back when all are there, when one
    /// cannot be, or soon after [`Placing::stopped`]. No step of it may take without end.
    ///
    /// # Errors
    /// Which file could not be brought to which host, and why.
    fn place(&self, placing: &Placing) -> Result<(), NotPlaced>;
}

/// How long it will take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// So long.
    pub time: Duration,
    /// What this is based on, for people.
    pub basis: String,
}

/// What both sides of a job's plug-in know, and no other process: it does not travel on its behalf.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

/// A node that takes files; dropping it ends that, and waits until nothing is written any more.
/// Then nothing but the files is in the directory.
pub struct Receiving {
    /// Where it takes them: for the head node's side of the same plug-in.
    pub address: Vec<u8>,
    _ends: Box<dyn Send>,
}

impl Receiving {
    /// Takes files at this address until `ends` is dropped.
    pub fn new(address: Vec<u8>, ends: impl Send + 'static) -> Receiving {
        Receiving { address, _ends: Box::new(ends) }
    }
}

impl fmt::Debug for Receiving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiving({} bytes of address)", self.address.len())
    }
}

/// A file that could not be brought to a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host}: {}: {why}", file.display())]
pub struct NotPlaced {
    /// The host, by the name that the user knows it by.
    pub host: String,
    /// The file.
    pub file: PathBuf,
    /// Why not.
    pub why: String,
}

/// A node that files go to.
#[derive(Clone, Debug)]
pub struct Target {
    /// Which.
    pub node: Node,
    /// Its host's name.
    pub host: String,
    /// What [`FileMover::receive`] gave there.
    pub address: Vec<u8>,
}

/// The work of a mover at the head node. Shared with the engine, which may give it up.
#[derive(Debug)]
pub struct Placing {
    /// What is to be brought.
    pub files: Arc<Files>,
    /// Where to.
    pub targets: Vec<Target>,
    /// What only the nodes' side knows beside this one.
    pub key: Key,
    under_way: Mutex<BTreeMap<Node, PathBuf>>,
    stop: Mutex<Stop>,
}

#[derive(Debug, Default)]
struct Stop {
    told: bool,
    wakers: Vec<Waker>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Placing {
    pub(crate) fn new(files: Arc<Files>, targets: Vec<Target>, key: Key) -> Placing {
        let (under_way, stop) = (Mutex::default(), Mutex::default());
        Placing { files, targets, key, under_way, stop }
    }

    /// Says that this file is on its way to a node now: so that it can be named if the node dies.
    pub fn begins(&self, node: Node, file: &Path) {
        lock(&self.under_way).insert(node, file.to_owned());
    }

    /// Says that a node has all.
    pub fn done(&self, node: Node) {
        lock(&self.under_way).remove(&node);
    }

    pub(crate) fn under_way(&self, node: Node) -> Option<PathBuf> {
        lock(&self.under_way).get(&node).cloned()
    }

    /// It is given up: what is under way is to end.
    pub fn stop(&self) {
        let wakers = {
            let mut stop = lock(&self.stop);
            stop.told = true;
            std::mem::take(&mut stop.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether it was given up.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        lock(&self.stop).told
    }

    /// Is ready when it is given up.
    pub fn stopped(&self) -> impl Future<Output = ()> + '_ {
        Stopped(self)
    }
}

struct Stopped<'a>(&'a Placing);

impl Future for Stopped<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut stop = lock(&self.0.stop);
        if stop.told {
            return Poll::Ready(());
        }
        if !stop.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
            stop.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }
}
