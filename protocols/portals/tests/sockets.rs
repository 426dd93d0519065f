//! Jobs of many processes over TCP: in a test process of its own, whose sockets are counted.

mod common;

use common::*;
use petasos_portals::*;

/// One process talks to many over TCP, and keeps a few sockets.
#[test]
fn sockets_do_not_grow_with_the_job() {
    const RANKS: usize = 16;
    const CAP: usize = 3;
    let mut config = petasos_tcp::Config::default();
    config.max_connections = Some(CAP);
    let address = "tcp://127.0.0.1:0".parse().unwrap();
    let ends: Vec<_> = (0..RANKS)
        .map(|_| petasos_tcp::TcpEndpoint::open(&address, config.clone()).unwrap())
        .collect();
    let map =
        ProcessMap::ranks(ends.iter().map(|end| petasos_fabric::Endpoint::address(end).clone()));
    let map = std::sync::Arc::new(map);
    let open = |end| Interface::open(Box::new(end), map.clone(), Config::default()).unwrap();
    let job = Job { ranks: ends.into_iter().map(open).collect(), net: None, addresses: Vec::new() };
    let sockets = || {
        let all = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = all.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    };
    let before = sockets();
    for rank in &job.ranks[1..] {
        append(rank, &door(rank), List::Priority, MatchEntry::new(vec![0; 8]));
    }
    let source = source(&job.ranks[0], &[7; 8]);
    for _ in 0..2 {
        for to_rank in 1..RANKS as u32 {
            let put = Operation::put(source.part, to(to_rank, 0, 0));
            job.ranks[0].start(Operation { ack: Ack::Full, ..put }).unwrap();
        }
        let names = job.names(0, source.queue);
        assert_eq!(names.iter().filter(|name| *name == "ack").count(), RANKS - 1, "{names:?}");
        // Both ends of each connection are in this process.
        job.until(|| {
            job.passes(500);
            (sockets() <= before + 2 * CAP).then_some(())
        });
    }
}
