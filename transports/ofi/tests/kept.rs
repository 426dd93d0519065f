//! Memory that is registered again and again stays registered with the provider, as long as it is
//! held, and no more of it than is allowed; other memory does not.

mod common;
#[path = "common/pair.rs"]
mod pair;

use common::{SHM, config, network};
use pair::Pair;
use petasos_channel::Channels;
use petasos_conformance::Network;
use petasos_fabric::{
    Access, Done, Endpoint, Event, Level, OpErrorKind, Operation, Region, RemoteSpan, Slice,
};
use petasos_ofi::Nic;
use smallvec::smallvec;
use std::time::Duration;

const LEN: usize = 256 << 10;
/// Not writing alone: layered providers open all memory for reading, and are not given what is not
/// to be read.
const RIGHTS: Access = Access::READ.with(Access::WRITE);

/// A pair of which `b` keeps so much memory open.
fn open(network: Network, keep: usize) -> Option<Pair> {
    let mut config = config(network);
    config.remote_access_from = 1;
    config.keep_registered = keep;
    Pair::open(network, &config)
}

impl Pair {
    /// Opens memory, writes to it, and closes it.
    fn round(&mut self, memory: &Slice, access: Access, byte: u8) {
        let (region, remote) = self.expose(memory, access);
        self.put(remote, vec![byte; memory.len()]).unwrap();
        self.close(region);
        assert!(memory.to_vec() == vec![byte; memory.len()], "round {byte}");
        // Kept open or not: the key is good no more.
        let late = self.put(remote, vec![0; memory.len()]);
        assert!(matches!(late, Err(OpErrorKind::StaleKey)), "{late:?}");
        self.a.release(remote);
    }

    /// Drives `a` alone.
    fn alone(&mut self, mut seen: impl FnMut(&Channels<Nic>) -> bool) {
        self.drive(false, "what `a` does alone", |pair| seen(&pair.a));
    }

    fn until_lost(&mut self) {
        let lost = |e: &Event| matches!(e, Event::PeerLost { .. });
        self.until("the loss", |pair| pair.events[1].iter().any(lost));
    }

    /// How often memory was opened, how often that was not needed, and bytes kept.
    fn counts(&self) -> (u64, u64, usize) {
        let counters = self.b.device().counters();
        (counters.registrations, counters.registrations_kept, counters.kept_bytes)
    }
}

fn own_memory_stays_open(network: Network) {
    let Some(mut pair) = open(network, 64 << 20) else { return };
    let memory = pair.b.alloc(2 * LEN).unwrap();
    let half = memory.slice(LEN, LEN).unwrap();
    for byte in 1..=20 {
        pair.round(&half, RIGHTS, byte);
    }
    assert_eq!(pair.counts(), (1, 19, LEN));
    // Not another part, and not with other rights.
    pair.round(&memory.whole(), RIGHTS, 21);
    pair.round(&half, Access::ALL, 22);
    assert_eq!(pair.counts(), (3, 19, 4 * LEN));
    // Twice at a time: each has its own.
    let (first, of_first) = pair.expose(&half, RIGHTS);
    let (second, of_second) = pair.expose(&half, RIGHTS);
    pair.put(of_first, vec![23; LEN]).unwrap();
    pair.put(of_second, vec![24; LEN]).unwrap();
    pair.close(first);
    pair.close(second);
    assert_eq!(pair.counts(), (4, 20, 5 * LEN));
    // Other memory in its place is not it.
    drop((half, memory));
    let other = pair.b.alloc(2 * LEN).unwrap();
    pair.until("what is gone is closed", |pair| pair.counts().2 == 0);
    pair.round(&other.whole(), RIGHTS, 25);
    assert_eq!(pair.counts(), (5, 20, 2 * LEN));
    let holder = other.whole();
    assert!(other.into_exclusive().is_err(), "open memory became exclusive");
    // It outlives the endpoint, wherever it is dropped.
    drop(pair);
    assert!(holder.to_vec() == vec![25; 2 * LEN]);
    std::thread::spawn(move || drop(holder)).join().unwrap();
}

fn other_memory_is_closed(network: Network) {
    let Some(mut pair) = open(network, 64 << 20) else { return };
    for byte in 1..=3 {
        let memory = Region::zeroed(LEN);
        pair.round(&memory.whole(), RIGHTS, byte);
        assert!(memory.into_exclusive().is_ok(), "the memory is still held");
    }
    let of_a = pair.a.alloc(LEN).unwrap().whole();
    pair.round(&of_a, RIGHTS, 4);
    assert_eq!(pair.counts(), (4, 0, 0));
}

fn no_more_than_is_allowed(network: Network) {
    let Some(mut pair) = open(network, 2 * LEN) else { return };
    let memory: Vec<Slice> = (0..3).map(|_| pair.b.alloc(LEN).unwrap().whole()).collect();
    for byte in 1..=3 {
        for memory in &memory {
            pair.round(memory, RIGHTS, byte);
        }
    }
    // The longest unused is always the next one.
    assert_eq!(pair.counts(), (9, 0, 2 * LEN));
    pair.round(&memory[2], RIGHTS, 4);
    pair.round(&memory[1], RIGHTS, 4);
    assert_eq!(pair.counts(), (9, 2, 2 * LEN));
    let large = pair.b.alloc(3 * LEN).unwrap().whole();
    pair.round(&large, RIGHTS, 5);
    assert_eq!(pair.counts(), (10, 2, 2 * LEN), "too large to be kept");
    let Some(mut pair) = open(network, 0) else { return };
    let memory = pair.b.alloc(LEN).unwrap();
    for byte in 1..=3 {
        pair.round(&memory.whole(), RIGHTS, byte);
    }
    assert_eq!(pair.counts(), (3, 0, 0));
    assert!(memory.into_exclusive().is_ok());
}

/// A peer that is lost in the middle of an access gives nothing back: its memory is reached until
/// that may be over, and then closed.
fn not_what_a_lost_peer_had(network: Network) {
    let Some(mut pair) = open(network, 64 << 20) else { return };
    let memory = pair.b.alloc(LEN).unwrap().whole();
    let (region, remote) = pair.expose(&memory, RIGHTS);
    pair.put(remote, vec![1; LEN]).unwrap();
    let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
    let local = smallvec![Slice::from(vec![2; LEN])];
    let (level, event) = (Level::Visible, None);
    let begun = pair.a.device().counters().accesses;
    pair.begin(false, |token| Operation::Put { token, remote, local, spans, level, event });
    // Its owner does not look meanwhile, so it is not over.
    pair.alone(|a| a.device().counters().accesses > begun);
    pair.a.forget(remote.peer);
    pair.until_lost();
    let patience = Duration::ZERO;
    let early = pair.submit(true, |token| Operation::Deregister { token, region, patience });
    assert!(matches!(early, Err(OpErrorKind::StillReached)), "{early:?}");
    pair.close(region);
    assert_eq!(pair.counts(), (1, 0, 0));
}

/// A peer that ends, or forgets us, in order has returned its grants: closing does not wait for it.
fn what_a_peer_had_that_left(network: Network) {
    for ends in [false, true] {
        let mut config = config(network);
        config.remote_access_from = 1;
        config.keep_registered = 64 << 20;
        config.mourning = Duration::from_secs(3600);
        let Some(mut pair) = Pair::open(network, &config) else { return };
        let memory = pair.b.alloc(LEN).unwrap().whole();
        let (region, remote) = pair.expose(&memory, RIGHTS);
        pair.put(remote, vec![1; LEN]).unwrap();
        match ends {
            true => drop(std::mem::replace(
                &mut pair.a,
                Nic::open(&network.anywhere(), config).unwrap().into_endpoint(),
            )),
            false => pair.a.forget(remote.peer),
        }
        pair.until_lost();
        let patience = Duration::ZERO;
        let closed = pair.submit(true, |token| Operation::Deregister { token, region, patience });
        assert!(matches!(closed, Ok(Done::Deregistered)), "ends: {ends}, {closed:?}");
        assert_eq!(pair.counts(), (1, 0, LEN));
    }
}

macro_rules! over {
    ($name:ident, $network:expr) => {
        mod $name {
            #[test]
            fn own_memory_stays_open() {
                super::own_memory_stays_open($network);
            }
            #[test]
            fn other_memory_is_closed() {
                super::other_memory_is_closed($network);
            }
            #[test]
            fn no_more_than_is_allowed() {
                super::no_more_than_is_allowed($network);
            }
            #[test]
            fn what_a_peer_had_that_left() {
                super::what_a_peer_had_that_left($network);
            }
            #[test]
            fn not_what_a_lost_peer_had() {
                super::not_what_a_lost_peer_had($network);
            }
        }
    };
}

over!(networks, crate::network());
over!(shm, crate::SHM);
