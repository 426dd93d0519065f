//! At the head node, before the job is described: the daemons of the other hosts are started, and
//! say what they offer.

use super::{
    Daemon,
    control::{Bootstrap, Setup},
    networks::Said,
    staging,
    tree::Planned,
};
use crate::launch::Target;
use petasos_pmix::server::host_name;
use petasos_pmix::{
    JobId, Node, Value,
    job::{JobSpec, NodeInfo, SPARES},
};
use std::collections::{BTreeMap, BTreeSet};

/// What the head node's daemon knows of the others.
#[derive(Debug)]
pub(super) struct Roster {
    /// Where this daemon listens for them.
    port: Option<u16>,
    /// Where each is reached.
    addresses: BTreeMap<Node, String>,
    /// What networks offer there.
    offers: BTreeMap<Node, Said>,
    /// Where files are taken there.
    files: BTreeMap<Node, Vec<u8>>,
}

impl Roster {
    pub(super) fn new(port: Option<u16>) -> Roster {
        let (addresses, offers, files) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Roster { port, addresses, offers, files }
    }

    /// A daemon is there.
    pub(super) fn arrived(&mut self, node: Node, address: String, offers: Said) {
        self.addresses.insert(node, address);
        self.offers.insert(node, offers);
    }

    /// A daemon takes files at this address; empty: it takes none.
    pub(super) fn takes_files(&mut self, node: Node, address: Vec<u8>) {
        self.files.insert(node, address);
    }

    /// Where the other daemons are reached.
    pub(super) fn addresses(&self) -> Vec<(Node, String)> {
        self.addresses.iter().map(|(node, at)| (*node, at.clone())).collect()
    }

    /// Where files are to be brought.
    pub(super) fn targets(&self, hosts: &[String]) -> Vec<Target> {
        let targets = self.files.iter().filter(|(_, address)| !address.is_empty());
        let target = |(node, address): (&Node, &Vec<u8>)| {
            let host = hosts.get(node.0 as usize)?.clone();
            Some(Target { node: *node, host, address: address.clone() })
        };
        targets.filter_map(target).collect()
    }

    /// The addresses by which others reach this daemon, to be tried in turn.
    fn own_urls(&self) -> Vec<String> {
        let port = self.port.unwrap_or_default();
        let url = |address: String| match address.contains(':') {
            true => format!("[{address}]:{port}"),
            false => format!("{address}:{port}"),
        };
        own_addresses().into_iter().map(url).collect()
    }
}

impl Daemon {
    /// Starts the daemons of the other hosts.
    pub(super) fn start_remotes(&mut self) {
        let Some(head) = &self.head else { return };
        let plan = &head.plan;
        let mut counts: BTreeMap<Node, u32> = BTreeMap::new();
        for run in &plan.runs {
            *counts.entry(run.node).or_default() += run.count;
        }
        // A spare keeps what the node with the most ranks would need.
        let most = counts.iter().filter(|(node, _)| **node != Node::HEAD);
        let most = most.map(|(_, count)| *count).max().unwrap_or_default();
        let spares = plan.hosts.len() - plan.settings.spares as usize;
        let planned = |(at, host): (usize, &String)| {
            let node = Node(at as u32 + 1);
            let ranks = counts.get(&node).copied().unwrap_or_default();
            let ranks = if at >= spares { most } else { ranks };
            Planned { node, host: host.clone(), ranks }
        };
        let own = Bootstrap {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            secret: self.secret,
            node: self.me,
            nodes: plan.hosts.len() as u32 + 1,
            ranks: 0,
            alone: head.ranks_are_alone(),
            head: head.roster.own_urls(),
            settings: plan.settings.clone(),
            starter: plan.starter.clone(),
            below: plan.hosts.iter().enumerate().map(planned).collect(),
        };
        self.start_daemons(&own);
    }

    /// All daemons are there: finds out what has to be known of the nodes.
    pub(super) fn survey(&mut self) {
        let Some(head) = &self.head else { return };
        let here = head.plan.runs.iter().filter(|run| run.node == Node::HEAD);
        let (here, alone) = (here.map(|run| run.count).sum(), head.ranks_are_alone());
        match self.reserve(here, alone) {
            Ok(offers) => {
                self.head.iter_mut().for_each(|head| {
                    head.roster.offers.insert(Node::HEAD, offers.clone());
                });
            }
            Err(why) => {
                let text = format!("{}: {why}", host_name());
                return self.tell_controller(|controller, now| controller.fail(now, 1, text));
            }
        }
        match self.begin_survey() {
            true => self.tell_controller(|controller, now| controller.survey_began(now)),
            false => self.tell_controller(|controller, _| controller.surveyed()),
        }
    }

    /// Makes what the daemons are told of the job.
    pub(super) fn describe(&mut self) {
        let (known, measured) = self.surveyed_nodes();
        let Some(head) = &self.head else { return };
        let plan = &head.plan;
        let command = plan.program.arguments.join(" ");
        let mut info = vec![("petasos.command".to_owned(), Value::from(command))];
        info.extend(plan.staging.iter().flat_map(staging::described));
        info.extend(measured);
        let spares = plan.settings.spares;
        info.extend((spares > 0).then(|| (SPARES.to_owned(), spares.into())));
        let hosts = head.controller.hosts().iter();
        let job = JobSpec {
            id: JobId(0),
            name: head.name.clone(),
            // Their ranks have no addresses yet.
            nodes: hosts
                .map(|name| NodeInfo { name: name.clone(), base: String::new(), first: 0 })
                .collect(),
            runs: plan.runs.clone(),
            info,
        };
        let blobs = match self.blobs(&job, &head.roster.offers, &known) {
            Ok(blobs) => blobs,
            Err(why) => {
                return self.tell_controller(|controller, now| controller.fail(now, 1, why));
            }
        };
        let (program, daemons) = (plan.program.clone(), head.roster.addresses());
        let coming = plan.staging.as_ref().map(|staging| staging.coming.clone());
        let setup = Setup { job, program, daemons, blobs, spares, coming };
        self.head.iter_mut().for_each(|head| head.setup = Some(setup.clone()));
    }
}

impl super::head_node::HeadNode {
    /// Whether all ranks are on one host, and will be.
    fn ranks_are_alone(&self) -> bool {
        let with_ranks = self.plan.runs.iter().filter(|run| run.count > 0);
        let hosts: BTreeSet<Node> = with_ranks.map(|run| run.node).collect();
        self.plan.settings.spares == 0 && hosts.len() == 1
    }
}

/// The addresses of this machine that others may reach.
fn own_addresses() -> Vec<String> {
    let interfaces = nix::ifaddrs::getifaddrs();
    let mut found = Vec::new();
    for interface in interfaces.into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        if let Some(v4) = address.as_sockaddr_in() {
            found.push(v4.ip().to_string());
        } else if let Some(v6) = address.as_sockaddr_in6()
            && v6.ip().segments()[0] & 0xffc0 != 0xfe80
        {
            found.push(v6.ip().to_string());
        }
    }
    // This machine's own last: other hosts find others there.
    found.sort_by_key(|address| address.starts_with("127.") || address == "::1");
    found
}
