//! Messages of 64 bytes there and back, and gets of 16 MiB, against raw TCP in the same run:
//!
//! ```text
//! cargo run --profile dist -p petasos-tcp --example tcp_pingpong
//! ```
//!
//! Two threads, both spinning. Medians of batches, taken in turn.

use petasos_fabric::{
    Access, Clock, Done, Endpoint, Event, Key, Operation, Peer, Region, RemoteSpan, Token,
};
use petasos_tcp::{Config, TcpEndpoint};
use petasos_testing::median;
use smallvec::smallvec;
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

const BATCH: u32 = 2000;
const ROUNDS: usize = 15;
const BULK: usize = 16 << 20;

fn open() -> TcpEndpoint {
    let address = "tcp://*".parse().expect("an address");
    TcpEndpoint::open(&address, Config::default()).expect("an endpoint")
}

/// Reads until it is full, without ever sleeping.
fn spin_read(stream: &mut TcpStream, buffer: &mut [u8]) -> bool {
    let mut got = 0;
    while got < buffer.len() {
        match stream.read(&mut buffer[got..]) {
            Ok(0) => return false,
            Ok(count) => got += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return false,
        }
    }
    true
}

fn spin_write(stream: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(_) => return,
        }
    }
}

struct Ours {
    endpoint: TcpEndpoint,
    clock: Clock,
    events: Vec<Event>,
}

impl Ours {
    fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.events.pop() {
                return event;
            }
            self.endpoint.progress(self.clock.now(), 1, &mut self.events);
        }
    }

    fn message(&mut self) -> (Peer, Vec<u8>) {
        loop {
            if let Event::Message { peer, message } = self.next() {
                return (peer, message.to_vec());
            }
        }
    }
}

fn main() {
    let stop = AtomicBool::new(false);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let raw_address = listener.local_addr().expect("an address");
    let server = open();
    let address = server.address().clone();
    std::thread::scope(|threads| {
        let stop = &stop;
        threads.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            stream.set_nodelay(true).expect("an option");
            stream.set_nonblocking(true).expect("an option");
            let source = vec![1u8; BULK];
            let mut message = [0; 64];
            while spin_read(&mut stream, &mut message) {
                if message[0] == 1 {
                    spin_write(&mut stream, &source);
                } else {
                    spin_write(&mut stream, &message);
                }
            }
        });
        threads.spawn(move || {
            let mut server = Ours { endpoint: server, clock: Clock::start(), events: Vec::new() };
            let memory = Region::from_vec(vec![1u8; BULK]).whole();
            let region = server.endpoint.register(&memory, Access::READ).expect("registered");
            let key = server.endpoint.export(region).expect("a key");
            let clock = server.clock;
            while !stop.load(Ordering::Relaxed) {
                let mut events = Vec::new();
                server.endpoint.progress(clock.now(), 16, &mut events);
                for event in events {
                    if let Event::Message { peer, message } = event {
                        let reply: &[u8] = if message[0] == 2 { key.as_bytes() } else { &message };
                        server.endpoint.inject(peer, &[reply]).expect("room");
                    }
                }
            }
        });

        let mut raw = TcpStream::connect(raw_address).expect("a connection");
        raw.set_nodelay(true).expect("an option");
        raw.set_nonblocking(true).expect("an option");
        let mut client = Ours { endpoint: open(), clock: Clock::start(), events: Vec::new() };
        let patience = Duration::from_secs(5);
        let peer = client.endpoint.resolve(&address, patience).expect("an address");
        while client.endpoint.inject(peer, &[&[2]]).is_err() {
            client.next();
        }
        let key = Key::from_bytes(client.message().1).expect("a key");
        let remote = client.endpoint.import(&key).expect("a key");
        let into = Region::zeroed(BULK);
        let mut raw_into = vec![0; BULK];

        let (mut raw_times, mut our_times) = (Vec::new(), Vec::new());
        let (mut raw_bulk, mut our_bulk) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let start = Instant::now();
            let mut message = [0; 64];
            for _ in 0..BATCH {
                spin_write(&mut raw, &message);
                spin_read(&mut raw, &mut message);
            }
            raw_times.push(start.elapsed().as_secs_f64() / f64::from(BATCH));
            let start = Instant::now();
            for _ in 0..BATCH {
                client.endpoint.inject(peer, &[&[0; 64]]).expect("room");
                client.message();
            }
            our_times.push(start.elapsed().as_secs_f64() / f64::from(BATCH));

            let start = Instant::now();
            message[0] = 1;
            spin_write(&mut raw, &message);
            spin_read(&mut raw, &mut raw_into);
            raw_bulk.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            let local = smallvec![into.whole()];
            let spans = smallvec![RemoteSpan { offset: 0, len: BULK as u64 }];
            let get = Operation::Get { token: Token(0), remote, local, spans };
            client.endpoint.submit(&mut [get].into());
            while !matches!(client.next(), Event::Done { result: Ok(Done::Got), .. }) {}
            our_bulk.push(start.elapsed().as_secs_f64());
        }
        stop.store(true, Ordering::Relaxed);
        drop(raw);
        let (raw, ours) = (median(raw_times) * 1e6, median(our_times) * 1e6);
        println!(
            "64 B there and back: raw {raw:.2} us, ours {ours:.2} us, ratio {:.2}",
            ours / raw
        );
        let gigabytes = |time: f64| BULK as f64 / time / 1e9;
        let (raw, ours) = (gigabytes(median(raw_bulk)), gigabytes(median(our_bulk)));
        println!("16 MiB: raw {raw:.2} GB/s, ours {ours:.2} GB/s, ratio {:.2}", ours / raw);
    });
}
