//! The address space of a process as memory: good addresses and bad ones.

use crate::{
    foreign::{Allowed, Window, address_space},
    world::{Node, World, memory, pattern, room},
};
use petasos_fabric::{Access, OpErrorKind, Operation, RegionId, RegisterError, Remote, Support};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
};

fn out_of_bounds(kind: &OpErrorKind) -> bool {
    matches!(kind, OpErrorKind::OutOfBounds { .. })
}

/// Opens the address space of `b` for `a`. `None` if the endpoint is another process's, whose
/// memory a probe cannot see.
fn exposed(w: &mut World, a: Node, b: Node, access: Access) -> Option<(RegionId, Remote)> {
    let registered = address_space().register(w[b].endpoint(), access);
    let region = match registered {
        Err(RegisterError::System(why)) if why == crate::out_of_process::ELSEWHERE => return None,
        registered => registered.expect("it is registered"),
    };
    let key = w[b].endpoint().export(region).expect("a region is exported");
    Some((region, w.import(a, &key)))
}

/// Puts and gets of what is mapped, and of what is not, or may not be written.
pub fn addresses(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let Some((region, remote)) = exposed(w, a, b, Access::READ.with(Access::WRITE)) else { return };
    let window = Window::new(600);
    let page = (window.at(1) - window.at(0)) as usize;
    for (offset, len) in [(0, 8), (5, 100), (page - 3, 6), (17, 500 * page)] {
        let bytes = pattern(len, len as u8);
        let at = window.at(0) + offset as u64;
        let put = w.put(a, remote, at, &memory(&bytes));
        w.ok(a, put);
        let into = room(len);
        let get = w.get(a, remote, at, &into);
        w.ok(a, get);
        assert!(into.to_vec() == bytes, "{len} bytes at {offset} of a window");
    }
    // What may only be read.
    window.allow(1, Allowed::Reading);
    let before = window.read(1);
    for len in [8, page] {
        let put = w.put(a, remote, window.at(1), &memory(&vec![0xEE; len]));
        w.fails(a, put, out_of_bounds);
    }
    let into = room(page);
    let get = w.get(a, remote, window.at(1), &into);
    w.ok(a, get);
    assert!(into.to_vec() == before && window.read(1) == before);
    // What is not there: at the end, at the beginning, and in the middle of a long access.
    window.allow(1, Allowed::Everything);
    for bad in [1, 300, 599] {
        window.allow(bad, Allowed::Nothing);
        for (from, count) in [(bad, 1), (bad.max(1) - 1, 2), (0, 600)] {
            let put = w.put(a, remote, window.at(from), &memory(&vec![1; count * page]));
            w.fails(a, put, out_of_bounds);
            let get = w.get(a, remote, window.at(from), &room(count * page));
            w.fails(a, get, out_of_bounds);
        }
        window.allow(bad, Allowed::Everything);
    }
    let end = i64::MAX as u64;
    // No memory of a process lies there, and some of these are no addresses at all.
    for at in [0, 8, 4096, end - 8, end - 3, end, 1 << 63, u64::MAX - 3, u64::MAX] {
        let put = w.put(a, remote, at, &memory(&[1; 8]));
        w.fails(a, put, out_of_bounds);
        let get = w.get(a, remote, at, &room(8));
        w.fails(a, get, out_of_bounds);
    }
    // The owner and the connection are as before.
    let put = w.put(a, remote, window.at(2), &memory(&[9; 8]));
    w.ok(a, put);
    assert_eq!(window.read(2)[..8], [9; 8]);
    w.deregister(b, region);
    let late = w.put(a, remote, window.at(2), &memory(&[8; 8]));
    w.fails(a, late, |kind| *kind == OpErrorKind::StaleKey);
    assert_eq!(window.read(2)[..8], [9; 8]);
}

/// Rights, parts and their end are as for other memory; atomics are refused.
pub fn rights(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let window = Window::new(3);
    let Some((region, remote)) = exposed(w, a, b, Access::READ) else { return };
    let put = w.put(a, remote, window.at(1), &memory(&[1; 8]));
    w.fails(a, put, |kind| matches!(kind, OpErrorKind::Denied { .. }));
    w.deregister(b, region);
    for access in [Access::ATOMIC, Access::ALL] {
        let refused = address_space().register(w[b].endpoint(), access);
        assert!(matches!(refused, Err(RegisterError::DeviceAtomics)), "{refused:?}");
    }
    if w.capabilities(b).part_keys == Support::None {
        return;
    }
    let (region, _) = exposed(w, a, b, Access::READ.with(Access::WRITE)).expect("as before");
    let range = window.at(1)..window.at(2);
    let page = range.end - range.start;
    let (id, key) = w.expose_part(b, region, range, Access::WRITE);
    let part = w.import(a, &key);
    assert_eq!(part.len, page);
    let put = w.put(a, part, page - 8, &memory(&[2; 8]));
    w.ok(a, put);
    let beyond = w.put(a, part, page - 7, &memory(&[3; 8]));
    w.fails(a, beyond, out_of_bounds);
    let get = w.get(a, part, 0, &room(8));
    w.fails(a, get, |kind| matches!(kind, OpErrorKind::Denied { .. }));
    window.allow(1, Allowed::Nothing);
    let gone = w.put(a, part, 0, &memory(&[4; 8]));
    w.fails(a, gone, out_of_bounds);
    window.allow(1, Allowed::Everything);
    let revoke = w.revoke(b, id);
    w.ok(b, revoke);
    let late = w.put(a, part, 0, &memory(&[5; 8]));
    w.fails(a, late, |kind| *kind == OpErrorKind::StaleKey);
    let last = window.read(1)[page as usize - 8..].to_vec();
    assert_eq!((last, window.read(1)[0], window.read(2)[0]), (vec![2; 8], 0, 0));
}

/// Pages that another thread takes away and brings back meanwhile: each access ends well, or as one
/// of what is not there.
pub fn unmapped_meanwhile(w: &mut World) {
    let (a, b, _, _) = w.pair();
    if !w.has(a, |c| c.remote_access) {
        return;
    }
    let Some((region, remote)) = exposed(w, a, b, Access::READ.with(Access::WRITE)) else { return };
    let (window, over) = (Arc::new(Window::new(8)), Arc::new(AtomicBool::new(false)));
    let page = (window.at(1) - window.at(0)) as usize;
    let other = {
        let (window, over) = (Arc::clone(&window), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(Relaxed) {
                window.unmap_and_map(3);
                window.allow(5, Allowed::Nothing);
                thread::yield_now();
                window.allow(5, Allowed::Everything);
            }
        })
    };
    let deadline = w.now().after(w.fixture().deadline());
    let (mut good, mut bad) = (0, 0);
    while (good < 20 || bad < 5) && w.now() < deadline || good + bad < 50 {
        let put = w.put(a, remote, window.at(0), &memory(&vec![7; 8 * page]));
        let get = w.get(a, remote, window.at(2), &room(5 * page));
        for token in [put, get] {
            match w.result(a, token) {
                Ok(_) => good += 1,
                Err(error) if out_of_bounds(&error.kind) => bad += 1,
                Err(error) => w.fail(&format!("an access ended with {error}")),
            }
        }
    }
    over.store(true, Relaxed);
    other.join().expect("it ends");
    assert!(
        bad > 0,
        "all {good} accesses found the pages, though they are not there half the time"
    );
    let bytes = pattern(8 * page, 1);
    let put = w.put(a, remote, window.at(0), &memory(&bytes));
    w.ok(a, put);
    let all: Vec<u8> = (0..8).flat_map(|page| window.read(page)).collect();
    assert!(all == bytes);
    let patience = Operation::PATIENCE;
    let close = w.op(b, |token| Operation::Deregister { token, region, patience });
    w.ok(b, close);
}
