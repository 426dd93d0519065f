//! What `petasos tune` wrote is used where nothing else is set.

use petasos::{
    Engine, EngineConfig, OpenOptions,
    fabric::{Endpoint, InjectError, Peer, delegate},
    service,
};
use petasos_testing::{again, role};
use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

#[service]
trait Echo {
    async fn echo(&self, bytes: Vec<u8>) -> Vec<u8>;
}

struct Here;

impl Echo for Here {
    async fn echo(&self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }
}

/// An endpoint that tells the length of the longest message that it sent.
struct Watched {
    inner: Box<dyn Endpoint>,
    longest: Arc<AtomicUsize>,
}

impl Endpoint for Watched {
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let bytes = parts.iter().map(|part| part.len()).sum();
        self.longest.fetch_max(bytes, Ordering::Relaxed);
        self.inner.inject(peer, parts)
    }

    delegate! {
        inner: address incarnation capabilities resolve peer forget submit cancel progress arm fd
        notifier alloc register export import release
    }
}

/// The longest message of an engine that sends arguments of 100,000 bytes over shared memory.
fn longest(config: EngineConfig) -> usize {
    let open = || petasos::open("shm://*", &OpenOptions::default()).unwrap();
    let longest = Arc::new(AtomicUsize::new(0));
    let watched = Watched { inner: open(), longest: Arc::clone(&longest) };
    let client = Engine::new(Box::new(watched), config);
    let server = Engine::new(open(), EngineConfig::default());
    Here.serve(&server, 0).unwrap();
    let sent: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    let echo = EchoClient::new(&client, server.address());
    let mut call = Box::pin(echo.echo(sent.clone()));
    let back = client.block_on(poll_fn(|context| {
        let polled = call.as_mut().poll(context);
        if polled.is_pending() {
            server.progress();
            context.waker().wake_by_ref();
        }
        polled
    }));
    assert!(back.unwrap() == sent);
    longest.load(Ordering::Relaxed)
}

/// Arguments are lent from the size on that the file says, unless the program says another.
#[test]
fn engines_lend() {
    if role().is_some() {
        assert!(longest(EngineConfig::default()) <= 2048);
        let mut config = EngineConfig::default();
        config.lend_above = Some(usize::MAX);
        assert!(longest(config) >= 100_000);
        return;
    }
    with_file("engines_lend", "shm.lend_above = 2048\nspin_us = 3\n");
}

/// Runs a test again in a process for which this file is the tuning.
fn with_file(test: &str, text: &str) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    let path = file.path().to_str().unwrap();
    let mut process = again(test, "tuned").env("PETASOS_TUNING", path).start();
    assert!(process.wait(Duration::from_secs(60)).success());
}
