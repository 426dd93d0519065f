//! Connections that this endpoint makes.

use crate::{
    Shm,
    control::{ControlMessage, Greeting},
    join::Joined,
    name::Name,
    pair::Pair,
    poller::{Ready, Source},
    socket::{self, Credentials, Fds},
    state::SCHEME,
    table::PeerTable,
};
use petasos_fabric::{Address, EventFd, LostReason, Patience, Peer, ResolveError, Time};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
};
use std::time::Duration;

const FIRST_RETRY: Duration = Duration::from_millis(1);
const LAST_RETRY: Duration = Duration::from_millis(100);
/// This process, in error texts.
const THIS: &str = "this process";

/// A connection that is wanted, until it is there or given up.
struct Attempt {
    peer: Peer,
    name: Name,
    address: Address,
    patience: Patience,
    /// The peer is to be running already: if nothing listens there, it is lost.
    running: bool,
    next: Time,
    delay: Duration,
    waiting: Option<Greeted>,
    /// Why the last try failed.
    reason: String,
    /// Whether the other side gave that reason: it is worth more than that it does not answer now.
    told: bool,
}

/// A connection on which the greeting was sent.
struct Greeted {
    socket: OwnedFd,
    pair: Pair,
    doorbell: EventFd,
    credentials: Credentials,
}

/// Why a try to connect failed.
enum DialError {
    /// There is no use in another try.
    Lost(LostReason),
    /// Another try may succeed.
    System(Errno),
}

impl From<Errno> for DialError {
    fn from(error: Errno) -> DialError {
        DialError::System(error)
    }
}

impl Attempt {
    /// When it must be polled if nothing happens.
    fn due(&self) -> Time {
        let end = self.patience.end();
        if self.waiting.is_some() { end } else { end.min(self.next) }
    }

    /// A try failed: another one follows, later each time.
    fn retry(&mut self, now: Time, reason: String) {
        self.waiting = None;
        self.reason = reason;
        self.next = now.after(self.delay);
        self.delay = (self.delay * 2).min(LAST_RETRY);
    }

    /// The greeting was sent.
    fn await_answer(&mut self, greeted: Greeted) {
        self.waiting = Some(greeted);
        if !self.told {
            self.reason = "it does not answer".to_owned();
        }
    }
}

/// All attempts to connect that are under way.
#[derive(Default)]
pub(crate) struct Attempts(Vec<Attempt>);

impl Attempts {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn start(
        &mut self,
        peer: Peer,
        address: Address,
        name: Name,
        patience: Duration,
        running: bool,
    ) {
        self.0.push(Attempt {
            peer,
            name,
            address,
            patience: Patience::new(patience),
            running,
            next: Time::ZERO,
            delay: FIRST_RETRY,
            waiting: None,
            reason: "nothing was tried yet".to_owned(),
            told: false,
        });
    }

    /// The peer is asked for once more: the attempt, if there is one, has this patience from now
    /// on.
    fn renew(&mut self, peer: Peer, patience: Duration, running: bool) {
        if let Some(attempt) = self.0.iter_mut().find(|attempt| attempt.peer == peer) {
            attempt.patience.renew(patience);
            attempt.running &= running;
        }
    }

    /// The peer is connected, or lost.
    pub(crate) fn remove(&mut self, peer: Peer) {
        self.0.retain(|attempt| attempt.peer != peer);
    }

    /// Whether a greeting was sent to this peer, and not answered yet.
    pub(crate) fn awaits_answer(&self, peer: Peer) -> bool {
        let attempt = self.0.iter().find(|attempt| attempt.peer == peer);
        attempt.is_some_and(|attempt| attempt.waiting.is_some())
    }

    /// When one of them must be polled, if nothing happens.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.0.iter().map(Attempt::due).min()
    }
}

impl Shm {
    /// The peer at an address, whether or not it is `running` already.
    pub(crate) fn connect(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        let address = address.clone();
        if address.scheme() != SCHEME {
            return Err(ResolveError::WrongScheme { address, scheme: SCHEME });
        }
        let name = match Name::parse(address.rest()) {
            Ok(name) => name,
            Err(reason) => return Err(ResolveError::Malformed { address, reason }),
        };
        if let Some(peer) = self.engine.find_peer(&address) {
            if let Some(channel) = self.channel(peer.index) {
                channel.uninvited = false;
            }
            self.attempts.renew(peer, patience, running);
            return Ok(peer);
        }
        let peer = self.engine.add_peer(&address)?;
        if !self.engine.is_self(peer) {
            self.attempts.start(peer, address, name, patience, running);
            self.schedule.hurry();
        }
        Ok(peer)
    }

    /// Moves the attempts on. True if anything was done.
    pub(crate) fn try_to_connect(&mut self, now: Time) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some(attempt) = self.attempts.0.get(at) {
            let (peer, running) = (attempt.peer, attempt.running);
            if attempt.waiting.is_none() && now >= attempt.next {
                worked = true;
                let dialed = self.dial(attempt);
                let attempt = &mut self.attempts.0[at];
                // A peer that is lost has no attempt any more.
                match dialed {
                    Ok(greeted) => attempt.await_answer(greeted),
                    Err(DialError::Lost(reason)) => {
                        self.engine.peer_lost(peer, reason);
                        self.let_go(peer, &LostReason::Closed);
                        continue;
                    }
                    Err(DialError::System(error @ (Errno::CONNREFUSED | Errno::NOENT)))
                        if running =>
                    {
                        let why = socket::reason(error, THIS);
                        self.lose(peer.index, LostReason::Unreachable(Duration::ZERO, why));
                        continue;
                    }
                    Err(DialError::System(error)) => {
                        attempt.retry(now, socket::reason(error, THIS));
                    }
                }
            }
            let attempt = &mut self.attempts.0[at];
            if attempt.patience.is_over(now) {
                let patience = attempt.patience.longest();
                let reason = LostReason::Unreachable(patience, attempt.reason.clone());
                self.lose(peer.index, reason);
                worked = true;
            } else {
                at += 1;
            }
        }
        worked
    }

    /// One try to connect.
    fn dial(&self, attempt: &Attempt) -> Result<Greeted, DialError> {
        let socket = socket::dial(&attempt.name, self.uid)?;
        let credentials = socket::credentials(&socket)?;
        let wanted = match attempt.name {
            Name::Of(uid, _) => credentials.uid == uid && self.admits(uid),
            _ => self.admits(credentials.uid),
        };
        if !wanted {
            let text = format!("user {} listens at {}", credentials.uid, attempt.address);
            return Err(DialError::Lost(LostReason::Refused(text)));
        }
        let (fd, pair) = Pair::create(self.config.sizes())?;
        let doorbell = EventFd::new()?;
        let fds = [self.exports.fd(), fd.as_fd(), doorbell.as_fd()];
        match socket::send(&socket, &ControlMessage::Hello(self.greeting()).encode(), &fds) {
            // Closed already: the reason may be there to read.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(error) => return Err(error.into()),
        }
        self.poller.add(&socket, Source::Attempt, attempt.peer)?;
        Ok(Greeted { socket, pair, doorbell, credentials })
    }

    /// Something came on the socket of an attempt.
    pub(crate) fn answered(&mut self, ready: Ready, now: Time) {
        let of = |peer: Peer| peer.index == ready.index && ready.is_of(peer.generation);
        let Some(at) = self.attempts.0.iter().position(|attempt| of(attempt.peer)) else { return };
        let attempt = &mut self.attempts.0[at];
        let peer = attempt.peer;
        let Some(greeted) = &attempt.waiting else { return };
        let (note, fds) = match socket::receive(&greeted.socket) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            // Nothing is wrong with the peer.
            Ok(received) if received.cut => {
                return attempt.retry(now, socket::out_of_descriptors(THIS));
            }
            Ok(received) if !received.bytes.is_empty() => {
                (ControlMessage::decode(&received.bytes), received.fds)
            }
            Ok(_) => return attempt.retry(now, "it closed the connection".to_owned()),
            Err(error) => return attempt.retry(now, error.to_string()),
        };
        let lost = match note {
            Ok(ControlMessage::Refused { again: true, text }) => {
                attempt.told = true;
                return attempt.retry(now, text);
            }
            Ok(ControlMessage::Refused { again: false, text }) => LostReason::Refused(text),
            Ok(ControlMessage::Welcome(greeting)) => match self.welcomed(at, greeting, fds) {
                Ok(()) => return,
                Err(what) => LostReason::Protocol(what),
            },
            Ok(_) => LostReason::Protocol("a wrong answer to a greeting".to_owned()),
            Err(garbled) => LostReason::Protocol(garbled.to_string()),
        };
        if let LostReason::Protocol(what) = &lost {
            self.violated(peer.index, what.clone());
        } else {
            self.lose(peer.index, lost);
        }
    }

    fn welcomed(&mut self, at: usize, greeting: Greeting, fds: Fds) -> Result<(), String> {
        let attempt = &self.attempts.0[at];
        if greeting.address != attempt.address {
            return Err(format!("{} answered for {}", greeting.address, attempt.address));
        }
        let attempt = self.attempts.0.swap_remove(at);
        let Some(Greeted { socket, pair, doorbell, credentials }) = attempt.waiting else {
            return Ok(());
        };
        let fds: [OwnedFd; 2] = fds.into_vec().try_into().map_err(|_| "descriptors missing")?;
        let [table, peer_doorbell] = fds;
        let table = PeerTable::adopt(&table).map_err(|unfit| unfit.to_string())?;
        let joined = Joined { pair, table, doorbell, peer_doorbell, credentials, uninvited: false };
        self.join(attempt.peer, greeting, socket, joined);
        Ok(())
    }
}
