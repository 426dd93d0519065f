//! Connecting to a peer: look its host up, connect, shake hands; again and again, with growing
//! pauses, until the patience is over.

use crate::{
    Secret,
    address::{literal, options, split},
    handshake::{
        CHALLENGE_LEN, Client, Goal, HandshakeError, Identity, Name, Session, VERDICT_LEN, Verdict,
    },
    known_peers::KnownPeers,
    unauthenticated::{Part, ends, receive_part, send_whole},
};
use petasos_fabric::{Address, Patience, Time};
use petasos_noise::{Channel, ResponderAddress};
use rustix::{
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, connect, getpeername, socket_with, sockopt},
};
use std::{
    net::SocketAddr,
    os::fd::OwnedFd,
    sync::mpsc::{Receiver, TryRecvError, channel},
    time::Duration,
};

/// The first pause between two attempts; it doubles up to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// How long the other side's connection is waited for when both connect at a time.
const CROSSED_PAUSE: Duration = Duration::from_millis(500);

/// Attempts to connect to one peer.
#[derive(Debug)]
pub(crate) struct Dial {
    address: Address,
    /// How long it may take in all; renewed when the peer is resolved again.
    pub(crate) patience: Patience,
    /// What is wanted there: to begin a session, to go on with one, or to ask about another
    /// connection.
    goal: Goal,
    /// Whether one failure is the end of it.
    once: bool,
    /// Whether a refused connection is: nothing listens there.
    pub(crate) running: bool,
    stage: Stage,
    pause: Duration,
    /// What went wrong last.
    pub(crate) why: String,
}

#[derive(Debug)]
enum Stage {
    /// Nothing under way; the next attempt at this time.
    Waiting(Time),
    LookingUp(Receiver<Result<SocketAddr, String>>),
    Connecting(OwnedFd),
    /// Connected; the challenge is coming.
    Challenge {
        socket: OwnedFd,
        frame: [u8; CHALLENGE_LEN],
        got: usize,
        until: Time,
    },
    /// We sent our identity; the verdict is coming.
    Verdict {
        socket: OwnedFd,
        client: Client,
        frame: Box<[u8; VERDICT_LEN]>,
        got: usize,
        until: Time,
    },
}

/// What came of a step.
pub(crate) enum Dialled {
    /// Nothing yet.
    Pending,
    /// A new socket, to be polled for writing until it is connected.
    Opened,
    /// It is connected: to be polled for reading from now on.
    Connected,
    /// The handshake with this peer succeeded; whether it proved to be the one that was there
    /// before.
    Up(OwnedFd, Option<Channel>, Identity, Session, bool),
    /// The same, and packets go on where the session stood.
    Resumed(OwnedFd, Option<Channel>, Identity),
    /// This endpoint does not admit us for now.
    Claimed(SocketAddr, Identity),
    /// Whether this endpoint has made the connection that was asked about.
    Vouched(bool, Identity),
    /// It was to be tried once, or as long as something listens there.
    Failed,
    /// It cannot succeed.
    Hopeless(HandshakeError),
}

/// What a handshake needs to know of this endpoint.
pub(crate) struct Local<'a> {
    pub(crate) secret: Option<&'a Secret>,
    pub(crate) encrypt: bool,
    pub(crate) identity: &'a Identity,
    pub(crate) known_peers: &'a KnownPeers,
    pub(crate) handshake: Duration,
}

impl Dial {
    pub(crate) fn new(
        address: Address,
        session: Option<Session>,
        patience: Duration,
        now: Time,
    ) -> Dial {
        Dial {
            address,
            patience: Patience::new(patience),
            goal: session.map_or(Goal::Begin, Goal::Resume),
            once: false,
            running: false,
            stage: Stage::Waiting(now),
            pause: FIRST_PAUSE,
            why: "it does not answer".to_owned(),
        }
    }

    /// Asks the endpoint at an address whether it made a connection.
    pub(crate) fn back(
        address: Address,
        name: Name,
        once: bool,
        patience: Duration,
        now: Time,
    ) -> Dial {
        let dial = Dial::new(address, None, patience, now);
        Dial { goal: Goal::Vouch(name), once, ..dial }
    }

    /// What the connection under way is called, if the other side was told.
    pub(crate) fn name(&self) -> Option<Name> {
        match &self.stage {
            Stage::Verdict { client, .. } => Some(client.name()),
            _ => None,
        }
    }

    /// The socket under way.
    pub(crate) fn socket(&self) -> Option<&OwnedFd> {
        match &self.stage {
            Stage::Connecting(socket)
            | Stage::Challenge { socket, .. }
            | Stage::Verdict { socket, .. } => Some(socket),
            _ => None,
        }
    }

    /// When the next step is due, if nothing comes.
    pub(crate) fn next(&self, now: Time) -> Time {
        match &self.stage {
            Stage::Waiting(until) => *until,
            Stage::LookingUp(_) => now.after(Duration::from_millis(1)),
            Stage::Connecting(_) => Time::NEVER,
            Stage::Challenge { until, .. } | Stage::Verdict { until, .. } => *until,
        }
        .min(self.patience.end())
    }

    /// Moves on as far as it goes without waiting.
    pub(crate) fn step(&mut self, now: Time, us: &Local<'_>) -> Dialled {
        match &mut self.stage {
            Stage::Waiting(until) if now < *until => Dialled::Pending,
            Stage::Waiting(_) => self.look_up(now),
            Stage::LookingUp(answer) => match answer.try_recv() {
                Ok(Ok(socket)) => self.connect(socket, now),
                Ok(Err(why)) => self.again(why, now),
                Err(TryRecvError::Empty) => Dialled::Pending,
                Err(TryRecvError::Disconnected) => self.again("the look-up failed".to_owned(), now),
            },
            Stage::Connecting(socket) => match sockopt::socket_error(&*socket) {
                Ok(Ok(())) if getpeername(&*socket).is_ok() => {
                    let stage = Stage::Waiting(now);
                    if let Stage::Connecting(socket) = std::mem::replace(&mut self.stage, stage) {
                        let until = now.after(us.handshake);
                        let (frame, got) = ([0; CHALLENGE_LEN], 0);
                        self.stage = Stage::Challenge { socket, frame, got, until };
                    }
                    Dialled::Connected
                }
                Ok(Ok(())) => Dialled::Pending,
                Ok(Err(error)) | Err(error) => self.not_connected(error, now),
            },
            Stage::Challenge { .. } => self.take_challenge(now, us),
            Stage::Verdict { .. } => self.take_verdict(now),
        }
    }

    fn look_up(&mut self, now: Time) -> Dialled {
        let Some((host, port)) = split(&self.address) else {
            return self.again("not an address".to_owned(), now);
        };
        if let Some(socket) = literal(host, port) {
            return self.connect(socket, now);
        }
        // The system's look-up blocks.
        let (sender, receiver) = channel();
        let host = host.to_owned();
        let name = "petasos-lookup".to_owned();
        let look_up = move || {
            let found = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
            let first = found.map_err(|error| error.to_string()).and_then(|mut list| {
                list.next().ok_or_else(|| "the host has no address".to_owned())
            });
            let _ = sender.send(first);
        };
        match std::thread::Builder::new().name(name).spawn(look_up) {
            Ok(_) => {
                self.stage = Stage::LookingUp(receiver);
                Dialled::Pending
            }
            Err(error) => self.again(error.to_string(), now),
        }
    }

    fn connect(&mut self, to: SocketAddr, now: Time) -> Dialled {
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let connected = socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
            match connect(&socket, &to) {
                Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
                Err(error) => Err(error),
            }
        });
        match connected {
            Ok(socket) => {
                self.stage = Stage::Connecting(socket);
                Dialled::Opened
            }
            Err(error) => self.not_connected(error, now),
        }
    }

    fn not_connected(&mut self, error: Errno, now: Time) -> Dialled {
        if self.running && error == Errno::CONNREFUSED {
            self.why = error.to_string();
            return Dialled::Failed;
        }
        self.again(error.to_string(), now)
    }

    fn take_challenge(&mut self, now: Time, us: &Local<'_>) -> Dialled {
        let Stage::Challenge { socket, frame, got, until } = &mut self.stage else {
            return Dialled::Pending;
        };
        match receive_part(socket, frame, got) {
            Part::More if now < *until => Dialled::Pending,
            Part::More => self.again("it does not answer the handshake".to_owned(), now),
            Part::Gone => self.again("it closed the connection".to_owned(), now),
            Part::Whole => {
                let Some((here, there)) = ends(socket) else {
                    return self.again("it closed the connection".to_owned(), now);
                };
                let (nonce, encrypt) = (nonce(), us.encrypt || options(&self.address).1);
                let (own, mut goal) = (us.identity, self.goal);
                if let (Goal::Begin, Some(before)) = (goal, us.known_peers.at(there)) {
                    goal = Goal::Again(before);
                }
                let spot = ResponderAddress::of_connection(there, here);
                let begun = Client::begin(us.secret, encrypt, nonce, own, goal, spot, frame);
                match begun {
                    Err(error) => Dialled::Hopeless(error),
                    Ok((client, hello)) => {
                        if !send_whole(socket, &hello) {
                            return self.again("it closed the connection".to_owned(), now);
                        }
                        let until = *until;
                        let stage = std::mem::replace(&mut self.stage, Stage::Waiting(now));
                        if let Stage::Challenge { socket, .. } = stage {
                            let (frame, got) = (Box::new([0; VERDICT_LEN]), 0);
                            self.stage = Stage::Verdict { socket, client, frame, got, until };
                        }
                        Dialled::Pending
                    }
                }
            }
        }
    }

    fn take_verdict(&mut self, now: Time) -> Dialled {
        let Stage::Verdict { socket, client, frame, got, until } = &mut self.stage else {
            return Dialled::Pending;
        };
        match receive_part(socket, &mut frame[..], got) {
            Part::More if now < *until => Dialled::Pending,
            Part::More => self.again("it does not answer the handshake".to_owned(), now),
            Part::Gone => {
                self.again("it closed the connection during the handshake".to_owned(), now)
            }
            Part::Whole => match client.verdict(frame) {
                Err(error) => Dialled::Hopeless(error),
                Ok((Verdict::Vouched, _, identity)) => Dialled::Vouched(true, identity),
                Ok((Verdict::Denied, _, identity)) => Dialled::Vouched(false, identity),
                Ok((verdict @ (Verdict::Welcome | Verdict::Resumed), session, identity)) => {
                    let stage = std::mem::replace(&mut self.stage, Stage::Waiting(now));
                    let Stage::Verdict { socket, client, .. } = stage else {
                        return Dialled::Pending;
                    };
                    let known = client.is_known();
                    let channel = client.into_channel();
                    match verdict {
                        Verdict::Welcome => Dialled::Up(socket, channel, identity, session, known),
                        _ => Dialled::Resumed(socket, channel, identity),
                    }
                }
                Ok((Verdict::Claimed, _, identity)) => {
                    let there = getpeername(&*socket).ok().flatten();
                    let why = "it has another peer at the address of this endpoint, or could not verify \
                               this connection there";
                    self.later(why.to_owned(), now);
                    match there.and_then(|name| SocketAddr::try_from(name).ok()) {
                        Some(there) => Dialled::Claimed(there, identity),
                        None => Dialled::Pending,
                    }
                }
                Ok((Verdict::Crowded, ..)) => {
                    let why = "this host has as many connections to it as it gives to one: at most as many as it \
                               has descriptors left (RLIMIT_NOFILE there)";
                    self.later(why.to_owned(), now)
                }
                // The other side's connection is the one to use, and is on its way.
                Ok(_) => {
                    let why = std::mem::take(&mut self.why);
                    self.later(why, now)
                }
            },
        }
    }

    /// Tries again after a pause for the other side.
    fn later(&mut self, why: String, now: Time) -> Dialled {
        self.why = why;
        self.stage = Stage::Waiting(now.after(CROSSED_PAUSE));
        Dialled::Pending
    }

    pub(crate) fn again(&mut self, why: String, now: Time) -> Dialled {
        self.why = why;
        if self.once {
            return Dialled::Failed;
        }
        self.stage = Stage::Waiting(now.after(self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Dialled::Pending
    }
}

/// A number used once.
///
/// # Panics
/// If the system has no random source, which Linux always has.
pub(crate) fn nonce() -> [u8; 32] {
    let mut nonce = [0; 32];
    getrandom::fill(&mut nonce).expect("the system's random source answers");
    nonce
}
