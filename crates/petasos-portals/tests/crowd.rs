//! Thousands of processes: what one of them keeps does not grow with their number.

mod common;

use common::*;
use petasos_fabric::Region;
use petasos_portals::*;

/// Each process puts to a few others, and gets from them; nobody talks to all.
#[test]
fn thousands_of_processes_and_what_each_keeps() {
    const RANKS: usize = 4096;
    let job = Job::new(Over::Sim, RANKS);
    let word = |n: usize| (n as u64).to_le_bytes();
    let mut doors = Vec::new();
    let mut memory = Vec::new();
    for rank in &job.ranks {
        let door = door(rank);
        let own = Region::zeroed(8 * 16);
        let accepts = Accepts::PUT.with(Accepts::GET);
        let entry = MatchEntry { accepts, ..MatchEntry::new(own.clone()) };
        append(rank, &door, List::Priority, entry);
        doors.push(door);
        memory.push(own);
    }
    let sources: Vec<_> = (0..RANKS).map(|n| source(&job.ranks[n], &word(n))).collect();
    for (n, source) in sources.iter().enumerate() {
        for dimension in 0..12 {
            let other = n ^ (1 << dimension);
            let place = Place { offset: 8 * dimension, ..to(other as u32, 0, 0) };
            let put = Operation { ack: Ack::Full, ..Operation::put(source.part, place) };
            job.ranks[n].start(put).unwrap();
        }
    }
    let net = job.net.as_ref().unwrap();
    let mut idle = 0;
    while idle < 3 {
        let mut busy = false;
        for rank in &job.ranks {
            busy |= rank.progress_at(net.now());
        }
        // Many steps to a pass: there are many processes.
        for _ in 0..RANKS {
            busy |= net.step();
        }
        idle = if busy { 0 } else { idle + 1 };
    }
    for (n, rank) in job.ranks.iter().enumerate() {
        let events = std::iter::from_fn(|| rank.take_event(sources[n].queue).ok());
        let acks = events.filter(|taken| name(&taken.event) == "ack").count();
        let status = rank.status();
        assert_eq!((acks, status.operations, status.peers), (12, 0, 12), "rank {n}");
        let there = memory[n].to_vec();
        for dimension in 0..12 {
            assert_eq!(there[8 * dimension..][..8], word(n ^ (1 << dimension)));
        }
    }
}

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
        job.until(|| (sockets() <= before + 2 * CAP).then_some(()));
    }
}
