//! The administrator's socket: one request, one answer, by sequenced packets.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::OwnedFd,
    io::Errno,
    net::{RecvFlags, SendFlags, recv, send},
};
use std::{io, path::Path};

/// The longest packet of an answer, in bytes.
const PART: usize = 32 << 10;
/// Answers longer than this are cut, and are no JSON then.
const MOST: usize = 64 << 20;
/// Seconds that a broker may take.
const PATIENCE: i64 = 10;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// The status, as JSON.
    Status,
    /// That the configuration is read again.
    Reload,
}

impl Ask {
    fn word(self) -> &'static [u8] {
        match self {
            Ask::Status => b"status",
            Ask::Reload => b"reload",
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Ask> {
        [Ask::Status, Ask::Reload].into_iter().find(|ask| ask.word() == bytes)
    }
}

/// Asks a broker; gives its answer, as JSON.
///
/// # Errors
/// If no broker listens there, or it does not answer.
pub fn ask(control: &Path, ask: Ask) -> io::Result<String> {
    let path = control.to_str().ok_or(Errno::INVAL)?;
    let fd = petasos_tenant::socket::dial(path)?;
    send(&fd, ask.word(), SendFlags::NOSIGNAL)?;
    let (mut answer, mut part) = (Vec::new(), vec![0; PART]);
    loop {
        let patience = Timespec { tv_sec: PATIENCE, tv_nsec: 0 };
        if poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&patience))? == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match recv(&fd, &mut part[..], RecvFlags::DONTWAIT) {
            Ok((0, _)) => break,
            Ok((len, _)) if answer.len() + len <= MOST => answer.extend_from_slice(&part[..len]),
            Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    String::from_utf8(answer).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// A client, and what is still to be sent to it.
pub(super) struct Client {
    pub(super) fd: OwnedFd,
    answer: Option<Vec<u8>>,
    sent: usize,
}

impl Client {
    pub(super) fn new(fd: OwnedFd) -> Client {
        Client { fd, answer: None, sent: 0 }
    }

    /// What it asks for; an error if it will not.
    pub(super) fn asks(&mut self) -> Result<Option<Ask>, ()> {
        if self.answer.is_some() {
            return Ok(None);
        }
        let mut bytes = [0; 16];
        match recv(&self.fd, &mut bytes[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => Ask::decode(&bytes[..len.min(16)]).map(Some).ok_or(()),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(_) => Err(()),
        }
    }

    pub(super) fn answer(&mut self, text: String) {
        self.answer = Some(text.into_bytes());
    }

    /// Sends what there is room for. True if that was all, or nothing can be sent.
    pub(super) fn go_on(&mut self) -> bool {
        let Some(answer) = &self.answer else { return false };
        while self.sent < answer.len() {
            let part = &answer[self.sent..answer.len().min(self.sent + PART)];
            match send(&self.fd, part, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(len) => self.sent += len,
                Err(Errno::AGAIN) => return false,
                Err(Errno::INTR) => {}
                Err(_) => return true,
            }
        }
        true
    }
}
