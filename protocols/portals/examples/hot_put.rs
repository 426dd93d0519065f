//! The path whose instructions are counted: a put of 8 bytes over shared memory, matched and
//! acknowledged, both sides on one thread, so that neither waits.
//!
//! ```text
//! cargo run --profile dist -p petasos-portals --example hot_put [put] [COUNT]
//! ```
//!
//! By itself it prints the time of one put, which is the software's alone.

use petasos_fabric::Endpoint;
use petasos_portals::{
    Ack, Config, Descriptor, Event, EventQueue, Handle, Idle, Interface, List, MatchEntry,
    Operation, Part, PortalOptions, ProcessId, ProcessMap, Quiet, Target,
};
use std::{
    error::Error,
    sync::Arc,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);

#[inline(never)]
fn path_put(
    initiator: &Interface,
    target: &Interface,
    put: Operation,
    queue: Handle<EventQueue>,
    count: u64,
) {
    for _ in 0..count {
        initiator.start(put).expect("room");
        target.progress();
        match initiator.wait_event(queue, PATIENCE).expect("an event").event {
            Event::Ack(ack) => ack.result.expect("it was taken"),
            other => panic!("{other:?}"),
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().filter_map(|text| text.parse().ok()).next().unwrap_or(1_000_000);
    let open = || petasos_shm::Shm::open(&"shm://*".parse().expect("a URL"));
    let ends = [open()?, open()?];
    let map = Arc::new(ProcessMap::ranks(ends.each_ref().map(|end| end.address().clone())));
    let config = Config { idle: Idle::Spin, ..Config::default() };
    let [initiator, target] =
        ends.map(|end| Interface::open(Box::new(end), map.clone(), config.clone()));
    let (initiator, target) = (initiator?, target?);
    let portal = target.portal(PortalOptions::default())?;
    target.append(portal, List::Priority, MatchEntry::new(vec![0; 8]))?;
    let queue = initiator.queue(16)?;
    let quiet = Quiet::SEND;
    let source = Descriptor { queue: Some(queue), quiet, ..Descriptor::new(vec![7; 8]) };
    let part = Part::of(initiator.bind(source)?, 8);
    let place = Target::new(ProcessId::rank(1), portal);
    let put = Operation { ack: Ack::Full, ..Operation::put(part, place) };
    // The first connects.
    initiator.start(put)?;
    while initiator.take_event(queue).is_err() {
        initiator.progress();
        target.progress();
    }
    let begin = Instant::now();
    path_put(&initiator, &target, put, queue, count);
    println!("put: {:.1} ns", begin.elapsed().as_nanos() as f64 / count as f64);
    Ok(())
}
