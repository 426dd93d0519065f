//! Who connects says at which address he listens. That is a *claim*: what another one at that address would make of it
//! only he can say who is there. So it is a name for that one connection, and not believed where it would matter:
//!
//! * Somebody here means the address (`resolve`, or `import` of a key of its owner). The connection then falls silent on
//!   this side until the claim is verified, and is lost if it is false.
//! * The address is a peer's already, who is connected, was, or is being dialled. The newcomer waits for the verdict
//!   until the claim is verified, and is turned away if it is false.
//!
//! *Verified* is a claim by dialling back: at the claimed address somebody is asked, over a handshake as any other,
//! whether he made the connection of that [`Name`](crate::handshake::Name), and which life he is. Whoever listens there
//! says that of connections that he made himself alone. So it does not help to know another's address and
//! incarnation, nor to know the secret; and a process that was killed and starts again at its address takes the place
//! of its predecessor at once, also where that one's connection lingers.
//!
//! What that does not tell, without a secret, is a process of this machine that takes over the port of a peer that has ended,
//! and says that it is that life of it: incarnations are no secrets. So there a peer that was here before has to prove that,
//! see [`crate::known_peers`]. With a secret it has to know that, at both ends.
//!
//! What a peer lends over a connection is reached over that connection, whatever its name is (`import_from`): so a
//! client that nobody can connect to, as behind a firewall, is served all the same.
//!
//! Each claim costs one attempt to connect, at most as many at a time as are allowed; without a secret nobody is
//! dialled but on the loopback interface.

use crate::{
    connection::Closing,
    dial::{Dial, Dialled},
    endpoint::TcpEndpoint,
    handshake::{Errand, Identity, Name, Verdict},
    peers::Connectivity,
    poller,
    unauthenticated::Unauthenticated,
};
use petasos_fabric::{Address, LostReason, Peer, Time};
use std::time::Duration;

/// Those who want to come in whose claims are looked into at a time, each with another address. Who comes beyond that tries again.
const AT_ONCE: usize = 32;
/// How long it is tried to verify the claim of a peer that was meant before, if there is nobody at the address.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of the address that a peer has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It came to us, and said so.
    #[default]
    Claimed,
    /// It came to us, and who is at the address says so.
    Vouched,
    /// We dialled it.
    Dialled,
}

/// A claim that is being looked into.
#[derive(Debug)]
pub(crate) struct Check {
    address: Address,
    pub(crate) dial: Box<Dial>,
    /// How long nobody may be there.
    patience: Duration,
    about: About,
}

#[derive(Debug)]
enum About {
    /// Somebody who wants to come in.
    Unauthenticated(Box<Unauthenticated>, Identity),
    /// Somebody who is in.
    Peer(Peer),
}

impl TcpEndpoint {
    /// Whether it is possible that somebody who came to us has this address.
    pub(crate) fn could_have(&self, address: &Address) -> bool {
        let place = crate::address::numeric(address);
        *address != self.identity.address
            && place.is_some_and(|place| self.config.secret.is_some() || place.ip().is_loopback())
    }

    /// Lets a stranger wait until somebody vouches for him.
    pub(crate) fn doubt(&mut self, mut stranger: Unauthenticated, identity: Identity) {
        let waiting = |check: &&Check| matches!(check.about, About::Unauthenticated(..));
        let mut waiting = self.checks.iter().filter(waiting).map(|check| &check.address);
        let many = waiting.clone().count() >= AT_ONCE;
        if many || waiting.any(|address| *address == identity.address) {
            stranger.answer(Verdict::Claimed, None, &self.identity);
            return;
        }
        // He says nothing until he has the verdict.
        self.poller.remove(&stranger.socket);
        let name = stranger.session().name();
        let patience = stranger.deadline.since(self.now);
        let dial = Dial::back(identity.address.clone(), name, true, patience, self.now);
        let about = About::Unauthenticated(Box::new(stranger), identity.clone());
        self.check(identity.address, dial, patience, about);
    }

    /// Somebody here means the address of this peer: from now on nothing goes there before it is verified.
    pub(crate) fn insist(&mut self, peer: Peer, patience: Duration) {
        let Some(address) = self.engine.peer_info(peer).map(|info| info.address) else { return };
        let Some(entry) = self.entry(peer) else { return };
        let (Standing::Claimed, Some(session)) = (entry.standing, entry.session) else { return };
        let Connectivity::Open(connection) = &mut entry.connectivity else { return };
        entry.meant = true;
        // While it is being closed nothing goes out either; it is looked into when that is over.
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

    /// Moves on what is being looked into.
    pub(crate) fn progress_checks(&mut self) {
        for mut check in std::mem::take(&mut self.checks) {
            match self.ask(&mut check) {
                None => self.checks.push(check),
                Some(theirs) => self.conclude(check, theirs.as_ref()),
            }
        }
    }

    /// Who vouched for it; `None` while nothing is known.
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
                // Somebody is there, and may compute, or be stopped: he has his time to answer, as a peer has that is
                // connected. (Somebody who wants to come in has a deadline.)
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
            About::Unauthenticated(mut stranger, identity) => {
                let same = theirs.is_some_and(|theirs| theirs.incarnation == identity.incarnation);
                if !same || stranger.has_left() {
                    self.counters.refused += 1;
                    tracing::debug!(claimed = %identity.address, "a client for which none vouches is refused");
                    stranger.answer(Verdict::Claimed, None, &self.identity);
                } else if self.goes_first(&identity) {
                    stranger.answer(Verdict::Crossed, None, &self.identity);
                } else {
                    let known = self.make_way(&identity);
                    self.admit(*stranger, &identity, known, Standing::Vouched);
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
                self.mark_dirty(peer);
            }
        }
    }

    /// Whether our own connection to somebody who came is under way, and the one to use: that of the larger
    /// incarnation is.
    pub(crate) fn goes_first(&self, identity: &Identity) -> bool {
        let known = self.engine.find_peer(&identity.address);
        let entry = known.and_then(|peer| self.peers.get(peer));
        let crossed = entry.is_some_and(|entry| {
            entry.session.is_none()
                && matches!(&entry.connectivity, Connectivity::Dialing(dial) if dial.socket().is_some())
        });
        crossed && self.identity.incarnation > identity.incarnation
    }

    /// Somebody is who he says that he is: what else was known by his address goes, unless it waits for him.
    fn make_way(&mut self, identity: &Identity) -> Option<Peer> {
        let peer = self.engine.find_peer(&identity.address)?;
        let before = self.engine.peer_info(peer).and_then(|info| info.incarnation);
        let entry = self.entry(peer)?;
        match (&entry.connectivity, entry.session) {
            // The same life, under another name of ours: a connection of its own.
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

    /// Answers who asks for a connection of ours; gives everybody else back.
    pub(crate) fn vouch(
        &self,
        mut stranger: Unauthenticated,
        errand: Errand,
    ) -> Option<Unauthenticated> {
        let Errand::Vouch(name) = errand else { return Some(stranger) };
        let verdict = if self.made(name) { Verdict::Vouched } else { Verdict::Denied };
        stranger.answer(verdict, None, &self.identity);
        None
    }

    /// When to look again after claims.
    pub(crate) fn claims_until(&self, now: Time) -> Time {
        self.checks.iter().map(|check| check.dial.next(now)).min().unwrap_or(Time::NEVER)
    }
}
