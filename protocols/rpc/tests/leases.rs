//! Calls whose arguments are fetched, more at once than the server has leases, over TCP and shared
//! memory: all of them are answered.
//!
//! What takes longest runs with `cargo test -p petasos-rpc --test leases -- --ignored`.

use futures_util::future::join_all;
use petasos_fabric::{Address, Endpoint};
use petasos_rpc::{
    CallError, CallOptions, Context, Engine, EngineConfig, EngineThread, Method, serve,
};
use petasos_wire::Wire;
use std::time::Duration;

const SUM: Method = Method::typed("Lent::sum", <Vec<u8>>::SHAPE, u64::SHAPE);

/// Opens an endpoint with so many leases.
type Open = fn(leases: usize) -> Box<dyn Endpoint>;

fn tcp(leases: usize) -> Box<dyn Endpoint> {
    let at: Address = "tcp://127.0.0.1:0".parse().unwrap();
    let mut config = petasos_tcp::Config::default();
    config.limits.max_leases = leases;
    Box::new(petasos_tcp::TcpEndpoint::open(&at, config).unwrap())
}

fn shm(leases: usize) -> Box<dyn Endpoint> {
    let at: Address = "shm://*".parse().unwrap();
    let mut config = petasos_shm::Config::default();
    config.max_leases = leases;
    Box::new(petasos_shm::Shm::open_with(&at, config).unwrap())
}

/// What is called: a server with so many leases, clients that each make so many calls at once, with
/// so many bytes, lent above some length.
struct Load {
    leases: usize,
    clients: usize,
    calls: usize,
    bytes: usize,
    lend_above: Option<usize>,
}

const DEFAULT: usize = 4096;

impl Load {
    fn run(&self, open: Open) {
        let mut config = EngineConfig::default();
        config.lend_above = self.lend_above;
        config.timeout = Duration::from_secs(120);
        let server = EngineThread::start(open(self.leases), config.clone(), |engine| {
            let sum = |_: Context, bytes: Vec<u8>| async move {
                bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>()
            };
            engine.register(SUM, 0, serve(sum));
        })
        .unwrap();
        let at = server.handle().address();
        let failed: usize = std::thread::scope(|threads| {
            let client = |seed: usize| {
                let config = config.clone();
                threads.spawn(move || {
                    let client = Engine::new(open(DEFAULT), config);
                    self.client(&client, at, seed)
                })
            };
            let clients: Vec<_> = (0..self.clients).map(client).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert_eq!(failed, 0, "of {} calls", self.clients * self.calls);
    }

    /// How many calls of a client failed.
    fn client(&self, client: &Engine, at: &Address, seed: usize) -> usize {
        let target = client.target(at);
        let calls = (0..self.calls).map(|i| {
            let byte = (seed + i) as u8;
            let bytes = vec![byte; self.bytes];
            let sum = u64::from(byte) * self.bytes as u64;
            let call = target.call::<_, u64>(SUM, &CallOptions::default(), &bytes);
            async move { (call.await, sum) }
        });
        let ended: Vec<(Result<u64, CallError>, u64)> = client.block_on(join_all(calls));
        let failed = ended.iter().filter(|(result, sum)| !matches!(result, Ok(got) if got == sum));
        failed.inspect(|(result, _)| eprintln!("client {seed}: {result:?}")).count()
    }
}

#[test]
fn few_leases_over_tcp() {
    Load { leases: 16, clients: 1, calls: 64, bytes: 307_200, lend_above: None }.run(tcp);
}

#[test]
fn few_leases_over_shared_memory() {
    Load { leases: 16, clients: 1, calls: 64, bytes: 2_000, lend_above: Some(1024) }.run(shm);
}

#[test]
fn few_leases_and_several_clients() {
    for open in [tcp, shm] {
        Load { leases: 16, clients: 4, calls: 128, bytes: 2_000, lend_above: Some(1024) }.run(open);
    }
}

#[test]
fn the_defaults_with_many_clients() {
    for open in [tcp, shm] {
        Load { leases: DEFAULT, clients: 24, calls: 256, bytes: 2_000, lend_above: Some(1024) }
            .run(open);
    }
}

#[test]
#[ignore = "moves 1.6 GB over each transport"]
fn the_defaults_with_many_clients_and_long_arguments() {
    for open in [tcp, shm] {
        Load { leases: DEFAULT, clients: 24, calls: 256, bytes: 263_000, lend_above: None }
            .run(open);
    }
}
