//! Connections whose peers have not authenticated: few of them, for a short time, and little of
//! what they send is parsed.

use crate::{
    Config,
    handshake::{self, HELLO_LEN, Hello, Identity, Session, VERDICT_LEN, Verdict},
    known_peers::KnownPeers,
};
use petasos_fabric::Time;
use petasos_noise::{Channel, ResponderAddress};
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, getpeername, getsockname, recv, send},
};
use std::{
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
};

/// A connection's end here, and the other one.
pub(crate) fn ends(socket: &OwnedFd) -> Option<(SocketAddr, SocketAddr)> {
    let (own, other) = (getsockname(socket).ok()?, getpeername(socket).ok()??);
    Some((SocketAddr::try_from(own).ok()?, SocketAddr::try_from(other).ok()?))
}

/// A connection that was made to us, during its handshake.
#[derive(Debug)]
pub(crate) struct Unauthenticated {
    pub(crate) socket: OwnedFd,
    pub(crate) deadline: Time,
    server: handshake::Server,
    hello: [u8; HELLO_LEN],
    got: usize,
}

/// What came of reading from such a client.
pub(crate) enum Heard {
    /// Not all of its greeting.
    Part,
    /// It knows the secret, dialled us, and says its identity.
    Hello(Hello),
    /// It does not know the secret, or dialled another endpoint.
    Refused(Verdict),
    /// It closed the connection.
    Closed,
}

impl Unauthenticated {
    /// Begins the handshake; `None` if that fails already.
    pub(crate) fn greet(
        socket: OwnedFd,
        config: &Config,
        random: [[u8; 32]; 2],
        deadline: Time,
    ) -> Option<Unauthenticated> {
        let [nonce, key] = random;
        let (server, challenge) =
            handshake::Server::begin(config.secret.as_ref(), config.encrypt, nonce, key);
        if !send_whole(&socket, &challenge) {
            return None;
        }
        Some(Unauthenticated { socket, deadline, server, hello: [0; HELLO_LEN], got: 0 })
    }

    pub(crate) fn read(&mut self, config: &Config) -> Heard {
        match receive_part(&self.socket, &mut self.hello, &mut self.got) {
            Part::Whole if self.has_left() => Heard::Closed,
            Part::Whole => match self.server.hello(config.secret.as_ref(), &self.hello) {
                Ok(hello) if self.is_at(hello.dialled, &config.reached_at) => Heard::Hello(hello),
                Ok(_) => Heard::Refused(Verdict::Elsewhere),
                Err(_) => Heard::Refused(Verdict::Refused),
            },
            Part::More => Heard::Part,
            Part::Gone => Heard::Closed,
        }
    }

    /// Whether this endpoint was dialled: here, or at one of the `others`, which lead here through
    /// some translation. What that makes of a connection within a machine is not known, except on
    /// the loopback interface.
    fn is_at(&self, dialled: ResponderAddress, others: &[SocketAddr]) -> bool {
        ends(&self.socket)
            .is_some_and(|(own, from)| ResponderAddress::of_connection(own, from) == dialled)
            || others.iter().any(|other| match other.ip().to_canonical().is_loopback() {
                true => ResponderAddress::of(*other) == dialled,
                false => dialled.is_of(*other),
            })
    }

    /// Whether its end is closed: an attempt that was given up, as for another connection of the
    /// same two peers. It may have waited for long, and does not count against what they agreed on
    /// meanwhile.
    pub(crate) fn has_left(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match recv(&self.socket, &mut [0; 1], flags) {
            Ok((count, _)) => count == 0,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }

    /// The host from which it connected.
    pub(crate) fn host(&self) -> Option<IpAddr> {
        let name = getpeername(&self.socket).ok().flatten()?;
        SocketAddr::try_from(name).ok().map(|socket| socket.ip())
    }

    /// Whether it may be the peer that it claims to be, see [`KnownPeers`].
    pub(crate) fn is_believed(&self, identity: &Identity, known_peers: &mut KnownPeers) -> bool {
        let proved = self.proved(identity, known_peers).is_some();
        known_peers.believes(identity, proved, &self.socket)
    }

    /// The session by which it has proved that it was here before.
    pub(crate) fn proved(&self, identity: &Identity, known_peers: &KnownPeers) -> Option<Session> {
        known_peers.proved(identity, |session| self.resumes(session))
    }

    /// The session that begins with this handshake.
    pub(crate) fn session(&self) -> Session {
        self.server.session()
    }

    /// Whether it has proved that it knows this session.
    pub(crate) fn resumes(&self, session: &Session) -> bool {
        self.server.resumes(session)
    }

    /// Ends the handshake. False if the client has closed the connection.
    pub(crate) fn answer(
        &mut self,
        verdict: Verdict,
        resumed: Option<&Session>,
        own: &Identity,
    ) -> bool {
        let frame: [u8; VERDICT_LEN] = self.server.verdict(verdict, resumed, own);
        send_whole(&self.socket, &frame)
    }

    /// After that: packets flow, encrypted if either side wants that.
    pub(crate) fn into_open(self) -> (OwnedFd, Option<Channel>) {
        (self.socket, self.server.into_channel())
    }
}

/// Sends a frame on a fresh connection, which has room for it.
pub(crate) fn send_whole(socket: &OwnedFd, frame: &[u8]) -> bool {
    send(socket, frame, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) == Ok(frame.len())
}

pub(crate) enum Part {
    Whole,
    More,
    Gone,
}

/// Receives the rest of a frame of fixed length, as far as it is there, and nothing beyond.
pub(crate) fn receive_part(socket: &OwnedFd, frame: &mut [u8], got: &mut usize) -> Part {
    while *got < frame.len() {
        match recv(socket, &mut frame[*got..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => return Part::Gone,
            Ok((count, _)) => *got += count,
            Err(Errno::AGAIN) => return Part::More,
            Err(Errno::INTR) => {}
            Err(_) => return Part::Gone,
        }
    }
    Part::Whole
}
