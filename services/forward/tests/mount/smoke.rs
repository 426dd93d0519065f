//! The first things that a user does with a mount.

use crate::harness::{bench, bench_over, pattern};
use petasos_forward::mount::{Cache, Unmounted};
use std::{
    fs,
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt},
};

#[test]
fn written_and_read() {
    for any in ["shm://*", "tcp://127.0.0.1:0"] {
        let Some(bench) = bench_over(any, |_| {}) else { return };
        for len in [0, 1, 4095, 4097, 70_000, (5 << 20) + 123] {
            let data = pattern(len, len as u64);
            let name = format!("f{len}");
            fs::write(bench.path(&name), &data).unwrap();
            assert!(fs::read(bench.export.join(&name)).unwrap() == data, "at the server: {len}");
            assert!(fs::read(bench.path(&name)).unwrap() == data, "read back: {len}");
            assert_eq!(fs::metadata(bench.path(&name)).unwrap().len(), len as u64);
        }
    }
}

#[test]
fn nothing_is_kept_when_that_is_wanted() {
    let Some(bench) = bench_over("shm://*", |options| options.cache = Cache::None) else { return };
    let data = pattern(3 << 20, 5);
    let mut file = fs::File::create_new(bench.path("f")).unwrap();
    file.write_all(&data).unwrap();
    assert!(fs::read(bench.export.join("f")).unwrap() == data, "before it is closed");
    fs::write(bench.export.join("f"), b"short").unwrap();
    assert_eq!(fs::read(bench.path("f")).unwrap(), b"short");
}

#[test]
fn pieces_in_any_order() {
    let Some(bench) = bench() else { return };
    let mut expected = vec![0u8; 3 << 20];
    let file = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(bench.path("pieces"))
        .unwrap();
    let mut seed = 7usize;
    for round in 0..400u64 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let len = 1 + (seed >> 20) % 20_000;
        let at = (seed >> 36) % (expected.len() - len);
        let data = pattern(len, round);
        file.write_all_at(&data, at as u64).unwrap();
        expected[at..at + len].copy_from_slice(&data);
        if round % 37 == 0 {
            let mut back = vec![0; len];
            file.read_exact_at(&mut back, at as u64).unwrap();
            assert!(back == data);
        }
    }
    let size = file.metadata().unwrap().len() as usize;
    drop(file);
    let there = fs::read(bench.export.join("pieces")).unwrap();
    assert_eq!(there.len(), size);
    assert!(there == expected[..size]);
    assert!(fs::read(bench.path("pieces")).unwrap() == expected[..size]);
}

#[test]
fn open_files_outlive_their_names() {
    let Some(bench) = bench() else { return };
    let mut file =
        fs::File::options().read(true).write(true).create_new(true).open(bench.path("f")).unwrap();
    file.write_all(b"before").unwrap();
    fs::remove_file(bench.path("f")).unwrap();
    file.write_all(b" and after").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
    let meta = file.metadata().unwrap();
    assert_eq!((meta.len(), meta.nlink()), (16, 0));
    file.set_len(3).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 3);
    // A new file of that name is another file.
    fs::write(bench.path("f"), b"new").unwrap();
    assert_ne!(fs::metadata(bench.path("f")).unwrap().ino(), meta.ino());
    assert_eq!(fs::read_dir(&bench.at).unwrap().count(), 1, "nothing else appears");
}

#[test]
fn ten_thousand_names_while_they_change() {
    let Some(bench) = bench() else { return };
    for n in 0..10_000 {
        fs::write(bench.export.join(format!("name-{n:05}")), b"").unwrap();
    }
    let mut listing = fs::read_dir(&bench.at).unwrap();
    let mut seen: Vec<String> = Vec::new();
    for n in 0..5_000 {
        let entry = listing.next().unwrap().unwrap();
        seen.push(entry.file_name().into_string().unwrap());
        if n % 10 == 0 {
            // What was already listed goes, what was not there comes.
            fs::remove_file(bench.path(&seen[n])).unwrap();
            fs::write(bench.path(&format!("more-{n}")), b"").unwrap();
        }
    }
    seen.extend(listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
    seen.retain(|name| name.starts_with("name-"));
    let count = seen.len();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), count, "each once");
    assert_eq!(count, 10_000, "whatever was there all the time");
    assert_eq!(fs::read_dir(&bench.at).unwrap().count(), 10_000);
}

#[test]
fn unmounted_and_detached() {
    let Some(mut bench) = bench() else { return };
    fs::write(bench.path("f"), b"x").unwrap();
    let file = fs::File::open(bench.path("f")).unwrap();
    let mounted = bench.mounted.as_mut().unwrap();
    assert_eq!(mounted.unmount().unwrap(), Unmounted::Detached);
    assert!(!bench.at.join("f").exists(), "no name leads there");
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    drop(file);
    let mounted = bench.mounted.as_ref().unwrap();
    assert!(mounted.wait(std::time::Duration::from_secs(20)), "gone with its last user");
    let (_, mut second) = bench.second(|_| {});
    assert_eq!(second.unmount().unwrap(), Unmounted::Clean);
}
