//! Random operations on a file of the mount, compared with the same on plain memory: as `fsx` does,
//! with every switch of the mount, on one mount and on two of one server.
//!
//! `PETASOS_MODEL_OPERATIONS` says how many operations each combination gets, `PETASOS_MODEL_SEED`
//! which ones (a number, or `random`), `PETASOS_MODEL_SWITCH` with which switch only. Each run
//! prints these, and how long it took; a failure also what was done last.

mod actor;
pub(crate) mod mapper;
mod plan;

use crate::harness::{Bench, bench_over};
use actor::{Actor, Sharing};
use petasos_forward::mount::{Cache, MountOptions};
use plan::Random;
use std::{
    hash::{BuildHasher, RandomState},
    path::PathBuf,
    time::{Duration, Instant},
};

const OPERATIONS: &str = "PETASOS_MODEL_OPERATIONS";
const SEED: &str = "PETASOS_MODEL_SEED";
const SWITCH: &str = "PETASOS_MODEL_SWITCH";

const SHM: &str = "shm://*";
const TCP: &str = "tcp://127.0.0.1:0";

/// A switch of the mount that is not as it is by default.
struct Switch {
    name: &'static str,
    set: fn(&mut MountOptions),
    /// Whether files can be mapped, shared.
    maps: bool,
}

const fn switch(name: &'static str, set: fn(&mut MountOptions)) -> Switch {
    Switch { name, set, maps: true }
}

const SWITCHES: [Switch; 9] = [
    switch("none", |_| {}),
    Switch { maps: false, ..switch("cache", |options| options.cache = Cache::None) },
    switch("write_behind", |options| options.write_behind = 8 << 10),
    switch("read_ahead", |options| options.read_ahead = 0),
    switch("spin", |options| options.spin = Duration::ZERO),
    switch("attr_timeout", |options| options.attr_timeout = Duration::from_secs(3600)),
    switch("no attr_timeout", |options| options.attr_timeout = Duration::ZERO),
    switch("negative_timeout", |options| options.negative_timeout = Duration::from_secs(3600)),
    switch("sync", |options| options.system_option("sync").unwrap()),
];

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// So many operations with each switch; `few` where nothing else is asked for.
fn runs(any: &str, sharing: Option<Sharing>, few: u64) {
    let operations = number(OPERATIONS).unwrap_or(few);
    // The same each time, so that what fails is what changed; others are tried by the variable.
    let seed = match std::env::var(SEED) {
        Ok(text) if text == "random" => RandomState::new().hash_one(()) % 1_000_000,
        _ => number(SEED).unwrap_or(1),
    };
    let only = std::env::var(SWITCH).ok();
    for switch in &SWITCHES {
        if only.as_ref().is_some_and(|only| only != switch.name) {
            continue;
        }
        let Some(bench) = bench_over(any, switch.set) else { return };
        let second = sharing.map(|_| bench.second(switch.set));
        let mut places = vec![bench.at.clone()];
        places.extend(second.as_ref().map(|(at, _)| at.clone()));
        one_run(&bench, switch, any, places, sharing, operations, seed);
        drop(second);
    }
}

fn one_run(
    bench: &Bench,
    switch: &Switch,
    any: &str,
    places: Vec<PathBuf>,
    sharing: Option<Sharing>,
    operations: u64,
    seed: u64,
) {
    let what = format!(
        "{SEED}={seed} {OPERATIONS}={operations} {SWITCH}='{}', {any}, {sharing:?}",
        switch.name
    );
    let begin = Instant::now();
    let mut random = Random::new(seed);
    // Most faults are at the edges of pages; some at those of blocks, which need large files.
    let largest = [200_000, 60_000, 3 << 20][random.below(3) as usize];
    let mut actor = Actor::new(places, sharing, switch.maps, largest);
    for done in 0..operations {
        bench.alive();
        let step = plan::step(&mut random, &actor);
        if let Err(wrong) = actor.perform(&step) {
            panic!("{what}\noperation {done}, {step:?}: {wrong}\nbefore it:\n{}", actor.history());
        }
    }
    actor.finish(&bench.export).unwrap_or_else(|wrong| {
        panic!("{what}\nat the end: {wrong}\nbefore it:\n{}", actor.history());
    });
    println!("{what}: {:.1} s", begin.elapsed().as_secs_f64());
}

#[test]
fn one_mount_shm() {
    runs(SHM, None, 250);
}

#[test]
fn one_mount_tcp() {
    runs(TCP, None, 250);
}

#[test]
fn two_mounts_that_open_and_close_shm() {
    runs(SHM, Some(Sharing::Closing), 200);
}

#[test]
fn two_mounts_that_open_and_close_tcp() {
    runs(TCP, Some(Sharing::Closing), 200);
}

#[test]
fn two_mounts_with_a_lock_shm() {
    runs(SHM, Some(Sharing::Locking), 200);
}

#[test]
fn two_mounts_with_a_lock_tcp() {
    runs(TCP, Some(Sharing::Locking), 200);
}
