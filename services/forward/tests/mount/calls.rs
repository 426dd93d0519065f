//! How often the server is asked, and what is known without asking.

use crate::harness::{Bench, bench_over};
use petasos_forward::mount::MountOptions;
use std::{
    fs::{self, Metadata},
    os::unix::fs::{MetadataExt, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const EVERYWHERE: [&str; 2] = ["shm://*", "tcp://127.0.0.1:0"];

/// How often something is done.
const OFTEN: u64 = 100;

/// What is known holds as long as the test.
fn long(options: &mut MountOptions) {
    options.attr_timeout = Duration::from_secs(600);
    options.negative_timeout = Duration::from_secs(600);
}

fn calls(bench: &Bench) -> u64 {
    bench.server.as_ref().unwrap().status().total.calls
}

/// What changes in a directory with its names.
fn changing(meta: &Metadata) -> [i64; 6] {
    let (links, size) = (meta.nlink() as i64, meta.size() as i64);
    [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec(), links, size]
}

/// Both sides see the same of a directory.
#[track_caller]
fn same(here: &Path, there: &Path) {
    let (here, there) = (fs::metadata(here).unwrap(), fs::metadata(there).unwrap());
    assert_eq!(changing(&here), changing(&there));
}

#[test]
fn a_name_that_is_given_or_taken_tells_of_its_directory() {
    for any in EVERYWHERE {
        let Some(bench) = bench_over(any, long) else { return };
        let (d, e) = (bench.path("d"), bench.path("d/e"));
        fs::create_dir_all(&e).unwrap();
        let theirs = bench.export.join("d");
        // What is done with each number, and the calls that it takes: one for what is looked up,
        // and one for the change.
        let file = |n: u64| d.join(format!("f{n}"));
        let other = |n: u64| e.join(format!("f{n}"));
        type Work<'a> = &'a dyn Fn(u64) -> std::io::Result<()>;
        let steps: [(&str, u64, Work<'_>); 9] = [
            ("a file is made, written and closed", 4, &|n| fs::write(file(n), "text")),
            ("linked", 2, &|n| fs::hard_link(file(n), d.join(format!("l{n}")))),
            ("a link is made", 2, &|n| symlink("text", d.join(format!("s{n}")))),
            ("renamed", 2, &|n| fs::rename(d.join(format!("l{n}")), d.join(format!("m{n}")))),
            ("moved", 2, &|n| fs::rename(file(n), other(n))),
            ("removed", 1, &|n| fs::remove_file(other(n))),
            ("others are removed", 1, &|n| fs::remove_file(d.join(format!("m{n}")))),
            ("a directory is made", 2, &|n| fs::create_dir(file(n))),
            ("a directory is removed", 1, &|n| fs::remove_dir(file(n))),
        ];
        for (what, each, work) in steps {
            let before = calls(&bench);
            for n in 0..OFTEN {
                work(n).unwrap();
            }
            let took = calls(&bench) - before;
            // A few to begin with, and what is asked beside that from time to time.
            let most = OFTEN * each + OFTEN / 4;
            assert!(took <= most, "{what}: {took} calls for {OFTEN}, more than {each} for each");
            same(&d, &theirs);
            same(&e, &theirs.join("e"));
            // The others are asked for as they come.
            for n in 0..3 {
                work(OFTEN + n).unwrap();
                same(&d, &theirs);
                same(&e, &theirs.join("e"));
            }
        }
    }
}

#[test]
fn what_was_told_of_a_directory_ends_with_its_own_changes() {
    let Some(bench) = bench_over("shm://*", long) else { return };
    let (d, theirs) = (bench.path("d"), bench.export.join("d"));
    fs::create_dir(&d).unwrap();
    for n in 0..5 {
        fs::write(d.join(format!("f{n}")), "text").unwrap();
        fs::set_permissions(&d, std::os::unix::fs::PermissionsExt::from_mode(0o700 + n)).unwrap();
        same(&d, &theirs);
        assert_eq!(fs::metadata(&d).unwrap().mode() & 0o777, 0o700 + n);
        fs::write(d.join(format!("g{n}")), "text").unwrap();
        let to = bench.path(&format!("d{n}"));
        fs::rename(&d, &to).unwrap();
        same(&to, &bench.export.join(format!("d{n}")));
        fs::rename(&to, &d).unwrap();
        same(&d, &theirs);
    }
}

#[test]
fn what_another_mount_changes_in_a_directory_is_seen_in_time() {
    for (any, holds) in [("shm://*", 0), ("tcp://127.0.0.1:0", 0), ("shm://*", 20)] {
        let holds = Duration::from_millis(holds);
        let change = move |options: &mut MountOptions| options.attr_timeout = holds;
        let Some(bench) = bench_over(any, change) else { return };
        let (other, _mounted) = bench.second(change);
        let theirs = bench.export.clone();
        for n in 0..20 {
            fs::write(bench.path(&format!("a{n}")), "text").unwrap();
            fs::create_dir(other.join(format!("b{n}"))).unwrap();
            let expected = changing(&fs::metadata(&theirs).unwrap());
            // Not longer than attributes hold, and at once where they do not.
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let seen = changing(&fs::metadata(&bench.at).unwrap());
                if seen == expected {
                    break;
                }
                assert!(!holds.is_zero() && Instant::now() < end, "{seen:?}, not {expected:?}");
            }
        }
    }
}

/// The attributes of all files in a directory, looked at once its end is reached, as `find` and `ls
/// -l` do.
fn list_and_stat(directory: &Path) -> Vec<(PathBuf, u64)> {
    let entries: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries
        .into_iter()
        .map(|path| {
            let size = fs::symlink_metadata(&path).unwrap().len();
            (path, size)
        })
        .collect()
}

#[test]
fn attributes_come_with_the_names_of_a_directory() {
    const FILES: u64 = 3_000;
    for any in EVERYWHERE {
        let Some(bench) = bench_over(any, long) else { return };
        let theirs = bench.export.join("d");
        fs::create_dir(&theirs).unwrap();
        for n in 0..FILES {
            fs::write(theirs.join(format!("f{n}")), vec![0; n as usize]).unwrap();
        }
        // The kernel has seen programs that look at names only.
        assert_eq!(fs::read_dir(bench.path("d")).unwrap().count() as u64, FILES);
        let before = calls(&bench);
        let found = list_and_stat(&bench.path("d"));
        let took = calls(&bench) - before;
        for (path, size) in &found {
            assert_eq!(format!("f{size}"), path.file_name().unwrap().to_str().unwrap());
        }
        assert_eq!(found.len() as u64, FILES);
        assert!(took <= FILES / 10, "{took} calls to look at {FILES} files of a directory");
    }
}
