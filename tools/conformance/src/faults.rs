//! Each kind of operation, cancelled, or overtaken by the loss of its peer.

use crate::{
    Faults, Faulty,
    mix::{self, Mix},
    world::{Node, World, all_are, memory, room},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Level, OpErrorKind, Operation, Payload, Peer, Remote, RemoteSpan,
    Slice, Token,
};
use smallvec::smallvec;
use std::time::Duration;

/// Long enough to be under way for a while.
const LONG: usize = 16 << 20;

/// An operation of each kind that has a peer, under way from `a`, whose memory may be written.
struct UnderWay {
    what: &'static str,
    token: Token,
    /// Local memory that the operation may write until it completes.
    into: Option<Slice>,
}

fn start_all(w: &mut World, a: Node, peer: Peer, remote: Option<Remote>) -> Vec<UnderWay> {
    let mut all = Vec::new();
    let mut add = |what, token, into| all.push(UnderWay { what, token, into });
    let long = memory(&vec![1; LONG]);
    let token = w.send(a, peer, b"a message");
    add("Send", token, None);
    let body = long.clone();
    let token = w.op(a, |token| Operation::SendLong {
        token,
        peer,
        header: Bytes::from_static(b"header"),
        body,
    });
    add("SendLong", token, None);
    if w.has(a, |c| c.tagged) {
        let payload = Payload::Memory(long.clone());
        let token = w.op(a, |token| Operation::SendTagged {
            token,
            peer,
            tag: 4,
            payload,
            level: Level::Visible,
        });
        add("SendTagged", token, None);
        let into = memory(&[0xEE; 64]);
        let token = w.post(a, Some(peer), 99, 0, &into);
        add("PostReceive", token, Some(into));
    }
    let Some(remote) = remote else {
        return all;
    };
    let token = w.put(a, remote, 0, &long);
    add("Put", token, None);
    let into = room(LONG);
    let token = w.get(a, remote, 0, &into);
    add("Get", token, Some(into));
    let local = memory(&[3; 64]);
    let token = w.op(a, |token| Operation::Put {
        token,
        remote,
        local: smallvec![local],
        spans: smallvec![RemoteSpan { offset: 0, len: 64 }],
        level: Level::Visible,
        event: Some(1),
    });
    add("Put with event", token, None);
    if w.has(a, |c| c.atomics) {
        let token = w.op(a, |token| Operation::Atomic {
            token,
            remote,
            offset: 0,
            op: AtomicOp::Sum,
            kind: AtomicType::U64,
            operand: smallvec![1; 8],
            compare: smallvec![],
            fetch: true,
        });
        add("Atomic", token, None);
    }
    let token = w.op(a, |token| Operation::Map { token, remote });
    add("Map", token, None);
    all
}

/// All have completed: what failed leaves its memory alone from then on.
fn left_alone(w: &mut World, under_way: &[UnderWay]) {
    let memory = || under_way.iter().filter_map(|u| Some((u.what, u.into.as_ref()?)));
    for (_, into) in memory() {
        into.write(0, &vec![0xEE; into.len()]);
    }
    w.run_for(Duration::from_millis(10));
    for (what, into) in memory() {
        let touched = into.to_vec().iter().any(|b| *b != 0xEE);
        assert!(!touched, "{what}: memory was written after the end");
    }
}

/// Each kind of operation that is cancelled completes once: as if it had not been, or so.
pub fn cancel_each(w: &mut World) {
    for steps in [0, 1, 2, 5] {
        let (a, b, ab, _) = w.pair();
        let target = room(LONG);
        let remote = if w.has(a, |c| c.remote_access) {
            let (_, key) = w.expose(b, &target, Access::ALL);
            Some(w.import(a, &key))
        } else {
            None
        };
        let under_way = start_all(w, a, ab, remote);
        for _ in 0..steps {
            w.step();
        }
        for u in &under_way {
            w.cancel(a, u.token);
        }
        for u in &under_way {
            if let Err(error) = w.result(a, u.token) {
                let fine =
                    matches!(error.kind, OpErrorKind::Cancelled | OpErrorKind::Unsupported(_));
                assert!(fine, "{}: {error}", u.what);
            } else {
                assert_ne!(u.what, "PostReceive", "no message was sent for it");
            }
        }
        left_alone(w, &under_way);
        // The connection is as good as before.
        w.inject(a, ab, b"still there");
        w.until("the message comes", |w| w[b].messages.iter().any(|(_, m)| m == b"still there"));
        w.kill(a);
        w.kill(b);
    }
}

/// Each kind of operation whose peer dies completes once: well, if it was in time, or with an
/// error that names the peer.
pub fn loss_under_each(w: &mut World) {
    for (steps, frozen) in [(0, true), (3, true), (0, false), (1, false), (4, false)] {
        let (a, b, ab, _) = w.pair();
        let address = w.address(b);
        let target = room(LONG);
        let remote = if w.has(a, |c| c.remote_access) {
            let (_, key) = w.expose(b, &target, Access::ALL);
            Some(w.import(a, &key))
        } else {
            None
        };
        w[b].frozen = frozen;
        let under_way = start_all(w, a, ab, remote);
        for _ in 0..steps {
            w.step();
        }
        w.kill(b);
        for u in &under_way {
            let Err(error) = w.result(a, u.token) else {
                assert!(!matches!(u.what, "PostReceive" | "SendLong"), "{}", u.what);
                continue;
            };
            if matches!(error.kind, OpErrorKind::Unsupported(_)) {
                continue;
            }
            let lost = matches!(error.kind, OpErrorKind::PeerLost(_));
            assert!(lost && error.peer.as_ref() == Some(&address), "{}: {error}", u.what);
        }
        left_alone(w, &under_way);
        w.kill(a);
    }
}

/// The sender of a body dies while its receiver fetches it.
pub fn loss_of_a_sender(w: &mut World) {
    for steps in [0, 1, 3] {
        let (a, b, ab, ba) = w.pair();
        let body = memory(&vec![1; LONG]);
        w.op(a, |token| Operation::SendLong { token, peer: ab, header: Bytes::new(), body });
        let (_, _, body, _) = w.long(b);
        let other = memory(&[1; 64]);
        w.op(a, |token| Operation::SendLong { token, peer: ab, header: Bytes::new(), body: other });
        let (_, _, left, _) = w.long(b);
        let into = memory(&vec![0xEE; LONG]);
        let target = into.clone();
        let token = w.op(b, |token| Operation::Receive { token, body, into: target });
        for _ in 0..steps {
            w.step();
        }
        w.kill(a);
        match w.result(b, token) {
            Ok(_) => assert!(all_are(&into.to_vec(), 1)),
            Err(error) => {
                assert!(matches!(error.kind, OpErrorKind::PeerLost(_)), "{error}");
                let receive = UnderWay { what: "Receive", token, into: Some(into) };
                left_alone(w, &[receive]);
            }
        }
        w.until("the loss is seen", |w| w[b].lost.iter().any(|(p, _)| *p == ba));
        // The bodies of a lost peer can no longer be received.
        for body in [body, left] {
            let token = w.op(b, |token| Operation::Receive { token, body, into: room(8) });
            w.fails(b, token, |kind| {
                use OpErrorKind::{PeerLost, UnknownBody, UnknownPeer};
                matches!(kind, PeerLost(_) | UnknownBody | UnknownPeer)
            });
        }
        w.kill(b);
    }
}

/// Others are served while one peer dies in the middle of everything.
pub fn others_are_served(w: &mut World) {
    let server = w.open();
    let target = room(LONG);
    let (_, key) = w.expose(server, &target, Access::ALL);
    let address = w.address(server);
    let steady = w.open();
    let peer = w.resolve(steady, &address);
    for i in 0..6u8 {
        let victim = w.open();
        let to_server = w.resolve(victim, &address);
        let remote = w.has(victim, |c| c.remote_access).then(|| w.import(victim, &key));
        start_all(w, victim, to_server, remote);
        for _ in 0..i {
            w.step();
        }
        let sent = w.send(steady, peer, &[i; 77]);
        w.kill(victim);
        w.until("a message of the steady one", |w| {
            w[server].messages.iter().any(|(_, m)| m[..] == [i; 77])
        });
        w.ok(steady, sent);
    }
    let live = w[server].lost.len();
    w.until("all losses are seen", |w| {
        w[server].lost.len() >= live && w[server].lost.len() == w[server].ups.len() - 1
    });
}

/// Random operations while peers are lost at random: each completes once.
pub fn random_losses(w: &mut World) {
    for seed in 0..8 {
        w.remark(&format!("seed {seed}"));
        let nodes: Vec<Node> = (0..3)
            .map(|i| {
                let address = w.fixture().fresh();
                let endpoint = w.fixture().open(&address);
                let faulty = Faulty::new(endpoint, Faults::ROUGH, seed * 10 + i);
                w.adopt(Box::new(faulty))
            })
            .collect();
        Mix::new(w, nodes.clone(), seed, true).run(w, 200);
        mix::settle(w, &nodes);
    }
}
