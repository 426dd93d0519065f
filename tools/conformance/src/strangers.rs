//! Who does not know the secret, who sends packets without having met anybody, and who sends garbage to the ports.
//!
//! Each piece is told what differs between transports: how to open an endpoint, what a stranger sends with, how many of
//! his packets were thrown away, and which ports there are.

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
}

impl<E: Endpoint> Friends<E> {
    /// Has them meet, and waits until both are up.
    ///
    /// # Panics
    /// If they are not.
    #[must_use]
    pub fn meet(ends: [E; 2]) -> Friends<E> {
        let mut friends = Friends::begin(ends);
        friends.until("both are up", |friends| friends.events.iter().all(|events| up(events)));
        friends
    }

    /// Has the first look for the second, whatever comes of it.
    fn begin(mut ends: [E; 2]) -> Friends<E> {
        let address = ends[1].address().clone();
        let to = ends[0].resolve(&address, PATIENCE).expect("it is resolved");
        Friends { ends, events: Default::default(), clock: Clock::start(), to: Some(to) }
    }

    fn pass(&mut self) {
        for (end, events) in self.ends.iter_mut().zip(&mut self.events) {
            end.progress(self.clock.now(), 64, events);
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
        let (to, over) = (self.to.expect("they met"), Instant::now() + PATIENCE);
        while self.ends[0].inject(to, &[what]).is_err() {
            self.pass();
            assert!(Instant::now() < over, "there is never room");
        }
    }

    /// Messages that came.
    fn heard(&self) -> usize {
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

/// Endpoints with another secret, or with none, are refused, and the one that has it hears nothing of them.
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
        let heard = &friends.events[1];
        assert!(heard.is_empty(), "the server has heard of somebody: {heard:?}");
        [_, server] = friends.ends;
    }
    Friends::meet([open(secret), server]).assert_undisturbed();
}

/// Packets of somebody whom nobody introduced, with every kind of head, are thrown away, while friends talk.
///
/// `stranger` sends a packet to the second of them, and says whether it left, or only looks what came; `strays` says how
/// many packets an endpoint threw away.
///
/// # Panics
/// If one of them does something.
pub fn not_heard_without_a_ticket<E: Endpoint>(
    friends: &mut Friends<E>,
    mut stranger: impl FnMut(Option<&[u8]>) -> bool,
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
        friends.until("a stranger's packet leaves", |_| {
            stranger(Some(&packet)) || {
                stranger(None);
                false
            }
        });
        sent += u64::from(!packet.is_empty());
        friends.say(b"between friends");
    }
    friends.until("200 messages, and all that is thrown away", |friends| {
        stranger(None);
        friends.heard() >= 200 && strays(&friends.ends[1]) >= sent
    });
    assert_eq!(friends.heard(), 200);
    friends.assert_undisturbed();
}

/// Garbage at ports of this machine ends that connection, and nothing else: friends go on.
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
        friends.until("a message", |friends| friends.heard() > usize::from(round));
    }
    friends.assert_undisturbed();
}
