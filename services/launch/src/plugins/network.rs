//! How the ranks of a job reach each other: a plug-in interface. The engine hands descriptions,
//! offers and blobs on, and knows neither addresses nor secrets of any transport.
//!
//! ```text
//! head node                  daemon of each node with ranks
//!                            reserve: keeps what its ranks will need, before the job is described
//!                            interfaces: what of the node's inventory it uses
//! wants: what to find out of the nodes first
//! blob, of all offers, and of what was found out
//!                            set_up: makes of the blob what ranks get, before they start
//! ```

use super::Key;
use crate::inventory::{Inventory, RoundTrip};
use petasos_pmix::{Node, job::JobSpec};
use std::{collections::BTreeMap, fmt, net::IpAddr, path::Path};

/// The name of the file with the secret of the ranks, in the job's directory on each node.
pub const SECRET_FILE: &str = "secret";

/// A network that connects ranks.
pub trait Network: fmt::Debug + Send + Sync {
    /// Its name: both sides find each other by it.
    fn name(&self) -> &str;

    /// On a node with ranks, that of the head node among them: keeps local resources for them, and
    /// says what the others have to know of those.
    ///
    /// # Errors
    /// Why it cannot.
    fn reserve(&self, here: &ThisNode) -> Result<Reserved, String>;

    /// On any node: the names of the interfaces and ports of its inventory that this network goes
    /// over. They are told with the inventory. It is asked whenever that changes, and may not
    /// block.
    fn interfaces(&self, _here: &ThisNode, _has: &Inventory) -> Vec<String> {
        Vec::new()
    }

    /// At the head node: what has to be found out of the nodes before [`Network::blob`] is called.
    /// The start of the job waits for that, so nothing is found out that is not wanted.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// At the head node: all that a job needs of this network, of its description, what nodes
    /// offer, and what is known of them. It goes to each daemon.
    ///
    /// # Errors
    /// Why these offers make no network.
    fn blob(
        &self,
        job: &JobSpec,
        offers: &BTreeMap<Node, Vec<u8>>,
        known: &Known,
    ) -> Result<Vec<u8>, String>;

    /// On each node, before ranks start: what they get. The key is the job's for this network, the
    /// same on all nodes, and travels with no blob. The directory is this node's for the job: only
    /// its user can enter it, its path is one that sockets may have, and it is removed with all
    /// that is in it when the job is over.
    ///
    /// # Errors
    /// If it cannot be set up, or the blob makes no sense.
    fn set_up(
        &self,
        job: &JobSpec,
        blob: &[u8],
        key: &Key,
        directory: &Path,
    ) -> Result<ForRanks, String>;
}

/// What has to be found out of the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wants {
    /// What they have.
    pub inventory: bool,
    /// How long messages between them take, and what they have.
    pub links: bool,
}

/// What was found out of the nodes: nothing that was not wanted, and nothing of a node that has not
/// said it within ten seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// What each node has.
    pub inventories: BTreeMap<Node, Inventory>,
    /// How long messages from each node to some others take: of few nodes all pairs, each told of
    /// by one of the two; of many those that join them all, sixteen of each at most.
    pub links: BTreeMap<Node, Vec<RoundTrip>>,
}

/// What is known of a node and its job when resources are kept there.
#[derive(Clone, Debug)]
pub struct ThisNode {
    /// The address by which the other daemons reach it, if there are any.
    pub address: Option<IpAddr>,
    /// How many ranks it will have.
    pub ranks: u32,
    /// Whether there are no ranks elsewhere.
    pub alone: bool,
}

/// What a node keeps for its ranks; it is kept until this is dropped, at the end of the job.
pub struct Reserved {
    /// What the head node is told of it.
    pub offer: Vec<u8>,
    _kept: Box<dyn Send>,
}

impl Reserved {
    /// Offers this, and keeps `kept`.
    pub fn new(offer: Vec<u8>, kept: impl Send + 'static) -> Reserved {
        Reserved { offer, _kept: Box::new(kept) }
    }
}

impl fmt::Debug for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reserved({} bytes of offer)", self.offer.len())
    }
}

/// The addresses of the ranks of a node: this text, and a number that is `first` for the first of
/// them and grows by one with each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// How each begins; empty where the node's ranks have no addresses.
    pub base: String,
    /// The number of the first.
    pub first: u16,
}

/// What ranks get from a network.
#[derive(Clone, Default)]
pub struct ForRanks {
    /// Their addresses: one row for each node of the job, in order; none: this network gives no
    /// addresses.
    pub rows: Vec<Row>,
    /// The secret by which they know each other: it is put where only they read it, into the file
    /// [`SECRET_FILE`] of the directory.
    pub secret: Option<Vec<u8>>,
    /// More for their environment.
    pub environment: Vec<(String, String)>,
}

impl fmt::Debug for ForRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ForRanks({} rows)", self.rows.len())
    }
}
