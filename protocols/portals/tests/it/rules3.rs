//! Rules of Portals 3 that a second reading found: what is dropped, what is silent, what an update
//! and an access entry check, and what events say; over each transport.

use crate::common::{Job, LONG, Over, open, over_all, pattern, to};
use bytes::Bytes;
use petasos_fabric::Region;
use petasos_portals::{
    Accepts, Config, Error, Event, EventQueue, Handle, Left, List, MatchEntry, Permit, ProcessId,
    ProcessMap, Target,
    v3::{DescriptorHandle, Interface, MemoryDescriptor, Position},
};
use petasos_wire::portals::Response;
use std::{sync::Arc, time::Duration};

over_all! {
    what_is_rejected_is_dropped_and_not_answered
    what_is_disabled_or_has_no_room_is_dropped_too
    an_acknowledgement_needs_a_queue
    ends_are_silent_on_both_sides_and_acknowledgements_are_not
    an_update_checks_the_new_and_gives_the_old
    access_entries_are_checked
    max_size_counts_before_an_operation_too
    events_say_whose_descriptor_it_is
    an_update_looks_at_what_has_come
    an_entry_can_be_taken_out_when_its_data_has_come
    what_is_not_started_leaves_nothing_behind
}

struct Pair {
    job: Job,
    a: Interface,
    b: Interface,
    queue: Handle<EventQueue>,
    own: Handle<EventQueue>,
}

fn pair(over: Over) -> Pair {
    pair_with(over, |rank, config| config.job = 7 + rank as u32)
}

fn pair_with(over: Over, set: impl Fn(usize, &mut Config)) -> Pair {
    let job = Job::with(over, 2, set);
    let [a, b] = [0, 1].map(|rank| Interface::of(job.ranks[rank].clone()).unwrap());
    let (own, queue) = (a.queue(100).unwrap(), b.queue(100).unwrap());
    Pair { job, a, b, queue, own }
}

impl Pair {
    fn entry(&self, bits: u64) -> Handle<MatchEntry> {
        self.b.attach_entry(4, ProcessId::ANY, bits, 0, false, Position::Last).unwrap()
    }

    /// For puts and gets at B.
    fn all(&self, len: usize) -> MemoryDescriptor {
        MemoryDescriptor {
            put: true,
            get: true,
            manage_remote: true,
            queue: Some(self.queue),
            ..MemoryDescriptor::new(vec![0; len])
        }
    }

    fn bound(&self, len: usize) -> DescriptorHandle {
        let spec = MemoryDescriptor {
            queue: Some(self.own),
            threshold: Some(10),
            ..MemoryDescriptor::new(pattern(len))
        };
        self.a.bind(spec, false).unwrap()
    }

    fn there(&self) -> Vec<String> {
        self.job.names(1, self.queue)
    }

    fn here(&self) -> Vec<String> {
        self.job.names(0, self.own)
    }
}

fn what_is_rejected_is_dropped_and_not_answered(over: Over) {
    for len in [16, LONG] {
        let p = pair(over);
        let only = MemoryDescriptor { put: false, ..p.all(LONG) };
        p.b.attach(p.entry(1), only, false).unwrap();
        p.b.attach(p.entry(2), MemoryDescriptor { get: false, ..p.all(LONG) }, false).unwrap();
        let other = Permit { job: Some(99), ..Permit::user(0) };
        p.b.set_access(1, Some(other)).unwrap();
        let from = p.bound(len);
        let mut dropped = 0;
        // Not matched, no such portal, not allowed to put, not admitted, no access entry.
        let places = [(to(1, 4, 9), 0), (to(1, 99, 1), 0), (to(1, 4, 1), 0), (to(1, 4, 2), 1)];
        for (target, cookie) in places.into_iter().chain([(to(1, 4, 2), 5)]) {
            p.a.put(from, None, true, target, cookie, 0).unwrap();
            dropped += 1;
            assert_eq!(p.here(), ["send start", "send"], "{target:?}");
            assert_eq!(p.b.inner().status().dropped, dropped, "{target:?}");
            assert_eq!(p.a.inspect(from), Ok((Some(10 - dropped), 0)));
        }
        for (target, cookie) in [(to(1, 4, 9), 0), (to(1, 4, 2), 0), (to(1, 4, 1), 1)] {
            p.a.get(from, None, target, cookie).unwrap();
            dropped += 1;
            assert_eq!(p.here(), [""; 0], "{target:?}");
            assert_eq!(p.b.inner().status().dropped, dropped, "{target:?}");
            assert_eq!(p.a.inspect(from), Ok((Some(5), 0)));
        }
        assert_eq!(p.there(), [""; 0]);
        let status = p.b.inner().status();
        assert_eq!((status.permission_violations, status.operation_violations), (0, 0));
        assert_eq!(p.a.inner().status().operations, 0);
        p.a.unlink(from).expect("nothing is under way");
    }
}

fn what_is_disabled_or_has_no_room_is_dropped_too(over: Over) {
    for len in [16, LONG] {
        let p = pair_with(over, |_, config| config.limits.headers = 0);
        let plain = p.b.inner();
        p.b.attach(p.entry(1), p.all(LONG), false).unwrap();
        plain.disable(4).unwrap();
        // What both faces have serves this one as well: a list in which messages leave headers.
        let accepts = Accepts::PUT.with(Accepts::GET);
        let early = MatchEntry { accepts, ..MatchEntry::new(vec![0; LONG]) };
        plain.append(5, List::Overflow, early).unwrap();
        // And an entry that refuses, where one of Portals 3 goes on to the next.
        let refuses = MatchEntry { accepts: Accepts::NONE, ..MatchEntry::new(vec![0; LONG]) };
        plain.append(6, List::Priority, refuses).unwrap();
        let from = p.bound(len);
        for (nth, target) in [to(1, 4, 1), to(1, 5, 0), to(1, 6, 0)].into_iter().enumerate() {
            let nth = nth as u64;
            p.a.put(from, None, true, target, 0, 0).unwrap();
            assert_eq!(p.here(), ["send start", "send"], "{target:?}");
            assert_eq!(p.b.inner().status().dropped, 2 * nth + 1);
            p.a.get(from, None, target, 0).unwrap();
            assert_eq!(p.here(), [""; 0], "{target:?}");
            assert_eq!(p.b.inner().status().dropped, 2 * nth + 2);
            assert_eq!(p.a.inspect(from), Ok((Some(9 - nth), 0)));
        }
        let status = plain.status();
        assert_eq!((p.there(), status.disabled, status.operation_violations), (vec![], 0, 0));
        assert_eq!(p.a.inner().status().operations, 0);
        plain.enable(4).unwrap();
        p.a.put(from, None, true, to(1, 4, 1), 0, 0).unwrap();
        assert_eq!(p.here(), ["send start", "send", "ack"]);
    }
}

/// Answers to what was not asked.
#[test]
fn stray_answers_are_dropped() {
    let net = petasos_sim::SimNet::new(petasos_sim::SimConfig::with_seed(3));
    let (at, mut villain) = (open(Over::Sim, Some(&net)), open(Over::Sim, Some(&net)));
    let addresses = [at.address().clone(), villain.address().clone()];
    let peer = villain.resolve(&addresses[0], Duration::from_secs(5)).unwrap();
    let map = Arc::new(ProcessMap::ranks(addresses));
    let plain = petasos_portals::Interface::with_given_time(at, map, Config::default(), net.now());
    let victim = Interface::of(plain.unwrap()).unwrap();
    for operation in [0, 1 << 32, u64::MAX] {
        let mut frame = Vec::new();
        Response { operation, status: 0, moved: None }.encode(&mut frame);
        let frame = Bytes::from(frame);
        while villain.inject(peer, &[&frame]).is_err() {
            villain.progress(net.now(), 64, &mut Vec::new());
            victim.progress_at(net.now());
            net.step();
        }
    }
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while victim.inner().status().dropped < 3 {
        villain.progress(net.now(), 64, &mut Vec::new());
        victim.progress_at(net.now());
        net.step();
        assert!(std::time::Instant::now() < end, "{:?}", victim.inner().status());
    }
    assert_eq!(victim.inner().status().garbage, 0);
}

fn an_acknowledgement_needs_a_queue(over: Over) {
    let p = pair(over);
    p.b.attach(p.entry(1), p.all(8), false).unwrap();
    let spec = MemoryDescriptor { threshold: Some(9), ..MemoryDescriptor::new(vec![1; 8]) };
    let from = p.a.bind(spec, false).unwrap();
    p.a.put(from, None, true, to(1, 4, 1), 0, 0).unwrap();
    p.job.settle();
    assert_eq!(p.a.inspect(from), Ok((Some(8), 0)), "no acknowledgement has come");
    assert_eq!(p.there(), ["start", "served"]);
}

fn ends_are_silent_on_both_sides_and_acknowledgements_are_not(over: Over) {
    for len in [8, LONG] {
        let p = pair(over);
        let silent = MemoryDescriptor { no_end_events: true, ..p.all(LONG) };
        p.b.attach(p.entry(1), silent.clone(), false).unwrap();
        let spec = MemoryDescriptor {
            no_end_events: true,
            queue: Some(p.own),
            ..MemoryDescriptor::new(pattern(len))
        };
        let bound = p.a.bind(spec.clone(), false).unwrap();
        let entry = p.a.attach_entry(4, ProcessId::ANY, 3, 0, false, Position::Last).unwrap();
        let attached = p.a.attach(entry, spec, false).unwrap();
        for from in [bound, attached] {
            p.a.put(from, None, true, to(1, 4, 1), 0, 0).unwrap();
            assert_eq!(p.here(), ["send start", "ack"]);
            assert_eq!(p.there(), ["start"]);
            p.a.get(from, None, to(1, 4, 1), 0).unwrap();
            assert_eq!(p.here(), ["reply start"]);
            assert_eq!(p.there(), ["start"]);
        }
    }
}

fn an_update_checks_the_new_and_gives_the_old(over: Over) {
    let p = pair(over);
    p.b.attach(p.entry(1), p.all(8), false).unwrap();
    let freed = p.a.queue(4).unwrap();
    p.a.inner().free_queue(freed).unwrap();
    let memory = Region::from_vec(vec![1; 8]);
    let spec = MemoryDescriptor {
        threshold: Some(5),
        max_size: Some(3),
        put: true,
        truncate: true,
        no_acknowledgement: true,
        no_start_events: true,
        user_data: 42,
        queue: Some(p.own),
        ..MemoryDescriptor::new(memory.clone())
    };
    let entry = p.a.attach_entry(4, ProcessId::ANY, 3, 0, false, Position::Last).unwrap();
    let attached = p.a.attach(entry, spec.clone(), false).unwrap();
    let bound = p.a.bind(spec.clone(), false).unwrap();
    for descriptor in [attached, bound] {
        let into = || MemoryDescriptor::new(vec![2; 4]);
        let stale = MemoryDescriptor { queue: Some(freed), ..into() };
        let refused = p.a.update(descriptor, stale, false, None);
        assert_eq!(refused.unwrap_err(), Error::Handle("an event queue"));
        assert_eq!(p.a.inspect(descriptor), Ok((Some(5), 0)), "nothing has changed");
        p.a.put(descriptor, None, true, to(1, 4, 1), 0, 0).unwrap();
        // What is under way keeps it as it is.
        assert_eq!(p.a.update(descriptor, into(), false, None).unwrap_err(), Error::NoUpdate);
        assert_eq!(p.here(), ["send", "ack"]);
        let old = p.a.update(descriptor, into(), false, Some(p.own)).unwrap();
        assert_eq!(old.memory.len(), 8);
        let MemoryDescriptor { threshold, max_size, put, get, manage_remote, truncate, .. } = old;
        assert_eq!((threshold, max_size), (Some(3), Some(3)), "what was left of it");
        assert_eq!((put, get, manage_remote, truncate), (true, false, false, true));
        assert!(old.no_acknowledgement && old.no_start_events && !old.no_end_events);
        assert_eq!((old.user_data, old.queue), (42, Some(p.own)));
        assert_eq!(p.a.inspect(descriptor), Ok((None, 0)));
    }
}

fn access_entries_are_checked(over: Over) {
    let p = pair(over);
    let all = Permit { user: None, ..Permit::user(0) };
    let portal = |portal| Some(Permit { portal: Some(portal), ..all });
    assert_eq!(p.b.set_access(1, portal(63)), Ok(()));
    assert_eq!(p.b.set_access(1, portal(64)), Err(Error::Portal(64)));
    let process = |process| Some(Permit { process, ..all });
    assert_eq!(p.b.set_access(1, process(ProcessId::rank(1))), Ok(()));
    let missing = p.b.set_access(1, process(ProcessId::rank(2)));
    assert!(matches!(missing, Err(Error::Process { .. })), "{missing:?}");
    let some = ProcessId { node: petasos_portals::ANY_PART, process: 9 };
    assert_eq!(p.b.set_access(1, process(some)), Ok(()), "parts may be any");
    assert!(matches!(p.b.set_access(1024, None), Err(Error::Argument(_))));
}

fn max_size_counts_before_an_operation_too(over: Over) {
    let p = pair(over);
    let short = MemoryDescriptor { max_size: Some(9), manage_remote: false, ..p.all(8) };
    let entry = p.entry(1);
    let short = p.b.attach(entry, short, true).unwrap();
    let from = p.bound(8);
    p.a.put(from, None, false, to(1, 4, 1), 0, 0).unwrap();
    assert_eq!(p.here(), ["send start", "send"]);
    assert_eq!((p.there(), p.b.inner().status().dropped), (vec![], 1));
    // By an update it may become active.
    let enough = MemoryDescriptor { max_size: Some(8), manage_remote: false, ..p.all(8) };
    p.b.update(short, enough, true, None).unwrap();
    p.a.put(from, None, false, to(1, 4, 1), 0, 0).unwrap();
    assert_eq!(p.there(), ["start", "served", "unlink"]);
    // Where the initiator says where, there is no offset that it could be left behind.
    let remote = MemoryDescriptor { max_size: Some(9), ..p.all(8) };
    p.b.attach(p.entry(2), remote, true).unwrap();
    p.a.put(from, None, false, to(1, 4, 2), 0, 0).unwrap();
    assert_eq!(p.there(), ["start", "served"]);
}

fn events_say_whose_descriptor_it_is(over: Over) {
    let p = pair(over);
    let wanted = MemoryDescriptor { threshold: Some(2), truncate: true, ..p.all(8) };
    let there = p.b.attach(p.entry(1), wanted, true).unwrap();
    let bound = p.bound(8);
    let entry = p.a.attach_entry(4, ProcessId::ANY, 3, 0, false, Position::Last).unwrap();
    let spec = MemoryDescriptor { queue: Some(p.own), ..MemoryDescriptor::new(vec![1; 8]) };
    let attached = p.a.attach(entry, spec, false).unwrap();
    let target = Target { offset: 2, ..to(1, 4, 1) };
    for own in [bound, attached] {
        p.a.put(own, None, true, target, 0, 5).unwrap();
        p.job.settle();
        let mut count = 0;
        while let Ok(taken) = p.a.inner().take_event(p.own) {
            let (Event::SendStart(e) | Event::Send(e) | Event::Ack(e)) = taken.event else {
                panic!("another event")
            };
            assert_eq!((e.memory_descriptor(), e.target, e.header_data), (own, target, 5));
            assert_eq!(e.memory_descriptor().interface(), p.a.inner().id());
            count += 1;
        }
        assert_eq!(count, 3);
    }
    let mut left = Vec::new();
    while let Ok(taken) = p.b.inner().take_event(p.queue) {
        left.push(match taken.event {
            Event::Start(e) | Event::Served(e) => {
                assert_eq!((e.memory_descriptor(), e.arrival.job), (there, 7));
                assert_eq!((e.arrival.offset, e.arrival.header_data, e.len), (2, 5, 6));
                e.left
            }
            Event::AutoUnlink(e) => {
                assert_eq!(e.memory_descriptor(), there);
                e.left
            }
            other => panic!("{other:?}"),
        });
    }
    let of = |operations| Left { operations: Some(operations), offset: 0 };
    assert_eq!(left, [of(1), of(1), of(0), of(0), of(0)]);
    assert_eq!((p.a.inner().user_and_job().1, p.b.inner().user_and_job().1), (7, 8));
}

/// Drives A, and not B, until something is so.
fn until(p: &Pair, what: &str, ready: impl Fn() -> bool) {
    let end = std::time::Instant::now() + Duration::from_secs(20);
    while !ready() {
        match &p.job.net {
            Some(net) => {
                p.a.progress_at(net.now());
                net.step();
            }
            None => drop(p.a.inner().progress()),
        }
        assert!(std::time::Instant::now() < end, "{what}");
    }
}

fn an_update_looks_at_what_has_come(over: Over) {
    let p = pair(over);
    let there = p.b.attach(p.entry(1), p.all(8), false).unwrap();
    let from = p.bound(8);
    p.a.put(from, None, false, to(1, 4, 1), 0, 0).unwrap();
    assert_eq!(p.there(), ["start", "served"]);
    p.a.put(from, None, false, to(1, 4, 1), 0, 0).unwrap();
    // Nothing drives B but the update itself.
    let update = || p.b.update(there, p.all(8), false, Some(p.queue));
    until(&p, "what has come is not looked at", || update().is_err());
    assert_eq!(update().unwrap_err(), Error::NoUpdate);
    assert_eq!(p.there(), ["start", "served"]);
}

fn an_entry_can_be_taken_out_when_its_data_has_come(over: Over) {
    for lend_above in [1000, usize::MAX] {
        let p = pair_with(over, |_, config| config.lend_above = lend_above);
        let entry = p.entry(1);
        p.b.attach(entry, p.all(LONG), false).unwrap();
        let from = p.bound(LONG);
        p.a.put(from, None, false, to(1, 4, 1), 0, 0).unwrap();
        assert!(matches!(p.job.event(1, p.queue), Event::Start(_)));
        // Its data is under way, or there already. Nothing drives B but what it is asked.
        until(&p, "its data does not come", || match p.b.unlink_entry(entry) {
            Err(Error::InUse(_)) => false,
            done => done.map(|()| true).unwrap(),
        });
        assert_eq!(p.there(), ["served"]);
    }
}

fn what_is_not_started_leaves_nothing_behind(over: Over) {
    let p = pair_with(over, |_, config| config.limits.descriptors = 2);
    p.b.attach(p.entry(1), p.all(8), false).unwrap();
    // Each operation from memory that is attached has a descriptor of its own, of two.
    let entry = p.a.attach_entry(4, ProcessId::ANY, 3, 0, false, Position::Last).unwrap();
    let spec = MemoryDescriptor {
        queue: Some(p.own),
        threshold: Some(2),
        ..MemoryDescriptor::new(vec![1; 8])
    };
    let own = p.a.attach(entry, spec, false).unwrap();
    let beyond = || to(9, 4, 1);
    for _ in 0..3 {
        assert!(p.a.put(own, Some((5, 4)), false, to(1, 4, 1), 0, 0).is_err(), "beyond its end");
        assert!(p.a.put(own, None, false, beyond(), 0, 0).is_err(), "there is no such process");
        assert!(p.a.get(own, None, beyond(), 0).is_err());
        assert!(p.a.get_put(own, own, beyond(), 0, 0).is_err());
        let gone = DescriptorHandle::Attached(entry, 77);
        assert!(p.a.get_put(own, gone, to(1, 4, 1), 0, 0).is_err());
    }
    assert_eq!(p.a.inspect(own), Ok((Some(2), 0)));
    p.a.get_put(own, own, to(1, 4, 1), 0, 0).unwrap();
    assert_eq!(p.here(), ["send start", "send", "reply start", "reply"]);
    assert_eq!(p.there(), ["start", "served"]);
}
