//! Connections that this endpoint makes.

use super::{
    TcpEndpoint,
    socket::{there, tune},
};
use crate::{
    address::{SCHEME, options, split},
    connection::Connection,
    dial::{Dial, Dialled, Local},
    handshake::{Identity, Session},
    peers::{Connectivity, PeerEntry, Standing},
    poller::Source,
};
use petasos_fabric::{Address, LostReason, Peer, ResolveError};
use std::time::Duration;

impl TcpEndpoint {
    /// The peer at an address, whether or not it is `running` already.
    pub(super) fn connect(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        if address.scheme() != SCHEME {
            let (address, scheme) = (address.clone(), SCHEME);
            return Err(ResolveError::WrongScheme { address, scheme });
        }
        if split(address).is_none() {
            let reason = "write it as tcp://HOST:PORT, or tcp://HOST:PORT?encrypt".to_owned();
            return Err(ResolveError::Malformed { address: address.clone(), reason });
        }
        if options(address).1 && self.config.secret.is_none() {
            let reason = "encryption needs a shared secret".to_owned();
            return Err(ResolveError::Malformed { address: address.clone(), reason });
        }
        let now = self.now;
        if let Some(peer) = self.engine.find_peer(address) {
            if let Some(entry) = self.entry(peer) {
                entry.asked = true;
                if let Connectivity::Dialing(dial) = &mut entry.connectivity {
                    dial.patience.renew(patience);
                    dial.running &= running;
                }
            }
            self.insist(peer, patience);
            return Ok(peer);
        }
        let peer = self.add(address, true)?;
        if !self.engine.is_self(peer) {
            let mut dial = Box::new(Dial::new(address.clone(), None, patience, now));
            dial.running = running;
            if let Some(entry) = self.entry(peer) {
                entry.connectivity = Connectivity::Dialing(dial);
            }
            self.dialing.push(peer);
        }
        Ok(peer)
    }

    /// Moves a dial on. False when it is over.
    pub(super) fn dial(&mut self, peer: Peer) -> bool {
        let now = self.now;
        let Some(PeerEntry { connectivity: Connectivity::Dialing(dial), .. }) =
            self.peers.get_mut(peer)
        else {
            return false;
        };
        let us = Local {
            secret: self.config.secret.as_ref(),
            encrypt: self.config.encrypt,
            identity: &self.identity,
            known_peers: &self.known_peers,
            handshake: self.config.handshake,
        };
        let name = Source::Peer(peer.index);
        match dial.step(now, &us) {
            Dialled::Pending => {}
            Dialled::Opened => {
                if let Some(socket) = dial.socket() {
                    let _ = tune(socket, self.config.silence);
                    let _ = self.poller.add(socket, name, true);
                    if self.config.secret.is_some() {
                        // While the connection is made, and the server says its word.
                        petasos_noise::prepare();
                    }
                }
            }
            Dialled::Connected => {
                if let Some(socket) = dial.socket() {
                    self.poller.set(socket, name, true, false);
                }
            }
            Dialled::Up(socket, channel, identity, session, known) => {
                let there = there(&socket);
                if self.config.secret.is_none()
                    && !self.known_peers.believes(&identity, known, &socket)
                {
                    // It may not have been asked as the one that it is.
                    if self.known_peers.point(there, &identity) {
                        dial.again("it did not prove to be the one before".to_owned(), now);
                        return true;
                    }
                    self.counters.refused += 1;
                    let why = "another process has the address by now, and says that it is the one before";
                    self.lose(peer, LostReason::Refused(why.to_owned()));
                    return false;
                }
                if self.config.secret.is_none() {
                    // It has made the key.
                    self.known_peers.met(&identity, session, true, there);
                }
                self.begin(peer, Connection::new(socket, channel), &identity, session);
                return false;
            }
            Dialled::Resumed(socket, channel, identity) => {
                if let Some(entry) = self.entry(peer) {
                    entry.standing = Standing::Dialled;
                }
                self.resume_session(peer, Connection::new(socket, channel), &identity);
                return false;
            }
            // It may know us as another one than we have said that we were.
            Dialled::Claimed(there, identity) => {
                self.known_peers.point(Some(there), &identity);
            }
            // Not asked for.
            Dialled::Vouched(..) => {}
            Dialled::Failed => {
                let reason = LostReason::Unreachable(Duration::ZERO, dial.why.clone());
                self.lose(peer, reason);
                return false;
            }
            Dialled::Hopeless(error) => {
                self.lose(peer, LostReason::Refused(error.to_string()));
                return false;
            }
        }
        if dial.patience.is_over(now) {
            let reason = LostReason::Unreachable(dial.patience.longest(), dial.why.clone());
            self.lose(peer, reason);
            return false;
        }
        true
    }

    /// A session begins on a connection that we made.
    fn begin(&mut self, peer: Peer, connection: Connection, identity: &Identity, session: Session) {
        let Some(entry) = self.entry(peer) else { return };
        let standing = Standing::Dialled;
        if entry.session.is_none() {
            return self.establish(peer, connection, identity, session, standing);
        }
        // We meant to go on with another one, of which it knows nothing any more.
        let Some(info) = self.engine.peer_info(peer) else { return };
        let same = info.incarnation == Some(identity.incarnation);
        self.lose(peer, if same { LostReason::Closed } else { LostReason::Restarted });
        if let Ok(peer) = self.add(&info.address, false) {
            self.poller.set(&connection.socket, Source::Peer(peer.index), true, false);
            self.establish(peer, connection, identity, session, standing);
        }
    }
}
