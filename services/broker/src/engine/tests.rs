//! The engine in virtual time: tenants that keep to the rules, that are stopped, and that do not.

use super::*;
use petasos_tenant::wire::{CREDIT, HEAD, Pieces, Request, cost};
use petasos_testing::Random;
use std::time::Duration;

/// Messages that a ring holds.
const ROOM: usize = 8;

/// Runs an attempt for so many seeds, or for those of `PETASOS_SEEDS=FIRST..END`.
fn for_seeds(count: u64, attempt: impl Fn(u64)) {
    let told = std::env::var("PETASOS_SEEDS").ok().and_then(|text| {
        let (first, end) = text.split_once("..")?;
        Some(first.parse().ok()?..end.parse().ok()?)
    });
    for seed in told.unwrap_or(0..count) {
        println!("again with PETASOS_SEEDS={seed}..{}", seed + 1);
        attempt(seed);
    }
}

/// An endpoint: what lies in its ring, and what it knows.
#[derive(Default)]
struct End {
    ring: VecDeque<Vec<u8>>,
    stopped: bool,
    memory: HashMap<u64, Vec<u8>>,
    next: u64,
    /// Connections that it made: what it may send, and whether memory is lent.
    out: HashMap<u64, (u32, bool)>,
    /// That it has closed, of which the end may be under way to it, too.
    closed: Vec<u64>,
    /// Whether it tells of what it consumed only when it has to, and what it has not told.
    lazy: bool,
    untold: u32,
    ended: Vec<(u64, String)>,
    /// Connections to it: from whom, and what came.
    inward: HashMap<u64, (Name, Vec<Vec<u8>>)>,
    over: Vec<u64>,
}

struct World {
    engine: Engine,
    now: Time,
    ends: HashMap<PortId, End>,
    order: Vec<PortId>,
}

fn config(text: &str) -> Config {
    let tenant = |name: &str| format!("[[tenant]]\nname = \"{name}\"\nsocket = \"/{name}\"\n");
    let all: String = ["a", "b", "c"].iter().map(|name| tenant(name)).collect();
    Config::parse(&format!("{all}{text}")).unwrap()
}

const ALLOW: &str = "[[rule]]\nverdict = \"allow\"\nfrom = \"*\"\nto = \"*\"\n";

impl World {
    fn new(config: &Config) -> World {
        let now = Time(1_000_000_000);
        let engine = Engine::new(config, now);
        World { engine, now, ends: HashMap::new(), order: Vec::new() }
    }

    fn open(&mut self, tenant: usize, name: &str) -> PortId {
        let (id, _) = self.engine.attach(tenant, Some(&name.parse().unwrap()), self.now).unwrap();
        self.ends.insert(id, End { next: 1, ..End::default() });
        self.order.push(id);
        id
    }

    fn say(&mut self, port: PortId, request: &Request<'_>) -> Result<(), Violation> {
        // By the bytes, as a ring carries it.
        let bytes = request.encode().to_vec();
        self.engine.handle(port, &Request::decode(&bytes)?, self.now)
    }

    fn connect(&mut self, from: PortId, to: &str) -> u64 {
        let end = self.ends.get_mut(&from).unwrap();
        let connection = end.next;
        end.next += 1;
        end.out.insert(connection, (0, false));
        self.say(from, &Request::Connect { connection, to: to.parse().unwrap() }).unwrap();
        connection
    }

    /// Sends, if the window has room.
    fn send(&mut self, from: PortId, connection: u64, bytes: &[u8]) -> bool {
        let Some((window, lent)) = self.ends.get_mut(&from).unwrap().out.get_mut(&connection)
        else {
            return false;
        };
        if *lent || *window < cost(bytes.len()) {
            return false;
        }
        *window -= cost(bytes.len());
        self.say(from, &Request::Data { connection, bytes }).unwrap();
        true
    }

    /// Lends a payload of these bytes.
    fn lend(&mut self, from: PortId, connection: u64, bytes: &[u8]) -> bool {
        let end = self.ends.get_mut(&from).unwrap();
        let Some((window, lent)) = end.out.get_mut(&connection) else { return false };
        if *lent || *window < 65 {
            return false;
        }
        (*window, *lent) = (*window - 65, true);
        let memory = end.memory.get_mut(&1).expect("memory was registered");
        // Each connection has a place of its own.
        let at = (connection % 200 * 4096) as usize;
        memory[at..at + bytes.len()].copy_from_slice(bytes);
        let payload = pieces(at as u64, bytes.len());
        self.say(from, &Request::Lend { connection, header: b"h", payload }).unwrap();
        true
    }

    fn register(&mut self, port: PortId, len: usize) {
        self.engine.register(port, 1, len as u64).unwrap();
        self.ends.get_mut(&port).unwrap().memory.insert(1, vec![0; len]);
    }

    /// Carries out orders until there are none.
    fn carry_out(&mut self) {
        let mut count = 0;
        while let Some(order) = self.engine.poll(self.now) {
            count += 1;
            assert!(count < 1_000_000, "it never ends");
            let outcome = match order {
                Order::Send { port, answer } => {
                    let end = self.ends.get_mut(&port).expect("only to those that are there");
                    match end.ring.len() < ROOM {
                        true => {
                            end.ring.push_back(answer.encode().to_vec());
                            Outcome::Done
                        }
                        false => Outcome::Full,
                    }
                }
                Order::Copy { from, source, to, target } => {
                    let ([source], [target]) = (source, target) else { panic!("one piece each") };
                    assert_eq!(source.len, target.len);
                    let range =
                        |piece: &Piece| piece.offset as usize..(piece.offset + piece.len) as usize;
                    let bytes = self.ends[&from].memory[&source.file][range(source)].to_vec();
                    let end = self.ends.get_mut(&to).unwrap();
                    end.memory.get_mut(&target.file).unwrap()[range(target)]
                        .copy_from_slice(&bytes);
                    Outcome::Done
                }
                Order::Payload { from, source, to, connection } => {
                    let [Piece { file, offset, len }] = *source else { panic!("one piece") };
                    let at = offset as usize;
                    let bytes = self.ends[&from].memory[&file][at..at + len as usize].to_vec();
                    let end = self.ends.get_mut(&to).unwrap();
                    match end.ring.len() < ROOM {
                        true => {
                            let answer = Answer::Payload { connection, bytes: &bytes };
                            end.ring.push_back(answer.encode().to_vec());
                            Outcome::Done
                        }
                        false => Outcome::Full,
                    }
                }
            };
            self.engine.complete(outcome);
        }
    }

    /// An endpoint takes what is in its ring.
    fn consume(&mut self, port: PortId) {
        let end = self.ends.get_mut(&port).unwrap();
        if end.stopped {
            return;
        }
        for message in std::mem::take(&mut end.ring) {
            let end = self.ends.get_mut(&port).unwrap();
            let mut replies = Vec::new();
            match Answer::decode(&message).unwrap() {
                Answer::Incoming { connection, from } => {
                    assert!(end.inward.insert(connection, (from, Vec::new())).is_none());
                }
                Answer::Data { connection, bytes } => {
                    let (_, came) = end.inward.get_mut(&connection).expect("it was announced");
                    came.push(bytes.to_vec());
                    end.untold += cost(bytes.len());
                    if !end.lazy || end.untold >= CREDIT {
                        let bytes = std::mem::take(&mut end.untold);
                        replies.push(Request::Credit { connection, bytes });
                    }
                }
                Answer::Lent { connection, header, len } => {
                    assert_eq!(header, b"h");
                    replies.push(Request::Credit { connection, bytes: 65 });
                    replies.push(match end.memory.contains_key(&1) {
                        true => Request::Fetch {
                            connection,
                            into: pieces(target(connection), len as usize),
                        },
                        false => Request::Take { connection },
                    });
                    end.inward.get_mut(&connection).unwrap().1.push(vec![0; len as usize]);
                }
                Answer::Fetched { connection, done } => {
                    assert!(done, "memory is not taken back");
                    let (_, came) = end.inward.get_mut(&connection).unwrap();
                    let last = came.last_mut().expect("it was announced");
                    let len = last.len();
                    let at = target(connection) as usize;
                    last.copy_from_slice(&end.memory[&1][at..at + len]);
                }
                Answer::Payload { connection, bytes } => {
                    let (_, came) = end.inward.get_mut(&connection).unwrap();
                    *came.last_mut().expect("it was announced") = bytes.to_vec();
                }
                Answer::Ended { connection, why } => {
                    let was = end.out.remove(&connection).is_some();
                    assert!(was || end.closed.contains(&connection), "it ends once");
                    end.ended.push((connection, why));
                }
                Answer::Over { connection, .. } => end.over.push(connection),
                Answer::Credit { connection, bytes } => {
                    if let Some((window, _)) = end.out.get_mut(&connection) {
                        *window += bytes;
                    }
                }
                Answer::Returned { connection } => {
                    if let Some((_, lent)) = end.out.get_mut(&connection) {
                        assert!(std::mem::replace(lent, false), "it was lent");
                    }
                }
            }
            for reply in replies {
                self.say(port, &reply).unwrap();
            }
        }
        if self.engine.is_full(port) {
            self.engine.room(port);
        }
    }

    /// Until nothing happens any more at this time.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.carry_out();
            let busy = |end: &End| !end.stopped && !end.ring.is_empty();
            if !self.ends.values().any(busy) {
                return;
            }
            for port in self.order.clone() {
                self.consume(port);
            }
        }
        panic!("it never ends");
    }

    fn close(&mut self, port: PortId) {
        self.engine.detach(port, self.now);
        self.ends.remove(&port);
        self.order.retain(|id| *id != port);
    }

    fn came(&self, port: PortId) -> Vec<&Vec<u8>> {
        self.ends[&port].inward.values().flat_map(|(_, came)| came).collect()
    }
}

/// Where the payloads of a connection go.
fn target(connection: u64) -> u64 {
    connection % 200 * 4096 + (1 << 20)
}

fn pieces(offset: u64, len: usize) -> Pieces {
    [Piece { file: 1, offset, len: len as u64 }].into_iter().collect()
}

#[test]
fn rules_are_checked_before_data_flows() {
    let rule = "[[rule]]\nverdict = \"allow\"\nfrom = \"a\"\nto = \"x@b\"\n";
    let mut world = World::new(&config(rule));
    let (a, b, c) = (world.open(0, "x@a"), world.open(1, "x@b"), world.open(2, "x@c"));
    let refused = world.connect(c, "x@b");
    world.settle();
    assert_eq!(world.ends[&c].ended.len(), 1);
    assert!(world.ends[&c].ended[0].1.contains("no rule"), "{:?}", world.ends[&c].ended);
    assert!(world.ends[&b].inward.is_empty());
    // What it sends all the same goes nowhere, and is no violation: it may not know yet.
    world.say(c, &Request::Data { connection: refused, bytes: b"x" }).unwrap();
    // Nor does b connect to a, unless to answer, and for as long as that is asked for.
    world.connect(b, "x@a");
    world.settle();
    assert_eq!(world.ends[&b].ended.len(), 1);
    let asked = world.connect(a, "x@b");
    let answer = world.connect(b, "x@a");
    world.settle();
    assert!(world.send(a, asked, b"question") && world.send(b, answer, b"answer"));
    world.settle();
    assert_eq!(world.came(b), [&b"question".to_vec()]);
    assert_eq!(world.came(a), [&b"answer".to_vec()]);
    world.say(a, &Request::Close { connection: asked }).unwrap();
    world.settle();
    assert_eq!(world.ends[&b].over.len(), 1);
    assert_eq!(world.ends[&b].ended.last().unwrap().0, answer, "it was the answer to that");
    let status = world.engine.status();
    assert!(status.connections.is_empty(), "{:?}", status.connections);
    assert_eq!((status.tenants[0].connections_made, status.tenants[0].outstanding_bytes), (0, 0));
    assert_eq!((status.tenants[2].refused, status.tenants[1].refused), (1, 1));
    let refusals = status.log.iter().filter(|entry| entry.what == log::What::Refused);
    assert_eq!(refusals.count(), 2);
}

#[test]
fn other_rules_end_what_they_do_not_allow() {
    let mut world = World::new(&config(ALLOW));
    let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
    let (there, own) = (world.connect(a, "x@b"), world.connect(b, "x@b"));
    world.settle();
    world.ends.get_mut(&b).unwrap().stopped = true;
    assert!(world.send(a, there, b"on its way"));
    let other = config("[[rule]]\nverdict = \"deny\"\nfrom = \"a\"\nto = \"*\"\n");
    world.engine.reload(&other, world.now);
    world.ends.get_mut(&b).unwrap().stopped = false;
    world.settle();
    assert!(world.ends[&a].ended[0].1.contains("any more"));
    assert!(world.came(b).is_empty(), "revoked is what was on its way, too");
    assert!(world.send(b, own, b"still there"));
    // Of one that is gone, too.
    let mut world = World::new(&config(ALLOW));
    let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
    let there = world.connect(a, "x@b");
    world.settle();
    world.ends.get_mut(&b).unwrap().stopped = true;
    assert!(world.send(a, there, b"on its way"));
    world.close(a);
    world.engine.reload(&other, world.now);
    world.ends.get_mut(&b).unwrap().stopped = false;
    world.settle();
    assert!(world.came(b).is_empty());
}

#[test]
fn limits_are_kept_and_told() {
    let limits = "limits = { connections = 2, endpoints = 2, registered_bytes = 4000, registered_files = 8 }\n";
    let mut config =
        Config::parse(&format!("[[tenant]]\nname = \"a\"\nsocket = \"/a\"\n{limits}{ALLOW}"))
            .unwrap();
    let mut world = World::new(&config);
    let (one, two) = (world.open(0, "x@a"), world.open(0, "y@a"));
    let more = world.engine.attach(0, None, world.now).unwrap_err();
    assert!(more.contains("2 endpoints, its limit"), "{more}");
    (0..3).for_each(|_| _ = world.connect(one, "y@a"));
    world.settle();
    assert!(world.ends[&one].ended[0].1.contains("made 2 connections, its limit"));
    world.engine.register(one, 1, 600).unwrap();
    let more = world.engine.register(one, 2, 600);
    assert!(matches!(more, Err(Violation::Memory { registered: 600, most: 1000, .. })));
    world.say(one, &Request::Forget { file: 1 }).unwrap();
    world.engine.register(one, 2, 600).unwrap();
    // Another gets of what is left, and it is as it was when it is gone.
    let one = world.engine.memory(one);
    let two = world.engine.memory(two);
    assert_eq!((one, two), (Memory { bytes: 1000, files: 2 }, Memory { bytes: 750, files: 1 }));
    for port in world.order.clone() {
        world.close(port);
    }
    let one = world.open(0, "x@a");
    assert_eq!(world.engine.memory(one), Memory { bytes: 1000, files: 2 });
    (1..3).for_each(|file| world.engine.register(one, file, 1).unwrap());
    assert_eq!(world.engine.register(one, 3, 1), Err(Violation::Files(2)));
    // Bytes on their way: half of a window is left for the third connection, which is too little.
    config.tenants[0].limits.connections = 100;
    config.tenants[0].limits.outstanding_bytes = 600_000;
    let mut world = World::new(&config);
    let (one, _) = (world.open(0, "x@a"), world.open(0, "y@a"));
    let all: Vec<u64> = (0..3).map(|_| world.connect(one, "y@a")).collect();
    world.settle();
    assert_eq!(world.ends[&one].ended.len(), 1);
    let windows: u32 = all.iter().filter_map(|c| world.ends[&one].out.get(c)).map(|c| c.0).sum();
    assert!(windows <= 600_000 && windows > 500_000, "{windows}");
}

#[test]
fn a_stopped_receiver_stops_what_is_sent_to_it_and_nothing_else() {
    let mut world = World::new(&config(ALLOW));
    let (a, b, c) = (world.open(0, "x@a"), world.open(1, "x@b"), world.open(2, "x@c"));
    let (to_b, to_c) = (world.connect(a, "x@b"), world.connect(a, "x@c"));
    world.settle();
    world.ends.get_mut(&b).unwrap().stopped = true;
    let packet = vec![7; 10_000];
    while world.send(a, to_b, &packet) {
        world.settle();
    }
    for _ in 0..1000 {
        assert!(world.send(a, to_c, &packet));
        world.settle();
    }
    assert_eq!(world.came(c).len(), 1000);
    let kept: usize = world.engine.connections.values().map(|c| c.queue.len()).sum();
    assert!(kept * packet.len() < 600_000, "{kept} packets in the broker");
    // It goes on: all that was sent comes.
    world.ends.get_mut(&b).unwrap().stopped = false;
    let sent = 52;
    world.engine.room(b);
    world.settle();
    assert_eq!(world.came(b).len(), sent);
}

/// A receiver that drops a connection whose payload it asked for: it hears that nothing of its memory
/// is written any more, whether that was copied by then or not, or the sender has ended.
#[test]
fn who_drops_what_it_fetches_is_told_when_its_memory_is_its_own() {
    for case in 0..3 {
        let mut world = World::new(&config(ALLOW));
        let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
        world.register(a, 2 << 20);
        world.register(b, 2 << 20);
        let connection = world.connect(a, "x@b");
        world.settle();
        let id = *world.engine.connections.keys().next().unwrap();
        world.ends.get_mut(&b).unwrap().stopped = true;
        assert!(world.lend(a, connection, &[1; 100]));
        world.carry_out();
        world.ends.get_mut(&b).unwrap().ring.clear();
        let into = pieces(target(id), 100);
        match case {
            0 => world.say(b, &Request::Fetch { connection: id, into }).unwrap(),
            1 => {
                world.say(b, &Request::Fetch { connection: id, into }).unwrap();
                // There is no room for the word that it is there.
                world.ends.get_mut(&b).unwrap().ring = vec![Vec::new(); ROOM].into();
                world.carry_out();
                world.ends.get_mut(&b).unwrap().ring.clear();
            }
            _ => {
                world.say(a, &Request::Close { connection }).unwrap();
                world.say(b, &Request::Fetch { connection: id, into }).unwrap();
            }
        }
        world.say(b, &Request::Drop { connection: id }).unwrap();
        world.engine.room(b);
        world.carry_out();
        let ring = &world.ends[&b].ring;
        let told = ring.iter().map(|message| Answer::decode(message).unwrap()).collect::<Vec<_>>();
        assert_eq!(told, [Answer::Fetched { connection: id, done: false }], "{case}");
        let written = world.ends[&b].memory[&1][target(id) as usize];
        assert_eq!(written, u8::from(case == 1), "{case}");
        world.ends.get_mut(&a).unwrap().ring.clear();
        world.close(a);
        assert!(world.engine.connections.is_empty(), "{case}");
    }
}

#[test]
fn credit_that_is_not_taken_does_not_grow() {
    let mut world = World::new(&config(ALLOW));
    let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
    let connection = world.connect(a, "x@b");
    world.ends.get_mut(&a).unwrap().stopped = true;
    world.engine.set_full(a);
    world.settle();
    let packet = vec![1; 100_000];
    for _ in 0..10 {
        world.say(a, &Request::Data { connection, bytes: &packet }).unwrap();
        world.settle();
    }
    assert_eq!(world.came(b).len(), 10);
    let known = world.engine.connections.values().next().unwrap();
    assert_eq!(known.owed_from.credit, known.window);
}

/// The least window, with packets of the greatest length and the smallest, to a receiver that tells of
/// what it has consumed as seldom as it may.
#[test]
fn the_least_window_never_stalls() {
    let mut config = config(ALLOW);
    config.tenants[0].limits.outstanding_bytes = u64::from(connection::MIN_WINDOW);
    let mut world = World::new(&config);
    let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
    let connection = world.connect(a, "x@b");
    world.settle();
    world.ends.get_mut(&b).unwrap().lazy = true;
    for len in [connection::PACKET, 1, 130_000, 3, connection::PACKET, 100_000] {
        let packet = vec![1; len];
        for nth in 0..10 {
            assert!(world.send(a, connection, &packet), "{nth} of {len}");
            world.settle();
        }
    }
    assert_eq!(world.came(b).len(), 60);
}

/// One that reads nothing, and makes and ends connections for ever, to itself and to another that
/// does not read: nothing of the broker's grows with that.
#[test]
fn who_never_reads_makes_nothing_grow() {
    let mut config = config(ALLOW);
    config.tenants[2].limits.connections = 100;
    let mut world = World::new(&config);
    let (b, c) = (world.open(1, "x@b"), world.open(2, "x@c"));
    world.connect(b, "x@c");
    world.settle();
    for port in [b, c] {
        world.ends.get_mut(&port).unwrap().stopped = true;
    }
    let mut ended = None;
    for round in 0..10_000_u64 {
        let number = round + 1;
        let to = ["x@c", "x@b"][round as usize % 2].parse().unwrap();
        let last = world.engine.next;
        ended = world.say(c, &Request::Connect { connection: number, to }).err();
        if ended.is_some() {
            break;
        }
        world.say(c, &Request::Data { connection: number, bytes: b"x" }).unwrap();
        if round % 3 == 0 {
            world.carry_out();
        }
        world.say(c, &Request::Close { connection: number }).unwrap();
        if world.engine.next > last {
            world.say(c, &Request::Drop { connection: last }).unwrap();
        }
        if round % 3 == 1 {
            world.carry_out();
        }
        let Engine { ports, tenants, connections, .. } = &world.engine;
        let listed: usize = ports.values().map(|port| port.owed.len() + port.blocked.len()).sum();
        let active: usize = tenants.iter().map(|tenant| tenant.active.len()).sum();
        let all = (listed, active, connections.len());
        assert!(listed <= 300 && active <= 101 && connections.len() <= 101, "{round}: {all:?}");
    }
    assert_eq!(ended, Some(Violation::Flood), "in the end it is found out");
    // Others are not kept from each other, nor from what they have.
    world.engine.expel(c, "it floods", world.now);
    world.ends.remove(&c);
    world.order.retain(|port| *port != c);
    world.ends.get_mut(&b).unwrap().stopped = false;
    world.engine.room(b);
    world.settle();
    world.close(b);
    assert!(world.engine.connections.is_empty());
}

#[test]
fn connections_that_come_and_go_hide_no_refusal_and_are_paid_for() {
    let mut config = config("");
    config.tenants[0].limits.messages_per_second = Some(1000);
    let mut world = World::new(&config);
    let (a, _) = (world.open(0, "x@a"), world.open(1, "x@b"));
    world.connect(a, "x@b");
    for _ in 0..3000 {
        let connection = world.connect(a, "x@a");
        world.settle();
        world.say(a, &Request::Close { connection }).unwrap();
        world.settle();
    }
    let status = world.engine.status();
    assert!(status.log.iter().any(|entry| entry.what == log::What::Refused));
    assert!(status.log.is_sorted_by_key(|entry| entry.time_ns) && status.log.len() < 3000);
    let connection = world.connect(a, "x@a");
    world.settle();
    assert!(world.send(a, connection, b"x"));
    world.settle();
    assert!(world.came(a).is_empty(), "it has no messages to spare");
    world.now = world.engine.next_time();
    world.settle();
    assert_eq!(world.came(a).len(), 1);
}

#[test]
fn each_tenant_gets_its_share_whatever_others_do() {
    let mut world = World::new(&config(ALLOW));
    let receiver = world.open(2, "x@c");
    let (greedy, polite) = (world.open(0, "x@a"), world.open(1, "x@b"));
    let many: Vec<u64> = (0..50).map(|_| world.connect(greedy, "x@c")).collect();
    let one = world.connect(polite, "x@c");
    world.settle();
    let packet = vec![7; 8000];
    let mut carried = [0; 2];
    for _ in 0..3000 {
        for connection in &many {
            world.send(greedy, *connection, &packet);
        }
        while world.send(polite, one, &packet) {}
        // There is room for a few at a time.
        world.carry_out();
        world.consume(receiver);
        world.consume(greedy);
        world.consume(polite);
        let status = world.engine.status();
        carried = [status.tenants[0].sent.bytes, status.tenants[1].sent.bytes];
        if carried[0] > 20_000_000 {
            break;
        }
    }
    let share = carried[0] as f64 / (carried[0] + carried[1]) as f64;
    assert!((0.45..0.55).contains(&share), "{carried:?}");
    // And among the connections of the greedy one it is fair, too.
    let each = world.engine.connections.values().filter(|c| c.tenants[0] == 0);
    let each: Vec<u64> = each.map(|c| c.counters.bytes).collect();
    let (least, most) = (each.iter().min().unwrap(), each.iter().max().unwrap());
    assert!(most - least <= 2 * (64 << 10), "{least} to {most}");
}

#[test]
fn rates_are_kept_and_nothing_is_done_while_waiting() {
    let mut config = config(ALLOW);
    config.tenants[0].limits.bytes_per_second = Some(3_000_000);
    config.tenants[1].limits.bytes_per_second = Some(1_000_000);
    config.tenants[1].limits.messages_per_second = Some(1_000_000);
    let mut world = World::new(&config);
    let receiver = world.open(2, "x@c");
    let senders = [world.open(0, "x@a"), world.open(1, "x@b")];
    let connections = senders.map(|sender| world.connect(sender, "x@c"));
    world.settle();
    let (packet, end) = (vec![7; 5000], world.now.after(Duration::from_secs(10)));
    let mut polls = 0;
    while world.now < end {
        for (sender, connection) in senders.iter().zip(connections) {
            while world.send(*sender, connection, &packet) {
                world.settle();
            }
        }
        polls += 1;
        let next = world.engine.next_time();
        assert!(next > world.now, "it is not asked again in vain");
        world.now = next.min(end);
        world.settle();
    }
    let status = world.engine.status();
    let sent = [0, 1].map(|nth| status.tenants[nth].sent.bytes as f64);
    assert!((sent[0] / 30e6 - 1.0).abs() < 0.02 && (sent[1] / 10e6 - 1.0).abs() < 0.02, "{sent:?}");
    assert!(polls < 20_000, "{polls}");
    assert!(status.tenants[0].throttled > 0);
    assert_eq!(world.came(receiver).len() as f64 * 5000.0, sent[0] + sent[1]);
}

#[test]
fn payloads_are_copied_in_place_or_through_the_ring() {
    let mut world = World::new(&config(ALLOW));
    let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
    world.register(a, 2 << 20);
    let connection = world.connect(a, "x@b");
    world.settle();
    let payload: Vec<u8> = (0..1000).map(|at| at as u8).collect();
    assert!(world.lend(a, connection, &payload) && !world.send(a, connection, b"later"));
    world.settle();
    assert!(world.send(a, connection, b"later"), "the memory is back");
    world.register(b, 2 << 20);
    assert!(world.lend(a, connection, &payload[..500]));
    world.settle();
    assert_eq!(world.came(b), [&payload, &b"later".to_vec(), &payload[..500].to_vec()]);
    let sent = world.engine.status().tenants[0].sent;
    assert_eq!((sent.messages, sent.bytes_in_place), (3, 500));

    // A sender that ends before its payload was fetched: nothing of its memory is read any more.
    world.ends.get_mut(&b).unwrap().stopped = true;
    assert!(world.lend(a, connection, &payload));
    world.carry_out();
    world.close(a);
    world.ends.get_mut(&b).unwrap().stopped = false;
    world.settle();
    assert_eq!((world.came(b).len(), world.ends[&b].over.len()), (4, 1));
    assert!(world.engine.connections.is_empty());
}

#[test]
fn who_breaks_the_rules_is_found_out() {
    let mut world = World::new(&config(ALLOW));
    let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
    world.register(a, 8192);
    let connection = world.connect(a, "x@b");
    world.settle();
    let id = *world.engine.connections.keys().next().unwrap();
    let beyond = pieces(8000, 193);
    let elsewhere: Pieces = [Piece { file: 9, offset: 0, len: 5 }].into_iter().collect();
    let (long, header) = (vec![0; 140_000], b"h");
    let to = "x@b".parse().unwrap();
    for (port, request) in [
        (a, Request::Connect { connection, to }),
        (a, Request::Data { connection: 99, bytes: b"x" }),
        (a, Request::Data { connection, bytes: &long }),
        (a, Request::Lend { connection, header, payload: beyond }),
        (a, Request::Lend { connection, header, payload: elsewhere.clone() }),
        (b, Request::Credit { connection: id, bytes: 1 }),
        (b, Request::Fetch { connection: id, into: elsewhere }),
        (b, Request::Drop { connection: id + 1000 }),
        (b, Request::Forget { file: 1 }),
    ] {
        let result = world.say(port, &request);
        assert!(result.is_err(), "{request:?}");
    }
    // What is another's is as if it were not there.
    world.say(a, &Request::Drop { connection: id }).unwrap();
    world.say(a, &Request::Credit { connection: id, bytes: 1 }).unwrap();
    world.say(b, &Request::Close { connection: 0 }).unwrap();
    assert!(world.send(a, connection, b"still there"));
    world.settle();
    assert_eq!(world.came(b).len(), 1);
    // Memory that is lent, and a packet behind it; a target of another length.
    world.ends.get_mut(&b).unwrap().stopped = true;
    assert!(world.lend(a, connection, &[1; 100]));
    let behind = world.say(a, &Request::Data { connection, bytes: b"x" });
    assert_eq!(behind, Err(Violation::Behind));
    world.carry_out();
    world.register(b, 4096);
    let target = world.say(b, &Request::Fetch { connection: id, into: pieces(0, 99) });
    assert_eq!(target, Err(Violation::Target { is: 100, wanted: 99 }));
    world.engine.expel(b, "it did that", world.now);
    assert_eq!(world.engine.status().tenants[1].violations, 1);
}

/// Endpoints that come, go, connect, send, lend, stop and go on: what comes is what was sent, in
/// order, and in the end nothing is left.
#[test]
fn whatever_happens_what_comes_is_what_was_sent() {
    for_seeds(60, |seed| {
        let mut random = Random::new(seed);
        let mut config = config(ALLOW);
        if seed % 3 == 0 {
            config.tenants[0].limits.bytes_per_second = Some(50_000_000);
        }
        let mut world = World::new(&config);
        let names = ["p", "q"];
        let mut sent: HashMap<(PortId, u64), u64> = HashMap::new();
        for _ in 0..400 {
            let ports = world.order.clone();
            let some =
                |random: &mut Random| (!ports.is_empty()).then(|| ports[random.below(ports.len())]);
            match random.below(12) {
                0 if ports.len() < 6 => {
                    let tenant = random.below(3);
                    let name = names[random.below(2)];
                    let name = format!("{name}@{}", ["a", "b", "c"][tenant]);
                    if !world.engine.names.contains_key(&name.parse::<Name>().unwrap()) {
                        let port = world.open(tenant, &name);
                        if random.below(2) == 0 {
                            world.register(port, 2 << 20);
                        }
                    }
                }
                1 if random.below(4) == 0 => {
                    if let Some(port) = some(&mut random) {
                        world.close(port);
                    }
                }
                2 => {
                    if let Some(port) = some(&mut random) {
                        let to = format!(
                            "{}@{}",
                            names[random.below(2)],
                            ["a", "b", "c"][random.below(3)]
                        );
                        world.connect(port, &to);
                    }
                }
                3 => {
                    if let Some(port) = some(&mut random) {
                        let end = world.ends.get_mut(&port).unwrap();
                        end.stopped = !end.stopped;
                    }
                }
                4 => world.now = world.now.after(Duration::from_micros(random.below(3000) as u64)),
                5 => {
                    if let Some(port) = some(&mut random) {
                        let mut open: Vec<u64> = world.ends[&port].out.keys().copied().collect();
                        open.sort_unstable();
                        if let Some(connection) = open.first().copied() {
                            let end = world.ends.get_mut(&port).unwrap();
                            end.out.remove(&connection);
                            end.closed.push(connection);
                            world.say(port, &Request::Close { connection }).unwrap();
                        }
                    }
                }
                _ => {
                    let Some(port) = some(&mut random) else { continue };
                    let mut open: Vec<u64> = world.ends[&port].out.keys().copied().collect();
                    open.sort_unstable();
                    if open.is_empty() {
                        continue;
                    }
                    let connection = open[random.below(open.len())];
                    let nth = sent.entry((port, connection)).or_default();
                    let mut bytes = vec![*nth as u8; 20 + random.below(3000)];
                    bytes[..8].copy_from_slice(&nth.to_le_bytes());
                    bytes[8..16].copy_from_slice(&port.0.to_le_bytes());
                    let lends = world.ends[&port].memory.contains_key(&1) && random.below(2) == 0;
                    let gone = match lends {
                        true => world.lend(port, connection, &bytes),
                        false => world.send(port, connection, &bytes),
                    };
                    *nth += u64::from(gone);
                    if random.below(3) == 0 {
                        world.carry_out();
                    }
                    if random.below(3) == 0 {
                        world.consume(port);
                    }
                }
            }
            if random.below(20) == 0 {
                world.settle();
            }
        }
        for end in world.ends.values_mut() {
            end.stopped = false;
        }
        for _ in 0..200 {
            world.settle();
            world.now = world.now.after(Duration::from_millis(50));
        }
        for end in world.ends.values() {
            for (_, came) in end.inward.values() {
                let mut from = None;
                for (nth, bytes) in came.iter().enumerate() {
                    // The last payload of a sender that ended is never fetched.
                    if nth + 1 == came.len() && bytes.iter().all(|byte| *byte == 0) {
                        break;
                    }
                    let word =
                        |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
                    assert_eq!(word(0), nth as u64, "in order, and each once");
                    assert_eq!(*from.get_or_insert(word(8)), word(8), "of one sender");
                    assert!(bytes[16..].iter().all(|byte| *byte == nth as u8), "whole");
                }
            }
        }
        for port in world.order.clone() {
            world.close(port);
        }
        assert!(world.engine.connections.is_empty() && world.engine.names.is_empty());
        for tenant in &world.engine.tenants {
            let left = (tenant.ports, tenant.made, tenant.taken, tenant.granted);
            assert_eq!(left, (0, 0, 0, 0));
        }
    });
}

/// Garbage that looks like requests: no panic, and others go on.
#[test]
fn garbage_harms_nobody_else() {
    for_seeds(20, |seed| {
        let mut random = Random::new(seed);
        let mut world = World::new(&config(ALLOW));
        let (a, b) = (world.open(0, "x@a"), world.open(1, "x@b"));
        let connection = world.connect(a, "x@b");
        world.settle();
        for round in 0..300_u64 {
            let (id, _) = world.engine.attach(2, None, world.now).unwrap();
            world.ends.insert(id, End { stopped: true, ..End::default() });
            world.engine.register(id, 1, 4096).unwrap();
            world.ends.get_mut(&id).unwrap().memory.insert(1, vec![0; 4096]);
            loop {
                let near = if random.below(2) == 0 { 0 } else { id.0 };
                let number = random.below(6) as u64 + near;
                let payload = pieces(random.below(4100) as u64, random.below(40));
                let to = ["x@a", "x@b", "nobody@c"][random.below(3)].parse().unwrap();
                let request = match random.below(10) {
                    0 | 1 => Request::Connect { connection: number, to },
                    2 | 3 => Request::Data { connection: number, bytes: b"hostile" },
                    4 => Request::Lend { connection: number, header: b"h", payload },
                    5 => Request::Close { connection: number },
                    6 => Request::Drop { connection: number },
                    7 => Request::Credit { connection: number, bytes: random.below(9) as u32 },
                    8 => Request::Fetch { connection: number, into: payload },
                    _ => Request::Take { connection: number },
                };
                if world.say(id, &request).is_err() {
                    break;
                }
                if random.below(4) == 0 {
                    world.carry_out();
                }
            }
            world.engine.expel(id, "garbage", world.now);
            world.ends.remove(&id);
            assert!(world.send(a, connection, &round.to_le_bytes()));
            world.settle();
        }
        let own = world.ends[&b].inward.values().find(|(from, _)| from.tenant() == "a").unwrap();
        assert_eq!(own.1.len(), 300);
        world.close(a);
        world.close(b);
        assert!(world.engine.connections.is_empty());
    });
}

#[test]
fn the_head_of_a_message_is_what_the_wire_says() {
    assert_eq!(Request::Close { connection: 1 }.encode().head.len(), HEAD);
}
