//! A disk that is full: the process that wrote too much gets the error, though the write was
//! answered before; no other does.

use crate::harness::{can_mount, have, mount, pattern, serve};
use petasos_forward::mount::MountOptions;
use petasos_testing::{again, role, skip};
use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

const EXPORT: &str = "PETASOS_TEST_EXPORT";
const URL: &str = "PETASOS_TEST_URL";
/// A small file system where the server exports, which only the server sees.
const SCRIPT: &str = "mount -t tmpfs -o size=8m none \"$PETASOS_TEST_EXPORT\" && exec \"$@\"";

fn is_full(path: &Path, name: &str) {
    if role().is_some() {
        let export = PathBuf::from(std::env::var_os(EXPORT).unwrap());
        let server = serve(&export, &std::env::var(URL).unwrap());
        println!("\nat {}", server.addresses()[0]);
        let _ = std::io::stdin().read_line(&mut String::new());
        return;
    }
    let any = if name.ends_with("tcp") { "tcp://127.0.0.1:0" } else { "shm://*" };
    let [export, one, other] = ["export", "one", "other"].map(|name| path.join(name));
    [&export, &one, &other].into_iter().for_each(|directory| fs::create_dir(directory).unwrap());
    let server = again(name, "server").env(EXPORT, export.to_str().unwrap()).env(URL, any);
    let mut server = server.by("unshare", &["-rm", "sh", "-c", SCRIPT, "sh"]).start();
    let url = server.line("at ");
    let first = mount(&url, &one, MountOptions::default());
    let second = mount(&url, &other, MountOptions::default());

    // Half a MiB is left.
    let data = pattern((7 << 20) + (1 << 19), 4);
    fs::write(other.join("there"), &data).unwrap();
    let there = File::options().read(true).write(true).open(other.join("there")).unwrap();
    let mut large = File::create(one.join("large")).unwrap();
    let answered = large.write(&[1; 1 << 20]).unwrap();
    assert!(answered > 1 << 19, "more was answered than there is room for: {answered}");
    // A process that closes a copy of the descriptor, as any child does that starts another
    // program, takes the error from no other.
    drop(large.try_clone().unwrap());
    let error = large.sync_all().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull, "{error}");
    // As long as it is full, the other one reads, and writes where there is room: over what is
    // there.
    let mut all = vec![0; data.len()];
    there.read_exact_at(&mut all, 0).unwrap();
    assert!(all == data);
    let new = pattern(300_000, 5);
    there.write_all_at(&new, 1 << 20).unwrap();
    there.sync_all().unwrap();
    assert!(fs::read(one.join("there")).unwrap()[1 << 20..][..300_000] == new);
    // A process that does not call `fsync` gets the error when it closes.
    let arguments = ["if=/dev/zero", "of=closed", "bs=1M", "count=1"];
    let closed = Command::new("dd").args(arguments).current_dir(&one).output().unwrap();
    let said = String::from_utf8_lossy(&closed.stderr);
    assert!(!closed.status.success() && said.contains("No space left on device"), "{said}");

    // What is removed is room for all.
    drop(large);
    fs::remove_file(one.join("large")).unwrap();
    fs::remove_file(one.join("closed")).unwrap();
    let mut fits = File::create(other.join("fits")).unwrap();
    fits.write_all(&new).unwrap();
    fits.sync_all().unwrap();
    drop((fits, there));
    let mut again = File::create(one.join("again")).unwrap();
    again.write_all(&new[..100_000]).unwrap();
    again.sync_all().unwrap();
    drop(again);
    assert!(fs::read(one.join("fits")).unwrap() == new);
    assert!(fs::read(other.join("again")).unwrap() == new[..100_000]);
    drop((first, second));
}

fn test(name: &str) {
    if role().is_some() {
        return is_full(Path::new("/"), name);
    }
    let works = ["-rm", "sh", "-c", "mount -t tmpfs none /tmp"];
    let works = Command::new("unshare").args(works).output();
    if !works.is_ok_and(|output| output.status.success()) {
        return skip("no mount namespaces here");
    }
    if can_mount() && have(&["dd"]) {
        let directory = tempfile::Builder::new().prefix("petasos-mount-").tempdir().unwrap();
        is_full(directory.path(), name);
    }
}

#[test]
fn over_shm() {
    test("full::over_shm");
}

#[test]
fn over_tcp() {
    test("full::over_tcp");
}
