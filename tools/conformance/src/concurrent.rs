//! Endpoints on threads of their own, which contend.
//!
//! Like the probes of sleeping these need real time, and end where there is no descriptor.

use crate::{
    Fixture, Random,
    world::{Node, World, all_are, memory, room},
};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, Endpoint, Event, InjectError, Key, Level, OpError,
    OpErrorKind, Operation, Remote, RemoteSpan, Slice, Support, Token,
};
use smallvec::smallvec;
use std::{
    collections::{HashMap, VecDeque},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{TryRecvError, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes before and after a part.
const BESIDE: usize = 4096;

/// Runs an operation to its end; other events are dropped.
fn complete(
    fixture: &dyn Fixture,
    end: &mut dyn Endpoint,
    operation: Operation,
) -> Result<Done, OpError> {
    let wanted = operation.token();
    let mut queue = VecDeque::from([operation]);
    let mut events = Vec::new();
    let begin = fixture.now();
    loop {
        end.submit(&mut queue);
        let worked = end.progress(fixture.now(), 16, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Done { token, result } if token == wanted => return result,
                _ => {}
            }
        }
        if !worked {
            thread::yield_now();
        }
        let waited = fixture.now().since(begin);
        assert!(waited < fixture.deadline(), "{wanted:?} did not complete in {waited:?}");
    }
}

fn put(remote: Remote, from: &Slice) -> Operation {
    Operation::Put {
        token: Token(1),
        remote,
        local: smallvec![from.clone()],
        spans: smallvec![RemoteSpan { offset: 0, len: from.len() as u64 }],
        level: Level::Visible,
        event: None,
    }
}

/// An owner closes its region while a peer on another thread writes to it without pause: what
/// the owner writes after the end of closing stays.
pub fn closing_under_fire(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if w[a].endpoint().fd().is_some() && w.has(a, |c| c.remote_access) {
        close_under_fire(w, (a, b), false);
    }
}

/// The same for a key to the middle of a region, which stays open.
pub fn revoking_under_fire(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if w[a].endpoint().fd().is_some() && w.has(b, |c| c.part_keys) {
        close_under_fire(w, (a, b), true);
    }
}

fn close_under_fire(w: &mut World, (a, b): (Node, Node), part: bool) {
    let (mut initiator, mut owner) = (w.take_out(a), w.take_out(b));
    let (patience, fixture) = (w.patience(), w.fixture());
    let (send, keys) = channel::<Key>();
    let len = 4 << 20;
    let landed = &AtomicU64::new(0);
    thread::scope(|scope| {
        let fire = scope.spawn(move || {
            let from = memory(&vec![1; len]);
            loop {
                match keys.try_recv() {
                    Err(TryRecvError::Disconnected) => return initiator,
                    Err(TryRecvError::Empty) => {
                        initiator.progress(fixture.now(), 16, &mut Vec::new());
                        thread::yield_now();
                    }
                    Ok(key) => {
                        let remote = initiator.import(&key).expect("a key");
                        loop {
                            match complete(fixture, &mut *initiator, put(remote, &from)) {
                                Ok(_) => _ = landed.fetch_add(1, Ordering::Relaxed),
                                Err(error) => {
                                    assert_eq!(error.kind, OpErrorKind::StaleKey, "{error}");
                                    break;
                                }
                            }
                        }
                        initiator.release(remote);
                    }
                }
            }
        });
        let mut random = Random::new(8);
        let drive = |owner: &mut dyn Endpoint, micros: usize| {
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(micros as u64) {
                owner.progress(fixture.now(), 16, &mut Vec::new());
                thread::yield_now();
            }
        };
        let whole = room(len + 2 * BESIDE);
        let middle = whole.part(BESIDE, len).expect("within");
        let around = owner.register(&whole, Access::ALL).expect("a region");
        for round in 0..40 {
            let target = if part { middle.clone() } else { room(len) };
            let (token, enough) = (Token(2), Operation::PATIENCE);
            let (key, close) = if part {
                let range = BESIDE as u64..(BESIDE + len) as u64;
                let (id, key) = owner.export_part(around, range, Access::WRITE).expect("a key");
                (key, Operation::Revoke { token, key: id, patience: enough })
            } else {
                let region = owner.register(&target, Access::WRITE).expect("a region");
                let key = owner.export(region).expect("a key");
                (key, Operation::Deregister { token, region, patience: enough })
            };
            send.send(key).expect("the initiator listens");
            drive(&mut *owner, random.below(8000));
            // On a busy machine the first one takes its time.
            let begin = Instant::now();
            while landed.load(Ordering::Relaxed) == 0 && begin.elapsed() < patience {
                drive(&mut *owner, 1000);
            }
            complete(fixture, &mut *owner, close).expect("a region is closed, or a key revoked");
            target.write(0, &vec![0xEE; len]);
            drive(&mut *owner, 1000);
            let untouched = all_are(&target.to_vec(), 0xEE);
            assert!(untouched, "a put landed after the end of its key, in round {round}");
        }
        drop(send);
        while !fire.is_finished() {
            drive(&mut *owner, 100);
        }
        let _initiator = fire.join().expect("the initiator");
        assert!(landed.load(Ordering::Relaxed) > 0, "nothing was put at all");
        let all = whole.to_vec();
        let beside = all[..BESIDE].iter().chain(&all[BESIDE + len..]);
        assert!(beside.copied().all(|byte| byte == 0), "a put reached beyond its part");
    });
}

/// Where the capability says so, sums of a peer and of the processor to one word lose nothing.
pub fn sums_beside_the_processor(w: &mut World) {
    let owner = w.open();
    let can = w.capabilities(owner);
    if w[owner].endpoint().fd().is_none() || can.atomics == Support::None || !can.processor_atomics
    {
        return;
    }
    let target = room(8);
    let (_, key) = w.expose(owner, &target, Access::ALL);
    let other = w.open();
    let remote = w.import(other, &key);
    let (mut owner, mut other) = (w.take_out(owner), w.take_out(other));
    let fixture = w.fixture();
    let (one, each) = (1u64.to_le_bytes(), 500u64);
    let done = &AtomicBool::new(false);
    let ours = thread::scope(|scope| {
        let adder = scope.spawn(move || {
            for _ in 0..each {
                let sum = Operation::Atomic {
                    token: Token(1),
                    remote,
                    offset: 0,
                    op: AtomicOp::Sum,
                    kind: AtomicType::U64,
                    operand: one[..].into(),
                    compare: smallvec![],
                    fetch: false,
                };
                complete(fixture, &mut *other, sum).expect("a sum");
            }
            other
        });
        let here = target.clone();
        let processor = scope.spawn(move || {
            let mut count = 0u64;
            while !done.load(Ordering::Relaxed) {
                let sum = here.atomic(0, AtomicOp::Sum, AtomicType::U64, &one, &[]);
                sum.expect("a word in ordinary memory");
                count += 1;
            }
            count
        });
        while !adder.is_finished() {
            owner.progress(fixture.now(), 64, &mut Vec::new());
            thread::yield_now();
        }
        done.store(true, Ordering::Relaxed);
        drop(adder.join().expect("an adder"));
        processor.join().expect("the processor")
    });
    let mut sum = [0; 8];
    target.read(0, &mut sum);
    assert_eq!(u64::from_le_bytes(sum), each + ours, "sums were lost");
}

/// Sums from several threads to one word lose nothing.
pub fn sums_from_threads(w: &mut World) {
    let owner = w.open();
    if w[owner].endpoint().fd().is_none() || !w.has(owner, |c| c.atomics) {
        return;
    }
    let target = room(8);
    let (_, key) = w.expose(owner, &target, Access::ALL);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let n = w.open();
            w.import(n, &key);
            w.take_out(n)
        })
        .collect();
    let mut owner = w.take_out(owner);
    let fixture = w.fixture();
    let each = 300u64;
    thread::scope(|scope| {
        let adders: Vec<_> = threads
            .into_iter()
            .map(|mut end| {
                let key = key.clone();
                scope.spawn(move || {
                    let remote = end.import(&key).expect("a key");
                    for _ in 0..each {
                        let sum = Operation::Atomic {
                            token: Token(1),
                            remote,
                            offset: 0,
                            op: AtomicOp::Sum,
                            kind: AtomicType::U64,
                            operand: 1u64.to_le_bytes()[..].into(),
                            compare: smallvec![],
                            fetch: false,
                        };
                        complete(fixture, &mut *end, sum).expect("a sum");
                    }
                    end
                })
            })
            .collect();
        while !adders.iter().all(|adder| adder.is_finished()) {
            owner.progress(fixture.now(), 64, &mut Vec::new());
            thread::yield_now();
        }
        for adder in adders {
            drop(adder.join().expect("an adder"));
        }
    });
    let mut sum = [0; 8];
    target.read(0, &mut sum);
    assert_eq!(u64::from_le_bytes(sum), 3 * each);
}

/// Says that it is over, in the end, however that comes about.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Three threads write to one receiver as fast as it allows: each in its order, nothing lost.
pub fn messages_from_threads(w: &mut World) {
    let receiver = w.open();
    if w[receiver].endpoint().fd().is_none() {
        return;
    }
    let address = w.address(receiver);
    let senders: Vec<_> = (0..3).map(|_| w.open()).collect();
    let senders: Vec<_> = senders.into_iter().map(|n| w.take_out(n)).collect();
    let mut receiver = w.take_out(receiver);
    let (patience, fixture) = (w.patience(), w.fixture());
    let each = 5000u32;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let done = &done;
        let threads: Vec<_> = senders
            .into_iter()
            .map(|mut end| {
                let address = address.clone();
                scope.spawn(move || {
                    let peer = end.resolve(&address, patience).expect("a handle");
                    let mut events = Vec::new();
                    for i in 0..each {
                        let bytes = vec![i as u8; (i % 300) as usize];
                        let mut writable = true;
                        loop {
                            if writable {
                                match end.inject(peer, &[&i.to_le_bytes(), &bytes]) {
                                    Ok(()) => break,
                                    Err(InjectError::Full) => writable = false,
                                    Err(error) => panic!("message {i}: {error}"),
                                }
                            }
                            // Nobody takes it any more.
                            if done.load(Ordering::Relaxed) {
                                return;
                            }
                            if !end.progress(fixture.now(), 8, &mut events) {
                                thread::yield_now();
                            }
                            writable |= (events.drain(..))
                                .any(|event| matches!(event, Event::Writable { .. }));
                        }
                    }
                    // What was injected last may need its sender to go on.
                    while !done.load(Ordering::Relaxed) {
                        end.progress(fixture.now(), 8, &mut events);
                        thread::yield_now();
                    }
                })
            })
            .collect();
        // Also when something below fails, for the senders would go on for ever.
        let _over = Over(done);
        let mut next = HashMap::new();
        let mut events = Vec::new();
        let begin = fixture.now();
        let mut total = 0;
        while total < 3 * each {
            receiver.progress(fixture.now(), 64, &mut events);
            for event in events.drain(..) {
                let Event::Message { peer, message } = event else {
                    continue;
                };
                let expected: &mut u32 = next.entry(peer).or_default();
                assert_eq!(message[..4], expected.to_le_bytes(), "from {peer:?}");
                assert_eq!(message[4..], vec![*expected as u8; (*expected % 300) as usize]);
                *expected += 1;
                total += 1;
            }
            let waited = fixture.now().since(begin);
            let late = waited > fixture.deadline();
            if late || threads.iter().any(|thread| thread.is_finished()) {
                panic!("{total} messages in {waited:?}: {next:?}");
            }
        }
    });
}
