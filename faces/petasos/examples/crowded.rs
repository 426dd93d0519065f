//! More threads than cores: pairs of a client and a server, which call each other and wait as
//! engines do unless told otherwise.
//!
//! ```text
//! cargo run --profile dist -p petasos --example crowded [URL]        # shm://* unless told otherwise
//! ```

use petasos::{Engine, EngineConfig, EngineThread, OpenOptions, fabric::Endpoint, service};
use std::{
    thread,
    time::{Duration, Instant},
};

const TIME: Duration = Duration::from_millis(1500);

#[service]
trait Null {
    async fn null(&self, n: u64) -> u64;
}

struct Here;

impl Null for Here {
    async fn null(&self, n: u64) -> u64 {
        n
    }
}

fn open(url: &str) -> Box<dyn Endpoint> {
    petasos::open(url, &OpenOptions::default()).expect("an endpoint")
}

/// The times of a pair's calls, in nanoseconds, the shortest first.
fn pair(url: &str) -> Vec<u64> {
    let server = EngineThread::start(open(url), EngineConfig::default(), |engine| {
        Here.serve(engine, 0).expect("nothing served yet");
    });
    let server = server.expect("a thread");
    let client = Engine::new(open(url), EngineConfig::default());
    let null = NullClient::new(&client, server.handle().address());
    let call = |n| assert_eq!(client.block_on(null.null(n)).expect("an answer"), n);
    call(0);
    let (begin, mut times) = (Instant::now(), Vec::new());
    while begin.elapsed() < TIME {
        let start = Instant::now();
        call(times.len() as u64);
        times.push(start.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    times
}

fn main() {
    let url = std::env::args().nth(1).unwrap_or("shm://*".to_owned());
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for pairs in [cores.div_ceil(2), cores, 2 * cores] {
        let pairs: Vec<_> = thread::scope(|scope| {
            let started: Vec<_> = (0..pairs).map(|_| scope.spawn(|| pair(&url))).collect();
            started.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        let calls: usize = pairs.iter().map(Vec::len).sum();
        let rate = calls as f64 / TIME.as_secs_f64();
        println!("{} threads on {cores} cores: {rate:.0} calls/s in all", 2 * pairs.len());
        for times in &pairs {
            let at = |share: f64| times[(times.len() as f64 * share) as usize] as f64 / 1e3;
            println!("    a pair's median {:.1} us, p99 {:.1} us", at(0.5), at(0.99));
        }
    }
}
