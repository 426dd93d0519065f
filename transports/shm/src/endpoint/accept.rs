//! Connections that other endpoints make.

use super::join::Joined;
use crate::{
    Shm,
    arrivals::Arrival,
    control::{ControlMessage, Greeting},
    name::{Name, SCHEME},
    pair::{Pair, Sizes},
    socket::{self, Fds},
    table::PeerTable,
};
use petasos_fabric::{EventFd, LostReason, Peer, Time, acceptor::unauthenticated_limit};
use rustix::fd::{AsFd, OwnedFd};

/// This process, in the words of the one that connects.
const LISTENER: &str = "the listening process";
/// Connections accepted in one pass.
const AT_ONCE: usize = 16;

impl Shm {
    /// Accepts the connections that wait. True if there was one.
    pub(super) fn accept(&mut self, now: Time) -> bool {
        for accepted in 0..AT_ONCE {
            let Some(fd) = self.arrivals.accept(now, &self.poller) else { return accepted > 0 };
            let Ok(credentials) = socket::credentials(&fd) else { continue };
            if !self.admits(credentials.uid) {
                self.counters.refused += 1;
                let text = format!("user {} is not admitted here", credentials.uid);
                tracing::debug!(why = text, "a client is refused");
                let note = ControlMessage::Refused { again: false, text };
                let _ = socket::send(&fd, &note.encode(), &[]);
                continue;
            }
            if self.arrivals.make_room(unauthenticated_limit(self.config.max_handshakes)) {
                self.counters.failed_handshakes += 1;
            }
            let deadline = now.after(self.config.handshake);
            let arrival = Arrival { socket: fd, credentials, deadline };
            if let Some(handle) = self.arrivals.insert(arrival, &self.poller) {
                // Mostly the greeting is there already.
                self.greeted(handle.index, |current| current == handle.generation);
            }
        }
        true
    }

    /// Closes connections whose greeting is overdue.
    pub(super) fn cut_arrivals(&mut self, now: Time) {
        if !self.arrivals.is_empty() {
            self.counters.failed_handshakes += self.arrivals.cut_late(now);
        }
    }

    /// Something came on a connection whose greeting was still to come.
    pub(super) fn greeted(&mut self, index: u32, is_current: impl Fn(u32) -> bool) {
        let Some((arrival, received)) = self.arrivals.receive(index, is_current) else { return };
        let result = match received {
            Ok(received) => match ControlMessage::decode(&received.bytes) {
                Ok(ControlMessage::Hello(_)) if received.cut => {
                    Err((true, socket::out_of_descriptors(LISTENER)))
                }
                Ok(ControlMessage::Hello(greeting)) => self.admit(&arrival, greeting, received.fds),
                Ok(_) => Err((false, "a greeting was expected".to_owned())),
                Err(garbled) => Err((false, garbled.to_string())),
            },
            Err(error) => Err((false, error.to_string())),
        };
        match result {
            Ok((peer, greeting, joined)) => self.join(peer, greeting, arrival.socket, joined),
            Err((again, text)) => {
                self.counters.failed_handshakes += u64::from(!again);
                tracing::debug!(why = text, again, "a client is refused");
                let note = ControlMessage::Refused { again, text };
                let _ = socket::send(&arrival.socket, &note.encode(), &[]);
            }
        }
    }

    /// Checks a greeting, and answers it.
    fn admit(
        &mut self,
        arrival: &Arrival,
        greeting: Greeting,
        fds: Fds,
    ) -> Result<(Peer, Greeting, Joined), (bool, String)> {
        let no = |text: String| (false, text);
        let credentials = arrival.credentials;
        let name = match greeting.address.scheme() {
            SCHEME => Name::parse(greeting.address.rest()).map_err(no)?,
            _ => return Err(no("an address of another transport".to_owned())),
        };
        if !name.may_be_claimed_by(credentials.uid, self.uid) {
            let hint = "open with shm://UID@NAME to talk to other users";
            return Err(no(format!(
                "{} is not user {}'s to claim: {hint}",
                greeting.address, credentials.uid
            )));
        }
        if greeting.address == *self.engine.address() {
            return Err(no(format!("{} is the address of this endpoint", greeting.address)));
        }
        let (sizes, ours) = (greeting.sizes, self.config.sizes());
        if !sizes.are_possible() || sizes.max != ours.max {
            let Sizes { ring, long, max } = sizes;
            let text = format!("packets of {max} bytes in rings of {ring} and {long}");
            return Err(no(format!("{text}, here packets have up to {}", ours.max)));
        }
        if self.closing.is_full() {
            let text = "too many connections ended in the middle of a copy that is not over";
            return Err((true, text.to_owned()));
        }
        let fds: Result<[OwnedFd; 3], _> = fds.into_vec().try_into();
        let [table, pair, peer_doorbell] = fds.map_err(|_| no("descriptors missing".to_owned()))?;
        let table = PeerTable::adopt(&table).map_err(|unfit| no(unfit.to_string()))?;
        let pair = Pair::adopt(&pair, sizes).map_err(|unfit| no(unfit.to_string()))?;
        let (peer, uninvited) = self.assign_peer(&greeting)?;
        let doorbell = EventFd::new().map_err(|error| (true, socket::reason(error, LISTENER)))?;
        let fds = [self.exports.fd(), doorbell.as_fd()];
        let welcome = ControlMessage::Welcome(self.greeting()).encode();
        if let Err(error) = socket::send(&arrival.socket, &welcome, &fds) {
            if uninvited {
                self.engine.forget(peer);
            }
            return Err((true, error.to_string()));
        }
        Ok((
            peer,
            greeting,
            Joined { pair, table, doorbell, peer_doorbell, credentials, uninvited },
        ))
    }

    /// The handle of the peer that connects, and whether it is new.
    fn assign_peer(&mut self, greeting: &Greeting) -> Result<(Peer, bool), (bool, String)> {
        let Some(peer) = self.engine.find_peer(&greeting.address) else {
            let peer = self.engine.add_peer(&greeting.address);
            return peer.map(|peer| (peer, true)).map_err(|error| (false, error.to_string()));
        };
        if let Some(channel) = self.channel(peer.index) {
            if channel.is_over() {
                self.channels.hang_up(peer.index, LostReason::Closed);
            }
            return Err((true, "it is connected already".to_owned()));
        }
        let ours = self.engine.incarnation() > greeting.incarnation;
        if ours && self.attempts.awaits_answer(peer) {
            return Err((true, "both connect, and the other attempt goes first".to_owned()));
        }
        Ok((peer, false))
    }
}
