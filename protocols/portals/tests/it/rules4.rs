//! Rules of Portals 4 that a program meets later: searches for all, which list took a message,
//! answers that nothing would come of, the end of an interface, a directory that changes; over each
//! transport.

use crate::common::*;
use petasos_fabric::{Address, Region};
use petasos_portals::*;
use std::{
    sync::{
        Arc, RwLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

over_all! {
    a_search_tells_of_all_and_counts
    answers_say_which_list_took_it
    an_acknowledgement_that_nothing_hears_is_not_asked_for
    what_has_come_is_looked_at_before_something_is_in_use
    what_was_sent_arrives_before_the_end
    a_list_has_its_limit
    a_portal_can_be_opened_disabled
    that_a_portal_was_disabled_can_be_left_untold
    headers_can_move_the_offset_on
    unknown_endpoints_are_identified_when_the_directory_changes
    a_process_that_is_named_later
    a_poll_of_several_queues_takes_from_each
    events_of_the_initiator_say_what_was_asked_for
}

const PATIENCE: Duration = Duration::from_secs(20);

fn a_search_tells_of_all_and_counts(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Overflow, overflow(100));
    let source = source(a, &[1; 8]);
    for (bits, len) in [(1, 3), (2, 4), (1, 5), (1, 6)] {
        let part = Part { len, ..source.part };
        a.start(Operation::put(part, to(1, door.portal, bits))).unwrap();
    }
    assert_eq!(job.names(1, door.queue), ["served"; 4]);
    let wanted = MatchEntry { bits: 1, ..MatchEntry::new(vec![]) };
    let lengths = |wanted: MatchEntry| {
        b.search(door.portal, wanted).unwrap();
        let events = std::iter::from_fn(|| b.take_event(door.queue).ok());
        let lengths = events.map(|taken| match taken.event {
            Event::Search { found: Ok(found), .. } => {
                assert_eq!((found.list, found.result), (List::Overflow, Ok(())));
                found.len
            }
            Event::Search { found: Err(Failure::NoMatch), .. } => 0,
            other => panic!("{other:?}"),
        });
        lengths.collect::<Vec<u64>>()
    };
    // Without wildcards, and with; for all, for one, for so many; for none.
    assert_eq!(lengths(MatchEntry { source: ProcessId::rank(0), ..wanted.clone() }), [3, 5, 6]);
    assert_eq!(lengths(wanted.clone()), [3, 5, 6]);
    assert_eq!(lengths(MatchEntry { ignore: !0, ..wanted.clone() }), [3, 4, 5, 6]);
    assert_eq!(lengths(MatchEntry { once: true, ..wanted.clone() }), [3]);
    assert_eq!(lengths(MatchEntry { threshold: Some(2), ..wanted.clone() }), [3, 5]);
    assert_eq!(lengths(MatchEntry { bits: 9, ..wanted.clone() }), [0]);
    for quiet in [Quiet::COMMUNICATION, Quiet::OVERFLOW] {
        assert_eq!(lengths(MatchEntry { quiet, ..wanted.clone() }), [0; 0]);
        assert_eq!(lengths(MatchEntry { quiet, bits: 9, ..wanted.clone() }), [0; 0]);
    }
    assert_eq!(lengths(MatchEntry { quiet: Quiet::SUCCESS, ..wanted.clone() }), [0; 0]);
    let failure = MatchEntry { quiet: Quiet::SUCCESS, bits: 9, ..wanted.clone() };
    assert_eq!(lengths(failure), [0], "a failure is told");
    // One that deletes is as silent: here where it finds nothing, below where it does.
    let deleted = |quiet, bits| {
        let before = b.status().headers;
        let one = MatchEntry { once: true, quiet, bits, ..wanted.clone() };
        b.search_and_delete(door.portal, one).unwrap();
        let events = std::iter::from_fn(|| b.take_event(door.queue).ok());
        let names: Vec<String> = events.map(|taken| name(&taken.event)).collect();
        (names, before - b.status().headers)
    };
    let silent = [Quiet::COMMUNICATION, Quiet::OVERFLOW];
    for quiet in silent {
        assert_eq!(deleted(quiet, 9), (vec![], 0));
    }
    for quiet in [Quiet::NONE, Quiet::SUCCESS] {
        assert_eq!(deleted(quiet, 9), (vec!["search: NoMatch".to_owned()], 0));
    }

    // At the queue of the entry, where it has one.
    let own = b.queue(9).unwrap();
    for bits in [1, 9] {
        assert_eq!(lengths(MatchEntry { queue: Some(own), bits, ..wanted.clone() }), [0; 0]);
    }
    let events = std::iter::from_fn(|| b.take_event(own).ok());
    let names: Vec<String> = events.map(|taken| name(&taken.event)).collect();
    assert_eq!(names, ["search", "search", "search", "search: NoMatch"]);

    let counter = b.counter().unwrap();
    let counts = |wanted: MatchEntry, delete: bool, counts: Counts| {
        b.set(counter, Count::of(0)).unwrap();
        let wanted = MatchEntry { counter: Some(counter), counts, ..wanted };
        match delete {
            true => b.search_and_delete(door.portal, wanted).unwrap(),
            false => b.search(door.portal, wanted).unwrap(),
        }
        let Count { success, failure } = b.count(counter).unwrap();
        (success, failure)
    };
    let bytes = Counts::OVERFLOW.with(Counts::BYTES);
    let one = || MatchEntry { once: true, ..wanted.clone() };
    let none = || MatchEntry { once: true, bits: 9, ..wanted.clone() };
    assert_eq!(counts(wanted.clone(), false, Counts::OVERFLOW), (3, 1), "all, and no more");
    assert_eq!(counts(wanted.clone(), false, bytes), (14, 1));
    assert_eq!(counts(wanted.clone(), false, Counts::COMMUNICATION), (0, 0));
    assert_eq!(counts(one(), false, Counts::OVERFLOW), (1, 0));
    assert_eq!(counts(none(), false, Counts::OVERFLOW), (0, 1));
    assert_eq!(counts(none(), true, Counts::OVERFLOW), (0, 1));
    assert_eq!(counts(one(), true, Counts::OVERFLOW), (1, 0));
    assert_eq!(counts(wanted.clone(), true, Counts::OVERFLOW), (2, 1));
    assert_eq!(counts(wanted.clone(), true, Counts::OVERFLOW), (0, 1));
    assert_eq!(b.status().headers, 1);
    while b.take_event(door.queue).is_ok() {}
    for _ in 0..4 {
        a.start(Operation::put(source.part, to(1, door.portal, 1))).unwrap();
    }
    assert_eq!(job.names(1, door.queue), ["served"; 4]);
    for quiet in silent.into_iter().chain([Quiet::SUCCESS]) {
        assert_eq!(deleted(quiet, 1), (vec![], 1), "{quiet:?}");
    }
    assert_eq!(deleted(Quiet::NONE, 1), (vec!["overflow".to_owned()], 1));
}

fn answers_say_which_list_took_it(over: Over) {
    for len in [8, LONG as u64] {
        let job = Job::with(over, 2, |_, config| config.lend_above = 1000);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door(b);
        let accepts = Accepts::PUT.with(Accepts::GET);
        let both = |bits| MatchEntry { bits, accepts, ..MatchEntry::new(vec![0; LONG]) };
        append(b, &door, List::Priority, both(1));
        append(b, &door, List::Overflow, MatchEntry { header: false, ..both(2) });
        append(b, &door, List::Overflow, both(3));
        let source = source(a, &[1; LONG]);
        let part = Part { len, ..source.part };
        for (bits, list) in [(1, List::Priority), (2, List::Overflow), (3, List::Overflow)] {
            let target = to(1, door.portal, bits);
            a.start(Operation { ack: Ack::Full, ..Operation::put(part, target) }).unwrap();
            let ends = [0; 2].map(|_| match job.event(0, source.queue) {
                Event::Send(e) | Event::Ack(e) => (e.list, e.len, e.result),
                other => panic!("{other:?}"),
            });
            assert_eq!(ends, [(None, len, Ok(())), (Some(list), len, Ok(()))]);
            a.start(Operation::get(part, target)).unwrap();
            match job.event(0, source.queue) {
                Event::Reply(e) => assert_eq!((e.list, e.result), (Some(list), Ok(()))),
                other => panic!("{other:?}"),
            }
            for _ in 0..2 {
                match job.event(1, door.queue) {
                    Event::Served(e) => assert_eq!(e.list, list),
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(b.status().headers, 2, "of the entry that keeps them");
        a.start(Operation { ack: Ack::Full, ..Operation::put(part, to(1, door.portal, 9)) })
            .unwrap();
        assert!(matches!(job.event(0, source.queue), Event::Send(_)));
        match job.event(0, source.queue) {
            Event::Ack(e) => assert_eq!((e.list, e.result), (None, Err(Failure::Dropped))),
            other => panic!("{other:?}"),
        }
    }
}

fn an_acknowledgement_that_nothing_hears_is_not_asked_for(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 8]));
    let (queue, counter) = (a.queue(10).unwrap(), a.counter().unwrap());
    let plain = || Descriptor::new(vec![0; 8]);
    let told = || Descriptor { queue: Some(queue), ..plain() };
    let counted = |counts| Descriptor { counter: Some(counter), counts, ..plain() };
    let both = || Descriptor { queue: Some(queue), ..counted(Counts::ACK) };
    for (descriptor, ack, heard) in [
        (plain(), Ack::Full, false),
        (plain(), Ack::Counting, false),
        (told(), Ack::Counting, false),
        (told(), Ack::Completed, false),
        (told(), Ack::Full, true),
        (counted(Counts::SEND), Ack::Full, false),
        (counted(Counts::ACK), Ack::Full, true),
        (counted(Counts::ACK), Ack::Counting, true),
        (counted(Counts::ACK), Ack::Completed, true),
        (both(), Ack::Full, true),
        (both(), Ack::Counting, true),
        (both(), Ack::Completed, true),
    ] {
        let events = descriptor.queue.is_some();
        let descriptor = a.bind(descriptor).unwrap();
        let put = Operation::put(Part::of(descriptor, 8), to(1, door.portal, 0));
        // Until the first message has gone there may be no connection.
        a.start(put).unwrap();
        job.settle();
        a.start(Operation { ack, ..put }).unwrap();
        assert_eq!(a.status().operations, u64::from(heard), "{ack:?}");
        job.settle();
        assert_eq!(a.status().operations, 0);
        let told = std::iter::from_fn(|| a.take_event(queue).ok());
        let acks = told.filter(|taken| matches!(taken.event, Event::Ack(_))).count();
        let full = ack == Ack::Full && heard && events;
        assert_eq!(acks, usize::from(full), "{ack:?}: only a full one is an event");
        a.release(descriptor).unwrap();
    }
}

fn what_has_come_is_looked_at_before_something_is_in_use(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let entry = append(b, &door, List::Priority, MatchEntry::new(vec![0; 8]));
    let source = source(a, &[1; 8]);
    let put = Operation::put(source.part, to(1, door.portal, 0));
    a.start(Operation { ack: Ack::Full, ..put }).unwrap();
    assert!(matches!(a.release(source.descriptor), Err(Error::InUse(_))), "B has not looked");
    // B alone goes on, until it has answered; and A is asked without having looked.
    let until = |goes_on: &Interface, ready: &dyn Fn() -> bool| {
        let end = std::time::Instant::now() + PATIENCE;
        while !ready() {
            match &job.net {
                Some(net) => {
                    goes_on.progress_at(net.now());
                    net.step();
                }
                None => drop(goes_on.progress()),
            }
            assert!(std::time::Instant::now() < end, "what has come is not looked at");
        }
    };
    until(b, &|| a.release(source.descriptor).is_ok());
    assert!(b.unlink(entry).is_ok());
}

fn what_was_sent_arrives_before_the_end(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let memory = Region::zeroed(8);
    let sum = MatchEntry { accepts: Accepts::PUT, ..MatchEntry::new(memory.clone()) };
    append(b, &door, List::Priority, sum);
    assert!(a.has_left(), "nothing was sent");
    let source = source(a, &1_u64.to_le_bytes());
    let (op, kind) = (Operator::Sum, Datatype::U64);
    let add = Operation::atomic(op, kind, source.part, to(1, door.portal, 0));
    for _ in 0..200 {
        a.start(add).unwrap();
    }
    assert!(!a.has_left(), "nothing says so yet");
    if over != Over::Sim {
        assert_eq!(a.flush(Duration::from_millis(1)), Err(Error::Timeout), "B does nothing");
    }
    job.until(|| a.has_left().then_some(()));
    // Whatever A has sent has come in by now: B looks at nothing any more.
    assert_eq!(memory.to_vec(), 200_u64.to_le_bytes());
    assert!(a.has_left(), "and so it stays");
    a.start(add).unwrap();
    assert!(!a.has_left());
    job.until(|| a.has_left().then_some(()));
    assert_eq!(a.status().operations, 0);
    // One that is gone is not waited for.
    a.start(add).unwrap();
    job.settle();
    let Job { mut ranks, net, addresses } = job;
    let last = ranks.pop().unwrap();
    match &net {
        Some(net) => net.kill(&addresses[1]),
        None => drop(last),
    }
    let a = &ranks[0];
    // A transport that does not see at once that the other side has ended lets this one be started.
    let _ = a.start(add);
    let end = std::time::Instant::now() + PATIENCE;
    while !a.has_left() {
        if let Some(net) = &net {
            a.progress_at(net.now());
            net.step();
        }
        assert!(std::time::Instant::now() < end, "it waits for one that is gone");
    }
}

/// The engine of the other side takes in what was sent by one that ends at once.
#[test]
fn an_interface_is_closed_in_order() {
    for over in [Over::Local, Over::Shm, Over::Tcp] {
        let Job { mut ranks, .. } = Job::new(over, 2);
        let b = ranks.pop().unwrap();
        let a = ranks.pop().unwrap();
        let door = door_with(&b, 10_000, false);
        let memory = Region::zeroed(LONG);
        let entry = MatchEntry { ignore: !0, ..MatchEntry::new(memory.clone()) };
        append(&b, &door, List::Priority, entry);
        let engine = Engine::start(&b).unwrap();
        let source = source(&a, &pattern(LONG));
        let count = 500;
        for n in 0..count {
            let len = if n % 100 == 7 { LONG as u64 } else { 5000 };
            let part = Part { len, ..source.part };
            a.start(Operation::put(part, to(1, door.portal, n))).unwrap();
        }
        a.clone().close(PATIENCE).unwrap();
        assert_eq!(a.wait_event(source.queue, PATIENCE).unwrap_err(), Error::Aborted);
        drop(a);
        let served = std::iter::from_fn(|| b.take_event(door.queue).ok());
        assert_eq!(served.count() as u64, count, "{over:?}");
        assert!(memory.to_vec() == pattern(LONG));
        drop(engine);
    }
}

fn a_list_has_its_limit(over: Over) {
    let job = Job::with(over, 1, |_, config| config.limits.list = 2);
    let a = &job.ranks[0];
    let door = door(a);
    let entry = || MatchEntry::new(vec![0; 8]);
    for list in [List::Priority, List::Overflow] {
        let first = append(a, &door, list, entry());
        append(a, &door, list, entry());
        let error = a.append(door.portal, list, entry()).unwrap_err();
        assert_eq!(error, Error::ListTooLong { limit: 2 });
        a.unlink(first).unwrap();
        append(a, &door, list, entry());
    }
    assert_eq!(a.limits().0.list, 2);
}

fn a_portal_can_be_opened_disabled(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let portal = b.portal(PortalOptions { disabled: true, ..PortalOptions::default() }).unwrap();
    b.append(portal, List::Priority, MatchEntry::new(vec![0; 8])).unwrap();
    let source = source(a, &[1; 8]);
    let put = Operation { ack: Ack::Full, ..Operation::put(source.part, to(1, portal, 0)) };
    a.start(put).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack: PortalDisabled"]);
    b.enable(portal).unwrap();
    a.start(put).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "ack"]);
}

fn that_a_portal_was_disabled_can_be_left_untold(over: Over) {
    for quiet in [Quiet::NONE, Quiet::FLOW_CONTROL] {
        let job = Job::new(over, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door_with(b, 5, true);
        append(b, &door, List::Priority, MatchEntry { quiet, ..MatchEntry::new(vec![0; 8]) });
        let source = source(a, &[1; 8]);
        let put = Operation::put(source.part, to(1, door.portal, 0));
        for _ in 0..6 {
            a.start(Operation { ack: Ack::Full, ..put }).unwrap();
        }
        let refused = |name: &String| name == "ack: PortalDisabled";
        assert!(job.names(0, source.queue).iter().any(refused), "it was disabled");
        let told = job.names(1, door.queue).iter().filter(|name| *name == "disabled").count();
        assert_eq!(told, usize::from(quiet == Quiet::NONE));
    }
}

fn headers_can_move_the_offset_on(over: Over) {
    for (counts, min_free, at) in [(false, 1, Some(0)), (true, 1, Some(30)), (true, 71, None)] {
        let job = Job::new(over, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door(b);
        append(b, &door, List::Overflow, MatchEntry { bits: 1, ..overflow(15) });
        let source = source(a, &[1; 10]);
        for _ in 0..3 {
            a.start(Operation::put(source.part, to(1, door.portal, 1))).unwrap();
        }
        assert_eq!(job.names(1, door.queue), ["served"; 3]);
        let entry = MatchEntry {
            bits: 1,
            local_offset: true,
            offset_counts_headers: counts,
            min_free: Some(min_free),
            unlink: true,
            ..MatchEntry::new(vec![0; 100])
        };
        b.append(door.portal, List::Priority, entry).unwrap();
        let last = if at.is_some() { "link" } else { "unlink" };
        assert_eq!(job.names(1, door.queue), ["overflow", "overflow", "overflow", last]);
        a.start(Operation::put(source.part, to(1, door.portal, 1))).unwrap();
        match job.event(1, door.queue) {
            Event::Served(e) if e.list == List::Priority => assert_eq!(Some(e.offset), at),
            Event::Served(_) => assert_eq!(at, None),
            other => panic!("{other:?}"),
        }
    }
}

/// A directory that can be exchanged.
#[derive(Default)]
struct Late(RwLock<ProcessMap>);

impl Late {
    fn set(&self, addresses: &[Address]) {
        *self.0.write().unwrap() = ProcessMap::ranks(addresses.to_vec());
    }
}

impl Directory for Late {
    fn address(&self, process: ProcessId) -> Option<Address> {
        self.0.read().unwrap().address(process)
    }

    fn process(&self, address: &Address) -> Option<ProcessId> {
        self.0.read().unwrap().process(address)
    }
}

/// Rank 0 knows all; rank 1 has a directory of its own.
fn late(over: Over, named_later: bool) -> (Job, Arc<Late>) {
    let mut job = Job::new(over, 1);
    let endpoint = open(over, job.net.as_ref());
    job.addresses.push(endpoint.address().clone());
    let directory = Arc::new(Late::default());
    if !named_later {
        // Itself, and nothing else.
        let itself = [(ProcessId::rank(1), job.addresses[1].clone())];
        *directory.0.write().unwrap() = itself.into_iter().collect();
    }
    let config = Config { named_later, ..Config::default() };
    let own = directory.clone();
    let interface = match &job.net {
        Some(net) => Interface::with_given_time(endpoint, own, config, net.now()),
        None => Interface::open(endpoint, own, config),
    };
    job.ranks.push(interface.unwrap());
    // The other one has to be made anew: its directory is fixed.
    let other = open(over, job.net.as_ref());
    job.addresses[0] = other.address().clone();
    let map = Arc::new(ProcessMap::ranks(job.addresses.clone()));
    let config = Config::default();
    job.ranks[0] = match &job.net {
        Some(net) => Interface::with_given_time(other, map, config, net.now()),
        None => Interface::open(other, map, config),
    }
    .unwrap();
    (job, directory)
}

fn unknown_endpoints_are_identified_when_the_directory_changes(over: Over) {
    let (job, directory) = late(over, false);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 8]));
    let source = source(a, &[1; 8]);
    let put = Operation::put(source.part, to(1, door.portal, 0));
    a.start(put).unwrap();
    job.until(|| (b.status().unknown_endpoints == 1).then_some(()));
    directory.set(&job.addresses);
    assert_eq!(b.directory_changed(), Ok(ProcessId::rank(1)));
    a.start(Operation { ack: Ack::Full, ..put }).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "send", "ack"]);
    assert_eq!(b.status().unknown_endpoints, 1);
    // And back: the rank that it had says nothing of it.
    let back = self::source(b, &[2; 8]);
    let missing = Operation::put(back.part, to(0, 0, 0));
    b.start(missing).unwrap();
    directory.set(&[job.addresses[1].clone()]);
    assert_eq!(b.directory_changed(), Ok(ProcessId::rank(0)));
    a.start(put).unwrap();
    job.until(|| (b.status().unknown_endpoints == 2).then_some(()));
    // Unknown to itself, it leaves all as it is.
    directory.set(&[]);
    assert!(matches!(b.directory_changed(), Err(Error::NotInDirectory(_))));
    assert_eq!(b.process(), ProcessId::rank(0));
}

fn a_process_that_is_named_later(over: Over) {
    let (job, directory) = late(over, true);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    assert_eq!(b.process(), ProcessId::ANY);
    let engine = (over != Over::Sim).then(|| Engine::start(b).unwrap());
    let door = door(b);
    append(b, &door, List::Priority, MatchEntry::new(vec![0; 8]));
    let source = source(a, &[1; 8]);
    let put = Operation::put(source.part, to(1, door.portal, 0));
    a.start(Operation { ack: Ack::Full, ..put }).unwrap();
    job.passes(100);
    assert!(matches!(b.directory_changed(), Err(Error::NotInDirectory(_))), "nor is it yet");
    assert!(matches!(b.distance(ProcessId::rank(0)), Err(Error::Process { .. })));
    assert!(b.take_event(door.queue).is_err(), "nothing is taken in");
    assert_eq!(b.status().unknown_endpoints, 0);
    directory.set(&job.addresses);
    assert_eq!(b.directory_changed(), Ok(ProcessId::rank(1)));
    let names = [0; 2].map(|_| name(&job.event(0, source.queue)));
    assert_eq!(names, ["send", "ack"], "nothing was lost");
    assert_eq!(name(&job.event(1, door.queue)), "served");
    assert_eq!((b.status().unknown_endpoints, b.distance(ProcessId::rank(0))), (0, Ok(1)));
    drop(engine);
}

/// What others go on asking for does not keep a flush from its end.
#[test]
fn a_flush_ends_while_others_ask() {
    let job = Job::new(Over::Shm, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let doors = [door_with(a, 100, false), door_with(b, 100, false)];
    for (rank, door) in [a, b].into_iter().zip(&doors) {
        append(rank, door, List::Priority, MatchEntry::new(vec![0; 8]));
    }
    let [from, back] = [a, b].map(|rank| source(rank, &[1; 8]));
    let asks = Operation::put(back.part, to(0, doors[0].portal, 0));
    let asks = Operation { ack: Ack::Full, ..asks };
    let (begun, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let engine = Engine::start(a).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                b.start(asks).unwrap();
                for kind in ["send", "ack"] {
                    assert_eq!(name(&b.wait_event(back.queue, PATIENCE).unwrap().event), kind);
                }
                begun.store(true, Ordering::SeqCst);
            }
        });
        while !begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        for _ in 0..20 {
            a.start(Operation::put(from.part, to(1, doors[1].portal, 0))).unwrap();
            let flushed = a.flush(PATIENCE);
            over.store(flushed.is_err(), Ordering::SeqCst);
            flushed.unwrap();
            assert!(b.take_event(doors[1].queue).is_ok(), "it has come in");
        }
        over.store(true, Ordering::SeqCst);
    });
    drop(engine);
}

/// Aborting ends waiting, and nothing else.
#[test]
fn after_an_abort_others_are_served() {
    for over in [Over::Local, Over::Shm, Over::Tcp] {
        let job = Job::new(over, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door(b);
        append(b, &door, List::Priority, MatchEntry::new(vec![0; 8]));
        let engine = Engine::start(b).unwrap();
        b.abort();
        let source = source(a, &[1; 8]);
        let put = Operation::put(source.part, to(1, door.portal, 0));
        for _ in 0..3 {
            a.start(Operation { ack: Ack::Full, ..put }).unwrap();
            for kind in ["send", "ack"] {
                assert_eq!(name(&a.wait_event(source.queue, PATIENCE).unwrap().event), kind);
            }
        }
        // A wait ends with this before anything else is checked: events, and stale handles.
        assert_eq!(b.wait_event(door.queue, PATIENCE).unwrap_err(), Error::Aborted);
        let (stale, counter) = (b.queue(1).unwrap(), b.counter().unwrap());
        b.free_queue(stale).unwrap();
        b.free_counter(counter).unwrap();
        assert_eq!(b.wait_event(stale, PATIENCE).unwrap_err(), Error::Aborted);
        assert_eq!(b.poll_events(&[stale], PATIENCE).unwrap_err(), Error::Aborted);
        assert_eq!(b.wait_count(counter, 0, PATIENCE).unwrap_err(), Error::Aborted);
        assert_eq!(b.poll_counts(&[(counter, 0)], PATIENCE).unwrap_err(), Error::Aborted);
        assert_eq!(b.flush(PATIENCE).unwrap_err(), Error::Aborted);
        assert_eq!(name(&b.take_event(door.queue).unwrap().event), "served");
        drop(engine);
    }
}

fn a_poll_of_several_queues_takes_from_each(over: Over) {
    let job = Job::new(over, 1);
    let a = &job.ranks[0];
    let doors: Vec<Door> = (0..3).map(|_| door(a)).collect();
    for door in &doors {
        for _ in 0..12 {
            a.append(door.portal, List::Priority, MatchEntry::new(vec![])).unwrap();
        }
    }
    let queues: Vec<Handle<EventQueue>> = doors.iter().map(|door| door.queue).collect();
    let next = |queues: &[Handle<EventQueue>]| a.poll_events(queues, Duration::ZERO).unwrap().0;
    let mut order: Vec<usize> = (0..9).map(|_| next(&queues)).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    // Also when others look at some of them in between.
    order = (0..6).map(|_| (next(&queues[..2]), next(&queues)).1).collect();
    assert!([0, 1, 2].iter().all(|at| order.contains(at)), "{order:?}");
}

fn events_of_the_initiator_say_what_was_asked_for(over: Over) {
    let job = Job::with(over, 2, |rank, config| {
        (config.user, config.job) = (4000 + rank as u32, 70 + rank as u32);
    });
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let accepts = Accepts::PUT.with(Accepts::GET);
    let entry = MatchEntry { accepts, ignore: !0, ..MatchEntry::new(vec![0; 6]) };
    append(b, &door, List::Priority, entry);
    let source = source(a, &[1; 8]);
    let target = Target { offset: 2, ..to(1, door.portal, 0xabc) };
    let put = Operation { ack: Ack::Full, header_data: 77, ..Operation::put(source.part, target) };
    a.start(put).unwrap();
    a.start(Operation::get(source.part, target)).unwrap();
    job.settle();
    let mut lens = Vec::new();
    while let Ok(taken) = a.take_event(source.queue) {
        let (Event::Send(e) | Event::Ack(e) | Event::Reply(e)) = taken.event else {
            panic!("another event")
        };
        assert_eq!((e.target, e.requested), (target, 8));
        let reply = matches!(taken.event, Event::Reply(_));
        assert_eq!(e.header_data, if reply { 0 } else { 77 });
        lens.push((e.len, e.offset));
    }
    assert_eq!(lens, [(8, 2), (4, 2), (4, 2)]);
    assert_eq!((a.user_and_job(), b.user_and_job()), ((4000, 70), (4001, 71)));
    let mut served = 0;
    while let Ok(taken) = b.take_event(door.queue) {
        let Event::Served(e) = taken.event else { panic!("another event") };
        assert_eq!((e.arrival.user, e.arrival.job), (seen(over, 4000), 70));
        served += 1;
    }
    assert_eq!(served, 2);
    assert_eq!(source.descriptor.interface(), a.id());
    assert!(a.id() != b.id());
}
