//! Ranks that fail and are started again.

use crate::{
    common::{Place, Ran, wait},
    example,
    hosts::{START, on_a, three},
    shell,
};
use petasos_testing::Hosts;
use std::{
    io::{BufRead, BufReader, Write},
    process::Stdio,
    time::Duration,
};

/// It was killed, and the call went around by way of its successor, at the same address.
fn went_around(ran: Ran) {
    let ran = ran.assert(0).says("petasos: rank 1 was restarted once");
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    let around = "around the ring, and restarted so often: [0, 1, 0]";
    assert_eq!(lines, [around, "rank 1: restart 1"], "{ran:?}");
}

#[test]
fn a_rank_that_is_killed_is_started_again_and_the_ring_completes() {
    let place = Place::new();
    let program = example("ring_again");
    went_around(place.run(&["run", "-n", "3", "--keep-going", program.to_str().unwrap()]));
    place.assert_clean();
}

#[test]
fn so_it_is_on_several_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let (program, list) = (example("ring_again"), three(&hosts, [1, 1, 1]));
    let options = ["run", "-n", "3", "--keep-going", "--hosts", &list, START[0], START[1]];
    let arguments = [&options[..], &[program.to_str().unwrap()]].concat();
    went_around(Ran::of(&on_a(&hosts, &place.command(&arguments)).output().unwrap()));
    place.assert_clean();
}

#[test]
fn a_rank_that_fails_again_and_again_fails_the_job_in_the_end() {
    let place = Place::new();
    // What it left in the background ends with it, each time.
    let script = "[ $PETASOS_RANK = 0 ] && exec sleep 100; echo life $PETASOS_RESTARTS; sleep 7346.5 & exit 3";
    let options = ["-n", "2", "--restart-failed", "--restarts", "2"];
    let ran = shell(&place, &options, script).assert(3);
    assert_eq!(ran.out, "life 0\nlife 1\nlife 2\n");
    let ran = ran.says("rank 1 was restarted 2 times\n");
    ran.says("it exited with code 3, after it was restarted 2 times");
    assert!(!crate::exists("7346.5"));
    // The others go on if they are to; one that succeeds in the end is no failure.
    let script = "sleep 0.2; [ $PETASOS_RANK = $PETASOS_RESTARTS ]";
    let options = [&options[2..], &["-n", "4", "--keep-going", "--json"]].concat();
    let ran = shell(&place, &options, script).assert(1);
    let ended: serde_json::Value = serde_json::from_str(ran.err.trim()).unwrap();
    let of = |rank: &str| {
        let rank = &ended["ranks"][rank];
        (rank["restarts"].as_u64().unwrap(), rank["end"].as_str().unwrap().to_owned())
    };
    let (done, failed) = ("it exited with code 0".to_owned(), "it exited with code 1".to_owned());
    let expected = [(0, done.clone()), (1, done.clone()), (2, done), (2, failed)];
    assert_eq!(["0", "1", "2", "3"].map(of), expected);
    assert!(ended["why"].as_str().unwrap().starts_with("rank 3 on "), "{ended}");
    // A program that is not there is not looked for again.
    let ran = place.run(&["run", "--restart-failed", "nothing-of-this-name"]).assert(127);
    assert!(!ran.err.contains("restarted"), "{ran:?}");
    place.assert_clean();
}

#[test]
fn it_reads_and_is_seen_as_the_one_before() {
    let place = Place::new();
    let script = "[ $PETASOS_RESTARTS = 1 ] || exit 1; echo up; cat";
    let mut command = place.command(&["run", "--restart-failed", "sh", "-c", script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "up");
    let seen = place.run(&["ps", "--json"]).assert(0).json();
    assert_eq!(seen[0]["ranks"][0]["restarts"].as_u64(), Some(1), "{seen}");
    writeln!(child.stdin.take().unwrap(), "read this").unwrap();
    assert_eq!(lines.next().unwrap(), "read this");
    assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), Some(0));
    // Where the input has ended before, it finds it so.
    let ran = shell(&place, &["--restart-failed"], "cat; [ $PETASOS_RESTARTS = 1 ]").assert(0);
    ran.says("rank 0 was restarted once");
    place.assert_clean();
}
