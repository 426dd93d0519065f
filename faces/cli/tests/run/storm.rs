//! Processes of jobs are killed and stopped, any of them at any moment: each job ends in its time,
//! and leaves nothing.
//!
//! `PETASOS_STORM` says how many rounds (default: 12), `PETASOS_STORM_SEED` which (default: another
//! one each time, which is said when a round fails).

use crate::{
    common::{Place, child_of, signal, until, wait},
    exists,
    leftovers::Marker,
};
use petasos_testing::Xorshift;
use std::{
    fs,
    process::{Child, Stdio},
    time::{Duration, Instant, SystemTime},
};

/// A job ends within this time once it is asked to, or has a reason: three seconds to end by
/// itself, as many to be made to, as many until a daemon that does not answer is given up; the rest
/// is for a machine that is busy.
const PROMISED: Duration = Duration::from_secs(25);

/// A run can be repeated from its seed.
struct Dice(Xorshift);

impl Dice {
    fn throw(&mut self, sides: u64) -> u64 {
        (self.0.draw() >> 11) % sides
    }
}

/// A process of the job, if it is there by now.
fn victim(launcher: &Child, which: u64, marker: &Marker) -> (&'static str, u32) {
    let launcher = launcher.id();
    let found = match which {
        0 => Some(("rank", child_of(launcher, &format!("sleep\0{}", marker.0)))),
        1 => Some(("daemon", child_of(launcher, "pmix-daemon"))),
        2 => Some(("guard", child_of(launcher, "pmix-guard"))),
        3 => {
            let daemon = child_of(launcher, "pmix-daemon");
            Some(("guard of a daemon", daemon.and_then(|pid| child_of(pid, "pmix-guard"))))
        }
        4 => {
            let daemon = child_of(launcher, "pmix-daemon");
            let rank = daemon.and_then(|pid| child_of(pid, &format!("sleep\0{}", marker.0)));
            Some(("rank of a daemon", rank))
        }
        _ => None,
    };
    found.and_then(|(name, pid)| Some((name, pid?))).unwrap_or(("launcher", launcher))
}

#[test]
fn jobs_end_in_time_and_leave_nothing_whoever_is_killed_or_stopped() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let now =
        || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (rounds, seed) = (number("PETASOS_STORM"), number("PETASOS_STORM_SEED"));
    let mut seed = seed.unwrap_or_else(now) | 1;
    for round in 0..rounds.unwrap_or(12) {
        one(round, seed);
        seed = seed.wrapping_add(2);
    }
}

fn one(round: u64, seed: u64) {
    let mut dice = Dice(Xorshift::new(seed));
    dice.throw(2);
    let (place, marker) = (Place::new(), Marker::new(300 + round as u32));
    let script = format!(
        "(setsid sleep {marker} </dev/null >/dev/null 2>&1 &); sleep {marker} & exec sleep {marker}"
    );
    let hosts = ["--hosts", "localhost:2,x:1", "--remote-start", "env X={host}"];
    let mut command =
        place.command(&[&["run", "-n", "3"], &hosts[..], &["sh", "-c", &script]].concat());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(dice.throw(400)));
    let (name, pid) = victim(&child, dice.throw(6), &marker);
    let stops = dice.throw(2) == 0;
    signal(pid, if stops { "STOP" } else { "KILL" });
    let what = format!("round {round}: {name} {pid}, stopped: {stops}, PETASOS_STORM_SEED={seed}");
    std::thread::sleep(Duration::from_millis(dice.throw(100)));
    // A process that is stopped holds up no other for good, but for the launcher itself.
    let begun = Instant::now();
    match (name, stops) {
        ("launcher", true) => signal(pid, "KILL"),
        ("launcher", false) => {}
        _ => signal(child.id(), "TERM"),
    }
    let status = wait(&mut child, PROMISED);
    let took = begun.elapsed();
    assert!(!status.success(), "{what}: {status}");
    until(&format!("the end of all processes: {what}"), || (!exists(&marker.0)).then_some(()));
    let empty = || fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until(&format!("an empty directory: {what}"), empty);
    place.assert_clean();
    println!("{what}: {took:?}");
}
