//! Who comes in: connections that others make, until one is a peer's.

use super::TcpEndpoint;
use crate::{
    address::numeric,
    claims::Standing,
    connection::Connection,
    dial::nonce,
    handshake::{self, Errand, Identity, Session, Verdict},
    poller::Name,
    shares::{Crowded, Share},
    strangers::{Heard, Stranger},
};
use petasos_fabric::{
    Accepted, Endpoint, Peer, Time,
    acceptor::{descriptor_limit, unauthenticated_limit},
};
use std::{net::Ipv4Addr, time::Duration};

impl TcpEndpoint {
    /// Takes the connections that wait at the listener.
    pub(super) fn accept(&mut self) {
        for _ in 0..16 {
            // A peer that has to hear why would have to be greeted first: the end says enough.
            let socket = match self.acceptor.accept(&self.listener, self.now, |_, _| {}) {
                Accepted::Connection(socket) => socket,
                Accepted::None => return,
                Accepted::Exhausted(_) => {
                    // Until then it would be ready all the time.
                    self.poller.set(&self.listener, Name::Listener, false, false);
                    // A descriptor for the next connection, whose peer may know the secret.
                    return self.drop_oldest_stranger();
                }
            };
            if self.strangers.len() >= unauthenticated_limit(self.config.strangers) {
                self.drop_oldest_stranger();
            }
            let deadline = self.now.after(self.config.handshake);
            let random = [nonce(), nonce()];
            let Some(stranger) = Stranger::greet(socket, &self.config, random, deadline) else {
                continue;
            };
            let slot = self.strangers.insert(stranger);
            let name = Name::Stranger(slot as u32);
            if self.poller.add(&self.strangers[slot].socket, name, false).is_err() {
                self.strangers.remove(slot);
            }
        }
    }

    fn drop_oldest_stranger(&mut self) {
        let oldest = self.strangers.iter().min_by_key(|(_, s)| s.deadline);
        if let Some(slot) = oldest.map(|(slot, _)| slot) {
            let stranger = self.strangers.remove(slot);
            self.counters.refused += 1;
            tracing::debug!(host = ?stranger.host(), "a connection that has said nothing makes way");
        }
    }

    /// Whether there is a listener that was left alone, for want of descriptors.
    pub(super) fn is_full(&self) -> bool {
        self.acceptor.resumes() != Time::NEVER
    }

    /// Listens to a stranger that has something to say.
    pub(super) fn hear(&mut self, slot: usize) {
        let Some(stranger) = self.strangers.get_mut(slot) else { return };
        match stranger.listen(&self.config) {
            Heard::Part => {}
            Heard::Gone => {
                self.strangers.remove(slot);
            }
            Heard::Refused(verdict) => {
                let mut stranger = self.strangers.remove(slot);
                stranger.answer(verdict, None, &self.identity);
                self.counters.refused += 1;
                tracing::debug!(host = ?stranger.host(), ?verdict, "a client is refused");
            }
            Heard::Hello(hello) => {
                let stranger = self.strangers.remove(slot);
                let Some(stranger) = self.vouch(stranger, hello.errand) else { return };
                match hello.errand {
                    Errand::Resume(name) => self.meet_by_session(stranger, name, hello.identity),
                    _ => self.meet(stranger, hello.identity),
                }
            }
        }
    }

    /// A peer means to go on with a session.
    fn meet_by_session(&mut self, mut stranger: Stranger, name: handshake::Name, who: Identity) {
        let named = |session: &Session| session.name() == name;
        if let Some(&peer) = self.parked.get(&name)
            && let Some(session) = self.link(peer).and_then(|link| link.session)
            && stranger.resumes(&session)
        {
            self.meet_again(peer, stranger, &session, &who);
        } else if self.links.iter().any(|link| link.session.as_ref().is_some_and(named)) {
            // An attempt of a moment ago: the session goes on over our connection by now. (Or
            // another process knows its name, and nothing else of it.)
            stranger.answer(Verdict::Crossed, None, &self.identity);
        } else {
            self.meet(stranger, who);
        }
    }

    /// A peer has shown the secret.
    fn meet(&mut self, mut stranger: Stranger, identity: Identity) {
        let known =
            self.config.secret.is_none() && !stranger.is_believed(&identity, &mut self.lives);
        if known || !self.could_have(&identity.address) {
            self.counters.refused += 1;
            tracing::debug!(host = ?stranger.host(), claimed = %identity.address, "a client is refused");
            stranger.answer(Verdict::Claimed, None, &self.identity);
        } else if self.goes_first(&identity) {
            // Both connect at a time.
            stranger.answer(Verdict::Crossed, None, &self.identity);
        } else if self.config.verify || self.engine.find_peer(&identity.address).is_some() {
            self.doubt(stranger, identity);
        } else {
            self.admit(stranger, &identity, None, Standing::Claimed);
        }
    }

    /// Admits a peer: the one that is waited for, or a new one.
    pub(crate) fn admit(
        &mut self,
        mut stranger: Stranger,
        identity: &Identity,
        known: Option<Peer>,
        standing: Standing,
    ) {
        let Some(share) = self.share_of(&stranger) else {
            stranger.answer(Verdict::Crowded, None, &self.identity);
            return;
        };
        let Some(peer) = known.or_else(|| self.add(&identity.address, false).ok()) else { return };
        let proved = stranger.proved(identity, &self.lives);
        if stranger.answer(Verdict::Welcome, proved.as_ref(), &self.identity) {
            let session = stranger.session();
            if self.config.secret.is_none() {
                if let Some(proved) = proved {
                    self.lives.shows(identity, &proved);
                }
                let place = numeric(&identity.address);
                self.lives.met(identity, session, false, place);
            }
            let (socket, channel) = stranger.into_open();
            self.poller.set(&socket, Name::Peer(peer.index), true, false);
            let mut connection = Connection::new(socket, channel);
            connection.share = Some(share);
            self.open_link(peer, connection, identity, session, standing);
        } else if self.link(peer).is_some_and(|link| !link.asked) {
            Endpoint::forget(self, peer);
        }
    }

    /// What a connection counts as that a peer has made; `None`: its host has as many as it may.
    fn share_of(&mut self, stranger: &Stranger) -> Option<Share> {
        // A peer that has gone is noticed when it is answered.
        let host = stranger.host().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        match self.shares.take(host, self.config.max_incoming) {
            Ok(share) => Some(share),
            Err(Crowded { has, most }) => {
                self.counters.refused += 1;
                self.counters.crowded += 1;
                if self.now >= self.tells {
                    self.tells = self.now.after(Duration::from_secs(10));
                    let limit = descriptor_limit();
                    tracing::warn!(
                        %host,
                        "a host may make no more connections: it has {has}, which is its share of {most} (of \
                         {limit} descriptors, RLIMIT_NOFILE)"
                    );
                }
                None
            }
        }
    }
}
