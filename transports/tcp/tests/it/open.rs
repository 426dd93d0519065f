//! Opening, connecting, and being refused.

use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, InjectError, Level, LostReason, Operation, Peer,
    Region, RemoteSpan, Token,
};
use petasos_tcp::{
    Config, OpenError, Secret, SecretError, TcpEndpoint,
    handshake::{CHALLENGE_LEN, VERDICT_LEN},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(5);

fn open(url: &str, secret: Option<&str>) -> Result<TcpEndpoint, OpenError> {
    let mut config = Config::default();
    config.secret = secret.map(|text| Secret::new(text).unwrap());
    TcpEndpoint::open(&Address::parse(url).unwrap(), config)
}

struct Driver {
    clock: Clock,
    events: [Vec<Event>; 2],
}

impl Driver {
    fn new() -> Driver {
        Driver { clock: Clock::start(), events: Default::default() }
    }

    /// Drives both until something is seen.
    fn until(
        &mut self,
        a: &mut TcpEndpoint,
        b: &mut TcpEndpoint,
        mut seen: impl FnMut(&[Vec<Event>; 2]) -> bool,
    ) {
        let end = Instant::now() + Duration::from_secs(10);
        while !seen(&self.events) {
            a.progress(self.clock.now(), 64, &mut self.events[0]);
            b.progress(self.clock.now(), 64, &mut self.events[1]);
            assert!(Instant::now() < end, "not seen: {:?}", self.events);
        }
    }
}

fn message(events: &[Event]) -> Option<(Peer, Vec<u8>)> {
    events.iter().find_map(|event| match event {
        Event::Message { peer, message } => Some((*peer, message.to_vec())),
        _ => None,
    })
}

fn lost(events: &[Event]) -> Option<LostReason> {
    events.iter().find_map(|event| match event {
        Event::PeerLost { reason, .. } => Some(reason.clone()),
        _ => None,
    })
}

fn inject(endpoint: &mut TcpEndpoint, peer: Peer, bytes: &[u8]) {
    assert_ne!(endpoint.inject(peer, &[bytes]), Err(InjectError::UnknownPeer));
}

#[test]
fn ipv4_ipv6_and_names() {
    for (listen, dial) in [
        ("tcp://127.0.0.1:0", None),
        ("tcp://[::1]:0", None),
        ("tcp://lo:0", None),
        ("tcp://127.0.0.0/8:0", None),
        ("tcp://127.0.0.1:0", Some("localhost")),
    ] {
        let mut server = open(listen, None).unwrap();
        let mut client = open("tcp://*", None).unwrap();
        let mut address = server.address().clone();
        if let Some(name) = dial {
            let port = address.rest().rsplit_once(':').unwrap().1;
            address = Address::parse(&format!("tcp://{name}:{port}")).unwrap();
        }
        let peer = client.resolve(&address, PATIENCE).unwrap();
        let mut driver = Driver::new();
        driver.until(&mut client, &mut server, |e| !e[0].is_empty());
        inject(&mut client, peer, b"hello");
        driver.until(&mut client, &mut server, |e| message(&e[1]).is_some());
        let (peer, bytes) = message(&driver.events[1]).unwrap();
        assert_eq!(bytes, b"hello");
        assert_eq!(server.peer(peer).unwrap().address, *client.address());
    }
}

/// Messages that wait behind something of the receiver's own fill its buffer: that is not the end
/// of the connection.
#[test]
fn a_full_buffer_is_no_end() {
    const LEN: usize = 64 << 20;
    let (mut a, mut b) = (open("tcp://*", None).unwrap(), open("tcp://*", None).unwrap());
    let peer = b.resolve(a.address(), PATIENCE).unwrap();
    let mut driver = Driver::new();
    driver.until(&mut a, &mut b, |e| !e[0].is_empty() && !e[1].is_empty());
    // More than is read at once.
    let mut sent = 0;
    for _ in 0..100 {
        while b.inject(peer, &[&[7; 100]]).is_ok() {
            sent += 1;
        }
        b.progress(driver.clock.now(), 64, &mut driver.events[1]);
    }
    // What it puts to itself goes in many pieces, and takes it many passes.
    let region = a.register(&Region::zeroed(LEN).whole(), Access::WRITE).unwrap();
    let remote = a.import(&a.export(region).unwrap()).unwrap();
    let (token, level, event) = (Token(1), Level::Visible, None);
    let local = [Region::zeroed(LEN).whole()].into_iter().collect();
    let spans = [RemoteSpan { offset: 0, len: LEN as u64 }].into_iter().collect();
    a.submit(&mut [Operation::Put { token, remote, local, spans, level, event }].into());
    let end = Instant::now() + Duration::from_secs(10);
    let mut came = 0;
    while came < sent {
        let mut events = Vec::new();
        a.progress(driver.clock.now(), 2, &mut events);
        b.progress(driver.clock.now(), 64, &mut driver.events[1]);
        assert_eq!(lost(&events).or_else(|| lost(&driver.events[1])), None);
        came += events.iter().filter(|event| matches!(event, Event::Message { .. })).count();
        assert!(Instant::now() < end, "{came} of {sent} messages came");
    }
}

#[test]
fn beyond_this_machine_only_with_a_secret() {
    let refused = open("tcp://0.0.0.0:0", None).unwrap_err();
    assert!(matches!(refused, OpenError::NeedsSecret(_)));
    assert!(refused.to_string().contains("secret"), "{refused}");
    assert!(matches!(open("tcp://[::]:0", None), Err(OpenError::NeedsSecret(_))));
    let opened = open("tcp://0.0.0.0:0", Some("a secret for the test")).unwrap();
    assert!(!opened.address().as_str().contains("0.0.0.0"), "others cannot connect to that");
}

#[test]
fn a_client_without_the_secret_is_refused_and_others_go_on() {
    let secret = "a secret for the test";
    let mut server = open("tcp://*", Some(secret)).unwrap();
    let address = server.address().clone();
    for wrong in [None, Some("another secret, as long")] {
        let mut client = open("tcp://*", wrong).unwrap();
        client.resolve(&address, PATIENCE).unwrap();
        let mut driver = Driver::new();
        driver.until(&mut client, &mut server, |e| lost(&e[0]).is_some());
        let reason = lost(&driver.events[0]).unwrap();
        assert!(matches!(reason, LostReason::Refused(_)), "{reason}");
        assert!(driver.events[1].is_empty(), "the server has no peer");
    }
    assert_eq!(server.counters().refused, 2);
    let mut client = open("tcp://*", Some(secret)).unwrap();
    client.resolve(&address, PATIENCE).unwrap();
    let mut driver = Driver::new();
    driver.until(&mut client, &mut server, |e| !e[0].is_empty() && !e[1].is_empty());
    assert!(matches!(driver.events[0][0], Event::PeerUp { .. }));
}

#[test]
fn both_connect_at_a_time() {
    for _ in 0..50 {
        let (mut a, mut b) = (open("tcp://*", None).unwrap(), open("tcp://*", None).unwrap());
        let to_b = a.resolve(&b.address().clone(), PATIENCE).unwrap();
        let to_a = b.resolve(&a.address().clone(), PATIENCE).unwrap();
        let mut driver = Driver::new();
        driver.until(&mut a, &mut b, |e| !e[0].is_empty() && !e[1].is_empty());
        for n in 0..10u8 {
            a.inject(to_b, &[&[n]]).unwrap();
            b.inject(to_a, &[&[n]]).unwrap();
        }
        driver.until(&mut a, &mut b, |e| e.iter().all(|events| events.len() == 11));
        for (events, from) in driver.events.iter().zip([to_b, to_a]) {
            let seen: Vec<_> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Message { peer, message } => Some((*peer, message[0])),
                    _ => None,
                })
                .collect();
            assert_eq!(seen, (0..10).map(|n| (from, n)).collect::<Vec<_>>());
        }
        assert_eq!(a.counters().connections + b.counters().connections, 2, "one connection");
    }
}

#[test]
fn clients_that_send_nothing_or_garbage_are_closed() {
    let mut config = Config::default();
    config.handshake = Duration::from_millis(100);
    config.max_handshakes = 8;
    let mut server = TcpEndpoint::open(&"tcp://*".parse().unwrap(), config).unwrap();
    let at = server.address().rest().to_owned();
    let mut client = open("tcp://*", None).unwrap();
    let peer = client.resolve(&server.address().clone(), PATIENCE).unwrap();
    let mut driver = Driver::new();
    driver.until(&mut client, &mut server, |e| !e[0].is_empty() && !e[1].is_empty());
    let mut clients: Vec<_> = (0..40).map(|_| TcpStream::connect(&at).unwrap()).collect();
    for client in clients.iter_mut().step_by(2) {
        client.write_all(&[0xa5; 5000]).unwrap();
    }
    let (clock, end) = (Clock::start(), Instant::now() + PATIENCE);
    while server.counters().refused < 40 {
        server.progress(clock.now(), 64, &mut driver.events[1]);
        assert!(Instant::now() < end, "{:?}", server.counters());
    }
    for client in &mut clients {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        // A challenge at most, and then the end.
        let mut said = Vec::new();
        let _ = client.read_to_end(&mut said);
        assert!(said.len() <= CHALLENGE_LEN + VERDICT_LEN, "{} bytes", said.len());
    }
    inject(&mut client, peer, b"still here");
    driver.until(&mut client, &mut server, |e| message(&e[1]).is_some());
}

#[test]
fn an_authenticated_peer_that_talks_nonsense_is_cut_off() {
    use petasos_noise::ResponderAddress;
    use petasos_tcp::handshake::{Client, Goal, Identity};
    let mut server = open("tcp://*", None).unwrap();
    let address = server.address().clone();
    let talk = std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address.rest()).unwrap();
        let mut challenge = [0; CHALLENGE_LEN];
        stream.read_exact(&mut challenge).unwrap();
        let own = Identity {
            address: Address::parse("tcp://127.0.0.1:1").unwrap(),
            incarnation: petasos_fabric::Incarnation::random(),
        };
        let spot = ResponderAddress::of(stream.peer_addr().unwrap());
        let (_, hello) =
            Client::begin(None, false, [7; 32], &own, Goal::Begin, spot, &challenge).unwrap();
        stream.write_all(&hello).unwrap();
        stream.read_exact(&mut [0; VERDICT_LEN]).unwrap();
        stream.write_all(&[0xff; 1000]).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap_or(0)
    });
    let clock = Clock::start();
    let mut events = Vec::new();
    let end = Instant::now() + Duration::from_secs(10);
    while lost(&events).is_none() {
        server.progress(clock.now(), 64, &mut events);
        assert!(Instant::now() < end);
    }
    assert!(matches!(lost(&events), Some(LostReason::Protocol(_))));
    assert_eq!(talk.join().unwrap(), 0);
}

#[test]
fn a_peer_that_floods_keeps_no_other_waiting() {
    const FLOOD: usize = 20_000;
    let mut server = open("tcp://*", None).unwrap();
    let address = server.address().clone();
    let mut driver = Driver::new();
    let mut ends = [open("tcp://*", None).unwrap(), open("tcp://*", None).unwrap()];
    let peers = ends.each_mut().map(|end| end.resolve(&address, PATIENCE).unwrap());
    for (end, up) in ends.iter_mut().zip(1..) {
        driver.until(end, &mut server, |e| e[0].len() == up && e[1].len() == up);
    }
    let [flood, other] = &mut ends;
    for _ in 0..FLOOD {
        while flood.inject(peers[0], &[&[7; 8]]).is_err() {
            flood.progress(driver.clock.now(), 64, &mut Vec::new());
        }
    }
    // The server is in the middle of it when the other comes.
    let mut events = Vec::new();
    for pass in 0..100 {
        flood.progress(driver.clock.now(), 64, &mut Vec::new());
        if pass >= 50 {
            server.progress(driver.clock.now(), 16, &mut events);
        }
    }
    other.inject(peers[1], &[b"hello"]).unwrap();
    other.progress(driver.clock.now(), 64, &mut Vec::new());
    let (mut passes, end) = (0, Instant::now() + PATIENCE);
    let hello =
        |event: &Event| matches!(event, Event::Message { message, .. } if message.len() == 5);
    while !events.iter().any(hello) {
        passes += usize::from(server.progress(driver.clock.now(), 16, &mut events));
        assert!(Instant::now() < end, "after {passes} passes");
    }
    assert!(events.len() < FLOOD / 2 && passes < 100, "{passes} passes, {} events", events.len());
}

/// What came in one piece is taken to the end, however few events are asked for at a time.
#[test]
fn bursts_longer_than_the_budget() {
    const ENDS: usize = 5;
    const BURST: usize = 100;
    let mut server = open("tcp://*", None).unwrap();
    let address = server.address().clone();
    let mut driver = Driver::new();
    let mut ends: Vec<_> = (0..ENDS).map(|_| open("tcp://*", None).unwrap()).collect();
    for (nth, end) in ends.iter_mut().enumerate() {
        let peer = end.resolve(&address, PATIENCE).unwrap();
        driver.until(end, &mut server, |e| e[0].len() > nth && e[1].len() > nth);
        (0..BURST).for_each(|_| end.inject(peer, &[&[7; 8]]).unwrap());
    }
    ends.iter_mut().for_each(|end| _ = end.progress(driver.clock.now(), 64, &mut Vec::new()));
    let (mut events, end) = (Vec::new(), Instant::now() + PATIENCE);
    while events.len() < ENDS * BURST {
        server.progress(driver.clock.now(), 16, &mut events);
        assert!(Instant::now() < end, "{} of {}", events.len(), ENDS * BURST);
    }
}

#[test]
fn a_secret_file_must_be_closed_to_others() {
    let directory = std::env::temp_dir().join(format!("petasos-secret-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("secret");
    let with_mode = |mode| {
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        Secret::from_file(&path)
    };
    std::fs::write(&path, "a secret of some length\n").unwrap();
    for mode in [0o644, 0o640, 0o602, 0o666] {
        let refused = with_mode(mode).unwrap_err();
        assert!(refused.to_string().contains("chmod 600"), "{refused}");
    }
    assert!(with_mode(0o600).is_ok() && with_mode(0o400).is_ok());
    let link = directory.join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(matches!(Secret::from_file(&link), Err(SecretError::Io(..))));
    assert!(matches!(Secret::from_file(&directory), Err(SecretError::NotAFile(_))));
    assert!(matches!(Secret::from_file(directory.join("no")), Err(SecretError::Io(..))));
    with_mode(0o600).unwrap();
    std::fs::write(&path, "short").unwrap();
    assert!(matches!(Secret::from_file(&path), Err(SecretError::BadLength { len: 5 })));
    std::fs::remove_dir_all(&directory).unwrap();
}
