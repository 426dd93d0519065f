//! Several pieces of memory as one region: one key, one space of offsets.

use crate::world::{Node, World, memory, pattern, room};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Done, Level, OpErrorKind, Operation, Payload, Region, Remote,
    RemoteSpan, Slice, Token,
};
use smallvec::smallvec;

/// Pieces of these lengths, at multiples of 8, each within memory of its own.
struct Scattered {
    memory: Vec<Region>,
    lens: Vec<usize>,
    whole: Slice,
}

/// What is around each piece, and stays.
const AROUND: u8 = 0xA7;

impl Scattered {
    fn new(lens: &[usize]) -> Scattered {
        let around = |len: &usize| Region::from_vec(vec![AROUND; len + 32]);
        let memory: Vec<_> = lens.iter().map(around).collect();
        let whole = Region::of_pieces(memory.iter().zip(lens).map(|(memory, len)| {
            let at = 8 + memory.as_ptr().addr().wrapping_neg() % 8;
            memory.slice(at, *len).expect("within")
        }));
        whole.write(0, &vec![0; whole.len()]);
        Scattered { memory, lens: lens.to_vec(), whole: whole.whole() }
    }

    /// The content of the pieces, around which nothing has changed.
    fn content(&self) -> Vec<u8> {
        let mut all = Vec::new();
        for (memory, len) in self.memory.iter().zip(&self.lens) {
            let at = 8 + memory.as_ptr().addr().wrapping_neg() % 8;
            let bytes = memory.to_vec();
            let around = bytes[..at].iter().chain(&bytes[at + len..]);
            assert!(around.copied().all(|byte| byte == AROUND), "beside a piece of {len} bytes");
            all.extend_from_slice(&bytes[at..at + len]);
        }
        all
    }
}

fn misaligned(kind: &OpErrorKind) -> bool {
    matches!(kind, OpErrorKind::Misaligned { .. })
}

fn out_of_bounds(kind: &OpErrorKind) -> bool {
    matches!(kind, OpErrorKind::OutOfBounds { .. })
}

fn add(w: &mut World, n: Node, remote: Remote, offset: u64, count: u64) -> Token {
    let operand = (1..=count).flat_map(u64::to_le_bytes).collect();
    w.op(n, |token| Operation::Atomic {
        token,
        remote,
        offset,
        op: AtomicOp::Sum,
        kind: AtomicType::U64,
        operand,
        compare: smallvec![],
        fetch: true,
    })
}

/// Puts and gets of all lengths, at and across each boundary, in one piece and in many.
pub fn puts_and_gets(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let short: Vec<usize> = (0..3000).map(|nth| nth % 9).collect();
    for lens in [&[5, 0, 1, 4096, 70_000, 3, 1_300_000, 24][..], &short, &[1], &[0, 0]] {
        let target = Scattered::new(lens);
        let total = target.whole.len();
        let (region, key) = w.expose(b, &target.whole, Access::READ.with(Access::WRITE));
        let remote = w.import(a, &key);
        assert_eq!(remote.len, total as u64);
        let mut expected = pattern(total, 1);
        let put = w.put(a, remote, 0, &memory(&expected));
        w.ok(a, put);
        assert!(target.content() == expected, "{} pieces", lens.len());
        let ends = lens.iter().scan(0, |end, len| {
            *end += len;
            Some(*end)
        });
        for (nth, end) in ends.enumerate().filter(|(nth, _)| nth % 100 < 8) {
            for (back, len) in [(0, 1), (1, 2), (4, 9), (2000, 5000), (1, 60_000)] {
                let begin = end.saturating_sub(back);
                let bytes = pattern(len.min(total - begin), (nth * 5 + back) as u8);
                let level = [Level::Reusable, Level::Visible][nth % 2];
                let put = w.put_at(a, remote, begin as u64, &memory(&bytes), level);
                expected[begin..begin + bytes.len()].copy_from_slice(&bytes);
                let into = room(bytes.len());
                w.ok(a, put);
                let peer = remote.peer;
                let flush = w.op(a, |token| Operation::Flush { token, peer });
                w.ok(a, flush);
                let get = w.get(a, remote, begin as u64, &into);
                w.ok(a, get);
                assert!(into.to_vec() == bytes, "{len} bytes at {begin} of {total}");
            }
        }
        assert!(target.content() == expected, "{} pieces", lens.len());
        let back = Scattered::new(lens);
        let get = w.get(a, remote, 0, &back.whole);
        w.ok(a, get);
        assert!(back.content() == expected, "from pieces to pieces");
        let beyond = w.put(a, remote, total as u64, &memory(&[1]));
        w.fails(a, beyond, out_of_bounds);
        let beyond = w.get(a, remote, u64::MAX, &room(2));
        w.fails(a, beyond, out_of_bounds);
        assert!(target.content() == expected, "what was refused");
        w.deregister(b, region);
        let late = w.put(a, remote, 0, &memory(&[9]));
        let gone = |kind: &OpErrorKind| *kind == OpErrorKind::StaleKey || out_of_bounds(kind);
        w.fails(a, late, gone);
        // The next flush tells of what was refused.
        let peer = remote.peer;
        let flush = w.op(a, |token| Operation::Flush { token, peer });
        w.failure(a, flush);
        assert!(target.content() == expected, "what came too late");
    }
}

/// Scattered spans, and a put with event, which names the offset in the whole.
pub fn spans_and_events(w: &mut World) {
    let (a, b, _, ba) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let target = Scattered::new(&[100, 7, 300, 50]);
    let (region, key) = w.expose(b, &target.whole, Access::ALL);
    let remote = w.import(a, &key);
    let local = Scattered::new(&[3, 40, 20]);
    local.whole.write(0, &pattern(63, 2));
    let spans = smallvec![
        RemoteSpan { offset: 90, len: 30 },
        RemoteSpan { offset: 0, len: 0 },
        RemoteSpan { offset: 400, len: 33 }
    ];
    let from = local.whole.clone();
    let event = w.has(a, |c| c.put_with_event).then_some(77);
    let put = w.op(a, |token| Operation::Put {
        token,
        remote,
        local: smallvec![from],
        spans,
        level: Level::Visible,
        event,
    });
    w.ok(a, put);
    if event.is_some() {
        w.until("the put arrives", |w| !w[b].arrivals.is_empty());
        let arrived = w[b].arrivals.pop_front().expect("just seen");
        assert_eq!(arrived, (ba, region, 90, 63, 77));
    }
    let mut expected = vec![0; 457];
    expected[90..120].copy_from_slice(&pattern(63, 2)[..30]);
    expected[400..433].copy_from_slice(&pattern(63, 2)[30..]);
    assert!(target.content() == expected);
}

/// Atomics on elements that lie in one piece; those across a boundary are refused, and change
/// nothing.
pub fn atomics(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.atomics) {
        return;
    }
    let target = Scattered::new(&[16, 12, 8, 4, 64]);
    let (_, key) = w.expose(b, &target.whole, Access::ALL);
    let remote = w.import(a, &key);
    for round in 0..3u64 {
        let sum = add(w, a, remote, 8, 2);
        match w.ok(a, sum) {
            Done::Fetched(old) => {
                assert_eq!(old[..8], round.to_le_bytes());
                assert_eq!(old[8..], (2 * round).to_le_bytes());
            }
            other => w.fail(&format!("an atomic gave {other:?}")),
        }
    }
    let before = target.content();
    assert_eq!((before[8], before[16]), (3, 6));
    for (offset, count) in [(24, 1), (32, 1), (16, 2)] {
        let refused = add(w, a, remote, offset, count);
        w.fails(a, refused, misaligned);
    }
    assert_eq!(target.content(), before, "what was refused");
}

/// A key to a part reaches across boundaries, and not beyond the part; revoked, it is over, and the
/// region's is not.
pub fn parts(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) || !w.has(b, |c| c.part_keys) {
        return;
    }
    let target = Scattered::new(&[40, 1, 9000, 50]);
    let (region, key) = w.expose(b, &target.whole, Access::ALL);
    let whole = w.import(a, &key);
    let (id, key) = w.expose_part(b, region, 30..9050, Access::WRITE);
    let part = w.import(a, &key);
    assert_eq!(part.len, 9020);
    let bytes = pattern(9020, 3);
    let put = w.put(a, part, 0, &memory(&bytes));
    w.ok(a, put);
    let beyond = w.put(a, part, 9000, &memory(&[1; 21]));
    w.fails(a, beyond, out_of_bounds);
    let get = w.get(a, part, 0, &room(5));
    w.fails(a, get, |kind| matches!(kind, OpErrorKind::Denied { .. }));
    let revoke = w.revoke(b, id);
    w.ok(b, revoke);
    let late = w.put(a, part, 0, &memory(&[1; 20]));
    w.fails(a, late, |kind| *kind == OpErrorKind::StaleKey);
    let into = room(9020);
    let get = w.get(a, whole, 30, &into);
    w.ok(a, get);
    assert!(into.to_vec() == bytes);
    let mut expected = vec![0; 9091];
    expected[30..9050].copy_from_slice(&bytes);
    assert!(target.content() == expected);
}

/// Messages of every sort go from pieces, and to pieces.
pub fn messages(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let most = w.capabilities(a).limits.max_message;
    for lens in [&[9, 0, 11, 300][..], &[most, 5, 3 * most], &[7; 40]] {
        let from = Scattered::new(lens);
        let total = from.whole.len();
        let bytes = pattern(total, 4);
        from.whole.write(0, &bytes);
        let payload = || Payload::Memory(from.whole.clone());
        let (peer, level) = (ab, Level::Delivered);
        if total <= most {
            let payload = payload();
            let sent = w.op(a, |token| Operation::Send { token, peer, payload, level });
            assert!(w.message(b).1 == bytes);
            w.ok(a, sent);
        }
        let (header, body) = (bytes::Bytes::from_static(b"header"), from.whole.clone());
        let sent = w.op(a, |token| Operation::SendLong { token, peer, header, body });
        let (_, _, body, _) = w.long(b);
        let target = Scattered::new(lens);
        let into = target.whole.clone();
        let received = w.op(b, |token| Operation::Receive { token, body, into });
        w.ok(b, received);
        w.ok(a, sent);
        assert!(target.content() == bytes, "a long message of {total} bytes");
        if !w.has(a, |c| c.tagged) {
            continue;
        }
        for level in [Level::Reusable, Level::Visible] {
            let target = Scattered::new(lens);
            let posted = w.post(b, None, 3, 0, &target.whole);
            let payload = payload();
            let sent =
                w.op(a, |token| Operation::SendTagged { token, peer, tag: 3, payload, level });
            w.ok(b, posted);
            w.ok(a, sent);
            assert!(target.content() == bytes, "an expected message of {total} bytes");
        }
    }
}
