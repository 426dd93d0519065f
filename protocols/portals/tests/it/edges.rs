//! Rules at their edges: limits, what there is no room for, and what is left when something ends;
//! over each transport.

use crate::common::*;
use petasos_fabric::Region;
use petasos_portals::*;
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

over_all! {
    what_waits_for_a_process_has_its_limit
    without_room_for_a_header_a_portal_is_disabled
    slots_are_set_aside_for_long_data
    headers_are_for_entries_with_room_and_right
    a_portal_with_headers_is_not_closed
    a_portal_with_flow_control_has_a_slot_of_its_queue
    a_counter_takes_along_what_waits_for_it
}

const PATIENCE: Duration = Duration::from_secs(20);

fn what_waits_for_a_process_has_its_limit(over: Over) {
    let job = Job::with(over, 2, |_, config| config.limits.waiting = 10_000);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door_with(b, 100_000, false);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 1000]));
    let source = source(a, &[1; 1000]);
    let put = Operation::put(source.part, to(1, door.portal, 0));
    // B does nothing: what the transport does not take waits, until that is too much.
    let (mut started, limit) = (0, 1_000_000);
    let refused = loop {
        match a.start(put) {
            Ok(()) => started += 1,
            Err(error) => break error,
        }
        assert!(started < limit, "all of it waits");
    };
    assert_eq!(refused, Error::NoSpace { what: "waiting bytes", limit: 10_000 });
    let served = || job.until(|| b.take_event(door.queue).ok());
    for _ in 0..started {
        served();
    }
    a.start(put).unwrap();
    served();
    assert!(b.take_event(door.queue).is_err(), "what was refused was not sent");
}

fn without_room_for_a_header_a_portal_is_disabled(over: Over) {
    for len in [8, LONG] {
        let job = Job::with(over, 2, |_, config| config.limits.headers = 1);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door_with(b, 100, true);
        append(b, &door, List::Overflow, overflow(3 * LONG));
        let source = source(a, &vec![1; len]);
        let put = Operation::put(source.part, to(1, door.portal, 0));
        for _ in 0..3 {
            a.start(Operation { ack: Ack::Full, ..put }).unwrap();
        }
        let mut names = job.names(0, source.queue);
        names.retain(|name| name != "send");
        names.sort();
        assert_eq!(names, ["ack", "ack: PortalDisabled", "ack: PortalDisabled"]);
        let mut names = job.names(1, door.queue);
        names.sort();
        assert_eq!(names, ["disabled", "served"], "told once");
        assert_eq!((b.status().disabled, b.status().dropped), (2, 0));
    }
}

/// With flow control nothing that began lacks the room for its end.
fn slots_are_set_aside_for_long_data(over: Over) {
    for (lend_above, reads) in [(1000, false), (usize::MAX, false), (usize::MAX, true)] {
        let job = Job::with(over, 2, |_, config| config.lend_above = lend_above);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door_with(b, 5, true);
        let accepts = Accepts::PUT.with(Accepts::GET);
        append(b, &door, List::Priority, MatchEntry { accepts, ..MatchEntry::new(vec![0; LONG]) });
        let source = source(a, &[1; LONG]);
        let target = to(1, door.portal, 0);
        for _ in 0..9 {
            a.start(match reads {
                true => Operation::get(source.part, target),
                false => Operation { ack: Ack::Full, ..Operation::put(source.part, target) },
            })
            .unwrap();
        }
        let names = job.names(0, source.queue);
        let count = |end: &str| names.iter().filter(|name| *name == end).count();
        let kind = if reads { "reply" } else { "ack" };
        assert_eq!((count(kind), count(&format!("{kind}: PortalDisabled"))), (2, 7), "{names:?}");
        let events: Vec<Taken> = std::iter::from_fn(|| b.take_event(door.queue).ok()).collect();
        assert!(events.iter().all(|taken| taken.lost == 0), "{events:?}");
        let mut names: Vec<String> = events.iter().map(|taken| name(&taken.event)).collect();
        names.sort();
        assert_eq!(names, ["disabled", "served", "served"]);
    }
}

fn headers_are_for_entries_with_room_and_right(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Overflow, overflow(100));
    let source = source(a, &[1; 8]);
    for _ in 0..2 {
        a.start(Operation::put(source.part, to(1, door.portal, 0))).unwrap();
    }
    assert_eq!(job.names(1, door.queue), ["served"; 2]);
    let short = || MatchEntry { truncate: false, once: true, ..MatchEntry::new(vec![0; 7]) };
    append(b, &door, List::Priority, short());
    assert_eq!(b.status().headers, 2, "it has not the room");
    // A failure is told where successes are not, and counts as one.
    let counter = b.counter().unwrap();
    let counts = Counts::OVERFLOW.with(Counts::BYTES);
    let quiet = Quiet::SUCCESS;
    let counted = MatchEntry {
        counter: Some(counter),
        counts,
        quiet,
        once: true,
        ..MatchEntry::new(vec![0; 8])
    };
    let other = MatchEntry { user: Some(seen(over, 0) + 1), ..counted.clone() };
    b.append(door.portal, List::Priority, other).unwrap();
    assert_eq!(job.names(1, door.queue), ["overflow: Permission", "unlink"]);
    b.append(door.portal, List::Priority, counted).unwrap();
    assert_eq!(job.names(1, door.queue), ["unlink"]);
    assert_eq!(b.count(counter), Ok(Count { success: 8, failure: 1 }));
    assert_eq!(b.status().headers, 0);
}

fn a_portal_with_headers_is_not_closed(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    // The entry is in no list any more, and what it does not want to be told is left untold.
    let block = MatchEntry { once: true, quiet: Quiet::UNLINK, ..overflow(100) };
    append(b, &door, List::Overflow, block);
    let source = source(a, &[1; 8]);
    a.start(Operation::put(source.part, to(1, door.portal, 0))).unwrap();
    assert_eq!(job.names(1, door.queue), ["served"]);
    assert_eq!(b.close_portal(door.portal), Err(Error::InUse("the portal")));
    b.search_and_delete(door.portal, MatchEntry::new(vec![0; 8])).unwrap();
    assert_eq!(job.names(1, door.queue), ["overflow"]);
    assert_eq!(b.close_portal(door.portal), Ok(()));
}

fn a_portal_with_flow_control_has_a_slot_of_its_queue(over: Over) {
    let job = Job::new(over, 1);
    let a = &job.ranks[0];
    let open = |queue| {
        a.portal(PortalOptions { queue: Some(queue), flow_control: true, ..Default::default() })
    };
    let [one, three] = [1, 3].map(|events| a.queue(events).unwrap());
    assert!(matches!(open(one), Err(Error::Argument(_))), "none would be left for anything else");
    let portals = [(); 2].map(|()| open(three).unwrap());
    assert_eq!(portals, [0, 1], "what was refused was not opened");
    assert!(matches!(open(three), Err(Error::Argument(_))));
    a.close_portal(0).unwrap();
    assert_eq!(open(three), Ok(0), "a portal that is closed needs none");
    // Nothing else is put there.
    let four = a.queue(4).unwrap();
    let portal = open(four).unwrap();
    for _ in 0..4 {
        a.append(portal, List::Priority, MatchEntry::new(vec![0; 8])).unwrap();
    }
    let first = a.take_event(four).unwrap();
    assert_eq!((name(&first.event), first.lost), ("link".to_owned(), 1));
}

fn a_counter_takes_along_what_waits_for_it(over: Over) {
    let job = Job::with(over, 1, |_, config| config.limits.triggered = 1);
    let a = &job.ranks[0];
    let moved = a.counter().unwrap();
    let add = Action::Add(moved, Count::of(1));
    for _ in 0..3 {
        let counter = a.counter().unwrap();
        a.trigger(counter, 1, add).unwrap();
        assert!(matches!(a.trigger(counter, 1, add), Err(Error::NoSpace { .. })));
        a.free_counter(counter).unwrap();
    }
    assert_eq!(a.count(moved), Ok(Count::of(0)));
}

/// What is answered is not there yet while it is long: a fence overtakes the data, and a flush
/// waits for it.
#[test]
fn a_flush_waits_for_long_data() {
    const LEN: usize = 8 << 20;
    for over in [Over::Local, Over::Shm, Over::Tcp] {
        for lend_above in [1000, usize::MAX] {
            let job = Job::with(over, 2, |_, config| config.lend_above = lend_above);
            let (a, b) = (&job.ranks[0], &job.ranks[1]);
            let door = door(b);
            let memory = Region::zeroed(LEN);
            append(b, &door, List::Priority, MatchEntry::new(memory.clone()));
            let done = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !done.load(Ordering::SeqCst) {
                        if !b.progress() {
                            std::thread::yield_now();
                        }
                    }
                });
                for round in 1..9 {
                    let bound = a.bind(Descriptor::new(vec![round; LEN])).unwrap();
                    let part = Part::of(bound, LEN as u64);
                    a.start(Operation::put(part, to(1, door.portal, 0))).unwrap();
                    let flushed = a.flush(PATIENCE);
                    let last = memory.to_vec()[LEN - 1];
                    done.store(flushed.is_err() || last != round, Ordering::SeqCst);
                    flushed.unwrap();
                    assert_eq!(last, round, "it has come in");
                }
                done.store(true, Ordering::SeqCst);
            });
        }
    }
}
