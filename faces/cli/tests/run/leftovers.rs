//! Nothing outlives a job: not what a rank has made a daemon of, either.

use crate::{
    common::Place,
    common::{Ran, child_of, signal, until, wait},
    exists,
    hosts::{START, daemon_on, on_a, three},
};
use petasos_testing::Hosts;
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// How long processes sleep by which a test's are known: like no other's. Those that are left when
/// it fails end with it.
pub(crate) struct Marker(pub(crate) String);

impl Marker {
    pub(crate) fn new(which: u32) -> Marker {
        Marker(format!("7{which}00.{}", std::process::id()))
    }
}

impl std::fmt::Display for Marker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        while std::thread::panicking() && exists(&self.0) {
            let all = Command::new("pgrep").args(["-f", &self.0]).output().unwrap();
            for pid in String::from_utf8(all.stdout).unwrap().lines() {
                signal(pid.parse().unwrap(), "KILL");
            }
        }
    }
}

/// Starts processes that leave session, group and parent behind; and one that also starts others,
/// which leave it.
fn daemons(marker: &Marker) -> String {
    let quiet = "</dev/null >/dev/null 2>&1";
    format!(
        "setsid sh -c 'sleep {marker}; :' {quiet} & \
         (setsid sh -c '(setsid sleep {marker} {quiet} &)' {quiet} &); \
         setsid sh -c 'for i in 1 2 3 4 5 6 7 8 9 0; do for j in 1 2 3 4 5; do (setsid sleep {marker} &); sleep 0.02; done; done' \
         {quiet} & \
         n=0; while [ $(pgrep -fxc 'sleep {marker}') -lt 3 ] && [ $n -lt 500 ]; do sleep 0.02; n=$((n + 1)); done; \
         echo ready; "
    )
}

/// Waits until no process is left of a job, nor its directories.
fn nothing_is_left(place: &Place, marker: &Marker) {
    until("the end of all processes", || (!exists(&marker.0)).then_some(()));
    let empty = || fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", empty);
    place.assert_clean();
}

/// Runs until so many ranks are ready.
fn ready(mut command: Command, ranks: usize) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.take(ranks).filter(|line| line == "ready").count(), ranks);
    child
}

#[test]
fn daemons_of_ranks_end_with_the_job() {
    let place = Place::new();
    for (at, (end, code)) in
        [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)].iter().enumerate()
    {
        let marker = Marker::new(1 + at as u32);
        let script = daemons(&marker) + end;
        let ran = place.run(&["run", "-n", "2", "sh", "-c", &script]).assert(*code);
        // They are gone before the command is.
        assert!(!exists(&format!("sleep {marker}")), "{end}: {ran:?}");
        place.assert_clean();
    }
}

#[test]
fn what_has_an_environment_of_its_own_ends_with_the_job() {
    let place = Place::new();
    let marker = Marker::new(10);
    let script = format!(
        "env -i setsid /bin/sleep {marker} </dev/null >/dev/null 2>&1 & \
         while ! pgrep -fx '/bin/sleep {marker}' >/dev/null; do sleep 0.02; done"
    );
    place.run(&["run", "-n", "2", "sh", "-c", &script]).assert(0);
    assert!(!exists(&format!("/bin/sleep {marker}")));
    place.assert_clean();
}

#[test]
fn daemons_of_ranks_end_with_a_launcher_that_is_killed() {
    let place = Place::new();
    let marker = Marker::new(11);
    let script = daemons(&marker) + "sleep 100";
    let mut child = ready(place.command(&["run", "-n", "2", "sh", "-c", &script]), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&place, &marker);
}

/// The launcher and its guard are killed one after the other, and so fast that the guard's
/// successor has just begun.
#[test]
fn another_guard_knows_as_much() {
    let place = Place::new();
    let marker = Marker::new(12);
    let script = daemons(&marker) + "sleep 100";
    let mut child = ready(place.command(&["run", "-n", "1", "sh", "-c", &script]), 1);
    let guard = || child_of(child.id(), "pmix-guard");
    let first = until("the guard", guard);
    signal(first, "KILL");
    until("another guard", || guard().filter(|guard| *guard != first));
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&place, &marker);
}

#[test]
fn daemons_of_ranks_end_with_each_way_that_other_hosts_go() {
    let Some(hosts) = Hosts::several(3) else { return };
    let list = three(&hosts, [1, 1, 1]);
    for (at, how) in ["well", "launcher", "daemon"].iter().enumerate() {
        let place = Place::new();
        let marker = Marker::new(13 + at as u32);
        let then = if *how == "well" { "exit 0" } else { "sleep 100" };
        let script = daemons(&marker) + then;
        let options = ["run", "-n", "3", "--hosts", &list, START[0], START[1]];
        let command = place.command(&[&options[..], &["sh", "-c", &script]].concat());
        let mut child = ready(on_a(&hosts, &command), 3);
        match *how {
            "launcher" => child.kill().unwrap(),
            "daemon" => signal(daemon_on(&hosts, 'b'), "KILL"),
            _ => {}
        }
        let status = wait(&mut child, Duration::from_secs(30));
        assert_eq!(status.success(), *how == "well", "{how}: {status}");
        nothing_is_left(&place, &marker);
    }
}

/// Of a job within a job nothing is left, whichever of them ends first; and one that ends leaves
/// the other alone.
#[test]
fn jobs_within_jobs_end_with_them_and_leave_each_other_alone() {
    let place = Place::new();
    let (outer, inner) = (Marker::new(20), Marker::new(21));
    let petasos = env!("CARGO_BIN_EXE_petasos");
    let within = daemons(&inner);
    let script = format!(
        "{}{petasos} run -n 1 sh -c \"{}\" || exit 5; pgrep -fx 'sleep {inner}' >/dev/null && exit 6; \
         pgrep -fx 'sleep {outer}' >/dev/null || exit 7; echo alone",
        daemons(&outer),
        within.replace('$', "\\$"),
    );
    let ran = place.run(&["run", "-n", "1", "sh", "-c", &script]).assert(0);
    assert_eq!(ran.out, "ready\nready\nalone\n");
    assert!(![&outer, &inner].iter().any(|marker| exists(&format!("sleep {marker}"))));
    // The launcher of the outer one is killed.
    let script =
        format!("exec {petasos} run -n 1 sh -c \"{} sleep 100\"", within.replace('$', "\\$"));
    let mut child = ready(place.command(&["run", "-n", "1", "sh", "-c", &script]), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&place, &inner);
}

/// A resource manager asks all processes on a host to end, and when the one that it started has
/// ended it kills the others. The guard here does nothing of its work before it is killed so.
#[test]
fn a_daemon_that_is_asked_to_end_leaves_no_work_to_its_guard() {
    for (at, how) in ["TERM", "INT", "HUP"].iter().enumerate() {
        let place = Place::new();
        let marker = Marker::new(23 + at as u32);
        let script = daemons(&marker) + "sleep 100";
        // Those that are ignored, as by `nohup`, or where a shell starts this in the background,
        // are let be.
        let start = "env --default-signal=INT,HUP X={host}";
        let hosts = ["--hosts", "localhost:1,x:1", "--remote-start", start];
        let words = [&["run", "-n", "2"], &hosts[..], &["sh", "-c", &script]].concat();
        let mut child = ready(place.command(&words), 2);
        let daemon = child_of(child.id(), "pmix-daemon").unwrap();
        let guard = child_of(daemon, "pmix-guard").unwrap();
        signal(guard, "STOP");
        signal(daemon, how);
        until("the end of the daemon", || is_over(daemon).then_some(()));
        signal(guard, "KILL");
        assert!(!wait(&mut child, Duration::from_secs(60)).success());
        nothing_is_left(&place, &marker);
    }
}

/// Whether a process has ended, though it may not have been waited for.
fn is_over(process: u32) -> bool {
    let said = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    said.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with('Z'))
}

/// What a start command leaves behind, as ssh does with a connection that it shares, is nothing of
/// the job's.
#[test]
fn what_start_commands_leave_behind_stays() {
    let place = Place::new();
    let marker = Marker::new(22);
    let start = place.path("start");
    let script = format!(
        "#!/bin/sh\nsetsid sleep {marker} </dev/null >/dev/null 2>&1 &\nshift\nexec \"$@\"\n"
    );
    fs::write(&start, script).unwrap();
    let mut opened = Command::new("chmod");
    assert!(opened.arg("755").arg(&start).status().unwrap().success());
    let remote = format!("{} {{host}}", start.display());
    let hosts = ["--hosts", "localhost:1,x:1", "--remote-start", &remote];
    let output = place.command(&[&["run", "-n", "2"], &hosts[..], &["true"]].concat()).output();
    Ran::of(&output.unwrap()).assert(0);
    assert!(exists(&format!("sleep {marker}")));
    let found = Command::new("pgrep").args(["-fx", &format!("sleep {marker}")]).output().unwrap();
    for pid in String::from_utf8(found.stdout).unwrap().lines() {
        signal(pid.parse().unwrap(), "KILL");
    }
    place.assert_clean();
}

/// What ranks leave behind and what then ends by itself is no zombie for as long as the job takes.
#[test]
fn what_ended_is_not_kept() {
    let place = Place::new();
    let script = "i=0; while [ $i -lt 40 ]; do (true &); i=$((i + 1)); done; echo ready; sleep 100";
    let mut child = ready(place.command(&["run", "-n", "2", "sh", "-c", script]), 2);
    let zombies = || {
        let of = format!("{}", child.id());
        let output = Command::new("ps").args(["--ppid", &of, "-o", "stat="]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.contains('Z')).count()
    };
    until("no zombies", || (zombies() == 0).then_some(()));
    signal(child.id(), "TERM");
    wait(&mut child, Duration::from_secs(20));
    place.assert_clean();
}
