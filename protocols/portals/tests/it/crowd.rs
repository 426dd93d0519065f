//! Thousands of processes: what one of them keeps does not grow with their number.

use crate::common::*;
use petasos_fabric::Region;
use petasos_portals::*;

/// Each process puts to a few others, and gets from them; none talks to all.
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
            let target = Target { offset: 8 * dimension, ..to(other as u32, 0, 0) };
            let put = Operation { ack: Ack::Full, ..Operation::put(source.part, target) };
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
