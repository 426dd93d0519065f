//! The paths whose instructions are counted: both ends on one thread, so that neither waits.
//!
//! ```text
//! cargo run --profile dist -p petasos --example hot_paths PATH [COUNT [URL]]      # a million, shm://* unless told otherwise
//! ```
//!
//! `scripts/instructions` runs each under callgrind, and compares with the committed counts. By
//! itself this prints the time of one round, which is the software's alone.

use petasos::{
    Engine, EngineConfig, Idle, OpenOptions,
    fabric::{Endpoint, Event, Lease, Peer, Time},
    service,
    wire::{Encoding, encode_into, from_bytes, rpc},
};
use std::{
    future::poll_fn,
    hint::black_box,
    process::ExitCode,
    task::{Context, Waker},
    time::{Duration, Instant},
};

#[service]
trait Bounce {
    async fn null(&self, n: u64) -> u64;
    async fn echo(&self, message: [u8; 64]) -> [u8; 64];
    async fn bytes(&self, message: Vec<u8>) -> Vec<u8>;
}

struct Here;

impl Bounce for Here {
    async fn null(&self, n: u64) -> u64 {
        n
    }

    async fn echo(&self, message: [u8; 64]) -> [u8; 64] {
        message
    }

    async fn bytes(&self, message: Vec<u8>) -> Vec<u8> {
        message
    }
}

/// A client and a server.
struct Pair {
    client: Engine,
    server: Engine,
    bounce: BounceClient,
}

impl Pair {
    fn new(url: &str) -> Pair {
        let mut config = EngineConfig::default();
        config.idle = Idle::Spin;
        let engine = || {
            let endpoint = petasos::open(url, &OpenOptions::default()).expect("an endpoint");
            Engine::new(endpoint, config.clone())
        };
        let (client, server) = (engine(), engine());
        Here.serve(&server, 0).expect("nothing is served yet");
        let bounce = BounceClient::new(&client, server.address());
        let pair = Pair { client, server, bounce };
        pair.connect();
        pair
    }

    /// Drives both sides until they know each other.
    fn connect(&self) {
        let mut call = std::pin::pin!(self.bounce.null(0));
        let mut context = Context::from_waker(Waker::noop());
        while call.as_mut().poll(&mut context).is_pending() {
            self.server.progress();
            self.client.progress();
        }
    }

    /// Blocks on a call, and has it served whenever it is waited for.
    #[inline]
    fn until<T, E: std::fmt::Debug>(&self, call: impl Future<Output = Result<T, E>>) -> T {
        let mut call = std::pin::pin!(call);
        let served = poll_fn(|context| {
            let polled = call.as_mut().poll(context);
            if polled.is_pending() && !self.server.progress() {
                context.waker().wake_by_ref();
            }
            polled
        });
        self.client.block_on(served).expect("an answer")
    }
}

/// A call with a number there and back: request and response are a cache line each.
#[inline(never)]
fn path_null_call(pair: &Pair, count: u64) {
    for n in 0..count {
        assert_eq!(pair.until(pair.bounce.null(n)), n);
    }
}

/// A call with 64 bytes there and back: two cache lines each.
#[inline(never)]
fn path_echo_64(pair: &Pair, count: u64) {
    let mut message = [7; 64];
    for n in 0..count {
        message[0] = n as u8;
        assert_eq!(pair.until(pair.bounce.echo(message)), message);
    }
}

/// A call with so many bytes there and back.
#[inline(never)]
fn path_bytes(pair: &Pair, count: u64, len: usize) {
    for n in 0..count {
        let message = vec![n as u8; len];
        assert_eq!(pair.until(pair.bounce.bytes(message)).len(), len);
    }
}

/// One message of 32 bytes over the bare transport, sent and received.
#[inline(never)]
fn path_message((sender, to): (&mut dyn Endpoint, Peer), receiver: &mut dyn Endpoint, count: u64) {
    let mut bytes = [7; 32];
    for n in 0..count {
        bytes[0] = n as u8;
        sender.inject(to, &[&bytes]).expect("room");
        assert_eq!(receive(receiver)[..], bytes);
    }
}

/// The next message, by the short way or as an event.
#[inline]
fn receive(endpoint: &mut dyn Endpoint) -> Lease {
    let (mut message, mut events) = (Lease::default(), Vec::new());
    loop {
        if endpoint.poll_message(&mut message).is_some() {
            return message;
        }
        endpoint.progress(Time::ZERO, 8, &mut events);
        for event in events.drain(..) {
            if let Event::Message { message, .. } = event {
                return message;
            }
        }
    }
}

/// The header of a request and its arguments, checked and decoded.
#[inline(never)]
fn path_decode(frame: &[u8], count: u64) {
    for _ in 0..count {
        let Ok(rpc::Frame::Request(request, rest)) = rpc::decode(black_box(frame)) else {
            panic!("not a request");
        };
        let arguments: (u64, u32) = from_bytes(request.encoding, rest).expect("arguments");
        black_box((request, arguments));
    }
}

fn a_request() -> Vec<u8> {
    let request = rpc::Request {
        one_way: false,
        encoding: Encoding::Native,
        checked: false,
        overflow: false,
        trace: None,
        provider: 0,
        call: rpc::CallId { slot: 1, generation: 2 },
        method: 3,
        signature: 4,
        left_us: 5,
    };
    let mut frame = Vec::new();
    request.encode(&mut frame);
    encode_into(Encoding::Native, &(6u64, 7u32), &mut frame);
    frame
}

/// Runs a path so many times, after a few that connect and fill caches; false if there is no such
/// path.
fn run(path: &str, count: u64, url: &str) -> Option<Duration> {
    let timed = |work: &mut dyn FnMut()| {
        let begin = Instant::now();
        work();
        begin.elapsed()
    };
    let calls = |path: fn(&Pair, u64)| {
        let pair = Pair::new(url);
        timed(&mut || path(&pair, count))
    };
    match path {
        "null_call" => Some(calls(path_null_call)),
        "echo_64" => Some(calls(path_echo_64)),
        _ if path.starts_with("bytes_") => {
            let len = path["bytes_".len()..].parse().ok()?;
            let pair = Pair::new(url);
            Some(timed(&mut || path_bytes(&pair, count, len)))
        }
        "message" => {
            let open = || petasos::open(url, &OpenOptions::default()).expect("an endpoint");
            let (mut a, mut b) = (open(), open());
            let to = a.resolve(b.address(), Duration::from_secs(5)).expect("an address");
            let (mut ours, mut theirs) = (Vec::new(), Vec::new());
            let met = |event: &Event| matches!(event, Event::PeerUp { .. });
            while !ours.iter().any(met) || !theirs.iter().any(met) {
                a.progress(Time::ZERO, 8, &mut ours);
                b.progress(Time::ZERO, 8, &mut theirs);
            }
            // What connecting left to be sent is not part of the path, nor is what the first
            // message makes a library do.
            a.inject(to, &[b"first"]).expect("room");
            let came = |event: &Event| matches!(event, Event::Message { .. });
            while !theirs.iter().any(came) {
                a.progress(Time::ZERO, 8, &mut ours);
                b.progress(Time::ZERO, 8, &mut theirs);
            }
            Some(timed(&mut || path_message((&mut *a, to), &mut *b, count)))
        }
        "decode" => {
            let frame = a_request();
            Some(timed(&mut || path_decode(&frame, count)))
        }
        _ => None,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "hot_paths null_call|echo_64|bytes_LEN|message|decode [COUNT [URL]]";
    let (path, count, url) = match &arguments[..] {
        [path] => (path, Some(1_000_000), "shm://*"),
        [path, count] => (path, count.parse().ok(), "shm://*"),
        [path, count, url] => (path, count.parse().ok(), url.as_str()),
        _ => {
            eprintln!("{usage}");
            return ExitCode::from(2);
        }
    };
    let Some(count) = count.filter(|count| *count > 0) else {
        eprintln!("COUNT is a number from 1 on: {usage}");
        return ExitCode::from(2);
    };
    match run(path, count, url) {
        Some(took) => {
            println!("{path}: {:.1} ns", took.as_nanos() as f64 / count as f64);
            ExitCode::SUCCESS
        }
        None => {
            eprintln!("there is no path {path:?}: {usage}");
            ExitCode::from(2)
        }
    }
}
