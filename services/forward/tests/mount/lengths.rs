//! Lengths and names that another mount has changed, in all that goes by them.

use crate::{
    harness::{Bench, bench_over, pattern},
    model::mapper::Mapper,
};
use petasos_forward::mount::{MountOptions, Mounted};
use rustix::fs::{FlockOperation, copy_file_range, flock};
use std::{
    fs::{self, File},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

const EVERYWHERE: [&str; 2] = ["shm://*", "tcp://127.0.0.1:0"];

const LONG: usize = 40 * 4096;

/// How the other mount hands the file over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Lock,
    Opening,
}

fn two(any: &str, change: fn(&mut MountOptions)) -> Option<(Bench, PathBuf, Mounted)> {
    let bench = bench_over(any, change)?;
    let (other, mounted) = bench.second(change);
    Some((bench, other, mounted))
}

fn rw(path: &Path) -> File {
    File::options().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

fn locked(file: &File, work: impl FnOnce(&File)) {
    flock(file, FlockOperation::LockExclusive).unwrap();
    work(file);
    flock(file, FlockOperation::Unlock).unwrap();
}

/// Has each side work on the file in turn: the other one, then this one, which was told before that
/// the file has `before` bytes.
fn hand_over(
    by: By,
    rounds: u64,
    before: usize,
    there: impl Fn(u64, &File),
    here: impl Fn(u64, &File, &Path, &mut Mapper),
) {
    for any in EVERYWHERE {
        let Some((bench, other, _mounted)) = two(any, |_| {}) else { return };
        let (mut mapper, path) = (Mapper::start(), bench.path("f"));
        let (mut one, two) = (rw(&path), rw(&other.join("f")));
        for round in 0..rounds {
            locked(&one, |file| {
                file.set_len(before as u64).unwrap();
                assert_eq!(file.metadata().unwrap().len(), before as u64);
            });
            locked(&two, |file| there(round, file));
            match by {
                By::Lock => locked(&one, |file| here(round, file, &path, &mut mapper)),
                By::Opening => {
                    rw(&other.join("f")).sync_all().unwrap();
                    one = rw(&path);
                    here(round, &one, &path, &mut mapper);
                }
            }
        }
    }
}

fn cut(by: By) {
    let long = 3_000_000;
    let end = |round: u64| 2_000_838 + round as usize * 4096;
    let there = |round: u64, file: &File| {
        file.write_all_at(&pattern(long, round), 0).unwrap();
        file.set_len(end(round) as u64).unwrap();
    };
    hand_over(by, 20, long, there, |round, file, _, _| {
        let (end, mut data) = (end(round), pattern(long, round));
        data.truncate(end);
        // The last page is written and not read: the system asks for what is before and after it at
        // the same time, and takes the file to end with the last of these that is answered.
        file.write_all_at(b"mark", end as u64 - 200).unwrap();
        data[end - 200..end - 196].copy_from_slice(b"mark");
        let mut got = vec![0; 126_590];
        for before in [1_458_306, 1_613_824] {
            file.read_exact_at(&mut got[..19], before as u64).unwrap();
            assert!(got[..19] == data[before..before + 19]);
        }
        let from = end / 4096 * 4096 - 4096 + 351;
        let count = file.read_at(&mut got, from as u64).unwrap();
        assert_eq!(count, end - from, "{by:?}, round {round}: bytes up to the end of the file");
        assert!(got[..count] == data[from..]);
        assert_eq!(file.read_at(&mut got, end as u64).unwrap(), 0);
    });
}

#[test]
fn a_file_that_was_cut_ends_there_for_who_gets_the_lock() {
    cut(By::Lock);
}

#[test]
fn a_file_that_was_cut_ends_there_for_who_opens_it() {
    cut(By::Opening);
}

fn grown(by: By) {
    let there = |round: u64, file: &File| {
        file.write_all_at(&pattern(LONG, round), 0).unwrap();
    };
    hand_over(by, 3, 10_000, there, |round, file, path, mapper| {
        let data = pattern(LONG, round);
        // Without asking how long it is before.
        let (mut from, mut to) = (20_000, LONG as u64);
        let copied = copy_file_range(file, Some(&mut from), file, Some(&mut to), 5000).unwrap();
        assert_eq!(copied, 5000, "{by:?}, round {round}");
        let got = mapper.read(path, LONG, LONG as u64 - 500, 500).unwrap();
        assert!(got == data[LONG - 500..], "{by:?}, round {round}");
        let mut got = vec![0; 5000];
        file.read_exact_at(&mut got, LONG as u64).unwrap();
        assert!(got == data[20_000..25_000]);
    });
}

#[test]
fn a_file_that_has_grown_is_copied_and_mapped_by_who_gets_the_lock() {
    grown(By::Lock);
}

#[test]
fn a_file_that_has_grown_is_copied_and_mapped_by_who_opens_it() {
    grown(By::Opening);
}

#[test]
fn a_lock_shows_names_that_were_missing_beside_the_file() {
    let forever = |options: &mut MountOptions| {
        options.negative_timeout = Duration::from_secs(3600);
    };
    for any in EVERYWHERE {
        let Some((bench, other, _mounted)) = two(any, forever) else { return };
        fs::create_dir(bench.path("d")).unwrap();
        let (one, two) = (rw(&bench.path("d/db")), rw(&other.join("d/db")));
        for round in 0..5 {
            let name = format!("d/db-journal{round}");
            locked(&one, |_| assert!(!bench.path(&name).exists()));
            locked(&two, |_| fs::write(other.join(&name), "pages").unwrap());
            locked(&one, |_| {
                assert_eq!(fs::metadata(bench.path(&name)).unwrap().len(), 5, "round {round}");
            });
        }
    }
}

#[test]
fn many_open_a_file_whose_length_changes_all_the_time() {
    for any in EVERYWHERE {
        let Some((bench, other, _mounted)) = two(any, |_| {}) else { return };
        let (here, there) = (bench.path("f"), other.join("f"));
        fs::write(&there, b"x").unwrap();
        thread::scope(|scope| {
            let opening = |_| {
                scope.spawn(|| {
                    for _ in 0..200 {
                        fs::read(&here).unwrap();
                    }
                })
            };
            let openers: Vec<_> = (0..6).map(opening).collect();
            let mut round = 0;
            while !openers.iter().all(|opener| opener.is_finished()) {
                round += 1;
                rw(&there).set_len(round * 7919 % 100_000).unwrap();
            }
        });
    }
}
