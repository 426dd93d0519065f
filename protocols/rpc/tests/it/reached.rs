//! Memory that a peer still reaches when it is closed: the engine keeps it, reports that, and
//! closes it once it can.

use crate::common::{run, turn_for};
use petasos_conformance::reached::{Reached, Reaching};
use petasos_fabric::{Access, OpErrorKind, Region};
use petasos_rpc::{BulkError, Engine, EngineConfig, Idle};
use petasos_self::Local;
use std::{
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};

fn engine(times: usize) -> (Engine, Arc<Reaching>) {
    let local = Local::open(&"self://*".parse().unwrap()).unwrap();
    let (endpoint, reaching) = Reached::new(local, times);
    let mut config = EngineConfig::default();
    config.idle = Idle::Spin;
    (Engine::new(Box::new(endpoint), config), reaching)
}

/// Drives the engine until nothing holds the memory.
fn until_free(engine: &Engine, memory: Region) {
    let end = Instant::now() + Duration::from_secs(10);
    while !memory.is_unique() {
        turn_for(&[engine], Duration::from_millis(1));
        assert!(Instant::now() < end, "the memory is not given back");
    }
}

#[test]
fn an_awaited_close_fails_and_the_engine_goes_on() {
    let (engine, reaching) = engine(3);
    let memory = Region::zeroed(4096);
    let exported = engine.export(memory.clone(), Access::ALL).unwrap();
    let error = run(&[&engine], exported.close()).unwrap_err();
    assert!(
        matches!(&error, BulkError::Transfer(error) if error.kind == OpErrorKind::StillReached),
        "{error:?}"
    );
    assert!(!memory.is_unique(), "a peer may still reach it");
    until_free(&engine, memory);
    assert_eq!(reaching.asked.load(SeqCst), 4);
}

#[test]
fn where_nobody_waits_the_engine_closes_it_all_the_same() {
    let (engine, reaching) = engine(3);
    let memory = Region::zeroed(4096);
    drop(engine.export(memory.clone(), Access::ALL).unwrap());
    // Nor where the waiting was given up.
    let second = Region::zeroed(4096);
    drop(engine.export(second.clone(), Access::ALL).unwrap().close());
    until_free(&engine, memory);
    until_free(&engine, second);
    assert_eq!(reaching.asked.load(SeqCst), 5);
}
