//! What a process may try that must not get in, or must not be taken for another.

use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Incarnation, LostReason, Operation, Peer, PeerState,
    Region, RemoteSpan, Token,
};
use petasos_noise::ResponderAddress;
use petasos_tcp::{
    Config, Secret, TcpEndpoint,
    handshake::{
        CHALLENGE_LEN, Client, Goal, HELLO_LEN, Identity, Request, Server, VERDICT_LEN, Verdict,
    },
};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(3);
const SECRET: &str = "a secret that both servers have";

fn open(url: &str, secret: Option<&str>) -> TcpEndpoint {
    let mut config = Config::default();
    config.secret = secret.map(|text| Secret::new(text).unwrap());
    TcpEndpoint::open(&Address::parse(url).unwrap(), config).unwrap()
}

fn socket(endpoint: &TcpEndpoint) -> SocketAddr {
    endpoint.address().rest().split('?').next().unwrap().parse().unwrap()
}

/// Endpoints that are driven in turn, and what each of them was told.
struct World {
    clock: Clock,
    ends: Vec<TcpEndpoint>,
    events: Vec<Vec<Event>>,
}

impl World {
    fn new(ends: Vec<TcpEndpoint>) -> World {
        let events = ends.iter().map(|_| Vec::new()).collect();
        World { clock: Clock::start(), ends, events }
    }

    fn add(&mut self, end: TcpEndpoint) -> usize {
        self.ends.push(end);
        self.events.push(Vec::new());
        self.ends.len() - 1
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
            thread::sleep(Duration::from_micros(50));
            assert!(Instant::now() < end, "{what}: {:?}", self.events);
        }
    }

    /// Drives all until another thread is done.
    fn during<T: Send + 'static>(&mut self, others: impl FnOnce() -> T + Send + 'static) -> T {
        let other = thread::spawn(others);
        self.until("the other is done", |_| other.is_finished());
        other.join().unwrap()
    }

    fn connect(&mut self, from: usize, to: usize) -> Peer {
        let address = self.ends[to].address().clone();
        let peer = self.ends[from].resolve(&address, PATIENCE).unwrap();
        self.until("a connection", |world| world.is_up(from, peer));
        peer
    }

    fn is_up(&self, at: usize, peer: Peer) -> bool {
        self.ends[at].peer(peer).is_some_and(|info| info.state == PeerState::Up)
    }

    fn send(&mut self, from: usize, to: Peer, text: &str) {
        self.ends[from].inject(to, &[text.as_bytes()]).unwrap();
    }

    fn messages(&self, at: usize) -> Vec<(Peer, String)> {
        let of = |event: &Event| match event {
            Event::Message { peer, message } => {
                Some((*peer, String::from_utf8_lossy(message).into_owned()))
            }
            _ => None,
        };
        self.events[at].iter().filter_map(of).collect()
    }

    fn lost(&self, at: usize) -> Vec<(Peer, LostReason)> {
        let of = |event: &Event| match event {
            Event::PeerLost { peer, reason } => Some((*peer, reason.clone())),
            _ => None,
        };
        self.events[at].iter().filter_map(of).collect()
    }

    fn ups(&self, at: usize) -> usize {
        self.events[at].iter().filter(|event| matches!(event, Event::PeerUp { .. })).count()
    }
}

/// Passes what comes at one place on to another, in both directions; counts the bytes.
struct Relay {
    at: SocketAddr,
    passed: Arc<AtomicUsize>,
}

impl Relay {
    /// Each piece may be changed on its way to the server, or to the client; one that is emptied is
    /// the end.
    fn start(
        listener: TcpListener,
        to: SocketAddr,
        change: impl Fn(bool, usize, &mut Vec<u8>) + Send + Sync + 'static,
    ) -> Relay {
        let at = listener.local_addr().unwrap();
        let passed = Arc::new(AtomicUsize::new(0));
        let (count, change) = (passed.clone(), Arc::new(change));
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(to) else { continue };
                for (up, from, to) in [(true, &client, &server), (false, &server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let (count, change) = (count.clone(), change.clone());
                    thread::spawn(move || {
                        let (mut buffer, mut at) = (vec![0; 1 << 16], 0);
                        while let Ok(got @ 1..) = from.read(&mut buffer) {
                            count.fetch_add(got, Ordering::Relaxed);
                            let mut bytes = buffer[..got].to_vec();
                            change(up, at, &mut bytes);
                            at += got;
                            if bytes.is_empty() || to.write_all(&bytes).is_err() {
                                break;
                            }
                        }
                        for stream in [&from, &to] {
                            let _ = stream.shutdown(Shutdown::Both);
                        }
                    });
                }
            }
        });
        Relay { at, passed }
    }
}

/// Two servers have one secret. One is down; at its address another process listens, and relays all
/// to the other server, so that each side sees the other prove that it knows the secret.
#[test]
fn a_relay_to_another_server_of_the_same_secret_is_found_out() {
    let mut world = World::new(vec![open("tcp://*", Some(SECRET)), open("tcp://*", Some(SECRET))]);
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let relay = Relay::start(other, socket(&world.ends[0]), |_, _, _| {});
    let dialled = Address::parse(&format!("tcp://{}", relay.at)).unwrap();
    let peer = world.ends[1].resolve(&dialled, PATIENCE).unwrap();
    world.until("an end", |world| !world.events[1].is_empty());
    assert!(!world.is_up(1, peer), "the client is connected to a process without the secret");
    assert!(matches!(world.lost(1)[..], [(lost, LostReason::Refused(_))] if lost == peer));
    assert!(world.events[0].is_empty(), "the server has no peer: {:?}", world.events[0]);
    assert!(relay.passed.load(Ordering::Relaxed) > 100, "the relay passed the handshake on");
}

/// Connects, and claims to be `claimed`. The server's answer, and the connection.
fn claim(server: SocketAddr, secret: Option<&str>, claimed: &Identity) -> Option<TcpStream> {
    let secret = secret.map(|text| Secret::new(text).unwrap());
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut challenge = [0; CHALLENGE_LEN];
    stream.read_exact(&mut challenge).ok()?;
    let spot = ResponderAddress::of(server);
    let (mut client, hello) =
        Client::begin(secret.as_ref(), false, [7; 32], claimed, Goal::Begin, spot, &challenge)
            .ok()?;
    stream.write_all(&hello).ok()?;
    let mut verdict = [0; VERDICT_LEN];
    stream.read_exact(&mut verdict).ok()?;
    (client.verdict(&verdict).ok()?.0 == Verdict::Welcome).then_some(stream)
}

fn identity(endpoint: &TcpEndpoint) -> Identity {
    Identity { address: endpoint.address().clone(), incarnation: endpoint.incarnation() }
}

/// A claim of the address of a peer that is connected changes nothing for it, whatever incarnation
/// is claimed.
#[test]
fn a_claim_of_a_living_peers_address_is_refused() {
    for secret in [None, Some(SECRET)] {
        for same_incarnation in [false, true] {
            let mut world = World::new(vec![open("tcp://*", secret), open("tcp://*", secret)]);
            let there = world.connect(1, 0);
            world.until("both know", |world| world.ups(0) == 1);
            let mut claimed = identity(&world.ends[1]);
            if !same_incarnation {
                claimed.incarnation = Incarnation::random();
            }
            let server = socket(&world.ends[0]);
            let taken = world.during(move || claim(server, secret, &claimed).is_some());
            assert!(!taken, "same incarnation: {same_incarnation}");
            assert_eq!(world.ups(0), 1, "{:?}", world.events[0]);
            assert!(world.lost(0).is_empty() && world.lost(1).is_empty(), "{:?}", world.events);
            world.send(1, there, "still here");
            world.until("a message", |world| world.messages(0).len() == 1);
        }
    }
}

/// An endpoint that waits for a peer that has not started takes no other process for it.
#[test]
fn a_claim_of_the_address_that_is_being_dialled_is_refused() {
    let mut world = World::new(vec![open("tcp://*", None)]);
    let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = Address::parse(&format!("tcp://{place}")).unwrap();
    let peer = world.ends[0].resolve(&address, Duration::from_secs(60)).unwrap();
    // Where both connect, the connection of the larger incarnation stays.
    let incarnation = Incarnation::new(u64::MAX).unwrap();
    let claimed = Identity { address, incarnation };
    let server = socket(&world.ends[0]);
    let taken = world.during(move || claim(server, None, &claimed).is_some());
    assert!(!taken && !world.is_up(0, peer), "{:?}", world.events);
}

/// No peer is connected yet, and a process claims to be a third one: what is meant for that one
/// goes to it.
#[test]
fn a_name_that_was_claimed_before_is_asked_for_where_it_is() {
    let mut world = World::new(vec![open("tcp://*", None), open("tcp://*", None)]);
    let claimed = identity(&world.ends[1]);
    let server = socket(&world.ends[0]);
    let stream = world.during(move || claim(server, None, &claimed));
    world.until("it is known", |world| stream.is_none() || world.ups(0) == 1);
    let address = world.ends[1].address().clone();
    let memory = Region::from_vec(b"the owner's".to_vec());
    let region = world.ends[1].register(&memory.whole(), Access::READ).unwrap();
    let key = world.ends[1].export(region).unwrap();
    // The first attempt may end with the impostor; the next one reaches the right peer.
    let (mut stream, end) = (stream, Instant::now() + Duration::from_secs(10));
    loop {
        let Ok(remote) = world.ends[0].import(&key) else { continue };
        let into = Region::zeroed(11);
        let token = Token(7);
        let local = [into.whole()].into_iter().collect();
        let spans = [RemoteSpan { offset: 0, len: 11 }].into_iter().collect();
        let get = Operation::Get { token, remote, local, spans };
        world.ends[0].submit(&mut [get].into());
        let mut done = None;
        while done.is_none() {
            world.pass();
            done = world.events[0].iter().find_map(|event| match event {
                Event::Done { token: Token(7), result } => Some(result.clone()),
                _ => None,
            });
            assert!(Instant::now() < end, "{:?}", world.events);
        }
        world.events[0].clear();
        if done.unwrap().is_ok() {
            assert_eq!(into.whole().to_vec(), b"the owner's");
            break;
        }
        world.ends[0].resolve(&address, PATIENCE).unwrap();
    }
    if let Some(stream) = &mut stream {
        stream.set_nonblocking(true).unwrap();
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        assert!(heard.is_empty(), "{} bytes were meant for another peer", heard.len());
    }
}

/// A peer that was killed, and starts again at its address, is believed, also while its old
/// connection lingers.
#[test]
fn a_successor_at_the_same_address_is_believed() {
    for secret in [None, Some(SECRET)] {
        let mut world = World::new(vec![open("tcp://*", secret), open("tcp://*", secret)]);
        world.connect(1, 0);
        world.until("both know", |world| world.ups(0) == 1);
        let address = world.ends[1].address().clone();
        world.ends.pop();
        world.events.pop();
        // Nothing was read of the end of the first connection when the next one comes.
        let next = world.add(open(address.as_str(), secret));
        world.connect(next, 0);
        world.until("both know", |world| world.ups(0) == 2);
        assert_eq!(world.lost(0).len(), 1, "{:?}", world.events[0]);
    }
}

/// A peer has ended, and a process that does not know the secret has its port: it is neither
/// admitted as that incarnation, though it listens where the claim is verified, nor taken for it
/// when it is dialled.
#[test]
fn the_port_of_a_dead_peer_is_not_the_peer() {
    let mut world = World::new(vec![open("tcp://*", Some(SECRET)), open("tcp://*", Some(SECRET))]);
    world.connect(1, 0);
    world.until("both know", |world| world.ups(0) == 1);
    let (claimed, place) = (identity(&world.ends[1]), socket(&world.ends[1]));
    let memory = Region::from_vec(b"the owner's".to_vec());
    let region = world.ends[1].register(&memory.whole(), Access::READ).unwrap();
    let key = world.ends[1].export(region).unwrap();
    world.ends.pop();
    world.events.pop();
    world.until("the end of the peer", |world| !world.lost(0).is_empty());
    let other = "another secret than theirs";
    world.add(open(&format!("tcp://{place}"), Some(other)));
    for secret in [None, Some(other)] {
        let (server, claimed) = (socket(&world.ends[0]), claimed.clone());
        assert!(!world.during(move || claim(server, secret, &claimed).is_some()));
    }
    if let Ok(remote) = world.ends[0].import(&key) {
        let before = world.lost(0).len();
        world.until("an end", |world| world.lost(0).len() > before);
        assert!(!world.is_up(0, remote.peer));
    }
    assert_eq!(world.ups(0), 1, "{:?}", world.events[0]);
}

/// Listens in the place of a peer that has ended, says that it is that peer, and vouches for every
/// connection.
fn impostor(place: SocketAddr, claimed: Identity) {
    let listener = TcpListener::bind(place).unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut server, challenge) = Server::begin(None, false, [1; 32], [3; 32]);
            let mut hello = [0; HELLO_LEN];
            if stream.write_all(&challenge).and_then(|()| stream.read_exact(&mut hello)).is_err() {
                continue;
            }
            let verdict = match server.hello(None, &hello).map(|hello| hello.request) {
                Ok(Request::Vouch(_)) => Verdict::Vouched,
                Ok(Request::Resume(_)) => Verdict::Resumed,
                _ => Verdict::Welcome,
            };
            let _ = stream.write_all(&server.verdict(verdict, None, &claimed));
            kept.push(stream);
        }
    });
}

/// A peer has ended, there is no secret, and another process has its port and knows its
/// incarnation: it is neither admitted as that one, nor taken for it when it is dialled. Its claim
/// to be an incarnation that was never here is believed.
#[test]
fn a_dead_peers_incarnation_is_not_taken_without_a_secret() {
    for dialled_before in [false, true] {
        let mut world = World::new(vec![open("tcp://*", None), open("tcp://*", None)]);
        let (from, to) = if dialled_before { (0, 1) } else { (1, 0) };
        let there = world.connect(from, to);
        world.send(from, there, "I am here");
        world.until("a message", |world| world.messages(to).len() == 1);
        let (claimed, place) = (identity(&world.ends[1]), socket(&world.ends[1]));
        let memory = Region::from_vec(b"the owner's".to_vec());
        let region = world.ends[1].register(&memory.whole(), Access::READ).unwrap();
        let key = world.ends[1].export(region).unwrap();
        world.ends.pop();
        world.events.pop();
        world.until("the end of the peer", |world| !world.lost(0).is_empty());
        // Also where nothing of it is known by its handle any more.
        let lost = world.lost(0)[0].0;
        world.ends[0].forget(lost);
        impostor(place, claimed.clone());
        let server = socket(&world.ends[0]);
        for _ in 0..2 {
            let claimed = claimed.clone();
            assert!(!world.during(move || claim(server, None, &claimed).is_some()));
        }
        let remote = world.ends[0].import(&key).unwrap();
        world.until("an end", |world| world.is_up(0, remote.peer) || world.lost(0).len() > 1);
        assert!(!world.is_up(0, remote.peer), "it is taken for the one before");
        let reason = &world.lost(0)[1].1;
        assert!(matches!(reason, LostReason::Refused(_)), "{reason:?}");
        assert_eq!(world.ups(0), 1, "{:?}", world.events[0]);
        // As another incarnation it is a peer like any other.
        let later = Identity { incarnation: Incarnation::random(), ..claimed };
        assert!(world.during(move || claim(server, None, &later).is_some()));
    }
}

/// A connection ends and both live: whichever of them dials, it is known as the one from before,
/// again and again, also where attempts to connect were cut off before they came to an end.
#[test]
fn a_peer_that_lost_its_connection_is_known_when_it_comes_again() {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = Config::default();
    config.reached_at = vec![place.local_addr().unwrap()];
    let server = TcpEndpoint::open(&"tcp://*".parse().unwrap(), config).unwrap();
    // Odd connections are cut off at the server's verdict; all others when there is the word for
    // it.
    let nth = Arc::new(AtomicUsize::new(0));
    let connections = nth.clone();
    let relay = Relay::start(place, socket(&server), move |up, at, bytes| {
        if !up && at == 0 {
            connections.fetch_add(1, Ordering::Relaxed);
        }
        let cut = at > 0 && !up && connections.load(Ordering::Relaxed).is_multiple_of(2);
        if cut || bytes.windows(7).any(|word| word == b"the end") {
            bytes.clear();
        }
    });
    let mut world = World::new(vec![server, open("tcp://*", None)]);
    let dialled = Address::parse(&format!("tcp://{}", relay.at)).unwrap();
    for round in 0..8 {
        world.events.iter_mut().for_each(Vec::clear);
        let there = world.ends[1].resolve(&dialled, Duration::from_secs(15)).unwrap();
        world.until("a connection", |world| {
            assert!(world.lost(1).is_empty(), "round {round}: {:?}", world.lost(1));
            world.is_up(1, there)
        });
        // Every second time nothing is said before the end.
        if round % 2 == 0 {
            world.send(1, there, "good");
            world.until("a message", |world| world.messages(0).len() == 1);
        }
        world.send(1, there, "the end");
        world.until("both ends", |world| {
            !world.lost(1).is_empty() && world.lost(0).len() == world.ups(0) && world.ups(0) > 0
        });
        world.ends[1].forget(there);
    }
    // The other way round, at the address of the one that connected.
    world.events.iter_mut().for_each(Vec::clear);
    let back = world.connect(0, 1);
    world.send(0, back, "it is you");
    world.until("a message", |world| world.messages(1).len() == 1);
}

/// A peer asks to close its connection again and again, and reads no answer: nothing piles up here.
#[test]
fn a_flood_of_notes_about_closing_ends_the_connection() {
    const ASK: [u8; 8] = [0xf0, petasos_fabric::two_sided::header::VERSION, 0, 0, 0, 0, 0, 0];
    let mut world = World::new(vec![open("tcp://*", None)]);
    let server = socket(&world.ends[0]);
    let flood = thread::spawn(move || {
        let place = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = Address::parse(&format!("tcp://{}", place.local_addr().unwrap())).unwrap();
        let own = Identity { address, incarnation: Incarnation::random() };
        let mut stream = claim(server, None, &own).unwrap();
        let (notes, mut sent) = (ASK.repeat(8192), 0);
        while sent < 256 << 20 && stream.write_all(&notes).is_ok() {
            sent += notes.len();
        }
        sent
    });
    world.until("the flood ends", |_| flood.is_finished());
    assert!(flood.join().unwrap() < 256 << 20, "it went on without an end");
    world.until("the peer is cut off", |world| {
        matches!(world.lost(0)[..], [(_, LostReason::Protocol(_))])
    });
}

fn encrypting() -> TcpEndpoint {
    open("tcp://*?encrypt", Some(SECRET))
}

/// Two endpoints of which the second encrypts, the relay between them, and the first one's peer.
/// The second has been told that it is reached by the relay.
fn tapped(
    change: impl Fn(bool, usize, &mut Vec<u8>) + Send + Sync + 'static,
) -> (World, Relay, Peer) {
    let place = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut config = Config::default();
    config.secret = Some(Secret::new(SECRET).unwrap());
    config.reached_at = vec![place.local_addr().unwrap()];
    let server = TcpEndpoint::open(&"tcp://*?encrypt".parse().unwrap(), config).unwrap();
    let relay = Relay::start(place, socket(&server), change);
    let mut world = World::new(vec![open("tcp://*", Some(SECRET)), server]);
    let dialled = Address::parse(&format!("tcp://{}", relay.at)).unwrap();
    let peer = world.ends[0].resolve(&dialled, PATIENCE).unwrap();
    (world, relay, peer)
}

const TEXT: &str = "no process on the way may read this";

#[test]
fn encrypted_text_is_not_seen_on_the_way() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::<u8>::new()));
    let tap = seen.clone();
    let (mut world, relay, peer) = tapped(move |_, _, bytes| tap.lock().unwrap().extend(&*bytes));
    world.until("a connection", |world| world.is_up(0, peer) && world.ups(1) == 1);
    world.send(0, peer, TEXT);
    world.until("a message", |world| world.messages(1).len() == 1);
    let (back, text) = world.messages(1).remove(0);
    assert_eq!(text, TEXT);
    world.send(1, back, TEXT);
    world.until("an answer", |world| world.messages(0).len() == 1);
    let seen = seen.lock().unwrap();
    assert!(relay.passed.load(Ordering::Relaxed) >= seen.len() && seen.len() > 2 * TEXT.len());
    assert!(!seen.windows(TEXT.len()).any(|text| text == TEXT.as_bytes()));
}

/// Long bodies, gets and puts cut into records, in both directions.
#[test]
fn long_data_travels_encrypted() {
    const LEN: usize = 3_000_001;
    let mut world = World::new(vec![encrypting(), encrypting()]);
    assert!(world.ends[0].address().as_str().ends_with("?encrypt"));
    let there = world.connect(1, 0);
    let pattern: Vec<u8> = (0..LEN).map(|at| (at * 7 + at / 251) as u8).collect();
    let (memory, into) = (Region::from_vec(pattern.clone()), Region::zeroed(LEN));
    let region = world.ends[0].register(&memory.whole(), Access::ALL).unwrap();
    let key = world.ends[0].export(region).unwrap();
    let remote = world.ends[1].import(&key).unwrap();
    assert_eq!(remote.peer, there);
    let spans = || [RemoteSpan { offset: 0, len: LEN as u64 }].into_iter().collect();
    let local = |region: &Region| [region.whole()].into_iter().collect();
    let token = Token(1);
    let get = Operation::Get { token, remote, local: local(&into), spans: spans() };
    let from = Region::from_vec(pattern.iter().rev().copied().collect());
    let (token, level) = (Token(2), petasos_fabric::Level::Visible);
    let put =
        Operation::Put { token, remote, local: local(&from), spans: spans(), level, event: None };
    for operation in [get, put] {
        world.events[1].clear();
        world.ends[1].submit(&mut [operation].into());
        world.until("it is done", |world| {
            world.events[1].iter().any(|event| matches!(event, Event::Done { result: Ok(_), .. }))
        });
    }
    assert!(into.whole().to_vec() == pattern, "what was fetched");
    assert!(memory.whole().to_vec() == from.whole().to_vec(), "what was put");
}

/// A bit of a packet is flipped on the way, or a packet is sent twice.
#[test]
fn forged_and_repeated_records_end_the_connection() {
    for repeat in [false, true] {
        let armed = Arc::new(AtomicUsize::new(0));
        let arm = armed.clone();
        let (mut world, _relay, peer) = tapped(move |up, _, bytes| {
            if up && arm.load(Ordering::Acquire) == 1 {
                match repeat {
                    true => *bytes = bytes.repeat(2),
                    false => bytes[20] ^= 4,
                }
            }
        });
        world.until("a connection", |world| world.is_up(0, peer) && world.ups(1) == 1);
        world.send(0, peer, "good");
        world.until("a message", |world| world.messages(1).len() == 1);
        armed.store(1, Ordering::Release);
        world.send(0, peer, "to be forged, or said twice");
        world.until("the end", |world| !world.lost(1).is_empty());
        assert!(matches!(world.lost(1)[..], [(_, LostReason::Protocol(_))]), "{:?}", world.lost(1));
        assert_eq!(world.messages(1).len(), if repeat { 2 } else { 1 });
    }
}

/// A relay tells each side that the other does not want encryption: then there is no connection.
#[test]
fn encryption_is_not_talked_away() {
    // In the first frame the server's wishes are behind the protocol's name, in the second the
    // client's at the front.
    for (up, place) in [(false, 8), (true, 0)] {
        let (mut world, _relay, peer) = tapped(move |upwards, at, bytes| {
            if upwards == up && at == 0 {
                bytes[place] ^= 2;
            }
        });
        world.until("an end", |world| !world.lost(0).is_empty());
        assert!(!world.is_up(0, peer) && world.events[1].is_empty(), "{:?}", world.events);
    }
}

#[test]
fn encryption_without_a_secret_is_refused() {
    let opened = TcpEndpoint::open(&"tcp://*?encrypt".parse().unwrap(), Config::default());
    assert!(opened.unwrap_err().to_string().contains("secret"));
    let mut end = open("tcp://*", None);
    let there = "tcp://127.0.0.1:4040?encrypt".parse().unwrap();
    assert!(end.resolve(&there, PATIENCE).unwrap_err().to_string().contains("secret"));
}

/// Where every client is dialled back, none comes in under another's address, known or not.
#[test]
fn a_client_is_not_admitted_before_it_is_verified() {
    let mut config = Config::default();
    config.verify = true;
    let server = TcpEndpoint::open(&"tcp://*".parse().unwrap(), config).unwrap();
    let mut world = World::new(vec![server, open("tcp://*", None)]);
    let (server, claimed) = (socket(&world.ends[0]), identity(&world.ends[1]));
    assert!(world.during(move || claim(server, None, &claimed).is_none()));
    assert!(world.events[0].is_empty(), "{:?}", world.events[0]);
    world.connect(1, 0);
    world.until("both know", |world| world.ups(0) == 1);
    assert_eq!(world.ends[0].counters().dialled_back, 2);
}

/// Two spellings of one address are two connections of one peer, of which the second is verified.
#[test]
fn the_same_peer_comes_under_two_names() {
    let mut world = World::new(vec![open("tcp://*", None), open("tcp://*", None)]);
    let there = world.connect(1, 0);
    let name = format!("tcp://localhost:{}", socket(&world.ends[0]).port());
    let again = world.ends[1].resolve(&Address::parse(&name).unwrap(), PATIENCE).unwrap();
    world.until("both connections", |world| world.is_up(1, again) && world.ups(0) == 2);
    world.send(1, there, "one");
    world.send(1, again, "two");
    world.until("both messages", |world| world.messages(0).len() == 2);
}

/// What a client lends is reached over the connection that it made, and no address is dialled for
/// that.
#[test]
fn a_key_is_used_over_the_connection_by_which_it_came() {
    let mut world = World::new(vec![open("tcp://*", None), open("tcp://*", None)]);
    let there = world.connect(1, 0);
    let memory = Region::from_vec(b"lent".to_vec());
    let region = world.ends[1].register(&memory.whole(), Access::READ).unwrap();
    let key = world.ends[1].export(region).unwrap();
    world.send(1, there, "a key follows");
    world.until("a message", |world| world.messages(0).len() == 1);
    let from = world.messages(0)[0].0;
    let remote = world.ends[0].import_from(&key, from).unwrap();
    assert_eq!((remote.peer, world.ends[0].counters().dialled_back), (from, 0));
    // Meant by its address, it is verified first; it is the same connection.
    assert_eq!(world.ends[0].import(&key).unwrap().peer, from);
    assert_eq!(world.ends[0].counters().dialled_back, 1);
    let _ = world.ends[0].inject(from, &[b"an answer, once that is done"]);
    world.until("the answer", |world| world.messages(1).len() == 1);
    assert_eq!(world.ends[0].import(&key).unwrap().peer, from);
    assert_eq!(world.ends[0].counters().dialled_back, 1, "once");
}

/// A peer that is meant by its address, and computes for a while, is not lost for that: the system
/// answers for it.
#[test]
fn a_peer_that_does_nothing_for_a_while_is_verified_later() {
    let mut config = Config::default();
    config.handshake = Duration::from_millis(50);
    let server = TcpEndpoint::open(&"tcp://*".parse().unwrap(), config).unwrap();
    let mut world = World::new(vec![server, open("tcp://*", None)]);
    world.connect(1, 0);
    world.until("both know", |world| world.ups(0) == 1);
    let address = world.ends[1].address().clone();
    let peer = world.ends[0].resolve(&address, Duration::from_millis(100)).unwrap();
    let end = Instant::now() + Duration::from_millis(600);
    while Instant::now() < end {
        let World { clock, ends, events } = &mut world;
        ends[0].progress(clock.now(), 64, &mut events[0]);
        thread::sleep(Duration::from_millis(1));
    }
    assert!(world.is_up(0, peer), "{:?}", world.lost(0));
    let _ = world.ends[0].inject(peer, &[b"when you have time"]);
    world.until("a message", |world| world.messages(1).len() == 1);
}

/// A client with the secret makes as many connections as it can: there is room for others, and it
/// is told why.
#[test]
fn one_hosts_connections_leave_room_for_others() {
    let mut config = Config::default();
    (config.secret, config.max_incoming) = (Some(Secret::new(SECRET).unwrap()), Some(16));
    let server = TcpEndpoint::open(&"tcp://*".parse().unwrap(), config).unwrap();
    let mut world = World::new(vec![server]);
    let at = socket(&world.ends[0]);
    let greedy = world.during(move || {
        // All at once, so that each has an address of its own.
        let places: Vec<_> = (0..40).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let claimed = |place: &TcpListener| {
            let address = format!("tcp://{}", place.local_addr().unwrap());
            let address = Address::parse(&address).unwrap();
            let own = Identity { address, incarnation: Incarnation::random() };
            claim(at, Some(SECRET), &own)
        };
        places.iter().filter_map(claimed).collect::<Vec<_>>()
    });
    assert_eq!(greedy.len(), 8);
    world.until("all others are counted", |world| world.ends[0].counters().crowded == 32);
    // Another one of that host hears why, and comes in as soon as there is room.
    let late = world.add(open("tcp://*", Some(SECRET)));
    let address = world.ends[0].address().clone();
    let peer = world.ends[late].resolve(&address, Duration::from_millis(300)).unwrap();
    world.until("an end", |world| !world.lost(late).is_empty());
    let why = format!("{:?}", world.lost(late));
    assert!(why.contains("RLIMIT_NOFILE") && !world.is_up(late, peer), "{why}");
    drop(greedy);
    world.until("they are gone", |world| world.lost(0).len() == 8);
    world.connect(late, 0);
}

/// Clients without the secret hold connections, make them again, and have long to say something:
/// one that knows the secret comes in.
#[test]
fn held_connections_keep_no_client_out() {
    let mut config = Config::default();
    config.secret = Some(Secret::new(SECRET).unwrap());
    (config.handshake, config.max_handshakes) = (Duration::from_secs(600), 32);
    let server = TcpEndpoint::open(&"tcp://*".parse().unwrap(), config).unwrap();
    let mut world = World::new(vec![server, open("tcp://*", Some(SECRET))]);
    let (at, over) = (socket(&world.ends[0]), Arc::new(AtomicUsize::new(0)));
    let again = Arc::new(AtomicUsize::new(0));
    let (told, counted) = (over.clone(), again.clone());
    let hold = thread::spawn(move || {
        let connect = || TcpStream::connect_timeout(&at, Duration::from_millis(50)).ok();
        let mut held: Vec<_> = (0..200).filter_map(|_| connect()).collect();
        while told.load(Ordering::Relaxed) == 0 {
            for stream in &mut held {
                stream.set_nonblocking(true).unwrap();
                let mut said = [0; 256];
                let open = loop {
                    match stream.read(&mut said) {
                        Ok(1..) => {}
                        Ok(0) => break false,
                        Err(error) => break error.kind() == std::io::ErrorKind::WouldBlock,
                    }
                };
                if !open && let Some(next) = connect() {
                    *stream = next;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            }
            thread::sleep(Duration::from_millis(1));
        }
    });
    world.until("they are closed, and come again", |world| {
        world.ends[0].counters().refused > 100 && again.load(Ordering::Relaxed) > 0
    });
    let address = world.ends[0].address().clone();
    let peer = world.ends[1].resolve(&address, Duration::from_secs(15)).unwrap();
    world.until("a connection", |world| world.is_up(1, peer) || !world.lost(1).is_empty());
    over.store(1, Ordering::Relaxed);
    assert!(world.is_up(1, peer), "{:?}", world.lost(1));
    hold.join().unwrap();
}
