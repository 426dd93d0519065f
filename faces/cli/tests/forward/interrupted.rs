//! Transfers that are interrupted at any moment go on and end well: client and server are killed,
//! at moments from a seed.
//!
//! `PETASOS_SEED` chooses another seed than the usual one; what fails says which it was.

use crate::{
    common::Place,
    export::{Export, ended},
    tree::{Random, assert_part, assert_same, hidden, make},
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Stdio},
    time::Duration,
};

const LARGE: usize = 48 << 20;
const RATE: &str = "128MiB";
/// About how long one transfer takes.
const LASTS: u64 = 450;
const ROUNDS: u64 = 5;

struct Round<'a> {
    place: &'a Place,
    put: bool,
    url: String,
    to: PathBuf,
}

impl Round<'_> {
    fn start(&self) -> Child {
        let there = format!("{}/there", self.url);
        let pair = if self.put { ["src", &there] } else { [&there, "back"] };
        let verb = if self.put { "put" } else { "get" };
        let arguments = ["forward", verb, "-q", "--fifos", "--rate", RATE, pair[0], pair[1]];
        let mut command = self.place.command(&arguments);
        // Some entry of a directory that is there already must not be taken for its name.
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        command.spawn().unwrap()
    }

    /// Runs it to the end.
    fn finish(&self) {
        let mut child = self.start();
        assert!(ended(&mut child, Duration::from_secs(60)), "it does not end");
        assert!(child.wait().unwrap().success());
    }

    fn remove(&self) {
        if self.to.exists() {
            restore_and_remove(&self.to);
        }
    }
}

pub(crate) fn restore_and_remove(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    if let Ok(found) = fs::metadata(path.join("closed"))
        && found.is_dir()
    {
        fs::set_permissions(path.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::remove_dir_all(path).unwrap();
}

/// What trees and moments are made from: as `PETASOS_SEED` says, or else `usual`. It is printed,
/// which shows it where a test fails.
pub(crate) fn seed(usual: u64) -> u64 {
    let chosen = std::env::var("PETASOS_SEED").ok();
    let seed = chosen.map_or(usual, |text| text.parse().expect("PETASOS_SEED is a number"));
    println!("PETASOS_SEED={seed}");
    seed
}

/// The client is killed, and begun again.
fn client_killed(transport: &str, put: bool, usual: u64) {
    let seed = seed(usual);
    let place = Place::new();
    make(&place.path("src"), 500, LARGE, seed);
    let export = Export::start(&place, transport, &[]);
    let mut random = Random::new(seed);
    let to = if put { export.directory.join("there") } else { place.path("back") };
    let round = Round { place: &place, put, url: export.url.clone(), to };
    if !put {
        export.run(&place, &["put", "-q", "--fifos", "src", "@/there"]).assert(0);
    }
    for _ in 0..ROUNDS {
        round.remove();
        let mut child = round.start();
        let after = random.below(LASTS);
        if !ended(&mut child, Duration::from_millis(after)) {
            child.kill().unwrap();
        }
        child.wait().unwrap();
        assert_part(&round.to, &place.path("src"));
        // What was named has no other name now than before: a directory that is there is gone into.
        let (from, to) = (place.path("src"), round.to.clone());
        match put {
            true => export.run(&place, &["sync", "-q", "--fifos", "src", "@/there"]).assert(0),
            false => export.run(&place, &["sync", "-q", "--fifos", "@/there", "back"]).assert(0),
        };
        assert_same(&from, &to);
        assert_eq!(hidden(&to), Vec::<PathBuf>::new(), "killed after {after} ms");
        assert_eq!(export.staged(), 0, "killed after {after} ms");
    }
}

/// The server is killed, and started again; the client goes on by itself.
fn server_killed(url: &str, put: bool, usual: u64) {
    let seed = seed(usual);
    let place = Place::new();
    make(&place.path("src"), 500, LARGE, seed);
    let mut export = Export::at(&place, url, &[]);
    let mut random = Random::new(seed);
    let to = if put { export.directory.join("there") } else { place.path("back") };
    let round = Round { place: &place, put, url: export.url.clone(), to };
    if !put {
        export.run(&place, &["put", "-q", "--fifos", "src", "@/there"]).assert(0);
    }
    for _ in 0..ROUNDS {
        round.remove();
        let mut child = round.start();
        let after = random.below(LASTS);
        ended(&mut child, Duration::from_millis(after));
        let url = export.url.clone();
        export.kill();
        assert_part(&round.to, &place.path("src"));
        export = Export::at(&place, &url, &[]);
        assert!(ended(&mut child, Duration::from_secs(60)), "killed after {after} ms: no end");
        assert!(child.wait().unwrap().success(), "killed after {after} ms");
        assert_same(&place.path("src"), &round.to);
        assert_eq!(hidden(&round.to), Vec::<PathBuf>::new(), "killed after {after} ms");
        assert_eq!(export.staged(), 0, "killed after {after} ms");
    }
    round.remove();
    round.finish();
}

#[test]
fn putting_the_client_is_killed() {
    client_killed("tcp", true, 11);
}

#[test]
fn getting_the_client_is_killed() {
    client_killed("shm", false, 12);
}

#[test]
fn putting_the_server_is_killed() {
    server_killed(&format!("shm://forward-test-{}", std::process::id()), true, 13);
}

#[test]
fn getting_the_server_is_killed() {
    server_killed("tcp://127.0.0.1:0", false, 14);
}

/// What was sent before is not sent again.
#[test]
fn a_large_file_goes_on() {
    let place = Place::new();
    fs::write(place.path("large"), Random::new(5).bytes(LARGE)).unwrap();
    let export = Export::start(&place, "tcp", &[]);
    let there = format!("{}/large", export.url);
    for (put, from, to) in [(true, "large", there.as_str()), (false, there.as_str(), "back")] {
        let verb = if put { "put" } else { "get" };
        let slow = ["forward", verb, "-q", "--rate", "64MiB", from, to];
        let mut child = place.command(&slow).spawn().unwrap();
        assert!(!ended(&mut child, Duration::from_millis(500)), "it was to take longer");
        child.kill().unwrap();
        child.wait().unwrap();
        let done = place.run(&["forward", verb, "--json", from, to]).assert(0);
        let summary = &done.json()["summary"];
        let bytes = |name: &str| summary[name].as_u64().unwrap();
        assert!(bytes("resumed_bytes") >= 4 << 20, "{done:?}");
        assert_eq!(bytes("resumed_bytes") + bytes("bytes"), LARGE as u64);
    }
    assert!(fs::read(place.path("large")).unwrap() == fs::read(place.path("back")).unwrap());
    // Unless that is wanted.
    let mut child = place.command(&["forward", "put", "-q", "--rate", "64MiB", "large", &there]);
    let mut child = child.spawn().unwrap();
    ended(&mut child, Duration::from_millis(300));
    child.kill().unwrap();
    child.wait().unwrap();
    let done = place.run(&["forward", "put", "--no-resume", "--json", "large", &there]).assert(0);
    assert_eq!(done.json()["summary"]["resumed_bytes"], 0);
    assert_eq!(export.staged(), 0);
}
