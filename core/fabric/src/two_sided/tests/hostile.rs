//! Peers that break the protocol: cut off, bounded, and never in memory that is not theirs.

use super::*;
use crate::two_sided::{
    EAGER_CREDITS, MAX_BODIES, MAX_REQUESTS,
    header::{Header, Status, Target},
};
use crate::{AtomicOp, AtomicType, Level, Payload, RemoteSpan, Slices, Spans};
use bytes::Bytes;
use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};

/// An engine, and a peer of whose packets we write every byte.
struct Victim {
    engine: Engine,
    peer: Peer,
    secret: Region,
    open: Region,
}

impl Victim {
    fn new() -> Victim {
        let address = Address::parse("test://victim").unwrap();
        let pool = Pool::new(16);
        let mut engine = Engine::new(address, Incarnation::random(), small_config(), pool);
        let secret = Region::from(bytes(1000, 5));
        let open = Region::zeroed(1000);
        engine.register(&secret.whole(), Access::NONE).unwrap();
        engine.register(&open.whole(), Access::ALL).unwrap();
        let mut victim = Victim { engine, peer: Peer { index: 0, generation: 0 }, secret, open };
        victim.connect();
        victim
    }

    fn connect(&mut self) {
        let address = Address::parse("test://attacker").unwrap();
        self.peer = self.engine.add_peer(&address).unwrap();
        self.engine.peer_up(self.peer, Incarnation::new(1).unwrap());
    }

    fn target(&self, index: u32) -> Target {
        let id = crate::RegionId { index, generation: 0 };
        self.engine.regions.target(id.into()).unwrap()
    }

    /// No more is promised and lent than there is.
    fn is_within_bounds(&self) -> bool {
        let promised = self.engine.peers.get(self.peer).map_or(0, |entry| entry.credit.promised());
        let pool = self.engine.pool();
        promised <= pool.lent() && pool.lent() <= 16
    }

    fn take(&mut self, header: Header, payload: &[u8]) -> Result<(), String> {
        let mut packet = header.encode(payload.len()).to_vec();
        packet.extend_from_slice(payload);
        self.engine.deliver(self.peer, &packet).map_err(|v| v.to_string())
    }

    /// Sends copies of this until the victim has enough; how many were taken.
    fn flood(&mut self, mut header: impl FnMut(u64) -> Header, payload: &[u8]) -> u32 {
        let mut events = Vec::new();
        for count in 0..100_000 {
            match self.take(header(count.into()), payload) {
                Ok(()) => {}
                Err(_) => return count,
            }
            self.engine.take_events(100, &mut events);
            events.clear();
        }
        panic!("it never ends");
    }
}

/// Data for memory of a device is buffered, no matter what length a packet says.
#[test]
fn fragments_for_a_device_are_bounded() {
    use crate::memory::DeviceMemory;
    use std::{ptr::NonNull, sync::Mutex};

    struct Simulated(Mutex<Vec<u8>>);
    impl DeviceMemory for Simulated {
        fn len(&self) -> usize {
            4 << 20
        }
        fn address(&self) -> NonNull<u8> {
            NonNull::dangling()
        }
        fn read(&self, offset: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0.lock().unwrap()[offset..][..into.len()]);
        }
        fn write(&self, offset: usize, from: &[u8]) {
            self.0.lock().unwrap()[offset..][..from.len()].copy_from_slice(from);
        }
    }

    let mut victim = Victim::new();
    let memory = Region::of_device(Box::new(Simulated(Mutex::new(vec![0; 4 << 20])))).whole();
    let region = victim.engine.register(&memory, Access::WRITE).unwrap();
    let target = victim.target(region.index);
    let put = Header::Put { id: 0, target, offset: 5, last: true, asking: false };
    victim.take(put, &vec![7; 1 << 20]).unwrap();
    assert_eq!(memory.part(4, 2).unwrap().to_vec(), [0, 7]);
    let refused = victim.take(put, &vec![9; (1 << 20) + 1]).unwrap_err();
    assert!(refused.contains("too long for memory of a device"), "{refused}");
    victim.engine.peer_lost(victim.peer, LostReason::Protocol(refused));
    assert_eq!(memory.part(4, 2).unwrap().to_vec(), [0, 7], "nothing of it has landed");
    let (token, patience) = (Token(1), std::time::Duration::ZERO);
    victim.engine.submit(Operation::Deregister { token, region, patience });
    let mut events = Vec::new();
    victim.engine.take_events(9, &mut events);
    let is_closed = |event: &Event| matches!(event, Event::Done { result: Ok(_), .. });
    assert!(events.iter().any(is_closed), "{events:?}");
}

#[test]
fn floods_are_bounded() {
    let flood = |header: &dyn Fn(&Victim, u64) -> Header, payload: &[u8]| {
        let mut victim = Victim::new();
        let headers: Vec<_> = (0..5_000).map(|i| header(&victim, i)).collect();
        victim.flood(|i| headers[i as usize % 5_000], payload)
    };
    let requests = MAX_REQUESTS;
    let get = |v: &Victim, id| Header::Get { id, target: v.target(1), offset: 0, len: 1000 };
    assert_eq!(flood(&get, &[]), requests);
    let denied = |v: &Victim, id| Header::Get { id, target: v.target(0), offset: 0, len: 1 };
    assert_eq!(flood(&denied, &[]), requests);
    assert_eq!(flood(&|_, id| Header::MessageAsking { id }, b"x"), requests);
    assert_eq!(flood(&|_, id| Header::Flush { id }, &[]), requests);
    let put = |v: &Victim, id| {
        let (target, offset) = (v.target(0), 0);
        Header::Put { id, target, offset, last: false, asking: true }
    };
    assert_eq!(flood(&put, b"x"), requests);
    let event = |v: &Victim, id| {
        let target = v.target(1);
        Header::PutEvent { id, target, offset: 0, data: 0, begin: 0, total: 1 }
    };
    assert_eq!(flood(&event, b"x"), requests);
    let atomic = |v: &Victim, id| Header::Atomic {
        id,
        target: v.target(1),
        offset: 0,
        op: AtomicOp::Sum,
        kind: AtomicType::U8,
        fetch: true,
    };
    assert_eq!(flood(&atomic, b"x"), requests);
    assert_eq!(flood(&|_, body| Header::Long { body, len: 1 }, b"h"), MAX_BODIES);
    let body = |_: &Victim, body| Header::TaggedBody { tag: 1, body, len: 1 };
    assert_eq!(flood(&body, &[]), MAX_BODIES);
    // It asks for places, and gets them.
    let eager = |_: &Victim, tag| match tag {
        0 => Header::RoomAsk,
        _ => Header::Tagged { tag },
    };
    assert_eq!(flood(&eager, &[]), 1 + u32::from(EAGER_CREDITS));
}

#[test]
fn what_cuts_a_peer_off() {
    let target = Target { slot: 0, generation: 0, secret: 0 };
    let bad = [
        (Header::Message, 257),
        (Header::Long { body: 1, len: 1 }, 129),
        (Header::Tagged { tag: 1 }, 16 * 1024 + 1),
        (Header::Credit { count: 0 }, 0),
        (Header::Credit { count: u64::MAX }, 0),
        (Header::Credit { count: 33 }, 0),
        (Header::Room { count: 0 }, 0),
        (Header::Room { count: 1009 }, 0),
        (Header::Grant { count: 0 }, 0),
        (Header::Grant { count: u64::MAX }, 0),
        (Header::Return { count: 1 }, 0),
        (Header::Ask, 1),
        (Header::RoomAsk, 1),
        (Header::Message, 113),
        (Header::MessageAsking { id: 1 }, 113),
        (Header::Long { body: 1, len: 1 }, 113),
        (Header::Tagged { tag: 1 }, 5),
        (Header::Reply { id: 3, status: Status::Good }, 0),
        (Header::Data { id: 3, offset: 0 }, 5),
        (Header::Pull { id: 1, body: 1, offset: 0, len: 1 }, 0),
        (Header::BodyDone { body: 1 }, 0),
        (Header::PutAbort { id: 1 }, 1),
        (Header::Get { id: 1, target, offset: 0, len: 0 }, 0),
        (Header::Get { id: 1, target, offset: 0, len: u64::MAX }, 0),
    ];
    for (header, len) in bad {
        let mut victim = Victim::new();
        let result = victim.take(header, &vec![0; len]);
        assert!(result.is_err(), "{header:?} was taken");
        let reason = LostReason::Protocol(result.unwrap_err());
        victim.engine.peer_lost(victim.peer, reason);
        assert!(victim.take(Header::Message, b"x").is_err(), "it is cut off");
        assert_eq!(victim.engine.pool().lent(), 0);
        assert_eq!(victim.engine.counters().violations, 2, "{header:?}");
    }
    let mut victim = Victim::new();
    assert!(victim.take(Header::Long { body: 1, len: 1 }, b"h").is_ok());
    assert!(victim.take(Header::Long { body: 1, len: 1 }, b"h").is_err());
    for short in 0..8 {
        assert!(victim.engine.deliver(victim.peer, &[1; 8][..short]).is_err());
    }
}

#[test]
fn refusals_are_answers() {
    let mut victim = Victim::new();
    let (none, all) = (victim.target(0), victim.target(1));
    let wrong = Target { secret: all.secret ^ 1, ..all };
    let atomic = |target, offset| Header::Atomic {
        id: 0,
        target,
        offset,
        op: AtomicOp::CompareSwap,
        kind: AtomicType::U64,
        fetch: true,
    };
    let put = |target, offset| Header::Put { id: 0, target, offset, last: true, asking: true };
    let event = |begin, total| {
        let (target, offset) = (all, 0);
        Header::PutEvent { id: 0, target, offset, data: 0, begin, total }
    };
    let cases = [
        (put(none, 0), 1, Status::Denied),
        (put(wrong, 0), 1, Status::Stale),
        (put(all, 1000), 1, Status::OutOfBounds),
        (put(all, u64::MAX), 2, Status::OutOfBounds),
        (event(1001, 1), 1, Status::OutOfBounds),
        (event(0, 1001), 1, Status::OutOfBounds),
        (atomic(none, 0), 16, Status::Denied),
        (atomic(all, 993), 16, Status::OutOfBounds),
        (atomic(all, 1), 16, Status::Misaligned),
        (atomic(all, 0), 15, Status::Unsupported),
        (atomic(all, 0), 0, Status::Unsupported),
    ];
    for (header, len, expected) in cases {
        assert_eq!(victim.take(header, &vec![7; len]), Ok(()));
        let packet = victim.engine.poll_transmit(victim.peer).unwrap();
        let (reply, _) = Header::decode(&packet.header).unwrap();
        assert_eq!(reply, Header::Reply { id: 0, status: expected }, "{header:?}");
        assert!(packet.payload.is_empty());
    }
    assert!(victim.open.to_vec().iter().all(|byte| *byte == 0));
    assert!(victim.secret.to_vec() == bytes(1000, 5));
}

/// Packets of honest peers that do everything, as seed of what is mutated.
fn corpus() -> Vec<Vec<u8>> {
    let mut net = Net::new(2, &small_config());
    let (_, remote) = net.share(0, 1, &Region::zeroed(1000), Access::ALL);
    let (_, back) = net.share(1, 0, &Region::zeroed(1000), Access::ALL);
    let local: Slices = smallvec![Region::zeroed(600).whole()];
    let spans: Spans = smallvec![RemoteSpan { offset: 8, len: 600 }];
    let payload = |len| Payload::Bytes(Bytes::from(vec![1; len]));
    let (token, level) = (Token(0), Level::Visible);
    for (a, remote) in [(1, remote), (0, back)] {
        let peer = net.peers[a][1 - a];
        let into = Region::zeroed(100).whole();
        let operations = [
            Operation::Send { token, peer, payload: payload(200), level },
            Operation::Send { token, peer, payload: payload(9), level: Level::Reusable },
            Operation::SendLong {
                token,
                peer,
                header: Bytes::from_static(b"h"),
                body: local[0].clone(),
            },
            Operation::SendTagged {
                token,
                peer,
                tag: 1,
                payload: payload(50),
                level: Level::Delivered,
            },
            Operation::SendTagged { token, peer, tag: 1, payload: payload(50), level },
            Operation::PostReceive { token, source: None, tag: 1, ignore: 0, into },
            Operation::Put {
                token,
                remote,
                local: local.clone(),
                spans: spans.clone(),
                level,
                event: Some(1),
            },
            Operation::Get { token, remote, local: local.clone(), spans: spans.clone() },
            Operation::Atomic {
                token,
                remote,
                offset: 0,
                op: AtomicOp::Sum,
                kind: AtomicType::U64,
                operand: SmallVec::from_slice(&[1; 8]),
                compare: SmallVec::new(),
                fetch: true,
            },
        ];
        operations.into_iter().for_each(|operation| net.engines[a].submit(operation));
    }
    let mut packets = Vec::new();
    for _ in 0..50 {
        for (a, b) in [(0, 1), (1, 0)] {
            for step in [Step::Poll, Step::Send] {
                net.step(a, b, step, 0);
            }
            packets.extend(net.lines[a][b].wire.iter().cloned());
            for step in [Step::Accept, Step::Land] {
                net.step(a, b, step, 0);
            }
        }
    }
    packets
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn mutated_packets_do_no_harm(
        choices in proptest::collection::vec((0usize..10_000, 0usize..64, any::<u64>(), 0u8..8), 1..200),
    ) {
        thread_local!(static CORPUS: Vec<Vec<u8>> = corpus());
        let mut victim = Victim::new();
        let target = victim.target(1);
        let (mut events, mut outstanding) = (Vec::new(), 0);
        for (which, at, value, how) in choices {
            let mut packet = CORPUS.with(|corpus| corpus[which % corpus.len()].clone());
            // Most packets name a region that exists, so that they get past the secret.
            if packet.len() >= 40 && how != 1 && matches!(packet[0], 8 | 9 | 11 | 16) {
                packet[16..32].copy_from_slice(&target.to_bytes());
            }
            let end = packet.len();
            match how {
                0 => packet.truncate(at.min(end)),
                2 | 3 => packet[at % end] = value as u8,
                4 => {
                    // A number of the header becomes a small or a vast one.
                    let at = 8 + at % 7 * 8;
                    if at + 8 <= end {
                        let number = if value % 2 == 0 { value } else { value >> 58 };
                        packet[at..at + 8].copy_from_slice(&number.to_le_bytes());
                    }
                }
                5 => {
                    let peer = victim.peer;
                    while victim.engine.poll_transmit(peer).is_some() {
                        victim.engine.sent(peer);
                    }
                }
                6 if outstanding < 100 => {
                    let payload = Payload::Bytes(Bytes::from(vec![2; 100]));
                    let (token, peer, level) = (Token(value), victim.peer, Level::Visible);
                    let operation = match value % 3 {
                        0 => Operation::SendTagged { token, peer, tag: 1, payload, level },
                        1 => {
                            let into = Region::zeroed(70).whole();
                            Operation::PostReceive { token, source: None, tag: 1, ignore: 0, into }
                        }
                        _ => Operation::Send { token, peer, payload, level },
                    };
                    outstanding += 1;
                    victim.engine.submit(operation);
                }
                _ => {}
            }
            if let Err(violation) = victim.engine.deliver(victim.peer, &packet) {
                let reason = LostReason::Protocol(violation.to_string());
                victim.engine.peer_lost(victim.peer, reason);
                victim.engine.forget(victim.peer);
                victim.connect();
            }
            let Some(conn) = victim.engine.peers.get_mut(victim.peer) else { unreachable!() };
            prop_assert!(conn.expected.window_and_held().1 <= EAGER_CREDITS);
            prop_assert!(conn.incoming.is_within_bounds(conn.expected.room_here()));
            prop_assert!(conn.queues.bulk.len() <= MAX_REQUESTS as usize);
            prop_assert!(victim.is_within_bounds());
            victim.engine.take_events(1000, &mut events);
            events.clear();
        }
        prop_assert!(victim.secret.to_vec() == bytes(1000, 5));
        victim.engine.forget(victim.peer);
        prop_assert_eq!(victim.engine.pool().lent(), 0);
    }
}
