//! Connections that others make, until one is a peer's.

use super::TcpEndpoint;
use crate::{
    Counters,
    address::numeric,
    connection::Connection,
    dial::nonce,
    handshake::{self, Identity, Request, Session, Verdict},
    peers::Standing,
    poller::{Poller, Source},
    quota::{HostQuotas, OverQuota, Permit},
    unauthenticated::{Heard, Unauthenticated},
};
use petasos_fabric::{
    Accepted, Acceptor, Endpoint, Peer, Time,
    acceptor::{descriptor_limit, unauthenticated_limit},
};
use slab::Slab;
use std::{net::Ipv4Addr, os::fd::OwnedFd, time::Duration};

/// Connections accepted in one pass.
const AT_ONCE: usize = 16;
/// How often it is logged at most that a host has too many connections.
const LOG: Duration = Duration::from_secs(10);

/// The listener, the connections whose peers have not authenticated, and how many connections each
/// host may have.
pub(super) struct Incoming {
    listener: OwnedFd,
    acceptor: Acceptor,
    unauthenticated: Slab<Unauthenticated>,
    quotas: HostQuotas,
    /// When it may be logged again that a host has too many connections.
    logs_at: Time,
}

impl Incoming {
    pub(super) fn new(listener: OwnedFd) -> Incoming {
        Incoming {
            listener,
            acceptor: Acceptor::new(),
            unauthenticated: Slab::new(),
            quotas: HostQuotas::new(),
            logs_at: Time::ZERO,
        }
    }

    /// Adds how many connections were accepted and turned away.
    pub(super) fn count(&self, counters: Counters) -> Counters {
        let (turned_away, accepts) = (self.acceptor.turned_away(), self.acceptor.tries());
        Counters { turned_away, accepts, ..counters }
    }

    /// Whether there is nothing that time brings on.
    pub(super) fn is_idle(&self) -> bool {
        self.unauthenticated.is_empty() && !self.is_paused()
    }

    /// Whether the listener is left alone for want of descriptors.
    fn is_paused(&self) -> bool {
        self.acceptor.resumes() != Time::NEVER
    }

    /// When a handshake is overdue, or the listener is polled again.
    pub(super) fn deadline(&self) -> Time {
        let deadlines = self.unauthenticated.iter().map(|(_, client)| client.deadline);
        deadlines.min().unwrap_or(Time::NEVER).min(self.acceptor.resumes())
    }

    /// Polls a listener that was left alone, and closes connections whose handshake is overdue: how
    /// many those are.
    pub(super) fn keep_time(&mut self, now: Time, poller: &Poller) -> usize {
        if self.is_paused() && !self.acceptor.is_paused(now) {
            self.acceptor.resume();
            poller.set(&self.listener, Source::Listener, true, false);
        }
        let before = self.unauthenticated.len();
        self.unauthenticated.retain(|_, client| client.deadline > now);
        before - self.unauthenticated.len()
    }

    /// Accepts a connection, if one waits.
    fn accept(&mut self, now: Time, poller: &Poller) -> Accepted {
        // A peer that has to hear why would have to be greeted first: the end says enough.
        let accepted = self.acceptor.accept(&self.listener, now, |_, _| {});
        if let Accepted::Exhausted(_) = accepted {
            // Until then it would be ready all the time.
            poller.set(&self.listener, Source::Listener, false, false);
        }
        accepted
    }

    /// Waits for the handshake of a connection.
    fn insert(&mut self, client: Unauthenticated, poller: &Poller) {
        let slot = self.unauthenticated.insert(client);
        let source = Source::Unauthenticated(slot as u32);
        if poller.add(&self.unauthenticated[slot].socket, source, false).is_err() {
            self.unauthenticated.remove(slot);
        }
    }

    /// Closes the connection that has waited for longest. False if there is none.
    fn drop_oldest(&mut self) -> bool {
        let oldest = self.unauthenticated.iter().min_by_key(|(_, client)| client.deadline);
        let Some(slot) = oldest.map(|(slot, _)| slot) else { return false };
        let client = self.unauthenticated.remove(slot);
        tracing::debug!(host = ?client.host(), "a connection that has said nothing makes way");
        true
    }
}

impl TcpEndpoint {
    /// Accepts the connections that wait at the listener.
    pub(super) fn accept(&mut self) {
        for _ in 0..AT_ONCE {
            let socket = match self.incoming.accept(self.now, &self.poller) {
                Accepted::Connection(socket) => socket,
                Accepted::None => return,
                // A descriptor for the next connection, whose peer may know the secret.
                Accepted::Exhausted(_) => return self.drop_oldest(),
            };
            let most = unauthenticated_limit(self.config.max_handshakes);
            if self.incoming.unauthenticated.len() >= most {
                self.drop_oldest();
            }
            let deadline = self.now.after(self.config.handshake);
            let random = [nonce(), nonce()];
            if let Some(client) = Unauthenticated::greet(socket, &self.config, random, deadline) {
                self.incoming.insert(client, &self.poller);
            }
        }
    }

    fn drop_oldest(&mut self) {
        self.counters.refused += u64::from(self.incoming.drop_oldest());
    }

    /// Reads from a client that has not authenticated.
    pub(super) fn read_handshake(&mut self, slot: usize) {
        let all = &mut self.incoming.unauthenticated;
        let Some(client) = all.get_mut(slot) else { return };
        match client.read(&self.config) {
            Heard::Part => {}
            Heard::Closed => {
                all.remove(slot);
            }
            Heard::Refused(verdict) => {
                let mut client = all.remove(slot);
                client.answer(verdict, None, &self.identity);
                self.counters.refused += 1;
                tracing::debug!(host = ?client.host(), ?verdict, "a client is refused");
            }
            Heard::Hello(hello) => {
                let client = all.remove(slot);
                let Some(client) = self.vouch(client, hello.request) else { return };
                match hello.request {
                    Request::Resume(name) => self.meet_by_session(client, name, hello.identity),
                    _ => self.meet(client, hello.identity),
                }
            }
        }
    }

    /// A peer means to go on with a session.
    fn meet_by_session(
        &mut self,
        mut client: Unauthenticated,
        name: handshake::Name,
        identity: Identity,
    ) {
        let named = |session: &Session| session.name() == name;
        if let Some(peer) = self.peers.suspended(&name)
            && let Some(session) = self.entry(peer).and_then(|entry| entry.session)
            && client.resumes(&session)
        {
            self.resume_from(peer, client, &session, &identity);
        } else if self.peers.iter().any(|entry| entry.session.as_ref().is_some_and(named)) {
            // An attempt of a moment ago: the session goes on over our connection by now. (Or
            // another process knows its name, and nothing else of it.)
            client.answer(Verdict::Crossed, None, &self.identity);
        } else {
            self.meet(client, identity);
        }
    }

    /// A peer has shown the secret.
    fn meet(&mut self, mut client: Unauthenticated, identity: Identity) {
        let known =
            self.config.secret.is_none() && !client.is_believed(&identity, &mut self.known_peers);
        if known || !self.could_have(&identity.address) {
            self.counters.refused += 1;
            tracing::debug!(host = ?client.host(), claimed = %identity.address, "a client is refused");
            client.answer(Verdict::Claimed, None, &self.identity);
        } else if self.goes_first(&identity) {
            // Both connect at a time.
            client.answer(Verdict::Crossed, None, &self.identity);
        } else if self.config.verify || self.engine.find_peer(&identity.address).is_some() {
            self.doubt(client, identity);
        } else {
            self.admit(client, &identity, None, Standing::Claimed);
        }
    }

    /// Admits a peer: the one that is waited for, or a new one.
    pub(super) fn admit(
        &mut self,
        mut client: Unauthenticated,
        identity: &Identity,
        known: Option<Peer>,
        standing: Standing,
    ) {
        let Some(permit) = self.permit_for(&client) else {
            client.answer(Verdict::Crowded, None, &self.identity);
            return;
        };
        let Some(peer) = known.or_else(|| self.add(&identity.address, false).ok()) else { return };
        let proved = client.proved(identity, &self.known_peers);
        if client.answer(Verdict::Welcome, proved.as_ref(), &self.identity) {
            let session = client.session();
            if self.config.secret.is_none() {
                if let Some(proved) = proved {
                    self.known_peers.shows(identity, &proved);
                }
                let place = numeric(&identity.address);
                self.known_peers.met(identity, session, false, place);
            }
            let (socket, channel) = client.into_open();
            self.poller.set(&socket, Source::Peer(peer.index), true, false);
            let mut connection = Connection::new(socket, channel);
            connection.permit = Some(permit);
            self.establish(peer, connection, identity, session, standing);
        } else if self.entry(peer).is_some_and(|entry| !entry.asked) {
            Endpoint::forget(self, peer);
        }
    }

    /// The permit for a connection that a peer has made; `None`: its host has as many as it may.
    fn permit_for(&mut self, client: &Unauthenticated) -> Option<Permit> {
        // A peer that has ended is noticed when it is answered.
        let host = client.host().unwrap_or(Ipv4Addr::UNSPECIFIED.into());
        match self.incoming.quotas.take(host, self.config.max_incoming) {
            Ok(permit) => Some(permit),
            Err(OverQuota { has, most }) => {
                self.counters.refused += 1;
                self.counters.crowded += 1;
                if self.now >= self.incoming.logs_at {
                    self.incoming.logs_at = self.now.after(LOG);
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
