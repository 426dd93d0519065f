//! NICs: what a device promises, packets that overtake each other, peers that send garbage, and
//! peers that are lost.

use crate::common::{LATE, Mock, be_silent, complete_all, speak, take_keys, tamper};
use petasos_channel::{
    Device, DeviceEvent,
    device::{Class, Fault, Node, Readiness, RemoteKey, Search, Target, Ticket},
};
use petasos_datagram::{Config, Nic};
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Level, LostReason, Operation, Region, RemoteSpan,
    Slice, Token,
};
use std::{
    collections::VecDeque,
    ptr::NonNull,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a packet.
const LONG: usize = 300_000;

struct Pair {
    nics: [Nic<Mock>; 2],
    /// Each side's number of the other.
    nodes: [Node; 2],
    events: [Vec<DeviceEvent>; 2],
    clock: Clock,
    tickets: u64,
}

fn open(config: &Config) -> Nic<Mock> {
    Nic::open(&Address::parse("mock://*").unwrap(), config.clone()).unwrap()
}

fn config(remote_access: bool) -> Config {
    let mut config = Config::default();
    (config.remote_access, config.mourning) = (remote_access, Duration::from_millis(50));
    config
}

impl Pair {
    fn new(remote_access: bool) -> Pair {
        let mut nics = [(); 2].map(|()| open(&config(remote_access)));
        let to = nics[1].address().clone();
        nics[0].resolve(&to, PATIENCE);
        let (nodes, events) = ([Node(0); 2], [const { Vec::new() }; 2]);
        let mut pair = Pair { nics, nodes, events, clock: Clock::start(), tickets: 0 };
        for at in 0..2 {
            pair.nodes[at] = pair.find(at, "it is up", |event| match event {
                DeviceEvent::Up { node, .. } => Some(*node),
                _ => None,
            });
        }
        pair
    }

    fn poll(&mut self, at: usize, data: bool) {
        let now = self.clock.now();
        self.nics[at].poll(now, data, 64, &mut self.events[at]);
    }

    /// Takes out the first event of one side that is as wanted, driving both.
    fn find<T>(
        &mut self,
        at: usize,
        what: &str,
        mut wanted: impl FnMut(&DeviceEvent) -> Option<T>,
    ) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.events[at].iter().enumerate();
            if let Some((nth, found)) =
                found.filter_map(|(nth, event)| Some((nth, wanted(event)?))).next()
            {
                self.events[at].remove(nth);
                return found;
            }
            self.poll(0, true);
            self.poll(1, true);
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.events);
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn done(&mut self, ticket: Ticket) -> Result<(), Fault> {
        self.find(0, "it is done", |event| match event {
            DeviceEvent::Done { ticket: of, result } if *of == ticket => {
                Some(result.clone().map(drop))
            }
            _ => None,
        })
    }

    fn get(&mut self, key: &RemoteKey, offset: u64, into: &Slice) -> Result<(), Fault> {
        let (ticket, target) = (self.ticket(), Target { key: key.clone(), offset });
        self.nics[0].get(self.nodes[0], &target, into, ticket).unwrap();
        self.done(ticket)
    }

    fn put(&mut self, key: &RemoteKey, offset: u64, from: &Slice) -> Result<(), Fault> {
        let (ticket, target) = (self.ticket(), Target { key: key.clone(), offset });
        self.nics[0].put(self.nodes[0], &target, from, Some(9), ticket).unwrap();
        self.done(ticket)
    }

    /// Whether the first side can access memory by this key, once that is known.
    fn readiness(&mut self, key: &RemoteKey) -> Readiness {
        loop {
            match self.nics[0].readiness(self.nodes[0], key, true) {
                Readiness::Later => self.find(0, "it was asked for", |event| {
                    matches!(event, DeviceEvent::Room { .. }).then_some(())
                }),
                known => return known,
            }
        }
    }

    /// Has one side lose the other, which says why.
    fn lost(&mut self, at: usize) -> LostReason {
        self.find(at, "it is lost", |event| match event {
            DeviceEvent::Lost { reason, .. } => Some(reason.clone()),
            _ => None,
        })
    }

    /// The first side sends a packet, which is changed on its way.
    fn changed(&mut self, len: usize, change: impl Fn(&mut Vec<u8>)) {
        self.nics[0].send(self.nodes[0], Class::Control, &[&vec![0; len]]).unwrap();
        let is = |packet: &Vec<u8>| packet.len() == 24 + len && packet[16] == 1;
        tamper(|queue| queue.iter_mut().filter(|packet| is(packet)).for_each(&change));
    }

    fn packet(&mut self, at: usize) -> (Class, Vec<u8>) {
        self.find(at, "a packet", |event| match event {
            DeviceEvent::Packet { class, bytes, .. } => Some((*class, bytes.to_vec())),
            _ => None,
        })
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251) as u8).collect()
}

#[test]
fn packets_of_both_classes() {
    let mut pair = Pair::new(true);
    for len in [0, 1, 3000, 10_000, pair.nics[0].limits().packet] {
        for class in [Class::Data, Class::Control] {
            let whole = bytes(len);
            let (first, rest) = whole.split_at(len / 3);
            pair.nics[0].send(pair.nodes[0], class, &[first, rest]).unwrap();
            assert!(pair.packet(1) == (class, whole), "{len} bytes");
        }
    }
    // Data packets that are not asked for hold up nothing.
    let node = pair.nodes[0];
    pair.nics[0].send(node, Class::Data, &[&[1]]).unwrap();
    pair.nics[0].send(node, Class::Control, &[&[2]]).unwrap();
    let end = Instant::now() + PATIENCE;
    while pair.events[1].is_empty() {
        pair.poll(1, false);
        assert!(Instant::now() < end);
    }
    assert_eq!(pair.packet(1), (Class::Control, vec![2]));
    assert_eq!(pair.packet(1), (Class::Data, vec![1]));
}

/// A packet that is next lies where the library put it until it is taken, and nothing is lost if it
/// is not.
#[test]
fn packets_are_found() {
    let mut pair = Pair::new(true);
    let (node, at) = (pair.nodes[0], pair.nodes[1]);
    let whole = bytes(5000);
    for round in 0..3 {
        pair.nics[0].send(node, Class::Data, &[&whole[..round], &whole[round..]]).unwrap();
        assert_eq!(pair.nics[1].find_packet(), Search::Found(at, whole.len()));
        let (mut some, into) = (vec![0; 100], Region::zeroed(700));
        pair.nics[1].read_found(4900, &mut some);
        pair.nics[1].copy_found(17, &into.whole());
        assert!(some == whole[4900..] && into.to_vec() == whole[17..717]);
        // It is there until it is taken.
        assert_eq!(pair.nics[1].find_packet(), Search::Found(at, whole.len()));
        if round == 0 {
            pair.nics[1].take_found();
            assert_eq!(pair.nics[1].find_packet(), Search::Nothing);
        } else {
            // Reported at once, or when it is asked for.
            pair.poll(1, round == 1);
            assert_eq!(pair.packet(1), (Class::Data, whole.clone()));
        }
    }
    assert!(pair.events[1].is_empty(), "{:?}", pair.events);
    // What is to be reported comes first, in its order.
    for (class, byte) in [(Class::Data, 1), (Class::Control, 2), (Class::Data, 3)] {
        pair.nics[0].send(node, class, &[&[byte]]).unwrap();
    }
    pair.nics[1].find_packet();
    pair.nics[1].take_found();
    assert_eq!(pair.nics[1].find_packet(), Search::Poll);
    assert_eq!(pair.nics[1].find_packet(), Search::Poll, "an event waits");
    assert_eq!(pair.packet(1), (Class::Control, vec![2]));
    assert_eq!(pair.packet(1), (Class::Data, vec![3]));
    // The sender hears of all that was taken: more than its window holds.
    let end = Instant::now() + PATIENCE;
    for number in 0..200_u8 {
        while pair.nics[0].send(node, Class::Data, &[&[number]]).is_err() {
            pair.poll(0, true);
            assert!(Instant::now() < end, "no room after {number}");
        }
        assert_eq!(pair.nics[1].find_packet(), Search::Found(at, 1), "{number}");
        pair.nics[1].take_found();
        pair.poll(1, true);
    }
    // One of a node that is closed is no more.
    pair.nics[0].send(node, Class::Data, &[&whole]).unwrap();
    assert!(matches!(pair.nics[1].find_packet(), Search::Found(..)));
    pair.nics[1].close(at);
    assert_eq!(pair.nics[1].find_packet(), Search::Nothing);
    pair.poll(1, true);
    assert!(pair.events[1].is_empty(), "{:?}", pair.events);
}

/// By the library, or by the owner's NIC; with memory that the library does not get, and what is
/// refused.
#[test]
fn what_is_put_and_got() {
    for native in [true, false] {
        let mut pair = Pair::new(native);
        let memory = Region::from_vec(bytes(LONG));
        let all = Access::READ.with(Access::WRITE);
        let (registration, key) = pair.nics[1].register(&memory.whole(), all, 5).unwrap();
        for (offset, len) in [(0, LONG), (17, 5), (LONG - 1, 1), (7, 0)] {
            let mut into = vec![0; len];
            let at = NonNull::new(into.as_mut_ptr()).unwrap();
            // SAFETY: the vector outlives the get, and nothing else uses it meanwhile.
            let raw = unsafe { Slice::raw(at, len) };
            assert_eq!(pair.get(&key, offset as u64, &raw), Ok(()));
            assert!(into == bytes(LONG)[offset..offset + len], "{len} bytes at {offset}");
        }
        assert_eq!(pair.nics[0].counters().accesses, if native { 3 } else { 0 });
        for (offset, len) in [(1, LONG - 1), (3, 8)] {
            let put = vec![9; len];
            assert_eq!(pair.put(&key, offset, &Slice::from(put)), Ok(()));
            let arrived = pair.find(1, "a put", |event| match event {
                DeviceEvent::PutArrived { tag, offset, len, data, .. } => {
                    Some((*tag, *offset + *len, *data))
                }
                _ => None,
            });
            assert_eq!(arrived, (5, offset + len as u64, 9), "one event, of the last part");
        }
        assert!(memory.to_vec()[1..] == vec![9; LONG - 1]);
        let some = Region::zeroed(8).whole();
        for offset in [LONG as u64 - 7, u64::MAX - 3] {
            assert_eq!(pair.get(&key, offset, &some), Err(Fault::OutOfBounds));
            assert_eq!(pair.put(&key, offset, &some), Err(Fault::OutOfBounds));
        }
        let (_, readable) = pair.nics[1].register(&memory.whole(), Access::READ, 6).unwrap();
        assert_eq!(pair.put(&readable, 0, &some), Err(Fault::Denied));
        let (_, writable) = pair.nics[1].register(&memory.whole(), Access::WRITE, 7).unwrap();
        assert_eq!(pair.get(&writable, 0, &some), Err(Fault::Denied));
        let mut guessed = key.as_bytes().to_vec();
        guessed[9] ^= 1;
        let guessed = RemoteKey::new(&guessed).unwrap();
        assert_eq!(pair.put(&guessed, 0, &some), Err(Fault::Stale));
        let target = Target { key: guessed, offset: 0 };
        pair.nics[0].put_immediate(pair.nodes[0], &target, &[1; 8], None).unwrap();
        let refused = pair.find(0, "a refusal", |event| match event {
            DeviceEvent::Refused { fault, .. } => Some(*fault),
            _ => None,
        });
        assert_eq!(refused, Fault::Stale);
        pair.nics[1].deregister(registration, None);
        assert_eq!(pair.put(&key, 0, &some), Err(Fault::Stale));
        assert!(memory.to_vec()[1..] == vec![9; LONG - 1], "nothing of that was written");
    }
}

/// Where the library does not read, bulk data comes in packets: no receiver asks for it piece by
/// piece.
#[test]
fn bulk_data_that_the_library_does_not_read() {
    let [mut a, mut b] = [(); 2].map(|()| open(&config(false)).into_endpoint());
    let memory = Region::zeroed(LONG);
    let region = b.register(&memory.whole(), Access::WRITE).unwrap();
    let remote = a.import(&b.export(region).unwrap()).unwrap();
    let put = Operation::Put {
        token: Token(1),
        remote,
        local: [Slice::from(bytes(LONG))].into(),
        spans: [RemoteSpan { offset: 0, len: LONG as u64 }].into(),
        level: Level::Visible,
        event: None,
    };
    a.submit(&mut VecDeque::from([put]));
    let (clock, end, mut events) = (Clock::start(), Instant::now() + PATIENCE, Vec::new());
    let done = |event: &Event| matches!(event, Event::Done { result: Ok(_), .. });
    while !events.iter().any(done) {
        a.progress(clock.now(), 64, &mut events);
        b.progress(clock.now(), 64, &mut Vec::new());
        assert!(Instant::now() < end, "{events:?}");
    }
    assert!(memory.to_vec() == bytes(LONG));
    assert_eq!(a.counters().shared, 0, "nothing was lent");
}

/// Memory of programs is opened when a node asks for it that shows the key, and closed when all
/// have returned it; none reaches it after that.
#[test]
fn memory_of_programs() {
    let mut pair = Pair::new(true);
    let memory = Region::zeroed(LONG);
    let (registration, key) = pair.nics[1].expose(&memory.whole(), Access::ALL, 1).unwrap();
    let mut guessed = key.as_bytes().to_vec();
    guessed[8] ^= 1;
    assert_eq!(pair.readiness(&RemoteKey::new(&guessed).unwrap()), Readiness::Never);
    assert_eq!(pair.nics[1].counters().registrations, 0);
    assert_eq!(pair.readiness(&key), Readiness::Now);
    assert_eq!(pair.nics[1].counters().registrations, 1);
    let (ticket, target) = (pair.ticket(), Target { key: key.clone(), offset: 100 });
    let from = Region::from_vec(bytes(4096)).whole();
    pair.nics[0].put(pair.nodes[0], &target, &from, None, ticket).unwrap();
    assert_eq!(pair.done(ticket), Ok(()));
    let into = Region::zeroed(4096);
    assert_eq!(pair.get(&key, 100, &into.whole()), Ok(()));
    assert_eq!((into.to_vec(), pair.nics[0].counters().accesses), (bytes(4096), 2));
    assert_eq!(pair.get(&key, (LONG - 4095) as u64, &into.whole()), Err(Fault::OutOfBounds));
    // With an event, of several parts: it says where all of them are.
    let long = Region::from_vec(bytes(LONG - 7)).whole();
    assert_eq!(pair.put(&key, 7, &long), Ok(()));
    let arrived = pair.find(1, "the event", |event| match event {
        DeviceEvent::PutArrived { tag, offset, len, data, .. } => {
            Some([*tag, *offset, *len, *data])
        }
        _ => None,
    });
    assert_eq!(arrived, [1, 7, LONG as u64 - 7, 9]);
    assert_eq!(memory.to_vec()[7..], bytes(LONG - 7));
    // A holder that does nothing is waited for, and named.
    pair.nics[1].deregister(registration, Some(Ticket(99)));
    let is_closed = |event: &DeviceEvent| {
        matches!(event, DeviceEvent::Done { ticket: Ticket(99), result: Ok(_) }).then_some(())
    };
    (0..100).for_each(|_| pair.poll(1, true));
    assert!(!pair.events[1].iter().any(|event| is_closed(event).is_some()));
    let holder = pair.nics[1].reached_by(Ticket(99));
    assert_eq!(holder.as_ref(), Some(pair.nics[0].address()));
    pair.find(1, "it is closed", is_closed);
    assert_eq!(
        (pair.readiness(&key), pair.nics[1].reached_by(Ticket(99))),
        (Readiness::Never, None)
    );
    assert_eq!(pair.put(&key, 0, &from), Err(Fault::Stale));
    // The library gets nothing of a lost node's, nor what only its program keeps.
    // SAFETY: the region is held until the end.
    let raw = unsafe { Slice::raw(NonNull::new(memory.whole().as_ptr()).unwrap(), 10) };
    assert!(pair.nics[1].expose(&raw, Access::ALL, 2).is_err());
}

/// A grant whose key the library cannot use is returned as any other, and no peer is lost by that.
#[test]
fn memory_of_programs_whose_key_is_of_no_use() {
    let mut pair = Pair::new(true);
    let memory = Region::zeroed(LONG);
    let (registration, key) = pair.nics[1].expose(&memory.whole(), Access::ALL, 1).unwrap();
    take_keys(false);
    assert_eq!(pair.readiness(&key), Readiness::Never);
    take_keys(true);
    pair.nics[1].deregister(registration, Some(Ticket(99)));
    pair.find(1, "it is closed", |event| {
        matches!(event, DeviceEvent::Done { ticket: Ticket(99), result: Ok(_) }).then_some(())
    });
    pair.nics[0].send(pair.nodes[0], Class::Control, &[b"still there"]).unwrap();
    assert_eq!(pair.packet(1).1, b"still there");
    let lost = |event: &DeviceEvent| matches!(event, DeviceEvent::Lost { .. });
    assert!(!pair.events.iter().flatten().any(lost));
}

/// What a node reaches that is lost stays open for a while.
#[test]
fn memory_of_programs_that_a_lost_node_reaches() {
    let mut pair = Pair::new(true);
    let memory = Region::zeroed(64);
    let (registration, key) = pair.nics[1].expose(&memory.whole(), Access::ALL, 1).unwrap();
    assert_eq!(pair.readiness(&key), Readiness::Now);
    be_silent(true);
    let (ticket, target) = (pair.ticket(), Target { key, offset: 0 });
    let from = Region::zeroed(64).whole();
    pair.nics[0].put(pair.nodes[0], &target, &from, None, ticket).unwrap();
    be_silent(false);
    let at = pair.nics[0].address().clone();
    // Its put is under way, so it returns nothing.
    pair.nics[0].close(pair.nodes[0]);
    pair.lost(1);
    let begin = Instant::now();
    pair.nics[1].deregister(registration, Some(Ticket(99)));
    assert_eq!(pair.nics[1].reached_by(Ticket(99)), Some(at));
    pair.find(1, "it is closed", |event| {
        matches!(event, DeviceEvent::Done { ticket: Ticket(99), .. }).then_some(())
    });
    assert!(begin.elapsed() > Duration::from_millis(20), "it may still be written");
}

#[test]
fn packets_that_overtake_each_other() {
    let mut pair = Pair::new(true);
    let (mut sent, mut taken, mut turn) = (0_u32, 0, 0_usize);
    while taken < 1000 {
        while sent < 1000
            && pair.nics[0].send(pair.nodes[0], Class::Data, &[&sent.to_le_bytes()]).is_ok()
        {
            sent += 1;
        }
        turn += 1;
        tamper(|queue| {
            let middle = turn * 5 % queue.len().max(1);
            queue.rotate_left(middle);
            queue.make_contiguous().reverse();
        });
        pair.poll(1, true);
        pair.poll(0, true);
        for event in pair.events[1].drain(..) {
            if let DeviceEvent::Packet { bytes, .. } = event {
                assert_eq!(bytes[..], u32::to_le_bytes(taken));
                taken += 1;
            }
        }
    }
    assert!(pair.nics[1].counters().deferred > 100, "they were overtaken");
}

/// Whatever is no packet of a NIC's, or answers what was not asked, ends the connection.
#[test]
fn garbage() {
    let over = |id: u32, code| [&[5][..], &id.to_le_bytes(), &[code]].concat();
    let part = |id: u32| [&[7][..], &id.to_le_bytes(), &[1, 2, 3]].concat();
    let garbage: Vec<(Vec<u8>, &str)> = vec![
        (vec![9, 0, 0, 0, 0], "an unknown kind"),
        (vec![0x85, 0, 0, 0, 0, 0], "an unknown kind"),
        (vec![0; 7], "cut short"),
        (vec![1; 3], "cut short"),
        (vec![2; 20], "cut short"),
        (vec![3], "cut short"),
        (vec![3, 0, 0], "too long"),
        (vec![4; 37], "cut short"),
        (vec![6; 36], "cut short"),
        (vec![6; 38], "too long"),
        (vec![8; 41], "cut short"),
        (vec![8; 43], "too long"),
        (over(0, 0), "an answer to nothing"),
        (over(u32::MAX, 1), "an answer to nothing"),
        (part(0), "a part of nothing"),
    ];
    for (packet, why) in garbage {
        let mut pair = Pair::new(true);
        pair.changed(60, |whole| {
            whole.truncate(16);
            whole.extend_from_slice(&packet);
        });
        let reason = pair.lost(1);
        let said = matches!(&reason, LostReason::Protocol(said) if said.contains(why));
        assert!(said, "{packet:?}: {reason}");
        pair.lost(0);
    }
    // A packet that was there.
    let mut pair = Pair::new(true);
    pair.nics[0].send(pair.nodes[0], Class::Control, &[&[1; 100]]).unwrap();
    tamper(|queue| {
        let again: Vec<_> = queue.iter().filter(|packet| packet.len() == 124).cloned().collect();
        queue.extend(again);
    });
    assert!(matches!(pair.lost(1), LostReason::Protocol(_)));
}

/// A peer that sends data packets without end, while none are asked for, is cut off: also with
/// packets of no bytes.
#[test]
fn data_packets_that_wait() {
    let mut pair = Pair::new(true);
    let mut sent = 0;
    let lost =
        |events: &[DeviceEvent]| events.iter().any(|e| matches!(e, DeviceEvent::Lost { .. }));
    while !lost(&pair.events[1]) {
        for _ in 0..32 {
            sent += u32::from(pair.nics[0].send(pair.nodes[0], Class::Data, &[]).is_ok());
        }
        pair.poll(1, false);
        pair.poll(0, false);
        assert!(sent < 1 << 18, "{sent} packets wait");
    }
    assert!(sent > 1 << 16, "more than the longest window: {sent}");
    assert!(matches!(pair.lost(1), LostReason::Protocol(_)));
}

/// Answers that do not fit what was asked.
#[test]
fn false_answers() {
    let part = |id: u32, len: usize| [&[7][..], &id.to_le_bytes(), &vec![1; len]].concat();
    let over = |id: u32| [&[5][..], &id.to_le_bytes(), &[0]].concat();
    let answers = [
        (part(0, 9), "more than was asked for"),
        (part(0, 0), "a part without bytes"),
        (over(0), "a get that ended early"),
    ];
    for (answer, why) in answers {
        let mut pair = Pair::new(false);
        let memory = Region::zeroed(8).whole();
        let (_, key) = pair.nics[0].register(&memory, Access::READ, 1).unwrap();
        let (ticket, target) = (pair.ticket(), Target { key, offset: 0 });
        let into = Region::zeroed(8).whole();
        pair.nics[1].get(pair.nodes[1], &target, &into, ticket).unwrap();
        // Before the true answer.
        pair.changed(60, |whole| {
            whole.truncate(16);
            whole.extend_from_slice(&answer);
        });
        let reason = pair.lost(1);
        let said = matches!(&reason, LostReason::Protocol(said) if said.contains(why));
        assert!(said, "{reason}");
        assert!(into.to_vec() == [0; 8]);
        let ended = pair.find(1, "the get ends", |event| match event {
            DeviceEvent::Done { ticket: of, result } if *of == ticket => Some(result.clone()),
            _ => None,
        });
        assert_eq!(ended.unwrap_err(), Fault::Lost);
    }
}

/// A peer that asks for more and more, and takes no answer, is cut off.
#[test]
fn a_peer_that_takes_no_answers() {
    let mut pair = Pair::new(false);
    let (end, mut asked, mut ticket) = (Instant::now() + PATIENCE, 0, Vec::new());
    let reason = 'lost: loop {
        while pair.nics[0].send(pair.nodes[0], Class::Control, &[&[0; 29]]).is_ok() {
            asked += 1;
        }
        tamper(|queue| {
            for packet in queue.iter_mut().filter(|packet| packet.len() == 16 + 37) {
                // A get of nothing known.
                packet[16] = 6;
                ticket = packet[8..16].to_vec();
            }
            // It says of everything that it took nothing.
            let its = queue.iter_mut().filter(|packet| packet[8..16] == ticket);
            its.for_each(|packet| packet[4..6].fill(0));
        });
        pair.poll(1, true);
        // It does not mind what it is answered.
        let answers = |queue: &mut VecDeque<Vec<u8>>| {
            for packet in queue.iter_mut().filter(|packet| packet.len() == 16 + 6) {
                packet.truncate(16);
                packet.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
            }
        };
        tamper(answers);
        pair.poll(0, true);
        for event in pair.events[1].drain(..) {
            if let DeviceEvent::Lost { reason, .. } = event {
                break 'lost reason;
            }
        }
        assert!(Instant::now() < end, "after {asked}");
    };
    let why = "more puts and gets than it takes answers to";
    assert!(matches!(&reason, LostReason::Protocol(said) if said.contains(why)), "{reason}");
    assert!((1024..4096).contains(&asked), "{asked} were asked for");
}

/// What was under way with a peer that is lost ends before its loss is told, though the library
/// does not complete it; and memory that its program keeps is not touched after that.
#[test]
fn a_lost_peer() {
    let mut pair = Pair::new(true);
    let memory = Region::from_vec(vec![7; 4096]);
    let (_, key) = pair.nics[1].register(&memory.whole(), Access::READ, 1).unwrap();
    be_silent(true);
    let mut into = vec![0_u8; 4096];
    // SAFETY: the vector outlives the get, and is looked at when that is over.
    let raw = unsafe { Slice::raw(NonNull::new(into.as_mut_ptr()).unwrap(), 4096) };
    let (ticket, target) = (pair.ticket(), Target { key, offset: 0 });
    pair.nics[0].get(pair.nodes[0], &target, &raw, ticket).unwrap();
    let Pair { nics: [mut lives, dies], clock, .. } = pair;
    drop(dies);
    let (mut events, end) = (Vec::new(), Instant::now() + PATIENCE);
    while !events.iter().any(|event| matches!(event, DeviceEvent::Lost { .. })) {
        lives.poll(clock.now(), true, 64, &mut events);
        assert!(Instant::now() < end);
    }
    let ended = |event: &DeviceEvent| matches!(event, DeviceEvent::Done { ticket: of, result: Err(Fault::Lost) } if *of == ticket);
    let at = events.iter().position(ended).expect("the get has ended");
    let lost = events.iter().position(|event| matches!(event, DeviceEvent::Lost { .. }));
    assert!(at < lost.unwrap());
    assert_eq!(lives.counters().lost, 1, "the library has it still");
    be_silent(false);
    complete_all();
    lives.poll(clock.now(), true, 64, &mut events);
    assert_eq!(lives.counters().lost, 0);
    assert!(into.iter().all(|byte| *byte != LATE), "it was touched");
}

/// Reads of which the library completes none take no more of its room than they leave.
#[test]
fn a_peer_that_stands_still_leaves_reads_to_others() {
    let mut settings = config(true);
    settings.sends = 8;
    let mut reader = open(&settings);
    let mut owners = [(); 2].map(|()| open(&config(true)));
    let memory = Region::zeroed(64);
    let mut targets = Vec::new();
    for owner in &mut owners {
        let (_, key) = owner.register(&memory.whole(), Access::READ, 1).unwrap();
        targets.push(Target { key, offset: 0 });
        reader.resolve(&owner.address().clone(), PATIENCE);
    }
    let (clock, end, mut events) = (Clock::start(), Instant::now() + PATIENCE, Vec::new());
    let mut drive = |reader: &mut Nic<Mock>, events: &mut Vec<DeviceEvent>| {
        reader.poll(clock.now(), true, 64, events);
        for owner in &mut owners {
            owner.poll(clock.now(), true, 64, &mut Vec::new());
        }
        assert!(Instant::now() < end, "{events:?}");
        owners.each_ref().map(|owner| owner.address().clone())
    };
    let up = |events: &[DeviceEvent], at: &Address| {
        events.iter().find_map(|event| match event {
            DeviceEvent::Up { node, address, .. } if address == at => Some(*node),
            _ => None,
        })
    };
    let [still, other] = loop {
        let [one, two] = drive(&mut reader, &mut events);
        if let (Some(one), Some(two)) = (up(&events, &one), up(&events, &two)) {
            break [one, two];
        }
    };
    be_silent(true);
    let into = Region::zeroed(64).whole();
    let begin = |reader: &mut Nic<Mock>, node, nth: usize, ticket| {
        reader.get(node, &targets[nth], &into, Ticket(ticket))
    };
    // Half of what is under way at a time are reads, and half of those one peer's.
    let begun = (0..8).take_while(|ticket| begin(&mut reader, still, 0, *ticket).is_ok()).count();
    assert_eq!(begun, 2);
    begin(&mut reader, other, 1, 100).unwrap();
    be_silent(false);
    complete_all();
    let is_room =
        |event: &DeviceEvent| matches!(event, DeviceEvent::Room { node } if *node == still);
    while !events.iter().any(is_room) {
        drive(&mut reader, &mut events);
    }
    begin(&mut reader, still, 0, 200).unwrap();
}

/// NICs of different protocols refuse each other, and each says why.
#[test]
fn others_are_refused() {
    let place = Address::parse("mock://*").unwrap();
    let mut nics = ["mock", "other"].map(|protocol| {
        speak(protocol);
        Nic::<Mock>::open(&place, config(true)).unwrap()
    });
    let at = nics.each_ref().map(|nic| nic.address().clone());
    nics.iter_mut().zip(at.iter().rev()).for_each(|(nic, to)| nic.resolve(to, PATIENCE));
    let clock = Clock::start();
    let (mut told, mut events) = (Vec::new(), Vec::new());
    let end = Instant::now() + PATIENCE;
    while told.len() < 2 {
        for nic in &mut nics {
            nic.poll(clock.now(), true, 64, &mut events);
        }
        for event in events.drain(..) {
            match event {
                DeviceEvent::Unreachable { reason, .. } | DeviceEvent::Lost { reason, .. } => {
                    told.push(reason.to_string());
                }
                other => assert!(matches!(other, DeviceEvent::Up { .. }), "{other:?}"),
            }
        }
        assert!(Instant::now() < end, "{told:?}");
    }
    let both =
        |why: &String| ["mock", "other"].iter().all(|p| why.contains(&format!("`channels 4;{p}`")));
    assert!(told.iter().any(both), "{told:?}");
}
