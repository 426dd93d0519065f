//! Unauthenticated peers: endpoints without the secret, packets from outside any connection, and
//! garbage at the ports.
//!
//! Each function takes what differs between transports: how to open an endpoint, how to send a
//! packet from outside, how many such packets were dropped, and which ports there are.

use crate::fixture::wait;
use petasos_fabric::{Clock, Endpoint, Event, LostReason, Peer};
use std::{
    io::Write,
    net::{Ipv4Addr, TcpStream},
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);

/// Two endpoints, of which the first talks to the second.
pub struct Friends<E> {
    /// Both.
    pub ends: [E; 2],
    events: [Vec<Event>; 2],
    clock: Clock,
    to: Option<Peer>,
    /// Passes in a row in which there was nothing to do.
    idle: u32,
}

impl<E: Endpoint> Friends<E> {
    /// Connects them, and waits until both are up.
    ///
    /// # Panics
    /// If they are not.
    #[must_use]
    pub fn meet(ends: [E; 2]) -> Friends<E> {
        let mut friends = Friends::begin(ends);
        friends.until("both are up", |friends| friends.events.iter().all(|events| up(events)));
        friends
    }

    /// Has the first connect to the second, whatever the outcome.
    fn begin(mut ends: [E; 2]) -> Friends<E> {
        let address = ends[1].address().clone();
        let to = ends[0].resolve(&address, PATIENCE).expect("it is resolved");
        Friends { ends, events: Default::default(), clock: Clock::start(), to: Some(to), idle: 0 }
    }

    fn pass(&mut self) {
        let mut worked = false;
        for (end, events) in self.ends.iter_mut().zip(&mut self.events) {
            worked |= end.progress(self.clock.now(), 64, events);
        }
        if worked {
            self.idle = 0;
        } else {
            wait(self.idle);
            self.idle += 1;
        }
    }

    fn until(&mut self, what: &str, mut seen: impl FnMut(&Friends<E>) -> bool) {
        let over = Instant::now() + PATIENCE;
        while !seen(self) {
            self.pass();
            assert!(Instant::now() < over, "not seen: {what}; {:?}", self.events);
        }
    }

    fn say(&mut self, what: &[u8]) {
        let (to, over) = (self.to.expect("they are connected"), Instant::now() + PATIENCE);
        while self.ends[0].inject(to, &[what]).is_err() {
            self.pass();
            assert!(Instant::now() < over, "there is no room for the message");
        }
    }

    /// Messages that arrived.
    fn received(&self) -> usize {
        self.events[1].iter().filter(|event| matches!(event, Event::Message { .. })).count()
    }

    fn assert_undisturbed(&self) {
        let lost = |event: &Event| matches!(event, Event::PeerLost { .. });
        assert!(!self.events.iter().flatten().any(lost), "{:?}", self.events);
    }
}

fn up(events: &[Event]) -> bool {
    events.iter().any(|event| matches!(event, Event::PeerUp { .. }))
}

/// Endpoints with another secret, or with none, are refused, and the one that has it gets no event
/// about them.
///
/// # Panics
/// If it is otherwise.
pub fn refused_without_the_secret<E: Endpoint>(mut open: impl FnMut(Option<&str>) -> E) {
    let secret = Some("a secret for the test");
    let mut server = open(secret);
    for wrong in [None, Some("another secret, as long")] {
        let mut friends = Friends::begin([open(wrong), server]);
        let reason = |friends: &Friends<E>| {
            friends.events[0].iter().find_map(|event| match event {
                Event::PeerLost { reason, .. } => Some(reason.clone()),
                _ => None,
            })
        };
        friends.until("a loss", |friends| reason(friends).is_some());
        assert!(matches!(reason(&friends), Some(LostReason::Refused(_))), "{:?}", reason(&friends));
        let events = &friends.events[1];
        assert!(events.is_empty(), "the server got events of a refused peer: {events:?}");
        [_, server] = friends.ends;
    }
    Friends::meet([open(secret), server]).assert_undisturbed();
}

/// Packets from outside any connection, with every kind of header, are dropped, while two endpoints
/// exchange messages.
///
/// `outsider` sends a packet to the second endpoint and returns whether it was sent, or, without
/// one, only receives what came; `strays` returns how many packets an endpoint dropped.
///
/// # Panics
/// If one of them has an effect.
pub fn not_heard_without_a_ticket<E: Endpoint>(
    friends: &mut Friends<E>,
    mut outsider: impl FnMut(Option<&[u8]>) -> bool,
    strays: impl Fn(&E) -> u64,
) {
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
        friends.until("a packet from outside is sent", |_| {
            outsider(Some(&packet)) || {
                outsider(None);
                false
            }
        });
        sent += u64::from(!packet.is_empty());
        friends.say(b"between peers");
    }
    friends.until("200 messages, and every stray packet dropped", |friends| {
        outsider(None);
        friends.received() >= 200 && strays(&friends.ends[1]) >= sent
    });
    assert_eq!(friends.received(), 200);
    friends.assert_undisturbed();
}

/// Garbage at ports of this machine ends that connection, and nothing else: other peers go on.
///
/// # Panics
/// If they do not.
pub fn garbage_at<E: Endpoint>(friends: &mut Friends<E>, ports: &[u16]) {
    for round in 0..20u8 {
        for port in ports {
            if let Ok(mut socket) = TcpStream::connect((Ipv4Addr::LOCALHOST, *port)) {
                let bytes = [round.wrapping_mul(37); 4096];
                let _ = socket.write_all(&bytes[..1 + 200 * usize::from(round)]);
            }
        }
        friends.say(b"still there?");
        friends.until("a message", |friends| friends.received() > usize::from(round));
    }
    friends.assert_undisturbed();
}
