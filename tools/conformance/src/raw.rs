//! Memory that its program keeps: local memory of each operation, and registered.
//!
//! It is taken back in the moment of the completion, whatever the result is. In half of the rounds
//! its pages cannot be touched from then on, and a process that does ends by a signal; in the
//! others they hold a pattern that must stay.

use crate::{
    actions::until_still,
    foreign::{Over, Pages},
    world::{Node, World, memory, pattern, room},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, Level, OpErrorKind, Operation, Payload, Peer, Remote,
    RemoteSpan, Slice, Token, memory::Releases,
};
use smallvec::smallvec;
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

const LEVELS: [Level; 3] = [Level::Reusable, Level::Delivered, Level::Visible];

/// Longer than what goes in a packet, and than a library is given at once.
const LENGTHS: [usize; 4] = [8, 4000, 40_000, 1_200_000];

/// Under way for a while.
const LONG: usize = 4 << 20;

/// Memory that goes with operations, and is taken back when they complete.
#[derive(Debug, Default)]
pub(crate) struct Lendings {
    under_way: HashMap<(Node, Token), Vec<Pages>>,
    /// What lay there at the completion.
    contents: HashMap<(Node, Token), Vec<Vec<u8>>>,
    over: Vec<Over>,
    /// Whether the pages of the next one can be touched after its completion.
    guarded: bool,
}

impl Lendings {
    /// An operation has completed.
    pub(crate) fn completed(&mut self, n: Node, token: Token) {
        let Some(all) = self.under_way.remove(&(n, token)) else { return };
        let guarded = self.guarded;
        let (contents, over): (Vec<_>, Vec<_>) =
            all.into_iter().map(|pages| pages.end(guarded)).unzip();
        self.contents.insert((n, token), contents);
        self.over.extend(over);
    }

    fn check(&mut self, what: &str) {
        let all = self.over.drain(..).all(|over| over.is_untouched());
        assert!(all, "{what}: memory was written after the completion");
    }
}

impl World<'_> {
    /// Submits an operation with memory that is taken back when it completes.
    fn with(
        &mut self,
        n: Node,
        pages: Pages,
        make: impl FnOnce(Token, Slice) -> Operation,
    ) -> Token {
        let slice = pages.slice();
        let token = self.op(n, |token| make(token, slice));
        self.lendings.under_way.entry((n, token)).or_default().push(pages);
        token
    }

    /// Waits for the success of one, and returns what lay there at its completion.
    fn content(&mut self, n: Node, token: Token) -> (Done, Vec<u8>) {
        let done = self.ok(n, token);
        let mut all = self.lendings.contents.remove(&(n, token)).expect("it had memory");
        (done, all.pop().expect("a piece"))
    }

    /// Whether late accesses end the process in this round, or are looked for.
    fn round(&mut self, guarded: bool) {
        self.lendings.guarded = guarded;
    }

    fn untouched(&mut self, what: &str) {
        self.run_for(Duration::from_millis(5));
        self.lendings.check(what);
    }
}

/// Each operation works with memory of the program's, which is freed in its completion.
pub fn every_operation(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    for (round, len) in LENGTHS.into_iter().enumerate() {
        for guarded in [true, false] {
            w.round(guarded);
            let seed = round as u8;
            w.remark(&format!("{len} bytes, guarded: {guarded}"));
            messages(w, (a, b), ab, len, seed);
            tagged(w, (a, b), ab, len, seed);
            if w.has(a, |c| c.remote_access) {
                remote_access(w, (a, b), len, seed);
            }
            w.untouched("every operation");
        }
    }
}

fn messages(w: &mut World, (a, b): (Node, Node), ab: Peer, len: usize, seed: u8) {
    let bytes = pattern(len, seed);
    for level in LEVELS {
        if len > w.capabilities(a).limits.max_message {
            break;
        }
        let sent = w.with(a, Pages::new(&bytes), |token, from| {
            let payload = Payload::Memory(from);
            Operation::Send { token, peer: ab, payload, level }
        });
        w.content(a, sent);
        assert!(w.message(b).1 == bytes, "{level:?}: a message of {len} bytes");
    }
    let sent = w.with(a, Pages::new(&bytes), |token, body| {
        let header = Bytes::from_static(b"header");
        Operation::SendLong { token, peer: ab, header, body }
    });
    let (_, _, body, _) = w.long(b);
    let received = w.with(b, Pages::new(&vec![0; len]), |token, into| Operation::Receive {
        token,
        body,
        into,
    });
    let (_, got) = w.content(b, received);
    assert!(got == bytes, "a long message of {len} bytes");
    w.content(a, sent);
}

fn tagged(w: &mut World, (a, b): (Node, Node), ab: Peer, len: usize, seed: u8) {
    if !w.has(a, |c| c.tagged) {
        return;
    }
    let bytes = pattern(len, seed ^ 0x80);
    let post = |w: &mut World, tag| {
        w.with(b, Pages::new(&vec![0; len]), |token, into| Operation::PostReceive {
            token,
            source: None,
            tag,
            ignore: 0,
            into,
        })
    };
    for (level, tag) in LEVELS.into_iter().zip(0..) {
        let before = (tag != 1).then(|| post(w, tag));
        let sent = w.with(a, Pages::new(&bytes), |token, from| {
            let payload = Payload::Memory(from);
            Operation::SendTagged { token, peer: ab, tag, payload, level }
        });
        let posted = before.unwrap_or_else(|| post(w, tag));
        let (_, got) = w.content(b, posted);
        assert!(got == bytes, "{level:?}: an expected message of {len} bytes");
        w.content(a, sent);
    }
}

fn remote_access(w: &mut World, (a, b): (Node, Node), len: usize, seed: u8) {
    let target = Pages::new(&vec![0x11; 2 * len]);
    let (region, key) = w.expose(b, &target.slice(), Access::ALL);
    let remote = w.import(a, &key);
    let bytes = pattern(len, seed ^ 0x40);
    for (level, event) in LEVELS.into_iter().flat_map(|level| [(level, None), (level, Some(7))]) {
        let put = w.with(a, Pages::new(&bytes), |token, from| Operation::Put {
            token,
            remote,
            local: smallvec![from],
            spans: smallvec![RemoteSpan { offset: len as u64, len: len as u64 }],
            level,
            event,
        });
        w.content(a, put);
        if event.is_some() {
            w.until("the put arrives", |w| !w[b].arrivals.is_empty());
            w[b].arrivals.clear();
        }
    }
    let get = w.with(a, Pages::new(&vec![0; len]), |token, into| Operation::Get {
        token,
        remote,
        local: smallvec![into],
        spans: smallvec![RemoteSpan { offset: len as u64, len: len as u64 }],
    });
    let (_, got) = w.content(a, get);
    assert!(got == bytes, "a get of {len} bytes");
    // In pieces, beside memory of regions.
    let (half, counted) = (len / 2, room(len - len / 2));
    let spans = [
        RemoteSpan { offset: len as u64, len: 3 },
        RemoteSpan { offset: len as u64 + 3, len: len as u64 - 3 },
    ];
    let get = w.with(a, Pages::new(&vec![0; half]), |token, into| Operation::Get {
        token,
        remote,
        local: smallvec![counted.clone(), into],
        spans: spans.into_iter().collect(),
    });
    let (_, rest) = w.content(a, get);
    assert!([counted.to_vec(), rest].concat() == bytes, "a get of {len} bytes in pieces");
    let add = w.has(a, |c| c.atomics);
    if add {
        let token = w.op(a, |token| Operation::Atomic {
            token,
            remote,
            offset: 0,
            op: AtomicOp::Sum,
            kind: AtomicType::U64,
            operand: 5u64.to_le_bytes()[..].into(),
            compare: smallvec![],
            fetch: true,
        });
        w.ok(a, token);
    }
    let token = w.op(a, |token| Operation::Map { token, remote });
    w.fails(a, token, |kind| matches!(kind, OpErrorKind::Unsupported(_)));
    let patience = Operation::PATIENCE;
    let close = w.op(b, |token| Operation::Deregister { token, region, patience });
    w.lendings.under_way.insert((b, close), vec![target]);
    let (_, content) = w.content(b, close);
    assert!(content[len..] == bytes, "what was put");
    let sum = u64::from_le_bytes([0x11; 8]) + 5;
    let first = if add { sum.to_le_bytes() } else { [0x11; 8] };
    assert_eq!(content[..8], first);
    let put = w.put(a, remote, 0, &memory(&[1; 8]));
    w.fails(a, put, |kind| *kind == OpErrorKind::StaleKey);
    w[a].endpoint().release(remote);
}

/// Each kind of operation, with memory of the program's, under way from `a`.
fn start_all(w: &mut World, a: Node, peer: Peer, remote: Option<Remote>) -> Vec<Token> {
    let long = || Pages::new(&vec![1; LONG]);
    let mut all = vec![];
    let short = w.capabilities(a).limits.max_message.min(60_000);
    for len in [100, short] {
        all.push(w.with(a, Pages::new(&vec![2; len]), |token, from| {
            let (payload, level) = (Payload::Memory(from), Level::Visible);
            Operation::Send { token, peer, payload, level }
        }));
    }
    all.push(w.with(a, long(), |token, body| {
        let header = Bytes::from_static(b"header");
        Operation::SendLong { token, peer, header, body }
    }));
    if w.has(a, |c| c.tagged) {
        all.push(w.with(a, long(), |token, from| {
            let (payload, level) = (Payload::Memory(from), Level::Visible);
            Operation::SendTagged { token, peer, tag: 4, payload, level }
        }));
        all.push(w.with(a, Pages::new(&[0; 64]), |token, into| Operation::PostReceive {
            token,
            source: Some(peer),
            tag: 99,
            ignore: 0,
            into,
        }));
    }
    let Some(remote) = remote else { return all };
    let spans = [RemoteSpan { offset: 0, len: LONG as u64 }];
    for event in [None, Some(1)] {
        all.push(w.with(a, long(), |token, from| Operation::Put {
            token,
            remote,
            local: smallvec![from],
            spans: spans.into_iter().collect(),
            level: Level::Visible,
            event,
        }));
    }
    all.push(w.with(a, long(), |token, into| Operation::Get {
        token,
        remote,
        local: smallvec![into],
        spans: spans.into_iter().collect(),
    }));
    all
}

fn target(w: &mut World, (a, b): (Node, Node), memory: &Slice) -> Option<Remote> {
    w.has(a, |c| c.remote_access).then(|| {
        let (_, key) = w.expose(b, memory, Access::ALL);
        w.import(a, &key)
    })
}

/// Memory is free in the completion of an operation that was cancelled.
pub fn freed_when_cancelled(w: &mut World) {
    for (steps, guarded) in [(0, true), (1, true), (1, false), (3, true), (6, false)] {
        w.round(guarded);
        let (a, b, ab, _) = w.pair();
        let memory = room(LONG);
        let remote = target(w, (a, b), &memory);
        let all = start_all(w, a, ab, remote);
        (0..steps).for_each(|_| _ = w.step());
        for token in &all {
            w.cancel(a, *token);
        }
        for token in all {
            let _ = w.result(a, token);
        }
        w.untouched("cancelled operations");
        w.inject(a, ab, b"still there");
        w.until("the message comes", |w| w[b].messages.iter().any(|(_, m)| m == b"still there"));
        w.kill(a);
        w.kill(b);
    }
}

/// Memory is free in the completion of an operation whose peer is lost, or was forgotten while it
/// lives on.
pub fn freed_when_lost(w: &mut World) {
    let rounds = [
        (0, true, false),
        (3, false, false),
        (1, false, true),
        (4, true, false),
        (6, false, true),
        (2, true, true),
    ];
    for (steps, frozen, forget) in rounds {
        w.round(steps % 2 == 0);
        let (a, b, ab, _) = w.pair();
        let memory = room(LONG);
        let remote = target(w, (a, b), &memory);
        w[b].frozen = frozen;
        let all = start_all(w, a, ab, remote);
        (0..steps).for_each(|_| _ = w.step());
        match forget {
            true => w[a].endpoint().forget(ab),
            false => w.kill(b),
        }
        for token in all {
            let _ = w.result(a, token);
        }
        w[b].frozen = false;
        w.untouched("operations with a lost peer");
        w.kill(a);
        if forget {
            w.kill(b);
        }
    }
}

/// The memory of a receive is free in its completion, also if its sender is lost in the middle.
pub fn freed_when_the_sender_is_lost(w: &mut World) {
    for (steps, guarded) in [(0, true), (1, false), (3, true)] {
        w.round(guarded);
        let (a, b, ab, _) = w.pair();
        let sent = w.with(a, Pages::new(&vec![1; LONG]), |token, body| Operation::SendLong {
            token,
            peer: ab,
            header: Bytes::new(),
            body,
        });
        let (_, _, body, _) = w.long(b);
        let received = w.with(b, Pages::new(&vec![0; LONG]), |token, into| Operation::Receive {
            token,
            body,
            into,
        });
        (0..steps).for_each(|_| _ = w.step());
        // Its program forgets the receiver, and frees the body as soon as it may.
        w.until("it is accepted", |w| w.accepted(b));
        w[a].endpoint().forget(ab);
        let _ = w.result(a, sent);
        let result = w.result(b, received);
        let got = w.lendings.contents.remove(&(b, received)).expect("it had memory");
        assert!(result.is_err() || got[0] == vec![1; LONG], "something else was received");
        w.untouched("a receive");
        w.kill(a);
        w.kill(b);
    }
}

/// The owners of foreign memory are dropped by the program, and not by the endpoint that has their
/// last holder.
pub fn owners_return_to_their_queue(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let (releases, may_drop) = (Releases::new(), Arc::new(AtomicBool::new(false)));
    for len in [100, 30_000, 1_000_000] {
        let bytes = pattern(len, 9);
        let lend = || Pages::new(&bytes).lend(&releases, &may_drop).whole();
        let mut ends = Vec::new();
        if len <= w.capabilities(a).limits.max_message {
            let (payload, level) = (Payload::Memory(lend()), Level::Delivered);
            ends.push((a, w.op(a, |token| Operation::Send { token, peer: ab, payload, level })));
        }
        let (header, body) = (Bytes::new(), lend());
        ends.push((a, w.op(a, |token| Operation::SendLong { token, peer: ab, header, body })));
        let (_, _, body, _) = w.long(b);
        let into = lend();
        ends.push((b, w.op(b, |token| Operation::Receive { token, body, into })));
        if w.has(a, |c| c.remote_access) {
            let (region, key) = w.expose(b, &lend(), Access::ALL);
            let remote = w.import(a, &key);
            for token in [w.put(a, remote, 0, &lend()), w.get(a, remote, 0, &lend())] {
                w.ok(a, token);
            }
            w.deregister(b, region);
            w[a].endpoint().release(remote);
        }
        for (n, token) in ends {
            w.ok(n, token);
        }
        w[b].messages.clear();
    }
    until_still(w, |_| releases.lent());
    assert_eq!(releases.lent(), 0, "an endpoint still holds memory");
    may_drop.store(true, SeqCst);
    assert!(releases.drain() >= 6);
}
