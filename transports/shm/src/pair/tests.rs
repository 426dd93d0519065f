//! Two sides of a pair.

use super::{long::PART, *};

fn two() -> (Pair, Pair) {
    let sizes = Sizes { ring: 16 << 10, long: 64 << 10, max: 20_000 };
    let (fd, a) = Pair::create(sizes).unwrap();
    (a, Pair::adopt(&fd, sizes).unwrap())
}

#[test]
fn both_ways() {
    let (mut a, mut b) = two();
    assert!(
        a.send(3, &[&b"ab"[..], b"c"].map(Piece::of), 3).unwrap()
            && b.send(2, &[Piece::of(b"back")], 4).unwrap()
    );
    for (pair, kind, text) in [(&mut b, 3, &b"abc"[..]), (&mut a, 2, b"back")] {
        let incoming = pair.peek().unwrap().unwrap();
        let mut bytes = vec![0; incoming.len];
        pair.consumer.read(&incoming, 0, &mut bytes);
        assert_eq!((incoming.kind, &bytes[..]), (kind, text));
        pair.finish(incoming);
        assert_eq!(pair.peek(), Ok(None));
    }
}

/// Takes a long message, and says how many parts it had.
fn take_long(pair: &mut Pair, expected: &[u8]) -> usize {
    let announced = pair.peek().unwrap().unwrap();
    assert!(announced.announced && (announced.kind, announced.len) == (3, expected.len()));
    pair.finish(announced);
    let (mut bytes, mut parts) = (Vec::new(), 0);
    while pair.is_within() {
        let part = pair.peek().unwrap().expect("all parts are there");
        let at = bytes.len();
        bytes.resize(at + part.len, 0);
        pair.lies_in().read(&part, 0, &mut bytes[at..]);
        pair.finish(part);
        parts += 1;
    }
    assert!(bytes == expected);
    parts
}

#[test]
fn long_messages_go_in_parts_and_leave_no_memory() {
    let (mut a, mut b) = two();
    let blocks = Pair::resident;
    let bytes: Vec<u8> = (0..20_000u32).map(|i| (i * 7 + i / 251) as u8).collect();
    let before = blocks(&a);
    for round in 0..50 {
        for len in [4089, 8184, 8185, 20_000] {
            let bytes = &bytes[20_000 - len..];
            assert!(a.send(3, &[Piece::of(&bytes[..9]), Piece::of(&bytes[9..])], len).unwrap());
            assert!(a.send_short(b"behind").unwrap());
            assert_eq!(take_long(&mut b, bytes), len.div_ceil(8184));
            assert_eq!(b.peek().unwrap().map(|next| next.len), Some(6));
            b.finish_short(1);
            assert_eq!(b.peek(), Ok(None));
        }
        if round % 10 == 9 {
            assert!(blocks(&a) >= before + (32 << 10), "{} bytes", blocks(&a));
            assert!(a.trim_long(), "it was used lately");
            assert!(!a.trim_long() && !a.trim_long());
            assert!(blocks(&a) < before + (32 << 10), "{} bytes", blocks(&a));
        }
    }
    // While something is in there, it stays.
    assert!(a.send(3, &[Piece::of(&bytes)], bytes.len()).unwrap());
    assert!(a.trim_long() && a.trim_long() && a.trim_long());
    take_long(&mut b, &bytes);
    assert!(!a.trim_long());
}

#[test]
fn parts_that_cannot_be() {
    for (kind, len) in [(3, 10), (PART, 0), (PART, 101), (crate::ring::SHORT, 5)] {
        let (mut a, mut b) = two();
        assert!(a.forge_announcement(3, 100).unwrap());
        let announced = b.peek().unwrap().unwrap();
        b.finish(announced);
        assert_eq!(b.peek(), Ok(None), "no part has come");
        assert!(a.forge_part(kind, &vec![0; len]).unwrap());
        assert_eq!(b.peek(), Err(RingError::NoPart { kind, len }));
    }
}

#[test]
fn sleepers_and_starvers_are_rung_once() {
    let (mut a, mut b) = two();
    b.set_asleep(true);
    assert!(a.take_sleeper() && !a.take_sleeper());
    while a.send(2, &[Piece::of(&[0; 1000])], 1000).unwrap() {}
    a.starve();
    let mut rung = 0;
    while let Some(incoming) = b.peek().unwrap() {
        rung += u32::from(b.finish(incoming));
    }
    assert_eq!(rung, 1);
    assert!(a.has_room().unwrap());
    a.announce(7);
    assert_eq!(b.announced(), 7);
    a.withdraw();
    assert_eq!(b.announced(), 0);
}
