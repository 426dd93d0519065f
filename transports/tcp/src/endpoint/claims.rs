//! A client says at which address it listens. That is a *claim*: only the endpoint at that address
//! can tell whether it is true. So it is a name for that one connection, and not believed where it
//! would matter:
//!
//! * This side means the address (`resolve`, or `import` of a key of its owner). Nothing then goes
//!   out on the connection until the claim is verified, and it is lost if the claim is false.
//! * The address is that of a peer that is connected, was, or is being dialled. The client waits
//!   for its verdict until the claim is verified, and is turned away if the claim is false.
//!
//! A claim is *verified* by dialling back: the endpoint at the claimed address is asked, over a
//! handshake like any other, whether it made the connection of that
//! [`Name`](crate::handshake::Name), and which incarnation it is. An endpoint confirms only
//! connections that it made itself. So it does not help to know another's address and incarnation,
//! nor to know the secret. And a process that was killed and starts again at its address takes the
//! place of its predecessor at once, also where the predecessor's connection is not closed yet.
//!
//! That does not tell, without a secret, a process of this machine that takes over the port of a
//! peer that has ended, and claims to be that incarnation of it: incarnations are no secrets. So
//! there a peer that was connected before has to prove that, see [`crate::known_peers`]. With a
//! secret it has to know the secret, at both ends.
//!
//! What a peer lends over a connection is reached over that connection, whatever its name is
//! (`import_from`): so a client that cannot be connected to, as behind a firewall, is served all
//! the same.
//!
//! Each claim costs one attempt to connect, of which so many are made at a time as are allowed.
//! Without a secret only addresses of the loopback interface are dialled.

use super::TcpEndpoint;
use crate::{
    closing::Closing,
    dial::{Dial, Dialled},
    handshake::{Identity, Name, Request, Verdict},
    peers::{Connectivity, Standing},
    poller,
    unauthenticated::Unauthenticated,
};
use petasos_fabric::{Address, LostReason, Peer, Time};
use std::time::Duration;

/// Clients that wait for the verification of their claims at a time, each with another address.
/// Those beyond that try again.
const AT_ONCE: usize = 32;
/// How long to try to verify the claim of a peer that was meant before, if nothing listens at the
/// address.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// A claim that is being verified.
#[derive(Debug)]
pub(super) struct Check {
    address: Address,
    dial: Box<Dial>,
    /// How long the address may not answer.
    patience: Duration,
    about: About,
}

#[derive(Debug)]
enum About {
    /// A client that waits for its verdict.
    Client(Box<Unauthenticated>, Identity),
    /// A peer that is connected.
    Peer(Peer),
}

impl TcpEndpoint {
    /// Whether a client may have this address.
    pub(super) fn could_have(&self, address: &Address) -> bool {
        let place = crate::address::numeric(address);
        *address != self.identity.address
            && place.is_some_and(|place| self.config.secret.is_some() || place.ip().is_loopback())
    }

    /// Lets a client wait until its claim is verified.
    pub(super) fn doubt(&mut self, mut client: Unauthenticated, identity: Identity) {
        let waiting = |check: &&Check| matches!(check.about, About::Client(..));
        let mut waiting = self.checks.iter().filter(waiting).map(|check| &check.address);
        let many = waiting.clone().count() >= AT_ONCE;
        if many || waiting.any(|address| *address == identity.address) {
            client.answer(Verdict::Claimed, None, &self.identity);
            return;
        }
        // It sends nothing until it has the verdict.
        self.poller.remove(&client.socket);
        let name = client.session().name();
        let patience = client.deadline.since(self.now);
        let dial = Dial::back(identity.address.clone(), name, true, patience, self.now);
        let about = About::Client(Box::new(client), identity.clone());
        self.check(identity.address, dial, patience, about);
    }

    /// This side means the address of this peer: from now on nothing is sent there before it is
    /// verified.
    pub(super) fn insist(&mut self, peer: Peer, patience: Duration) {
        let Some(address) = self.engine.peer_info(peer).map(|info| info.address) else { return };
        let Some(entry) = self.entry(peer) else { return };
        let (Standing::Claimed, Some(session)) = (entry.standing, entry.session) else { return };
        let Connectivity::Open(connection) = &mut entry.connectivity else { return };
        entry.meant = true;
        // While it is being closed nothing goes out either; it is verified when that is over.
        if connection.closing == Closing::No {
            connection.closing = Closing::Doubted;
            let dial = Dial::back(address.clone(), session.name(), false, patience, self.now);
            self.check(address, dial, patience, About::Peer(peer));
        }
    }

    fn check(&mut self, address: Address, dial: Dial, patience: Duration, about: About) {
        self.counters.dialled_back += 1;
        self.checks.push(Check { address, dial: Box::new(dial), patience, about });
    }

    /// Moves the verifications on.
    pub(super) fn progress_checks(&mut self) {
        for mut check in std::mem::take(&mut self.checks) {
            match self.ask(&mut check) {
                None => self.checks.push(check),
                Some(theirs) => self.conclude(check, theirs.as_ref()),
            }
        }
    }

    /// The endpoint that vouched for it, if one did; `None` while nothing is known.
    fn ask(&mut self, check: &mut Check) -> Option<Option<Identity>> {
        let now = self.now;
        let dial = &mut check.dial;
        match dial.step(now, &self.local()) {
            Dialled::Pending => {}
            Dialled::Opened => {
                if let Some(socket) = dial.socket() {
                    let _ = self.poller.add(socket, poller::Source::Check, true);
                }
            }
            Dialled::Connected => {
                if let Some(socket) = dial.socket() {
                    self.poller.set(socket, poller::Source::Check, true, false);
                }
                // The process at the address may compute, or be stopped: it has its time to answer,
                // as a connected peer has. (A client that waits for its verdict has a deadline.)
                if let About::Peer(_) = check.about {
                    let attempt = self.config.handshake + crate::dial::LONGEST_PAUSE;
                    dial.patience.renew(check.patience + 2 * attempt);
                }
            }
            Dialled::Vouched(true, identity) => return Some(Some(identity)),
            Dialled::Vouched(false, _)
            | Dialled::Failed
            | Dialled::Hopeless(_)
            | Dialled::Up(..)
            | Dialled::Claimed(..)
            | Dialled::Resumed(..) => return Some(None),
        }
        check.dial.patience.is_over(now).then_some(None)
    }

    fn conclude(&mut self, check: Check, theirs: Option<&Identity>) {
        match check.about {
            About::Client(mut client, identity) => {
                let same = theirs.is_some_and(|theirs| theirs.incarnation == identity.incarnation);
                if !same || client.has_left() {
                    self.counters.refused += 1;
                    tracing::debug!(claimed = %identity.address, "a client is refused: no endpoint vouches for it");
                    client.answer(Verdict::Claimed, None, &self.identity);
                } else if self.goes_first(&identity) {
                    client.answer(Verdict::Crossed, None, &self.identity);
                } else {
                    let known = self.make_way(&identity);
                    self.admit(*client, &identity, known, Standing::Vouched);
                }
            }
            About::Peer(peer) => {
                let known = self.engine.peer_info(peer).and_then(|info| info.incarnation);
                let same = theirs.is_some_and(|theirs| Some(theirs.incarnation) == known);
                if !same {
                    self.counters.refused += 1;
                    let why =
                        format!("no endpoint at {} vouches for its connection", check.address);
                    return self.lose(peer, LostReason::Refused(why));
                }
                let Some(entry) = self.entry(peer) else { return };
                entry.standing = Standing::Vouched;
                if let Connectivity::Open(connection) = &mut entry.connectivity
                    && connection.closing == Closing::Doubted
                {
                    connection.closing = Closing::No;
                }
                self.peers.mark_dirty(peer);
            }
        }
    }

    /// Whether our own connection to a client's endpoint is under way, and the one to use: of two,
    /// that of the larger incarnation is.
    pub(super) fn goes_first(&self, identity: &Identity) -> bool {
        let known = self.engine.find_peer(&identity.address);
        let entry = known.and_then(|peer| self.peers.get(peer));
        let crossed = entry.is_some_and(|entry| {
            entry.session.is_none()
                && matches!(&entry.connectivity, Connectivity::Dialing(dial) if dial.socket().is_some())
        });
        crossed && self.identity.incarnation > identity.incarnation
    }

    /// A client's claim is true: what else was known by its address ends, unless it waits for this
    /// client.
    fn make_way(&mut self, identity: &Identity) -> Option<Peer> {
        let peer = self.engine.find_peer(&identity.address)?;
        let before = self.engine.peer_info(peer).and_then(|info| info.incarnation);
        let entry = self.entry(peer)?;
        match (&entry.connectivity, entry.session) {
            // The same incarnation, under another name of ours: a connection of its own.
            (Connectivity::Open(_), _) if before == Some(identity.incarnation) => None,
            (Connectivity::Open(_), _) => {
                self.lose(peer, LostReason::Restarted);
                None
            }
            // It knows nothing any more of what we had going on.
            (Connectivity::Suspended | Connectivity::Dialing(_), Some(_)) => {
                self.lose(peer, LostReason::Closed);
                None
            }
            (Connectivity::Dialing(_), None) => Some(peer),
            _ => None,
        }
    }

    /// Whether a connection of this name is one that we made, or are making.
    fn made(&self, name: Name) -> bool {
        self.peers.iter().any(|entry| match &entry.connectivity {
            Connectivity::Dialing(dial) => dial.name() == Some(name),
            _ => entry.made && entry.session.is_some_and(|session| session.name() == name),
        })
    }

    /// Answers a client that asks about a connection of ours; gives all others back.
    pub(super) fn vouch(
        &self,
        mut client: Unauthenticated,
        request: Request,
    ) -> Option<Unauthenticated> {
        let Request::Vouch(name) = request else { return Some(client) };
        let verdict = if self.made(name) { Verdict::Vouched } else { Verdict::Denied };
        client.answer(verdict, None, &self.identity);
        None
    }

    /// When verifications must be moved on, if nothing happens.
    pub(super) fn claims_until(&self, now: Time) -> Time {
        self.checks.iter().map(|check| check.dial.next(now)).min().unwrap_or(Time::NEVER)
    }
}
