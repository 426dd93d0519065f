//! Every operation that was started ends with one success or one failure, also when the other side
//! dies.

use crate::common::*;
use petasos_fabric::{Address, Endpoint, Region, Support};
use petasos_portals::*;
use petasos_testing::{again, role};
use std::{collections::HashMap, io::Write, sync::Arc, time::Duration};

const PATIENCE: Duration = Duration::from_secs(20);

/// Counts the ends of operations by what they were given: one, for each of these kinds.
#[derive(Default)]
struct Ends(HashMap<(u64, &'static str), Vec<Result<(), Failure>>>);

impl Ends {
    fn take(&mut self, event: &Event) {
        let (kind, completed) = match event {
            Event::Send(completed) => ("send", completed),
            Event::Ack(completed) => ("ack", completed),
            Event::Reply(completed) => ("reply", completed),
            other => panic!("{other:?}"),
        };
        self.0.entry((completed.user_data, kind)).or_default().push(completed.result);
    }

    /// What each of `count` operations must have raised: of three kinds in turn.
    fn check(&self, count: u64) -> usize {
        let mut failures = 0;
        for n in 0..count {
            let of = |kind| self.0.get(&(n, kind)).map_or(&[][..], |ends| &ends[..]);
            let (send, ack, reply) = (of("send"), of("ack"), of("reply"));
            match n % 3 {
                0 => {
                    let acks = usize::from(send == [Ok(())]);
                    assert_eq!((send.len(), ack.len(), reply.len()), (1, acks, 0), "put {n}");
                }
                1 => assert_eq!((send.len(), ack.len(), reply.len()), (1, 0, 0), "put {n}"),
                _ => assert_eq!((send.len(), ack.len(), reply.len()), (0, 0, 1), "get {n}"),
            }
            failures += [send, ack, reply].into_iter().flatten().filter(|end| end.is_err()).count();
        }
        failures
    }
}

/// Starts puts with and without acknowledgement and gets, in turn, short and long.
fn start(from: &Interface, parts: [Part; 2], target: Target, n: u64) {
    let part = parts[usize::from(n % 7 > 3)];
    let operation = match n % 3 {
        0 => Operation { ack: Ack::Full, ..Operation::put(part, target) },
        1 => Operation::put(part, target),
        _ => Operation::get(part, target),
    };
    from.start(Operation { user_data: n, ..operation }).unwrap();
}

fn both(memory: usize) -> MatchEntry {
    let accepts = Accepts::PUT.with(Accepts::GET);
    MatchEntry { accepts, ..MatchEntry::new(vec![0; memory]) }
}

#[test]
fn a_process_of_the_simulated_network_dies() {
    for passes in [0, 1, 3, 10, 30, 100, 300] {
        let job = Job::new(Over::Sim, 3);
        let a = &job.ranks[0];
        let doors: Vec<Door> = job.ranks.iter().map(door).collect();
        for (rank, door) in job.ranks.iter().zip(&doors) {
            append(rank, door, List::Priority, both(LONG));
        }
        let queue = a.queue(10_000).unwrap();
        let bound = Descriptor { queue: Some(queue), ..Descriptor::new(vec![0; LONG]) };
        let descriptor = a.bind(bound).unwrap();
        let parts = [8, LONG as u64].map(|len| Part::of(descriptor, len));
        let count = 60;
        for n in 0..count {
            start(a, parts, to(1 + (n % 2) as u32, doors[1].portal, 0), n);
            if n == count / 2 {
                job.passes(passes);
                job.net.as_ref().unwrap().kill(&job.addresses[1]);
            }
        }
        job.settle();
        let mut ends = Ends::default();
        while let Ok(taken) = a.take_event(queue) {
            ends.take(&taken.event);
        }
        assert!(ends.check(count) > 0, "the one that died did not answer");
        assert_eq!(a.status().operations, 0);
        assert!(a.release(descriptor).is_ok(), "nothing needs it any more");
        // What the one that lives was asked for went well.
        let theirs = ends.0.iter().filter(|((n, _), _)| n % 2 == 1);
        assert!(theirs.flat_map(|(_, ends)| ends).all(|end| end.is_ok()));
    }
}

/// The initiator dies while its data is being fetched: the target is told, and its entry is free.
#[test]
fn an_initiator_dies_before_its_data_is_there() {
    for passes in [4, 6, 8, 10, 14, 20] {
        let job = Job::new(Over::Sim, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let door = door(b);
        let handle = append(b, &door, List::Overflow, both(LONG));
        let source = source(a, &[1; LONG]);
        for bits in [0, 0] {
            a.start(Operation::put(source.part, to(1, door.portal, bits))).unwrap();
        }
        job.passes(passes);
        job.net.as_ref().unwrap().kill(&job.addresses[0]);
        let alone = || {
            let net = job.net.as_ref().unwrap();
            let busy = b.progress_at(net.now());
            net.step() || busy
        };
        while alone() {}
        let events = std::iter::from_fn(|| b.take_event(door.queue).ok());
        let ends: Vec<_> = events.map(|taken| name(&taken.event)).collect();
        let kept = ends.iter().filter(|name| **name == "served").count() as u64;
        assert_eq!(b.status().headers, kept, "{ends:?}");
        b.search_and_delete(door.portal, MatchEntry::new(vec![])).unwrap();
        assert!(b.unlink(handle).is_ok(), "{ends:?}");
    }
}

/// A long put to an entry of B's, whose initiator dies while its data is being fetched; then the
/// names of B's events. `meanwhile` is done after the header has come, if the data has not.
fn broken_off(
    list: List,
    entry: MatchEntry,
    passes: usize,
    meanwhile: impl Fn(&Interface, &Door),
) -> Vec<String> {
    let job = Job::new(Over::Sim, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, list, entry);
    let source = source(a, &[1; LONG]);
    a.start(Operation::put(source.part, to(1, door.portal, 0))).unwrap();
    job.passes(passes);
    meanwhile(b, &door);
    let net = job.net.as_ref().unwrap();
    net.kill(&job.addresses[0]);
    let alone = || {
        let busy = b.progress_at(net.now());
        net.step() || busy
    };
    while alone() {}
    let events = std::iter::from_fn(|| b.take_event(door.queue).ok());
    events.map(|taken| name(&taken.event)).collect()
}

/// That it did not go well is told where what goes well is not.
#[test]
fn failures_are_told_where_successes_are_not() {
    let mut told = 0;
    for passes in 0..30 {
        let entry = MatchEntry { quiet: Quiet::SUCCESS, ..both(LONG) };
        let names = broken_off(List::Priority, entry, passes, |_, _| {});
        assert!(names.len() <= 1 && names.iter().all(|name| name.contains(": ")), "{names:?}");
        told += names.len();
    }
    assert!(told > 0, "it never died in the middle");
}

/// The entry that has claimed a message whose data never came is told so.
#[test]
fn what_was_claimed_and_never_came_is_told() {
    let mut told = 0;
    for passes in 0..30 {
        let memory = Region::zeroed(LONG);
        let entry = MatchEntry::new(memory.clone());
        let names = broken_off(List::Overflow, entry, passes, |b, door| {
            let entry = MatchEntry { once: true, ..MatchEntry::new(vec![0; 8]) };
            b.append(door.portal, List::Priority, entry).unwrap();
        });
        let of = |what: &str| names.iter().find(|name| name.starts_with(what)).cloned();
        let Some(claimed) = of("overflow") else { continue };
        // Both ends say the same.
        let served = of("served").unwrap();
        assert_eq!(claimed.strip_prefix("overflow"), served.strip_prefix("served"), "{names:?}");
        assert_eq!(claimed == "overflow", memory.to_vec() == [1; LONG], "{names:?}");
        assert!(of("unlink").is_some(), "{names:?}");
        told += usize::from(claimed != "overflow");
    }
    assert!(told > 0, "it never died in the middle");
}

/// A put that fails is counted once, whatever its descriptor counts.
#[test]
fn a_failure_is_counted_once() {
    let all = Counts::SEND.with(Counts::ACK);
    for counts in [Counts::SEND, Counts::ACK, all, Counts::REPLY] {
        for len in [8, LONG as u64] {
            let job = Job::new(Over::Sim, 2);
            let a = &job.ranks[0];
            let (queue, counter) = (a.queue(10).unwrap(), a.counter().unwrap());
            let spec = Descriptor {
                queue: Some(queue),
                counter: Some(counter),
                counts,
                ..Descriptor::new(vec![0; LONG])
            };
            let part = Part::of(a.bind(spec).unwrap(), len);
            job.net.as_ref().unwrap().kill(&job.addresses[1]);
            a.start(Operation { ack: Ack::Full, ..Operation::put(part, to(1, 0, 0)) }).unwrap();
            let names = job.names(0, queue);
            let counted = |what| u64::from(counts.has(what));
            let expected = match names == ["send: gone"] {
                true => Count { success: 0, failure: u64::from(counts != Counts::REPLY) },
                // What is short has left, as far as the transport knows, and is not acknowledged.
                false => Count { success: counted(Counts::SEND), failure: counted(Counts::ACK) },
            };
            assert!(names == ["send: gone"] || (names == ["send", "ack: gone"] && len == 8));
            assert_eq!(a.count(counter), Ok(expected), "{counts:?}");
        }
    }
}

/// A process of its own answers while it computes, and then it is killed.
fn a_process_is_killed(over: Over, name: &str) {
    let open = || open(over, None);
    if let Some(address) = role() {
        let endpoint = open();
        let own = endpoint.address().clone();
        let map = [address.parse::<Address>().unwrap(), own.clone()];
        let map = Arc::new(ProcessMap::ranks(map));
        let interface = Interface::open(endpoint, map, Config::default()).unwrap();
        let door = door(&interface);
        append(&interface, &door, List::Priority, both(LONG));
        assert_eq!(door.portal, 0);
        let _engine = Engine::start(&interface).unwrap();
        println!("here: {own}");
        std::io::stdout().flush().unwrap();
        // Computes, and never calls in.
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    let endpoint = open();
    let own = endpoint.address().clone();
    let mut child = again(name, own.as_str()).start();
    let theirs = child.line("here: ").parse::<Address>().unwrap();
    let map = Arc::new(ProcessMap::ranks([own, theirs]));
    let a = Interface::open(endpoint, map, Config::default()).unwrap();
    let queue = a.queue(10_000).unwrap();
    let bound = Descriptor { queue: Some(queue), ..Descriptor::new(vec![0; LONG]) };
    let descriptor = a.bind(bound).unwrap();
    let parts = [8, LONG as u64].map(|len| Part::of(descriptor, len));
    let mut ends = Ends::default();
    for n in 0..30 {
        start(&a, parts, to(1, 0, 0), n);
    }
    while a.status().operations > 0 {
        if let Ok(taken) = a.wait_event(queue, PATIENCE) {
            ends.take(&taken.event);
        }
    }
    while let Ok(taken) = a.take_event(queue) {
        ends.take(&taken.event);
    }
    assert_eq!(ends.check(30), 0, "it answers while it lives");
    for n in 30..90 {
        start(&a, parts, to(1, 0, 0), n);
        if n == 60 {
            child.kill();
        }
    }
    while a.status().operations > 0 {
        if let Ok(taken) = a.wait_event(queue, Duration::from_millis(100)) {
            ends.take(&taken.event);
        }
    }
    while let Ok(taken) = a.take_event(queue) {
        ends.take(&taken.event);
    }
    assert!(ends.check(90) > 0);
    assert!(a.release(descriptor).is_ok());
}

#[test]
fn a_process_is_killed_on_shm() {
    a_process_is_killed(Over::Shm, "ends::a_process_is_killed_on_shm");
}

#[test]
fn a_process_is_killed_on_tcp() {
    a_process_is_killed(Over::Tcp, "ends::a_process_is_killed_on_tcp");
}

/// No process is at the address: patience ends, and so does the operation.
#[test]
fn no_process_is_there() {
    let endpoint = open(Over::Shm, None);
    let map =
        ProcessMap::ranks([endpoint.address().clone(), "shm://no-such-process".parse().unwrap()]);
    let config = Config { patience: Duration::from_millis(50), ..Config::default() };
    let a = Interface::open(endpoint, Arc::new(map), config).unwrap();
    let source = source(&a, &[1; 8]);
    a.start(Operation { ack: Ack::Full, ..Operation::put(source.part, to(1, 0, 0)) }).unwrap();
    a.start(Operation::get(source.part, to(1, 0, 0))).unwrap();
    let mut names = [0; 3].map(|_| name(&a.wait_event(source.queue, PATIENCE).unwrap().event));
    names.sort();
    // The transport had taken the short message; that is all that SEND says.
    assert_eq!(names, ["ack: gone", "reply: gone", "send"]);
    assert_eq!((a.status().operations, a.status().peers), (0, 0));
}

/// A job of two ranks over these endpoints.
fn of_ends(ends: [Box<dyn Endpoint>; 2]) -> Job {
    let addresses: Vec<Address> = ends.iter().map(|end| end.address().clone()).collect();
    let map = Arc::new(ProcessMap::ranks(addresses.clone()));
    let open = |end| Interface::open(end, map.clone(), Config::default()).unwrap();
    Job { ranks: ends.into_iter().map(open).collect(), net: None, addresses }
}

/// The first rank puts data that is long enough to be lent to the second, and is acknowledged.
fn put_long(job: &Job) -> Source {
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, both(LONG));
    let source = source(a, &pattern(LONG));
    let put = Operation::put(source.part, to(1, door.portal, 0));
    a.start(Operation { ack: Ack::Full, ..put }).unwrap();
    source
}

/// Memory of a put that was lent, and that the target still reaches when it is closed: the put goes
/// on until it does not.
#[test]
fn lent_memory_that_is_still_reached_is_the_puts() {
    let local = || petasos_self::Local::open(&"self://*".parse().unwrap()).unwrap();
    let (first, reaching) = petasos_conformance::reached::Reached::new(local(), 3);
    let job = of_ends([Box::new(first), Box::new(local())]);
    let (a, source) = (&job.ranks[0], put_long(&job));
    assert_eq!(name(&job.event(0, source.queue)), "send");
    let asked = reaching.asked.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!(asked, 4, "the memory is said to be free, and is not closed");
    assert_eq!(name(&job.event(0, source.queue)), "ack");
    job.settle();
    assert_eq!(a.status().operations, 0);
}

/// Under one address, memory is lent to the peers whose transport moves data itself, and data goes
/// in messages to the others.
#[test]
fn lending_follows_the_route_to_the_peer() {
    let near = open(Over::Shm, None).capabilities().remote_access == Support::Native;
    for (url, lent) in [("auto://*", near), ("auto://tcp://127.0.0.1:0", false)] {
        let auto = |url: &str| {
            petasos::open_auto(&url.parse().unwrap(), &petasos::OpenOptions::default()).unwrap()
        };
        let (first, closes) = petasos_conformance::reached::Reached::new(auto("auto://*"), 0);
        let job = of_ends([Box::new(first), Box::new(auto(url))]);
        let source = put_long(&job);
        assert_eq!(job.names(0, source.queue), ["send", "ack"]);
        let closed = closes.asked.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(closed, usize::from(lent), "regions that were lent, with a peer at {url}");
    }
}

/// A target that computes answers puts, gets, atomics and triggered operations.
#[test]
fn a_target_that_never_calls_in_answers() {
    for over in [Over::Local, Over::Shm, Over::Tcp] {
        for idle in [Idle::Sleep, Idle::Adaptive(Duration::from_micros(50))] {
            let job = Job::with(over, 2, |_, config| config.idle = idle);
            let (a, b) = (&job.ranks[0], &job.ranks[1]);
            let (at_b, at_a) = (door(b), door(a));
            let memory = Region::zeroed(LONG);
            let counter = b.counter().unwrap();
            let entry = MatchEntry {
                memory: memory.clone().into(),
                counter: Some(counter),
                counts: Counts::COMMUNICATION,
                ..both(0)
            };
            append(b, &at_b, List::Priority, entry);
            append(a, &at_a, List::Priority, MatchEntry::new(vec![0; 8]));
            let answer = source(b, &[9; 8]);
            let put = Operation::put(answer.part, to(0, at_a.portal, 0));
            b.trigger(counter, 300, Action::Start(put)).unwrap();
            let engine = Engine::start(b).unwrap();
            assert!(matches!(Engine::start(b), Err(Error::InUse(_))));
            // From here on B's program does nothing.
            let source = source(a, &pattern(LONG));
            let target = to(1, at_b.portal, 0);
            for n in 0..100 {
                let part = if n % 10 == 0 { source.part } else { Part { len: 8, ..source.part } };
                let word = Part { len: 8, ..source.part };
                let sum = (Operator::Sum, Datatype::U64);
                for operation in [
                    Operation { ack: Ack::Full, ..Operation::put(part, target) },
                    Operation::get(part, target),
                    Operation::fetch_atomic(sum.0, sum.1, word, word, target),
                ] {
                    a.start(operation).unwrap();
                    loop {
                        let event = a.wait_event(source.queue, PATIENCE).unwrap().event;
                        assert!(!name(&event).contains(':'), "{event:?}");
                        if !matches!(event, Event::Send(_)) {
                            break;
                        }
                    }
                }
            }
            let event = a.wait_event(at_a.queue, PATIENCE).unwrap().event;
            assert_eq!(name(&event), "served", "the counter has set it off");
            drop(engine);
            assert!(Engine::start(b).is_ok(), "there is room for another");
        }
    }
}

/// Many threads of one process wait, with and without an engine.
#[test]
fn many_threads_wait_on_one_interface() {
    for (over, engine) in
        [(Over::Local, false), (Over::Shm, false), (Over::Shm, true), (Over::Tcp, true)]
    {
        let job = Job::new(over, 2);
        let (a, b) = (&job.ranks[0], &job.ranks[1]);
        let _engines = engine.then(|| [a, b].map(|i| Engine::start(i).unwrap()));
        let door = door(b);
        append(b, &door, List::Priority, both(64));
        let _other = (!engine).then(|| Engine::start(b).unwrap());
        let portal = door.portal;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    let source = source(a, &[1; 8]);
                    let put = Operation::put(source.part, to(1, portal, 0));
                    for n in 0..300 {
                        a.start(Operation { ack: Ack::Full, user_data: n, ..put }).unwrap();
                        for kind in ["send", "ack"] {
                            let event = a.wait_event(source.queue, PATIENCE).unwrap().event;
                            assert_eq!(name(&event), kind);
                        }
                    }
                });
            }
        });
        assert_eq!(a.status().operations, 0);
    }
}
