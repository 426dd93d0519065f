//! A message at the levels `Delivered` and `Visible` is complete when its receiver has taken it,
//! and not before; whatever becomes of the peer, it completes once.

use bytes::Bytes;
use petasos_fabric::{
    Clock, Done, Endpoint, Event, Lease, Level, LostReason, OpErrorKind, Operation, Payload, Peer,
    Sleep, Token,
};
use petasos_shm::Shm;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Two endpoints: the first sends to the second.
struct Pair {
    a: Shm,
    b: Option<Shm>,
    ab: Peer,
    clock: Clock,
    done: Vec<(u64, Result<Done, OpErrorKind>)>,
    came: usize,
}

impl Pair {
    fn new() -> Pair {
        let open = || Shm::open(&"shm://*".parse().unwrap()).unwrap();
        let (mut a, b) = (open(), open());
        let ab = a.resolve(b.address(), PATIENCE).unwrap();
        let mut pair = Pair { a, b: Some(b), ab, clock: Clock::start(), done: Vec::new(), came: 0 };
        let (mut ups, begin) = (0, Instant::now());
        while ups < 2 {
            assert!(begin.elapsed() < PATIENCE, "both are up");
            let mut events = Vec::new();
            pair.a.progress(pair.clock.now(), 64, &mut events);
            pair.b.as_mut().unwrap().progress(pair.clock.now(), 64, &mut events);
            ups += events.iter().filter(|e| matches!(e, Event::PeerUp { .. })).count();
        }
        pair
    }

    fn send(&mut self, token: u64, len: usize, level: Level) {
        let payload = Payload::Bytes(Bytes::from(vec![token as u8; len]));
        let send = Operation::Send { token: Token(token), peer: self.ab, payload, level };
        let mut queue = VecDeque::from([send]);
        self.a.submit(&mut queue);
        assert!(queue.is_empty(), "it is accepted");
    }

    /// So many passes of the sender.
    fn sender(&mut self, passes: u32) {
        let mut events = Vec::new();
        (0..passes).for_each(|_| _ = self.a.progress(self.clock.now(), 64, &mut events));
        for event in events {
            match event {
                Event::Done { token, result } => {
                    self.done.push((token.0, result.map_err(|error| error.kind.clone())));
                }
                Event::PeerLost { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// A pass of the receiver, which takes so many messages at most.
    fn receiver(&mut self, most: usize) {
        let (now, mut events) = (self.clock.now(), Vec::new());
        self.b.as_mut().unwrap().progress(now, most, &mut events);
        self.came += events.iter().filter(|e| matches!(e, Event::Message { .. })).count();
    }

    fn tokens(&self) -> Vec<u64> {
        self.done.iter().map(|(token, _)| *token).collect()
    }
}

#[test]
fn it_is_complete_when_the_receiver_has_taken_it_and_not_before() {
    for (level, len) in [(Level::Delivered, 8), (Level::Visible, 0), (Level::Delivered, 3000)] {
        let mut pair = Pair::new();
        // The first may ask for credit, and takes the longer path then.
        for token in 0..3 {
            pair.send(token, len, level);
            pair.sender(100);
            assert_eq!(pair.done.len(), token as usize, "{level:?}, {len} bytes: too early");
            let begin = Instant::now();
            while pair.done.len() <= token as usize {
                assert!(begin.elapsed() < PATIENCE);
                pair.receiver(64);
                pair.sender(1);
            }
            assert_eq!(pair.came, token as usize + 1);
        }
        assert!(pair.done.iter().all(|(_, result)| matches!(result, Ok(Done::Sent))));
        assert_eq!(pair.tokens(), [0, 1, 2]);
    }
}

#[test]
fn a_receiver_that_only_polls_for_messages_completes_it_too() {
    let mut pair = Pair::new();
    pair.send(1, 8, Level::Delivered);
    pair.sender(10);
    let mut message = Lease::default();
    assert!(pair.b.as_mut().unwrap().poll_message(&mut message).is_some());
    assert_eq!(message[..], [1; 8]);
    assert!(pair.done.is_empty());
    pair.sender(1);
    assert_eq!(pair.tokens(), [1]);
}

#[test]
fn of_a_peer_that_ends_those_that_it_took_are_complete_and_the_others_fail() {
    let mut pair = Pair::new();
    (0..4).for_each(|token| pair.send(token, 8, Level::Delivered));
    pair.receiver(1);
    pair.b = None;
    let begin = Instant::now();
    while pair.done.len() < 4 {
        assert!(begin.elapsed() < PATIENCE, "{:?}", pair.done);
        pair.sender(1);
    }
    pair.sender(1000);
    assert_eq!(pair.tokens(), [0, 1, 2, 3]);
    for (token, result) in &pair.done {
        match token {
            0 => assert!(matches!(result, Ok(Done::Sent)), "{result:?}"),
            _ => assert!(matches!(result, Err(OpErrorKind::PeerLost(_))), "{token}: {result:?}"),
        }
    }
}

#[test]
fn of_a_peer_that_is_forgotten_and_when_it_is_cancelled_it_completes_once() {
    let mut pair = Pair::new();
    (0..4).for_each(|token| pair.send(token, 8, Level::Delivered));
    pair.a.cancel(Token(2));
    pair.a.cancel(Token(2));
    pair.sender(1);
    assert!(matches!(pair.done[..], [(2, Err(OpErrorKind::Cancelled))]), "{:?}", pair.done);
    pair.receiver(1);
    let ab = pair.ab;
    pair.a.forget(ab);
    pair.a.cancel(Token(3));
    pair.sender(100);
    assert_eq!(pair.tokens(), [2, 0, 1, 3]);
    for (token, result) in &pair.done[1..] {
        match token {
            0 => assert!(matches!(result, Ok(Done::Sent)), "{result:?}"),
            _ => assert_eq!(
                result.as_ref().err(),
                Some(&OpErrorKind::PeerLost(LostReason::Forgotten))
            ),
        }
    }
}

#[test]
fn a_sender_that_sleeps_is_woken_when_it_is_taken() {
    let mut pair = Pair::new();
    pair.send(1, 8, Level::Delivered);
    let begin = Instant::now();
    while pair.a.arm(pair.clock.now()) == Sleep::Busy {
        assert!(begin.elapsed() < PATIENCE, "it may sleep");
        pair.sender(1);
    }
    let readable = |end: &Shm, patience| {
        let fd = end.fd().expect("it has one");
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience)).unwrap() > 0
    };
    assert!(!readable(&pair.a, Timespec { tv_sec: 0, tv_nsec: 0 }));
    pair.receiver(64);
    assert_eq!(pair.came, 1);
    assert!(readable(&pair.a, Timespec { tv_sec: 20, tv_nsec: 0 }), "it is rung");
    pair.sender(1);
    assert_eq!(pair.tokens(), [1]);
}
