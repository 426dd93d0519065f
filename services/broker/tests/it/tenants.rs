//! What the broker lets tenants do, refuses, and shows; and what happens when it ends.

use crate::common::{PATIENCE, Place, Serving, Two};
use petasos_broker::{Ask, ask};
use petasos_fabric::{Access, Done, Event, Level, LostReason, Operation, RemoteSpan, Token};
use std::time::Duration;

#[test]
fn sockets_say_whose_an_endpoint_is() {
    let place = Place::new();
    let mut config = place.config();
    config.tenants[1].users = Some(vec![rustix::process::geteuid().as_raw() + 1]);
    config.set_limit("c", "endpoints", 1).unwrap();
    let _serving = Serving::start(config, None);
    let error = |url: &str, tenant: &str| place.try_open(url, tenant).err().unwrap();
    assert!(error("tenant://x@b", "a").contains("socket of the tenant a"));
    assert!(error("tenant://x@b", "b").contains("is not of the tenant b"));
    let first = place.open("tenant://x@a", "a");
    assert_eq!(first.address().as_str(), "tenant://x@a");
    assert!(error("tenant://x@a", "a").contains("already"));
    let any = place.open("tenant://*", "c");
    assert!(any.address().rest().ends_with("@c"), "{}", any.address());
    assert!(error("tenant://*", "c").contains("its limit"));
    assert!(error("tenant://*", "nothing").contains("no broker at"));
    drop(first);
    // Its name is free as soon as the broker has seen its end.
    let begin = std::time::Instant::now();
    while place.try_open("tenant://x@a", "a").is_err() {
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn who_is_not_allowed_is_refused_and_told_why() {
    let place = Place::new();
    let _serving = Serving::start(place.config(), None);
    let mut two = Two::of([place.open("tenant://x@c", "c"), place.open("tenant://x@a", "a")]);
    let address = two.ends[1].address().clone();
    two.ends[0].resolve(&address, Duration::from_millis(200)).unwrap();
    let lost = |events: &Vec<Event>| {
        events.iter().any(|event| match event {
            Event::PeerLost { reason: LostReason::Unreachable(_, why), .. } => {
                why.contains("no rule allows it")
            }
            _ => false,
        })
    };
    two.until("it is refused", |events| lost(&events[0]));
    assert!(two.events[1].is_empty(), "the other side hears nothing of it");
    let status = place.status();
    let log = status["log"].as_array().unwrap();
    assert!(log[0]["what"] == "refused" && log[0]["from"] == "x@c", "{status}");
    assert!(log[0]["times"].as_u64() >= Some(1) && log.len() == 1, "{status}");
}

#[test]
fn large_data_is_copied_once_and_counted() {
    const LEN: usize = 3_000_001;
    let place = Place::new();
    let mut config = place.config();
    config.set_limit("b", "registered_bytes", 16 << 20).unwrap();
    let _serving = Serving::start(config, None);
    let mut two = Two::of([place.open("tenant://x@a", "a"), place.open("tenant://x@b", "b")]);
    two.connect();
    let target = two.ends[1].alloc(LEN).unwrap();
    let region = two.ends[1].register(&target.whole(), Access::ALL).unwrap();
    let key = two.ends[1].export(region).unwrap();
    let remote = two.ends[0].import(&key).unwrap();
    let bytes: Vec<u8> = (0..LEN).map(|at| (at ^ at >> 8) as u8).collect();
    let put = |two: &mut Two, source: petasos_fabric::Region| {
        let put = Operation::Put {
            token: Token(7),
            remote,
            local: [source.whole()].into(),
            spans: [RemoteSpan { offset: 0, len: LEN as u64 }].into(),
            level: Level::Visible,
            event: None,
        };
        two.ends[0].submit(&mut [put].into());
        let done = |event: &Event| matches!(event, Event::Done { result: Ok(Done::Put), .. });
        two.until("the put", |events| events[0].iter().any(done));
        two.events = Default::default();
    };
    let source = two.ends[0].alloc(LEN).unwrap();
    source.write(0, &bytes);
    put(&mut two, source.clone());
    assert!(target.to_vec() == bytes, "all of it, in place");
    let in_place =
        |place: &Place| place.status()["tenants"][0]["sent"]["bytes_in_place"].as_u64().unwrap();
    let first = in_place(&place);
    assert!(first as usize > LEN - (64 << 10), "{first}");
    // Of ordinary memory, too, but through the rings.
    put(&mut two, petasos_fabric::Region::from_vec(bytes.iter().rev().copied().collect()));
    assert!(target.to_vec().iter().rev().eq(bytes.iter()));
    assert_eq!(in_place(&place), first);
    // More than may be registered goes through the rings as well, and is right.
    let more = two.ends[1].alloc(4 << 20).unwrap();
    let region = two.ends[1].register(&more.whole(), Access::ALL).unwrap();
    let remote = two.ends[0].import(&two.ends[1].export(region).unwrap()).unwrap();
    let again = |two: &mut Two| {
        let put = Operation::Put {
            token: Token(8),
            remote,
            local: [source.whole()].into(),
            spans: [RemoteSpan { offset: 9, len: LEN as u64 }].into(),
            level: Level::Visible,
            event: None,
        };
        two.ends[0].submit(&mut [put].into());
        let done = |event: &Event| matches!(event, Event::Done { result: Ok(Done::Put), .. });
        two.until("the put", |events| events[0].iter().any(done));
    };
    again(&mut two);
    assert!(more.to_vec()[9..LEN + 9] == bytes[..]);
    assert_eq!(in_place(&place), first);
    let endpoints = &place.status()["tenants"][1]["endpoints"];
    assert_eq!(
        endpoints[0]["registered_bytes"].as_u64(),
        Some((LEN as u64).next_multiple_of(4096))
    );
}

#[test]
fn a_broker_that_ends_is_an_error_and_its_successor_goes_on() {
    let place = Place::new();
    let serving = Serving::start(place.config(), None);
    let mut two = Two::of([place.open("tenant://x@a", "a"), place.open("tenant://x@b", "b")]);
    let peer = two.connect();
    two.message(peer, b"before");
    drop(serving);
    let lost = |events: &Vec<Event>| {
        events.iter().any(|event| match event {
            Event::PeerLost { reason: LostReason::System(why), .. } => {
                why.contains("the broker has ended")
            }
            _ => false,
        })
    };
    two.until("both are told", |events| events.iter().all(lost));
    two.events = Default::default();
    two.ends[0].forget(peer);
    let address = two.ends[1].address().clone();
    two.ends[0].resolve(&address, PATIENCE).unwrap();
    let _serving = Serving::start(place.config(), None);
    let peer = two.connect();
    two.message(peer, b"after");
}

#[test]
fn rules_change_while_it_runs() {
    let place = Place::new();
    let file = place.path("config");
    let write = |rules: &str| {
        let tenant = |name: &str| {
            format!("[[tenant]]\nname = \"{name}\"\nsocket = {:?}\n", place.path(name))
        };
        let control = place.path("control");
        let text = format!("control = {control:?}\n{}{}{rules}", tenant("a"), tenant("b"));
        std::fs::write(&file, text).unwrap();
    };
    write("[[rule]]\nverdict = \"allow\"\nfrom = \"a\"\nto = \"b\"\n");
    let config = petasos_broker::Config::read(&file).unwrap();
    let _serving = Serving::start(config, Some(&file));
    let mut two = Two::of([place.open("tenant://x@a", "a"), place.open("tenant://x@b", "b")]);
    two.connect();
    let reload = || ask(&place.path("control"), Ask::Reload).unwrap();
    write("colour = 1\n");
    assert!(reload().contains("colour"), "the old one stays");
    assert_eq!(place.status()["connections"].as_array().unwrap().len(), 2);
    write("");
    assert_eq!(reload(), r#"{"error":null}"#);
    let lost = |events: &Vec<Event>| events.iter().any(|e| matches!(e, Event::PeerLost { .. }));
    two.until("both are lost", |events| events.iter().all(lost));
}

#[test]
fn what_was_added_to_a_file_is_added_when_it_is_read_again() {
    let place = Place::new();
    let mut config = place.config();
    let mut broker = petasos_broker::Broker::open(config.clone(), None).unwrap();
    broker.read_by(move || {
        config.set_limit("a", "endpoints", 1)?;
        Ok(config.clone())
    });
    let _serving = Serving::of(broker);
    let (_one, _two) = (place.open("tenant://x@a", "a"), place.open("tenant://y@a", "a"));
    assert_eq!(ask(&place.path("control"), Ask::Reload).unwrap(), r#"{"error":null}"#);
    let error = place.try_open("tenant://z@a", "a").err().unwrap();
    assert!(error.contains("its limit"), "{error}");
}

#[test]
fn it_uses_no_processor_while_there_is_nothing_to_do() {
    let place = Place::new();
    let mut config = place.config();
    config.set_limit("a", "bytes_per_second", 1).unwrap();
    let mut broker = petasos_broker::Broker::open(config, None).unwrap();
    let stop = broker.stop();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        sender.send(rustix::thread::gettid()).unwrap();
        broker.run();
    });
    let thread_id = receiver.recv().unwrap();
    // In clock ticks: fields 14 and 15 of the thread's statistics.
    let used = || {
        let path = format!("/proc/self/task/{}/stat", thread_id.as_raw_nonzero());
        let text = std::fs::read_to_string(path).unwrap();
        let fields: Vec<&str> = text.rsplit_once(')').unwrap().1.split_whitespace().collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    };
    let mut two = Two::of([place.open("tenant://x@a", "a"), place.open("tenant://x@b", "b")]);
    let address = two.ends[1].address().clone();
    // It is throttled in the middle of the handshake, for longer than this test.
    two.ends[0].resolve(&address, PATIENCE).unwrap();
    let clock = two.clock;
    for _ in 0..200 {
        for end in &mut two.ends {
            end.progress(clock.now(), 64, &mut Vec::new());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    let before = used();
    std::thread::sleep(Duration::from_millis(400));
    let ticks = used() - before;
    assert!(ticks <= 2, "{ticks} ticks of 40");
    drop(two);
    stop.stop();
    thread.join().unwrap();
}
