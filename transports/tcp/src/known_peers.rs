//! Peers that were connected before, and how they are recognized when they connect again.
//!
//! An address and an incarnation are no secrets: without a shared secret another process of this
//! machine can take the port of a peer that has ended, and claim to be that peer. What it cannot
//! know is the key of a session that the peer had ([`Session`]), which only the two were told. So
//! an endpoint without a secret remembers the keys of the last few sessions of each peer with which
//! it has had a connection. It takes a process for that incarnation only if it proves one of them,
//! whether it connects or is dialled. Besides, the user of the socket has to be the same, as far as
//! the system says ([`Owners`]).
//!
//! *Both know the key* before either asks for it. A client has it from the server's verdict. A
//! server cannot tell whether the verdict arrived before something comes from the client; a peer
//! from which nothing has come is therefore not asked for a proof. A few sessions are kept, so that
//! a peer does not lose the one that it will be asked for; of those from which nothing came, the
//! oldest is dropped first.
//!
//! *Bounds.* At most [`MOST`] incarnations are known; for the next one, the oldest of the user with
//! the most is forgotten, so that a user that makes up many does not drive out those of others. A
//! peer that has dialled more than that many since is refused by those which still know it, for as
//! long as it lives.
//!
//! A process that takes the place of a peer with which this endpoint never had a connection is not
//! detected. An endpoint with a secret keeps nothing of this: there a process that takes the place
//! of a peer has to know the secret.

use crate::handshake::{Identity, Session};
use petasos_fabric::{Address, Incarnation, Owners};
use rustix::net::{getpeername, getsockname};
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    os::fd::OwnedFd,
};

/// Incarnations that are known, at most.
const MOST: usize = 4096;
/// Sessions that are known of each.
const SESSIONS: usize = 4;

type Key = (Address, Incarnation);

/// What is known of peers that were connected before.
#[derive(Debug, Default)]
pub(crate) struct KnownPeers {
    known: HashMap<Key, KnownPeer>,
    /// The last incarnation that was met at an address that is dialled.
    addresses: HashMap<SocketAddr, Key>,
    /// Of each user, the oldest first.
    order: HashMap<Option<u32>, VecDeque<Key>>,
}

/// One incarnation of a peer.
#[derive(Debug)]
struct KnownPeer {
    /// The oldest first; whether the other side has shown that it has the key.
    sessions: Vec<(Session, bool)>,
    owner: Option<u32>,
    address: Option<SocketAddr>,
}

impl KnownPeer {
    /// Whether a process that is this one can prove it.
    fn can_prove(&self) -> bool {
        self.sessions.iter().any(|(_, shown)| *shown)
    }

    fn add(&mut self, session: Session, shown: bool) {
        if self.sessions.len() >= SESSIONS {
            let silent = self.sessions.iter().position(|(_, shown)| !shown);
            self.sessions.remove(silent.unwrap_or(0));
        }
        self.sessions.push((session, shown));
    }
}

fn key(identity: &Identity) -> Key {
    (identity.address.clone(), identity.incarnation)
}

impl KnownPeers {
    /// A session of the peer that was last met at this address, to be named there.
    pub(crate) fn at(&self, address: SocketAddr) -> Option<Session> {
        let entry = self.known.get(self.addresses.get(&address)?)?;
        let shown = entry.sessions.iter().rev().find(|(_, shown)| *shown);
        shown.map(|(session, _)| *session)
    }

    /// The session by which this peer has proved that it was here before.
    pub(crate) fn proved(
        &self,
        identity: &Identity,
        proves: impl Fn(&Session) -> bool,
    ) -> Option<Session> {
        let entry = self.known.get(&key(identity))?;
        entry.sessions.iter().map(|(session, _)| session).find(|session| proves(session)).copied()
    }

    /// Whether the process at the other end of this connection may be the peer that it claims to
    /// be: one that was never here, or that has proved to be the one that was.
    pub(crate) fn believes(&self, identity: &Identity, proved: bool, socket: &OwnedFd) -> bool {
        let Some(entry) = self.known.get(&key(identity)).filter(|entry| entry.can_prove()) else {
            return true;
        };
        let owner = entry.owner;
        proved && (owner.is_none() || Self::owner(socket).is_none_or(|now| Some(now) == owner))
    }

    /// This peer has answered at an address, and may have been taken for another one: whether it is
    /// known, and was.
    pub(crate) fn point(&mut self, address: Option<SocketAddr>, identity: &Identity) -> bool {
        let key = key(identity);
        let (Some(address), Some(entry)) = (address, self.known.get_mut(&key)) else {
            return false;
        };
        entry.address = Some(address);
        self.addresses.insert(address, key.clone()) != Some(key)
    }

    /// A session has begun with this peer, which is reached at that address; `shown`: it was
    /// dialled there, and has made the key. Otherwise it has connected, and claims the address.
    pub(crate) fn met(
        &mut self,
        identity: &Identity,
        session: Session,
        shown: bool,
        address: Option<SocketAddr>,
    ) {
        let key = key(identity);
        if !self.known.contains_key(&key) {
            if self.known.len() >= MOST {
                self.forget_one();
            }
            let entry = KnownPeer { sessions: Vec::new(), owner: None, address: None };
            self.known.insert(key.clone(), entry);
            self.order.entry(None).or_default().push_back(key.clone());
        }
        let address = address.filter(|address| shown || !self.addresses.contains_key(address));
        if let Some(entry) = self.known.get_mut(&key) {
            entry.add(session, shown);
            entry.address = address.or(entry.address);
        }
        if let Some(address) = address {
            self.addresses.insert(address, key);
        }
    }

    /// The peer has the key of this session: it has proved it, or sent something after the
    /// handshake.
    pub(crate) fn shows(&mut self, identity: &Identity, session: &Session) {
        if let Some(entry) = self.known.get_mut(&key(identity))
            && let Some(known) = entry.sessions.iter_mut().find(|(known, _)| known == session)
        {
            known.1 = true;
        }
    }

    /// Notes the user of this peer, which is at the other end of a connection.
    pub(crate) fn note_owner(&mut self, identity: &Identity, socket: &OwnedFd) {
        let key = key(identity);
        if self.known.get(&key).is_none_or(|entry| entry.owner.is_some()) {
            return;
        }
        let Some(owner) = Self::owner(socket) else { return };
        if let Some(order) = self.order.get_mut(&None)
            && let Some(at) = order.iter().rposition(|other| *other == key)
        {
            order.remove(at);
        }
        self.order.entry(Some(owner)).or_default().push_back(key.clone());
        if let Some(entry) = self.known.get_mut(&key) {
            entry.owner = Some(owner);
        }
    }

    /// The user of the socket at the other end of a connection over loopback; `None` if the system
    /// does not say.
    fn owner(socket: &OwnedFd) -> Option<u32> {
        let far = SocketAddr::try_from(getpeername(socket).ok()??).ok()?;
        let near = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
        // Not kept: a job may have many endpoints in a process, and a peer is new once.
        Owners::new().of(far, near).ok()
    }

    fn forget_one(&mut self) {
        let most = self.order.values_mut().max_by_key(|order| order.len());
        let Some(key) = most.and_then(VecDeque::pop_front) else { return };
        if let Some(address) = self.known.remove(&key).and_then(|entry| entry.address)
            && self.addresses.get(&address) == Some(&key)
        {
            self.addresses.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{Client, Goal, Server, Verdict};
    use petasos_noise::ResponderAddress;
    use std::net::{TcpListener, TcpStream};

    fn identity(number: u64) -> Identity {
        let address = Address::parse(&format!("tcp://127.0.0.1:{}", number % 60_000 + 1)).unwrap();
        Identity { address, incarnation: Incarnation::new(number + 1).unwrap() }
    }

    fn address(number: u64) -> SocketAddr {
        crate::address::numeric(&identity(number).address).unwrap()
    }

    fn session(number: u8) -> Session {
        let (mut server, challenge) = Server::begin(None, false, [number; 32], [number; 32]);
        let (own, spot) = (identity(1), ResponderAddress::of(address(1)));
        let begun = Client::begin(None, false, [2; 32], &own, Goal::Begin, spot, &challenge);
        let (mut client, hello) = begun.unwrap();
        server.hello(None, &hello).unwrap();
        client.verdict(&server.verdict(Verdict::Welcome, None, &own)).unwrap().1
    }

    fn connection() -> OwnedFd {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // It stays at the other end.
        std::mem::forget(client);
        listener.accept().unwrap().0.into()
    }

    #[test]
    fn a_life_is_believed_by_what_it_can_prove() {
        let (mut known_peers, socket, peer) = (KnownPeers::default(), connection(), identity(1));
        assert!(known_peers.believes(&peer, false, &socket), "it was never here");
        known_peers.met(&peer, session(1), false, Some(address(1)));
        assert!(known_peers.believes(&peer, false, &socket), "it may not have the key");
        assert!(known_peers.at(address(1)).is_none());
        known_peers.shows(&peer, &session(1));
        assert!(
            !known_peers.believes(&peer, false, &socket)
                && known_peers.believes(&peer, true, &socket)
        );
        let later = Identity { incarnation: Incarnation::new(9).unwrap(), ..peer.clone() };
        assert!(known_peers.believes(&later, false, &socket), "another entry");
        assert!(
            known_peers.at(address(1)) == Some(session(1)) && known_peers.at(address(2)).is_none()
        );
        assert!(known_peers.proved(&peer, |known| *known == session(1)).is_some());
        assert!(known_peers.proved(&later, |_| true).is_none());
        // Another user, which has the key.
        known_peers.note_owner(&peer, &socket);
        assert!(known_peers.believes(&peer, true, &socket));
        known_peers.known.get_mut(&key(&peer)).unwrap().owner = Some(u32::MAX - 1);
        assert!(!known_peers.believes(&peer, true, &socket));
    }

    /// An address is only where to begin: the process that answers there says which peer it is.
    #[test]
    fn an_address_is_that_of_the_peer_that_answers_there() {
        let (mut known_peers, peer) = (KnownPeers::default(), identity(1));
        let other = Identity { incarnation: Incarnation::new(9).unwrap(), ..peer.clone() };
        known_peers.met(&peer, session(1), true, Some(address(1)));
        known_peers.met(&other, session(2), false, Some(address(1)));
        known_peers.shows(&other, &session(2));
        assert!(known_peers.at(address(1)) == Some(session(1)), "a claim alone changes nothing");
        assert!(!known_peers.point(Some(address(1)), &peer), "it was asked as that");
        assert!(
            known_peers.point(Some(address(1)), &other)
                && known_peers.at(address(1)) == Some(session(2))
        );
        assert!(!known_peers.point(Some(address(1)), &other) && !known_peers.point(None, &peer));
        assert!(!known_peers.point(Some(address(1)), &identity(2)), "nothing is known of it");
        assert!(known_peers.at(address(1)) == Some(session(2)));
    }

    #[test]
    fn attempts_that_were_not_heard_of_do_not_drive_out_what_is_known() {
        let (mut known_peers, peer) = (KnownPeers::default(), identity(1));
        known_peers.met(&peer, session(1), true, Some(address(1)));
        (2..200)
            .for_each(|number| known_peers.met(&peer, session(number), false, Some(address(1))));
        assert!(known_peers.at(address(1)) == Some(session(1)));
        assert_eq!(known_peers.known[&key(&peer)].sessions.len(), SESSIONS);
        assert!(known_peers.proved(&peer, |known| *known == session(199)).is_some());
        // The last ones of those that were.
        (2..9).for_each(|number| known_peers.met(&peer, session(number), true, Some(address(1))));
        assert!(known_peers.at(address(1)) == Some(session(8)));
        assert!(known_peers.proved(&peer, |known| *known == session(1)).is_none());
    }

    #[test]
    fn a_user_that_makes_up_incarnations_drives_out_its_own() {
        let mut known_peers = KnownPeers::default();
        let other = |known_peers: &mut KnownPeers, number: u64, user: u32| {
            let peer = identity(number);
            known_peers.met(&peer, session(1), true, Some(address(number)));
            let key = known_peers.order.get_mut(&None).unwrap().pop_back().unwrap();
            known_peers.order.entry(Some(user)).or_default().push_back(key);
        };
        (0..10).for_each(|number| other(&mut known_peers, number, 1));
        (10..10 + 2 * MOST as u64).for_each(|number| other(&mut known_peers, number, 2));
        assert_eq!((known_peers.known.len(), known_peers.order[&Some(1)].len()), (MOST, 10));
        assert!((0..10).all(|number| known_peers.at(address(number)).is_some()));
        assert!(known_peers.at(address(10)).is_none() && known_peers.addresses.len() <= MOST);
    }
}
