//! Puts with event of which the provider writes the data and tells the owner: that this is so, what
//! the event says, and that it comes once, also when the memory is being closed. And what
//! completion data without a link does.

mod common;
#[path = "common/pair.rs"]
mod pair;

use common::{SHM, config, network};
use pair::Pair;
use petasos_conformance::Network;
use petasos_fabric::{
    Access, Done, Endpoint, Event, Level, OpErrorKind, Operation, Region, Remote, RemoteSpan,
    Slice, Support, Token,
};
use smallvec::smallvec;
use std::time::{Duration, Instant};

const LEN: usize = 1 << 20;
/// Not writing alone: layered providers open all memory for reading, and are not given what is not
/// to be read.
const RIGHTS: Access = Access::READ.with(Access::WRITE);

/// A pair over a provider that has completion data.
fn open(network: Network) -> Option<Pair> {
    let mut config = config(network);
    config.completion_data_from = Some(100);
    let pair = Pair::open(network, &config)?;
    if pair.a.capabilities().put_with_event != Support::Native {
        petasos_testing::skip(&format!(
            "{} has no completion data here",
            pair.a.device().carrier()
        ));
        return None;
    }
    Some(pair)
}

fn put(remote: Remote, at: u64, bytes: Vec<u8>, event: u64) -> impl FnOnce(Token) -> Operation {
    move |token| Operation::Put {
        token,
        remote,
        spans: smallvec![RemoteSpan { offset: at, len: bytes.len() as u64 }],
        local: smallvec![Slice::from(bytes)],
        level: Level::Visible,
        event: Some(event),
    }
}

/// Region, offset, length and data of puts that arrived.
fn arrivals(events: &mut Vec<Event>) -> Vec<(u64, u64, u64)> {
    let of_put = |event: Event| match event {
        Event::PutArrived { offset, len, data, .. } => Some((offset, len, data)),
        _ => None,
    };
    events.drain(..).filter_map(of_put).collect()
}

/// Puts until the provider does it, which has to be granted before.
fn warm(pair: &mut Pair, remote: Remote) {
    let (before, begin) = (pair.a.device().counters().completion_data_out, Instant::now());
    while pair.a.device().counters().completion_data_out == before {
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", pair.a.device().counters());
        pair.submit(false, put(remote, 0, vec![1; 1000], 0)).unwrap();
    }
    pair.events[1].clear();
}

fn events_say_what_was_put(network: Network) {
    let Some(mut pair) = open(network) else { return };
    let memory = Region::zeroed(LEN).whole();
    let (region, remote) = pair.expose(&memory, RIGHTS);
    warm(&mut pair, remote);
    let before = pair.a.device().counters().completion_data_out;
    // In one packet, and in many.
    for (round, len) in [100usize, 4096, 65_536, 70_000, 500_000].into_iter().enumerate() {
        let (at, data) = ((LEN - len - round) as u64, u64::MAX - round as u64);
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + round) as u8).collect();
        let token = pair.begin(false, put(remote, at, bytes.clone(), data));
        let came = |e: &Event| matches!(e, Event::PutArrived { .. });
        pair.until("the event", |pair| pair.events[1].iter().any(came));
        assert!(memory.part(at as usize, len).unwrap().to_vec() == bytes, "before its data");
        assert_eq!(arrivals(&mut pair.events[1]), [(at, len as u64, data)]);
        assert!(matches!(pair.end(false, token), Ok(Done::Put)));
    }
    let (a, b) = (pair.a.device().counters(), pair.b.device().counters());
    assert!(a.completion_data_out >= before + 5, "{a:?}");
    assert_eq!((a.completion_data_out, b.stray_completion_data), (b.completion_data_in, 0));
    // What is too short goes within its packet.
    pair.submit(false, put(remote, 5, vec![9; 99], 3)).unwrap();
    assert_eq!(pair.a.device().counters().completion_data_out, a.completion_data_out);
    assert_eq!(arrivals(&mut pair.events[1]), [(5, 99, 3)]);
    pair.close(region);
    let late = pair.submit(false, put(remote, 0, vec![7; 1000], 4));
    assert!(matches!(late, Err(OpErrorKind::StaleKey)), "{late:?}");
    assert!(arrivals(&mut pair.events[1]).is_empty() && memory.to_vec()[0] == 1);
}

/// Each put that went well has raised its event, once, before the memory was closed; no other has.
fn events_come_once_while_memory_is_closed(network: Network) {
    let Some(mut pair) = open(network) else { return };
    for round in 0..4 {
        let memory = Region::zeroed(LEN).whole();
        let (region, remote) = pair.expose(&memory, RIGHTS);
        warm(&mut pair, remote);
        let under_way = pair.b.device().counters().completion_data_in;
        let tokens: Vec<_> = (0..100u64)
            .map(|i| pair.begin(false, put(remote, i * 8192, vec![2; 8192], i)))
            .collect();
        pair.until("some came", |pair| {
            pair.b.device().counters().completion_data_in > under_way + round * 20
        });
        let closed = pair.begin(true, |token| Operation::Deregister {
            token,
            region,
            patience: Operation::PATIENCE,
        });
        pair.end(true, closed).unwrap();
        let mut good = Vec::new();
        for (i, token) in tokens.into_iter().enumerate() {
            match pair.end(false, token) {
                Ok(_) => good.push(i as u64),
                Err(OpErrorKind::StaleKey) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        let mut raised: Vec<u64> =
            arrivals(&mut pair.events[1]).into_iter().map(|(_, _, data)| data).collect();
        raised.sort_unstable();
        assert_eq!(raised, good, "round {round}");
    }
    assert_eq!(pair.b.device().counters().stray_completion_data, 0);
}

/// Completion data that names no link is counted, and nothing else.
fn garbage_is_thrown_away(network: Network) {
    let Some(mut pair) = open(network) else { return };
    let memory = Region::zeroed(LEN).whole();
    let (_, remote) = pair.expose(&memory, RIGHTS);
    warm(&mut pair, remote);
    let garbage = [0, 1, 255, 256, u64::from(u32::MAX), u64::MAX];
    for data in garbage {
        pair.b.device_mut().take_completion_data(data);
    }
    let counters = pair.b.device().counters();
    assert_eq!((counters.stray_completion_data, counters.violations), (garbage.len() as u64, 0));
    let sent = pair.a.device().counters().completion_data_out;
    for data in 1..=100 {
        pair.submit(false, put(remote, 0, vec![3; 5000], data)).unwrap();
    }
    assert_eq!(pair.a.device().counters().completion_data_out, sent + 100);
    assert_eq!(arrivals(&mut pair.events[1]).len(), 100);
}

macro_rules! over {
    ($name:ident, $network:expr) => {
        mod $name {
            #[test]
            fn events_say_what_was_put() {
                super::events_say_what_was_put($network);
            }
            #[test]
            fn events_come_once_while_memory_is_closed() {
                super::events_come_once_while_memory_is_closed($network);
            }
            #[test]
            fn garbage_is_thrown_away() {
                super::garbage_is_thrown_away($network);
            }
        }
    };
}

over!(networks, crate::network());
over!(shm, crate::SHM);
