//! What becomes of a mount whose server dies.

use crate::harness::{can_mount, finish, have, mount, pattern, serve};
use petasos_forward::mount::{MountOptions, Unmounted};
use petasos_testing::{again, role};
use std::{
    fs,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

const EXPORT: &str = "PETASOS_TEST_EXPORT";
const URL: &str = "PETASOS_TEST_URL";

/// A server in a process of its own, until that is killed.
fn server_process() {
    let export = PathBuf::from(std::env::var_os(EXPORT).unwrap());
    let server = serve(&export, &std::env::var(URL).unwrap());
    println!("\nat {}", server.addresses()[0]);
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn start(name: &str, export: &Path, url: &str) -> (petasos_testing::Process, String) {
    let starter = again(name, "server").env(EXPORT, export.to_str().unwrap()).env(URL, url);
    let mut process = starter.start();
    let url = process.line("at ");
    (process, url)
}

fn dies(name: &str, any: &str) {
    if role().is_some() {
        return server_process();
    }
    if !can_mount() || !have(&["dd"]) {
        return;
    }
    let directory = tempfile::Builder::new().prefix("petasos-mount-").tempdir().unwrap();
    let (export, at) = (directory.path().join("export"), directory.path().join("at"));
    fs::create_dir(&export).unwrap();
    fs::create_dir(&at).unwrap();
    let (mut server, url) = start(name, &export, any);
    let mut mounted = mount(&url, &at, MountOptions::default());
    fs::write(at.join("kept"), b"kept").unwrap();
    let open = fs::File::open(at.join("kept")).unwrap();

    // While dd writes without end.
    let target = format!("of={}", at.join("endless").display());
    let writer = thread::spawn(move || {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "bs=1M", "count=200000"]).arg(target);
        finish(dd, Duration::from_secs(100))
    });
    let grows = Instant::now() + Duration::from_secs(30);
    while fs::metadata(export.join("endless")).map_or(0, |meta| meta.len()) < 8 << 20 {
        assert!(Instant::now() < grows, "dd does not write");
        thread::sleep(Duration::from_millis(5));
    }
    server.kill();
    fs::OpenOptions::new().write(true).open(export.join("endless")).unwrap().set_len(0).unwrap();
    let output = writer.join().unwrap();
    assert!(!output.status.success(), "dd is told: {}", String::from_utf8_lossy(&output.stderr));

    // Nothing waits for ever, and nothing is made up.
    let begun = Instant::now();
    let refused = fs::read_dir(&at).and_then(|mut names| names.next().transpose());
    assert!(refused.is_err(), "{refused:?}");
    assert!(fs::write(at.join("new"), b"x").is_err());
    assert!(begun.elapsed() < Duration::from_secs(30));

    // Another server at that address: new openings work, old files do not.
    let (_server, again) = start(name, &export, &url);
    assert_eq!(again, url);
    let works = Instant::now() + Duration::from_secs(30);
    while let Err(error) = fs::write(at.join("new"), b"works again") {
        assert!(Instant::now() < works, "{error}");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::read(export.join("new")).unwrap(), b"works again");
    assert_eq!(fs::read(at.join("kept")).unwrap(), b"kept");
    let mut byte = [0; 16];
    let _ = open.read_at(&mut byte, 1 << 20);
    drop(open);
    let data = pattern(3 << 20, 1);
    fs::write(at.join("large"), &data).unwrap();
    assert!(fs::read(at.join("large")).unwrap() == data);
    assert_eq!(mounted.unmount().unwrap(), Unmounted::Clean);
}

#[test]
fn the_server_dies_shm() {
    dies("ends::the_server_dies_shm", "shm://*");
}

#[test]
fn the_server_dies_tcp() {
    dies("ends::the_server_dies_tcp", "tcp://127.0.0.1:0");
}

#[test]
fn umount_of_a_dead_mount() {
    let name = "ends::umount_of_a_dead_mount";
    if role().is_some() {
        return server_process();
    }
    if !can_mount() || !have(&["umount"]) {
        return;
    }
    let directory = tempfile::Builder::new().prefix("petasos-mount-").tempdir().unwrap();
    let (export, at) = (directory.path().join("export"), directory.path().join("at"));
    fs::create_dir(&export).unwrap();
    fs::create_dir(&at).unwrap();
    let (mut server, url) = start(name, &export, "shm://*");
    let mounted = mount(&url, &at, MountOptions::default());
    let file = fs::File::create(at.join("f")).unwrap();
    file.write_all_at(b"text", 0).unwrap();
    server.kill();
    let _ = file.write_all_at(b"more", 0);
    drop(file);
    let mut umount = Command::new("umount");
    umount.arg("-i").arg(&at);
    let output = finish(umount, Duration::from_secs(60));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(mounted.wait(Duration::from_secs(20)), "it knows that it was unmounted");
}

#[test]
fn nobody_there() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let endpoint = petasos::open("shm://*", &petasos::OpenOptions::default()).unwrap();
    let server = petasos::fabric::Address::parse("shm://petasos-no-server-is-there").unwrap();
    let begun = Instant::now();
    let options = MountOptions::default();
    let refused =
        petasos_forward::mount::Mounted::new(endpoint, &server, directory.path(), options);
    assert!(refused.is_err());
    assert!(begun.elapsed() < Duration::from_secs(30));
}
