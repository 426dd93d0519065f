//! Services under fire: real server processes get garbage, from unauthenticated peers and from
//! peers that were let in, while others call them. Every call of those is answered right, newcomers
//! are served, the servers neither panic nor grow.
//!
//! `PETASOS_SEED` sets with what the attackers begin.

mod common;

use common::Watched;
use petasos::{
    BulkHandle, CallOptions, Context, Engine, EngineConfig, EngineThread, Method,
    fabric::{
        Access, Address, Clock, Endpoint, Event, Incarnation, InjectError, Region,
        two_sided::header,
    },
    serve,
    shm::Shm,
    tcp::{
        Secret, TcpEndpoint,
        handshake::{CHALLENGE_LEN, Client, Goal, HELLO_LEN, Identity, VERDICT_LEN, Verdict},
    },
    wire::{
        Wire,
        rpc::{self, CallId, Response, Status},
    },
};
use petasos_conformance::Random;
use petasos_noise::ResponderAddress;
use petasos_testing::{Process, again, again_as_nobody, role};
use rustix::{
    event::{EventfdFlags, eventfd},
    fd::{AsFd, BorrowedFd, OwnedFd},
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::{IoSlice, IoSliceMut, pwrite},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketType, accept, bind, connect, listen,
        recvmsg, sendmsg, socket, sockopt::set_socket_linger,
    },
};
use std::{
    collections::VecDeque,
    io::{Read, Write, stdin},
    mem::MaybeUninit,
    net::TcpStream,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::sleep,
    time::{Duration, Instant},
};

const FIRE: Duration = Duration::from_secs(3);
/// What a server may grow by, in KiB.
const GROWTH: u64 = 64 << 10;
const SECRET: &str = "a secret for the test";
/// Arguments and results that do not fit a message.
const LARGE_LEN: usize = 70_000;
const DOUBLE: Method = Method::typed("Fire::double", u64::SHAPE, u64::SHAPE);
const ECHO: Method = Method::typed("Fire::echo", <Vec<u8>>::SHAPE, <Vec<u8>>::SHAPE);
const LARGE: Method = Method::typed("Fire::large", u8::SHAPE, <Vec<u8>>::SHAPE);
const SUM: Method = Method::typed("Fire::sum", BulkHandle::SHAPE, <Option<u64>>::SHAPE);

// The server.

fn secret(known: bool) -> Option<Secret> {
    known.then(|| Secret::new(SECRET).unwrap())
}

fn tcp(url: &Address, known: bool) -> TcpEndpoint {
    let mut config = petasos::tcp::Config::default();
    config.secret = secret(known);
    TcpEndpoint::open(url, config).unwrap()
}

/// An endpoint for a peer that wants to talk to `at`.
fn any(at: &Address, known: bool) -> Box<dyn Endpoint> {
    match at.scheme() {
        "tcp" => Box::new(tcp(&"tcp://*".parse().unwrap(), known)),
        _ => Box::new(Shm::open(&"shm://*".parse().unwrap()).unwrap()),
    }
}

fn register(engine: &Engine) {
    engine.register(DOUBLE, 0, serve(|_: Context, n: u64| async move { n.wrapping_mul(2) }));
    engine.register(ECHO, 0, serve(|_: Context, bytes: Vec<u8>| async { bytes }));
    engine.register(LARGE, 0, serve(|_: Context, byte: u8| async move { vec![byte; LARGE_LEN] }));
    let sum = |context: Context, handle: BulkHandle| async move {
        let bulk = context.engine().open(&handle).ok()?;
        let bytes = bulk.pull(0, bulk.len().min(1 << 20)).await.ok()?;
        Some(bytes.to_vec().into_iter().map(u64::from).sum::<u64>())
    };
    engine.register(SUM, 0, serve(sum));
}

/// What a server has counted.
#[derive(Debug)]
struct Report {
    panics: u64,
    refused: u64,
    violations: u64,
    garbage: u64,
    served: u64,
}

static PANICS: AtomicU64 = AtomicU64::new(0);

/// Serves, and says at each line of input what was counted; until the input is closed.
fn server(url: &str, known: bool) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Relaxed);
        hook(panic);
    }));
    let url: Address = url.parse().unwrap();
    if url.scheme() == "tcp" {
        let (endpoint, seen) = Watched::new(tcp(&url, known), |endpoint: &TcpEndpoint| {
            let counters = endpoint.counters();
            (counters.refused, counters.violations)
        });
        go_on_serving(Box::new(endpoint), &seen);
    } else {
        let (endpoint, seen) = Watched::new(Shm::open(&url).unwrap(), |endpoint: &Shm| {
            let counters = endpoint.counters();
            (counters.refused + counters.failed_handshakes, counters.violations)
        });
        go_on_serving(Box::new(endpoint), &seen);
    }
}

fn go_on_serving(endpoint: Box<dyn Endpoint>, counters: &Mutex<(u64, u64)>) {
    let engine = EngineThread::start(endpoint, EngineConfig::default(), register).unwrap();
    println!("\nready {}", engine.handle().address());
    while stdin().read_line(&mut String::new()).unwrap() > 0 {
        let stats = engine.handle().run(|engine| async move { engine.stats() }).wait().unwrap();
        let ((refused, violations), panics) = (*counters.lock().unwrap(), PANICS.load(Relaxed));
        let (garbage, served) = (stats.garbage, stats.calls_served);
        println!("\nreport {panics} {refused} {violations} {garbage} {served}");
    }
}

/// What a server has in memory, in KiB.
fn resident(server: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

// The callers.

struct Caller {
    engine: Engine,
    at: Address,
}

impl Caller {
    fn new(at: &Address, known: bool) -> Caller {
        let engine = Engine::new(any(at, known), EngineConfig::default());
        Caller { engine, at: at.clone() }
    }

    fn call<A: Wire, R: Wire>(&self, method: Method, arguments: &A) -> R {
        let target = self.engine.target(&self.at);
        let call = target.call(method, &CallOptions::default(), arguments);
        self.engine.block_on(call).unwrap()
    }

    fn double(&self, n: u64) {
        assert_eq!(self.call::<u64, u64>(DOUBLE, &n), 2 * n);
    }

    /// A call of each kind.
    fn all(&self, n: u64) {
        self.double(n);
        let bytes = vec![n as u8; 200_000];
        assert!(self.call::<_, Vec<u8>>(ECHO, &bytes) == bytes);
        let large: Vec<u8> = self.call(LARGE, &(n as u8));
        assert!(large.len() == LARGE_LEN && large.iter().all(|byte| *byte == n as u8));
        let bulk = self.engine.bulk(Region::from_vec(bytes), Access::READ).unwrap();
        let sum: Option<u64> = self.call(SUM, &bulk.handle());
        assert_eq!(sum, Some(200_000 * u64::from(n as u8)));
        self.engine.block_on(bulk.close()).unwrap();
    }

    /// Calls all the time; how often that was, and how long the longest took.
    fn go_on(&self, until: &AtomicBool) -> (u64, Duration) {
        let (mut calls, mut longest) = (0, Duration::ZERO);
        while !until.load(Relaxed) {
            let begin = Instant::now();
            if calls % 50 == 0 {
                self.all(calls)
            } else {
                self.double(calls)
            }
            longest = longest.max(begin.elapsed());
            calls += 1;
        }
        (calls, longest)
    }
}

/// What real clients say, as a server gets it that never answers.
fn recorded(like: &Address) -> Vec<Vec<u8>> {
    let mut fake = any(like, false);
    let at = fake.address().clone();
    let client = Engine::new(any(like, false), EngineConfig::default());
    let target = client.target(&at);
    let mut options = CallOptions::default();
    options.timeout = Some(Duration::from_millis(200));
    let bulk = client.bulk(Region::zeroed(1 << 20), Access::READ).unwrap();
    let _double = target.call::<u64, u64>(DOUBLE, &options, &21);
    let _small = target.call::<Vec<u8>, Vec<u8>>(ECHO, &options, &vec![1; 100]);
    let _echo = target.call::<Vec<u8>, Vec<u8>>(ECHO, &options, &vec![1; 200_000]);
    let _large = target.call::<u8, Vec<u8>>(LARGE, &options, &1);
    let _sum = target.call::<BulkHandle, Option<u64>>(SUM, &options, &bulk.handle());
    target.notify(DOUBLE, &options, &21u64).unwrap();
    let (clock, mut events) = (Clock::start(), Vec::new());
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        client.progress();
        fake.progress(clock.now(), 64, &mut events);
    }
    let message = |event| match event {
        Event::Message { message, .. } => Some(message.to_vec()),
        _ => None,
    };
    let mut frames: Vec<_> = events.into_iter().filter_map(message).collect();
    assert!(frames.len() >= 11, "six calls, five of them cancelled: {}", frames.len());
    let call = CallId { slot: 0, generation: 1 };
    for overflow in [false, true] {
        let mut frame = Vec::new();
        let status = Status::Ok;
        Response { call, status, overflow, checked: false, window: 9 }.encode(&mut frame);
        frame.extend([0; 8]);
        frames.push(frame);
    }
    frames.push(rpc::release(call).to_vec());
    frames
}

// The attackers.

struct Fire {
    at: Address,
    known: bool,
    until: Instant,
    frames: Vec<Vec<u8>>,
}

impl Fire {
    fn burns(&self) -> bool {
        Instant::now() < self.until
    }

    /// One of the recorded frames.
    fn frame(&self, random: &mut Random) -> Vec<u8> {
        self.frames[random.below(self.frames.len())].clone()
    }

    /// What a peer sends that was let in: nonsense, half sense, sense.
    fn message(&self, random: &mut Random) -> Vec<u8> {
        let mut message = self.frame(random);
        match random.below(8) {
            0 => return noise(random, 2000),
            1 | 2 => return message,
            // Sense, for another call.
            3 if message.len() >= 20 => message[4..8].copy_from_slice(&random.bytes(4)),
            4 => message.extend(self.frame(random)),
            _ => mutate(&mut message, random),
        }
        message
    }
}

fn noise(random: &mut Random, max: usize) -> Vec<u8> {
    let len = random.below(max + 1);
    random.bytes(len)
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        if bytes.is_empty() {
            return;
        }
        let at = random.below(bytes.len());
        match random.below(5) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.draw() as u8,
            2 => bytes.truncate(at),
            3 => bytes.extend(noise(random, 40)),
            _ => {
                let value = [0, 1, u32::MAX, 1 << 31, 1 << 20][random.below(5)].to_le_bytes();
                bytes.iter_mut().skip(at).zip(value).for_each(|(byte, new)| *byte = new);
            }
        }
    }
}

/// A connection that leaves no port behind when it ends.
fn dial(at: &Address) -> Option<TcpStream> {
    let stream = TcpStream::connect(at.rest()).ok()?;
    set_socket_linger(&stream, Some(Duration::ZERO)).ok()?;
    stream.set_read_timeout(Some(Duration::from_millis(100))).ok()?;
    stream.set_write_timeout(Some(Duration::from_millis(100))).ok()?;
    Some(stream)
}

fn hello(stream: &mut TcpStream, known: bool, random: &mut Random) -> Option<(Client, Vec<u8>)> {
    let mut challenge = [0; CHALLENGE_LEN];
    stream.read_exact(&mut challenge).ok()?;
    let address = format!("tcp://127.0.0.1:{}", 1 + random.below(200));
    let own = Identity { address: address.parse().unwrap(), incarnation: Incarnation::random() };
    let nonce = random.bytes(32).try_into().unwrap();
    let (secret, spot) = (secret(known), ResponderAddress::of(stream.peer_addr().ok()?));
    let (client, hello) =
        Client::begin(secret.as_ref(), false, nonce, &own, Goal::Begin, spot, &challenge).ok()?;
    Some((client, hello.to_vec()))
}

/// Connections that say nothing, or nothing right.
fn unauthenticated_over_tcp(fire: &Fire, random: &mut Random) {
    let mut silent = VecDeque::new();
    let mut old = vec![0; HELLO_LEN];
    while fire.burns() {
        // One at a time: else the ports of this machine run out before the time does.
        sleep(Duration::from_micros(300));
        let Some(mut stream) = dial(&fire.at) else { continue };
        // The right proof would be no attack, but where every process may connect.
        let mut said = match random.below(8) {
            0 => Vec::new(),
            1 => noise(random, 5000),
            2 => b"GET / HTTP/1.1\r\nHost: here\r\n\r\n".to_vec(),
            3 => old.clone(),
            4 => fire.frames.concat(),
            _ => match hello(&mut stream, !fire.known, random) {
                Some((_, hello)) => hello,
                None => continue,
            },
        };
        if random.percent(50) {
            mutate(&mut said, random);
        }
        let _ = stream.write_all(&said);
        if said.len() == HELLO_LEN {
            old = said;
        }
        if random.percent(30) {
            silent.push_back(stream);
            if silent.len() > 100 {
                silent.pop_front();
            }
        } else if random.percent(30) {
            let _ = stream.read(&mut [0; 400]);
        }
    }
}

/// Peers that show the secret, and then send what they like; some of them never read.
fn raw_peers_over_tcp(fire: &Fire, random: &mut Random) {
    while fire.burns() {
        let Some(mut stream) = dial(&fire.at) else { continue };
        let Some((mut client, hello)) = hello(&mut stream, fire.known, random) else { continue };
        let mut verdict = [0; VERDICT_LEN];
        if stream.write_all(&hello).is_err() || stream.read_exact(&mut verdict).is_err() {
            continue;
        }
        let (verdict, ..) = client.verdict(&verdict).expect("the secret was right");
        if verdict == Verdict::Claimed {
            // Another one of these has that address.
            continue;
        }
        let (reads, end) = (random.percent(70), Instant::now() + Duration::from_millis(200));
        let mut sink = vec![0; 1 << 20];
        stream.set_nonblocking(!reads).unwrap();
        while Instant::now() < end && fire.burns() {
            let packet = packet(fire, random);
            match stream.write_all(&packet) {
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => break,
                // Half a packet is gone: all that follows is nonsense.
                Err(_) => sleep(Duration::from_millis(1)),
                Ok(()) => {}
            }
            if reads && random.percent(5) {
                stream.set_nonblocking(true).unwrap();
                let _ = stream.read(&mut sink);
                stream.set_nonblocking(false).unwrap();
            }
        }
    }
}

/// A packet on the wire: mostly messages, else of any kind, rarely noise.
fn packet(fire: &Fire, random: &mut Random) -> Vec<u8> {
    match random.below(200) {
        0 => noise(random, 3000),
        1..5 => {
            let kind = random.below(18) as u8;
            let payload = [0, 8, 100, 5000, 1 << 20, u32::MAX as usize][random.below(6)] as u32;
            let mut packet = vec![kind, header::VERSION, 0, 0];
            if random.percent(20) {
                packet[2..4].copy_from_slice(&random.bytes(2));
            }
            packet.extend(payload.to_le_bytes());
            // Small numbers are more often right.
            for _ in 0..random.below(8) {
                let number = if random.percent(70) { random.draw() % 4 } else { random.draw() };
                packet.extend(number.to_le_bytes());
            }
            packet.extend(random.bytes((payload as usize).min(10_000)));
            packet
        }
        _ => {
            let message = fire.message(random);
            [&header::message_header(message.len() as u32)[..], &message].concat()
        }
    }
}

/// Peers with an endpoint like any other, over any transport, that send nonsense; some do not read.
fn peers_with_an_endpoint(fire: &Fire, random: &mut Random) {
    let clock = Clock::start();
    while fire.burns() {
        let mut endpoint = any(&fire.at, fire.known);
        let peer = endpoint.resolve(&fire.at, Duration::from_secs(5)).unwrap();
        let (reads, end) = (random.percent(70), Instant::now() + Duration::from_millis(300));
        let (mut up, mut events) = (false, Vec::new());
        while Instant::now() < end && fire.burns() {
            if reads || !up || endpoint.address().scheme() == "tcp" {
                endpoint.progress(clock.now(), 64, &mut events);
            }
            up |= events.iter().any(|event| matches!(event, Event::PeerUp { .. }));
            if events.drain(..).any(|event| matches!(event, Event::PeerLost { .. })) {
                break;
            }
            let message = fire.message(random);
            match endpoint.inject(peer, &[&message]) {
                Err(InjectError::Full) => sleep(Duration::from_micros(100)),
                Err(InjectError::PeerLost | InjectError::UnknownPeer) => break,
                _ => {}
            }
        }
    }
}

// Below the endpoint, over shared memory.

/// A note between processes, with descriptors.
type Greeting = (Vec<u8>, Vec<OwnedFd>);

fn unix(name: &str, uid: u32) -> Option<(OwnedFd, SocketAddrUnix)> {
    let fd = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).ok()?;
    let name = format!("petasos/{uid}/{name}");
    Some((fd, SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?))
}

/// What a real endpoint says to one to which it connects, and what it hands over.
fn true_greeting() -> Greeting {
    let (name, uid) = (Incarnation::random().get().to_string(), rustix::process::geteuid());
    let (fd, address) = unix(&name, uid.as_raw()).unwrap();
    bind(&fd, &address).unwrap();
    listen(&fd, 1).unwrap();
    let mut real = Shm::open(&"shm://*".parse().unwrap()).unwrap();
    real.resolve(&format!("shm://{name}").parse().unwrap(), FIRE).unwrap();
    real.progress(Clock::start().now(), 64, &mut Vec::new());
    let fd = accept(&fd).unwrap();
    let (mut bytes, mut fds) = (vec![0; 1000], Vec::new());
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let into = &mut [IoSliceMut::new(&mut bytes)];
    let len = recvmsg(&fd, into, &mut ancillary, RecvFlags::empty()).unwrap().bytes;
    bytes.truncate(len);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            fds.extend(all);
        }
    }
    assert!(len > 40 && fds.len() == 3, "a greeting with a table, a pair and a bell");
    (bytes, fds)
}

fn send(fd: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(fd, &[IoSlice::new(bytes)], &mut ancillary, flags).is_ok()
}

/// A descriptor of something.
fn descriptor(random: &mut Random) -> OwnedFd {
    if random.percent(30) {
        return eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    }
    let fd = memfd_create("noise", MemfdFlags::ALLOW_SEALING).unwrap();
    let len = [0, 1, 4096, 1 << 18, 1 << 40][random.below(5)];
    ftruncate(&fd, len).unwrap();
    fd
}

/// A process that reaches the socket of the user `uid`: silent, noisy, with a true greeting and
/// false descriptors, or let in and writing noise where messages are exchanged.
fn neighbours_over_shm(fire: &Fire, uid: u32, random: &mut Random) {
    let mut silent = VecDeque::new();
    let mut greeting = true_greeting();
    while fire.burns() {
        let Some((fd, address)) = unix(fire.at.rest(), uid) else { return };
        if connect(&fd, &address).is_err() {
            continue;
        }
        let (bytes, all) = &mut greeting;
        // Under another name each time: a peer that lives keeps its own.
        let name = format!("shm://{:016x}", random.draw());
        bytes[10] = name.len() as u8;
        bytes[40..40 + name.len()].copy_from_slice(name.as_bytes());
        let mut said = bytes.clone();
        let mut false_fds = Vec::new();
        match random.below(5) {
            0 => said = noise(random, 3000),
            1 => mutate(&mut said, random),
            2 => false_fds.extend((0..random.below(8)).map(|_| descriptor(random))),
            _ => {}
        }
        let fds: Vec<_> = match false_fds.is_empty() {
            true => all.iter().map(AsFd::as_fd).collect(),
            false => false_fds.iter().map(AsFd::as_fd).collect(),
        };
        send(&fd, &said, &fds);
        for _ in 0..random.below(20) {
            // Rings, and what stands before them.
            let at = if random.percent(50) { random.below(1024) } else { random.below(1 << 18) };
            let _ = pwrite(&all[random.below(2)], &noise(random, 200), at as u64);
            if random.percent(10) {
                let mut note = bytes.clone();
                note[9] = random.below(7) as u8;
                if random.percent(20) {
                    mutate(&mut note, random);
                }
                send(&fd, &note, &[descriptor(random).as_fd()]);
            }
        }
        if random.percent(20) {
            silent.push_back(fd);
            if silent.len() > 80 {
                silent.pop_front();
            }
        }
        if random.percent(10) {
            greeting = true_greeting();
        }
    }
}

// All together.

/// Lets the attackers loose on a fresh server. What the server counted, when all is over.
fn under_fire(
    test: &str,
    url: &str,
    known: bool,
    attackers: u64,
    attack: &(dyn Fn(&Fire, &mut Random) + Sync),
) -> Report {
    // One battle at a time, so that each is a fierce one.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let server = again(test, &format!("server {known} {url}"));
    // What is freed leaves the process: the hoard of the C library's allocator is not counted.
    let mut server = server.env("MALLOC_MMAP_THRESHOLD_", "65536").start();
    let at: Address = server.line("ready ").parse().unwrap();
    let warm = Caller::new(&at, known);
    (0..20).for_each(|n| warm.all(n));
    let before = resident(&server);
    let frames = recorded(&at);
    let fire = Fire { at: at.clone(), known, until: Instant::now() + FIRE, frames };
    let seed = std::env::var("PETASOS_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    let over = AtomicBool::new(false);
    let (mut most, mut newcomers) = (before, 0);
    let (calls, longest) = std::thread::scope(|threads| {
        let caller = threads.spawn(|| Caller::new(&at, known).go_on(&over));
        let fire = &fire;
        let attackers: Vec<_> = (seed..seed + attackers)
            .map(|seed| threads.spawn(move || attack(fire, &mut Random::new(seed))))
            .collect();
        while fire.burns() && !caller.is_finished() {
            Caller::new(&at, known).all(7);
            newcomers += 1;
            most = most.max(resident(&server));
            sleep(Duration::from_millis(50));
        }
        attackers.into_iter().for_each(|attacker| attacker.join().unwrap());
        over.store(true, Relaxed);
        caller.join().unwrap()
    });
    // A client from before is served as one that comes now.
    warm.all(3);
    Caller::new(&at, known).all(4);
    server.tell("report");
    let report = server.line("report ");
    let numbers: Vec<u64> = report.split(' ').map(|n| n.parse().unwrap()).collect();
    let [panics, refused, violations, garbage, served] = numbers[..] else { panic!("{report}") };
    let report = Report { panics, refused, violations, garbage, served };
    println!(
        "{url}: {calls} calls, the longest took {longest:?}; {newcomers} newcomers; the server \
         had {before} KiB, {most} at most, {} in the end; {report:?}",
        resident(&server)
    );
    server.close_input();
    assert!(server.wait(Duration::from_secs(10)).success());
    assert_eq!(report.panics, 0);
    assert!(most.max(before) - before < GROWTH, "from {before} to {most} KiB");
    assert!(calls > 100 && newcomers > 2 && report.served > calls);
    report
}

/// True if this is the server, which then has done its work.
fn is_server() -> bool {
    let Some(role) = role() else { return false };
    let [what, known, url] = role.split(' ').collect::<Vec<_>>()[..] else { panic!("{role}") };
    if what == "server" {
        server(url, known == "true");
    } else {
        // An attacker of another user; `known` is whose server it is.
        let at = url.parse().unwrap();
        let until = Instant::now() + FIRE;
        let fire = Fire { at, known: false, until, frames: Vec::new() };
        neighbours_over_shm(&fire, known.parse().unwrap(), &mut Random::new(99));
        println!("\nattacked");
    }
    true
}

#[test]
fn unauthenticated_peers_over_tcp() {
    if is_server() {
        return;
    }
    for known in [false, true] {
        let test = "unauthenticated_peers_over_tcp";
        let report = under_fire(test, "tcp://*", known, 4, &unauthenticated_over_tcp);
        assert!(report.refused > 100, "{report:?}");
        // No peer gets in that does not know the secret.
        assert!(!known || (report.garbage, report.violations) == (0, 0), "{report:?}");
    }
}

#[test]
fn peers_who_know_the_secret_and_send_garbage_over_tcp() {
    if is_server() {
        return;
    }
    let test = "peers_who_know_the_secret_and_send_garbage_over_tcp";
    let report = under_fire(test, "tcp://*", true, 2, &raw_peers_over_tcp);
    assert!(report.violations > 0 && report.garbage > 0, "{report:?}");
}

#[test]
fn peers_with_an_endpoint_who_send_garbage() {
    if is_server() {
        return;
    }
    for url in ["tcp://*", "shm://*"] {
        let test = "peers_with_an_endpoint_who_send_garbage";
        let report = under_fire(test, url, false, 2, &peers_with_an_endpoint);
        assert!(report.garbage > 100, "{report:?}");
    }
}

#[test]
fn neighbours_at_the_socket_of_shared_memory() {
    if is_server() {
        return;
    }
    let test = "neighbours_at_the_socket_of_shared_memory";
    let uid = rustix::process::geteuid().as_raw();
    let ours = |fire: &Fire, random: &mut Random| neighbours_over_shm(fire, uid, random);
    let report = under_fire(test, "shm://*", false, 2, &ours);
    assert!(report.refused > 100 && report.violations > 0, "{report:?}");
    // And of another user.
    let nobodys = |fire: &Fire, _: &mut Random| {
        let role = format!("neighbour {uid} {}", fire.at);
        if let Some(nobody) = again_as_nobody(test, &role) {
            nobody.start().line("attacked");
        }
    };
    if !petasos_testing::is_root() {
        return petasos_testing::skip("only root can attack as another user");
    }
    let report = under_fire(test, "shm://*", false, 1, &nobodys);
    assert!(report.refused > 100 && (report.violations, report.garbage) == (0, 0), "{report:?}");
}
