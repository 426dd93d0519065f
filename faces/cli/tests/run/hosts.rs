//! Several hosts: network namespaces, reached by a start command in the place of ssh.

use crate::{
    common::{Place, signal, until, wait},
    example, exists, ranks, text,
};
use petasos_pmix::{Error, Job, JobError, Reply, chain::Registration, status};
use petasos_testing::{Hosts, in_host, role};
use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::{Duration, Instant},
};

pub(crate) const START: [&str; 2] = ["--remote-start", "ip netns exec {host}"];

/// The same command on the host `a`.
pub(crate) fn on_a(hosts: &Hosts, command: &Command) -> Command {
    let mut there = in_host(&hosts.name('a'), command.get_program().as_ref());
    there.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => there.env(name, value),
            None => there.env_remove(name),
        };
    }
    there.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
    there
}

/// Three hosts with these numbers of ranks each.
pub(crate) fn three(hosts: &Hosts, slots: [u32; 3]) -> String {
    let host = |(letter, slots)| format!("{}:{slots}", hosts.name(letter));
    // The host that the launcher is on goes by its own name, and that is all namespaces'.
    let [a, b, c] = slots;
    let others = [('b', b), ('c', c)].map(host).join(",");
    if a > 0 { format!("localhost:{a},{others}") } else { others }
}

#[test]
fn ranks_on_three_hosts_call_each_other() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let program = example("all_to_all");
    for (slots, map) in [([2, 1, 2], "by-core"), ([0, 2, 1], "by-node")] {
        let count = slots.iter().sum::<u32>().to_string();
        let list = three(&hosts, slots);
        let options = ["run", "-n", &count, "--hosts", &list, "--map", map, START[0], START[1]];
        let arguments = [&options[..], &[program.to_str().unwrap(), "64"]].concat();
        let output = on_a(&hosts, &place.command(&arguments)).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(text(&output).matches("peers in").count().to_string(), count);
        place.assert_clean();
    }
}

#[test]
fn a_host_that_dies_in_a_fence_is_named_to_all() {
    let name = "hosts::a_host_that_dies_in_a_fence_is_named_to_all";
    if role().is_some() {
        return dies_in_a_fence(|| {
            // Its daemon, and so the whole node as far as the others can see.
            let daemon = rustix::process::getppid().unwrap();
            rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
        });
    }
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let list = three(&hosts, [1, 1, 1]);
    let options = ["-n", "3", "--hosts", &list, "--keep-going", START[0], START[1]];
    let output = on_a(&hosts, &ranks(&place, &options, name)).output().unwrap();
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("told in time").count(), 2, "{said}");
    assert!(said.contains(&format!("{} is lost", hosts.name('c'))), "{said}");
    // The guard of the daemon that was killed cleans up a moment later.
    let empty = || std::fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", empty);
    place.assert_clean();
}

/// The node of rank 2 dies when it does this, while the others are in a fence.
fn dies_in_a_fence(die: impl FnOnce()) {
    let job = Job::init().unwrap();
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![status::PROC_ABORTED], ..Registration::default() };
    job.on_event(with, move |event, _| {
        sender.send(event.node).unwrap();
        Reply::seen()
    })
    .unwrap();
    job.fence().unwrap();
    let start = Instant::now();
    let on_its_node = job.map().node_of(2) == Some(job.node());
    if job.rank() == 2 {
        die();
    }
    if on_its_node {
        std::thread::sleep(Duration::from_secs(100));
    }
    match job.fence().unwrap_err() {
        JobError::Refused(Error::NodeLost { node, missing }) => {
            assert_eq!(node, job.map().node_of(2).unwrap());
            let there: Vec<_> = (2..job.size()).map(|rank| job.proc_of(rank)).collect();
            assert_eq!(missing.procs, there);
        }
        other => panic!("{other}"),
    }
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).ok(), job.map().node_of(2));
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    println!("\ntold in time");
    job.finalize().unwrap();
}

/// The process of the daemon on a host.
pub(crate) fn daemon_on(hosts: &Hosts, host: char) -> u32 {
    find_daemon_on(hosts, host).expect("a daemon")
}

fn find_daemon_on(hosts: &Hosts, host: char) -> Option<u32> {
    let output = Command::new("ip").args(["netns", "pids", &hosts.name(host)]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let is_daemon = |pid: &&str| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.ends_with(b"pmix-daemon\0")
    };
    said.lines().find(is_daemon)?.parse().ok()
}

/// All processes of a host at once: its daemon, that one's guard, and the ranks.
pub(crate) fn kill_all_on(hosts: &Hosts, host: char) {
    let output = Command::new("ip").args(["netns", "pids", &hosts.name(host)]).output().unwrap();
    let pids = String::from_utf8(output.stdout).unwrap();
    let pids: Vec<u32> = pids.lines().map(|pid| pid.parse().unwrap()).collect();
    assert!(!pids.is_empty(), "nothing runs on {host}");
    // None of them sees the end of another.
    pids.iter().for_each(|pid| signal(*pid, "STOP"));
    pids.iter().for_each(|pid| signal(*pid, "KILL"));
}

/// What is left of a job of which a host died: nothing but the directories of that one, which no
/// process can remove.
pub(crate) fn nothing_is_left_but_of_node(place: &Place, node: u32) {
    let last = format!(".{node}");
    until("only what cannot be removed", || {
        let jobs = std::fs::read_dir(place.path("tmp")).unwrap().flatten();
        let within = jobs.flat_map(|base| std::fs::read_dir(base.path()).into_iter().flatten());
        let mut within = within.flatten();
        within.all(|at| at.path().to_string_lossy().ends_with(&last)).then_some(())
    });
    std::fs::remove_dir_all(place.path("tmp")).unwrap();
    std::fs::create_dir(place.path("tmp")).unwrap();
    place.assert_clean();
}

#[test]
fn a_whole_host_that_dies_in_a_fence_is_named_to_all() {
    let name = "hosts::a_whole_host_that_dies_in_a_fence_is_named_to_all";
    if role().is_some() {
        return dies_in_a_fence(|| println!("\nready to die"));
    }
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let list = three(&hosts, [1, 1, 2]);
    let options = ["-n", "4", "--hosts", &list, "--keep-going", START[0], START[1]];
    let mut command = on_a(&hosts, &ranks(&place, &options, name));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready to die"));
    kill_all_on(&hosts, 'c');
    assert_eq!(lines.filter(|line| line == "told in time").count(), 2);
    assert_eq!(wait(&mut child, Duration::from_secs(30)).code(), Some(1));
    let said = text(&child.wait_with_output().unwrap());
    let expected = format!("{} is lost", hosts.name('c'));
    assert!(said.contains(&expected) && said.contains("with it rank 2, 3"), "{said}");
    nothing_is_left_but_of_node(&place, 2);
}

#[test]
fn nothing_is_left_on_any_host_when_the_launcher_is_killed() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let marker = "7342.5";
    let script = format!("echo ready; sleep {marker} & sleep {marker}");
    let list = three(&hosts, [1, 1, 1]);
    let options = ["run", "-n", "3", "--hosts", &list, START[0], START[1], "sh", "-c", &script];
    let mut command = on_a(&hosts, &place.command(&options));
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.take(3).filter(|line| line.as_ref().unwrap() == "ready").count(), 3);
    // `ip netns exec` becomes the launcher.
    child.kill().unwrap();
    wait(&mut child, Duration::from_secs(10));
    until("the end of the ranks", || (!exists(marker)).then_some(()));
    let empty = || std::fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", empty);
    place.assert_clean();
}

#[test]
fn a_host_whose_link_is_cut_is_named_to_all() {
    let name = "hosts::a_host_whose_link_is_cut_is_named_to_all";
    if role().is_some() {
        return dies_in_a_fence(|| println!("\nready to be cut off"));
    }
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let list = three(&hosts, [1, 1, 1]);
    let options = ["-n", "3", "--hosts", &list, "--keep-going", "--silence", "1s"];
    let options = [&options[..], &START].concat();
    let mut command = on_a(&hosts, &ranks(&place, &options, name));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "ready to be cut off"));
    // That its system answers is found out while there is no need.
    std::thread::sleep(Duration::from_secs(1));
    hosts.cut_off('c');
    let cut = Instant::now();
    let told = lines.filter(|line| line == "told in time");
    let after: Vec<Duration> = told.map(|_| cut.elapsed()).collect();
    eprintln!("told after {after:?}");
    assert_eq!(after.len(), 2);
    assert_eq!(wait(&mut child, Duration::from_secs(30)).code(), Some(1));
    let said = text(&child.wait_with_output().unwrap());
    // Not by the kernel, later.
    let expected = format!("{} is lost (it was silent for 1s", hosts.name('c'));
    assert!(said.contains(&expected), "{said}");
    // The host itself holds all others for lost, and ends its part of the job.
    let empty = || std::fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", empty);
    place.assert_clean();
}

#[test]
fn a_host_whose_link_is_cut_before_all_are_there_is_named() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    // One host takes its time, and the start command of the other one does not know what becomes of
    // it.
    let script = "host=$1; shift; case $host in *-c) ;; *) \"$@\";; esac; exec cat";
    std::fs::write(place.path("begin"), script).unwrap();
    let begin = place.path("begin");
    let start = format!("ip netns exec {{host}} sh {} {{host}}", begin.display());
    let list = three(&hosts, [1, 1, 1]);
    let options = ["run", "-n", "3", "--hosts", &list, "--remote-start", &start, "true"];
    let mut command = on_a(&hosts, &place.command(&options));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("a daemon", || find_daemon_on(&hosts, 'b'));
    // It says that it is there, and that its system answers is found out: asked four times in a
    // second.
    std::thread::sleep(Duration::from_secs(2));
    hosts.cut_off('b');
    let cut = Instant::now();
    assert_eq!(wait(&mut child, Duration::from_secs(30)).code(), Some(1));
    let said = text(&child.wait_with_output().unwrap());
    eprintln!("named after {:?}", cut.elapsed());
    let expected = format!("{}: the daemon there is lost: it was silent for 1s", hosts.name('b'));
    assert!(said.contains(&expected), "{said}");
    place.assert_clean();
}

#[test]
fn a_daemon_that_is_stopped_is_not_lost() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let list = three(&hosts, [1, 1, 1]);
    let options = ["run", "-n", "3", "--hosts", &list, "--silence", "500ms", START[0], START[1]];
    let script = ["sh", "-c", "echo ready; sleep 2; echo done"];
    let mut command = on_a(&hosts, &place.command(&[&options[..], &script].concat()));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.by_ref().take(3).filter(|line| line == "ready").count(), 3);
    // The host of the launcher, and another one: `ip netns exec` has become the launcher.
    let stopped = [child.id(), daemon_on(&hosts, 'c')];
    std::thread::sleep(Duration::from_millis(400));
    stopped.iter().for_each(|pid| signal(*pid, "STOP"));
    std::thread::sleep(Duration::from_millis(900));
    stopped.iter().for_each(|pid| signal(*pid, "CONT"));
    assert_eq!(lines.filter(|line| line == "done").count(), 3);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output));
    place.assert_clean();
}

/// What is logged here is logged there, though nothing of this environment reaches the other hosts.
#[test]
fn daemons_of_other_hosts_log_what_was_asked_for() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let list = three(&hosts, [1, 1, 1]);
    let start = "ip netns exec {host} env -u RUST_LOG";
    let filters = [&["--log", "petasos_launch=debug"][..], &["-vv"], &[]];
    for (filter, begin) in filters.into_iter().zip([2, 2, 0]) {
        let options = ["run", "-n", "3", "--hosts", &list, "--remote-start", start];
        let words = [filter, &options, &["true"]].concat();
        let output = on_a(&hosts, &place.command(&words)).output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        assert_eq!(said.matches("a daemon begins").count(), begin, "{filter:?}: {said}");
        assert_eq!(said.matches("a rank is started").count(), begin * 3 / 2, "{filter:?}: {said}");
    }
    place.assert_clean();
}
