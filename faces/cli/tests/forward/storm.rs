//! Transfers and mounts in a storm: client and server are killed, or stopped for a while or for
//! good, at moments from a seed. What was moved is right in the end, nothing is left behind, and a
//! command whose server is gone ends when `--retry` says.
//!
//! `PETASOS_STORM_ROUNDS=150` has more rounds than the usual ones, and `PETASOS_SEED` another seed.

use crate::{
    common::{Place, signal},
    export::{Export, ended},
    interrupted::{restore_and_remove, seed},
    tree::{Random, assert_part, assert_same, hidden, make},
};
use petasos_testing::{is_root, skip};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Rounds, if nothing else is said.
const ROUNDS: u64 = 6;

/// About how long one transfer takes, in milliseconds.
const LASTS: u64 = 500;

/// What commands are told.
const RETRY: Duration = Duration::from_secs(3);

/// What they may take beyond that, on a machine that does other things. The figures are printed.
const SLACK: Duration = Duration::from_secs(10);

/// A server that is back by itself is back after less than this.
const PAUSE: u64 = 700;

#[derive(Clone, Copy, Debug)]
enum Fault {
    ServerRestarts,
    ServerDies,
    ServerPauses,
    ServerStops,
    ClientDies,
    ClientPauses,
}

const FAULTS: [Fault; 6] = [
    Fault::ServerRestarts,
    Fault::ServerDies,
    Fault::ServerPauses,
    Fault::ServerStops,
    Fault::ClientDies,
    Fault::ClientPauses,
];

fn rounds() -> u64 {
    let chosen = std::env::var("PETASOS_STORM_ROUNDS").ok();
    chosen.map_or(ROUNDS, |text| text.parse().expect("PETASOS_STORM_ROUNDS is a number"))
}

fn pick<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len() as u64) as usize]
}

/// A directory to which one of the commands moves the tree.
struct Moving<'a> {
    place: &'a Place,
    verb: &'a str,
    /// Whether the tree goes to the server.
    there: bool,
    url: String,
    to: PathBuf,
}

impl Moving<'_> {
    fn start(&self, retry: &str) -> Child {
        let remote = format!("{}/there", self.url);
        let (from, to) = if self.there { ("src", &*remote) } else { (&*remote, "back") };
        let words = ["-q", "--fifos", "--rate", "24MiB", "--retry", retry, from, to];
        let mut command = self.place.command(&[&["forward", self.verb], &words[..]].concat());
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The same again, to its end. What is there already is gone into, so that `sync` it is.
    fn complete(&self) {
        let (url, to) = (self.url.clone(), self.to.clone());
        let mut child = Moving { verb: "sync", url, to, ..*self }.start("30s");
        assert!(ended(&mut child, Duration::from_secs(100)), "it does not end");
        assert!(child.wait().unwrap().success());
    }
}

fn pause(pid: u32, random: &mut Random) {
    signal(pid, "STOP");
    thread::sleep(Duration::from_millis(random.below(PAUSE)));
    signal(pid, "CONT");
}

/// A command that has no server any more ends in time, and says so.
fn ends_without_server(child: &mut Child, what: &str, longest: &mut Duration) {
    let begin = Instant::now();
    assert!(ended(child, RETRY + SLACK), "{what}: no end");
    *longest = begin.elapsed().max(*longest);
    assert_eq!(child.wait().unwrap().code(), Some(3), "{what}");
}

#[test]
fn transfers() {
    let seed = seed(21);
    let mut random = Random::new(seed);
    let (mut longest, retry) = (Duration::ZERO, format!("{}s", RETRY.as_secs()));
    for round in 0..rounds() {
        let place = Place::new();
        make(&place.path("src"), 150, 10 << 20, seed + round);
        let own = format!("shm://storm-{}-{round}", std::process::id());
        let url = pick(&mut random, &[&*own, "tcp://127.0.0.1:0"]);
        let (verb, there) =
            pick(&mut random, &[("put", true), ("get", false), ("sync", true), ("sync", false)]);
        let fault = pick(&mut random, &FAULTS);
        let mut export = Export::at(&place, url, &[]);
        let url = export.url.clone();
        if !there {
            export.run(&place, &["put", "-q", "--fifos", "src", "@/there"]).assert(0);
        }
        let to = if there { export.directory.join("there") } else { place.path("back") };
        let moving = Moving { place: &place, verb, there, url: url.clone(), to: to.clone() };
        let mut child = moving.start(&retry);
        let after = random.below(LASTS);
        let what = format!("round {round}: {verb} at {url}, {fault:?} after {after} ms");
        let over = ended(&mut child, Duration::from_millis(after));
        match fault {
            Fault::ServerRestarts => {
                export.kill();
                export = Export::at(&place, &url, &[]);
                assert!(ended(&mut child, Duration::from_secs(100)), "{what}: no end");
                // On a machine that is busy its start may take longer than the client was told to
                // wait.
                assert!(matches!(child.wait().unwrap().code(), Some(0 | 3)), "{what}");
            }
            Fault::ServerDies | Fault::ServerStops if over => {
                assert!(child.wait().unwrap().success(), "{what}");
            }
            Fault::ServerDies => {
                export.kill();
                ends_without_server(&mut child, &what, &mut longest);
                assert_part(&to, &place.path("src"));
                export = Export::at(&place, &url, &[]);
            }
            Fault::ServerStops => {
                signal(export.pid(), "STOP");
                ends_without_server(&mut child, &what, &mut longest);
                assert_part(&to, &place.path("src"));
                signal(export.pid(), "CONT");
            }
            Fault::ServerPauses => {
                pause(export.pid(), &mut random);
                assert!(ended(&mut child, Duration::from_secs(100)), "{what}: no end");
                assert!(child.wait().unwrap().success(), "{what}");
            }
            Fault::ClientDies => {
                let _ = child.kill();
                child.wait().unwrap();
                assert_part(&to, &place.path("src"));
            }
            Fault::ClientPauses => {
                if !over {
                    pause(child.id(), &mut random);
                }
                assert!(ended(&mut child, Duration::from_secs(100)), "{what}: no end");
                assert!(child.wait().unwrap().success(), "{what}");
            }
        }
        moving.complete();
        println!("{what}");
        assert_same(&place.path("src"), &to);
        assert_eq!(hidden(&to), Vec::<PathBuf>::new(), "{what}");
        assert_eq!(export.staged(), 0, "{what}");
        drop(export);
        restore_and_remove(&to);
        place.assert_clean();
    }
    println!("without a server, commands ended after {longest:?} at most, with --retry {RETRY:?}");
}

/// A mount in the foreground; when it is dropped it ends, and has no name any more.
struct Mounted {
    child: Child,
    at: PathBuf,
}

impl Mounted {
    fn new(place: &Place, url: &str) -> Mounted {
        let at = place.path("at");
        let words = ["forward", "mount", "--foreground", "--timeout", "5s", url, "at"];
        let mut command = place.command(&words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mounted = Mounted { child, at };
        let end = Instant::now() + Duration::from_secs(60);
        while !mounted.at.join("here").exists() {
            assert!(Instant::now() < end, "it is not mounted");
            thread::sleep(Duration::from_millis(5));
        }
        mounted
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        signal(self.child.id(), "CONT");
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = Command::new("umount").args(["-l", "-i"]).arg(&self.at).status();
    }
}

fn contents(seed: u64, number: u64) -> Vec<u8> {
    Random::new(seed ^ number << 20).bytes(40_000)
}

/// Writes a file, and asks whether all of it is there: what `close` says of that is not seen here.
fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Writes files until the system says that each was written.
fn write_all(at: &Path, seed: u64) {
    let end = Instant::now() + Duration::from_secs(100);
    for number in 0..40 {
        while let Err(error) = write(&at.join(number.to_string()), &contents(seed, number)) {
            assert!(Instant::now() < end, "file {number} is never written: {error}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn mounts() {
    if !is_root() || fs::File::options().read(true).write(true).open("/dev/fuse").is_err() {
        return skip("only root mounts here, with /dev/fuse");
    }
    let seed = seed(22);
    let mut random = Random::new(seed);
    for round in 0..rounds() {
        let place = Place::new();
        fs::create_dir(place.path("at")).unwrap();
        let own = format!("shm://storm-mount-{}-{round}", std::process::id());
        let url = pick(&mut random, &[&*own, "tcp://127.0.0.1:0"]);
        let fault = pick(&mut random, &FAULTS);
        let mut export = Export::at(&place, url, &[]);
        let url = export.url.clone();
        fs::write(place.path("exp/here"), "").unwrap();
        let mut mounted = Mounted::new(&place, &url);
        let after = random.below(LASTS / 4);
        println!("round {round}: mount of {url}, {fault:?} after {after} ms");
        thread::scope(|scope| {
            let at = mounted.at.clone();
            let writer = scope.spawn(move || write_all(&at, seed + round));
            thread::sleep(Duration::from_millis(after));
            match fault {
                Fault::ServerRestarts | Fault::ServerDies => {
                    export.kill();
                    thread::sleep(Duration::from_millis(random.below(PAUSE)));
                    export = Export::at(&place, &url, &[]);
                }
                Fault::ServerPauses | Fault::ServerStops => pause(export.pid(), &mut random),
                Fault::ClientPauses => pause(mounted.child.id(), &mut random),
                Fault::ClientDies => {
                    let _ = mounted.child.kill();
                    let _ = mounted.child.wait();
                    // What is written before the next one is there lies below it.
                    let _ = Command::new("umount").args(["-l", "-i"]).arg(&mounted.at).status();
                    mounted = Mounted::new(&place, &url);
                }
            }
            writer.join().unwrap();
        });
        // What was written without an error is at the server.
        drop(mounted);
        for number in 0..40 {
            let name = number.to_string();
            let found = fs::read(export.directory.join(&name)).unwrap_or_default();
            let below = fs::read(place.path("at").join(&name)).unwrap_or_default();
            let wanted = contents(seed + round, number);
            assert!(found == wanted || below == wanted, "round {round}: file {number}");
        }
    }
}
