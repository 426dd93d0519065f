//! Two mounts of one export: what one closes the other sees, and locks hold between them.

use crate::harness::{Bench, bench, bench_over, finish, have, pattern};
use petasos_forward::mount::Mounted;
use rustix::{
    fs::{FlockOperation, fcntl_lock, flock},
    io::Errno,
};
use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::PathBuf,
    process::{Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

fn two() -> Option<(Bench, PathBuf, Mounted)> {
    let bench = bench()?;
    let (at, mounted) = bench.second(|_| {});
    Some((bench, at, mounted))
}

fn rw(path: PathBuf) -> fs::File {
    fs::File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn what_was_closed_is_seen_at_the_next_opening() {
    let Some((bench, other, _mounted)) = two() else { return };
    let mut last = 0;
    for round in 0..30u64 {
        // Longer, shorter, as long: and at once, while the other side's attributes are fresh.
        let len = [100_000, 5, 200_000, 200_000][round as usize % 4];
        let data = pattern(len, round);
        fs::write(bench.path("f"), &data).unwrap();
        assert!(fs::read(other.join("f")).unwrap() == data, "round {round}");
        let back = pattern(len, round + 1000);
        rw(other.join("f")).write_all_at(&back, 0).unwrap();
        assert!(fs::read(bench.path("f")).unwrap() == back, "back in round {round}");
        last = len;
    }
    assert_eq!(fs::metadata(other.join("f")).unwrap().len(), last as u64);
    // Replaced by another file, atomically.
    for round in 0..10 {
        fs::write(bench.path("new"), round.to_string()).unwrap();
        fs::rename(bench.path("new"), bench.path("f")).unwrap();
        assert_eq!(fs::read_to_string(other.join("f")).unwrap(), round.to_string());
    }
}

#[test]
fn names_are_seen_when_their_time_is_over() {
    let Some((bench, other, _mounted)) = two() else { return };
    assert!(!other.join("later").exists());
    fs::write(bench.path("later"), b"x").unwrap();
    thread::sleep(Duration::from_millis(300));
    assert!(other.join("later").exists(), "a missing name is missing for a quarter of a second");
    fs::remove_file(bench.path("later")).unwrap();
    assert!(fs::File::open(other.join("later")).is_err(), "opening asks the server");
    fs::create_dir(bench.path("d")).unwrap();
    fs::write(bench.path("d/f"), b"x").unwrap();
    assert_eq!(fs::read(other.join("d/f")).unwrap(), b"x");
    fs::rename(bench.path("d"), bench.path("e")).unwrap();
    assert_eq!(fs::read(other.join("e/f")).unwrap(), b"x");
    thread::sleep(Duration::from_millis(1100));
    assert!(!other.join("d").exists());
}

#[test]
fn open_files_see_growth_when_their_time_is_over() {
    let Some((bench, other, _mounted)) = two() else { return };
    let mut writer = fs::File::create(bench.path("log")).unwrap();
    writer.write_all(b"first\n").unwrap();
    writer.sync_all().unwrap();
    let mut reader = fs::File::open(other.join("log")).unwrap();
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    writer.write_all(b"second\n").unwrap();
    writer.sync_all().unwrap();
    thread::sleep(Duration::from_millis(1100));
    reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "first\nsecond\n");
}

#[test]
fn appended_from_both_sides() {
    let Some((bench, other, _mounted)) = two() else { return };
    let append = |path: PathBuf| fs::File::options().append(true).create(true).open(path).unwrap();
    let (mut one, mut two) = (append(bench.path("log")), append(other.join("log")));
    for n in 0..50 {
        writeln!(one, "one {n}").unwrap();
        one.sync_data().unwrap();
        writeln!(two, "two {n}").unwrap();
        two.sync_data().unwrap();
    }
    drop((one, two));
    let text = fs::read_to_string(bench.path("log")).unwrap();
    assert_eq!(text.lines().count(), 100, "nothing is overwritten");
    for n in 0..50 {
        assert!(text.contains(&format!("one {n}\ntwo {n}\n")));
    }
}

#[test]
fn locks_exclude_each_other() {
    let Some((bench, other, _mounted)) = two() else { return };
    let (one, two) = (rw(bench.path("f")), rw(other.join("f")));
    for of_file in [true, false] {
        let set = |file: &fs::File, operation| match of_file {
            true => flock(file, operation),
            false => fcntl_lock(file, operation),
        };
        use FlockOperation::{
            LockExclusive, NonBlockingLockExclusive, NonBlockingLockShared, Unlock,
        };
        set(&one, LockExclusive).unwrap();
        let refused = set(&two, NonBlockingLockShared).unwrap_err();
        assert!([Errno::AGAIN, Errno::ACCESS].contains(&refused), "{refused}");
        set(&one, Unlock).unwrap();
        set(&two, NonBlockingLockShared).unwrap();
        set(&one, NonBlockingLockShared).unwrap();
        assert!(set(&one, NonBlockingLockExclusive).is_err());
        set(&one, Unlock).unwrap();
        // The process that waits gets it when the other closes the file.
        let (sender, got) = mpsc::channel();
        let again = rw(bench.path("f"));
        thread::scope(|scope| {
            scope.spawn(|| {
                set(&again, LockExclusive).unwrap();
                sender.send(Instant::now()).unwrap();
            });
            assert!(got.recv_timeout(Duration::from_millis(700)).is_err(), "it waits");
            set(&two, Unlock).unwrap();
            got.recv_timeout(Duration::from_secs(20)).expect("it gets the lock");
        });
        set(&again, Unlock).unwrap();
    }
}

#[test]
fn a_lock_hands_over_what_was_written() {
    let Some((bench, other, _mounted)) = two() else { return };
    let (mut one, mut two) = (rw(bench.path("f")), rw(other.join("f")));
    one.write_all(&[0; 8]).unwrap();
    one.sync_all().unwrap();
    // Both count in one number, over and over, with files that stay open.
    thread::scope(|scope| {
        for file in [&mut one, &mut two] {
            scope.spawn(move || {
                for _ in 0..40 {
                    flock(&file, FlockOperation::LockExclusive).unwrap();
                    let mut number = [0; 8];
                    file.seek(SeekFrom::Start(0)).unwrap();
                    file.read_exact(&mut number).unwrap();
                    let next = u64::from_le_bytes(number) + 1;
                    file.seek(SeekFrom::Start(0)).unwrap();
                    file.write_all(&next.to_le_bytes()).unwrap();
                    flock(&file, FlockOperation::Unlock).unwrap();
                }
            });
        }
    });
    drop((one, two));
    assert_eq!(fs::read(bench.export.join("f")).unwrap(), 80u64.to_le_bytes());
}

#[test]
fn who_waits_for_a_lock_can_be_killed() {
    if !have(&["flock"]) {
        return;
    }
    let Some((bench, other, _mounted)) = two() else { return };
    let file = rw(bench.path("f"));
    flock(&file, FlockOperation::LockExclusive).unwrap();
    let mut waiting = Command::new("flock");
    waiting.arg(other.join("f")).arg("true").stdin(Stdio::null());
    let mut waiting = waiting.spawn().unwrap();
    thread::sleep(Duration::from_millis(500));
    assert!(waiting.try_wait().unwrap().is_none(), "it waits");
    waiting.kill().unwrap();
    let end = Instant::now() + Duration::from_secs(20);
    while waiting.try_wait().unwrap().is_none() {
        assert!(Instant::now() < end, "it cannot be killed");
        thread::sleep(Duration::from_millis(10));
    }
    flock(&file, FlockOperation::Unlock).unwrap();
    let mut free = Command::new("flock");
    free.arg("-n").arg(other.join("f")).arg("true");
    assert!(finish(free, Duration::from_secs(20)).status.success(), "nothing is left of it");
}

#[test]
fn the_locks_of_a_process_end_with_it() {
    if !have(&["flock", "sleep", "sh"]) {
        return;
    }
    let Some((bench, other, _mounted)) = two() else { return };
    rw(bench.path("f"));
    let mut holder = Command::new("sh");
    holder.args(["-c", "exec 9<f; flock 9; exec sleep 60"]).current_dir(&bench.at);
    let mut holder = holder.spawn().unwrap();
    let file = rw(other.join("f"));
    let end = Instant::now() + Duration::from_secs(20);
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
        flock(&file, FlockOperation::Unlock).unwrap();
        assert!(Instant::now() < end, "no process locks it");
        thread::sleep(Duration::from_millis(10));
    }
    holder.kill().unwrap();
    holder.wait().unwrap();
    flock(&file, FlockOperation::LockExclusive).unwrap();
}

#[test]
fn read_only_is_read_only() {
    let Some(bench) = bench_over("shm://*", |options| options.read_only = true) else { return };
    fs::write(bench.export.join("f"), b"text").unwrap();
    assert_eq!(fs::read(bench.path("f")).unwrap(), b"text");
    let refused = fs::write(bench.path("f"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    assert_eq!(fs::metadata(bench.path("f")).unwrap().size(), 4);
}

#[test]
fn a_part_of_an_export() {
    let Some(bench) = bench() else { return };
    fs::create_dir_all(bench.export.join("a/b")).unwrap();
    fs::write(bench.export.join("a/b/f"), b"below").unwrap();
    let part = petasos_forward::RelPath::parse(b"a/b").unwrap();
    let (at, _mounted) = bench.second(|options| options.path = part);
    assert_eq!(fs::read(at.join("f")).unwrap(), b"below");
    fs::write(at.join("g"), b"new").unwrap();
    assert_eq!(fs::read(bench.path("a/b/g")).unwrap(), b"new");
    assert_eq!(fs::read_dir(&at).unwrap().count(), 2);
}
