//! Idle connections are closed, and made again when there is something to send: nothing shows it
//! but the number of sockets.

use petasos_conformance::Random;
use petasos_fabric::{
    Address, Clock, Endpoint, Event, InjectError, LostReason, Peer, PeerState, Sleep,
};
use petasos_tcp::{Config, TcpEndpoint};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(40);

struct World {
    clock: Clock,
    ends: Vec<TcpEndpoint>,
    events: Vec<Vec<Event>>,
}

fn open(set: impl Fn(&mut Config)) -> TcpEndpoint {
    let mut config = Config::default();
    set(&mut config);
    TcpEndpoint::open(&Address::parse("tcp://127.0.0.1:0").unwrap(), config).unwrap()
}

impl World {
    fn new(count: usize, set: impl Fn(usize, &mut Config)) -> World {
        let ends: Vec<_> = (0..count).map(|at| open(|config| set(at, config))).collect();
        World { clock: Clock::start(), ends, events: (0..count).map(|_| Vec::new()).collect() }
    }

    fn pass(&mut self) {
        for (end, events) in self.ends.iter_mut().zip(&mut self.events) {
            end.progress(self.clock.now(), 64, events);
        }
    }

    fn until(&mut self, what: &str, mut seen: impl FnMut(&World) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !seen(self) {
            self.pass();
            std::thread::sleep(Duration::from_micros(50));
            assert!(Instant::now() < end, "{what}: {:?}", self.events);
        }
    }

    fn rest(&mut self, time: Duration) {
        let end = Instant::now() + time;
        self.until("time goes on", |_| Instant::now() >= end);
    }

    fn peer(&mut self, from: usize, to: usize) -> Peer {
        let address = self.ends[to].address().clone();
        self.ends[from].resolve(&address, PATIENCE).unwrap()
    }

    fn send(&mut self, from: usize, to: Peer, text: &str) {
        while let Err(error) = self.ends[from].inject(to, &[text.as_bytes()]) {
            assert!(matches!(error, InjectError::Full), "{error}");
            self.pass();
        }
    }

    /// Takes the messages of an end, with the peers that sent them.
    fn messages(&mut self, at: usize) -> Vec<(Peer, String)> {
        let mut found = Vec::new();
        self.events[at].retain(|event| match event {
            Event::Message { peer, message } => {
                found.push((*peer, String::from_utf8(message.to_vec()).unwrap()));
                false
            }
            Event::PeerUp { .. } | Event::Writable { .. } => false,
            _ => true,
        });
        found
    }

    fn message(&mut self, at: usize) -> (Peer, String) {
        let mut found = Vec::new();
        self.until("a message", |world| {
            world.events[at].iter().any(|event| matches!(event, Event::Message { .. }))
        });
        found.append(&mut self.messages(at));
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    fn closed(&self, at: usize) -> u64 {
        self.ends[at].counters().closed_idle
    }

    /// Sockets to peers, of all ends of this test: both sides of each connection are here.
    fn connections(&self) -> u64 {
        let of = |end: &TcpEndpoint| end.counters().connections - end.counters().closed_idle;
        self.ends.iter().map(of).sum()
    }
}

fn both(_: usize, config: &mut Config) {
    config.close_idle_after = Some(SHORT);
}

#[test]
fn an_idle_connection_is_closed_and_made_again_by_either_side() {
    let mut world = World::new(2, both);
    let there = world.peer(0, 1);
    world.send(0, there, "first");
    let (back, text) = world.message(1);
    assert_eq!(text, "first");
    for round in 1..5_u64 {
        world.until("both sides closed it", |world| {
            world.closed(0) == round && world.closed(1) == round
        });
        assert_eq!(world.connections(), 0);
        for at in 0..2 {
            let now = world.clock.now();
            let peer = [there, back][at];
            assert_eq!(world.ends[at].peer(peer).unwrap().state, PeerState::Up);
            assert!(!matches!(world.ends[at].arm(now), Sleep::Until(until) if until <= now));
        }
        // By one side, by the other, and by both at a time.
        if round != 2 {
            world.send(0, there, &format!("to {round}"));
        }
        if round != 1 {
            world.send(1, back, &format!("from {round}"));
        }
        if round != 2 {
            assert_eq!(world.message(1), (back, format!("to {round}")));
        }
        if round != 1 {
            assert_eq!(world.message(0), (there, format!("from {round}")));
        }
        assert!(world.ends.iter().any(|end| end.counters().resumed == round));
    }
    assert!(world.events.iter().all(Vec::is_empty), "{:?}", world.events);
}

#[test]
fn a_peer_that_keeps_connections_is_asked_and_keeps_them() {
    let mut world = World::new(2, |at, config| {
        config.close_idle_after = (at == 0).then_some(SHORT);
    });
    let there = world.peer(0, 1);
    world.send(0, there, "first");
    let (back, _) = world.message(1);
    world.rest(4 * SHORT);
    assert_eq!((world.closed(0), world.closed(1)), (0, 0));
    world.send(0, there, "second");
    assert_eq!(world.message(1), (back, "second".to_owned()));
    world.send(1, back, "third");
    assert_eq!(world.message(0), (there, "third".to_owned()));
    assert_eq!(world.ends[0].counters().connections, 1);
}

#[test]
fn connections_are_capped() {
    const SPOKES: usize = 12;
    let mut world = World::new(SPOKES + 1, |at, config| {
        config.max_connections = Some(if at == 0 { 4 } else { 100 });
    });
    let peers: Vec<Peer> = (1..=SPOKES).map(|to| world.peer(0, to)).collect();
    for round in 0..3 {
        for (at, peer) in peers.iter().enumerate() {
            world.send(0, *peer, &format!("{round}"));
            assert_eq!(world.message(at + 1).1, format!("{round}"));
        }
        world.until("no more than four stay", |world| world.connections() <= 8);
    }
    assert!(world.ends[0].counters().resumed >= 8);
    assert!(world.events[0].iter().all(|event| matches!(event, Event::PeerUp { .. })));
}

#[test]
fn a_peer_that_has_forgotten_a_session_begins_anew() {
    let mut world = World::new(2, both);
    let there = world.peer(0, 1);
    world.send(0, there, "first");
    let (back, _) = world.message(1);
    world.until("both sides closed it", |world| world.closed(0) == 1 && world.closed(1) == 1);
    world.ends[1].forget(back);
    world.send(0, there, "to a peer that forgot");
    world.until("the loss is told", |world| {
        let lost = |event: &Event| matches!(event, Event::PeerLost { peer, .. } if *peer == there);
        world.events[0].iter().any(lost)
    });
    assert!(world.messages(1).is_empty());
    let there = world.peer(0, 1);
    world.send(0, there, "again");
    assert_eq!(world.message(1).1, "again");
}

#[test]
fn the_death_of_an_idle_peer_is_noticed_at_the_next_message() {
    let mut world = World::new(2, |at, config| {
        both(at, config);
        config.silence = Duration::from_secs(2);
    });
    let there = world.peer(0, 1);
    world.send(0, there, "first");
    world.message(1);
    world.until("both sides closed it", |world| world.closed(0) == 1 && world.closed(1) == 1);
    let address = world.ends[1].address().clone();
    world.ends.truncate(1);
    world.rest(SHORT);
    assert_eq!(world.ends[0].peer(there).unwrap().state, PeerState::Up);
    // Another incarnation at the address.
    world.ends.push(TcpEndpoint::open(&address, Config::default()).unwrap());
    world.send(0, there, "for the dead");
    let mut reason = None;
    world.until("the loss is told", |world| {
        reason = world.events[0].iter().find_map(|event| match event {
            Event::PeerLost { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        reason.is_some()
    });
    assert_eq!(reason, Some(LostReason::Restarted));
    world.rest(SHORT);
    assert!(world.messages(1).is_empty(), "the successor gets nothing of it");
}

#[test]
fn nothing_is_lost_at_any_moment() {
    at_any_moment(false);
}

#[test]
fn nothing_is_lost_at_any_moment_where_both_speak() {
    at_any_moment(true);
}

/// Messages at random moments around those at which connections are closed: none is lost, or out of
/// order. Of two either one speaks, and so connects again, or both do.
fn at_any_moment(both: bool) {
    let mut world = World::new(3, |_, config| {
        config.close_idle_after = Some(Duration::from_millis(12));
    });
    let mut random = Random::new(11);
    let mut sent = [[0_u64; 3]; 3];
    let mut got = [[0_u64; 3]; 3];
    let end = Instant::now() + Duration::from_secs(4);
    let check = |world: &mut World, got: &mut [[u64; 3]; 3]| {
        for (at, got) in got.iter_mut().enumerate() {
            for (_, text) in world.messages(at) {
                let (from, number) = text.split_once(' ').unwrap();
                let count = &mut got[from.parse::<usize>().unwrap()];
                assert_eq!(number.parse::<u64>().unwrap(), *count, "in order, from {from} to {at}");
                *count += 1;
            }
            assert!(world.events[at].is_empty(), "{:?}", world.events[at]);
        }
    };
    while Instant::now() < end {
        let from = random.below(3);
        let to = (from + 1 + random.below(if both { 2 } else { 1 })) % 3;
        for _ in 0..1 + random.below(3) {
            let peer = world.peer(from, to);
            let text = format!("{from} {}", sent[to][from]);
            world.send(from, peer, &text);
            sent[to][from] += 1;
        }
        let pause = Instant::now() + Duration::from_micros(random.below(40_000) as u64);
        while Instant::now() < pause {
            world.pass();
            std::thread::sleep(Duration::from_micros(random.below(300) as u64));
        }
        check(&mut world, &mut got);
    }
    let last = Instant::now() + Duration::from_secs(10);
    while got != sent {
        world.pass();
        check(&mut world, &mut got);
        assert!(Instant::now() < last, "{sent:?} {got:?}");
    }
    let resumed: u64 = world.ends.iter().map(|end| end.counters().resumed).sum();
    assert!(resumed > 0, "connections were closed and made again");
}
