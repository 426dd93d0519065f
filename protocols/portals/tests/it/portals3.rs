//! A test for each rule of Portals 3 that its successor has not, over each transport.

use crate::common::{Job, LONG, Over, name, over_all, pattern, seen, to};
use petasos_fabric::Region;
use petasos_portals::{
    Config, Error, Event, EventQueue, Handle, Interface as Plain, Left, List, MatchEntry, Permit,
    ProcessId,
    v3::{DescriptorHandle, Interface, MemoryDescriptor, Position},
};

over_all! {
    starts_and_ends_of_each_operation
    a_threshold_counts_and_then_unlinks
    a_threshold_of_zero_never_unlinks
    an_entry_goes_with_its_memory_or_stays
    entries_go_in_anywhere
    an_entry_without_memory_is_passed_over
    what_is_not_allowed_goes_on_to_the_next_entry
    without_truncation_it_goes_on
    max_size_ends_a_descriptor
    a_put_costs_two_if_it_is_acknowledged
    a_reply_costs_one
    an_update_needs_an_empty_queue
    access_is_by_the_entry_that_the_request_names
    get_put_exchanges
    a_queue_that_overflows_gives_an_event_nevertheless
    starts_and_unlinks_overflow_as_ends_do
    wildcards_of_node_and_process
    any_free_portal
    events_say_how_a_descriptor_stands
    attached_memory_serves_both_ways
    handles_that_are_stale
}

struct Pair {
    job: Job,
    a: Interface,
    b: Interface,
    queue: Handle<EventQueue>,
    own: Handle<EventQueue>,
}

fn pair(over: Over) -> Pair {
    pair_with(over, |_, _| {})
}

fn pair_with(over: Over, set: impl Fn(usize, &mut Config)) -> Pair {
    let job = Job::with(over, 2, set);
    let face = |rank: &Plain| Interface::of(rank.clone()).unwrap();
    let (a, b) = (face(&job.ranks[0]), face(&job.ranks[1]));
    let (own, queue) = (a.queue(100).unwrap(), b.queue(100).unwrap());
    Pair { job, a, b, queue, own }
}

impl Pair {
    fn entry(&self, bits: u64, unlink: bool) -> Handle<MatchEntry> {
        self.b.attach_entry(4, ProcessId::ANY, bits, 0, unlink, Position::Last).unwrap()
    }

    fn wanted(&self, len: usize) -> MemoryDescriptor {
        let queue = Some(self.queue);
        MemoryDescriptor { queue, put: true, ..MemoryDescriptor::new(vec![0; len]) }
    }

    /// Bytes of A's, bound.
    fn bound(&self, bytes: &[u8], threshold: Option<u64>) -> DescriptorHandle {
        let queue = Some(self.own);
        let plain = MemoryDescriptor::new(bytes.to_vec());
        self.a.bind(MemoryDescriptor { queue, threshold, ..plain }, true).unwrap()
    }

    fn put(&self, bits: u64, len: usize) {
        let from = self.bound(&pattern(len), None);
        self.a.put(from, None, false, to(1, 4, bits), 0, 0).unwrap();
    }

    fn there(&self) -> Vec<String> {
        self.job.names(1, self.queue)
    }

    fn here(&self) -> Vec<String> {
        self.job.names(0, self.own)
    }
}

fn starts_and_ends_of_each_operation(over: Over) {
    for len in [16, LONG] {
        let p = pair(over);
        let entry = p.entry(1, false);
        let wanted = MemoryDescriptor { get: true, manage_remote: true, ..p.wanted(LONG) };
        p.b.attach(entry, wanted, false).unwrap();
        let from = p.bound(&pattern(len), None);
        p.a.put(from, None, true, to(1, 4, 1), 0, 7).unwrap();
        assert_eq!(p.here(), ["send start", "send", "ack"]);
        let events = [0; 2].map(|_| p.job.event(1, p.queue));
        match &events {
            [Event::Start(start), Event::Served(end)] => {
                assert_eq!((start.link, start.arrival.header_data), (end.link, 7));
                assert!(start.link > 0);
            }
            other => panic!("{other:?}"),
        }
        p.a.get(from, None, to(1, 4, 1), 0).unwrap();
        assert_eq!(p.here(), ["reply start", "reply"]);
        assert_eq!(p.there(), ["start", "served"]);
        let quiet = MemoryDescriptor { no_start_events: true, ..p.wanted(8) };
        let entry = p.entry(2, true);
        p.b.attach(entry, MemoryDescriptor { threshold: Some(1), truncate: true, ..quiet }, true)
            .unwrap();
        p.put(2, len);
        assert_eq!(p.there(), ["served", "unlink"]);
    }
}

fn a_threshold_counts_and_then_unlinks(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, true);
    let descriptor = MemoryDescriptor { threshold: Some(2), ..p.wanted(100) };
    let descriptor = p.b.attach(entry, descriptor, true).unwrap();
    p.put(1, 10);
    assert_eq!(p.there(), ["start", "served"]);
    assert_eq!(p.b.inspect(descriptor), Ok((Some(1), 10)));
    p.put(1, 10);
    p.put(1, 10);
    assert_eq!(p.there(), ["start", "served", "unlink"], "the unlinking comes after the end");
    assert!(p.b.inspect(descriptor).is_err() && p.b.unlink_entry(entry).is_err());
    assert_eq!(p.b.inner().status().dropped, 1);
}

fn a_threshold_of_zero_never_unlinks(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, true);
    let descriptor = MemoryDescriptor { threshold: Some(0), ..p.wanted(100) };
    let descriptor = p.b.attach(entry, descriptor, true).unwrap();
    p.put(1, 10);
    assert_eq!(p.there(), [""; 0]);
    assert_eq!(p.b.inspect(descriptor), Ok((Some(0), 0)));
    assert_eq!(p.b.inner().status().dropped, 1);
    assert_eq!(p.b.unlink(descriptor).unwrap().len(), 100);
    assert!(p.b.unlink_entry(entry).is_err(), "it went with its memory");
}

fn an_entry_goes_with_its_memory_or_stays(over: Over) {
    let p = pair(over);
    for goes in [false, true] {
        let bits = u64::from(goes);
        let entry = p.entry(bits, goes);
        let once = MemoryDescriptor { threshold: Some(1), ..p.wanted(100) };
        let first = p.b.attach(entry, once.clone(), true).unwrap();
        assert_eq!(p.b.attach(entry, once.clone(), true), Err(Error::InUse("the descriptor")));
        p.put(bits, 10);
        assert_eq!(p.there(), ["start", "served", "unlink"]);
        assert!(p.b.inspect(first).is_err());
        // A descriptor that stays is inactive, and is still there.
        let again = p.b.attach(entry, once.clone(), false);
        assert_eq!(again.is_ok(), !goes);
        if let Ok(second) = again {
            p.put(bits, 10);
            p.put(bits, 10);
            assert_eq!(p.there(), ["start", "served"]);
            assert_eq!(p.b.inspect(second), Ok((Some(0), 10)));
            p.b.unlink(second).unwrap();
            p.b.unlink_entry(entry).unwrap();
        }
    }
}

fn entries_go_in_anywhere(over: Over) {
    let p = pair(over);
    let target = |position| {
        let entry = p.b.attach_entry(4, ProcessId::ANY, 1, 0, true, position).unwrap();
        let user_data = u64::from(entry.to_bits() as u32);
        let once = MemoryDescriptor { threshold: Some(1), user_data, ..p.wanted(9) };
        p.b.attach(entry, once, true).unwrap();
        (entry, user_data)
    };
    let middle = target(Position::Last);
    let last = target(Position::Last);
    let first = target(Position::First);
    let before = target(Position::Before(middle.0));
    let after = target(Position::After(middle.0));
    for (_, expected) in [first, before, middle, after, last] {
        p.put(1, 4);
        let Event::Start(start) = p.job.event(1, p.queue) else { panic!("no start") };
        assert_eq!(start.user_data, expected);
        assert_eq!(p.there(), ["served", "unlink"]);
    }
    let gone = Position::Before(middle.0);
    assert!(p.b.attach_entry(4, ProcessId::ANY, 1, 0, true, gone).is_err());
    let other = target(Position::Last).0;
    let elsewhere = p.b.attach_entry(5, ProcessId::ANY, 1, 0, true, Position::After(other));
    assert!(elsewhere.is_err(), "an entry of another portal");
}

fn an_entry_without_memory_is_passed_over(over: Over) {
    let p = pair(over);
    let (empty, full) = (p.entry(1, false), p.entry(1, false));
    p.b.attach(full, MemoryDescriptor { user_data: 2, ..p.wanted(9) }, false).unwrap();
    p.put(1, 3);
    assert!(matches!(p.job.event(1, p.queue), Event::Start(start) if start.user_data == 2));
    p.job.event(1, p.queue);
    p.b.attach(empty, MemoryDescriptor { user_data: 1, ..p.wanted(9) }, false).unwrap();
    p.put(1, 3);
    assert!(matches!(p.job.event(1, p.queue), Event::Start(start) if start.user_data == 1));
}

fn what_is_not_allowed_goes_on_to_the_next_entry(over: Over) {
    let p = pair(over);
    for (get, user_data) in [(true, 1), (false, 2)] {
        let entry = p.entry(1, false);
        p.b.attach(entry, MemoryDescriptor { get, put: !get, user_data, ..p.wanted(9) }, false)
            .unwrap();
    }
    p.put(1, 3);
    assert!(matches!(p.job.event(1, p.queue), Event::Start(start) if start.user_data == 2));
    assert_eq!(p.there(), ["served"]);
    let into = p.bound(&[0; 3], None);
    p.a.get(into, None, to(1, 4, 1), 0).unwrap();
    assert!(matches!(p.job.event(1, p.queue), Event::Start(start) if start.user_data == 1));
    p.a.get_put(into, into, to(1, 4, 1), 0, 0).unwrap();
    p.job.settle();
    assert_eq!(p.b.inner().status().dropped, 1, "get-put needs both");
}

fn without_truncation_it_goes_on(over: Over) {
    let p = pair(over);
    for (len, truncate) in [(4, false), (8, true)] {
        let entry = p.entry(1, false);
        p.b.attach(entry, MemoryDescriptor { truncate, ..p.wanted(len) }, false).unwrap();
    }
    for (len, room, moved) in [(3, 4, 3), (2, 8, 2), (20, 8, 6)] {
        p.put(1, len);
        let Event::Start(start) = p.job.event(1, p.queue) else { panic!("no start") };
        assert_eq!(start.len, moved, "into {room}");
        p.job.event(1, p.queue);
    }
}

fn max_size_ends_a_descriptor(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, true);
    let wanted = MemoryDescriptor { max_size: Some(8), ..p.wanted(20) };
    p.b.attach(entry, wanted, true).unwrap();
    for names in [vec!["start", "served"], vec!["start", "served", "unlink"], vec![]] {
        p.put(1, 7);
        assert_eq!(p.there(), names);
    }
}

fn a_put_costs_two_if_it_is_acknowledged(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, false);
    p.b.attach(entry, MemoryDescriptor { manage_remote: true, ..p.wanted(20) }, false).unwrap();
    let from = p.bound(&[1; 4], Some(3));
    p.a.put(from, None, true, to(1, 4, 1), 0, 0).unwrap();
    assert_eq!(p.here(), ["send start", "send", "ack"]);
    assert_eq!(p.a.inspect(from), Ok((Some(1), 0)));
    // The last one goes for the put: its acknowledgement is lost.
    p.a.put(from, None, true, to(1, 4, 1), 0, 0).unwrap();
    let names = p.here();
    assert_eq!(names, ["send start", "send", "released"]);
    assert!(p.a.inspect(from).is_err(), "and the descriptor has gone");
    assert!(p.a.put(from, None, true, to(1, 4, 1), 0, 0).is_err());
}

fn a_reply_costs_one(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, false);
    let wanted = MemoryDescriptor { get: true, manage_remote: true, ..p.wanted(20) };
    p.b.attach(entry, wanted, false).unwrap();
    let into = p.bound(&[1; 4], Some(1));
    p.a.get(into, None, to(1, 4, 1), 0).unwrap();
    assert_eq!(p.a.unlink(into).unwrap_err(), Error::InUse("the descriptor"));
    assert_eq!(p.here(), ["reply start", "reply", "released"]);
    assert!(p.a.inspect(into).is_err());
}

fn an_update_needs_an_empty_queue(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, false);
    let descriptor = p.b.attach(entry, p.wanted(20), false).unwrap();
    p.put(1, 4);
    p.job.until(|| (p.b.inspect(descriptor).unwrap().1 == 4).then_some(()));
    let new = MemoryDescriptor { user_data: 5, ..p.wanted(30) };
    let update = |queue| p.b.update(descriptor, new.clone(), false, queue).map(drop);
    assert_eq!(update(Some(p.queue)), Err(Error::NoUpdate));
    assert_eq!(p.there(), ["start", "served"]);
    assert_eq!(update(Some(p.queue)), Ok(()));
    assert_eq!(p.b.inspect(descriptor), Ok((None, 0)));
    p.put(1, 30);
    assert!(matches!(p.job.event(1, p.queue), Event::Start(start) if start.user_data == 5));
    assert_eq!(update(None), Ok(()), "without a condition");
}

fn access_is_by_the_entry_that_the_request_names(over: Over) {
    let p = pair_with(over, |rank, config| (config.user, config.job) = (100 + rank as u32, 7));
    let entry = p.entry(1, false);
    p.b.attach(entry, MemoryDescriptor { manage_remote: true, ..p.wanted(20) }, false).unwrap();
    let all = Permit { user: None, ..Permit::user(0) };
    for (index, permit) in [
        (1, Some(Permit::user(seen(over, 100)))),
        (2, Some(Permit { process: ProcessId::rank(1), ..all })),
        (3, Some(Permit { process: ProcessId::rank(0), job: Some(7), portal: Some(4), ..all })),
        (4, Some(Permit { job: Some(8), ..all })),
        (5, Some(Permit { portal: Some(5), ..all })),
        (6, None),
    ] {
        p.b.set_access(index, permit).unwrap();
    }
    let from = p.bound(&[1; 4], None);
    for cookie in 0..8 {
        p.a.put(from, None, true, to(1, 4, 1), cookie, 0).unwrap();
        let admitted = [1, 3].contains(&cookie);
        // What is not admitted is dropped, and not answered.
        let names = ["send start", "send", "ack"];
        let names = if admitted { &names[..] } else { &names[..2] };
        assert_eq!(p.here(), names, "entry {cookie}");
    }
    let status = p.b.inner().status();
    assert_eq!((status.dropped, status.permission_violations), (6, 0));
    assert!(p.b.set_access(1 << 20, None).is_err());
}

fn get_put_exchanges(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, false);
    let memory = Region::from_vec(vec![3; 8]);
    let wanted = MemoryDescriptor { memory: memory.clone().into(), get: true, ..p.wanted(0) };
    p.b.attach(entry, wanted, false).unwrap();
    let old = Region::zeroed(8);
    let into = MemoryDescriptor { queue: Some(p.own), ..MemoryDescriptor::new(old.clone()) };
    let into = p.a.bind(into, false).unwrap();
    let from = p.bound(&[5; 8], None);
    p.a.get_put(into, from, to(1, 4, 1), 0, 0).unwrap();
    assert_eq!(p.here(), ["send start", "send", "reply start", "reply"]);
    assert_eq!((old.to_vec(), memory.to_vec()), (vec![3; 8], vec![5; 8]));
    assert_eq!(p.there(), ["start", "served"]);
}

fn a_queue_that_overflows_gives_an_event_nevertheless(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, false);
    let small = p.b.queue(3).unwrap();
    let wanted = MemoryDescriptor { queue: Some(small), no_start_events: true, ..p.wanted(100) };
    p.b.attach(entry, wanted, false).unwrap();
    for _ in 0..5 {
        p.put(1, 4);
    }
    p.job.settle();
    let taken = [0; 3].map(|_| p.b.inner().take_event(small).unwrap());
    assert_eq!(taken.each_ref().map(|taken| taken.lost), [2, 0, 0]);
    let offsets = taken.map(|taken| match taken.event {
        Event::Served(served) => served.offset,
        other => panic!("{other:?}"),
    });
    assert_eq!(offsets, [8, 12, 16], "the oldest are gone");
    assert_eq!(p.b.inner().take_event(small).unwrap_err(), Error::Empty);
}

/// No slots are kept: the newest events stay, whatever they tell of.
fn starts_and_unlinks_overflow_as_ends_do(over: Over) {
    let all = ["start", "served", "start", "served", "unlink"];
    for (capacity, len) in [(1, 4), (2, LONG), (3, 4), (4, LONG), (5, 4)] {
        let p = pair(over);
        let small = p.b.queue(capacity).unwrap();
        let twice = MemoryDescriptor { queue: Some(small), threshold: Some(2), ..p.wanted(LONG) };
        let twice = MemoryDescriptor { manage_remote: true, ..twice };
        p.b.attach(p.entry(1, true), twice, true).unwrap();
        for _ in 0..2 {
            p.put(1, len);
            p.job.settle();
        }
        let events = std::iter::from_fn(|| p.b.inner().take_event(small).ok());
        let events: Vec<_> =
            events.map(|taken| (name(&taken.event), taken.lost, taken.sequence)).collect();
        let lost = all.len() - capacity;
        let expected = all[lost..].iter().enumerate().map(|(nth, name)| {
            let lost_before = if nth == 0 { lost as u64 } else { 0 };
            ((*name).to_owned(), lost_before, (lost + nth) as u64 + 1)
        });
        assert_eq!(events, expected.collect::<Vec<_>>(), "a queue of {capacity}");
    }
}

fn wildcards_of_node_and_process(over: Over) {
    let p = pair(over);
    let any = petasos_portals::ANY_PART;
    let sources = [
        (ProcessId { node: 9, process: any }, false),
        (ProcessId { node: any, process: 1 }, false),
        (ProcessId { node: 0, process: any }, true),
        (ProcessId { node: any, process: 0 }, true),
        (ProcessId::rank(0), true),
        (ProcessId::ANY, true),
    ];
    for (source, _) in sources {
        let entry = p.b.attach_entry(4, source, 1, 0, true, Position::Last).unwrap();
        let user_data = source.node as u64 ^ (source.process as u64) << 32;
        let once = MemoryDescriptor { threshold: Some(1), user_data, ..p.wanted(9) };
        p.b.attach(entry, once, true).unwrap();
    }
    for (source, matches) in sources {
        if matches {
            p.put(1, 3);
            let Event::Start(start) = p.job.event(1, p.queue) else { panic!("no start") };
            assert_eq!(start.user_data, source.node as u64 ^ (source.process as u64) << 32);
            p.there();
        }
    }
    p.put(1, 3);
    assert_eq!(p.there(), [""; 0]);
}

fn any_free_portal(over: Over) {
    let p = pair(over);
    let (first, _) = p.b.attach_entry_anywhere(ProcessId::ANY, 1, 0, false).unwrap();
    let (second, _) = p.b.attach_entry_anywhere(ProcessId::ANY, 1, 0, false).unwrap();
    assert_ne!(first, second);
    let taken = p.b.inner().append(63, List::Priority, MatchEntry::new(vec![]));
    assert!(taken.is_ok());
    for _ in 0..61 {
        p.b.attach_entry_anywhere(ProcessId::ANY, 1, 0, false).unwrap();
    }
    let none = p.b.attach_entry_anywhere(ProcessId::ANY, 1, 0, false);
    assert_eq!(none.unwrap_err(), Error::NoPortal);
}

fn events_say_how_a_descriptor_stands(over: Over) {
    let p = pair(over);
    let wanted = MemoryDescriptor { threshold: Some(2), ..p.wanted(100) };
    p.b.attach(p.entry(1, true), wanted, true).unwrap();
    let from = p.bound(&[1; 10], Some(5));
    for _ in 0..2 {
        p.a.put(from, None, true, to(1, 4, 1), 0, 0).unwrap();
        p.job.settle();
    }
    let mut sequence = 0;
    let mut all = |at: &Interface, queue| {
        let events = std::iter::from_fn(|| {
            let taken = at.inner().take_event(queue).ok()?;
            sequence += 1;
            assert_eq!(taken.sequence, sequence);
            Some(taken.event)
        });
        let events = events.map(|event| match event {
            Event::Start(e) | Event::Served(e) => e.left,
            Event::AutoUnlink(e) => e.left,
            Event::SendStart(e) | Event::Send(e) | Event::Ack(e) => {
                Left { operations: e.left, offset: 0 }
            }
            other => panic!("{other:?}"),
        });
        let events: Vec<_> = events.map(|left| (left.operations.unwrap(), left.offset)).collect();
        sequence = 0;
        events
    };
    assert_eq!(all(&p.b, p.queue), [(1, 10), (1, 10), (0, 20), (0, 20), (0, 20)]);
    let here: Vec<u64> = all(&p.a, p.own).into_iter().map(|left| left.0).collect();
    assert_eq!(here, [4, 4, 3, 2, 2, 1]);
}

fn attached_memory_serves_both_ways(over: Over) {
    for len in [10, LONG] {
        let p = pair(over);
        // At A: for others, and for operations of its own.
        let entry = p.a.attach_entry(4, ProcessId::ANY, 9, 0, true, Position::Last).unwrap();
        let memory = Region::from_vec(pattern(len));
        let both = MemoryDescriptor {
            put: true,
            get: true,
            manage_remote: true,
            threshold: Some(5),
            user_data: 77,
            queue: Some(p.own),
            ..MemoryDescriptor::new(memory.clone())
        };
        let both = p.a.attach(entry, both, true).unwrap();
        let there = Region::zeroed(len);
        let wanted = MemoryDescriptor { get: true, manage_remote: true, ..p.wanted(0) };
        p.b.attach(
            p.entry(1, false),
            MemoryDescriptor { memory: there.clone().into(), ..wanted },
            false,
        )
        .unwrap();
        // Two for a put and its acknowledgement, one for a reply, one for another process's put.
        p.a.put(both, None, true, to(1, 4, 1), 0, 0).unwrap();
        assert!(matches!(p.a.unlink(both), Err(Error::InUse(_))), "an operation is under way");
        assert_eq!(p.here(), ["send start", "send", "ack"]);
        assert!(there.to_vec() == pattern(len));
        there.write(0, &[9; 10]);
        p.a.get(both, Some((0, 10)), to(1, 4, 1), 0).unwrap();
        assert_eq!(p.here(), ["reply start", "reply"]);
        assert_eq!(memory.to_vec()[..10], [9; 10]);
        let bound = MemoryDescriptor { queue: Some(p.queue), ..MemoryDescriptor::new(vec![3; 4]) };
        let bound = p.b.bind(bound, false).unwrap();
        p.b.put(bound, None, false, to(0, 4, 9), 0, 0).unwrap();
        assert_eq!(p.here(), ["start", "served"]);
        assert_eq!(p.a.inspect(both), Ok((Some(1), 0)));
        // The last one, whose acknowledgement is lost, and the entry goes with it.
        p.a.put(both, Some((0, 4)), true, to(1, 4, 1), 0, 0).unwrap();
        p.job.settle();
        let mut data = Vec::new();
        let events = std::iter::from_fn(|| p.a.inner().take_event(p.own).ok());
        let names: Vec<_> = events
            .map(|taken| {
                match &taken.event {
                    Event::SendStart(e) | Event::Send(e) => data.push(e.user_data),
                    Event::AutoUnlink(e) => data.push(e.user_data),
                    _ => {}
                }
                name(&taken.event)
            })
            .collect();
        assert_eq!(names, ["send start", "send", "unlink"]);
        assert_eq!(data, [77; 3]);
        assert!(p.a.inspect(both).is_err() && p.a.unlink_entry(entry).is_err());
        assert!(p.a.put(both, None, false, to(1, 4, 1), 0, 0).is_err(), "used up");
        drop(memory.into_exclusive().expect("nothing holds it any more"));
    }
}

fn handles_that_are_stale(over: Over) {
    let p = pair(over);
    let entry = p.entry(1, false);
    let descriptor = p.b.attach(entry, p.wanted(9), false).unwrap();
    p.b.unlink(descriptor).unwrap();
    assert!(p.b.unlink(descriptor).is_err() && p.b.inspect(descriptor).is_err());
    assert!(p.b.update(descriptor, p.wanted(9), false, None).is_err());
    let second = p.b.attach(entry, p.wanted(9), false).unwrap();
    assert!(second != descriptor && p.b.inspect(descriptor).is_err());
    assert!(p.b.put(descriptor, None, false, to(0, 4, 1), 0, 0).is_err(), "gone");
    p.b.unlink_entry(entry).unwrap();
    assert!(p.b.inspect(second).is_err() && p.b.attach(entry, p.wanted(9), false).is_err());
    let from = p.bound(&[1; 4], None);
    assert!(p.a.put(from, Some((2, 3)), false, to(1, 4, 1), 0, 0).is_err(), "out of range");
    p.a.unlink(from).unwrap();
    assert!(p.a.unlink(from).is_err());
}
