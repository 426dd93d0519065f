//! Hostile peers: what they do stays between them and us.

use crate::{
    Config, Shm,
    control::{ControlMessage, Greeting},
    pair::Sizes,
    socket,
    table::Table,
};
use petasos_fabric::{
    Access, Address, Clock, Done, Endpoint, Event, Incarnation, InjectError, Lease, Level,
    LostReason, OpErrorKind, Operation, Payload, Peer, Region, RemoteSpan, Sleep, Time, Token,
    memory::memfd,
};
use proptest::{prelude::*, strategy::ValueTree, test_runner::TestRunner};
use rustix::fd::AsFd;
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(5);
/// Before another pass where nothing happened in the last one.
const PAUSE: Duration = Duration::from_micros(20);
/// Longer than whatever waited for peers when an endpoint ends.
const LONG: Duration = Duration::from_millis(1200);

struct End {
    shm: Shm,
    clock: Clock,
    events: Vec<Event>,
}

impl End {
    fn open(config: Config) -> End {
        let any: Address = "shm://*".parse().unwrap();
        let shm = Shm::open_with(&any, config).unwrap();
        End { shm, clock: Clock::start(), events: Vec::new() }
    }

    fn new() -> End {
        End::open(Config::default())
    }

    fn address(&self) -> Address {
        self.shm.address().clone()
    }

    fn pass(&mut self) -> bool {
        self.shm.progress(self.clock.now(), 64, &mut self.events)
    }

    fn up(&self) -> Option<Peer> {
        self.events.iter().find_map(|event| match event {
            Event::PeerUp { peer, .. } => Some(*peer),
            _ => None,
        })
    }

    fn lost(&self, of: Peer) -> Option<LostReason> {
        self.events.iter().find_map(|event| match event {
            Event::PeerLost { peer, reason } if *peer == of => Some(reason.clone()),
            _ => None,
        })
    }

    fn messages(&self) -> usize {
        self.events.iter().filter(|e| matches!(e, Event::Message { .. })).count()
    }
}

fn until(what: &str, ends: &mut [&mut End], done: impl Fn(&[&mut End]) -> bool) {
    let begin = Instant::now();
    while !done(ends) {
        assert!(begin.elapsed() < PATIENCE, "not in time: {what}");
        let worked = ends.iter_mut().map(|end| end.pass()).filter(|worked| *worked).count();
        if worked == 0 {
            std::thread::sleep(PAUSE);
        }
    }
}

fn join(a: &mut End, b: &mut End) -> (Peer, Peer) {
    let ab = a.shm.resolve(&b.address(), PATIENCE).unwrap();
    until("both up", &mut [a, b], |ends| ends.iter().all(|end| end.up().is_some()));
    let ba = b.up().unwrap();
    a.events.clear();
    b.events.clear();
    (ab, ba)
}

/// Random words all over what two share, while a third goes on: at most the one pair is lost.
#[test]
fn scribbling_harms_no_other_peer() {
    let (mut server, mut good) = (End::new(), End::new());
    let (to_server, _) = join(&mut good, &mut server);
    let mut runner = TestRunner::new(ProptestConfig::default());
    let mut violations = 0;
    for round in 0..60u64 {
        let mut bad = End::new();
        let (bad_to_server, bad_at_server) = join(&mut bad, &mut server);
        let words = proptest::collection::vec((any::<u64>(), 0..20_000usize, 0..6u8), 400);
        let words = words.new_tree(&mut runner).unwrap().current();
        for (i, (word, at, style)) in words.into_iter().enumerate() {
            let channel = bad.shm.channel(bad_to_server.index).unwrap();
            let (at, word) = match style {
                // The words beside the rings; headers of the first cells, likely and unlikely.
                0 => (at % 64, word),
                1 => (512 + at % 64 * 8, 1 << 32 | word & 0xFFFF_FFFF),
                2 => (512 + at % 64 * 8, 1 << 32 | (1 + word % 6) << 24 | word & 0x3FF),
                3 => (512, 1 << 32 | (1 + word % 6) << 24 | word >> 3 & 0xFF),
                _ => (at, word),
            };
            channel.pair.scribble(at, word);
            if i % 8 == 0 {
                server.pass();
                good.shm.inject(to_server, &[&[round as u8; 40]]).unwrap();
                let before = server.messages();
                until("the good one is heard", &mut [&mut server, &mut good], |ends| {
                    ends[0].messages() > before
                });
            }
        }
        drop(bad);
        until("the bad one is gone", &mut [&mut server], |ends| {
            ends[0].lost(bad_at_server).is_some()
        });
        let reason = server.lost(bad_at_server);
        violations += u32::from(matches!(reason, Some(LostReason::Protocol(_))));
        server.events.clear();
        assert_eq!(server.shm.counters().peers, 1);
    }
    assert!(violations > 20, "scribbling is noticed: {violations}");
    assert_eq!(u64::from(violations), server.shm.counters().violations);
}

/// A live listener fed with garbage, cut greetings, and greetings with files that are not right.
#[test]
fn garbage_at_the_listener() {
    let config = Config { handshake: Duration::from_millis(300), ..Config::default() };
    let mut server = End::open(config);
    let name = crate::name::Name::parse(server.address().rest()).unwrap();
    let uid = server.shm.uid;
    let greeting = Greeting {
        address: "shm://peer".parse().unwrap(),
        incarnation: Incarnation::random(),
        sizes: Config::default().sizes(),
        probe: 8,
    };
    let hello = |greeting: &Greeting| ControlMessage::Hello(greeting.clone()).encode();
    let (table, _table) = Table::create().unwrap();
    let sealed = |len| {
        let (fd, _) = memfd::create("hostile", len).unwrap();
        memfd::seal(&fd).unwrap();
        fd
    };
    let (loose, _) = memfd::create("hostile", 4096 + (256 << 10)).unwrap();
    let right = sealed(4096 + (256 << 10));
    let (short, doorbell) = (sealed(4096), petasos_fabric::EventFd::new().unwrap());
    let files = [
        vec![],
        vec![table.as_fd()],
        vec![table.as_fd(), loose.as_fd(), doorbell.as_fd()],
        vec![table.as_fd(), short.as_fd(), doorbell.as_fd()],
        vec![right.as_fd(), right.as_fd(), doorbell.as_fd()],
        vec![doorbell.as_fd(), doorbell.as_fd(), doorbell.as_fd()],
    ];
    let answer = |server: &mut End, bytes: &[u8], fds: &[rustix::fd::BorrowedFd<'_>]| {
        let socket = socket::dial(&name, uid).unwrap();
        socket::send(&socket, bytes, fds).unwrap();
        for _ in 0..10_000 {
            server.pass();
            if let Ok(socket::Received { bytes, .. }) = socket::receive(&socket) {
                return ControlMessage::decode(&bytes);
            }
        }
        panic!("no answer");
    };
    for fds in &files {
        let note = answer(&mut server, &hello(&greeting), fds);
        assert!(
            matches!(note, Ok(ControlMessage::Refused { again: false, .. })),
            "{note:?} {}",
            fds.len()
        );
    }
    let fds = [table.as_fd(), right.as_fd(), doorbell.as_fd()];
    let good = greeting.sizes;
    let sizes = [
        Sizes { ring: 0, ..good },
        Sizes { ring: 1 << 30, ..good },
        Sizes { ring: 3000, ..good },
        Sizes { max: 17, ..good },
        Sizes { long: 1 << 20, ..good },
        Sizes { long: 0, ..good },
    ];
    for sizes in sizes {
        let greeting = Greeting { sizes, ..greeting.clone() };
        let note = answer(&mut server, &hello(&greeting), &fds);
        assert!(matches!(note, Ok(ControlMessage::Refused { .. })), "{note:?}");
    }
    let impostor = Greeting { address: server.address(), ..greeting.clone() };
    assert!(matches!(
        answer(&mut server, &hello(&impostor), &fds),
        Ok(ControlMessage::Refused { .. })
    ));
    let mut runner = TestRunner::new(ProptestConfig::default());
    for _ in 0..300 {
        let noise = (proptest::collection::vec(any::<u8>(), 1..300), 0..240usize, any::<u8>());
        let (noise, at, byte) = noise.new_tree(&mut runner).unwrap().current();
        assert!(answer(&mut server, &noise, &[]).is_ok());
        let mut bytes = hello(&greeting);
        bytes[at] = byte;
        let _ = answer(&mut server, &bytes, &fds[..2]);
    }
    assert_eq!(server.shm.counters().peers, 0);
    // Silent connections are closed in time, and do not keep others out.
    let silent: Vec<_> = (0..300).map(|_| socket::dial(&name, uid).unwrap()).collect();
    let mut good = End::new();
    join(&mut good, &mut server);
    until("the silent ones are cut", &mut [&mut server], |ends| {
        ends[0].shm.arrivals.is_empty() && !ends[0].shm.arrivals.has_backlog()
    });
    drop(silent);
}

/// Processes that connect and say nothing have all places, for as long as they like.
#[test]
fn silent_connections_keep_no_peer_out() {
    let hour = Duration::from_secs(3600);
    let mut server = End::open(Config { handshake: hour, max_handshakes: 8, ..Config::default() });
    let name = crate::name::Name::parse(&server.address().to_string()["shm://".len()..]).unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let silent: Vec<_> = (0..40).map(|_| socket::dial(&name, uid).unwrap()).collect();
    for _ in 0..5 {
        join(&mut End::new(), &mut server);
    }
    drop(silent);
}

/// What the owner's table says of a region's length may not be what its key says: what is mapped is
/// what the key says, or nothing.
#[test]
fn what_is_mapped_is_as_long_as_its_key_says() {
    let (mut owner, mut guest) = (End::new(), End::new());
    join(&mut guest, &mut owner);
    let memory = owner.shm.alloc(8192).unwrap();
    let region = owner.shm.register(&memory.whole(), Access::READ).unwrap();
    let key = owner.shm.export(region).unwrap();
    let remote = guest.shm.import(&key).unwrap();
    let (slot, tag) = (region.index, owner.shm.exports.tag(region).unwrap());
    let segment = memory.backing::<crate::segment::Segment>().unwrap();
    let (id, segment_len) = (segment.id, segment.len() as u64);
    let entry = |len| crate::table::Entry {
        base: 0,
        len,
        access: Access::READ,
        segment: id,
        offset: 0,
        segment_len,
    };
    for (len, maps) in [(8192, true), (100, false), (8191, false), (8192, true)] {
        owner.shm.exports.table().open(slot, tag, &entry(len));
        guest.events.clear();
        let mut queue = VecDeque::from([Operation::Map { token: Token(7), remote }]);
        guest.shm.submit(&mut queue);
        let done = |end: &End| end.events.iter().any(|e| matches!(e, Event::Done { .. }));
        until("it is mapped or not", &mut [&mut guest, &mut owner], |ends| done(ends[0]));
        let found = guest.events.drain(..).find_map(|event| match event {
            Event::Done { result, .. } => Some(result),
            _ => None,
        });
        match found.unwrap() {
            Ok(Done::Mapped(mapped)) => assert_eq!((mapped.len(), maps), (8192, true)),
            other => assert!(!maps && other.is_err(), "{len}: {other:?}"),
        }
    }
    assert_eq!(guest.shm.counters().violations, 0, "a key may be wrong, and the owner right");
}

/// How a deregistration ended, if it did.
fn closed(end: &mut End, token: u64) -> Option<Result<Done, petasos_fabric::OpError>> {
    let is = |e: &Event| matches!(e, Event::Done { token: of, .. } if of.0 == token);
    let at = end.events.iter().position(is)?;
    match end.events.remove(at) {
        Event::Done { result, .. } => Some(result),
        _ => None,
    }
}

fn close(end: &mut End, token: u64, region: petasos_fabric::RegionId, patience: Duration) {
    let close = Operation::Deregister { token: Token(token), region, patience };
    end.shm.submit(&mut VecDeque::from([close]));
}

/// A peer that does not leave a region is waited for as long as was asked for, again and again; and
/// also when its connection is given up meanwhile.
#[test]
fn a_region_is_not_closed_under_a_peer() {
    for given_up in [false, true] {
        let (mut owner, mut guest) = (End::new(), End::new());
        let (to_owner, at_owner) = join(&mut guest, &mut owner);
        let memory = Region::zeroed(4096);
        let region = owner.shm.register(&memory.whole(), Access::ALL).unwrap();
        let key = owner.shm.export(region).unwrap();
        let tag = owner.shm.exports.tag(region).unwrap();
        let address = guest.address();
        guest.shm.channel(to_owner.index).unwrap().pair.announce(tag);
        if given_up {
            owner.shm.violated(at_owner.index, "for the test".to_owned());
        }
        for (token, patience) in [(1, 0), (2, 50), (3, 0)] {
            close(&mut owner, token, region, Duration::from_millis(patience));
            assert!(owner.shm.export(region).is_err());
            let mut result = None;
            let begin = Instant::now();
            while result.is_none() && begin.elapsed() < PATIENCE {
                owner.pass();
                result = closed(&mut owner, token);
            }
            assert!(begin.elapsed() >= Duration::from_millis(patience));
            let error = result.expect("it ends").unwrap_err();
            assert_eq!(error.kind, OpErrorKind::StillReached);
            assert_eq!(error.peer.as_ref(), Some(&address));
        }
        // Kept, whatever else drops it; and no other access begins.
        let region_of = memory.downgrade();
        let memory = memory.into_exclusive().unwrap_err();
        drop(memory);
        assert!(region_of.upgrade().is_some());
        if !given_up {
            let remote = guest.shm.import(&key).unwrap();
            let (local, spans) =
                (smallvec![Region::zeroed(8).whole()], smallvec![RemoteSpan { offset: 0, len: 8 }]);
            let get = Operation::Get { token: Token(9), remote, local, spans };
            guest.shm.submit(&mut VecDeque::from([get]));
            until("the get fails", &mut [&mut guest, &mut owner], |ends| {
                !ends[0].events.is_empty()
            });
            assert_eq!(closed(&mut guest, 9).unwrap().unwrap_err().kind, OpErrorKind::StaleKey);
            guest.shm.channel(to_owner.index).unwrap().pair.announce(tag);
        }
        close(&mut owner, 4, region, PATIENCE);
        owner.pass();
        assert!(closed(&mut owner, 4).is_none());
        // While one waits there is no other.
        close(&mut owner, 5, region, PATIENCE);
        owner.pass();
        assert_eq!(closed(&mut owner, 5).unwrap().unwrap_err().kind, OpErrorKind::UnknownRegion);
        guest.shm.channel(to_owner.index).unwrap().pair.withdraw();
        until("it is closed", &mut [&mut owner], |ends| {
            ends[0].events.iter().any(|e| matches!(e, Event::Done { .. }))
        });
        assert!(closed(&mut owner, 4).unwrap().is_ok());
        assert!(region_of.upgrade().is_none(), "the memory is free");
        assert!(!owner.shm.closing.keeps_pairs());
    }
}

/// An endpoint that ends waits for no peer. Memory in which a peer is outlives it, and is let go
/// when the peer has left it, or closed its end.
#[test]
fn memory_outlives_its_endpoint_while_a_peer_is_in_it() {
    for leaves in [true, false] {
        let (mut owner, mut guest) = (End::new(), End::new());
        let (to_owner, _) = join(&mut guest, &mut owner);
        let (reached, other) = (Region::zeroed(4096), Region::zeroed(4096));
        let region = owner.shm.register(&reached.whole(), Access::ALL).unwrap();
        owner.shm.register(&other.whole(), Access::ALL).unwrap();
        let tag = owner.shm.exports.tag(region).unwrap();
        guest.shm.channel(to_owner.index).unwrap().pair.announce(tag);
        let weak = [reached.downgrade(), other.downgrade()];
        drop((reached, other));
        drop(owner);
        assert!(weak[1].upgrade().is_none(), "no peer is in that");
        std::thread::sleep(LONG);
        assert!(weak[0].upgrade().is_some(), "a peer is still in that");
        if leaves {
            guest.shm.channel(to_owner.index).unwrap().pair.withdraw();
        } else {
            drop(guest);
        }
        let begin = Instant::now();
        while weak[0].upgrade().is_some() {
            assert!(begin.elapsed() < PATIENCE, "it is not let go");
            std::thread::yield_now();
        }
    }
}

/// Every length up to more than two cells, in one part and in some, taken by itself or as an event.
#[test]
fn every_length_arrives_either_way() {
    let (mut sender, mut receiver) = (End::new(), End::new());
    let (to, from) = join(&mut sender, &mut receiver);
    let bytes: Vec<u8> = (0..130).collect();
    for round in 0..4 {
        for len in 0..bytes.len() {
            let bytes = &bytes[..len];
            let (a, b) = bytes.split_at(len / 3);
            let parts: &[&[u8]] = if round % 2 == 0 { &[bytes] } else { &[a, &[], b] };
            sender.shm.inject(to, parts).unwrap();
            let (mut message, mut came) = (Lease::inline(b"before"), None);
            let begin = Instant::now();
            while came.is_none() && receiver.messages() == 0 {
                assert!(begin.elapsed() < PATIENCE, "{len} bytes did not come");
                if round < 2 {
                    came = receiver.shm.poll_message(&mut message);
                }
                if came.is_none() {
                    receiver.pass();
                    sender.pass();
                }
            }
            let came = came.map(|peer| (peer, message)).or_else(|| match receiver.events.pop() {
                Some(Event::Message { peer, message }) => Some((peer, message)),
                _ => None,
            });
            let (peer, message) = came.expect("nothing else happens");
            assert_eq!((peer, &message[..]), (from, bytes));
        }
    }
    // And one packet that asked for credit.
    assert_eq!(receiver.shm.counters().received, 4 * 130 + 1);
}

/// Messages of one part and of many, from every place of the ring, taken by themselves or as
/// events; and when there is no room for all of a message, none of it is sent.
#[test]
fn long_messages_arrive_whole() {
    let (mut sender, mut receiver) = (End::new(), End::new());
    let (to, from) = join(&mut sender, &mut receiver);
    let longest = sender.shm.capabilities().limits.max_message;
    let bytes: Vec<u8> = (0..longest).map(|i| (i * 7 + i / 251) as u8).collect();
    let part = crate::ring::part(2048);
    for round in 0..60usize {
        for len in [part, part + 1, 2 * part - 1, 2 * part, longest - 1, longest, round * 999] {
            let expected = &bytes[longest - len..];
            sender.shm.inject(to, &[expected]).unwrap();
            let (mut message, mut came) = (Lease::default(), None);
            let begin = Instant::now();
            while came.is_none() && receiver.messages() == 0 {
                assert!(begin.elapsed() < PATIENCE, "{len} bytes did not come");
                if round.is_multiple_of(2) {
                    came = receiver.shm.poll_message(&mut message);
                }
                if came.is_none() {
                    receiver.pass();
                    sender.pass();
                }
            }
            if let Some(Event::Message { peer, message: arrived }) = receiver.events.pop() {
                (message, came) = (arrived, Some(peer));
            }
            assert_eq!((came, message.len()), (Some(from), len));
            assert!(message[..] == *expected, "{len} bytes came otherwise");
        }
    }
    // As many as there is room for in the ring, and some in the engine: each whole, or not sent.
    let mut sent = 0;
    while sender.shm.inject(to, &[&bytes]).is_ok() {
        sent += 1;
    }
    assert!(sent >= 2, "only {sent}");
    until("all have come", &mut [&mut sender, &mut receiver], |ends| ends[1].messages() == sent);
    for event in receiver.events.drain(..) {
        assert!(matches!(event, Event::Message { message, .. } if message[..] == bytes[..]));
    }
    assert_eq!(receiver.shm.counters().leases, 0);
}

/// A peer that dies between two parts of a message is lost, and nothing is left of the message.
#[test]
fn half_a_message() {
    let (mut bad, mut victim) = (End::new(), End::new());
    let (to, from) = join(&mut bad, &mut victim);
    // It has credit for more than one.
    bad.shm.inject(to, &[&[1; 1000]]).unwrap();
    until("the first has come", &mut [&mut bad, &mut victim], |ends| ends[1].messages() == 1);
    victim.events.clear();
    let channel = bad.shm.channel(to.index).unwrap();
    assert!(channel.pair.forge_announcement(crate::channel::kind::MESSAGE, 20_000).unwrap());
    for _ in 0..100 {
        victim.pass();
    }
    assert_eq!((victim.messages(), victim.shm.counters().leases), (0, 1));
    drop(bad);
    until("it is lost", &mut [&mut victim], |ends| ends[0].lost(from).is_some());
    assert_eq!((victim.messages(), victim.shm.counters().leases), (0, 0));
}

/// What long messages needed goes back to the system once there were none for a while, also when
/// both sides sleep.
#[test]
fn memory_of_long_messages_is_given_back() {
    let (mut sender, mut receiver) = (End::new(), End::new());
    let (to, _) = join(&mut sender, &mut receiver);
    for round in 1..4 {
        sender.shm.inject(to, &[&[round; 300_000]]).unwrap();
        until("it has come", &mut [&mut sender, &mut receiver], |ends| ends[1].messages() == 1);
        receiver.events.clear();
        let resident = |end: &End| {
            let channel = end.shm.channels.get(to.index);
            channel.expect("a channel").pair.resident()
        };
        assert!(resident(&sender) > 300_000);
        let begin = Instant::now();
        let time = loop {
            if let Sleep::Until(time) = sender.shm.arm(sender.clock.now()) {
                break time;
            }
            assert!(begin.elapsed() < PATIENCE, "there is always something to do");
            sender.pass();
            receiver.pass();
        };
        assert!(time < sender.clock.now().after(Duration::from_secs(3)), "it looks again");
        until("memory is given back", &mut [&mut sender], |ends| resident(ends[0]) < 200_000);
    }
    assert_eq!(sender.shm.arm(sender.clock.now()), Sleep::Until(Time::NEVER));
}

/// A short message that would run over the end of the ring, and one that is too long for its kind.
#[test]
fn short_messages_that_cannot_be() {
    for (before, len) in [(2047u64, 57), (3, 113), (2047, 112)] {
        let (mut bad, mut victim) = (End::new(), End::new());
        let (to, from) = join(&mut bad, &mut victim);
        for n in 0..before as usize {
            bad.shm.inject(to, &[&[0]]).unwrap();
            if n % 100 == 0 || n + 1 == before as usize {
                until("all came", &mut [&mut victim], |ends| ends[0].messages() == n + 1);
            }
        }
        let channel = bad.shm.channel(to.index).unwrap();
        let word = 1 << 32 | u64::from(crate::channel::kind::SHORT) << 24 | len;
        channel.pair.scribble(512 + before as usize * 8, word);
        assert_eq!(victim.shm.poll_message(&mut Lease::default()), None);
        until("it is cut off", &mut [&mut victim], |ends| ends[0].lost(from).is_some());
        assert!(matches!(victim.lost(from), Some(LostReason::Protocol(_))));
        assert_eq!(victim.messages(), before as usize);
    }
}

/// A receiver that reports what was never sent: messages that wait to be taken fail with it, once
/// each.
#[test]
fn a_report_that_cannot_be_ends_what_waits_for_it() {
    let (mut a, mut bad) = (End::new(), End::new());
    let (to, from) = join(&mut a, &mut bad);
    let send = |token| Operation::Send {
        token: Token(token),
        peer: to,
        payload: Payload::Bytes("8 bytes.".into()),
        level: Level::Delivered,
    };
    a.shm.submit(&mut VecDeque::from([send(1), send(2)]));
    let channel = bad.shm.channel(from.index).unwrap();
    // The cells that it has consumed of the ring of the side that connected.
    channel.pair.scribble(0, 3);
    until("it is cut off", &mut [&mut a], |ends| ends[0].lost(to).is_some());
    assert!(matches!(a.lost(to), Some(LostReason::Protocol(_))));
    let failed = a.events.iter().filter_map(|event| match event {
        Event::Done { token, result: Err(_) } => Some(token.0),
        _ => None,
    });
    assert_eq!(failed.collect::<Vec<_>>(), [1, 2]);
}

/// Messages of one cell, of two and of more until there is no more room, again and again: what
/// waits in the engine is not overtaken by what would find room in the ring.
#[test]
fn order_is_kept_when_room_runs_out() {
    const LENGTHS: [usize; 7] = [8, 56, 57, 9, 112, 113, 55];
    let (mut sender, mut receiver) = (End::new(), End::new());
    let (peer, _) = join(&mut sender, &mut receiver);
    let (mut sent, mut came) = (0u32, 0u32);
    for _ in 0..5 {
        loop {
            let mut bytes = vec![1; LENGTHS[sent as usize % 7]];
            bytes[..4].copy_from_slice(&sent.to_le_bytes());
            match sender.shm.inject(peer, &[&bytes]) {
                Ok(()) => sent += 1,
                Err(InjectError::Full) => break,
                Err(other) => panic!("{other}"),
            }
        }
        let all = (sent - came) as usize;
        assert!(all > 1000, "only {all}");
        until("all have come", &mut [&mut sender, &mut receiver], |ends| ends[1].messages() == all);
        for event in receiver.events.drain(..) {
            if let Event::Message { message, .. } = event {
                assert_eq!(message[..4], came.to_le_bytes());
                assert_eq!(message.len(), LENGTHS[came as usize % 7]);
                came += 1;
            }
        }
        sender.events.clear();
    }
}

/// Peers beyond the number that is watched ring, and are heard; none starves.
#[test]
fn more_peers_than_are_watched() {
    let config = Config { max_watched: 12, ..Config::default() };
    let mut server = End::open(config);
    let mut clients: Vec<End> = (0..40).map(|_| End::new()).collect();
    let peers: Vec<Peer> = clients.iter_mut().map(|client| join(client, &mut server).0).collect();
    for round in 0..20 {
        for (client, peer) in clients.iter_mut().zip(&peers) {
            client.shm.inject(*peer, &[&[round; 9]]).unwrap();
            client.pass();
        }
        until("all are heard", &mut [&mut server], |ends| ends[0].messages() == 40);
        server.events.clear();
    }
    assert!(server.shm.watched.len() <= 12);
}

/// What is so much that it goes past the caches arrives whole, in slices and from odd places on.
#[test]
fn streams_arrive_whole() {
    let config = Config { stream_from: 1, transfer_budget: 70_001, ..Config::default() };
    let (mut owner, mut guest) = (End::new(), End::open(config));
    join(&mut guest, &mut owner);
    let bytes: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
    let memory = owner.shm.alloc(bytes.len()).unwrap();
    memory.write(0, &bytes);
    let region = owner.shm.register(&memory.whole(), Access::READ).unwrap();
    let remote = guest.shm.import(&owner.shm.export(region).unwrap()).unwrap();
    for (round, offset) in [0_usize, 1, 4095, 99_999].into_iter().enumerate() {
        let len = bytes.len() - offset;
        let into = Region::zeroed(len);
        let local = smallvec![into.whole()];
        let spans = smallvec![RemoteSpan { offset: offset as u64, len: len as u64 }];
        let token = Token(round as u64);
        guest.shm.submit(&mut VecDeque::from([Operation::Get { token, remote, local, spans }]));
        until("the get is done", &mut [&mut guest, &mut owner], |ends| {
            ends[0].events.iter().any(|e| matches!(e, Event::Done { result: Ok(_), .. }))
        });
        guest.events.clear();
        assert_eq!(into.to_vec(), bytes[offset..], "from {offset} on");
        until("it is mapped", &mut [&mut guest, &mut owner], |ends| {
            ends[0].shm.counters().segments == 1
        });
    }
    // All but the first get, which did not wait for the mapping.
    assert!(guest.shm.counters().mapped_bytes >= 700_000);
}

/// Memory of the transport goes through a mapping, which its end takes away.
#[test]
fn segments_are_mapped_and_let_go() {
    let (mut owner, mut guest) = (End::new(), End::new());
    join(&mut guest, &mut owner);
    let memory = owner.shm.alloc(100_000).unwrap();
    let region = owner.shm.register(&memory.whole(), Access::ALL).unwrap();
    let key = owner.shm.export(region).unwrap();
    let remote = guest.shm.import(&key).unwrap();
    let from = Region::from_vec(vec![5; 100_000]);
    let spans = smallvec![RemoteSpan { offset: 0, len: 100_000 }];
    for round in 0..3 {
        let (local, spans) = (smallvec![from.whole()], spans.clone());
        let level = petasos_fabric::Level::Visible;
        let (token, event) = (Token(round), None);
        let put = Operation::Put { token, remote, local, spans, level, event };
        guest.shm.submit(&mut VecDeque::from([put]));
        until("the put is done", &mut [&mut guest, &mut owner], |ends| {
            ends[0].events.iter().any(|e| matches!(e, Event::Done { result: Ok(_), .. }))
        });
        guest.events.clear();
        for _ in 0..1000 {
            owner.pass();
            guest.pass();
        }
    }
    assert!(memory.to_vec().iter().all(|byte| *byte == 5));
    let counters = guest.shm.counters();
    assert!(counters.mapped_bytes >= 200_000 && counters.segments == 1, "{counters:?}");
    let close = Operation::Deregister { token: Token(9), region, patience: Operation::PATIENCE };
    owner.shm.submit(&mut VecDeque::from([close]));
    drop(memory);
    until("the mapping is let go", &mut [&mut owner, &mut guest], |ends| {
        ends[1].shm.counters().segments == 0
    });
}

/// The same memory is lent to be read, and then to be written, as buffers of messages are: to a
/// peer that may reach into its owner anyway, both go through mappings.
#[test]
fn memory_that_was_read_is_mapped_to_be_written() {
    const LEN: usize = 20_000;
    let (mut owner, mut guest) = (End::new(), End::new());
    join(&mut guest, &mut owner);
    if !crate::privileges::may_write_to_us(std::process::id() as i32) {
        return eprintln!("skipped: no process of this user may reach into another here");
    }
    let memory = owner.shm.alloc(LEN).unwrap();
    let mut token = (0..).map(Token);
    for (access, needed) in [(Access::READ, false), (Access::WRITE, true)] {
        let region = owner.shm.register(&memory.whole(), access).unwrap();
        let remote = guest.shm.import(&owner.shm.export(region).unwrap()).unwrap();
        let before = guest.shm.counters().mapped_bytes;
        // The first goes another way, for there is no descriptor yet.
        for _ in 0..3 {
            let local = smallvec![Region::from_vec(vec![7; LEN]).whole()];
            let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
            let (token, level) = (token.next().unwrap(), petasos_fabric::Level::Visible);
            let operation = match needed {
                true => Operation::Put { token, remote, local, spans, level, event: None },
                false => Operation::Get { token, remote, local, spans },
            };
            guest.shm.submit(&mut VecDeque::from([operation]));
            until("it is done", &mut [&mut guest, &mut owner], |ends| {
                ends[0].events.iter().any(|e| matches!(e, Event::Done { result: Ok(_), .. }))
            });
            guest.events.clear();
            for _ in 0..1000 {
                owner.pass();
                guest.pass();
            }
        }
        let mapped = guest.shm.counters().mapped_bytes - before;
        assert!(mapped >= 2 * LEN as u64, "{mapped} bytes through a mapping, with {access:?}");
    }
    assert!(memory.to_vec().iter().all(|byte| *byte == 7));
}

/// More is submitted than there is room for, to a peer that is not there: what was not taken is
/// left in the queue. And what was taken is found by its token, however much there is.
#[test]
fn submitting_and_cancelling_are_bounded() {
    let mut owner = End::new();
    let memory = Region::zeroed(64);
    let region = owner.shm.register(&memory.whole(), Access::ALL).unwrap();
    let key = owner.shm.export(region).unwrap();
    let mut guest = End::new();
    drop(owner);
    let remote = guest.shm.import(&key).unwrap();
    let from = memory.whole();
    let put = |token| Operation::Put {
        token: Token(token),
        remote,
        local: smallvec![from.clone()],
        spans: smallvec![RemoteSpan { offset: 0, len: 64 }],
        level: petasos_fabric::Level::Visible,
        event: None,
    };
    // One peer has half of them, and leaves the rest to others.
    let most = guest.shm.engine.config().limits.max_operations / 2;
    let count = 2_000_000;
    let mut queue: VecDeque<Operation> = (0..count).map(put).collect();
    guest.shm.submit(&mut queue);
    assert_eq!(queue.len(), count as usize - most);
    assert_eq!(queue.front().map(Operation::token), Some(Token(most as u64)));
    guest.pass();
    guest.shm.submit(&mut queue);
    assert_eq!(queue.len(), count as usize - most, "nothing has ended");
    drop(queue);
    // From the end, from the front, and what is not there.
    let begin = guest.shm.accesses.steps;
    let cancelled = 10_000;
    for nth in 0..cancelled / 2 {
        guest.shm.cancel(Token(most as u64 - 1 - nth));
        guest.shm.cancel(Token(nth));
        guest.shm.cancel(Token(most as u64 + nth));
    }
    let steps = guest.shm.accesses.steps - begin;
    assert!(steps <= 4 * cancelled, "{steps} entries were looked at");
    // There is as much room again, in a queue that does not grow by what was taken back.
    let mut queue: VecDeque<Operation> = (count..count + cancelled + 1).map(put).collect();
    guest.shm.submit(&mut queue);
    assert_eq!(queue.len(), 1);
    for _ in 0..5 {
        for token in count..count + cancelled {
            guest.shm.cancel(Token(token));
        }
        let mut queue: VecDeque<Operation> = (count..count + cancelled).map(put).collect();
        guest.shm.submit(&mut queue);
        assert!(queue.is_empty());
    }
    let mut done = 0;
    while done < cancelled * 6 {
        guest.pass();
        done += guest.events.drain(..).filter(|e| matches!(e, Event::Done { .. })).count() as u64;
    }
    assert_eq!(guest.shm.accesses.len(), most);
}
