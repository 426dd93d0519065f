//! Reads in and around what was written and is not at the server yet.

use crate::harness::{bench_over, pattern};
use std::{fs::File, os::unix::fs::FileExt, path::PathBuf};

const EVERYWHERE: [&str; 2] = ["shm://*", "tcp://127.0.0.1:0"];

fn file(path: PathBuf) -> File {
    File::options().read(true).write(true).create_new(true).open(path).unwrap()
}

#[test]
fn a_fresh_hole_is_read_at_once() {
    for any in EVERYWHERE {
        let Some(bench) = bench_over(any, |_| {}) else { return };
        let data = pattern(8192, 1);
        for round in 0..100u64 {
            let file = file(bench.path(&format!("f{round}")));
            file.write_all_at(&data, 0).unwrap();
            let end = 30_000 + round * 777;
            file.write_all_at(b"x", end).unwrap();
            // Behind what the server has: before the end, across it, and over all.
            let mut hole = [1; 4096];
            assert_eq!(file.read_at(&mut hole, 8192).unwrap(), 4096, "round {round}");
            assert_eq!(hole, [0; 4096]);
            assert_eq!(file.read_at(&mut hole, end - 10).unwrap(), 11, "round {round}");
            assert_eq!(hole[..11], *b"\0\0\0\0\0\0\0\0\0\0x");
            let mut all = vec![1; 100_000 + 30_000];
            let got = file.read_at(&mut all, 0).unwrap() as u64;
            assert_eq!(got, end + 1, "round {round}");
            assert!(all[..8192] == data && all[8192..end as usize].iter().all(|byte| *byte == 0));
        }
    }
}

#[test]
fn a_hole_of_a_file_that_grew_is_read_at_once() {
    for any in EVERYWHERE {
        let Some(bench) = bench_over(any, |_| {}) else { return };
        let file = file(bench.path("f"));
        let mut end = 0u64;
        for round in 0..200u64 {
            // Longer by a cut, then by a write beyond that, with nothing in between.
            end += 5000 + round;
            file.set_len(end).unwrap();
            file.write_all_at(b"y", end + 6000).unwrap();
            let mut hole = [1; 5000];
            assert_eq!(file.read_at(&mut hole, end + 500).unwrap(), 5000, "round {round}");
            assert_eq!(hole, [0; 5000], "round {round}");
            end += 6001;
            assert_eq!(file.metadata().unwrap().len(), end);
        }
    }
}
