//! What nodes have, as the system has it, and what changes.

use crate::{
    common::{Place, until, wait},
    hosts::{START, on_a, three},
    ranks, text,
};
use petasos_launch::inventory::Inventory;
use petasos_pmix::{Job, Reply, Value, chain::Registration, status};
use petasos_testing::{Hosts, role};
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn a_job_tells_what_its_nodes_have() {
    let name = "inventory::a_job_tells_what_its_nodes_have";
    if role().is_some() {
        let job = Job::init().unwrap();
        let info = job.query(&["pmix.pmem", "petasos.inventory.0"]).unwrap();
        let here = Inventory::sample();
        assert_eq!(info[0].1, Value::Uint(here.memory));
        assert!(matches!(&info[1].1, Value::Record(fields) if fields.len() > 5), "{info:?}");
        println!("\nready");
        let _ = job.lookup("goes on", Some(PATIENCE)).unwrap();
        return job.finalize().unwrap();
    }
    let place = Place::new();
    let mut child = ranks(&place, &[], name).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready"));
    let keys = ["query", "petasos.inventory", "pmix.pmem", "--json"];
    let found = place.run(&keys).assert(0).json();
    let (here, all) = (Inventory::sample(), &found["petasos.inventory"]);
    assert_eq!(all.as_array().unwrap().len(), 1);
    assert_eq!(all[0]["cpus"]["count"], here.cpus.len());
    assert_eq!(all[0]["memory"], here.memory);
    assert_eq!(found["pmix.pmem"], here.memory);
    let interfaces = all[0]["interfaces"].as_array().unwrap();
    let loopback = interfaces.iter().find(|one| one["name"] == "lo").unwrap();
    assert!(loopback["state"].is_string(), "{found}");
    let shown = place.run(&["query", "petasos.inventory"]).assert(0);
    assert!(shown.out.contains("petasos.inventory.0.cpus.online"), "{shown:?}");
    let directory = petasos_pmix_directory(&place);
    Job::attach(directory)
        .unwrap()
        .publish("goes on", true, petasos_pmix::event::Range::Global, SESSION)
        .unwrap();
    assert!(wait(&mut child, PATIENCE).success());
    place.assert_clean();
}

const SESSION: petasos_pmix::message::Persistence = petasos_pmix::message::Persistence::Session;

/// The private directory of the one job that runs in this place.
fn petasos_pmix_directory(place: &Place) -> std::path::PathBuf {
    let base = std::fs::read_dir(place.path("tmp")).unwrap().next().unwrap().unwrap().path();
    std::fs::read_dir(base).unwrap().next().unwrap().unwrap().path()
}

/// In the namespace of a host.
#[track_caller]
fn ip(host: &str, words: &str) {
    let mut command = Command::new("ip");
    let status = command.args(["-n", host]).args(words.split(' ')).status().unwrap();
    assert!(status.success(), "ip -n {host} {words}: {status}");
}

/// Interfaces come, go up and go down; a processor goes offline, as far as the files of the kernel
/// say so.
#[test]
fn what_changes_on_a_host_is_told_to_who_asked() {
    let name = "inventory::what_changes_on_a_host_is_told_to_who_asked";
    if role().is_some() {
        return listens();
    }
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let (online, script) = (place.path("online"), place.path("start"));
    std::fs::write(&online, "0-1\n").unwrap();
    // Mounts of `ip netns exec` are its own.
    let mounted = "mount --bind ./online /sys/devices/system/cpu/online && exec \"$@\"\n";
    std::fs::write(&script, mounted).unwrap();
    let (list, start) = (three(&hosts, [1, 0, 1]), format!("{} sh {}", START[1], script.display()));
    let options = ["-n", "2", "--hosts", &list, START[0], &start];
    let mut command = on_a(&hosts, &ranks(&place, &options, name));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    // What changes at the same time may come in one event, or in several.
    let mut say = |all: &[&str]| {
        let mut open = all.to_vec();
        while !open.is_empty() {
            let line = lines.next().unwrap_or_else(|| panic!("{open:?}"));
            open.retain(|what| *what != line);
        }
    };
    let c = hosts.name('c');
    say(&["ready"]);
    ip(&c, "link add new0 type veth peer name new1");
    say(&["2: new0 new", "2: new1 new"]);
    ip(&c, "link set new0 up");
    ip(&c, "link set new1 up");
    say(&["2: new0 up", "2: new1 up"]);
    ip(&c, "link set new1 down");
    say(&["2: new0 down", "2: new1 down"]);
    std::fs::write(&online, "0\n").unwrap();
    ip(&c, "link del new0");
    say(&["2: CPU 1 offline", "2: new0 gone", "2: new1 gone", "nothing else"]);
    assert!(wait(&mut child, PATIENCE).success());
    place.assert_clean();
}

/// How long messages between hosts take: in job data, or when it is asked for.
#[test]
fn times_between_hosts_are_measured_when_they_are_wanted() {
    let name = "inventory::times_between_hosts_are_measured_when_they_are_wanted";
    if role().is_some() {
        let job = Job::init().unwrap();
        let data = job.get(petasos_pmix::Proc::JOB, "petasos.inventory.links");
        if job.rank() == 0 {
            let known = data.is_ok();
            let keys = ["petasos.inventory.links", "petasos.inventory"];
            let asked = job.query(&keys).unwrap();
            assert!(data.is_err() || data.unwrap() == asked[0].1);
            let (Value::List(links), Value::List(nodes)) = (&asked[0].1, &asked[1].1) else {
                panic!("{asked:?}");
            };
            assert_eq!((links.len(), nodes.len()), (3, 3), "{asked:?}");
            let networks = |node: &Value| match node {
                Value::Record(all) => all.iter().find(|(key, _)| key == "networks").cloned(),
                _ => None,
            };
            let used = |node: &Value| networks(node).unwrap().1.to_string().contains("eth0");
            assert!(nodes.iter().all(used), "{nodes:?}");
            println!("\nknown before: {known}; {}", asked[0].1);
        }
        job.fence().unwrap();
        return job.finalize().unwrap();
    }
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let list = three(&hosts, [1, 1, 1]);
    for (more, known) in [(&["--measure-links"][..], true), (&[], false)] {
        let options = ["-n", "3", "--hosts", &list, START[0], START[1]];
        let command = ranks(&place, &[&options[..], more].concat(), name);
        let output = on_a(&hosts, &command).output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(&format!("known before: {known}")), "{said}");
        place.assert_clean();
    }
}

fn listens() {
    let job = Job::init().unwrap();
    let (sender, receiver) = channel();
    let others = Arc::new(AtomicU32::new(0));
    let codes = match job.rank() {
        0 => vec![status::NETWORK_CHANGED, status::CPUS_CHANGED],
        // All that is there without a request.
        _ => Vec::new(),
    };
    let counted = others.clone();
    job.on_event(Registration { codes, ..Registration::default() }, move |event, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        sender.send((event.node.0, event.info.clone())).unwrap();
        Reply::seen()
    })
    .unwrap();
    job.fence().unwrap();
    if job.rank() == 0 {
        // What changes before a node has told what it has is no event.
        let told = || job.query(&["petasos.inventory"]).unwrap().len() == 1;
        until("all nodes", || told().then_some(()));
        println!("\nready");
        let mut awaited = BTreeSet::from(["new0 gone", "new1 gone", "CPU 1 offline"]);
        while !awaited.is_empty() {
            let (node, info) = receiver.recv_timeout(PATIENCE).unwrap();
            for said in info.iter().flat_map(words_of) {
                println!("\n{node}: {said}");
                awaited.remove(said.as_str());
            }
        }
    }
    job.fence().unwrap();
    if job.rank() == 1 {
        assert_eq!(others.load(Ordering::Relaxed), 0);
        println!("\nnothing else");
    }
    job.finalize().unwrap();
}

/// Which process is in which state, by one entry of an event.
fn words_of((key, value): &(String, Value)) -> Vec<String> {
    match (key.rsplit_once('.'), value) {
        (Some(("petasos.interfaces", state)), Value::List(names)) => {
            names.iter().map(|name| format!("{name} {state}")).collect()
        }
        (Some(("petasos.cpus", state)), which) => vec![format!("CPU {which} {state}")],
        _ => Vec::new(),
    }
}
