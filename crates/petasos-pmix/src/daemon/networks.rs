//! Networks of a job: what their plug-ins offer on each node goes to the head, and what they make there of all
//! offers goes to the daemons, before any rank starts.

use super::{Daemon, control::Setup};
use crate::{
    Node,
    job::JobSpec,
    launch::{Here, Key},
    net::handshake::derived,
};
use std::collections::BTreeMap;

/// What each network says, by its name.
pub(crate) type Said = Vec<(String, Vec<u8>)>;

/// The longest beginning of an address.
const MAX_BASE: usize = 512;

impl Daemon {
    /// Keeps what the ranks of this node will need.
    pub(super) fn reserve(&mut self, ranks: u32, alone: bool) -> Result<Said, String> {
        if ranks == 0 {
            return Ok(Said::new());
        }
        let address = self.peers.own_address(None).and_then(|text| text.parse().ok());
        let here = Here { address, ranks, alone };
        let mut offers = Said::new();
        for network in &self.plugins.networks {
            let reserved = network.reserve(&here)?;
            offers.push((network.name().to_owned(), reserved.offer.clone()));
            self.reserved.push(reserved);
        }
        Ok(offers)
    }

    /// At the head: what each network makes of the job, and of what nodes offer.
    pub(super) fn blobs(
        &self,
        job: &JobSpec,
        offers: &BTreeMap<Node, Said>,
    ) -> Result<Said, String> {
        let mut blobs = Said::new();
        for network in &self.plugins.networks {
            let name = network.name();
            let own = offers.iter().filter_map(|(node, said)| {
                let offer = said.iter().find(|(of, _)| of == name)?;
                Some((*node, offer.1.clone()))
            });
            blobs.push((name.to_owned(), network.blob(job, &own.collect())?));
        }
        Ok(blobs)
    }

    /// Makes of the blobs what the ranks of this node get; gives the secret among it.
    pub(super) fn set_up_networks(&self, setup: &mut Setup) -> Result<Option<Vec<u8>>, String> {
        let mut secret = None;
        let (mut rows, mut environment) = (Vec::new(), Vec::new());
        for (name, blob) in &setup.blobs {
            let network = self.plugins.networks.iter().find(|network| network.name() == name);
            let network = network.ok_or_else(|| format!("there is no network `{name}` here"))?;
            let purpose = [b"petasos network ", name.as_bytes()].concat();
            let key = Key(derived(&self.secret, &purpose));
            let made = network.set_up(&setup.job, blob, &key)?;
            // Of several networks the first that has them gives addresses and secret.
            if rows.is_empty() && !made.rows.is_empty() {
                (rows, secret) = (made.rows, made.secret);
            }
            environment.extend(made.environment);
        }
        if !rows.is_empty() && rows.len() != setup.job.nodes.len() {
            return Err(format!("addresses of {} nodes, not of all", rows.len()));
        }
        if let Some(row) = rows.iter().find(|row| row.base.len() > MAX_BASE) {
            return Err(format!("addresses that begin with {} bytes", row.base.len()));
        }
        for (node, row) in setup.job.nodes.iter_mut().zip(rows) {
            (node.base, node.first) = (row.base, row.first);
        }
        setup.program.environment.extend(environment);
        Ok(secret)
    }
}
