//! Those who connected and have not shown the secret: few, not for long, and hardly listened to.

use crate::{
    Config,
    handshake::{self, HELLO_LEN, Hello, Identity, Session, VERDICT_LEN, Verdict},
    lives::Lives,
};
use petasos_fabric::Time;
use petasos_noise::{Channel, Spot};
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

/// A connection that somebody made to us, on its way through the handshake.
#[derive(Debug)]
pub(crate) struct Stranger {
    pub(crate) socket: OwnedFd,
    pub(crate) deadline: Time,
    server: handshake::Server,
    hello: [u8; HELLO_LEN],
    got: usize,
}

/// What came of listening to a stranger.
pub(crate) enum Heard {
    /// Not all that it has to say.
    Part,
    /// It knows the secret, meant us, and says who it is.
    Hello(Hello),
    /// It does not know the secret, or dialled somebody else.
    Refused(Verdict),
    /// It went away.
    Gone,
}

impl Stranger {
    /// Begins the handshake; `None` if that fails already.
    pub(crate) fn greet(
        socket: OwnedFd,
        config: &Config,
        random: [[u8; 32]; 2],
        deadline: Time,
    ) -> Option<Stranger> {
        let [nonce, key] = random;
        let (server, challenge) =
            handshake::Server::begin(config.secret.as_ref(), config.encrypt, nonce, key);
        if !send_whole(&socket, &challenge) {
            return None;
        }
        Some(Stranger { socket, deadline, server, hello: [0; HELLO_LEN], got: 0 })
    }

    pub(crate) fn listen(&mut self, config: &Config) -> Heard {
        match receive_part(&self.socket, &mut self.hello, &mut self.got) {
            Part::Whole if self.has_left() => Heard::Gone,
            Part::Whole => match self.server.hello(config.secret.as_ref(), &self.hello) {
                Ok(hello) if self.is_at(hello.dialled, &config.reached_at) => Heard::Hello(hello),
                Ok(_) => Heard::Refused(Verdict::Elsewhere),
                Err(_) => Heard::Refused(Verdict::Refused),
            },
            Part::More => Heard::Part,
            Part::Gone => Heard::Gone,
        }
    }

    /// Whether it is we who were dialled: here, or at one of the `others`, which lead here by some way around. What
    /// that makes of a connection within a machine is not known, except on the loopback interface.
    fn is_at(&self, dialled: Spot, others: &[SocketAddr]) -> bool {
        ends(&self.socket).is_some_and(|(own, from)| Spot::of_connection(own, from) == dialled)
            || others.iter().any(|other| match other.ip().to_canonical().is_loopback() {
                true => Spot::of(*other) == dialled,
                false => dialled.is_of(*other),
            })
    }

    /// Whether its end is closed: an attempt that was given up, as for another connection of the
    /// same two. It may have been there for long, and what was agreed on meanwhile is not its business.
    pub(crate) fn has_left(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match recv(&self.socket, &mut [0; 1], flags) {
            Ok((count, _)) => count == 0,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }

    /// Where it comes from.
    pub(crate) fn host(&self) -> Option<IpAddr> {
        let name = getpeername(&self.socket).ok().flatten()?;
        SocketAddr::try_from(name).ok().map(|socket| socket.ip())
    }

    /// Whether it may be the one that it says it is, see [`Lives`].
    pub(crate) fn is_believed(&self, identity: &Identity, lives: &mut Lives) -> bool {
        let proved = self.proved(identity, lives).is_some();
        lives.believes(identity, proved, &self.socket)
    }

    /// The session by which it has proved that it was here before.
    pub(crate) fn proved(&self, identity: &Identity, lives: &Lives) -> Option<Session> {
        lives.proved(identity, |session| self.resumes(session))
    }

    /// The session that begins with this handshake.
    pub(crate) fn session(&self) -> Session {
        self.server.session()
    }

    /// Whether it has proved that it knows this session.
    pub(crate) fn resumes(&self, session: &Session) -> bool {
        self.server.resumes(session)
    }

    /// Ends the handshake. False if the stranger has gone.
    pub(crate) fn answer(
        &mut self,
        verdict: Verdict,
        resumed: Option<&Session>,
        own: &Identity,
    ) -> bool {
        let frame: [u8; VERDICT_LEN] = self.server.verdict(verdict, resumed, own);
        send_whole(&self.socket, &frame)
    }

    /// After that: packets flow, encrypted if the two want that.
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
