//! Those who connected and have not shown the secret: few, not for long, and hardly listened to.

use crate::{
    Secret,
    handshake::{self, HELLO_LEN, Identity, Session, VERDICT_LEN, Verdict},
};
use petasos_fabric::Time;
use rustix::{
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use std::os::fd::OwnedFd;

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
    /// It knows the secret, and says who it is.
    Hello(Identity, Option<Session>),
    /// It does not.
    Refused,
    /// It went away.
    Gone,
}

impl Stranger {
    /// Begins the handshake; `None` if that fails already.
    pub(crate) fn greet(socket: OwnedFd, nonce: [u8; 32], deadline: Time) -> Option<Stranger> {
        let (server, challenge) = handshake::Server::begin(nonce);
        if !send_whole(&socket, &challenge) {
            return None;
        }
        Some(Stranger { socket, deadline, server, hello: [0; HELLO_LEN], got: 0 })
    }

    pub(crate) fn listen(&mut self, secret: Option<&Secret>) -> Heard {
        match receive_part(&self.socket, &mut self.hello, &mut self.got) {
            Part::Whole if self.has_left() => Heard::Gone,
            Part::Whole => match self.server.hello(secret, &self.hello) {
                Ok((identity, session)) => Heard::Hello(identity, session),
                Err(_) => Heard::Refused,
            },
            Part::More => Heard::Part,
            Part::Gone => Heard::Gone,
        }
    }

    /// Whether its end is closed: an attempt that was given up, as for another connection of the
    /// same two. It may have been there for long, and what was agreed on meanwhile is not its business.
    fn has_left(&self) -> bool {
        let flags = RecvFlags::DONTWAIT | RecvFlags::PEEK;
        match recv(&self.socket, &mut [0; 1], flags) {
            Ok((count, _)) => count == 0,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }

    /// The session that begins with this handshake.
    pub(crate) fn session(&self) -> Session {
        self.server.session()
    }

    /// Ends the handshake. False if the stranger has gone.
    pub(crate) fn answer(&self, secret: Option<&Secret>, verdict: Verdict, own: &Identity) -> bool {
        let frame: [u8; VERDICT_LEN] = self.server.verdict(secret, verdict, own);
        send_whole(&self.socket, &frame)
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
