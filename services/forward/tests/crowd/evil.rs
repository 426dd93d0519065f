//! A malicious client: lies in calls, floods of large ones, and below them raw garbage.

use crate::{engine, on_each_go, read_write};
use bytes::Bytes;
use petasos::{
    CallOptions, Engine, EngineConfig, OpenOptions,
    fabric::{Access, Address, Clock, Event, InjectError, Region},
};
use petasos_forward::protocol::{
    Allocation, Creation, Extent, Finish, ForwardClient, Hello, Node, OpenFlags, RenameMode,
    SetAttr, VERSION, Welcome,
};
use petasos_testing::Xorshift;
use std::{
    io::Write,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// Sessions that send data as fast as they can, and how much within each call: the message holds
/// it.
const FLOODS: usize = 8;
const FULL: usize = 128 << 10;

/// Does what must not have any effect, as fast as it can.
pub(crate) fn evil(own: &str) {
    let (engine, address) = engine(own);
    let client = ForwardClient::new(&engine, &address)
        .with(CallOptions::default().timeout(Duration::from_secs(5)));
    let hello = || client.hello(Hello { version: VERSION });
    let first = engine.block_on(hello()).unwrap().unwrap();
    let session = first.session;
    let forever = client.with(CallOptions::default().timeout(Duration::MAX));
    let hold = |welcome: &Welcome| {
        forever.hold(welcome.session, welcome.ticket, "x".repeat(10_000), false)
    };
    let _held = hold(&first);
    // As many sessions as it can get, each held; as many files as it can open.
    let all = futures_util::future::join_all((0..600).map(|_| hello()));
    let mine = engine.block_on(all).into_iter().filter_map(|answer| answer.ok()?.ok());
    let mine: Vec<_> = mine.collect();
    let _holds: Vec<_> = mine.iter().map(hold).collect();
    let mine: Vec<_> = mine.iter().map(|welcome| welcome.session).collect();
    let floods: Vec<_> = mine[..FLOODS]
        .iter()
        .map(|session| {
            let open = client.open(*session, b"flood".to_vec(), read_write(), Creation::default());
            (*session, engine.block_on(open).unwrap().unwrap().0)
        })
        .collect();
    let open = |nth| {
        let path = format!("evil-{}", nth % 7).into_bytes();
        client.open(session, path, read_write(), Creation::default())
    };
    for batch in 0..11 {
        engine.block_on(futures_util::future::join_all((batch * 100..).take(100).map(open)));
    }
    let garbage = Arc::new(Garbage::default());
    let thrower = Arc::clone(&garbage);
    let own = own.to_owned();
    std::thread::spawn(move || thrower.throw(&own, &address));
    let full = Bytes::from(vec![1; FULL]);
    on_each_go(|going| {
        garbage.on.store(true, Relaxed);
        let memory = Region::from_vec(vec![7; 4096]);
        let mut random = Xorshift::from_state(0x9e37_79b9_7f4a_7c15);
        let mut done = 0;
        while going.load(Relaxed) {
            let flood = floods.iter().flat_map(|(session, file)| {
                let write = |nth: u64| client.write(*session, *file, nth << 20, full.clone());
                (0..4).map(write)
            });
            let flood = futures_util::future::join_all(flood);
            let lies =
                (0..256).map(|nth| lie(&engine, &client, session, random.draw(), nth, &memory));
            let lies = futures_util::future::join_all(lies);
            let (told, _) = engine.block_on(futures_util::future::join(lies, flood));
            done += told.len();
        }
        garbage.on.store(false, Relaxed);
        println!("did {done} {}", garbage.thrown.load(Relaxed));
    });
}

/// One thing that should not be asked for.
async fn lie(
    engine: &Engine,
    client: &ForwardClient,
    session: u64,
    random: u64,
    nth: u64,
    memory: &Region,
) {
    let outside =
        [&b"../secret"[..], b"/../../etc/passwd", b"leak", b"a/../../secret", b"\0", b"."];
    let path = outside[(random >> 8) as usize % outside.len()].to_vec();
    let session = if random & 7 == 0 { random } else { session };
    let file = random >> 40;
    let flags = OpenFlags((random >> 16) as u32);
    let huge = Extent { offset: random, len: u64::MAX - 5 };
    let finish = Finish { size: random, replace: true, ..Finish::default() };
    let set = SetAttr { size: Some(u64::MAX), mode: Some(0o777), ..SetAttr::default() };
    let lent = engine.bulk(memory.whole(), Access::READ).unwrap();
    match nth % 16 {
        0 => drop(client.open(session, path, flags, Creation::default()).await),
        1 => {
            let open = client.open(session, path, OpenFlags::READ, Creation::default()).await;
            if let Ok(Ok((file, ..))) = open {
                let data = client.read(session, file, 0, 64).await;
                let secret = matches!(data, Ok(Ok(data)) if data.starts_with(b"not for"));
                assert!(!secret, "it could read what is outside");
            }
        }
        2 => drop(client.put(session, path, Bytes::from_static(b"mine"), finish).await),
        3 => drop(client.rename(session, path, b"got".to_vec(), RenameMode::Replace).await),
        4 => drop(client.hard_link(session, path, b"got".to_vec()).await),
        5 => drop(client.set_attr(session, Node::Path(path), set, true).await),
        6 => drop(client.read(session, file, u64::MAX, u64::MAX).await),
        7 => drop(client.hashes(session, file, huge, random >> 30).await),
        8 => drop(client.allocate(session, file, Allocation::Reserve, huge).await),
        9 => drop(client.write(session, file, u64::MAX - 1, Bytes::from(vec![1; 300_000])).await),
        10 => drop(client.open_dir(session, path).await),
        11 => drop(client.stage(session, [random as u8; 16], path).await),
        12 => drop(client.publish(session, file, path, finish).await),
        13 => drop(client.remove(session, path, random & 1 == 0).await),
        14 => drop(client.write_from(session, file, random, lent.handle()).await),
        // Gone before the server has moved anything.
        _ => drop(client.write_from(session, file & 7, 0, lent.handle())),
    }
}

/// Messages and connections that make no sense, as long as it is on.
#[derive(Default)]
struct Garbage {
    on: AtomicBool,
    thrown: AtomicU64,
}

impl Garbage {
    fn throw(&self, own: &str, server: &Address) {
        let frames = recorded(own);
        let mut random = Random(Xorshift::from_state(0x2545_f491_4f6c_dd1d));
        loop {
            if !self.on.load(Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
                continue;
            }
            self.as_a_peer(own, server, &frames, &mut random);
            if server.scheme() == "tcp" {
                self.as_a_stranger(server, &frames, &mut random);
            }
        }
    }

    /// A peer like any other, but for what it says; every other one does not listen.
    fn as_a_peer(&self, own: &str, server: &Address, frames: &[Vec<u8>], random: &mut Random) {
        let mut endpoint = petasos::open(own, &OpenOptions::default()).unwrap();
        let peer = endpoint.resolve(server, Duration::from_secs(5)).unwrap();
        let (clock, mut events) = (Clock::start(), Vec::new());
        let (deaf, end) = (random.below(2) == 0, Instant::now() + Duration::from_millis(200));
        let mut up = false;
        while Instant::now() < end && self.on.load(Relaxed) {
            if !deaf || !up || server.scheme() == "tcp" {
                endpoint.progress(clock.now(), 64, &mut events);
            }
            up |= events.iter().any(|event| matches!(event, Event::PeerUp { .. }));
            if events.drain(..).any(|event| matches!(event, Event::PeerLost { .. })) {
                return;
            }
            match endpoint.inject(peer, &[&random.message(frames)]) {
                Err(InjectError::PeerLost | InjectError::UnknownPeer) => return,
                Err(_) => std::thread::sleep(Duration::from_micros(100)),
                Ok(_) => drop(self.thrown.fetch_add(1, Relaxed)),
            }
        }
    }

    /// Bytes at the door.
    fn as_a_stranger(&self, server: &Address, frames: &[Vec<u8>], random: &mut Random) {
        for _ in 0..8 {
            let Ok(mut stream) = TcpStream::connect(server.rest()) else { continue };
            let _ = stream.write_all(&random.message(frames));
            self.thrown.fetch_add(1, Relaxed);
        }
    }
}

/// What a client says at the beginning, as a server gets it that never answers.
fn recorded(own: &str) -> Vec<Vec<u8>> {
    let mut fake = petasos::open(own, &OpenOptions::default()).unwrap();
    let endpoint = petasos::open(own, &OpenOptions::default()).unwrap();
    let client = Engine::new(endpoint, EngineConfig::default());
    let calls = ForwardClient::new(&client, fake.address());
    let _goodbye = calls.goodbye(1);
    let _write = calls.write(1, 1, 0, Bytes::from(vec![2; 900]));
    let _large = calls.put(1, b"large".to_vec(), Bytes::from(vec![2; 2 * FULL]), Finish::default());
    let (clock, mut events) = (Clock::start(), Vec::new());
    let end = Instant::now() + Duration::from_secs(10);
    let mut frames = Vec::new();
    while frames.len() < 3 {
        assert!(Instant::now() < end, "three calls were made, {} came", frames.len());
        client.progress();
        fake.progress(clock.now(), 64, &mut events);
        frames.extend(events.drain(..).filter_map(|event| match event {
            Event::Message { message, .. } => Some(message.to_vec()),
            _ => None,
        }));
    }
    frames
}

struct Random(Xorshift);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    fn below(&mut self, end: usize) -> usize {
        (self.draw() >> 16) as usize % end
    }

    /// Noise, or a real message with some bytes changed, cut off, or another's tail.
    fn message(&mut self, frames: &[Vec<u8>]) -> Vec<u8> {
        let mut message = frames[self.below(frames.len())].clone();
        match self.below(4) {
            0 => return (0..1 + self.below(2000)).map(|_| self.draw() as u8).collect(),
            1 => message.truncate(self.below(message.len())),
            2 => message.extend_from_slice(&frames[self.below(frames.len())]),
            _ => {}
        }
        for _ in 0..self.below(5) {
            if !message.is_empty() {
                // What matters stands at the front.
                let at = self.below(message.len().min(64));
                message[at] = self.draw() as u8;
            }
        }
        message
    }
}
