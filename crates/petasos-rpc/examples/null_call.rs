//! Null calls between two engines on one thread, inside one process: what the software costs when
//! no cache line moves and nobody sleeps. Run it under callgrind to see where instructions go:
//!
//! ```text
//! cargo build --release -p petasos-rpc --example null_call
//! valgrind --tool=callgrind --toggle-collect='*null_calls*' target/release/examples/null_call 20000
//! ```

use petasos_rpc::{CallOptions, Context, Engine, EngineConfig, Idle, Method, serve};
use petasos_wire::Wire;
use std::{
    task::{Context as PollContext, Poll, Waker},
    time::Instant,
};

const NULL: Method = Method::typed("Null::null", u64::SHAPE, u64::SHAPE);

fn engine() -> Engine {
    let mut config = EngineConfig::default();
    config.idle = Idle::Spin;
    let address = "self://*".parse().expect("an address");
    let endpoint = petasos_self::Local::open(&address).expect("an endpoint");
    Engine::new(Box::new(endpoint), config)
}

#[inline(never)]
fn null_calls(client: &Engine, server: &Engine, count: u64) {
    let target = client.target(server.address());
    let options = CallOptions::default();
    let mut context = PollContext::from_waker(Waker::noop());
    for n in 0..count {
        let mut call = std::pin::pin!(target.call::<u64, u64>(NULL, &options, &n));
        loop {
            server.turn();
            client.turn();
            if let Poll::Ready(result) = call.as_mut().poll(&mut context) {
                assert_eq!(result.expect("an answer"), n);
                break;
            }
        }
    }
}

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let (client, server) = (engine(), engine());
    server.register(NULL, 0, serve(|_: Context, n: u64| async move { n }));
    let start = Instant::now();
    null_calls(&client, &server, count);
    println!("{:.0} ns a call", start.elapsed().as_nanos() as f64 / count as f64);
}
