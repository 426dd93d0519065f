//! Spare hosts that take the place of others that are lost.

use crate::{
    common::{Place, Ran, signal, until, wait},
    example,
    hosts::{START, daemon_on, kill_all_on, nothing_is_left_but_of_node, on_a, three},
    ranks, text,
};
use petasos_pmix::{GetOptions, Job, Node, Reply, Scope, chain::Registration, status};
use petasos_testing::{Hosts, role};
use std::{
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::Duration,
};

/// A command of this job, from the host of the launcher.
fn seen(hosts: &Hosts, place: &Place, what: &[&str]) -> serde_json::Value {
    Ran::of(&on_a(hosts, &place.command(what)).output().unwrap()).assert(0).json()
}

#[test]
fn a_host_whose_daemon_dies_is_replaced_and_the_ring_completes() {
    let Some(hosts) = Hosts::several(3) else { return };
    let (program, list) = (example("ring_again"), three(&hosts, [1, 2, 2]));
    let program = program.to_str().unwrap();
    // A rank asks, or it happens by itself.
    for how in ["--keep-going", "--restart-failed"] {
        let place = Place::new();
        let options = ["run", "-n", "3", how, "--spares", "1", "--hosts", &list];
        let arguments = [&options[..], &START, &[program, "host"]].concat();
        let ran = Ran::of(&on_a(&hosts, &place.command(&arguments)).output().unwrap()).assert(0);
        let took = format!("and {} took its place", hosts.name('c'));
        let ran = ran.says(&format!("petasos: {} was lost (", hosts.name('b'))).says(&took);
        let ran = ran.says("petasos: rank 1 was restarted once").says("rank 2 was restarted once");
        let mut lines: Vec<&str> = ran.out.lines().collect();
        lines.sort_unstable();
        // The call went around by way of their new addresses.
        let around = "around the ring, and restarted so often: [0, 1, 1]";
        assert_eq!(lines, [around, "node 1: node 2"], "{ran:?}");
        // The guard of the daemon that was killed cleans up a moment later.
        let tmp = || std::fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
        until("an empty directory", tmp);
        place.assert_clean();
    }
}

#[test]
fn spares_are_shown_and_die_one_after_the_other() {
    let Some(hosts) = Hosts::several(4) else { return };
    let place = Place::new();
    let list = format!("{},{}", three(&hosts, [1, 1, 1]), hosts.name('d'));
    // The second life is one that reads what its host was given, as the first.
    let script = "echo $PETASOS_RANK $PETASOS_RESTARTS $PETASOS_NODE_NAME; \
                  [ $PETASOS_RANK = 0 ] && exec cat; exec sleep 100";
    let options = ["run", "-n", "2", "--restart-failed", "--spares", "2", "--hosts", &list];
    let arguments = [&options[..], &START, &["sh", "-c", script]].concat();
    let mut command: Command = on_a(&hosts, &place.command(&arguments));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first: Vec<String> = lines.by_ref().take(2).collect();
    assert!(first.contains(&format!("1 0 {}", hosts.name('b'))), "{first:?}");
    let ps = seen(&hosts, &place, &["ps", "--json"]);
    let names = serde_json::json!([hosts.name('c'), hosts.name('d')]);
    assert_eq!(ps[0]["spares"], names, "{ps}");
    let inventory = seen(&hosts, &place, &["query", "petasos.inventory.3", "--json"]);
    assert_eq!(inventory["petasos.inventory.3"]["spare"], true, "{inventory}");
    // One that is not needed yet, the host with a rank, and the one that has its rank then.
    let daemon = daemon_on(&hosts, 'c').to_string();
    assert!(Command::new("kill").args(["-KILL", &daemon]).status().unwrap().success());
    until("a spare less", || {
        let ps = seen(&hosts, &place, &["ps", "--json"]);
        (ps[0]["spares"] == serde_json::json!([hosts.name('d')])).then_some(())
    });
    kill_all_on(&hosts, 'b');
    assert_eq!(lines.next().unwrap(), format!("1 1 {}", hosts.name('d')));
    let ps = seen(&hosts, &place, &["ps", "--json"]);
    let rank = &ps[0]["ranks"][1];
    assert_eq!((&rank["host"], &rank["restarts"]), (&hosts.name('d').into(), &1.into()), "{ps}");
    let daemon = daemon_on(&hosts, 'd').to_string();
    assert!(Command::new("kill").args(["-KILL", &daemon]).status().unwrap().success());
    assert_eq!(wait(&mut child, Duration::from_secs(30)).code(), Some(1));
    let said = text(&child.wait_with_output().unwrap());
    let spare = format!("the spare host {} is lost", hosts.name('c'));
    let why = format!("{} is lost (", hosts.name('d'));
    let none = "node 3 is not replaced: no spare node is left";
    for what in [&spare, &why, none] {
        assert!(said.contains(what), "{what}: {said}");
    }
    nothing_is_left_but_of_node(&place, 1);
}

#[test]
fn input_follows_rank_0_and_who_had_ended_stays_where_it_was() {
    let Some(hosts) = Hosts::several(4) else { return };
    let place = Place::new();
    let list = format!("{},{}", three(&hosts, [0, 2, 2]), hosts.name('d'));
    let script = "[ $PETASOS_RANK = 1 ] && exit; echo life $PETASOS_RESTARTS; \
                  while read line; do echo got $line; done; \
                  echo end $PETASOS_RESTARTS; [ $PETASOS_RESTARTS = 2 ] || exec sleep 100";
    let options = ["run", "-n", "2", "--restart-failed", "--spares", "2", "--hosts", &list];
    let arguments = [&options[..], &START, &["--json", "sh", "-c", script]].concat();
    let mut command: Command = on_a(&hosts, &place.command(&arguments));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let kill_daemon = |host| signal(daemon_on(&hosts, host), "KILL");
    assert_eq!(lines.next().unwrap(), "life 0");
    writeln!(input, "one").unwrap();
    assert_eq!(lines.next().unwrap(), "got one");
    let rank_of = |rank: usize| seen(&hosts, &place, &["ps", "--json"])[0]["ranks"][rank].clone();
    let ended = || rank_of(1)["state"].as_str()?.starts_with("it exited").then_some(());
    until("the end of rank 1", ended);
    kill_daemon('b');
    assert_eq!(lines.next().unwrap(), "life 1");
    writeln!(input, "two").unwrap();
    assert_eq!(lines.next().unwrap(), "got two");
    let hosts_now = [0, 1].map(|rank| rank_of(rank)["host"].clone());
    assert_eq!(hosts_now, [hosts.name('c'), hosts.name('b')]);
    // The end of the input is told to the one after as well, and nothing of what was read before.
    drop(input);
    assert_eq!(lines.next().unwrap(), "end 1");
    kill_daemon('c');
    assert_eq!(lines.collect::<Vec<_>>(), ["life 2", "end 2"]);
    assert_eq!(wait(&mut child, Duration::from_secs(30)).code(), Some(0));
    let said = text(&child.wait_with_output().unwrap());
    let ended = said.lines().find(|line| line.starts_with('{')).unwrap();
    let ended: serde_json::Value = serde_json::from_str(ended).unwrap();
    let hosts_then = ["0", "1"].map(|rank| ended["ranks"][rank]["host"].clone());
    assert_eq!(hosts_then, [hosts.name('d'), hosts.name('b')], "{said}");
    // The guards of the daemons that were killed clean up.
    let tmp = || std::fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", tmp);
    place.assert_clean();
}

#[test]
fn which_hosts_can_be_spares() {
    let place = Place::new();
    let refused = |options: &[&str], why: &str| {
        let arguments = [&["run", "--dry-run", "-n", "2", "--spares", "1"], options, &["x"]];
        place.run(&arguments.concat()).assert(2).says(why);
    };
    refused(&["--hosts", "a:2,b", "--restarts", "3"], "--restart-failed");
    refused(&["--hosts", "a:2", "--keep-going"], "none is left for ranks");
    refused(&["--keep-going"], "none is left for ranks");
    refused(&["--hosts", "a:2,b,a", "--keep-going"], "`a` cannot be a spare host");
    refused(&["--hosts", "a:2,localhost", "--keep-going"], "`localhost` cannot be a spare host");
    refused(&["--hosts", "a:1,b:9", "--keep-going"], "1 slots");
    let options = ["--spares", "2", "--restart-failed", "--hosts", "a:2,b,c", "--dry-run"];
    let ran = place.run(&[&["run", "-n", "2"], &options[..], &["--json", "x"]].concat());
    let placed = ran.assert(0).json();
    assert_eq!(placed["ranks"], serde_json::json!(["a", "a"]));
    assert_eq!(placed["spares"], serde_json::json!(["b", "c"]));
    let shown = place.run(&[&["run", "-n", "2"], &options[..], &["x"]].concat()).assert(0);
    assert_eq!(shown.out.matches("spare").count(), 2, "{shown:?}");
    place.assert_clean();
}

#[test]
fn so_hears_a_rank_that_cannot_map_what_its_node_shares() {
    let name = "spares::so_hears_a_rank_that_cannot_map_what_its_node_shares";
    if role().is_some() {
        return hears_of_it();
    }
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let list = three(&hosts, [1, 1, 1]);
    let options = ["-n", "2", "--restart-failed", "--spares", "1", "--hosts", &list];
    let options = [&options[..], &START].concat();
    let output = on_a(&hosts, &ranks(&place, &options, name)).output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("rank 1 is elsewhere").count(), 1, "{said}");
    let empty = || std::fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", empty);
    place.assert_clean();
}

fn hears_of_it() {
    let own = std::env::var(petasos_pmix::RANK_VARIABLE).unwrap();
    if own == "0" {
        // As in a container with processes of its own.
        let directory = PathBuf::from(std::env::var_os(petasos_pmix::JOB_DIR).unwrap());
        std::fs::remove_file(directory.join("shared")).unwrap();
    }
    let job = Job::init().unwrap();
    let wait = GetOptions { wait: true, ..GetOptions::default() };
    if job.rank() == 1 {
        let last = if job.restarts() == 0 { "ready" } else { "seen" };
        job.get_with(0, last, wait).unwrap();
        if job.restarts() == 0 {
            let daemon = rustix::process::getppid().unwrap();
            rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
            std::thread::sleep(Duration::from_secs(100));
        }
        assert_eq!(job.node(), Node(2));
        return job.finalize().unwrap();
    }
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![status::NODE_REPLACED], ..Registration::default() };
    job.on_event(with, move |event, _| {
        sender.send(event.node).unwrap();
        Reply::seen()
    })
    .unwrap();
    let of = |key: &str| job.get(1, key).unwrap();
    let before = job.peer(1).unwrap();
    assert_eq!(of("pmix.nodeid"), 1u32.into());
    job.put(Scope::Global, "ready", true);
    job.commit().unwrap();
    assert_eq!(receiver.recv_timeout(Duration::from_secs(30)), Ok(Node(2)));
    assert_eq!(of("pmix.nodeid"), 2u32.into());
    assert_ne!(job.peer(1).unwrap(), before);
    println!("\nrank 1 is elsewhere");
    job.put(Scope::Global, "seen", true);
    job.commit().unwrap();
    job.finalize().unwrap();
}
