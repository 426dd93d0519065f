//! Calls over libfabric and UCX, between processes: short ones, and with arguments and results that
//! are lent.
#![cfg(any(feature = "ofi", feature = "ucx"))]

use petasos::{Engine, EngineConfig, EngineThread, OpenOptions, Transport, open, service};
use petasos_testing::{again, role};
use std::io::BufRead;

#[service]
trait Mirror {
    async fn turned(&self, bytes: Vec<u8>) -> Vec<u8>;
}

struct Glass;

impl Mirror for Glass {
    async fn turned(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.reverse();
        bytes
    }
}

fn calls_over(test: &str, scheme: &str) {
    if let Some(missing) = Transport::of(scheme).expect("a transport").missing() {
        return petasos_testing::skip(missing);
    }
    let endpoint = open(&format!("{scheme}://*"), &OpenOptions::default()).unwrap();
    if role().is_some() {
        let server = EngineThread::start(endpoint, EngineConfig::default(), |engine| {
            Glass.serve(engine, 0).expect("nothing else is served");
        });
        let server = server.unwrap();
        println!("at {}", server.handle().address());
        // Until the test closes it.
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        return;
    }
    let mut server = again(test, "server").start();
    let address = server.line("at ").parse().unwrap();
    let engine = Engine::new(endpoint, EngineConfig::default());
    let mirror = MirrorClient::new(&engine, &address);
    for len in [0, 1, 100, 5000, 70_000, 3 << 20] {
        let bytes: Vec<u8> = (0..len).map(|i| ((i * 7) >> 2) as u8).collect();
        let mut back = engine.block_on(mirror.turned(bytes.clone())).unwrap();
        back.reverse();
        assert!(back == bytes, "{len} bytes");
    }
    for i in 0..2000u32 {
        let back = engine.block_on(mirror.turned(i.to_le_bytes().to_vec())).unwrap();
        assert_eq!(back, i.to_be_bytes());
    }
    server.close_input();
    assert!(server.wait(std::time::Duration::from_secs(10)).success());
}

#[test]
#[cfg(feature = "ofi")]
fn libfabric_over_tcp() {
    calls_over("libfabric_over_tcp", "ofi+tcp");
}

#[test]
#[cfg(feature = "ofi")]
fn libfabric_over_shared_memory() {
    calls_over("libfabric_over_shared_memory", "ofi+shm");
}

#[test]
#[cfg(feature = "ucx")]
fn ucx_over_tcp() {
    calls_over("ucx_over_tcp", "ucx+tcp");
}

#[test]
#[cfg(feature = "ucx")]
fn ucx_over_shared_memory() {
    calls_over("ucx_over_shared_memory", "ucx+posix");
}
