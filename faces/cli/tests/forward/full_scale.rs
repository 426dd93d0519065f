//! Trees and files of full size, there and back: `PETASOS_FORWARD_FULL=1 cargo test --release
//! -p petasos-cli --test forward full_scale -- --nocapture`. It takes 10 GB of disk. Without the
//! variable the same with small ones.

use crate::{
    common::Place,
    export::{Export, TRANSPORTS},
    tree::{Random, assert_same, make},
};
use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::Instant,
};

const BLOCK: usize = 1 << 20;

/// Where lengths and offsets of 32 bits end.
const EDGES: [u64; 2] = [1 << 31, 1 << 32];

/// A file of data to its last byte, of a length that is no number of blocks.
fn dense(path: &Path, len: u64) {
    let file = File::create(path).unwrap();
    let block = Random::new(8).bytes(BLOCK);
    let mut at = 0;
    while at < len {
        let now = (len - at).min(BLOCK as u64) as usize;
        // No two blocks are the same.
        file.write_all_at(&block[..now], at).unwrap();
        file.write_all_at(&at.to_le_bytes()[..now.min(8)], at).unwrap();
        at += now as u64;
    }
}

/// A file of holes, with data about each edge and at its end.
fn sparse(path: &Path, len: u64, edges: &[u64]) {
    let file = File::create(path).unwrap();
    file.set_len(len).unwrap();
    let data = Random::new(9).bytes(3 * 4096);
    edges.iter().for_each(|edge| file.write_all_at(&data, edge - 5000).unwrap());
    file.write_all_at(b"the end", len - 7).unwrap();
}

#[track_caller]
fn assert_same_file(a: &Path, b: &Path) {
    let (a, b) = (File::open(a).unwrap(), File::open(b).unwrap());
    let (a_meta, b_meta) = (a.metadata().unwrap(), b.metadata().unwrap());
    assert_eq!(a_meta.len(), b_meta.len());
    assert!(b_meta.blocks() <= a_meta.blocks() + 128, "holes: {} blocks", b_meta.blocks());
    let (mut from_a, mut from_b) = (vec![0; BLOCK], vec![0; BLOCK]);
    let mut at = 0;
    while at < a_meta.len() {
        let now = (a_meta.len() - at).min(BLOCK as u64) as usize;
        a.read_exact_at(&mut from_a[..now], at).unwrap();
        b.read_exact_at(&mut from_b[..now], at).unwrap();
        assert!(from_a[..now] == from_b[..now], "they differ after {at}");
        at += now as u64;
    }
}

#[test]
fn full_scale() {
    let full = std::env::var_os("PETASOS_FORWARD_FULL").is_some();
    let place = Place::new();
    fs::create_dir(place.path("huge")).unwrap();
    if full {
        make(&place.path("tree"), 10_000, 64 << 20, 11);
        dense(&place.path("huge/dense"), (3 << 30) + 12_345);
        sparse(&place.path("huge/sparse"), (5 << 30) + 1, &EDGES);
    } else {
        make(&place.path("tree"), 500, 4 << 20, 11);
        dense(&place.path("huge/dense"), (20 << 20) + 12_345);
        sparse(&place.path("huge/sparse"), (64 << 20) + 1, &[1 << 24, 1 << 25]);
    }
    for transport in TRANSPORTS {
        let export = Export::start(&place, transport, &[]);
        for (what, more) in [("tree", "--fifos"), ("huge", "--checksum")] {
            let (there, back) = (format!("@/{what}"), format!("back-{what}"));
            let begin = Instant::now();
            let put = export.run(&place, &["put", more, "--json", what, &there]).assert(0);
            let put_took = begin.elapsed();
            export.run(&place, &["get", more, "-q", &there, &back]).assert(0);
            let bytes = &put.json()["summary"]["bytes"];
            let got = begin.elapsed() - put_took;
            println!("{transport}: {what}, {bytes} bytes: there {put_took:?}, back {got:?}");
            for copy in [place.path("exp").join(what), place.path(&back)] {
                if what == "tree" {
                    assert_same(&place.path(what), &copy);
                } else {
                    for name in ["dense", "sparse"] {
                        assert_same_file(&place.path("huge").join(name), &copy.join(name));
                    }
                }
            }
            fs::remove_dir_all(place.path("exp").join(what)).unwrap();
            fs::remove_dir_all(place.path(&back)).unwrap();
        }
        assert_eq!(export.staged(), 0);
    }
    place.assert_clean();
}
