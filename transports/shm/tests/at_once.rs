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
    assert!(pair.events[0].is_empty() && seen.values().all(|times| *times == 1));
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
