//! Which route is taken to which peer, asking for a whole address, and peers that do not identify
//! themselves.

use petasos_auto::{Auto, AutoAddress, Member, Node, Scope};
use petasos_fabric::{
    Access, Address, Capabilities, Clock, Endpoint, Event, Level, LostReason, OpErrorKind,
    Operation, Payload, Peer, PeerState, Region, Sleep, Support, Time, Token,
};
use petasos_shm::Shm;
use petasos_tcp::{Config, TcpEndpoint};
use std::{
    collections::VecDeque,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);

fn address(text: &str) -> Address {
    Address::parse(text).unwrap()
}

fn shm() -> Member {
    Member { endpoint: Box::new(Shm::open(&address("shm://*")).unwrap()), scope: Scope::Node }
}

fn tcp() -> Member {
    let endpoint = TcpEndpoint::open(&address("tcp://*"), Config::default()).unwrap();
    Member { endpoint: Box::new(endpoint), scope: Scope::Network }
}

fn auto(node: Node, members: Vec<Member>) -> Auto {
    Auto::open(node, members).unwrap()
}

/// The member's address with this scheme.
fn member_address(end: &Auto, scheme: &str) -> Address {
    let Ok(AutoAddress::Whole { members, .. }) = AutoAddress::parse(end.address()) else {
        panic!("not whole")
    };
    members.into_iter().find(|member| member.scheme() == scheme).unwrap()
}

/// Drives endpoints until something is seen of their events.
fn until<const N: usize>(
    mut ends: [&mut dyn Endpoint; N],
    events: &mut [Vec<Event>; N],
    mut seen: impl FnMut(&[Vec<Event>; N]) -> bool,
) {
    let (clock, end) = (Clock::start(), Instant::now() + 2 * PATIENCE);
    while !seen(events) {
        for (endpoint, events) in ends.iter_mut().zip(events.iter_mut()) {
            endpoint.progress(clock.now(), 64, events);
        }
        assert!(Instant::now() < end, "not seen: {events:?}");
    }
}

fn up(events: &[Event]) -> Option<Peer> {
    events.iter().find_map(|event| match event {
        Event::PeerUp { peer, .. } => Some(*peer),
        _ => None,
    })
}

fn messages(events: &[Event]) -> Vec<Vec<u8>> {
    let message = |event: &Event| match event {
        Event::Message { message, .. } => Some(message.to_vec()),
        _ => None,
    };
    events.iter().filter_map(message).collect()
}

/// The schemes of the routes by which two know each other.
fn routes(a: &mut Auto, b: &mut Auto, target: &Address) -> (String, String) {
    let ab = a.resolve(target, PATIENCE).unwrap();
    let mut events = [Vec::new(), Vec::new()];
    until([a, b], &mut events, |events| events.iter().all(|events| up(events).is_some()));
    let ba = up(&events[1]).unwrap();
    let (there, back) = (a.chosen(ab).unwrap(), b.chosen(ba).unwrap());
    assert_eq!(a.peer(ab).unwrap().address, *b.address());
    assert_eq!(b.peer(ba).unwrap().address, *a.address());
    assert_eq!(a.resolve(&b.address().clone(), PATIENCE).unwrap(), ab);
    (there.address.scheme().to_owned(), back.address.scheme().to_owned())
}

#[test]
fn shared_memory_on_a_node_and_the_network_between_nodes() {
    let both = || vec![tcp(), shm()];
    let here = Node::local();
    let (near, far) = (Node::of(b"another node"), Node::of(b"and another"));
    for (of_a, of_b, expected) in [(here, here, "shm"), (here, near, "tcp"), (near, far, "tcp")] {
        let (mut a, mut b) = (auto(of_a, both()), auto(of_b, both()));
        let target = b.address().clone();
        let (there, back) = routes(&mut a, &mut b, &target);
        assert_eq!((&*there, &*back), (expected, expected));
    }
    let (mut a, mut b) = (auto(here, both()), auto(here, vec![tcp()]));
    let target = b.address().clone();
    assert_eq!(routes(&mut a, &mut b, &target), ("tcp".into(), "tcp".into()));
    let (mut a, b) = (auto(near, vec![shm()]), auto(far, vec![shm()]));
    let refused = a.resolve(b.address(), PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("no route"), "{refused}");
}

/// What can be done with a peer is what its route can; what holds for all is the least of them.
#[test]
fn capabilities_follow_the_route() {
    let both = || vec![tcp(), shm()];
    let alone = [shm(), tcp()].map(|member| member.endpoint.capabilities().clone());
    for (of_b, route) in [(Node::local(), 0), (Node::of(b"another node"), 1)] {
        let (mut a, mut b) = (auto(Node::local(), both()), auto(of_b, both()));
        let target = b.address().clone();
        let ab = a.resolve(&target, PATIENCE).unwrap();
        let scheme = ["shm", "tcp"][route];
        assert_eq!(routes(&mut a, &mut b, &target).0, scheme);
        let (told, expected) = (a.capabilities_of(ab).unwrap(), &alone[route]);
        assert_eq!(seen(told), seen(expected), "{scheme}");
        let common = a.capabilities();
        assert_eq!(told.limits.max_inject, common.limits.max_inject);
        assert_eq!((told.scheme, told.tagged), ("auto", Support::Emulated));
        let found: Vec<_> = a.routes().map(|(scheme, can)| (scheme, seen(can))).collect();
        assert_eq!(found, [("shm", seen(&alone[0])), ("tcp", seen(&alone[1]))]);
        assert_eq!((common.remote_access, common.map), (Support::Emulated, Support::None));
        a.forget(ab);
        assert!(a.capabilities_of(ab).is_none());
    }
    // Memory of the transport can be mapped, whatever the kernel allows between processes.
    assert_eq!((alone[0].map, alone[1].map), (Support::Native, Support::None));
}

/// What differs from route to route.
fn seen(can: &Capabilities) -> impl PartialEq + std::fmt::Debug + use<> {
    let support = [can.remote_access, can.atomics, can.put_with_event, can.map];
    let flags = [can.passive_target, can.ordered_access, can.processor_atomics];
    let transfer = (can.limits.max_transfer, can.limits.max_pieces);
    (support, flags, can.native_event_from, can.enforcement, can.credential, transfer)
}

/// `auto://HOST:PORT` is enough: the peer there sends the rest, and operations that were submitted
/// before take the route that is chosen then, in order.
#[test]
fn a_short_address_is_asked_for_the_whole() {
    for (of_b, expected) in [(Node::local(), "shm"), (Node::of(b"another node"), "tcp")] {
        let mut a = auto(Node::local(), vec![shm(), tcp()]);
        let mut b = auto(of_b, vec![shm(), tcp()]);
        let short = address(&format!("auto://{}", member_address(&b, "tcp").rest()));
        let ab = a.resolve(&short, PATIENCE).unwrap();
        assert_eq!(a.resolve(&short, PATIENCE).unwrap(), ab);
        assert!(a.chosen(ab).is_none());
        // Not known before the peer has said where it is.
        assert_eq!(a.capabilities_of(ab).unwrap().map, Support::None);
        assert!(a.inject(ab, &[b"too early"]).is_err());
        let send = |i: u8| {
            let payload = Payload::Bytes(vec![i; 300].into());
            let token = Token(u64::from(i));
            Operation::Send { token, peer: ab, payload, level: Level::Delivered }
        };
        a.submit(&mut (0..50).map(send).collect::<VecDeque<_>>());
        let mut events = [Vec::new(), Vec::new()];
        until([&mut a, &mut b], &mut events, |events| messages(&events[1]).len() == 50);
        let expected_messages: Vec<_> = (0..50u8).map(|i| vec![i; 300]).collect();
        assert_eq!(messages(&events[1]), expected_messages);
        until([&mut a, &mut b], &mut events, |events| {
            events[0].iter().filter(|e| matches!(e, Event::Done { result: Ok(_), .. })).count()
                == 50
        });
        let room = |event: &Event| matches!(event, Event::Writable { peer } if *peer == ab);
        assert_eq!(events[0].iter().filter(|event| room(event)).count(), 1);
        assert_eq!(a.chosen(ab).unwrap().address.scheme(), expected);
        assert_eq!(a.capabilities_of(ab).unwrap().map == Support::Native, expected == "shm");
        assert_eq!(a.peer(ab).unwrap().address, *b.address());
        for same in [short, b.address().clone()] {
            assert_eq!(a.resolve(&same, PATIENCE).unwrap(), ab);
        }
        let ups = events.iter().flatten().filter(|e| matches!(e, Event::PeerUp { .. })).count();
        assert_eq!(ups, 2);
        a.forget(ab);
        let lost = |events: &[Vec<Event>; 2]| {
            events[1].iter().any(|event| matches!(event, Event::PeerLost { .. }))
        };
        until([&mut a, &mut b], &mut events, lost);
    }
}

#[test]
fn no_peer_at_a_short_address() {
    let mut a = auto(Node::local(), vec![shm(), tcp()]);
    let ab = a.resolve(&address("auto://127.0.0.1:1"), Duration::from_millis(100)).unwrap();
    let payload = Payload::Bytes(b"hello?".as_slice().into());
    let send = Operation::Send { token: Token(1), peer: ab, payload, level: Level::Reusable };
    a.submit(&mut VecDeque::from([send]));
    let mut events = [Vec::new()];
    until([&mut a], &mut events, |[events]| {
        events.iter().any(|event| matches!(event, Event::PeerLost { .. }))
    });
    let failed = |event: &Event| matches!(event, Event::Done { token: Token(1), result: Err(_) });
    assert!(events[0].iter().any(failed), "{events:?}");
    assert!(matches!(a.peer(ab).unwrap().state, PeerState::Lost(LostReason::Unreachable(..))));
}

/// A peer that sends to a member without a handshake message is cut off, and reported to no one; so
/// is one whose handshake message has addresses that are not its own.
#[test]
fn unidentified_peers_are_cut_off() {
    let mut b = auto(Node::local(), vec![shm(), tcp()]);
    let target = member_address(&b, "tcp");
    let lie = {
        let mut liar = auto(Node::of(b"liar"), vec![tcp()]);
        let mut witness = TcpEndpoint::open(&address("tcp://*"), Config::default()).unwrap();
        let short = address(&format!("auto://{}", witness.address().rest()));
        let whole = address(&format!("auto://{}/{}", Node::of(b"x"), witness.address()));
        liar.resolve(&whole, PATIENCE).unwrap();
        let mut events = [Vec::new(), Vec::new()];
        until([&mut liar, &mut witness], &mut events, |e| !messages(&e[1]).is_empty());
        drop(short);
        messages(&events[1])[0].clone()
    };
    for words in [&b""[..], b"hello", &[0; 300], &lie] {
        let mut sender = TcpEndpoint::open(&address("tcp://*"), Config::default()).unwrap();
        let to = sender.resolve(&target, PATIENCE).unwrap();
        sender.inject(to, &[words]).unwrap();
        let mut events = [Vec::new(), Vec::new()];
        until([&mut sender, &mut b], &mut events, |events| {
            events[0].iter().any(|event| matches!(event, Event::PeerLost { .. }))
        });
        assert!(events[1].is_empty(), "{:?}", events[1]);
        assert!(messages(&events[0]).is_empty(), "it was told our address");
    }
    let mut a = auto(Node::local(), vec![shm(), tcp()]);
    let target = b.address().clone();
    assert_eq!(routes(&mut a, &mut b, &target).0, "shm");
}

/// A peer with another address than the one that was resolved is lost.
#[test]
fn another_peer_than_the_one_resolved() {
    let mut a = auto(Node::local(), vec![tcp()]);
    let mut b = auto(Node::local(), vec![shm(), tcp()]);
    let whole = address(&format!("auto://{}/{}", Node::local(), member_address(&b, "tcp")));
    a.resolve(&whole, PATIENCE).unwrap();
    let mut events = [Vec::new(), Vec::new()];
    until([&mut a, &mut b], &mut events, |events| {
        events[0]
            .iter()
            .any(|event| matches!(event, Event::PeerLost { reason: LostReason::Protocol(_), .. }))
    });
    assert!(up(&events[0]).is_none());
}

/// Sleeps end by what comes over either transport.
#[test]
fn woken_by_either() {
    let mut b = auto(Node::local(), vec![shm(), tcp()]);
    let target = b.address().clone();
    for node in [Node::local(), Node::of(b"another node")] {
        let mut a = auto(node, vec![shm(), tcp()]);
        let ab = a.resolve(&target, PATIENCE).unwrap();
        let mut events = [Vec::new(), Vec::new()];
        until([&mut a, &mut b], &mut events, |events| events.iter().all(|e| up(e).is_some()));
        let clock = Clock::start();
        for round in 0..20 {
            while b.arm(clock.now()) == Sleep::Busy {
                b.progress(clock.now(), 64, &mut events[1]);
            }
            let before = messages(&events[1]).len();
            while a.inject(ab, &[b"wake up"]).is_err() {
                a.progress(clock.now(), 64, &mut events[0]);
            }
            a.progress(clock.now(), 64, &mut events[0]);
            let end = Instant::now() + PATIENCE;
            while messages(&events[1]).len() == before {
                assert!(Instant::now() < end, "slept over message {round} of {node}");
                if let Sleep::Until(time) = b.arm(clock.now()) {
                    wait(b.fd().unwrap(), time.since(clock.now()).min(PATIENCE));
                }
                b.progress(clock.now(), 64, &mut events[1]);
            }
        }
    }
    let _ = Time::NEVER;
}

/// Until a descriptor is readable.
fn wait(fd: std::os::fd::BorrowedFd<'_>, longest: Duration) {
    let mut list = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
    let longest = longest.try_into().unwrap();
    rustix::event::poll(&mut list, Some(&longest)).unwrap();
}

/// Memory that is still reached over one member is kept, and the other members are not asked again.
#[test]
fn memory_that_one_member_still_reaches_is_closed_later() {
    let (near, by_near) =
        petasos_conformance::reached::Reached::new(Shm::open(&address("shm://*")).unwrap(), 2);
    let far = TcpEndpoint::open(&address("tcp://*"), Config::default()).unwrap();
    let (far, by_far) = petasos_conformance::reached::Reached::new(far, 0);
    let members = vec![
        Member { endpoint: Box::new(near), scope: Scope::Node },
        Member { endpoint: Box::new(far), scope: Scope::Network },
    ];
    let mut end = auto(Node::local(), members);
    let memory = Region::zeroed(4096);
    let region = end.register(&memory.whole(), Access::ALL).unwrap();
    let mut close = |number| {
        let (token, patience) = (Token(number), Duration::ZERO);
        end.submit(&mut [Operation::Deregister { token, region, patience }].into());
        let mut events = [Vec::new()];
        let done = |event: &Event| matches!(event, Event::Done { .. });
        until([&mut end], &mut events, |events| events[0].iter().any(done));
        let [mut events] = events;
        assert!(end.export(region).is_err(), "it is closed to new access");
        match events.swap_remove(events.iter().position(done).unwrap()) {
            Event::Done { token, result } if token == Token(number) => result.map(drop),
            other => panic!("{other:?}"),
        }
    };
    for number in 1..=2 {
        assert_eq!(close(number).unwrap_err().kind, OpErrorKind::StillReached);
    }
    close(3).unwrap();
    assert_eq!(close(4).unwrap_err().kind, OpErrorKind::UnknownRegion);
    let asked = [by_near, by_far].map(|member| member.asked.load(Ordering::SeqCst));
    assert_eq!(asked, [3, 1]);
    drop(end);
    assert!(memory.into_exclusive().is_ok(), "it is still held");
}
