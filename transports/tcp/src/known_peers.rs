//! Peers of before, and how they are known when they come again.
//!
//! An address and an incarnation are no secrets: without a shared secret another process of this machine can take the
//! port of a peer that has ended, and say that it is that peer. What it cannot know is the key of a session that the
//! peer had ([`Session`]), which only the two were told. So an endpoint without a secret remembers, of each peer with which
//! it has had a connection, the keys of the last few sessions, and takes no process for that life of the address that
//! does not prove one of them, whether it comes or is dialled. Besides, the user whose socket it is has to be the same, as
//! far as the system says ([`Owners`]).
//!
//! *Both know the key* before either asks for it. A client has it from the server's verdict. A server cannot tell whether
//! that arrived before something comes from the client; a peer from which nothing has come is therefore not asked for a proof.
//! That a peer does not lose what it will be asked for, a few sessions are kept, and of those that were not heard of the
//! oldest goes first.
//!
//! *Bounds.* So many known_peers are known ([`MOST`]); the oldest one of the user who has the most is forgotten for the next, so
//! that a user who makes up many does not drive out those of others. A peer that has dialled more than that many since
//! is refused by those which still know it, for as long as it known_peers.
//!
//! What is not found out is a process that takes the place of a peer with which this endpoint never had a connection. An
//! endpoint with a secret keeps nothing of this: who takes the place of a peer there has to know the secret.

use crate::handshake::{Identity, Session};
use petasos_fabric::{Address, Incarnation, Owners};
use rustix::net::{getpeername, getsockname};
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    os::fd::OwnedFd,
};

/// KnownPeers that are known, at most.
const MOST: usize = 4096;
/// Sessions that are known of each.
const SESSIONS: usize = 4;

type Key = (Address, Incarnation);

/// What is known of peers of before.
#[derive(Debug, Default)]
pub(crate) struct KnownPeers {
    known: HashMap<Key, KnownPeer>,
    /// The last life that was met at a place which is dialled.
    places: HashMap<SocketAddr, Key>,
    /// Of each user, the oldest first.
    order: HashMap<Option<u32>, VecDeque<Key>>,
}

/// One incarnation of a peer.
#[derive(Debug)]
struct KnownPeer {
    /// The oldest first; whether the other side has shown that it has the key.
    sessions: Vec<(Session, bool)>,
    owner: Option<u32>,
    place: Option<SocketAddr>,
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
    /// A session of the peer that was last met at this place, to be named there.
    pub(crate) fn at(&self, place: SocketAddr) -> Option<Session> {
        let life = self.known.get(self.places.get(&place)?)?;
        let shown = life.sessions.iter().rev().find(|(_, shown)| *shown);
        shown.map(|(session, _)| *session)
    }

    /// The session by which this peer has proved that it was here before.
    pub(crate) fn proved(
        &self,
        identity: &Identity,
        proves: impl Fn(&Session) -> bool,
    ) -> Option<Session> {
        let life = self.known.get(&key(identity))?;
        life.sessions.iter().map(|(session, _)| session).find(|session| proves(session)).copied()
    }

    /// Whether who is at the other end of this connection may be the one that it says it is: one that was never here, or
    /// that has proved to be the one that was.
    pub(crate) fn believes(&self, identity: &Identity, proved: bool, socket: &OwnedFd) -> bool {
        let Some(life) = self.known.get(&key(identity)).filter(|life| life.can_prove()) else {
            return true;
        };
        let owner = life.owner;
        proved && (owner.is_none() || Self::owner(socket).is_none_or(|now| Some(now) == owner))
    }

    /// This one has answered at a place, which may have been taken for another one: gives whether it is known, and was.
    pub(crate) fn point(&mut self, place: Option<SocketAddr>, identity: &Identity) -> bool {
        let key = key(identity);
        let (Some(place), Some(life)) = (place, self.known.get_mut(&key)) else { return false };
        life.place = Some(place);
        self.places.insert(place, key.clone()) != Some(key)
    }

    /// A session has begun with this peer, which is reached at that place; `shown`: it was dialled there, and has made the
    /// key. Otherwise it has come, and says so.
    pub(crate) fn met(
        &mut self,
        identity: &Identity,
        session: Session,
        shown: bool,
        place: Option<SocketAddr>,
    ) {
        let key = key(identity);
        if !self.known.contains_key(&key) {
            if self.known.len() >= MOST {
                self.forget_one();
            }
            let life = KnownPeer { sessions: Vec::new(), owner: None, place: None };
            self.known.insert(key.clone(), life);
            self.order.entry(None).or_default().push_back(key.clone());
        }
        let place = place.filter(|place| shown || !self.places.contains_key(place));
        if let Some(life) = self.known.get_mut(&key) {
            life.add(session, shown);
            life.place = place.or(life.place);
        }
        if let Some(place) = place {
            self.places.insert(place, key);
        }
    }

    /// The peer has the key of this session: it has proved it, or said something after the handshake.
    pub(crate) fn shows(&mut self, identity: &Identity, session: &Session) {
        if let Some(life) = self.known.get_mut(&key(identity))
            && let Some(known) = life.sessions.iter_mut().find(|(known, _)| known == session)
        {
            known.1 = true;
        }
    }

    /// Notes whose this peer is, which is at the other end of a connection.
    pub(crate) fn note_owner(&mut self, identity: &Identity, socket: &OwnedFd) {
        let key = key(identity);
        if self.known.get(&key).is_none_or(|life| life.owner.is_some()) {
            return;
        }
        let Some(owner) = Self::owner(socket) else { return };
        if let Some(order) = self.order.get_mut(&None)
            && let Some(at) = order.iter().rposition(|other| *other == key)
        {
            order.remove(at);
        }
        self.order.entry(Some(owner)).or_default().push_back(key.clone());
        if let Some(life) = self.known.get_mut(&key) {
            life.owner = Some(owner);
        }
    }

    /// The user of the socket at the other end of a connection over loopback; `None` if the system does not say.
    fn owner(socket: &OwnedFd) -> Option<u32> {
        let far = SocketAddr::try_from(getpeername(socket).ok()??).ok()?;
        let near = SocketAddr::try_from(getsockname(socket).ok()?).ok()?;
        // Not kept: a job may have many endpoints in a process, and a peer is new once.
        Owners::new().of(far, near).ok()
    }

    fn forget_one(&mut self) {
        let most = self.order.values_mut().max_by_key(|order| order.len());
        let Some(key) = most.and_then(VecDeque::pop_front) else { return };
        if let Some(place) = self.known.remove(&key).and_then(|life| life.place)
            && self.places.get(&place) == Some(&key)
        {
            self.places.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{Client, Goal, Server, Verdict};
    use petasos_noise::Spot;
    use std::net::{TcpListener, TcpStream};

    fn identity(number: u64) -> Identity {
        let address = Address::parse(&format!("tcp://127.0.0.1:{}", number % 60_000 + 1)).unwrap();
        Identity { address, incarnation: Incarnation::new(number + 1).unwrap() }
    }

    fn place(number: u64) -> SocketAddr {
        crate::address::numeric(&identity(number).address).unwrap()
    }

    fn session(number: u8) -> Session {
        let (mut server, challenge) = Server::begin(None, false, [number; 32], [number; 32]);
        let (own, spot) = (identity(1), Spot::of(place(1)));
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
        known_peers.met(&peer, session(1), false, Some(place(1)));
        assert!(known_peers.believes(&peer, false, &socket), "it may not have the key");
        assert!(known_peers.at(place(1)).is_none());
        known_peers.shows(&peer, &session(1));
        assert!(
            !known_peers.believes(&peer, false, &socket)
                && known_peers.believes(&peer, true, &socket)
        );
        let later = Identity { incarnation: Incarnation::new(9).unwrap(), ..peer.clone() };
        assert!(known_peers.believes(&later, false, &socket), "another life");
        assert!(known_peers.at(place(1)) == Some(session(1)) && known_peers.at(place(2)).is_none());
        assert!(known_peers.proved(&peer, |known| *known == session(1)).is_some());
        assert!(known_peers.proved(&later, |_| true).is_none());
        // Another user, who has the key.
        known_peers.note_owner(&peer, &socket);
        assert!(known_peers.believes(&peer, true, &socket));
        known_peers.known.get_mut(&key(&peer)).unwrap().owner = Some(u32::MAX - 1);
        assert!(!known_peers.believes(&peer, true, &socket));
    }

    /// A place is only where to begin to ask: who answers there says who it is.
    #[test]
    fn a_place_is_that_of_the_one_who_answers_there() {
        let (mut known_peers, peer) = (KnownPeers::default(), identity(1));
        let other = Identity { incarnation: Incarnation::new(9).unwrap(), ..peer.clone() };
        known_peers.met(&peer, session(1), true, Some(place(1)));
        known_peers.met(&other, session(2), false, Some(place(1)));
        known_peers.shows(&other, &session(2));
        assert!(known_peers.at(place(1)) == Some(session(1)), "who only says so changes nothing");
        assert!(!known_peers.point(Some(place(1)), &peer), "it was asked as that");
        assert!(
            known_peers.point(Some(place(1)), &other)
                && known_peers.at(place(1)) == Some(session(2))
        );
        assert!(!known_peers.point(Some(place(1)), &other) && !known_peers.point(None, &peer));
        assert!(!known_peers.point(Some(place(1)), &identity(2)), "nothing is known of it");
        assert!(known_peers.at(place(1)) == Some(session(2)));
    }

    #[test]
    fn attempts_that_were_not_heard_of_do_not_drive_out_what_is_known() {
        let (mut known_peers, peer) = (KnownPeers::default(), identity(1));
        known_peers.met(&peer, session(1), true, Some(place(1)));
        (2..200).for_each(|number| known_peers.met(&peer, session(number), false, Some(place(1))));
        assert!(known_peers.at(place(1)) == Some(session(1)));
        assert_eq!(known_peers.known[&key(&peer)].sessions.len(), SESSIONS);
        assert!(known_peers.proved(&peer, |known| *known == session(199)).is_some());
        // The last ones of those that were.
        (2..9).for_each(|number| known_peers.met(&peer, session(number), true, Some(place(1))));
        assert!(known_peers.at(place(1)) == Some(session(8)));
        assert!(known_peers.proved(&peer, |known| *known == session(1)).is_none());
    }

    #[test]
    fn a_user_who_makes_up_lives_drives_out_its_own() {
        let mut known_peers = KnownPeers::default();
        let other = |known_peers: &mut KnownPeers, number: u64, user: u32| {
            let peer = identity(number);
            known_peers.met(&peer, session(1), true, Some(place(number)));
            let key = known_peers.order.get_mut(&None).unwrap().pop_back().unwrap();
            known_peers.order.entry(Some(user)).or_default().push_back(key);
        };
        (0..10).for_each(|number| other(&mut known_peers, number, 1));
        (10..10 + 2 * MOST as u64).for_each(|number| other(&mut known_peers, number, 2));
        assert_eq!((known_peers.known.len(), known_peers.order[&Some(1)].len()), (MOST, 10));
        assert!((0..10).all(|number| known_peers.at(place(number)).is_some()));
        assert!(known_peers.at(place(10)).is_none() && known_peers.places.len() <= MOST);
    }
}
