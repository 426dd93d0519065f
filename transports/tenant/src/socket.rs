//! The socket between a tenant and its broker: sequenced packets, with a descriptor or without.

use crate::control::{self, Control};
use rustix::{
    fd::{AsFd, OwnedFd},
    io::{Errno, IoSlice, IoSliceMut},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
        SocketType, connect, recvmsg, sendmsg, socket_with,
    },
};
use std::mem::MaybeUninit;

/// Descriptors for which there is room in one message: as many as the system lets through
/// (SCM_MAX_FD). For those without room would be closed within the call that receives, and to close
/// a descriptor of another process may take as long as that process likes.
const FDS: usize = 253;

/// A socket of this kind that neither blocks nor is inherited.
///
/// # Errors
/// If the system has none.
pub fn new() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// Connects to a path: at once, or not at all.
///
/// # Errors
/// What the system said.
pub fn dial(path: &str) -> Result<OwnedFd, Errno> {
    let fd = new()?;
    connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

/// Sends one message; never blocks.
///
/// # Errors
/// What the system said: `AGAIN` if there is no room.
pub fn send(fd: impl AsFd, message: &Control, with: Option<&OwnedFd>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let with = with.map(AsFd::as_fd);
    if let Some(with) = &with {
        ancillary.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(with)));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(fd, &[IoSlice::new(&message.encode())], &mut ancillary, flags).map(|_| ())
}

/// What came.
#[derive(Debug)]
pub enum Received {
    /// A message, and the descriptor that came with it.
    Message(Control, Option<OwnedFd>),
    /// Bytes that are no message, or more descriptors than belong to one: these.
    Garbage(Vec<OwnedFd>),
    /// The other side has ended.
    End,
}

impl Received {
    /// The descriptors that came.
    #[must_use]
    pub fn into_descriptors(self) -> Vec<OwnedFd> {
        match self {
            Received::Message(_, with) => with.into_iter().collect(),
            Received::Garbage(all) => all,
            Received::End => Vec::new(),
        }
    }
}

/// The next message; never blocks. To close a descriptor that came may.
///
/// # Errors
/// What the system said: `AGAIN` if there is none.
pub fn receive(fd: impl AsFd) -> Result<Received, Errno> {
    let mut bytes = [0; control::MAX + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let message = match recvmsg(&fd, &mut buffers, &mut ancillary, flags) {
        // Reported first, and once, where the other side closed with something unread.
        Err(Errno::CONNRESET) => recvmsg(&fd, &mut buffers, &mut ancillary, flags)?,
        received => received?,
    };
    let (len, cut) = (message.bytes, message.flags.contains(ReturnFlags::CTRUNC));
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            fds.extend(all);
        }
    }
    if len == 0 && fds.is_empty() {
        return Ok(Received::End);
    }
    Ok(match Control::decode(&bytes[..len]) {
        Some(control) if fds.len() <= 1 && !cut => Received::Message(control, fds.pop()),
        _ => Received::Garbage(fds),
    })
}
