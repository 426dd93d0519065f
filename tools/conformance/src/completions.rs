//! Completions that are polled for: each once, with all that its event would have said; and other
//! events neither lost nor passed.

use crate::world::{Node, Seat, World, memory, pattern, room};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Completion, Event, InjectError, Level, OpErrorKind, Operation,
    Payload, Peer, Status, Token,
};
use smallvec::smallvec;
use std::time::Duration;

/// What an endpoint that is read by `next_completion` alone has reported.
#[derive(Default)]
struct Read {
    /// What stays to be handled, in its order.
    events: Vec<Event>,
    /// Tokens, statuses and lengths, in the order in which they were polled.
    polled: Vec<(Token, Status, u64)>,
}

impl Read {
    /// One turn of all endpoints, in which this one is read so, and nothing else is done with it.
    fn turn(&mut self, w: &mut World, n: Node) -> bool {
        w[n].frozen = true;
        let mut worked = w.step();
        w[n].frozen = false;
        let now = w.now();
        let Seat { endpoint, queue, flooded, .. } = &mut w[n];
        endpoint.as_mut().expect("it is read").submit(queue);
        flooded.extend(queue.iter().filter_map(Operation::target));
        while let Some(completion) = w[n].endpoint().next_completion(now, &mut self.events) {
            self.took(w, n, completion);
            worked = true;
        }
        // After a `None` the first event is another one, and the endpoint is not asked again.
        assert!(!matches!(self.events.first(), Some(Event::Done { .. })), "a completion was left");
        if !self.events.is_empty() {
            let before = self.events.len();
            assert!(w[n].endpoint().next_completion(now, &mut self.events).is_none());
            assert_eq!(self.events.len(), before, "a pass before events are handled");
            worked = true;
        }
        for event in std::mem::take(&mut self.events) {
            if let Event::Done { token, result } = &event {
                let (status, len) = match result {
                    Ok(done) => {
                        let same = Completion::new(*token, Ok(done.clone()));
                        (same.status(), same.len())
                    }
                    Err(_) => (Status::Failed, 0),
                };
                self.polled.push((*token, status, len));
            }
            w.happened(n, event);
        }
        worked
    }

    fn took(&mut self, w: &mut World, n: Node, completion: Completion) {
        let (token, status) = (completion.token(), completion.status());
        assert_eq!(completion.is_ok(), status != Status::Failed);
        assert_eq!(completion.error().is_some(), status == Status::Failed);
        if let Some(error) = completion.error() {
            assert!(!error.to_string().is_empty(), "a failure without a text");
        }
        self.polled.push((token, status, completion.len()));
        w.happened(n, Event::from(completion));
    }

    /// Turns until all of these have completed. What each said.
    fn until(&mut self, w: &mut World, n: Node, tokens: &[Token]) -> Vec<(Status, u64)> {
        let end = w.now().after(w.fixture().deadline());
        let mut idle = 0;
        w.settle();
        while !tokens.iter().all(|token| self.polled.iter().any(|(polled, ..)| polled == token)) {
            assert!(w.now() < end, "these do not complete: {tokens:?}, but {:?}", self.polled);
            match self.turn(w, n) {
                true => idle = 0,
                false => {
                    w.fixture().pass(idle);
                    idle += 1;
                }
            }
        }
        w.settle();
        let of = |token: &Token| {
            let mut all = self.polled.iter().filter(|(polled, ..)| polled == token);
            let (_, status, len) = *all.next().expect("just seen");
            assert!(all.next().is_none(), "{token:?} completed twice");
            (status, len)
        };
        tokens.iter().map(of).collect()
    }
}

/// Each kind of operation, with its status and its length.
pub fn each_kind(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    let mut read = Read::default();
    let (mut tokens, mut expected) = (Vec::new(), Vec::new());
    for level in [Level::Reusable, Level::Delivered, Level::Visible] {
        let payload = Payload::Bytes(pattern(100, 1).into());
        tokens.push(w.op(a, |token| Operation::Send { token, peer: ab, payload, level }));
        expected.push((Status::Sent, 0));
    }
    if w.has(a, |c| c.tagged) {
        let into = room(64);
        tokens.push(w.post(a, Some(ab), 7, 0, &into));
        expected.push((Status::Tagged, 8));
        w.send_tagged(b, ba, 7, b"8 bytes.");
        tokens.push(w.send_tagged(a, ab, 9, b"to you"));
        expected.push((Status::Sent, 0));
        w.post(b, Some(ba), 9, 0, &room(64));
    }
    if w.has(a, |c| c.remote_access) {
        let target = room(4096);
        let (_, key) = w.expose(b, &target, Access::ALL);
        let remote = w.import(a, &key);
        for len in [8, 3000] {
            tokens.push(w.put(a, remote, 0, &memory(&pattern(len, 2))));
            tokens.push(w.get(a, remote, 0, &room(len)));
            expected.extend([(Status::Put, 0), (Status::Got, 0)]);
        }
        tokens.push(w.put(a, remote, 4090, &memory(&[0; 8])));
        expected.push((Status::Failed, 0));
        if w.has(a, |c| c.atomics) {
            for fetch in [false, true] {
                let (op, kind, operand) = (AtomicOp::Sum, AtomicType::U64, 1u64.to_le_bytes());
                tokens.push(w.op(a, |token| Operation::Atomic {
                    token,
                    remote,
                    offset: 8,
                    op,
                    kind,
                    operand: operand[..].into(),
                    compare: smallvec![],
                    fetch,
                }));
            }
            expected.extend([(Status::Atomic, 0), (Status::Fetched, 8)]);
        }
        if w.has(a, |c| c.flush) {
            // It tells of the put that failed.
            tokens.push(w.op(a, |token| Operation::Flush { token, peer: ab }));
            expected.push((Status::Failed, 0));
        }
    }
    assert_eq!(read.until(w, a, &tokens), expected);
    w.until("the other end is done", |w| w[b].ledger.is_settled());
}

/// What failed says why, and which peer it was; what was cancelled, too.
pub fn failures(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let address = w.address(b);
    let mut read = Read::default();
    let unknown = Peer { index: 9999, generation: 1 };
    let stale = w.send(a, unknown, b"to none");
    assert_eq!(read.until(w, a, &[stale]), [(Status::Failed, 0)]);
    w.fails(a, stale, |kind| *kind == OpErrorKind::UnknownPeer);
    if w.has(a, |c| c.tagged) {
        let posted = w.post(a, Some(ab), 1, 0, &room(8));
        w.until("it is accepted", |w| w.accepted(a));
        w.cancel(a, posted);
        assert_eq!(read.until(w, a, &[posted]), [(Status::Failed, 0)]);
        w.fails(a, posted, |kind| *kind == OpErrorKind::Cancelled);
        // The peer is lost under some.
        let posted: Vec<Token> = (0..3).map(|_| w.post(a, Some(ab), 1, 0, &room(8))).collect();
        w.until("they are accepted", |w| w.accepted(a));
        let later = w.post(a, Some(ab), 2, 0, &room(8));
        w.until("it is accepted", |w| w.accepted(a));
        w.kill(b);
        let all: Vec<Token> = posted.into_iter().chain([later]).collect();
        assert_eq!(read.until(w, a, &all), [(Status::Failed, 0); 4]);
        for token in all {
            let error = w.failure(a, token);
            assert!(matches!(error.kind, OpErrorKind::PeerLost(_)), "{error}");
            assert!(error.to_string().contains(address.as_str()), "{error} names no peer");
        }
    } else {
        w.kill(b);
    }
    let end = w.now().after(w.fixture().deadline());
    while w[a].lost.is_empty() {
        assert!(w.now() < end, "the loss is not reported");
        if !read.turn(w, a) {
            w.fixture().pass(0);
        }
    }
    assert_eq!(w[a].lost.iter().filter(|(peer, _)| *peer == ab).count(), 1);
}

/// Messages and puts with events that come meanwhile are all reported, in their order, and each
/// operation completes once.
pub fn among_other_events(w: &mut World) {
    const EACH: usize = 200;
    let (a, b, ab, ba) = w.pair();
    let mut read = Read::default();
    let target = room(EACH * 8);
    let events = w.has(b, |c| c.put_with_event);
    let (_, key) = w.expose(a, &target, Access::ALL);
    let remote = events.then(|| w.import(b, &key));
    let mut sent = Vec::new();
    for nth in 0..EACH {
        sent.push(w.send(a, ab, &pattern(nth, 0)));
        // Read as it goes on, so that messages, completions and room mix.
        let number = (nth as u64).to_le_bytes();
        while let Err(error) = w.try_inject(b, ba, &[&number]) {
            assert_eq!(error, InjectError::Full);
            if !read.turn(w, a) {
                w.fixture().pass(0);
            }
        }
        if let Some(remote) = remote {
            let (local, offset) = (memory(&[7; 8]), nth as u64 * 8);
            w.op(b, |token| Operation::Put {
                token,
                remote,
                local: [local].into(),
                spans: [petasos_fabric::RemoteSpan { offset, len: 8 }].into(),
                level: Level::Visible,
                event: Some(nth as u64),
            });
        }
        if nth % 3 == 0 {
            read.turn(w, a);
        }
    }
    assert!(read.until(w, a, &sent).iter().all(|done| *done == (Status::Sent, 0)));
    let arrivals = if events { EACH } else { 0 };
    let end = w.now().after(w.fixture().deadline());
    while w[a].messages.len() < EACH || w[a].arrivals.len() < arrivals {
        assert!(w.now() < end, "{} messages, {} puts", w[a].messages.len(), w[a].arrivals.len());
        if !read.turn(w, a) {
            w.fixture().pass(0);
        }
    }
    let numbers: Vec<u64> = w[a].messages.iter().map(|(_, bytes)| number(bytes)).collect();
    assert!(numbers.iter().copied().eq(0..EACH as u64), "messages in another order: {numbers:?}");
    let mut puts: Vec<u64> = w[a].arrivals.iter().map(|arrival| arrival.4).collect();
    puts.sort_unstable();
    assert!(puts.into_iter().eq(0..arrivals as u64), "puts that are missing, or came twice");
    w.until("the other end is done", |w| w[b].ledger.is_settled());
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes.try_into().expect("a number"))
}

/// Events that were not handled stay in front: no pass is made, and nothing passes them.
pub fn behind_an_event(w: &mut World) {
    let (a, _, ab, _) = w.pair();
    let sent = w.send(a, ab, b"hello");
    let now = w.now();
    let mut events = vec![Event::Writable { peer: ab }];
    for _ in 0..3 {
        assert!(w[a].endpoint().next_completion(now, &mut events).is_none());
        assert!(matches!(events[..], [Event::Writable { .. }]), "{events:?}");
    }
    let mut read = Read::default();
    assert_eq!(read.until(w, a, &[sent]), [(Status::Sent, 0)]);
}

/// One that always finds a completion drives its endpoint all the same: what comes from others is
/// not left for good.
pub fn others_are_not_left(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let target = w[b].endpoint().alloc(4096).expect("memory").whole();
    let (_, key) = w.expose(b, &target, Access::ALL);
    let remote = w.import(a, &key);
    let local = memory(&[7; 8]);
    // Until it is mapped, where it can be.
    for _ in 0..20 {
        let put = w.put_at(a, remote, 0, &local, Level::Reusable);
        w.ok(a, put);
        w.run_for(Duration::from_micros(500));
    }
    w.inject(b, ba, b"from another");
    let mut read = Read::default();
    let end = w.now().after(w.fixture().deadline());
    while w[a].messages.is_empty() {
        assert!(w.now() < end, "a message is left for completions");
        let put = w.put_at(a, remote, 0, &local, Level::Reusable);
        // At once, or with the help of the other end; never more than one is under way.
        let mut polls = 0;
        while w[a].ledger.result(put).is_none() {
            assert!(w.now() < end, "{put:?} does not complete");
            let now = w.now();
            let next = w[a].endpoint().next_completion(now, &mut read.events);
            if let Some(completion) = next {
                read.took(w, a, completion);
            } else if polls < 2 {
                polls += 1;
                let events: Vec<Event> = read.events.drain(..).collect();
                events.into_iter().for_each(|event| w.happened(a, event));
            } else if !read.turn(w, a) {
                w.fixture().pass(0);
            }
        }
    }
    assert_eq!(w[a].messages.pop_front(), Some((ab, b"from another".to_vec())));
}
