//! What programs seldom do: files without names, locks in a circle, places that are none.

use crate::harness::{Bench, bench, bench_over, can_mount, mount, serve};
use petasos_forward::mount::{MountOptions, Mounted};
use petasos_testing::{again, role};
use rustix::{
    fs::{FallocateFlags, FlockOperation, Mode, OFlags, fallocate, fcntl_lock},
    io::Errno,
};
use std::{
    fs::{self, File},
    io::{ErrorKind, Read},
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, symlink},
    },
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

const EVERYWHERE: [&str; 2] = ["shm://*", "tcp://127.0.0.1:0"];

fn rw(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn by_number(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

#[test]
fn a_name_that_another_mount_removed_is_made_anew() {
    for any in EVERYWHERE {
        let Some(bench) = bench_over(any, |_| {}) else { return };
        let (other, _mounted) = bench.second(|_| {});
        for round in 0..20 {
            let (name, text) = (format!("f{round}"), format!("round {round}"));
            let (here, there) = (bench.path(&name), other.join(&name));
            fs::write(&here, "before").unwrap();
            // The other one knows the name, for a second.
            assert_eq!(fs::read(&there).unwrap(), b"before");
            fs::remove_file(&here).unwrap();
            fs::write(&there, &text).unwrap();
            assert_eq!(fs::read_to_string(&here).unwrap(), text);
            assert_eq!(fs::read_to_string(&there).unwrap(), text);
            // Without being asked to make it, it is missing.
            fs::remove_file(&here).unwrap();
            assert_eq!(File::open(&there).unwrap_err().kind(), ErrorKind::NotFound);
            // Where it was missing, it may be something else by now.
            fs::write(bench.path("target"), &text).unwrap();
            symlink("target", &here).unwrap();
            assert_eq!(fs::read_to_string(rw_path(&there)).unwrap(), text, "round {round}");
            let mut made = String::new();
            rw(&there).read_to_string(&mut made).unwrap();
            assert_eq!(made, text, "it is followed");
            fs::remove_file(&here).unwrap();
        }
    }
}

/// Opens to make, and gives the path.
fn rw_path(at: &Path) -> &Path {
    drop(rw(at));
    at
}

#[test]
fn a_file_without_a_name_is_opened_by_its_descriptor() {
    let Some(bench) = bench() else { return };
    let (other, _mounted) = bench.second(|_| {});
    for by_other in [false, true] {
        let file = rw(&bench.path("f"));
        file.write_all_at(b"text", 0).unwrap();
        file.sync_all().unwrap();
        let reader = File::open(bench.path("f")).unwrap();
        drop(file);
        fs::remove_file(if by_other { other.join("f") } else { bench.path("f") }).unwrap();
        assert_eq!(fs::read(by_number(&reader)).unwrap(), b"text", "by another: {by_other}");
        // To be written, too, which the first one is not.
        let writer = File::options().write(true).open(by_number(&reader)).unwrap();
        writer.write_all_at(b"more", 4).unwrap();
        drop(writer);
        assert_eq!(fs::read(by_number(&reader)).unwrap(), b"textmore");
        // By that name there is another file, or none.
        assert_eq!(File::open(bench.path("f")).unwrap_err().kind(), ErrorKind::NotFound);
        fs::write(bench.path("f"), b"new").unwrap();
        assert_eq!(fs::read(bench.path("f")).unwrap(), b"new");
        assert_eq!(fs::read(by_number(&reader)).unwrap(), b"textmore");
        fs::remove_file(bench.path("f")).unwrap();
    }
}

#[test]
fn room_is_zeroed_within_the_length_or_refused() {
    let Some(bench) = bench() else { return };
    let file = rw(&bench.path("f"));
    file.write_all_at(&[7; 10_000], 0).unwrap();
    let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    match fallocate(&file, zero, 4096, 100_000) {
        // That of the server's file system, which has no way to do it.
        Err(Errno::OPNOTSUPP) => {
            let there = rw(&bench.export.join("probe"));
            assert_eq!(fallocate(&there, zero, 0, 1), Err(Errno::OPNOTSUPP));
        }
        done => {
            done.unwrap();
            let data = fs::read(bench.path("f")).unwrap();
            assert!(data[..4096] == [7; 4096] && data[4096..] == [0; 10_000 - 4096]);
        }
    }
    for refused in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, refused, 0, 4096), Err(Errno::OPNOTSUPP), "{refused:?}");
    }
    assert_eq!(file.metadata().unwrap().len(), 10_000);
    let nameless = OFlags::TMPFILE | OFlags::RDWR;
    let refused = rustix::fs::open(&bench.at, nameless, Mode::from_raw_mode(0o600));
    assert_eq!(refused.unwrap_err(), Errno::OPNOTSUPP);
}

#[test]
fn locks_in_a_circle_are_refused() {
    let Some(bench) = bench() else { return };
    let (other, _mounted) = bench.second(|_| {});
    let first = [rw(&bench.path("f")), rw(&bench.path("g"))];
    let second = [rw(&other.join("f")), rw(&other.join("g"))];
    fcntl_lock(&first[0], FlockOperation::LockExclusive).unwrap();
    fcntl_lock(&second[1], FlockOperation::LockExclusive).unwrap();
    let ended = thread::scope(|scope| {
        // A process that is refused gives up what it has.
        let one = scope.spawn(|| {
            let got = fcntl_lock(&first[1], FlockOperation::LockExclusive);
            fcntl_lock(&first[0], FlockOperation::Unlock).unwrap();
            got
        });
        let other = scope.spawn(|| {
            let got = fcntl_lock(&second[0], FlockOperation::LockExclusive);
            fcntl_lock(&second[1], FlockOperation::Unlock).unwrap();
            got
        });
        [one.join().unwrap(), other.join().unwrap()]
    });
    let refused = ended.iter().filter(|end| **end == Err(Errno::DEADLK)).count();
    assert!(refused >= 1 && ended.iter().all(|end| matches!(end, Ok(()) | Err(Errno::DEADLK))));
}

#[test]
fn what_is_no_directory_is_no_place() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "text").unwrap();
    let server = serve(directory.path(), "shm://*");
    let endpoint = petasos::open("shm://*", &petasos::OpenOptions::default()).unwrap();
    let refused =
        Mounted::new(endpoint, &server.addresses()[0], &file, MountOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("ot a directory"), "{refused}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "text");
}

#[test]
fn the_type_is_told() {
    let Some(bench) = bench() else { return };
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = bench.at.to_str().unwrap().to_owned();
    let line = table.lines().find(|line| line.contains(&at)).unwrap();
    assert!(line.contains(" - fuse.petasos petasos "), "{line}");
}

fn a_mount_process() {
    let (url, at) = (std::env::var("URL").unwrap(), std::env::var("AT").unwrap());
    let _mounted = mount(&url, Path::new(&at), MountOptions::default());
    println!("\nis mounted");
    let _ = std::io::stdin().read_line(&mut String::new());
}

#[test]
fn a_mount_whose_process_was_killed_is_taken_away() {
    if role().is_some() {
        return a_mount_process();
    }
    if !can_mount() {
        return;
    }
    let directory = tempfile::Builder::new().prefix("petasos-mount-").tempdir().unwrap();
    let (export, at) = (directory.path().join("export"), directory.path().join("a place"));
    [&export, &at].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    fs::write(export.join("f"), "text").unwrap();
    let server = serve(&export, "shm://*");
    let url = server.addresses()[0].to_string();
    let name = "corners::a_mount_whose_process_was_killed_is_taken_away";
    let process = again(name, "mount").env("URL", &url).env("AT", at.to_str().unwrap());
    let mut process = process.start();
    process.line("is mounted");
    assert_eq!(fs::read_to_string(at.join("f")).unwrap(), "text");
    process.kill();
    let end = Instant::now() + Duration::from_secs(20);
    while fs::metadata(&at).is_ok() {
        assert!(Instant::now() < end, "it is served by no process");
        thread::sleep(Duration::from_millis(5));
    }
    let mounted = mount(&url, &at, MountOptions::default());
    assert_eq!(fs::read_to_string(at.join("f")).unwrap(), "text");
    drop(mounted);
    assert!(fs::metadata(&at).is_ok() && !petasos_forward::mount::is_mounted(&at).unwrap());
    // What is there, and lives, is left alone.
    assert!(!petasos_forward::mount::recover(&at).unwrap());
}

#[test]
fn what_is_deleted_is_forgotten() {
    let Some(bench) = bench() else { return };
    let bench: Bench = bench;
    let kept = || bench.mounted.as_ref().unwrap().usage();
    // More than are worth being given back, then a few, twice.
    for (round, files) in [1200, 200, 200].into_iter().enumerate() {
        fs::create_dir(bench.path("d")).unwrap();
        for n in 0..files {
            fs::write(bench.path(&format!("d/f{n}")), vec![n as u8; n]).unwrap();
        }
        assert!(kept().nodes > files, "{:?}", kept());
        for n in 0..files {
            fs::remove_file(bench.path(&format!("d/f{n}"))).unwrap();
        }
        fs::remove_dir(bench.path("d")).unwrap();
        // The kernel says later what it has forgotten.
        let end = Instant::now() + Duration::from_secs(60);
        while kept().nodes > 1 || kept().inodes > 0 {
            assert!(Instant::now() < end, "round {round}: {:?}", kept());
            thread::sleep(Duration::from_millis(10));
        }
        let kept = kept();
        assert_eq!((kept.files, kept.directories), (0, 0));
        assert!(kept.blocks <= 64 << 20, "{kept:?}");
    }
    // Nor is memory kept for the next data, once there was none for a while.
    let end = Instant::now() + Duration::from_secs(60);
    while kept().blocks > 0 {
        assert!(Instant::now() < end, "{:?}", kept());
        thread::sleep(Duration::from_millis(50));
    }
}
