//! Programs that know nothing of the guide's transport, and use it: `PETASOS_TRANSPORTS` names it.

use petasos::{Engine, EngineConfig, EngineThread, OpenOptions, Region, Transport, open, service};
use petasos_fabric::{Clock, Endpoint, Event, PeerState};
use petasos_testing::{again, role};
use std::{io::BufRead, path::Path, time::Duration};

#[service]
trait Sums {
    async fn of_two(&self, a: u64, b: u64) -> u64;
    async fn of_all(&self, #[bulk(pull)] data: Region) -> u64;
}

struct Adder;

impl Sums for Adder {
    async fn of_two(&self, a: u64, b: u64) -> u64 {
        a + b
    }

    async fn of_all(&self, data: Region) -> u64 {
        data.to_vec().into_iter().map(u64::from).sum()
    }
}

fn serve() {
    let endpoint = open("seq://*", &OpenOptions::default()).unwrap();
    let server = EngineThread::start(endpoint, EngineConfig::default(), |engine| {
        Adder.serve(engine, 0).expect("nothing else is served");
    });
    let server = server.unwrap();
    println!("at {}", server.handle().address());
    // Until the test closes it.
    let _ = std::io::stdin().lock().read_line(&mut String::new());
}

fn call(address: &str) {
    let endpoint = open("seq://*", &OpenOptions::default()).unwrap();
    assert_eq!(endpoint.capabilities().scheme, "seq");
    let known = Transport::of("seq").unwrap();
    println!("from {}", known.file().unwrap().display());
    let engine = Engine::new(endpoint, EngineConfig::default());
    let sums = SumsClient::new(&engine, &address.parse().unwrap());
    for i in 0..1000 {
        assert_eq!(engine.block_on(sums.of_two(i, 2)).unwrap(), i + 2);
    }
    for len in [0, 1, 5000, 100_000, 8 << 20] {
        let data: Vec<u8> = (0..len).map(|i| ((i * 7) >> 2) as u8).collect();
        let expected: u64 = data.iter().copied().map(u64::from).sum();
        assert_eq!(engine.block_on(sums.of_all(data)).unwrap(), expected, "{len} bytes");
    }
    println!("all sums are right");
}

#[test]
fn a_service_over_a_transport_that_is_loaded() {
    match role().as_deref() {
        Some("server") => return serve(),
        Some(address) => return call(address),
        None => {}
    }
    let test = "a_service_over_a_transport_that_is_loaded";
    let built = std::env::current_exe().unwrap().with_file_name("libpetasos_guide.so");
    let variable = "PETASOS_TRANSPORTS";
    let mut server = again(test, "server").env(variable, built.to_str().unwrap()).start();
    let address = server.line("at ");
    assert!(Path::new(address.strip_prefix("seq://").unwrap()).exists(), "{address}");

    // The same one, by its directory.
    let directory = tempfile::tempdir().unwrap();
    let named = directory.path().join("libpetasos_transport_seq.so");
    std::os::unix::fs::symlink(&built, &named).unwrap();
    std::fs::write(directory.path().join("libother.so"), "of another kind").unwrap();
    let list = format!("{}:/nowhere/x.so", directory.path().display());
    let mut client = again(test, &address).env(variable, &list).start();
    assert_eq!(client.line("from "), named.to_str().unwrap());
    client.line("all sums are right");
    assert!(client.wait(Duration::from_secs(10)).success());
    server.close_input();
    assert!(server.wait(Duration::from_secs(10)).success());
    assert!(!Path::new(address.strip_prefix("seq://").unwrap()).exists(), "{address} is left");
}

/// A child that was forked has a copy of the endpoint. Dropped there, it is as if it had never
/// been: the socket stays, and the peers notice nothing.
#[test]
fn a_copy_in_a_child_is_dropped() {
    if role().is_none() {
        let test = "a_copy_in_a_child_is_dropped";
        let built = std::env::current_exe().unwrap().with_file_name("libpetasos_guide.so");
        let mut process = again(test, "alone");
        process = process.env("PETASOS_TRANSPORTS", built.to_str().unwrap());
        let mut process = process.start();
        process.line("the child has ended, and a message has come");
        assert!(process.wait(Duration::from_secs(10)).success());
        return;
    }
    let [mut here, mut there] = ["seq://*"; 2].map(|at| open(at, &OpenOptions::default()).unwrap());
    let peer = here.resolve(there.address(), Duration::from_secs(10)).unwrap();
    let (clock, mut events) = (Clock::start(), Vec::new());
    let is_up = |here: &dyn Endpoint| here.peer(peer).unwrap().state == PeerState::Up;
    let drive = |ends: [&mut dyn Endpoint; 2], events: &mut Vec<Event>| {
        for end in ends {
            end.progress(clock.now(), 64, events);
        }
    };
    while !is_up(&*here) {
        drive([&mut *here, &mut *there], &mut events);
    }
    let child = petasos_testing::fork();
    if child == 0 {
        drop((here, there));
        std::process::exit(0);
    }
    while Path::new(&format!("/proc/{child}/task")).exists()
        && !std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap().contains(") Z ")
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    for end in [&here, &there] {
        assert!(Path::new(end.address().rest()).exists(), "{} is removed", end.address());
    }
    events.clear();
    here.inject(peer, &[b"still here"]).unwrap();
    let came = |event: &Event| matches!(event, Event::Message { .. });
    while !events.iter().any(came) {
        drive([&mut *here, &mut *there], &mut events);
    }
    assert!(is_up(&*here));
    println!("the child has ended, and a message has come");
}
