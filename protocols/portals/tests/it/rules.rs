//! A test for each rule of Portals 4, over each transport.

use crate::common::*;
use petasos_fabric::Region;
use petasos_portals::*;
use std::time::Duration;

over_all! {
    a_put_lands_and_is_acknowledged
    a_get_brings_what_is_there
    long_data_goes_from_memory_to_memory
    memory_in_pieces_counts_as_one
    to_oneself_in_order_with_others
    messages_of_a_pair_match_in_order
    truncation_is_the_default
    what_does_not_fit_goes_on_to_the_next_entry
    use_once_and_then_unlinked
    operations_in_a_bundle
    a_user_that_no_transport_vouches_for
    limits_promises_and_distances
    lent_memory_is_called_back_before_the_end
    local_offsets_and_min_free
    unexpected_messages_are_told_at_append
    a_header_can_be_claimed_before_its_data_is_there
    the_memory_of_overflow_is_free_when_no_header_refers_to_it
    search_and_search_and_delete
    entries_are_for_their_user
    what_an_entry_does_not_allow_is_refused
    no_match_is_dropped_and_told
    a_full_portal_is_disabled_and_enabled_again
    a_disabled_portal_refuses
    events_can_be_turned_off
    counters_count_operations_or_bytes
    no_acknowledgement_from_entries_that_give_none
    atomics_fetches_and_swaps
    triggered_operations_run_in_the_order_of_thresholds
    a_chain_of_triggered_operations_does_not_recurse
    handles_that_are_stale
    limits_that_are_exhausted
    parts_out_of_range
    an_abort_wakes_waiting_threads
    memory_comes_back_alone
}

fn served(event: Event) -> Served {
    match event {
        Event::Served(served) | Event::Overflow(served) => served,
        other => panic!("not an operation: {other:?}"),
    }
}

fn completed(event: Event) -> Completed {
    match event {
        Event::Send(completed) | Event::Ack(completed) | Event::Reply(completed) => completed,
        other => panic!("not an operation's end: {other:?}"),
    }
}

fn a_put_lands_and_is_acknowledged(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let memory = Region::zeroed(100);
    let entry = MatchEntry { bits: 5, user_data: 9, ..MatchEntry::new(memory.clone()) };
    let handle = append(b, &door, List::Priority, entry);
    let source = source(a, b"twelve bytes");
    let target = Target { offset: 10, ..to(1, door.portal, 5) };
    let put = Operation::put(source.part, target);
    a.start(Operation { ack: Ack::Full, header_data: 77, user_data: 3, ..put }).unwrap();
    let there = served(job.event(1, door.queue));
    assert_eq!((there.entry, there.user_data, there.len, there.offset), (handle, 9, 12, 10));
    assert_eq!((there.arrival.initiator, there.arrival.header_data), (ProcessId::rank(0), 77));
    assert_eq!(
        (there.arrival.bits, there.arrival.request, there.result),
        (5, Request::Put, Ok(()))
    );
    assert_eq!(&memory.to_vec()[10..22], b"twelve bytes");
    assert!(matches!(job.event(0, source.queue), Event::Send(_)));
    let ack = completed(job.event(0, source.queue));
    assert_eq!((ack.user_data, ack.len, ack.offset, ack.result), (3, 12, 10, Ok(())));
    assert_eq!(ack.descriptor, source.descriptor);
    assert_eq!((a.status().operations, b.status().dropped), (0, 0));
}

fn a_get_brings_what_is_there(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    for len in [0, 8, 1000, LONG] {
        let bytes = pattern(len + 4);
        let entry =
            MatchEntry { accepts: Accepts::GET, once: true, ..MatchEntry::new(bytes.clone()) };
        append(b, &door, List::Priority, entry);
        let memory = Region::zeroed(len);
        let queue = a.queue(10).unwrap();
        let into = Descriptor { queue: Some(queue), ..Descriptor::new(memory.clone()) };
        let part = Part::of(a.bind(into).unwrap(), len as u64);
        let target = Target { offset: 4, ..to(1, door.portal, 0) };
        a.start(Operation { user_data: 1, ..Operation::get(part, target) }).unwrap();
        let reply = completed(job.event(0, queue));
        assert_eq!((reply.len, reply.offset, reply.result), (len as u64, 4, Ok(())));
        assert!(memory.to_vec() == bytes[4..]);
        assert_eq!(job.names(1, door.queue), ["served", "unlink"]);
    }
}

fn long_data_goes_from_memory_to_memory(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let bytes = pattern(LONG);
    let source = source(a, &bytes);
    for room in [LONG, LONG + 5, LONG - 5, 10, 0] {
        let memory = Region::zeroed(room);
        let entry = MatchEntry { once: true, ..MatchEntry::new(memory.clone()) };
        append(b, &door, List::Priority, entry);
        let put = Operation::put(source.part, to(1, door.portal, 0));
        a.start(Operation { ack: Ack::Full, ..put }).unwrap();
        let there = served(job.event(1, door.queue));
        let moved = room.min(LONG);
        assert_eq!((there.len, there.arrival.len), (moved as u64, LONG as u64));
        assert!(memory.to_vec()[..moved] == bytes[..moved]);
        assert_eq!(job.names(1, door.queue), ["unlink"]);
        assert!(matches!(job.event(0, source.queue), Event::Send(_)));
        assert_eq!(completed(job.event(0, source.queue)).len, moved as u64);
    }
}

fn memory_in_pieces_counts_as_one(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    for len in [90, LONG] {
        let third = len / 3;
        let bytes = pattern(len);
        let regions: Vec<Region> = (0..3).map(|_| Region::zeroed(third)).collect();
        let memory = Memory::pieces(regions.iter().map(Region::whole));
        let both = Accepts::PUT.with(Accepts::GET);
        let entry = MatchEntry { accepts: both, ..MatchEntry::new(memory) };
        let handle = append(b, &door, List::Priority, entry);
        let halves = bytes.chunks(len / 2).map(|half| Region::from_vec(half.to_vec()).whole());
        let out = a.bind(Descriptor::new(Memory::pieces(halves))).unwrap();
        let target = to(1, door.portal, 0);
        a.start(Operation::put(Part::of(out, len as u64), target)).unwrap();
        assert_eq!(served(job.event(1, door.queue)).len, len as u64);
        let there: Vec<u8> = regions.iter().flat_map(Region::to_vec).collect();
        assert!(there == bytes);
        let back = [Region::zeroed(7), Region::zeroed(len - 7)];
        let into = a.bind(Descriptor::new(Memory::pieces(back.iter().map(Region::whole)))).unwrap();
        a.start(Operation::get(Part::of(into, len as u64), target)).unwrap();
        job.settle();
        assert!(back.iter().flat_map(Region::to_vec).eq(bytes));
        assert_eq!(served(job.event(1, door.queue)).arrival.request, Request::Get);
        b.unlink(handle).unwrap();
    }
}

fn to_oneself_in_order_with_others(over: Over) {
    let job = Job::new(over, 1);
    let a = &job.ranks[0];
    let door = door(a);
    let memory = Region::zeroed(2 * LONG);
    let entry = MatchEntry { local_offset: true, ..MatchEntry::new(memory.clone()) };
    append(a, &door, List::Priority, entry);
    let (short, long) = (source(a, &[1; 16]), source(a, &pattern(LONG)));
    for part in [short.part, long.part, short.part] {
        a.start(Operation::put(part, to(0, door.portal, 0))).unwrap();
    }
    let mut ends: Vec<_> = (0..3).map(|_| served(job.event(0, door.queue))).collect();
    ends.sort_by_key(|served| served.offset);
    let places: Vec<_> = ends.iter().map(|served| (served.offset, served.len)).collect();
    let long = LONG as u64;
    assert_eq!(places, [(0, 16), (16, long), (long + 16, 16)], "matched in order");
}

fn messages_of_a_pair_match_in_order(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    for user_data in 0..60 {
        let memory = Region::zeroed(LONG);
        let entry = MatchEntry { once: true, user_data, ..MatchEntry::new(memory) };
        append(b, &door, List::Priority, entry);
    }
    let sizes: Vec<usize> = (0..60).map(|n| if n % 7 == 3 { LONG } else { n * 13 }).collect();
    let source = source(a, &pattern(LONG));
    for size in &sizes {
        let part = Part { len: *size as u64, ..source.part };
        a.start(Operation::put(part, to(1, door.portal, 0))).unwrap();
    }
    let mut found = [None; 60];
    while found.iter().any(Option::is_none) {
        if let Event::Served(served) = job.event(1, door.queue) {
            found[served.user_data as usize] = Some(served.arrival.len as usize);
        }
    }
    assert!(found.iter().flatten().eq(&sizes));
}

fn truncation_is_the_default(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 10]));
    let source = source(a, &[1; 16]);
    for (offset, len) in [(0, 10), (4, 6), (10, 0), (u64::MAX, 0)] {
        let target = Target { offset, ..to(1, door.portal, 0) };
        a.start(Operation { ack: Ack::Full, ..Operation::put(source.part, target) }).unwrap();
        let there = served(job.event(1, door.queue));
        assert_eq!((there.len, there.arrival.len), (len, 16));
        assert!(matches!(job.event(0, source.queue), Event::Send(_)));
        assert_eq!(completed(job.event(0, source.queue)).len, len);
    }
}

fn what_does_not_fit_goes_on_to_the_next_entry(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    for (user_data, room) in [(1, 10), (2, 20), (3, 5)] {
        let entry =
            MatchEntry { truncate: user_data == 3, user_data, ..MatchEntry::new(vec![0; room]) };
        append(b, &door, List::Priority, entry);
    }
    for (len, by) in [(15, 2), (10, 1), (30, 3)] {
        let source = source(a, &vec![1; len]);
        a.start(Operation::put(source.part, to(1, door.portal, 0))).unwrap();
        assert_eq!(served(job.event(1, door.queue)).user_data, by);
    }
}

fn use_once_and_then_unlinked(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let entry = MatchEntry { once: true, ..MatchEntry::new(vec![0; 10]) };
    let handle = append(b, &door, List::Priority, entry);
    let source = source(a, &[1; 8]);
    let put = Operation { ack: Ack::Full, ..Operation::put(source.part, to(1, door.portal, 0)) };
    a.start(put).unwrap();
    a.start(put).unwrap();
    assert_eq!(job.names(1, door.queue), ["served", "unlink"]);
    assert_eq!(job.names(0, source.queue), ["send", "send", "ack", "ack: Dropped"]);
    assert_eq!(b.unlink(handle).unwrap_err(), Error::Handle("an entry"));
    assert_eq!((b.status().dropped, b.status().entries), (1, 0));
}

fn local_offsets_and_min_free(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let memory = Region::zeroed(20);
    let entry = MatchEntry {
        local_offset: true,
        min_free: Some(6),
        unlink: true,
        ..MatchEntry::new(memory.clone())
    };
    append(b, &door, List::Priority, entry);
    let source = source(a, &[7; 8]);
    // The offset that is asked for does not count.
    let target = Target { offset: 3, ..to(1, door.portal, 0) };
    let put = Operation { ack: Ack::Full, ..Operation::put(source.part, target) };
    for _ in 0..3 {
        a.start(put).unwrap();
    }
    let offsets = [0, 8].map(|_| served(job.event(1, door.queue)).offset);
    assert_eq!(offsets, [0, 8]);
    assert_eq!(job.names(1, door.queue), ["unlink"], "four bytes are left");
    assert_eq!(
        memory.to_vec()[..17],
        [[7; 8], [7; 8]].concat().into_iter().chain([0]).collect::<Vec<_>>()
    );
    assert_eq!(b.status().dropped, 1);
}

fn overflow(memory: Region) -> MatchEntry {
    MatchEntry { ignore: !0, local_offset: true, ..MatchEntry::new(memory) }
}

fn unexpected_messages_are_told_at_append(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Overflow, overflow(Region::zeroed(1000)));
    for (bits, text) in [(1, "one"), (2, "two"), (1, "three")] {
        let source = source(a, text.as_bytes());
        let put = Operation::put(source.part, to(1, door.portal, bits));
        a.start(Operation { header_data: bits * 10, ..put }).unwrap();
    }
    assert_eq!(job.names(1, door.queue), ["served"; 3]);
    assert_eq!(b.status().headers, 3);
    let entry = MatchEntry { bits: 1, once: true, user_data: 4, ..MatchEntry::new(vec![0; 9]) };
    let handle = b.append(door.portal, List::Priority, entry.clone()).unwrap();
    let told = served(job.event(1, door.queue));
    assert_eq!((told.entry, told.user_data, told.arrival.header_data), (handle, 4, 10));
    assert_eq!(text(&told), b"one");
    assert_eq!(job.names(1, door.queue), ["unlink"], "it was never linked");
    // One for any number gets all that match, and is linked.
    let any = MatchEntry { ignore: !0, once: false, ..entry };
    b.append(door.portal, List::Priority, any).unwrap();
    let told = [0; 2].map(|_| served(job.event(1, door.queue)));
    assert_eq!((text(&told[0]), text(&told[1])), (b"two".to_vec(), b"three".to_vec()));
    assert_eq!(job.names(1, door.queue), ["link"]);
    assert_eq!(b.status().headers, 0);
}

fn text(served: &Served) -> Vec<u8> {
    let mut bytes = vec![0; served.len as usize];
    served.memory.as_ref().expect("where it lies").read(served.offset, &mut bytes);
    bytes
}

fn a_header_can_be_claimed_before_its_data_is_there(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Overflow, overflow(Region::zeroed(2 * LONG)));
    let bytes = pattern(LONG);
    let source = source(a, &bytes);
    a.start(Operation::put(source.part, to(1, door.portal, 3))).unwrap();
    job.until(|| (b.status().headers == 1).then_some(()));
    let entry = MatchEntry { bits: 3, once: true, ..MatchEntry::new(vec![0; 9]) };
    b.append(door.portal, List::Priority, entry).unwrap();
    let mut names = Vec::new();
    while names.len() < 3 {
        let event = job.event(1, door.queue);
        names.push(name(&event));
        if let Event::Overflow(told) = &event {
            assert!(text(told) == bytes, "told when all of it is there");
        }
    }
    names.sort();
    assert_eq!(names, ["overflow", "served", "unlink"]);
    assert_eq!(b.status().headers, 0);
}

fn the_memory_of_overflow_is_free_when_no_header_refers_to_it(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let memory = Region::zeroed(16);
    let block = MatchEntry { min_free: Some(8), unlink: true, ..overflow(memory.clone()) };
    let handle = append(b, &door, List::Overflow, block);
    let source = source(a, &[7; 8]);
    for bits in [1, 2] {
        a.start(Operation::put(source.part, to(1, door.portal, bits))).unwrap();
    }
    assert_eq!(job.names(1, door.queue), ["served", "served", "unlink"]);
    assert_eq!(b.unlink(handle).unwrap_err(), Error::InUse("the entry"));
    for (bits, names) in [(2, vec!["overflow", "unlink"]), (1, vec!["overflow", "free", "unlink"])]
    {
        let entry = MatchEntry { bits, once: true, ..MatchEntry::new(vec![0; 9]) };
        b.append(door.portal, List::Priority, entry).unwrap();
        assert_eq!(job.names(1, door.queue), names);
    }
    assert_eq!(b.unlink(handle).unwrap_err(), Error::Handle("an entry"));
    assert!(memory.into_exclusive().is_ok(), "the interface holds it no more");
}

fn search_and_search_and_delete(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Overflow, overflow(Region::zeroed(100)));
    for bits in [1, 2, 2] {
        let source = source(a, &[bits as u8; 3]);
        a.start(Operation::put(source.part, to(1, door.portal, bits))).unwrap();
    }
    assert_eq!(job.names(1, door.queue).len(), 3);
    let wanted = |bits| MatchEntry { bits, user_data: 6, ..MatchEntry::new(vec![]) };
    b.search(door.portal, MatchEntry { once: true, ..wanted(2) }).unwrap();
    match job.event(1, door.queue) {
        Event::Search { user_data: 6, found: Ok(found) } => assert_eq!(text(&found), [2; 3]),
        other => panic!("{other:?}"),
    }
    b.search(door.portal, wanted(9)).unwrap();
    assert_eq!(job.names(1, door.queue), ["search: NoMatch"]);
    let one = MatchEntry { once: true, ..wanted(2) };
    b.search_and_delete(door.portal, one).unwrap();
    assert_eq!((job.names(1, door.queue), b.status().headers), (vec!["overflow".to_owned()], 2));
    b.search_and_delete(door.portal, MatchEntry { ignore: !0, ..wanted(0) }).unwrap();
    assert_eq!(job.names(1, door.queue), ["overflow", "overflow"]);
    b.search_and_delete(door.portal, wanted(2)).unwrap();
    assert_eq!(job.names(1, door.queue), ["search: NoMatch"]);
    assert_eq!((b.status().headers, b.status().entries), (0, 1));
}

fn entries_are_for_their_user(over: Over) {
    let job = Job::with(over, 2, |rank, config| config.user = rank as u32 + 100);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    for (bits, user) in [(1, seen(over, 100)), (2, 7)] {
        let entry = MatchEntry { bits, user: Some(user), ..MatchEntry::new(vec![0; 9]) };
        append(b, &door, List::Priority, entry);
    }
    // Behind the one that refuses.
    append(b, &door, List::Priority, MatchEntry { ignore: !0, ..MatchEntry::new(vec![0; 9]) });
    let source = source(a, &[1; 3]);
    for bits in [1, 2] {
        let put = Operation::put(source.part, to(1, door.portal, bits));
        a.start(Operation { ack: Ack::Full, ..put }).unwrap();
    }
    assert_eq!(job.names(0, source.queue), ["send", "send", "ack", "ack: Permission"]);
    assert_eq!(job.names(1, door.queue), ["served"]);
    assert_eq!(b.status().permission_violations, 1);
}

fn what_an_entry_does_not_allow_is_refused(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 9]));
    let get = MatchEntry { bits: 1, accepts: Accepts::GET, ..MatchEntry::new(vec![0; 9]) };
    append(b, &door, List::Priority, get);
    let source = source(a, &[1; 8]);
    let put = |bits| Operation::put(source.part, to(1, door.portal, bits));
    a.start(Operation { ack: Ack::Full, ..put(1) }).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack: Operation"]);
    a.start(Operation::get(source.part, to(1, door.portal, 0))).unwrap();
    assert_eq!(job.names(0, source.queue), ["reply: Operation"]);
    let (op, kind) = (Operator::Sum, Datatype::U64);
    let fetch = Operation::fetch_atomic(op, kind, source.part, source.part, to(1, door.portal, 0));
    a.start(fetch).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "reply: Operation"]);
    assert_eq!(b.status().operation_violations, 3);
    assert_eq!(job.names(1, door.queue), [""; 0]);
}

fn no_match_is_dropped_and_told(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    for len in [8, LONG] {
        let source = source(a, &vec![1; len]);
        let portals = [door.portal, door.portal + 1, u16::MAX];
        for portal in portals {
            let put = Operation::put(source.part, to(1, portal, 1));
            a.start(Operation { ack: Ack::Full, ..put }).unwrap();
            a.start(put).unwrap();
            a.start(Operation::get(source.part, to(1, portal, 1))).unwrap();
            let mut names = job.names(0, source.queue);
            names.sort();
            assert_eq!(names, ["ack: Dropped", "reply: Dropped", "send", "send"]);
        }
    }
    assert_eq!((a.status().operations, b.status().dropped), (0, 18));
}

fn a_full_portal_is_disabled_and_enabled_again(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door_with(b, 5, true);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 9]));
    let source = source(a, &[1; 3]);
    let put = Operation { ack: Ack::Full, ..Operation::put(source.part, to(1, door.portal, 0)) };
    for _ in 0..6 {
        a.start(put).unwrap();
    }
    let acks = job.names(0, source.queue);
    assert_eq!(acks.iter().filter(|name| **name == "ack").count(), 2);
    assert_eq!(acks.iter().filter(|name| **name == "ack: PortalDisabled").count(), 4);
    assert_eq!(job.names(1, door.queue), ["served", "served", "disabled"], "and nothing is lost");
    assert_eq!(b.status().disabled, 4);
    b.enable(door.portal).unwrap();
    a.start(put).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack"]);
    // Also when nothing matches.
    a.start(Operation { target: to(1, door.portal, 1), ..put }).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack: PortalDisabled"]);
    assert_eq!(job.names(1, door.queue), ["served", "disabled"]);
}

fn a_disabled_portal_refuses(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 9]));
    let source = source(a, &[1; 3]);
    let put = Operation { ack: Ack::Full, ..Operation::put(source.part, to(1, door.portal, 0)) };
    b.disable(door.portal).unwrap();
    a.start(put).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack: PortalDisabled"]);
    assert_eq!((b.status().disabled, b.status().dropped), (1, 0));
    b.enable(door.portal).unwrap();
    a.start(put).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack"]);
    assert_eq!(job.names(1, door.queue), ["served"], "what the program did itself is not told");
    assert_eq!(b.enable(60).unwrap_err(), Error::Portal(60));
}

fn events_can_be_turned_off(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    for (bits, quiet) in
        [(1, Quiet::LINK), (2, Quiet::UNLINK), (3, Quiet::COMMUNICATION), (4, Quiet::SUCCESS)]
    {
        let entry = MatchEntry { bits, once: true, quiet, ..MatchEntry::new(vec![0; 9]) };
        b.append(door.portal, List::Priority, entry).unwrap();
    }
    assert_eq!(job.names(1, door.queue), ["link"; 3]);
    let queue = a.queue(100).unwrap();
    for (bits, quiet, ours, theirs) in [
        (1, Quiet::NONE, vec!["send", "ack"], vec!["served", "unlink"]),
        (2, Quiet::SEND, vec!["ack"], vec!["served"]),
        (3, Quiet::SUCCESS, vec![], vec!["unlink"]),
        (4, Quiet::SUCCESS, vec![], vec!["unlink"]),
        (5, Quiet::SUCCESS, vec!["ack: Dropped"], vec![]),
    ] {
        let spec = Descriptor { queue: Some(queue), quiet, ..Descriptor::new(vec![0; 8]) };
        let part = Part::of(a.bind(spec).unwrap(), 8);
        let put = Operation::put(part, to(1, door.portal, bits));
        a.start(Operation { ack: Ack::Full, ..put }).unwrap();
        assert_eq!(job.names(0, queue), ours);
        assert_eq!(job.names(1, door.queue), theirs);
    }
}

fn counters_count_operations_or_bytes(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let (there, here) = (b.counter().unwrap(), a.counter().unwrap());
    let counts = Counts::COMMUNICATION.with(Counts::BYTES);
    let counted = MatchEntry { counter: Some(there), counts, ..MatchEntry::new(vec![0; 1000]) };
    append(b, &door, List::Priority, counted);
    // One that counts something else.
    let (other, counts) = (b.counter().unwrap(), Counts::OVERFLOW.with(Counts::BYTES));
    let uncounted = MatchEntry { counter: Some(other), counts, ..MatchEntry::new(vec![0; 1000]) };
    append(b, &door, List::Priority, MatchEntry { bits: 1, ..uncounted });
    let spec = Descriptor {
        counter: Some(here),
        counts: Counts::ACK.with(Counts::SEND),
        ..Descriptor::new(vec![0; 100])
    };
    let part = Part::of(a.bind(spec).unwrap(), 100);
    for ack in [Ack::None, Ack::Full, Ack::Counting, Ack::Completed] {
        let put = Operation::put(part, to(1, door.portal, 0));
        a.start(Operation { ack, ..put }).unwrap();
    }
    a.start(Operation { ack: Ack::Counting, ..Operation::put(part, to(1, door.portal, 9)) })
        .unwrap();
    a.start(Operation::put(part, to(1, door.portal, 1))).unwrap();
    job.settle();
    assert_eq!((b.count(there), b.count(other)), (Ok(Count::of(400)), Ok(Count::of(0))));
    // Six were sent, three acknowledged, one was dropped.
    assert_eq!(a.count(here).unwrap(), Count { success: 9, failure: 1 });
    a.set(here, Count::of(3)).unwrap();
    a.add(here, Count { success: 1, failure: 0 }).unwrap();
    assert_eq!(a.wait_count(here, 4, Duration::ZERO).unwrap(), Count::of(4));
    let timeout = Duration::from_millis(1);
    assert_eq!(a.wait_count(here, 5, timeout).unwrap_err(), Error::Timeout);
    // A failure ends waiting as well.
    let failed = Count { success: 4, failure: 1 };
    a.set(here, failed).unwrap();
    assert_eq!(a.wait_count(here, 5, timeout), Ok(failed));
}

fn no_acknowledgement_from_entries_that_give_none(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let entry = MatchEntry { acknowledge: false, ..MatchEntry::new(vec![0; LONG]) };
    append(b, &door, List::Priority, entry);
    for len in [8, LONG] {
        let source = source(a, &vec![1; len]);
        let put = Operation::put(source.part, to(1, door.portal, 0));
        a.start(Operation { ack: Ack::Full, ..put }).unwrap();
        assert_eq!(job.names(0, source.queue), ["send"]);
        assert_eq!(a.status().operations, 0, "and nothing is left of it");
        a.release(source.descriptor).unwrap();
    }
}

fn atomics_fetches_and_swaps(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let memory = Region::zeroed(64);
    memory.write(8, &5_u64.to_le_bytes());
    let accepts = Accepts::PUT.with(Accepts::GET);
    append(b, &door, List::Priority, MatchEntry { accepts, ..MatchEntry::new(memory.clone()) });
    let source = source(a, &3_u64.to_le_bytes());
    let queue = a.queue(10).unwrap();
    let old = Region::zeroed(8);
    let into = Descriptor { queue: Some(queue), ..Descriptor::new(old.clone()) };
    let result = Part::of(a.bind(into).unwrap(), 8);
    let target = Target { offset: 8, ..to(1, door.portal, 0) };
    let (sum, word) = (Operator::Sum, Datatype::U64);
    let value = |region: &Region, at| {
        let mut bytes = [0; 8];
        region.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    };
    let plain = Operation::atomic(sum, word, source.part, target);
    a.start(Operation { ack: Ack::Full, ..plain }).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack"]);
    assert_eq!(value(&memory, 8), 8);
    a.start(Operation::fetch_atomic(sum, word, result, source.part, target)).unwrap();
    assert_eq!(job.names(0, queue), ["reply"]);
    assert_eq!((value(&old, 0), value(&memory, 8)), (8, 11));
    for (operand, now) in [(10_u64, 11), (11, 3)] {
        let mut swap =
            Operation::fetch_atomic(Operator::CompareSwap, word, result, source.part, target);
        swap.operand[..8].copy_from_slice(&operand.to_le_bytes());
        a.start(swap).unwrap();
        assert_eq!(job.names(0, queue), ["reply"]);
        assert_eq!((value(&old, 0), value(&memory, 8)), (11, now));
    }
    assert_eq!(job.names(1, door.queue), ["served"; 4]);
    // Of elements that do not fit whole nothing is changed.
    let two = self::source(a, &[1; 16]);
    let end = Target { offset: 52, ..target };
    let cut = Operation::atomic(sum, word, two.part, end);
    a.start(Operation { ack: Ack::Full, ..cut }).unwrap();
    let ends = [0; 2].map(|_| completed(job.event(0, two.queue)));
    assert_eq!((ends[1].len, ends[1].result), (8, Ok(())));
    assert_eq!(served(job.event(1, door.queue)).len, 8);
    assert_eq!(memory.to_vec()[52..], [[1; 8].as_slice(), &[0; 4]].concat());
    let complaint = |op| a.start(op).unwrap_err();
    let swap = Operation::atomic(Operator::Swap, word, source.part, target);
    assert!(matches!(complaint(swap), Error::Argument(_)));
    let cut = Part { len: 7, ..source.part };
    assert!(matches!(complaint(Operation::atomic(sum, word, cut, target)), Error::Argument(_)));
    let bits = Operation::atomic(Operator::BitOr, Datatype::F64, source.part, target);
    assert!(matches!(complaint(bits), Error::Argument(_)));
    let long = self::source(a, &vec![0; 1 << 20]);
    let long = Operation::atomic(sum, word, long.part, target);
    assert!(matches!(complaint(long), Error::AtomicTooLong { .. }));
}

fn triggered_operations_run_in_the_order_of_thresholds(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 9]));
    let (source, counter) = (source(a, &[1; 3]), a.counter().unwrap());
    for (threshold, header_data) in [(3, 3), (1, 1), (2, 2), (3, 4), (9, 9)] {
        let put = Operation::put(source.part, to(1, door.portal, 0));
        let action = Action::Start(Operation { header_data, ..put });
        a.trigger(counter, threshold, action).unwrap();
    }
    assert_eq!(job.names(1, door.queue), [""; 0]);
    a.add(counter, Count { success: 2, failure: 1 }).unwrap();
    let order = [0; 4].map(|_| served(job.event(1, door.queue)).arrival.header_data);
    assert_eq!(order, [1, 2, 3, 4]);
    // Back, and what waits goes on waiting; then it is forgotten.
    a.set(counter, Count::of(8)).unwrap();
    a.cancel_triggered(counter).unwrap();
    a.set(counter, Count::of(9)).unwrap();
    assert_eq!(job.names(1, door.queue), [""; 0]);
    let put = Operation::put(source.part, to(1, door.portal, 0));
    a.trigger(counter, 9, Action::Start(put)).unwrap();
    assert_eq!(job.names(1, door.queue), ["served"], "at once");
    a.release(source.descriptor).unwrap();
    a.trigger(counter, 9, Action::Start(put)).unwrap();
    assert_eq!(a.status().misfired, 1);
}

fn a_chain_of_triggered_operations_does_not_recurse(over: Over) {
    let job = Job::new(over, 1);
    let a = &job.ranks[0];
    let counters: Vec<_> = (0..20_000).map(|_| a.counter().unwrap()).collect();
    for pair in counters.windows(2) {
        a.trigger(pair[0], 1, Action::Add(pair[1], Count::of(1))).unwrap();
    }
    a.add(counters[0], Count::of(1)).unwrap();
    assert_eq!(a.count(*counters.last().unwrap()).unwrap(), Count::of(1));
}

fn handles_that_are_stale(over: Over) {
    let job = Job::new(over, 1);
    let a = &job.ranks[0];
    let door = door(a);
    let entry = append(a, &door, List::Priority, MatchEntry::new(vec![0; 9]));
    assert_eq!(a.unlink(entry).unwrap().memory.len(), 9);
    assert_eq!(a.unlink(entry).unwrap_err(), Error::Handle("an entry"));
    let source = source(a, &[0; 8]);
    a.release(source.descriptor).unwrap();
    assert!(a.release(source.descriptor).is_err());
    let put = Operation::put(source.part, to(0, door.portal, 0));
    assert_eq!(a.start(put).unwrap_err(), Error::Handle("a descriptor"));
    a.free_queue(source.queue).unwrap();
    assert!(a.free_queue(source.queue).is_err());
    assert_eq!(a.take_event(source.queue).unwrap_err(), Error::Handle("an event queue"));
    let counter = a.counter().unwrap();
    a.free_counter(counter).unwrap();
    assert!(a.free_counter(counter).is_err() && a.count(counter).is_err());
    assert!(a.add(counter, Count::of(1)).is_err());
    assert!(a.trigger(counter, 1, Action::Start(put)).is_err());
    let with = MatchEntry { counter: Some(counter), ..MatchEntry::new(vec![]) };
    assert!(a.append(door.portal, List::Priority, with).is_err());
    let with = Descriptor { queue: Some(source.queue), ..Descriptor::new(vec![]) };
    assert!(a.bind(with).is_err());
    assert_eq!(a.close_portal(door.portal), Ok(()));
    assert_eq!(a.close_portal(door.portal), Err(Error::Portal(door.portal)));
    assert!(a.append(door.portal, List::Priority, MatchEntry::new(vec![])).is_err());
    assert!(a.search(door.portal, MatchEntry::new(vec![])).is_err());
}

fn limits_that_are_exhausted(over: Over) {
    let job = Job::with(over, 1, |_, config| {
        config.limits = Limits {
            portals: 2,
            entries: 2,
            headers: 1,
            descriptors: 1,
            queues: 2,
            counters: 1,
            operations: 1,
            triggered: 1,
            ..Limits::default()
        };
    });
    let a = &job.ranks[0];
    let no_space = |error| assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    let door = door(a);
    a.portal(PortalOptions { index: Some(1), ..PortalOptions::default() }).unwrap();
    assert_eq!(a.portal(PortalOptions::default()).unwrap_err(), Error::NoPortal);
    let taken = PortalOptions { index: Some(1), ..PortalOptions::default() };
    assert_eq!(a.portal(taken).unwrap_err(), Error::PortalTaken(1));
    let beyond = PortalOptions { index: Some(2), ..PortalOptions::default() };
    assert_eq!(a.portal(beyond).unwrap_err(), Error::Portal(2));
    append(a, &door, List::Overflow, overflow(Region::zeroed(100)));
    append(a, &door, List::Priority, MatchEntry { bits: 5, ..MatchEntry::new(vec![]) });
    no_space(a.append(0, List::Priority, MatchEntry::new(vec![])).unwrap_err());
    let source = source(a, &[0; 8]);
    no_space(a.queue(1).unwrap_err());
    no_space(a.bind(Descriptor::new(vec![])).unwrap_err());
    let counter = a.counter().unwrap();
    no_space(a.counter().unwrap_err());
    let put = Operation { ack: Ack::Full, ..Operation::put(source.part, to(0, door.portal, 0)) };
    a.trigger(counter, 1, Action::Start(put)).unwrap();
    no_space(a.trigger(counter, 1, Action::Start(put)).unwrap_err());
    a.start(put).unwrap();
    no_space(a.start(put).unwrap_err());
    assert_eq!(job.names(0, source.queue), ["send", "ack"]);
    a.start(put).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack: Dropped"], "no header can be kept");
    assert_eq!((a.status().dropped, a.status().headers), (1, 1));
    assert_eq!(a.close_portal(door.portal).unwrap_err(), Error::InUse("the portal"));
}

fn parts_out_of_range(over: Over) {
    let job = Job::new(over, 1);
    let a = &job.ranks[0];
    let door = door(a);
    let source = source(a, &[0; 8]);
    for (offset, len) in [(0, 9), (8, 1), (u64::MAX, 2), (2, u64::MAX)] {
        let part = Part { offset, len, ..source.part };
        for op in [Operation::put, Operation::get] {
            let error = a.start(op(part, to(0, door.portal, 0))).unwrap_err();
            assert!(matches!(error, Error::OutOfBounds { bound: 8, .. }), "{error}");
        }
    }
    let missing = Operation::put(source.part, Target::new(ProcessId::rank(9), 0));
    assert!(matches!(a.start(missing).unwrap_err(), Error::Process { .. }));
    let any = Operation::put(source.part, Target::new(ProcessId::ANY, 0));
    assert!(matches!(a.start(any).unwrap_err(), Error::Argument(_)));
    let read_only = Region::view(&Region::zeroed(8).whole()).unwrap();
    let entry = MatchEntry::new(read_only.clone());
    assert_eq!(a.append(door.portal, List::Priority, entry).unwrap_err(), Error::ReadOnly);
    let part = Part::of(a.bind(Descriptor::new(read_only)).unwrap(), 8);
    let get = Operation::get(part, to(0, door.portal, 0));
    assert_eq!(a.start(get).unwrap_err(), Error::ReadOnly);
    assert!(a.queue(0).is_err());
}

fn an_abort_wakes_waiting_threads(over: Over) {
    let job = Job::new(over, 1);
    let a = &job.ranks[0];
    let (queue, counter) = (a.queue(1).unwrap(), a.counter().unwrap());
    let timeout = Duration::from_secs(60);
    std::thread::scope(|scope| {
        let waits = [
            scope.spawn(move || a.wait_event(queue, timeout).unwrap_err()),
            scope.spawn(move || a.wait_count(counter, 1, timeout).unwrap_err()),
        ];
        std::thread::sleep(Duration::from_millis(20));
        a.abort();
        for wait in waits {
            assert_eq!(wait.join().unwrap(), Error::Aborted);
        }
    });
    assert_eq!(a.wait_event(queue, timeout).unwrap_err(), Error::Aborted);
}

fn a_user_that_no_transport_vouches_for(over: Over) {
    let job =
        Job::with(over, 2, |_, config| (config.user, config.trust_claimed_user) = (100, false));
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let unknown = u32::MAX;
    for (bits, user) in [(1, seen(over, unknown)), (2, 100)] {
        let entry = MatchEntry { bits, user: Some(user), ..MatchEntry::new(vec![0; 9]) };
        append(b, &door, List::Priority, entry);
    }
    append(b, &door, List::Priority, MatchEntry { bits: 3, ..MatchEntry::new(vec![0; 9]) });
    let source = source(a, &[1; 3]);
    for bits in [1, 2, 3] {
        let put = Operation::put(source.part, to(1, door.portal, bits));
        a.start(Operation { ack: Ack::Full, ..put }).unwrap();
    }
    let acks = ["ack", "ack: Permission", "ack"];
    let names = job.names(0, source.queue);
    assert_eq!(names[3..], acks);
    let Event::Served(first) = job.event(1, door.queue) else { panic!("another event") };
    assert_eq!(first.arrival.user, seen(over, unknown));
}

fn operations_in_a_bundle(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let memory = Region::zeroed(16);
    append(
        b,
        &door,
        List::Priority,
        MatchEntry { local_offset: true, ..MatchEntry::new(memory.clone()) },
    );
    let source = source(a, &pattern(4));
    let put = Operation::put(source.part, to(1, door.portal, 0));
    a.start_all([put; 3]).unwrap();
    assert_eq!(job.names(1, door.queue), ["served"; 3]);
    assert_eq!(job.names(0, source.queue), ["send"; 3]);
    let bad = Operation { target: to(9, 0, 0), ..put };
    let (at, error) = a.start_all([put, bad, put]).unwrap_err();
    assert!(at == 1 && matches!(error, Error::Process { .. }));
    assert_eq!(job.names(1, door.queue), ["served"], "what came before it was started");
    assert_eq!(memory.to_vec(), pattern(4).repeat(4));
}

fn limits_promises_and_distances(over: Over) {
    let job = Job::with(over, 2, |_, config| config.limits.queues = 3);
    let a = &job.ranks[0];
    let (limits, promises) = a.limits();
    assert_eq!((limits.queues, limits.portals), (3, 64));
    assert!(!promises.long_double && promises.coherent_atomics);
    assert!(promises.ordered > 1000 && promises.volatile == promises.ordered);
    assert!(Datatype::from_u8(12).is_none() && Datatype::from_u8(13).is_none());
    assert_eq!((a.distance(ProcessId::rank(0)), a.distance(ProcessId::rank(1))), (Ok(0), Ok(1)));
    assert!(matches!(a.distance(ProcessId::rank(2)), Err(Error::Process { .. })));
}

/// However long data travels: when the event of an operation's end comes, no other process reaches
/// its memory.
fn lent_memory_is_called_back_before_the_end(over: Over) {
    let job = Job::with(over, 2, |_, config| config.lend_above = 1000);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let there = Region::from_vec(pattern(LONG));
    let both = Accepts::PUT.with(Accepts::GET);
    let entry = MatchEntry { accepts: both, ..MatchEntry::new(there.clone()) };
    append(b, &door, List::Priority, entry);
    let none = MatchEntry { bits: 1, acknowledge: false, ..MatchEntry::new(there.clone()) };
    append(b, &door, List::Priority, none);
    let cases =
        [(0, Ack::None, true), (0, Ack::Full, true), (1, Ack::Full, true), (5, Ack::Full, false)];
    for (bits, ack, taken) in cases {
        let mut bytes = pattern(LONG);
        bytes[bits as usize] ^= 0xff;
        let memory = Region::from_vec(bytes.clone());
        let queue = a.queue(10).unwrap();
        let bound = Descriptor { queue: Some(queue), ..Descriptor::new(memory.clone()) };
        let bound = a.bind(bound).unwrap();
        let put = Operation::put(Part::of(bound, LONG as u64), to(1, door.portal, bits));
        a.start(Operation { ack, ..put }).unwrap();
        assert!(matches!(a.release(bound), Err(Error::InUse(_))));
        let names = match (ack, taken, bits) {
            (Ack::None, ..) | (_, _, 1) => vec!["send"],
            (_, true, _) => vec!["send", "ack"],
            (_, false, _) => vec!["send", "ack: Dropped"],
        };
        assert_eq!(job.names(0, queue), names);
        a.release(bound).unwrap();
        memory.into_exclusive().expect("this is the last holder");
        if taken {
            assert!(there.to_vec() == bytes);
            assert_eq!(job.names(1, door.queue), ["served"]);
        }
    }
    let into = Region::zeroed(LONG);
    let queue = a.queue(10).unwrap();
    let bound = a.bind(Descriptor { queue: Some(queue), ..Descriptor::new(into.clone()) }).unwrap();
    for bits in [0, 1] {
        a.start(Operation::get(Part::of(bound, LONG as u64), to(1, door.portal, bits))).unwrap();
    }
    let mut names = job.names(0, queue);
    names.sort();
    assert_eq!(names, ["reply", "reply: Operation"]);
    a.release(bound).unwrap();
    assert!(into.into_exclusive().expect("this is the last holder")[..] == there.to_vec()[..]);
}

fn memory_comes_back_alone(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let (there, here) = (Region::zeroed(LONG), Region::from_vec(pattern(LONG)));
    let entry = append(b, &door, List::Priority, MatchEntry::new(there.clone()));
    let descriptor = a.bind(Descriptor::new(here.clone())).unwrap();
    let part = Part::of(descriptor, LONG as u64);
    a.start(Operation::put(part, to(1, door.portal, 0))).unwrap();
    job.settle();
    assert!(!there.is_unique() && !here.is_unique());
    drop((b.unlink(entry).unwrap(), a.release(descriptor).unwrap()));
    assert!(there.into_exclusive().unwrap()[..] == pattern(LONG));
    assert!(here.into_exclusive().is_ok());
}
