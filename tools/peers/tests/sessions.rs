//! Each peer that is built in can be measured here, and leaves nothing behind.

use petasos_peers::{Error, Peer, Setup, Transport, Waiting, peers};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Not a test: what this executable does when it is started as the other side.
#[test]
#[ignore = "entry of the other process of these tests"]
fn as_server() {
    if let Err(error) = petasos_peers::serve() {
        eprintln!("server: {error}");
    }
}

/// One at a time: peers that spin need their cores, and what is left behind must be this test's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn setup() -> (Setup, TempDir) {
    let scratch = tempfile::tempdir().unwrap();
    let entry = ["as_server", "--exact", "--ignored", "--nocapture"].map(Into::into).to_vec();
    let cores = cores();
    let setup = Setup {
        client: cores.first().copied(),
        server: cores.last().copied(),
        scratch: scratch.path().to_owned(),
        entry,
    };
    (setup, scratch)
}

/// Two that this process may use, or one.
fn cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    let allowed = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core));
    allowed.take(2).collect()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Processes that this one has started and that are still there.
fn children() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|line| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect()
}

/// Runs `work` on a session of each peer that `wanted` picks; what it left behind fails the test.
fn each(wanted: impl Fn(&Peer) -> bool, work: impl Fn(&Peer, &mut dyn petasos_peers::Session)) {
    let _alone = alone();
    let before = names(Path::new("/dev/shm"));
    for peer in peers().into_iter().filter(wanted) {
        let (setup, scratch) = setup();
        let mut session = match peer.open(&setup) {
            Ok(session) => session,
            // No package has Mercury's programs: scripts stand for them, in a test of their own.
            Err(why) if peer.name == MERCURY => {
                eprintln!("{why}");
                continue;
            }
            Err(why) => {
                petasos_testing::skip(&format!("{}: {why}", peer.name));
                continue;
            }
        };
        let version = peer.version().unwrap();
        assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{}: {version}", peer.name);
        work(&peer, &mut *session);
        drop(session);
        assert!(names(scratch.path()).is_empty(), "{}: {:?}", peer.name, names(scratch.path()));
        assert!(children().is_empty(), "{}: {:?}", peer.name, children());
    }
    let left: Vec<_> =
        names(Path::new("/dev/shm")).into_iter().filter(|name| !before.contains(name)).collect();
    // Others' as well, while this ran; those of the programs begin with a process id.
    let ours = |name: &String| name.contains("petasos") || name.contains(":0:");
    assert!(!left.iter().any(ours), "left in /dev/shm: {left:?}");
}

const BRIEF: Duration = Duration::from_millis(30);

const MERCURY: &str = "hg_rate";

#[test]
fn echoes() {
    each(
        |_| true,
        |peer, session| {
            for bytes in [0, 64, 65_536] {
                let begin = Instant::now();
                let found = session.echo(bytes.max(peer.smallest), BRIEF);
                let times = found.unwrap_or_else(|e| panic!("{peer:?}, {bytes} bytes: {e}"));
                assert!(times.median > 50.0 && times.median < 1e9, "{peer:?}: {times:?}");
                assert!(times.samples > 0, "{peer:?}: {times:?}");
                if let (Some(p99), Some(p99_9)) = (times.p99, times.p99_9) {
                    assert!(p99 > 0.0 && p99 <= p99_9, "{peer:?}: {times:?}");
                }
                assert!(begin.elapsed() < Duration::from_secs(10), "{peer:?}");
            }
        },
    );
}

#[test]
fn rates() {
    each(
        |_| true,
        |peer, session| {
            for in_flight in [1, 16, 64] {
                match session.rate(peer.smallest, in_flight, BRIEF) {
                    Ok(rate) => assert!(rate > 0.0, "{peer:?}: {rate}"),
                    Err(Error::Unsupported { .. }) => assert!(peer.name.contains('_')),
                    Err(error) => panic!("{peer:?}, {in_flight} in flight: {error}"),
                }
            }
        },
    );
}

#[test]
fn large_arguments() {
    each(
        |_| true,
        |peer, session| {
            // The programs take long to begin.
            let sizes = if peer.name.contains('_') { &[1 << 20][..] } else { &[1 << 20, 16 << 20] };
            for &bytes in sizes {
                let found = session.stream(bytes, BRIEF);
                let rate = found.unwrap_or_else(|e| panic!("{peer:?}, {bytes} bytes: {e}"));
                assert!(rate > 0.001 && rate < 1000.0, "{peer:?}: {rate}");
            }
            if sizes.len() > 1 {
                // And back to a small one.
                session.echo(64, BRIEF).unwrap();
            }
        },
    );
}

#[test]
fn on_one_core() {
    let _alone = alone();
    for peer in peers() {
        let (setup, _scratch) = setup();
        let setup = Setup { server: setup.client, ..setup };
        match peer.open(&setup) {
            Ok(mut session) => assert!(session.echo(64, BRIEF).unwrap().median > 0.0, "{peer:?}"),
            // The programs cannot be made to yield.
            Err(why) => assert!(peer.name.contains('_'), "{peer:?}: {why}"),
        }
    }
}

#[test]
fn a_server_that_cannot_be_started_is_said() {
    let _alone = alone();
    for peer in peers() {
        let (setup, _scratch) = setup();
        // The harness finds no such test, and ends.
        let setup = Setup { entry: vec!["no_such_entry".into(), "--exact".into()], ..setup };
        let begin = Instant::now();
        // The programs start nothing before they are measured.
        let failed = match peer.open(&setup) {
            Ok(mut session) => session.echo(64, BRIEF).unwrap_err().to_string(),
            Err(why) => why.to_string(),
        };
        assert!(failed.contains(peer.name), "{failed}");
        assert!(begin.elapsed() < Duration::from_secs(15), "{peer:?}");
        assert!(children().is_empty(), "{peer:?}");
    }
}

#[test]
fn what_there_is() {
    for peer in peers() {
        assert!(!peer.how.contains('\n') && !peer.how.is_empty(), "{peer:?}");
        let spins_over_a_socket =
            peer.transport == Transport::Unix && peer.waiting == Waiting::Spinning;
        assert!(!spins_over_a_socket, "{peer:?}");
    }
    let programs = peers().into_iter().filter(|peer| peer.name.contains('_')).count();
    assert_eq!(programs, 10);
    let sleeping = peers().into_iter().filter(|peer| peer.waiting == Waiting::Sleeping).count();
    assert!(sleeping >= 2);
}

#[test]
fn versions_are_those_that_are_built() {
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap();
    for peer in peers().into_iter().filter(|peer| !peer.name.contains('_')) {
        let package = if peer.name.starts_with("Cap") { "capnp-rpc" } else { peer.name };
        let version = peer.version().unwrap();
        let entry = format!("name = \"{package}\"\nversion = \"{version}\"\n");
        assert!(lock.contains(&entry), "{package} is not {version}");
    }
}

/// Stands for a server of Mercury's: writes where it is, once it is asked to be at a file, and goes
/// on until its client is done.
const SERVER: &str = r##"#!/bin/sh
while [ "$1" != -f ]; do shift; done
sleep 0.2
echo na+sm://1-0 > "$2"
until [ -e "$2.done" ]; do sleep 0.01; done
rm "$2.done"
"##;

/// Stands for clients of Mercury's: 2 us for each call, and half of that is said for both ways.
const CLIENT: &str = r##"#!/bin/sh
[ "$1" = -h ] && echo "    -B, --bidirectional Bidirectional communication" && exit
case "$*" in *-S*) echo "# RPC rate v9.8.7"; exit;; esac
time=2.00 rate=500000
case "$*" in *--bidirectional*) time=1.00 rate=1000000;; esac
case "$0" in *hg_bw_write) time=1024.00 rate=976.56;; esac
while [ "$1" != -f ]; do shift; done
grep -q na+sm "$2" || exit 7
echo "# Size  figures"
echo "64  $time  $rate"
touch "$2.done"
"##;

#[test]
#[ignore = "run by mercury, which gives it a PATH"]
fn mercury_by_scripts() {
    each(
        |peer| peer.name == MERCURY,
        |peer, session| {
            assert_eq!(peer.version().unwrap(), "9.8.7");
            assert_eq!(session.echo(64, BRIEF).unwrap().median, 2000.0);
            assert_eq!(session.rate(0, 16, BRIEF).unwrap(), 500_000.0);
            assert_eq!(session.stream(1 << 20, BRIEF).unwrap(), 1024.0 * 1_048_576.0 / 1e9);
        },
    );
}

#[test]
fn mercury() {
    let _alone = alone();
    let programs = tempfile::tempdir().unwrap();
    for (name, script) in [("hg_rate", CLIENT), ("hg_bw_write", CLIENT), ("hg_perf_server", SERVER)]
    {
        let path = programs.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = format!("{}:/usr/bin:/bin", programs.path().display());
    let ran = Command::new(std::env::current_exe().unwrap())
        .args(["mercury_by_scripts", "--exact", "--ignored", "--nocapture"])
        .env("PATH", path)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(ran.status.success() && said.contains("1 passed"), "{said}{ran:?}");
}
