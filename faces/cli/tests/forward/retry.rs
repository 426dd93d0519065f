//! `--retry` is one time for the whole command, whatever it was about to do: with many files,
//! killed and stopped servers, and at the first contact.

use crate::{
    common::{Place, Ran, signal},
    export::{Export, ended},
};
use std::{
    fs,
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

/// Enough that one failure after the other would take minutes.
const FILES: usize = 3000;

/// How long commands are told to look for a server.
const RETRY: u64 = 1;

/// What they may take beyond that, on a machine that does other things. The figures are printed.
const SLACK: Duration = Duration::from_secs(10);

/// How a server goes away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Killed,
    /// Its kernel still answers for it.
    Stopped,
}

impl Gone {
    fn make(self, export: &mut Export) {
        match self {
            Gone::Killed => export.kill(),
            Gone::Stopped => signal(export.pid(), "STOP"),
        }
    }
}

fn many_files(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for number in 0..FILES {
        fs::write(directory.join(format!("{number:05}")), [number as u8; 1024]).unwrap();
    }
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, Iterator::count)
}

fn start(place: &Place, arguments: &[&str]) -> Child {
    let mut command = place.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until some files are there, and most are not.
fn until_under_way(child: &mut Child, target: &Path) {
    let end = Instant::now() + Duration::from_secs(60);
    while entries(target) < 20 {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it was under way");
        assert!(Instant::now() < end, "it does not begin");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How a command ends, and when, whose server is gone.
#[track_caller]
fn ends_in_time(mut child: Child, what: &str) -> Ran {
    let begin = Instant::now();
    let most = Duration::from_secs(RETRY) + SLACK;
    let in_time = ended(&mut child, most);
    println!("{what}: ended after {:?}", begin.elapsed());
    if !in_time {
        let _ = child.kill();
        let _ = child.wait();
        panic!("{what}: not ended after {most:?}, with --retry {RETRY}s");
    }
    Ran::of(&child.wait_with_output().unwrap()).assert(3)
}

fn lost_in_the_middle(transport: &str, verb: &str, gone: Gone) {
    let place = Place::new();
    let mut export = Export::start(&place, transport, &[]);
    let there = format!("{}/there", export.url);
    let (from, to, target) = match verb {
        "get" => (&*there, "back", place.path("back")),
        _ => ("src", &*there, export.directory.join("there")),
    };
    many_files(&if verb == "get" { export.directory.join("there") } else { place.path("src") });
    let slow = ["--rate", "512KiB", "--retry", "1s", from, to];
    let mut child = start(&place, &[&["forward", verb], &slow[..]].concat());
    until_under_way(&mut child, &target);
    gone.make(&mut export);
    let ran = ends_in_time(child, &format!("{verb}, {transport}, {gone:?}"));
    let told = ran.err.lines().filter(|line| line.starts_with("petasos: ")).count();
    assert_eq!(told, 1, "one error for all: {ran:?}");
    ran.says("not transferred").says("within 1s").says("try: start the server again");
}

#[test]
fn put_and_the_server_is_killed() {
    lost_in_the_middle("shm", "put", Gone::Killed);
    lost_in_the_middle("tcp", "put", Gone::Killed);
}

#[test]
fn put_and_the_server_is_stopped() {
    lost_in_the_middle("shm", "put", Gone::Stopped);
    lost_in_the_middle("tcp", "put", Gone::Stopped);
}

#[test]
fn get_and_the_server_is_killed() {
    lost_in_the_middle("tcp", "get", Gone::Killed);
}

#[test]
fn get_and_the_server_is_stopped() {
    lost_in_the_middle("shm", "get", Gone::Stopped);
    lost_in_the_middle("tcp", "get", Gone::Stopped);
}

#[test]
fn sync_and_the_server_is_gone() {
    lost_in_the_middle("shm", "sync", Gone::Killed);
    lost_in_the_middle("tcp", "sync", Gone::Stopped);
}

/// One large file, which is under way in pieces.
#[test]
fn a_large_file_and_the_server_is_gone() {
    for (transport, gone) in [("shm", Gone::Killed), ("tcp", Gone::Stopped)] {
        let place = Place::new();
        fs::write(place.path("large"), vec![7; 64 << 20]).unwrap();
        let mut export = Export::start(&place, transport, &[]);
        let there = format!("{}/large", export.url);
        let slow = ["forward", "put", "--rate", "16MiB", "--retry", "1s", "large", &there];
        let mut child = start(&place, &slow);
        let end = Instant::now() + Duration::from_secs(60);
        while export.staged() == 0 {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < end);
            std::thread::sleep(Duration::from_millis(2));
        }
        gone.make(&mut export);
        ends_in_time(child, &format!("a large file, {transport}, {gone:?}"))
            .says("not transferred");
    }
}

#[test]
fn the_first_contact() {
    let place = Place::new();
    many_files(&place.path("src"));
    for url in ["tcp://127.0.0.1:1/x", "shm://nobody-is-here/x"] {
        for (verb, from, to) in [("put", "src", url), ("get", url, "back"), ("sync", "src", url)] {
            let child = start(&place, &["forward", verb, "--retry", "1s", from, to]);
            ends_in_time(child, &format!("{verb}, no server at {url}"));
        }
    }
    for transport in ["shm", "tcp"] {
        let export = Export::start(&place, transport, &[]);
        signal(export.pid(), "STOP");
        let there = format!("{}/there", export.url);
        let child = start(&place, &["forward", "put", "--retry", "1s", "src", &there]);
        ends_in_time(child, &format!("put, stopped at {transport}"));
        signal(export.pid(), "CONT");
    }
}

/// A server that is stopped for less than `--retry` was never gone.
#[test]
fn a_server_that_goes_on_in_time() {
    let place = Place::new();
    many_files(&place.path("src"));
    let export = Export::start(&place, "tcp", &[]);
    let there = format!("{}/there", export.url);
    let slow = ["forward", "put", "-q", "--rate", "1MiB", "--retry", "60s", "src", &there];
    let mut child = start(&place, &slow);
    until_under_way(&mut child, &export.directory.join("there"));
    signal(export.pid(), "STOP");
    assert!(!ended(&mut child, Duration::from_secs(2)));
    signal(export.pid(), "CONT");
    assert!(ended(&mut child, Duration::from_secs(60)));
    assert!(child.wait().unwrap().success());
    assert_eq!(entries(&export.directory.join("there")), FILES);
}

/// The time begins anew with each answer: two restarts may take longer together.
#[test]
fn each_restart_has_its_time() {
    const RETRY: &str = "9s";
    const DOWN: Duration = Duration::from_secs(5);
    let place = Place::new();
    many_files(&place.path("src"));
    let mut export = Export::at(&place, "tcp://127.0.0.1:0", &[]);
    let (url, target) = (export.url.clone(), export.directory.join("there"));
    let there = format!("{url}/there");
    let slow = ["forward", "put", "-q", "--rate", "256KiB", "--retry", RETRY, "src", &there];
    let mut child = start(&place, &slow);
    for _ in 0..2 {
        let before = entries(&target);
        let end = Instant::now() + Duration::from_secs(60);
        while entries(&target) < before + 100 {
            assert!(child.try_wait().unwrap().is_none() && Instant::now() < end);
            std::thread::sleep(Duration::from_millis(2));
        }
        export.kill();
        assert!(!ended(&mut child, DOWN));
        export = Export::at(&place, &url, &[]);
    }
    assert!(ended(&mut child, Duration::from_secs(100)));
    let ran = Ran::of(&child.wait_with_output().unwrap()).assert(0);
    assert_eq!(entries(&target), FILES, "{ran:?}");
}
