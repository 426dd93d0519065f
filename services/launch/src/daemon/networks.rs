//! Networks of a job: what their plug-ins offer on each node goes to the head node, and what they
//! make there of all offers goes to the daemons, before any rank starts.

use super::{
    Daemon,
    control::{Said, Setup},
    wake::{Wake, Waker},
};
use crate::{
    handshake::derived,
    inventory::{Inventory, NetworkUse, Watcher},
    plugins::{Key, Known, Reserved, ThisNode, Wants},
};
use petasos_pmix::{Node, job::JobSpec};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    path::Path,
};

/// The longest beginning of an address.
const MAX_BASE: usize = 512;

/// What this node has, and what networks keep of it for the ranks.
#[derive(Debug, Default)]
pub(super) struct Resources {
    /// Looks at what the node has.
    watcher: Option<Watcher>,
    /// What it has, as it was last seen.
    found: Option<Inventory>,
    /// What networks are told of this node.
    here: Option<ThisNode>,
    /// What is kept for the ranks, as long as this is.
    reserved: Vec<Reserved>,
}

impl Resources {
    /// The address at which the ranks of this node may be reached by those of others: where there
    /// are no others, one that this node alone reaches.
    pub(super) fn address(&self) -> Option<IpAddr> {
        let here = self.here.as_ref()?;
        if here.alone { Some(Ipv4Addr::LOCALHOST.into()) } else { here.address }
    }

    /// What the node has now.
    pub(super) fn found(&mut self, inventory: Inventory) {
        self.found = Some(inventory);
    }
}

impl Daemon {
    /// Has what this node has looked at, now and whenever it changes.
    pub(super) fn take_inventory(&mut self) {
        let start = |waker: Waker| {
            Watcher::start(move |found| waker.tell(Wake::Inventory(Box::new(found))))
        };
        match self.waker.another().and_then(start) {
            Ok(watcher) => self.resources.watcher = Some(watcher),
            Err(error) => self.log(&format!("the inventory: {error}")),
        }
    }

    /// Keeps what the ranks of this node will need.
    pub(super) fn reserve(&mut self, ranks: u32, alone: bool) -> Result<Said, String> {
        let address = self.peers.own_address(None).and_then(|text| text.parse().ok());
        let here = ThisNode { address, ranks, alone };
        self.resources.here = Some(here.clone());
        self.tell_inventory();
        if ranks == 0 {
            return Ok(Said::new());
        }
        let mut offers = Said::new();
        for network in &self.plugins.networks {
            let reserved = network.reserve(&here)?;
            offers.push((network.name().to_owned(), reserved.offer.clone()));
            self.resources.reserved.push(reserved);
        }
        Ok(offers)
    }

    /// What this node has goes to the head node, with what networks use of it.
    pub(super) fn tell_inventory(&mut self) {
        let (Some(found), Some(here)) = (&self.resources.found, &self.resources.here) else {
            return;
        };
        let mut found = found.clone();
        let used = self.plugins.networks.iter().map(|network| NetworkUse {
            network: network.name().to_owned(),
            interfaces: network.interfaces(here, &found),
        });
        found.networks = used.collect();
        self.engine.inventory(self.clock.now(), found);
    }

    /// At the head node: what networks want to know of the nodes before they make anything of the
    /// offers.
    pub(super) fn networks_want(&self) -> Wants {
        let all = self.plugins.networks.iter().map(|network| network.wants());
        let both = |a: Wants, b: Wants| Wants {
            inventory: a.inventory || b.inventory,
            links: a.links || b.links,
        };
        all.fold(Wants::default(), both)
    }

    /// At the head node: what each network makes of the job, and of what nodes offer.
    pub(super) fn blobs(
        &self,
        job: &JobSpec,
        offers: &BTreeMap<Node, Said>,
        known: &Known,
    ) -> Result<Said, String> {
        let mut blobs = Said::new();
        for network in &self.plugins.networks {
            let name = network.name();
            let own = offers.iter().filter_map(|(node, said)| {
                let offer = said.iter().find(|(of, _)| of == name)?;
                Some((*node, offer.1.clone()))
            });
            blobs.push((name.to_owned(), network.blob(job, &own.collect(), known)?));
        }
        Ok(blobs)
    }

    /// Makes of the blobs what the ranks of this node get; gives the secret among it.
    pub(super) fn set_up_networks(
        &self,
        setup: &mut Setup,
        directory: &Path,
    ) -> Result<Option<Vec<u8>>, String> {
        let mut secret = None;
        let (mut rows, mut environment) = (Vec::new(), Vec::new());
        for (name, blob) in &setup.blobs {
            let network = self.plugins.networks.iter().find(|network| network.name() == name);
            let network = network.ok_or_else(|| format!("there is no network `{name}` here"))?;
            let purpose = [b"petasos network ", name.as_bytes()].concat();
            let key = Key(derived(&self.secret, &purpose));
            let made = network.set_up(&setup.job, blob, &key, directory)?;
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
