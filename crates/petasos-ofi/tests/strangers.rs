//! Who does not know the secret, who sends packets without a ticket, and who sends garbage to the provider's port.

use petasos_fabric::{Address, Clock, Endpoint, Event, LostReason, Peer};
use petasos_ofi::{Bare, Config, Ofi, Secret};
use std::{
    io::Write,
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(5);

fn here() -> bool {
    let found = petasos_ofi::find();
    if let Err(error) = &found {
        petasos_testing::skip(&error.to_string());
    }
    found.is_ok()
}

fn open(url: &str, secret: Option<&str>) -> Ofi {
    let mut config = Config::default();
    config.secret = secret.map(|text| Secret::new(text).unwrap());
    Ofi::open(&Address::parse(url).unwrap(), config).unwrap()
}

/// Drives all until something is seen in the events of one.
fn until(
    ends: &mut [&mut Ofi],
    events: &mut [Vec<Event>],
    mut seen: impl FnMut(&[Vec<Event>]) -> bool,
) {
    let (clock, end) = (Clock::start(), Instant::now() + 2 * PATIENCE);
    while !seen(events) {
        for (endpoint, events) in ends.iter_mut().zip(events.iter_mut()) {
            endpoint.progress(clock.now(), 64, events);
        }
        assert!(Instant::now() < end, "not seen: {events:?}");
    }
}

fn messages(events: &[Event]) -> usize {
    events.iter().filter(|event| matches!(event, Event::Message { .. })).count()
}

fn up(events: &[Event]) -> Option<Peer> {
    events.iter().find_map(|event| match event {
        Event::PeerUp { peer, .. } => Some(*peer),
        _ => None,
    })
}

#[test]
fn who_does_not_know_the_secret_is_refused() {
    if !here() {
        return;
    }
    let mut server = open("ofi+tcp://*", Some("a secret for the test"));
    let address = server.address().clone();
    for wrong in [None, Some("another secret, as long")] {
        let mut client = open("ofi+tcp://*", wrong);
        client.resolve(&address, PATIENCE).unwrap();
        let mut events = [Vec::new(), Vec::new()];
        let lost =
            |events: &[Vec<Event>]| events[0].iter().any(|e| matches!(e, Event::PeerLost { .. }));
        until(&mut [&mut client, &mut server], &mut events, lost);
        let reason = events[0].iter().find_map(|event| match event {
            Event::PeerLost { reason, .. } => Some(reason.clone()),
            _ => None,
        });
        assert!(matches!(reason, Some(LostReason::Refused(_))), "{reason:?}");
        assert!(events[1].is_empty(), "the server has heard of somebody: {:?}", events[1]);
    }
    let mut client = open("ofi+tcp://*", Some("a secret for the test"));
    client.resolve(&address, PATIENCE).unwrap();
    let mut events = [Vec::new(), Vec::new()];
    until(&mut [&mut client, &mut server], &mut events, |e| e.iter().all(|e| up(e).is_some()));
}

#[test]
fn nobody_listens_beyond_this_machine_without_a_secret() {
    if !here() {
        return;
    }
    let refused = Ofi::open(&Address::parse("ofi+tcp://0.0.0.0:0").unwrap(), Config::default());
    assert!(refused.unwrap_err().to_string().contains("secret"));
}

/// Packets of somebody whom nobody introduced, with every kind of head, do nothing, while peers talk.
#[test]
fn packets_without_a_ticket_are_thrown_away() {
    if !here() {
        return;
    }
    let (mut a, mut b) = (open("ofi+tcp://*", None), open("ofi+tcp://*", None));
    let to = a.resolve(&b.address().clone(), PATIENCE).unwrap();
    let mut events = [Vec::new(), Vec::new()];
    until(&mut [&mut a, &mut b], &mut events, |e| e.iter().all(|e| up(e).is_some()));
    let mut stranger = Bare::open(&Address::parse("ofi+tcp://*").unwrap()).unwrap();
    let other = stranger.insert(b.fabric_name()).unwrap();
    let (mut seed, mut sent) = (7u64, 0);
    for round in 0..200usize {
        let mut packet: Vec<u8> = (0..round % 90)
            .map(|_| {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (seed >> 56) as u8
            })
            .collect();
        // A slot that is in use, too.
        if let Some(slot) = packet.first_chunk_mut::<4>() {
            *slot = ((round % 3) as u32).to_le_bytes();
        }
        let begin = Instant::now();
        while !stranger.send(other, &packet) && begin.elapsed() < PATIENCE {
            stranger.receive();
            b.progress(Clock::start().now(), 64, &mut events[1]);
        }
        sent += u64::from(!packet.is_empty());
        while a.inject(to, &[b"between friends"]).is_err() {
            until(&mut [&mut a, &mut b], &mut events, |_| true);
            a.progress(Clock::start().now(), 64, &mut events[0]);
            b.progress(Clock::start().now(), 64, &mut events[1]);
        }
    }
    let clock = Clock::start();
    let end = Instant::now() + PATIENCE;
    while messages(&events[1]) < 200 || b.counters().strays < sent {
        stranger.receive();
        a.progress(clock.now(), 64, &mut events[0]);
        b.progress(clock.now(), 64, &mut events[1]);
        assert!(Instant::now() < end, "{} messages, {:?}", messages(&events[1]), b.counters());
    }
    assert_eq!((messages(&events[1]), b.counters().violations), (200, 0));
    assert!(events.iter().flatten().all(|e| !matches!(e, Event::PeerLost { .. })));
}

/// Bytes that are not the provider's protocol end that connection, and nothing else.
#[test]
fn garbage_at_the_port_of_the_provider() {
    if !here() {
        return;
    }
    let (mut a, mut b) = (open("ofi+tcp://*", None), open("ofi+tcp://*", None));
    let to = a.resolve(&b.address().clone(), PATIENCE).unwrap();
    let mut events = [Vec::new(), Vec::new()];
    until(&mut [&mut a, &mut b], &mut events, |e| e.iter().all(|e| up(e).is_some()));
    // A socket address: the port is in its third and fourth byte.
    let name = b.fabric_name();
    let port = u16::from_be_bytes([name[2], name[3]]);
    for round in 0..20u8 {
        if let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            let _ =
                socket.write_all(&[round.wrapping_mul(37); 4096][..1 + 200 * usize::from(round)]);
        }
        assert!(a.inject(to, &[b"still there?"]).is_ok());
        until(&mut [&mut a, &mut b], &mut events, |e| messages(&e[1]) > usize::from(round));
    }
}
