//! A put of 8 bytes over shared memory, matched and acknowledged, both sides on one thread.

use crate::timed;
use petasos::fabric::Endpoint;
use petasos::portals::{
    Ack, Config, Descriptor, Event, EventQueue, Handle, Idle, Interface, List, MatchEntry,
    Operation, Part, PortalOptions, ProcessId, ProcessMap, Quiet, Target,
};
use std::{error::Error, sync::Arc, time::Duration};

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

/// Connects two interfaces, and runs the path.
pub(crate) fn run(count: u64) -> Result<Duration, Box<dyn Error>> {
    let open = || petasos::shm::Shm::open(&"shm://*".parse().expect("a URL"));
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
    Ok(timed(|| path_put(&initiator, &target, put, queue, count)))
}
