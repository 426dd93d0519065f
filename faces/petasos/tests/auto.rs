//! Calls to one address, between processes: by shared memory, and by TCP where the server has
//! nothing else; short ones, with arguments and results that are lent, and with exported memory.
#![cfg(feature = "auto")]

use petasos::{Engine, EngineConfig, EngineThread, OpenOptions, fabric::Address, open, service};
use petasos_testing::{again, role};
use std::{io::BufRead, time::Duration};

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

/// `short`: whether the server is called by its place in the network alone.
fn calls_to(test: &str, listen: &str, short: bool) {
    if role().is_some() {
        let endpoint = open(listen, &OpenOptions::default()).unwrap();
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
    let mut address: Address = server.line("at ").parse().unwrap();
    if short {
        let (_, port) = address.as_str().rsplit_once(':').unwrap();
        address = format!("auto://127.0.0.1:{port}").parse().unwrap();
    }
    let endpoint = open("auto://*", &OpenOptions::default()).unwrap();
    let engine = Engine::new(endpoint, EngineConfig::default());
    let mirror = MirrorClient::new(&engine, &address);
    for len in [0, 1, 100, 5000, 70_000, 300_000, 3 << 20] {
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
    assert!(server.wait(Duration::from_secs(10)).success());
}

#[test]
fn over_shared_memory() {
    calls_to("over_shared_memory", "auto://*", false);
}

#[test]
fn over_tcp() {
    calls_to("over_tcp", "auto://tcp://127.0.0.1:0", false);
}

#[test]
fn by_a_short_address() {
    calls_to("by_a_short_address", "auto://127.0.0.1:0", true);
}
