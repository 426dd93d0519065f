//! How endpoints over a medium meet, and what strangers can do.

mod common;

use common::{PACKET, Queues, Raw};
use petasos_fabric::{Address, Endpoint, Event, LostReason, Peer, PeerState, Time};
use petasos_plugin::{Hello, OpenError, Packets, Prover};
use std::{sync::Arc, time::Duration};

type Queued = Packets<Queues<PACKET>>;

/// Endpoints that are driven in turn, in virtual time, and what happened at each.
struct World {
    now: Time,
    endpoints: Vec<Box<dyn Endpoint>>,
    events: Vec<Vec<Event>>,
}

impl World {
    fn of(endpoints: Vec<Box<dyn Endpoint>>) -> World {
        let events = endpoints.iter().map(|_| Vec::new()).collect();
        World { now: Time(1), endpoints, events }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now.after(time);
        while self.now < end {
            self.now = self.now.after(Duration::from_millis(1));
            for (endpoint, events) in self.endpoints.iter_mut().zip(&mut self.events) {
                endpoint.progress(self.now, 64, events);
            }
        }
    }

    fn resolve(&mut self, from: usize, to: &str) -> Peer {
        self.endpoints[from].resolve(&to.parse().unwrap(), Duration::from_secs(1)).unwrap()
    }

    fn state(&self, at: usize, peer: Peer) -> PeerState {
        self.endpoints[at].peer(peer).unwrap().state
    }
}

fn endpoint(name: &str, prover: Option<Prover>) -> Box<dyn Endpoint> {
    let address = format!("queues://{name}").parse().unwrap();
    Box::new(Queued::open(&address, prover).unwrap())
}

/// A code that is no good one, and differs for each key.
fn keyed(key: u8) -> Option<Prover> {
    Some(Arc::new(move |bytes| {
        let step = |code: u64, byte: &u8| (code ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
        let code = bytes.iter().fold(0xcbf2_9ce4 ^ u64::from(key), step);
        let mut all = [key; 32];
        all[..8].copy_from_slice(&code.to_le_bytes());
        all
    }))
}

#[test]
fn both_connect_at_once_or_one_does() {
    for both in [false, true] {
        let name = |side: &str| format!("once-{both}-{side}");
        let mut world = World::of(vec![endpoint(&name("a"), None), endpoint(&name("b"), None)]);
        let there = world.resolve(0, &format!("queues://{}", name("b")));
        if both {
            world.resolve(1, &format!("queues://{}", name("a")));
        }
        world.run(Duration::from_millis(100));
        assert_eq!(world.state(0, there), PeerState::Up);
        let [Event::PeerUp { peer: back, .. }] = world.events[1][..] else {
            panic!("{:?}", world.events[1]);
        };
        for nth in 0..100_u8 {
            world.endpoints[0].inject(there, &[&[nth]]).unwrap();
            world.endpoints[1].inject(back, &[&[nth, nth]]).unwrap();
        }
        world.run(Duration::from_millis(200));
        for (events, len) in [(&world.events[1], 1), (&world.events[0], 2)] {
            let messages = events.iter().filter_map(|event| match event {
                Event::Message { message, .. } => Some(message.to_vec()),
                _ => None,
            });
            let expected = (0..100).map(|nth| vec![nth; len]);
            assert!(messages.eq(expected), "{events:?}");
        }
    }
}

#[test]
fn secrets_are_the_same_on_both_sides() {
    for (nth, (here, there, why)) in [
        (keyed(1), keyed(1), None),
        (keyed(1), keyed(2), Some("does not prove that it has the same secret")),
        (keyed(1), None, Some("it has no secret, and this endpoint has one")),
        (None, keyed(1), Some("it has a secret, and this endpoint has none")),
    ]
    .into_iter()
    .enumerate()
    {
        let (a, b) = (format!("secret-{nth}-a"), format!("secret-{nth}-b"));
        let mut world = World::of(vec![endpoint(&a, here), endpoint(&b, there)]);
        let peer = world.resolve(0, &format!("queues://{b}"));
        world.run(Duration::from_secs(2));
        match (why, world.state(0, peer)) {
            (None, PeerState::Up) => assert_eq!(world.events[1].len(), 1),
            (Some(why), PeerState::Lost(LostReason::Unreachable(_, text))) => {
                assert!(text.contains(why), "{nth}: {text}");
                assert!(world.events[1].is_empty(), "{:?}", world.events[1]);
            }
            (_, state) => panic!("{nth}: {state:?}"),
        }
    }
}

#[test]
fn packets_have_one_length() {
    let other = "queues://length-b".parse().unwrap();
    let other = Box::new(Packets::<Queues<2048>>::open(&other, None).unwrap());
    let mut world = World::of(vec![endpoint("length-a", None), other]);
    let peer = world.resolve(0, "queues://length-b");
    world.run(Duration::from_secs(2));
    let PeerState::Lost(LostReason::Unreachable(_, why)) = world.state(0, peer) else {
        panic!("{:?}", world.state(0, peer));
    };
    assert!(why.contains("up to 2048 bytes, those of this endpoint 4096"), "{why}");
}

/// What an endpoint says of itself is believed of none that cannot be reached there.
#[test]
fn a_claim_of_another_address_stops_nobody() {
    let mut world = World::of(vec![endpoint("claim-a", None), endpoint("claim-b", None)]);
    world.run(Duration::from_millis(5));
    // It says that it is b, and answers nothing.
    let hello = hello_of("queues://claim-b");
    let claims: Vec<_> = (0..20).map(|_| Raw::to("queues://claim-a")).collect();
    for claim in &claims {
        claim.send(&hello);
        claim.send(b"petaprf1 and a number that is none");
    }
    world.run(Duration::from_millis(50));
    // Now b itself.
    let peer = world.resolve(1, "queues://claim-a");
    world.run(Duration::from_millis(200));
    assert_eq!(world.state(1, peer), PeerState::Up);
    let ups =
        |events: &[Event]| events.iter().filter(|e| matches!(e, Event::PeerUp { .. })).count();
    assert_eq!((ups(&world.events[0]), ups(&world.events[1])), (1, 1), "{:?}", world.events);
    assert!(claims.iter().all(Raw::is_ended), "they were for the same peer");
    // And while it is up.
    let late = Raw::to("queues://claim-a");
    late.send(&hello);
    world.run(Duration::from_millis(200));
    assert_eq!(world.state(1, peer), PeerState::Up);
    world.run(Duration::from_secs(11));
    assert!(late.is_ended(), "it has had its time");
    assert_eq!(world.state(1, peer), PeerState::Up);
}

/// The hello of an endpoint at this address, made by one that is gone again.
fn hello_of(address: &str) -> Vec<u8> {
    let mut bytes = b"petaplg1".to_vec();
    bytes.extend((PACKET as u32).to_le_bytes());
    bytes.extend(77_u64.to_le_bytes());
    bytes.extend([5; 16]);
    bytes.push(0);
    bytes.extend(address.bytes());
    assert!(Hello::decode(&bytes).is_some());
    bytes
}

#[test]
fn garbage_and_silence_end_their_lines_alone() {
    let mut world = World::of(vec![endpoint("garbage-a", None), endpoint("garbage-b", None)]);
    let bad = [b"GET / HTTP/1.0".to_vec(), Vec::new(), hello_of("queues://garbage-a"), {
        hello_of("tcp://127.0.0.1:1")
    }];
    let lines: Vec<_> = bad.iter().map(|_| Raw::to("queues://garbage-a")).collect();
    for (line, bytes) in lines.iter().zip(&bad) {
        line.send(bytes);
    }
    // Of a peer at which nothing listens.
    let garbage = Raw::to("queues://garbage-a");
    garbage.send(&hello_of("queues://garbage-claimed"));
    let silent: Vec<_> = (0..600).map(|_| Raw::to("queues://garbage-a")).collect();
    world.run(Duration::from_millis(200));
    assert!(lines.iter().all(Raw::is_ended));
    assert!(silent.iter().filter(|line| !line.is_ended()).count() <= 256, "a bounded number");
    let peer = world.resolve(1, "queues://garbage-a");
    world.run(Duration::from_millis(200));
    assert_eq!(world.state(1, peer), PeerState::Up);
    world.run(Duration::from_secs(11));
    assert!(silent.iter().all(Raw::is_ended) && garbage.is_ended());
    assert_eq!(world.events[0].len(), 1, "of strangers nothing is heard: {:?}", world.events[0]);
}

#[test]
fn a_peer_that_breaks_the_protocol_or_ends() {
    let mut world = World::of(vec![endpoint("end-a", None), endpoint("end-b", None)]);
    let peer = world.resolve(0, "queues://end-b");
    world.run(Duration::from_millis(50));
    let Event::PeerUp { peer: back, .. } = world.events[1][0] else { panic!() };
    world.endpoints[1].inject(back, &[b"the last"]).unwrap();
    world.endpoints[1].progress(world.now, 64, &mut Vec::new());
    world.endpoints.pop();
    world.run(Duration::from_millis(50));
    let [Event::PeerUp { .. }, Event::Message { message, .. }, Event::PeerLost { reason, .. }] =
        &world.events[0][..]
    else {
        panic!("{:?}", world.events[0]);
    };
    assert_eq!((&message[..], reason), (&b"the last"[..], &LostReason::Closed));
    assert!(matches!(world.state(0, peer), PeerState::Lost(_)));
    // Its successor at the same address.
    world.endpoints.push(endpoint("end-b", None));
    let next = world.resolve(0, "queues://end-b");
    assert_ne!(next, peer);
    world.run(Duration::from_millis(50));
    assert_eq!(world.state(0, next), PeerState::Up);
}

#[test]
fn what_is_not_opened_and_not_resolved() {
    let wrong = "tcp://x".parse().unwrap();
    let error = Queued::open(&wrong, None).err().unwrap();
    assert!(matches!(error, OpenError::Refused { .. }), "{error}");
    let error = Packets::<Queues<64>>::open(&"queues://*".parse().unwrap(), None).err().unwrap();
    assert!(matches!(error, OpenError::Broken { .. }), "{error}");
    let mut world = World::of(vec![endpoint("resolve", None)]);
    let second = Duration::from_secs(1);
    let nonsense: Address = "queues://nonsense".parse().unwrap();
    let error = world.endpoints[0].resolve(&nonsense, second).unwrap_err().to_string();
    assert!(error.contains("it is nonsense"), "{error}");
    // Nothing is there: at once, or when it was waited for.
    let silent: Address = "queues://resolve-silent".parse().unwrap();
    let peer = world.endpoints[0].resolve_running(&silent, second).unwrap();
    world.run(Duration::from_millis(5));
    let lost = PeerState::Lost(LostReason::Unreachable(Duration::ZERO, "nothing is there".into()));
    assert_eq!(world.state(0, peer), lost);
    let peer = world.resolve(0, "queues://resolve-silent");
    world.run(second / 2);
    assert_eq!(world.state(0, peer), PeerState::Connecting);
    world.run(second);
    let lost = PeerState::Lost(LostReason::Unreachable(second, "nothing is there".into()));
    assert_eq!(world.state(0, peer), lost);
}
