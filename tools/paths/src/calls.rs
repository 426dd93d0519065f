//! Calls, both ends on one thread, so that neither waits.

use crate::timed;
use petasos::{Engine, EngineConfig, Idle, OpenOptions, service};
use std::{
    future::poll_fn,
    task::{Context, Waker},
    time::Duration,
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

/// Runs a path; `None` if there is no such path.
pub(crate) fn run(path: &str, count: u64, url: &str) -> Option<Duration> {
    let timed = |path: &dyn Fn(&Pair)| {
        let pair = Pair::new(url);
        timed(|| path(&pair))
    };
    match path {
        "null_call" => Some(timed(&|pair| path_null_call(pair, count))),
        "echo_64" => Some(timed(&|pair| path_echo_64(pair, count))),
        _ => {
            let len = path.strip_prefix("bytes_")?.parse().ok()?;
            Some(timed(&|pair| path_bytes(pair, count, len)))
        }
    }
}
