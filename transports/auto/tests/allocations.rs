//! Operations allocate nothing once they are under way: over shared memory, and through `auto` over
//! it. Both ends are driven on one thread, and counted together.

use bytes::Bytes;
use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Clock, Endpoint, Event, Lease, Level, Operation, Payload, Peer,
    Region, Remote, RemoteSpan, Time, Token,
};
use petasos_shm::Shm;
use petasos_tcp::TcpEndpoint;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Rounds before it is counted, and while it is.
const WARM: u32 = 2000;
const COUNTED: u32 = 1000;
const DATA: &[u8] = b"8 bytes.";

fn shm() -> Shm {
    Shm::open(&"shm://*".parse().unwrap()).unwrap()
}

fn auto() -> Auto {
    let tcp = TcpEndpoint::open(&"tcp://127.0.0.1:0".parse().unwrap(), Default::default());
    let members = vec![
        Member { endpoint: Box::new(shm()), scope: Scope::Node },
        Member { endpoint: Box::new(tcp.unwrap()), scope: Scope::Network },
    ];
    Auto::open(Node::local(), members).unwrap()
}

/// Two endpoints that are connected: operations are of the first.
struct Pair<E> {
    ends: [E; 2],
    /// The second at the first, and the reverse.
    peers: [Peer; 2],
    now: Time,
    queue: VecDeque<Operation>,
    events: Vec<Event>,
    message: Lease,
}

impl<E: Endpoint> Pair<E> {
    fn new(mut ends: [E; 2]) -> Pair<E> {
        let there = ends[1].address().clone();
        ends[0].resolve(&there, PATIENCE).unwrap();
        let (clock, begin) = (Clock::start(), Instant::now());
        let (mut up, mut events) = ([None; 2], Vec::new());
        while up.contains(&None) {
            assert!(begin.elapsed() < PATIENCE, "both are up");
            for (end, up) in ends.iter_mut().zip(&mut up) {
                end.progress(clock.now(), 64, &mut events);
                for event in events.drain(..) {
                    if let Event::PeerUp { peer, .. } = event {
                        *up = Some(peer);
                    }
                }
            }
        }
        let (peers, now) = (up.map(Option::unwrap), clock.now());
        let (queue, message) = (VecDeque::new(), Lease::default());
        Pair { ends, peers, now, queue, events, message }
    }

    /// Submits operations of the ends, and drives both until so many have completed, and so many
    /// messages were taken.
    fn round(&mut self, operations: impl IntoIterator<Item = (usize, Operation)>, messages: u32) {
        let (mut open, mut missing) = (0, messages);
        for (end, operation) in operations {
            self.queue.push_back(operation);
            self.ends[end].submit(&mut self.queue);
            assert!(self.queue.is_empty(), "it is accepted");
            open += 1;
        }
        while open > 0 || missing > 0 {
            missing -= u32::from(self.ends[1].poll_message(&mut self.message).is_some());
            for end in &mut self.ends {
                end.progress(self.now, 64, &mut self.events);
            }
            for event in self.events.drain(..) {
                match event {
                    Event::Message { .. } => missing -= 1,
                    Event::Done { result: Ok(_), .. } => open -= 1,
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    /// Blocks of memory that were allocated in rounds that are all alike.
    fn allocations(&mut self, mut one: impl FnMut(&mut Pair<E>)) -> u64 {
        (0..WARM).for_each(|_| one(self));
        allocation_counter::measure(|| (0..COUNTED).for_each(|_| one(self))).count_total
    }
}

/// Memory of the second end, mapped by the first.
fn remote<E: Endpoint>(pair: &mut Pair<E>) -> Remote {
    let memory = pair.ends[1].alloc(4096).unwrap();
    let region = pair.ends[1].register(&memory.whole(), Access::ALL).unwrap();
    let key = pair.ends[1].export(region).unwrap();
    let remote = pair.ends[0].import(&key).unwrap();
    let clock = Clock::start();
    // It is mapped, to be written, some passes after it was first reached.
    for token in 0..50 {
        let put = put(token, remote, &Region::zeroed(8));
        pair.round([(0, put)], 0);
        pair.now = clock.now();
        std::thread::sleep(Duration::from_micros(100));
    }
    remote
}

fn put(token: u64, remote: Remote, from: &Region) -> Operation {
    Operation::Put {
        token: Token(token),
        remote,
        local: [from.whole()].into(),
        spans: [RemoteSpan { offset: 64, len: 8 }].into(),
        level: Level::Visible,
        event: None,
    }
}

fn nothing_is_allocated<E: Endpoint>(over: &str, ends: [E; 2]) {
    let mut pair = Pair::new(ends);
    let [there, back] = pair.peers;
    let payload = || Payload::Bytes(Bytes::from_static(DATA));
    let local = Region::from_vec(DATA.to_vec());
    let remote = remote(&mut pair);
    let mut found = Vec::new();
    let mut none = |what: &str, count: u64| {
        println!("{over}, {what}: {count} allocations in {COUNTED} rounds");
        found.extend((count > 0).then(|| format!("{what}: {count}")));
    };
    for level in [Level::Reusable, Level::Delivered, Level::Visible] {
        let send = || Operation::Send { token: Token(1), peer: there, payload: payload(), level };
        none(&format!("send, {level:?}"), pair.allocations(|pair| pair.round([(0, send())], 1)));
    }
    let (source, tag, ignore) = (Some(back), 5, 0);
    let receive =
        || Operation::PostReceive { token: Token(2), source, tag, ignore, into: local.whole() };
    let level = Level::Reusable;
    let send =
        || Operation::SendTagged { token: Token(1), peer: there, tag, payload: payload(), level };
    let tagged = pair.allocations(|pair| pair.round([(1, receive()), (0, send())], 0));
    none("tagged, receive posted", tagged);
    none("put", pair.allocations(|pair| pair.round([(0, put(3, remote, &local))], 0)));
    let get = || Operation::Get {
        token: Token(4),
        remote,
        local: [local.whole()].into(),
        spans: [RemoteSpan { offset: 64, len: 8 }].into(),
    };
    none("get", pair.allocations(|pair| pair.round([(0, get())], 0)));
    for fetch in [false, true] {
        let atomic = || Operation::Atomic {
            token: Token(5),
            remote,
            offset: 128,
            op: AtomicOp::Sum,
            kind: AtomicType::U64,
            operand: 1_u64.to_le_bytes()[..].into(),
            compare: [].into_iter().collect(),
            fetch,
        };
        let count = pair.allocations(|pair| pair.round([(0, atomic())], 0));
        none(&format!("atomic, fetching {fetch}"), count);
    }
    assert!(found.is_empty(), "{over}: {found:?}");
}

#[test]
fn over_shared_memory() {
    nothing_is_allocated("shm", [shm(), shm()]);
}

#[test]
fn through_auto() {
    nothing_is_allocated("auto", [auto(), auto()]);
}
