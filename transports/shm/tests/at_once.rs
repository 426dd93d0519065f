//! Short operations are carried out when they are submitted, and nothing else about them differs.

use bytes::Bytes;
use petasos_fabric::{
    Access, Clock, Done, Endpoint, Event, Level, OpErrorKind, Operation, Payload, Peer, Region,
    RegionId, Remote, RemoteSpan, Token,
};
use petasos_shm::Shm;
use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Two endpoints: the first reaches into memory of the second, and sends to it.
struct Pair {
    ends: [Shm; 2],
    clock: Clock,
    there: Peer,
    events: [Vec<Event>; 2],
}

/// Memory of the second endpoint.
struct Target {
    memory: Region,
    region: RegionId,
    remote: Remote,
}

impl Pair {
    fn new() -> Pair {
        let open = || Shm::open(&"shm://*".parse().unwrap()).unwrap();
        let mut ends = [open(), open()];
        let address = ends[1].address().clone();
        let there = ends[0].resolve(&address, PATIENCE).unwrap();
        let mut pair = Pair { ends, clock: Clock::start(), there, events: Default::default() };
        let up = |events: &Vec<Event>| events.iter().any(|e| matches!(e, Event::PeerUp { .. }));
        pair.until("both are up", |events| events.iter().all(up));
        pair.events = Default::default();
        pair
    }

    fn pass(&mut self) {
        for (end, events) in self.ends.iter_mut().zip(&mut self.events) {
            end.progress(self.clock.now(), 64, events);
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&[Vec<Event>; 2]) -> bool) {
        let begin = Instant::now();
        while !done(&self.events) {
            assert!(begin.elapsed() < PATIENCE, "not in time: {what}");
            self.pass();
        }
    }

    fn submit(&mut self, end: usize, operation: Operation) {
        let mut queue = VecDeque::from([operation]);
        self.ends[end].submit(&mut queue);
        assert!(queue.is_empty(), "it is accepted");
    }

    /// The result of an operation of one end.
    fn result(&mut self, end: usize, wanted: u64) -> Result<Done, OpErrorKind> {
        let is = |e: &Event| matches!(e, Event::Done { token: Token(t), .. } if *t == wanted);
        self.until("a completion", |events| events[end].iter().any(is));
        let at = self.events[end].iter().position(is).unwrap();
        match self.events[end].remove(at) {
            Event::Done { result, .. } => result.map_err(|error| error.kind.clone()),
            _ => unreachable!(),
        }
    }

    /// Memory that is mapped by the first endpoint, to be written, too.
    fn target(&mut self, access: Access) -> Target {
        let memory = self.ends[1].alloc(4096).unwrap();
        let region = self.ends[1].register(&memory.whole(), access).unwrap();
        let key = self.ends[1].export(region).unwrap();
        let remote = self.ends[0].import(&key).unwrap();
        let begin = Instant::now();
        while self.ends[0].counters().mapped_bytes == 0 {
            assert!(begin.elapsed() < PATIENCE, "it is mapped");
            self.submit(0, put(0, remote, 4000, &[0; 8]));
            self.result(0, 0).unwrap();
        }
        Target { memory, region, remote }
    }
}

fn put(token: u64, remote: Remote, offset: u64, bytes: &[u8]) -> Operation {
    Operation::Put {
        token: Token(token),
        remote,
        local: [Region::from_vec(bytes.to_vec()).whole()].into(),
        spans: [RemoteSpan { offset, len: bytes.len() as u64 }].into(),
        level: Level::Visible,
        event: None,
    }
}

fn get(token: u64, remote: Remote, offset: u64, into: &Region) -> Operation {
    let spans = [RemoteSpan { offset, len: into.len() as u64 }].into();
    Operation::Get { token: Token(token), remote, local: [into.whole()].into(), spans }
}

#[test]
fn short_accesses_to_mapped_memory_are_done_when_they_are_submitted() {
    let mut pair = Pair::new();
    let Target { memory, remote, .. } = pair.target(Access::ALL);
    for len in [1, 8, 127, 128] {
        let bytes: Vec<u8> = (0..len).map(|at| at as u8 ^ len as u8).collect();
        pair.submit(0, put(1, remote, 4096 - len as u64, &bytes));
        assert_eq!(memory.to_vec()[4096 - len..], bytes, "no pass was made");
        let into = Region::zeroed(len);
        pair.submit(0, get(2, remote, 4096 - len as u64, &into));
        assert_eq!(into.to_vec(), bytes, "no pass was made");
        assert!(pair.events[0].is_empty(), "no event comes before a pass");
        assert!(matches!(pair.result(0, 1), Ok(Done::Put)));
        assert!(matches!(pair.result(0, 2), Ok(Done::Got)));
    }
    (0..100).for_each(|_| pair.pass());
    assert!(pair.events[0].is_empty(), "each has completed once: {:?}", pair.events[0]);
}

#[test]
fn what_is_refused_is_refused_as_ever() {
    let mut pair = Pair::new();
    let Target { memory, region, remote } = pair.target(Access::WRITE);
    let (there, before) = (pair.there, memory.to_vec());
    pair.submit(0, put(1, remote, 4090, &[7; 8]));
    assert!(matches!(pair.result(0, 1), Err(OpErrorKind::OutOfBounds { .. })));
    pair.submit(0, put(2, remote, u64::MAX, &[7; 8]));
    assert!(matches!(pair.result(0, 2), Err(OpErrorKind::OutOfBounds { .. })));
    pair.submit(0, get(3, remote, 0, &Region::zeroed(8)));
    assert!(matches!(pair.result(0, 3), Err(OpErrorKind::Denied { .. })));
    pair.submit(0, Operation::Flush { token: Token(4), peer: there });
    assert!(
        matches!(pair.result(0, 4), Err(OpErrorKind::OutOfBounds { .. })),
        "it tells the first"
    );
    // One whose longer end says more than its key does.
    pair.submit(0, put(5, Remote { len: 1 << 40, ..remote }, 8192, &[7; 8]));
    assert!(matches!(pair.result(0, 5), Err(OpErrorKind::OutOfBounds { .. })));

    let patience = Operation::PATIENCE;
    pair.submit(1, Operation::Deregister { token: Token(6), region, patience });
    assert!(matches!(pair.result(1, 6), Ok(Done::Deregistered)));
    pair.submit(0, put(7, remote, 0, &[7; 8]));
    assert!(matches!(pair.result(0, 7), Err(OpErrorKind::StaleKey)));
    assert_eq!(memory.to_vec(), before, "nothing of these was written");
}

#[test]
fn a_short_access_does_not_pass_those_that_wait() {
    let mut pair = Pair::new();
    let Target { memory, remote, .. } = pair.target(Access::ALL);
    pair.submit(0, put(1, remote, 0, &[1; 1000]));
    pair.submit(0, put(2, remote, 0, &[2; 8]));
    assert_eq!(memory.to_vec()[..8], [0; 8], "the first one waits for a pass");
    assert!(pair.result(0, 1).is_ok() && pair.result(0, 2).is_ok());
    assert_eq!(memory.to_vec()[..9], [2, 2, 2, 2, 2, 2, 2, 2, 1]);
}

#[test]
fn what_may_be_submitted_without_a_pass_is_bounded() {
    let mut pair = Pair::new();
    let Target { remote, .. } = pair.target(Access::ALL);
    let source = Region::from_vec(vec![1; 8]).whole();
    let mut queue = VecDeque::new();
    for token in 1..=300_000 {
        let spans = [RemoteSpan { offset: 0, len: 8 }].into();
        let local = [source.clone()].into();
        let (token, level) = (Token(token), Level::Reusable);
        queue.push_back(Operation::Put { token, remote, local, spans, level, event: None });
    }
    pair.ends[0].submit(&mut queue);
    assert!(!queue.is_empty(), "no room for all of them");
    let accepted = 300_000 - queue.len();
    let mut seen: HashMap<Token, u32> = HashMap::new();
    let begin = Instant::now();
    while seen.len() < accepted {
        assert!(begin.elapsed() < PATIENCE, "{} of {accepted} completed", seen.len());
        pair.pass();
        for event in pair.events[0].drain(..) {
            // It follows that the peer was full.
            if let Event::Writable { .. } = event {
                continue;
            }
            let Event::Done { token, result: Ok(Done::Put) } = event else { panic!("{event:?}") };
            *seen.entry(token).or_default() += 1;
        }
    }
    (0..100).for_each(|_| pair.pass());
    let mut others = pair.events[0].iter();
    assert!(others.all(|event| matches!(event, Event::Writable { .. })), "{:?}", pair.events[0]);
    assert!(seen.values().all(|times| *times == 1));
}

#[test]
fn messages_of_all_levels_and_lengths_keep_their_order() {
    let mut pair = Pair::new();
    let (there, mut queue) = (pair.there, VecDeque::new());
    let lengths = [8, 1, 60, 112, 113, 500, 4096, 4097, 20_000];
    let levels = [Level::Reusable, Level::Delivered, Level::Reusable, Level::Visible];
    const COUNT: u64 = 2000;
    let message = |nth: u64| {
        let mut bytes = vec![0; lengths[nth as usize % lengths.len()].max(8)];
        bytes[..8].copy_from_slice(&nth.to_le_bytes());
        bytes
    };
    for nth in 0..COUNT {
        let payload = match nth % 3 {
            0 => Payload::Memory(Region::from_vec(message(nth)).whole()),
            _ => Payload::Bytes(Bytes::from(message(nth))),
        };
        let level = levels[nth as usize % levels.len()];
        queue.push_back(Operation::Send { token: Token(nth), peer: there, payload, level });
    }
    let (mut came, mut done, begin) = (0, vec![0; COUNT as usize], Instant::now());
    while came < COUNT || done.contains(&0) {
        assert!(begin.elapsed() < PATIENCE, "{came} came");
        pair.ends[0].submit(&mut queue);
        pair.pass();
        for event in pair.events[1].drain(..) {
            let Event::Message { message: bytes, .. } = event else { panic!("{event:?}") };
            assert_eq!(bytes.to_vec(), message(came), "message {came}");
            came += 1;
        }
        for event in pair.events[0].drain(..) {
            let Event::Done { token, result: Ok(Done::Sent) } = event else { panic!("{event:?}") };
            done[token.0 as usize] += 1;
        }
    }
    (0..100).for_each(|_| pair.pass());
    assert!(pair.events[0].is_empty() && done.iter().all(|times| *times == 1));
}

fn tagged(token: u64, peer: Peer, bytes: Vec<u8>, level: Level) -> Operation {
    let payload = Payload::Bytes(Bytes::from(bytes));
    Operation::SendTagged { token: Token(token), peer, tag: 5, payload, level }
}

fn receive(token: u64, into: &Region) -> Operation {
    let into = into.whole();
    Operation::PostReceive { token: Token(token), source: None, tag: 5, ignore: 0, into }
}

#[test]
fn a_short_expected_message_is_sent_when_it_is_submitted() {
    let mut pair = Pair::new();
    let (there, into) = (pair.there, Region::zeroed(64));
    // The first asks how many places there are.
    for (token, sent) in [(1, "in a pass"), (2, "when it is submitted")] {
        pair.submit(1, receive(token, &into));
        pair.submit(0, tagged(token, there, vec![token as u8; 8], Level::Reusable));
        if token == 2 {
            let (now, mut events) = (pair.clock.now(), Vec::new());
            pair.ends[1].progress(now, 64, &mut events);
            assert!(matches!(
                events[..],
                [Event::Done { result: Ok(Done::Tagged { len: 8, .. }), .. }]
            ));
            assert!(pair.events[0].is_empty(), "no event comes before a pass");
            pair.events[1].extend(events);
        }
        assert!(pair.result(0, token).is_ok() && pair.result(1, token).is_ok(), "{sent}");
        assert_eq!(into.to_vec()[..8], [token as u8; 8], "{sent}");
    }
}

#[test]
fn expected_messages_of_all_levels_and_lengths_keep_their_order() {
    let mut pair = Pair::new();
    let there = pair.there;
    let lengths = [8, 100, 4096, 8, 5000, 8, 8];
    let levels = [Level::Reusable, Level::Reusable, Level::Delivered, Level::Visible];
    const COUNT: u64 = 2000;
    let message = |nth: u64| {
        let mut bytes = vec![0; lengths[nth as usize % lengths.len()]];
        bytes[..8].copy_from_slice(&nth.to_le_bytes());
        bytes
    };
    let send = |nth| tagged(nth, there, message(nth), levels[nth as usize % levels.len()]);
    let mut queue: VecDeque<_> = (0..COUNT).map(send).collect();
    let into: Vec<_> = (0..COUNT).map(|_| Region::zeroed(5000)).collect();
    let (mut posted, mut sent, mut came, begin) = (0, 0, 0, Instant::now());
    for round in 0.. {
        if sent == COUNT && came == COUNT {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "{sent} sent, {came} came");
        // Now and then more come than there are receives, and the reverse.
        for _ in 0..[1, 200, 7, 0, 1][round % 5] {
            queue.pop_front().into_iter().for_each(|operation| pair.submit(0, operation));
        }
        pair.pass();
        let end = COUNT.min(posted + [0, 1, 0, 90][round % 4]);
        (posted..end).for_each(|nth| pair.submit(1, receive(nth, &into[nth as usize])));
        posted = end;
        for event in pair.events[0].drain(..) {
            assert!(matches!(event, Event::Done { result: Ok(Done::Sent), .. }), "{event:?}");
            sent += 1;
        }
        for event in pair.events[1].drain(..) {
            let Event::Done { token: Token(nth), result } = event else { panic!("{event:?}") };
            let Ok(Done::Tagged { len, .. }) = result else { panic!("{result:?}") };
            assert_eq!(into[nth as usize].to_vec()[..len as usize], message(nth), "receive {nth}");
            came += 1;
        }
    }
}

#[test]
fn no_more_expected_messages_are_sent_than_there_are_places_for() {
    let mut pair = Pair::new();
    let (there, into) = (pair.there, Region::zeroed(64));
    const COUNT: u64 = 1000;
    pair.submit(1, receive(COUNT, &into));
    pair.submit(0, tagged(COUNT, there, vec![0; 8], Level::Reusable));
    assert!(pair.result(0, COUNT).is_ok() && pair.result(1, COUNT).is_ok());
    for nth in 0..COUNT {
        pair.submit(0, tagged(nth, there, nth.to_le_bytes().to_vec(), Level::Reusable));
    }
    (0..100).for_each(|_| pair.pass());
    for nth in 0..COUNT {
        pair.submit(1, receive(nth, &into));
        assert!(matches!(pair.result(1, nth), Ok(Done::Tagged { len: 8, .. })));
        assert_eq!(into.to_vec()[..8], nth.to_le_bytes());
    }
    (0..COUNT).for_each(|nth| assert!(pair.result(0, nth).is_ok()));
    assert!(pair.events.iter().all(Vec::is_empty), "{:?}", pair.events);
}
