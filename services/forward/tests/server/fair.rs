//! What clients share: the disk's threads, memory, and requests that become one.

use crate::common::{Client, pattern, server, until};
use petasos::fabric::Region;
use petasos_forward::server::ServerConfig;
use std::sync::atomic::Ordering::SeqCst;

/// One thread, so that there is one order.
fn one_thread() -> ServerConfig {
    let mut config = ServerConfig::default();
    config.threads = 1;
    config
}

#[test]
fn one_beside_a_flood() {
    let (server, memory) = server(one_thread());
    for address in server.addresses() {
        let (flood, quiet) = (Client::new(&address), Client::new(&address));
        let (many, few) = (flood.open("many"), quiet.open("few"));
        memory.watch.block();
        memory.watch.writes.lock().unwrap().clear();
        // Apart, so that they are not joined; the few of the other are known by their place.
        let all: Vec<_> = (0..120)
            .map(|n| flood.calls.write(flood.session, many, n * 1000, vec![1; 10].into()))
            .collect();
        // Some of them for the disk's thread, the rest for their share of the calls that are
        // served.
        until("they wait", || {
            flood.engine.progress();
            server.status().sessions.iter().map(|session| session.calls).sum::<u64>() == 120
        });
        let queued = server.status().queued;
        assert!(queued >= 32, "{queued}");
        let single = quiet.calls.write(quiet.session, few, 500, vec![2; 10].into());
        until("it waits", || {
            quiet.engine.progress();
            server.status().queued > queued
        });
        memory.watch.millis.store(1, SeqCst);
        memory.watch.release();
        quiet.wait(single).unwrap();
        // And again and again, one at a time.
        for n in 1..=8 {
            let at = 500 + n * 1000;
            quiet.wait(quiet.calls.write(quiet.session, few, at, vec![2; 10].into())).unwrap();
        }
        for write in all {
            flood.wait(write).unwrap();
        }
        memory.watch.millis.store(0, SeqCst);
        let order = memory.watch.writes.lock().unwrap().clone();
        let places = order.iter().enumerate().filter(|(_, (at, _))| at % 1000 == 500);
        let places: Vec<_> = places.map(|(place, _)| place).collect();
        assert_eq!((order.len(), places.len()), (129, 9));
        assert!(places[0] < 20, "the first in its turn: {places:?}");
        assert!(places[8] < 110, "the others as well: {places:?}");
    }
}

#[test]
fn neighbours_are_served_together() {
    let mut config = one_thread();
    // Clients that have just left count for a moment as if they wanted their share.
    config.limits.calls_per_session = 1024;
    let (server, memory) = server(config);
    for address in server.addresses() {
        for singly in [0, 1] {
            let client = Client::new(&address);
            let (calls, id) = (&client.calls, client.session);
            let file = client.open("gathered");
            // First: else it may be done before there is anything to wait for.
            memory.watch.block();
            let first = calls.write(id, file, 1 << 20, vec![9; 10].into());
            let waiting = |count: u64| {
                until("they wait", || {
                    client.engine.progress();
                    server.status().queued >= count
                });
            };
            until("one is at work", || {
                client.engine.progress();
                memory.watch.came.load(SeqCst) > 0
            });
            memory.watch.singly.store(singly, SeqCst);
            let data = pattern(32 * 4096, 5);
            // In an order that is none.
            let mut pieces: Vec<usize> = (0..32).map(|n| n * 13 % 32).collect();
            let writes: Vec<_> = pieces
                .iter()
                .map(|n| {
                    let piece = data[n * 4096..][..4096].to_vec();
                    (n, calls.write(id, file, (*n * 4096) as u64, piece.into()))
                })
                .collect();
            waiting(32);
            memory.watch.writes.lock().unwrap().clear();
            memory.watch.release();
            client.wait(first).unwrap();
            for (n, write) in writes {
                assert_eq!(client.wait(write).unwrap(), (n * 4096 + 4096) as u64);
            }
            let count = memory.watch.writes.lock().unwrap().len();
            assert!(memory.contents("gathered").unwrap().starts_with(&data));
            let gathered = server.status().sessions[0].counters.gathered;
            match singly {
                0 => assert!(count <= 4 && gathered == 32, "{count}, {gathered}"),
                _ => assert!(count >= 32 && gathered == 0, "each by itself: {count}, {gathered}"),
            }

            memory.watch.block();
            memory.watch.came.store(0, SeqCst);
            let first = calls.read(id, file, 1 << 20, 10);
            until("one is at work", || {
                client.engine.progress();
                memory.watch.came.load(SeqCst) > 0
            });
            pieces.push(256);
            let reads: Vec<_> = pieces
                .iter()
                .map(|n| (n, calls.read(id, file, (*n * 4096) as u64, 4096)))
                .collect();
            waiting(33);
            memory.watch.reads.lock().unwrap().clear();
            memory.watch.release();
            client.wait(first).unwrap();
            for (n, read) in reads {
                let came = client.wait(read).unwrap();
                match n {
                    256 => assert_eq!(came[..], [9; 10], "at the end of the file"),
                    n => assert!(came[..] == data[n * 4096..][..4096]),
                }
            }
            let count = memory.watch.reads.lock().unwrap().len();
            assert!(count <= 4, "{count}");
            client.wait(calls.remove(id, b"gathered".to_vec(), false)).unwrap();
            client.wait(calls.goodbye(id)).unwrap();
            memory.watch.singly.store(0, SeqCst);
            memory.watch.came.store(0, SeqCst);
        }
    }
}

#[test]
fn memory_has_a_limit() {
    let mut config = ServerConfig::default();
    config.limits.memory = 8 << 20;
    let (server, memory) = server(config);
    let addresses = server.addresses();
    std::thread::scope(|scope| {
        for number in 0..6usize {
            let (address, memory) = (&addresses[number % 3], &memory);
            scope.spawn(move || {
                let client = Client::new(address);
                let name = format!("file{number}");
                let file = client.open(&name);
                let data = pattern(16 << 20, number as u64);
                for round in 0..2 {
                    client.write_from(file, round * 1000, data.clone()).unwrap();
                    let into = Region::zeroed(16 << 20);
                    assert_eq!(
                        client.read_into(file, round * 1000, into.whole()).unwrap(),
                        16 << 20
                    );
                    assert!(into.to_vec() == data);
                }
                assert_eq!(memory.contents(&name).unwrap().len(), (16 << 20) + 1000);
            });
        }
    });
    let [used, peak, limit] = server.status().memory;
    assert!(peak <= limit && limit == 8 << 20 && peak > 1 << 20, "{peak}");
    assert_eq!(used, 0);
    assert_eq!(server.status().total.written, 6 * 2 * (16 << 20));
}

#[test]
fn a_rate_is_kept() {
    let mut config = ServerConfig::default();
    config.limits.rate = Some(10 << 20);
    let (server, _) = server(config);
    let client = Client::new(&server.addresses()[0]);
    let file = client.open("file");
    let start = std::time::Instant::now();
    for _ in 0..2 {
        client.write_from(file, 0, vec![1; 4 << 20]).unwrap();
    }
    // Eight MiB, of which the last block begins when seven are earned.
    assert!(start.elapsed().as_millis() >= 500, "{:?}", start.elapsed());
}
