//! A server to test, its storage, and a client made by hand.

pub(crate) mod memory;
pub(crate) mod random;

use memory::Memory;
use petasos::{
    CallOptions, Engine, EngineConfig, OpenOptions, TypedCall,
    fabric::{Access, Address, Slice},
};
use petasos_forward::{
    FsResult,
    protocol::{Creation, ForwardClient, Hello, OpenFlags, VERSION, Welcome},
    server::{Server, ServerConfig},
};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};

/// The transports that everything is to work over.
pub(crate) const EVERYWHERE: [&str; 3] = ["self://*", "shm://*", "tcp://127.0.0.1:0"];

/// A server of files in memory, at one address of each transport.
pub(crate) fn server(config: ServerConfig) -> (Server, Arc<Memory>) {
    let memory = Memory::new();
    let options = OpenOptions::default();
    let server = Server::listen(memory.clone(), &EVERYWHERE, &options, config).unwrap();
    (server, memory)
}

/// A client: an engine, and a session.
pub(crate) struct Client {
    pub(crate) calls: ForwardClient,
    pub(crate) session: u64,
    pub(crate) welcome: Welcome,
    pub(crate) hold: Option<TypedCall<FsResult<()>>>,
    pub(crate) engine: Engine,
}

/// The URL of endpoints that can reach this address.
pub(crate) fn listening_like(address: &Address) -> &'static str {
    EVERYWHERE.iter().find(|url| url.starts_with(address.scheme())).unwrap()
}

/// An engine that can call this address.
pub(crate) fn engine(address: &Address) -> Engine {
    let endpoint = petasos::open(listening_like(address), &OpenOptions::default()).unwrap();
    Engine::new(endpoint, EngineConfig::default())
}

pub(crate) const HELLO: Hello = Hello { version: VERSION };

impl Client {
    pub(crate) fn new(address: &Address) -> Client {
        Client::named(address, "tester")
    }

    pub(crate) fn named(address: &Address, name: &str) -> Client {
        let engine = engine(address);
        let calls = ForwardClient::new(&engine, address);
        let welcome = engine.block_on(calls.hello(HELLO)).unwrap().unwrap();
        let session = welcome.session;
        let for_ever = calls.with(CallOptions::default().timeout(Duration::MAX));
        let hold = for_ever.hold(session, welcome.ticket, name.to_owned(), false);
        // When this is answered, the session has begun.
        engine.block_on(calls.status()).unwrap();
        Client { calls, session, welcome, hold: Some(hold), engine }
    }

    /// The result of a call that the server answers.
    pub(crate) fn wait<T>(&self, call: impl Future<Output = Result<T, petasos::CallError>>) -> T {
        self.engine.block_on(call).unwrap()
    }

    /// Opens a file, made if it is not there.
    pub(crate) fn open(&self, path: &str) -> u64 {
        let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
        self.open_as(path, flags)
    }

    pub(crate) fn open_as(&self, path: &str, flags: OpenFlags) -> u64 {
        let path = path.as_bytes().to_vec();
        let creation = Creation { mode: 0o644, owner: None };
        self.wait(self.calls.open(self.session, path, flags, creation)).unwrap().0
    }

    /// Writes memory that is lent.
    pub(crate) fn write_from(
        &self,
        file: u64,
        offset: u64,
        data: impl Into<Slice>,
    ) -> FsResult<u64> {
        let bulk = self.engine.bulk(data, Access::READ).unwrap();
        self.wait(self.calls.write_from(self.session, file, offset, bulk.handle()))
    }

    /// Reads into memory that is lent.
    pub(crate) fn read_into(&self, file: u64, offset: u64, into: Slice) -> FsResult<u64> {
        let bulk = self.engine.bulk(into, Access::WRITE).unwrap();
        self.wait(self.calls.read_into(self.session, file, offset, bulk.handle()))
    }
}

/// Bytes that are nowhere the same.
pub(crate) fn pattern(len: usize, seed: u64) -> Vec<u8> {
    petasos_testing::Xorshift::new(seed).bytes(len)
}

/// Waits until something is so.
pub(crate) fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}: never");
        std::thread::sleep(Duration::from_millis(2));
    }
}
