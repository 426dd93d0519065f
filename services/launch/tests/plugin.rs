//! A program with a network plug-in of its own, which launches a job of three nodes on this host.
//! It is the daemon and the guard as well, so it has no harness: its first argument selects the
//! role.

use petasos_launch::{
    DAEMON, ForRanks, GUARD, Key, Known, Launch, Network, Plugins, Reserved, ThisNode, Wants,
    parse_hosts,
};
use petasos_pmix::{Node, job::JobSpec};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, ExitCode},
    sync::Arc,
};

const LAUNCH: &str = "launch";
const NODES: u32 = 3;

/// A network without addresses. Its ranks get the offers and the measured times in a variable.
#[derive(Debug)]
struct Timed;

impl Network for Timed {
    fn name(&self) -> &str {
        "timed"
    }

    fn reserve(&self, here: &ThisNode) -> Result<Reserved, String> {
        Ok(Reserved::new(vec![here.ranks as u8], ()))
    }

    fn wants(&self) -> Wants {
        Wants { links: true, ..Wants::default() }
    }

    fn blob(
        &self,
        job: &JobSpec,
        offers: &BTreeMap<Node, Vec<u8>>,
        known: &Known,
    ) -> Result<Vec<u8>, String> {
        if known.inventories.len() != NODES as usize || job.nodes.len() != NODES as usize {
            return Err(format!("{known:?} of {job:?}"));
        }
        if !known.inventories.values().all(|one| one.memory > 0) {
            return Err(format!("a node without memory: {known:?}"));
        }
        let ranks: Vec<u8> = offers.values().flatten().copied().collect();
        let mut words = vec![format!("{ranks:?}").replace(' ', "")];
        for (from, links) in &known.links {
            for link in links {
                let (fastest, median) = (link.fastest.as_nanos(), link.median.as_nanos());
                words.push(format!("{}-{}:{fastest}:{median}", from.0, link.to.0));
            }
        }
        Ok(words.join(" ").into_bytes())
    }

    fn set_up(&self, _: &JobSpec, blob: &[u8], _: &Key, _: &Path) -> Result<ForRanks, String> {
        let times = String::from_utf8(blob.to_vec()).map_err(|error| error.to_string())?;
        let environment = vec![("TIMES".to_owned(), times)];
        Ok(ForRanks { environment, ..ForRanks::default() })
    }
}

fn main() -> ExitCode {
    let plugins = || {
        let mut plugins = Plugins::default();
        plugins.networks.push(Arc::new(Timed));
        plugins
    };
    match std::env::args().nth(1).as_deref() {
        Some(GUARD) => petasos_launch::run_guard(),
        Some(DAEMON) => petasos_launch::run_daemon(plugins()).expect("a daemon that ends well"),
        Some(LAUNCH) => {
            let words = ["sh", "-c", "echo $PETASOS_RANK $TIMES"].map(str::to_owned).to_vec();
            let mut launch = Launch::new(NODES, words);
            launch.hosts = parse_hosts("localhost:1,x:1,y:1").expect("hosts");
            launch.remote = ["env", "HOST_IS={host}"].map(str::to_owned).to_vec();
            launch.plugins = plugins();
            let outcome = launch.run().expect("a job");
            assert_eq!((outcome.code, outcome.why), (0, None));
        }
        _ => a_network_is_told_how_long_messages_between_nodes_take(),
    }
    ExitCode::SUCCESS
}

fn a_network_is_told_how_long_messages_between_nodes_take() {
    let own = std::env::current_exe().unwrap();
    let base = tempfile::tempdir().unwrap();
    let output = Command::new(own).arg(LAUNCH).env("TMPDIR", base.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{said}{errors}");
    let mut ranks = BTreeSet::new();
    for line in said.lines() {
        let mut words = line.split(' ');
        ranks.insert(words.next().unwrap());
        assert_eq!(words.next(), Some("[1,1,1]"));
        // Each pair is listed once.
        let mut pairs = BTreeSet::new();
        for word in words {
            let (pair, times) = word.split_once(':').unwrap();
            let (fastest, median) = times.split_once(':').unwrap();
            let [fastest, median] = [fastest, median].map(|time| time.parse::<u64>().unwrap());
            assert!(fastest > 0 && fastest <= median, "{line}");
            let (from, to) = pair.split_once('-').unwrap();
            assert!(pairs.insert([from.min(to), from.max(to)]), "{line}");
        }
        assert_eq!(pairs, BTreeSet::from([["0", "1"], ["0", "2"], ["1", "2"]]), "{line}");
    }
    assert_eq!(ranks, BTreeSet::from(["0", "1", "2"]), "{said}");
    println!("a network is told how long messages between nodes take: ok");
}
