//! Connections that this endpoint makes.

use super::join::Joined;
use crate::{
    Shm,
    attempts::{Attempt, Greeted},
    control::{ControlMessage, Greeting},
    name::{Name, SCHEME},
    pair::Pair,
    poller::{Ready, Source},
    socket::{self, Fds},
    table::PeerTable,
};
use petasos_fabric::{Address, EventFd, LostReason, Peer, ResolveError, Time};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::Errno,
};
use std::time::Duration;

/// This process, in error texts.
const THIS: &str = "this process";

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

impl Shm {
    /// The peer at an address, whether or not it is `running` already.
    pub(super) fn connect(
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
    pub(super) fn try_to_connect(&mut self, now: Time) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some(attempt) = self.attempts.get(at) {
            let (peer, running) = (attempt.peer, attempt.running);
            if attempt.is_due(now) {
                worked = true;
                let dialed = self.dial(attempt);
                let attempt = self.attempts.at(at);
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
            let attempt = self.attempts.at(at);
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
    pub(super) fn answered(&mut self, ready: Ready, now: Time) {
        let Some(at) = self.attempts.position(ready) else { return };
        let attempt = self.attempts.at(at);
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
        let attempt = self.attempts.at(at);
        if greeting.address != attempt.address {
            return Err(format!("{} answered for {}", greeting.address, attempt.address));
        }
        let attempt = self.attempts.take(at);
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
