//! Sockets that keep packets apart, and one descriptor to wait for all of them.

use rustix::{
    event::epoll,
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with,
        bind, connect, listen, recv, send, socket_with, sockopt::set_socket_send_buffer_size,
    },
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    time::Duration,
};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

fn socket() -> rustix::io::Result<OwnedFd> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None)
}

/// Listens at a path. A socket there that refuses connections was left by an endpoint that died,
/// and is removed.
pub fn listen_at(path: &str) -> io::Result<OwnedFd> {
    let (listener, address) = (socket()?, SocketAddrUnix::new(path)?);
    if bind(&listener, &address) == Err(Errno::ADDRINUSE) {
        if connect(socket()?, &address) != Err(Errno::CONNREFUSED) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        std::fs::remove_file(path)?;
        bind(&listener, &address)?;
    }
    listen(&listener, 128)?;
    Ok(listener)
}

/// A connection to the endpoint at this path, if there is one.
pub fn connect_to(path: &str) -> rustix::io::Result<OwnedFd> {
    let connection = socket()?;
    // As much room as the system gives, so that the two sides need fewer switches between them.
    set_socket_send_buffer_size(&connection, 1 << 20)?;
    connect(&connection, &SocketAddrUnix::new(path)?)?;
    Ok(connection)
}

/// A connection that was made to us, if there is one.
pub fn accept(listener: &OwnedFd) -> Option<OwnedFd> {
    accept_with(listener, FLAGS).ok()
}

/// The outcome of sending or receiving.
#[derive(Debug, PartialEq, Eq)]
pub enum Io {
    /// So many bytes.
    Moved(usize),
    /// Nothing can be moved now.
    Later,
    /// Nothing will be moved any more.
    Closed,
}

/// Sends one packet, all of it or nothing.
pub fn send_packet(to: &OwnedFd, packet: &[u8]) -> Io {
    match send(to, packet, SendFlags::NOSIGNAL) {
        Ok(len) => Io::Moved(len),
        Err(Errno::AGAIN | Errno::INTR) => Io::Later,
        Err(_) => Io::Closed,
    }
}

/// Receives one packet.
pub fn receive(from: &OwnedFd, into: &mut [u8]) -> Io {
    loop {
        return match recv(from, &mut *into, RecvFlags::empty()) {
            Ok((0, _)) => Io::Closed,
            Ok((len, _)) => Io::Moved(len),
            Err(Errno::AGAIN) => Io::Later,
            // Reported once when the other side closed with bytes unread; what it sent still comes.
            Err(Errno::CONNRESET | Errno::INTR) => continue,
            Err(_) => Io::Closed,
        };
    }
}

/// Waits for many descriptors at a time, without a list that is walked.
pub struct Poller {
    pub fd: OwnedFd,
}

impl Poller {
    pub fn new() -> io::Result<Poller> {
        let fd = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Poller { fd })
    }

    /// Watches a descriptor until it is closed: its name is given when it is readable.
    pub fn add(&self, fd: impl AsFd, name: u64) -> io::Result<()> {
        let data = epoll::EventData::new_u64(name);
        Ok(epoll::add(&self.fd, fd, data, epoll::EventFlags::IN)?)
    }

    /// Watches a descriptor for room, too, or not any more.
    pub fn want(&self, fd: &OwnedFd, name: u64, room: bool) {
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, room);
        // It fails only for a descriptor that is closed, and so watched no more.
        epoll::modify(&self.fd, fd, epoll::EventData::new_u64(name), flags).ok();
    }

    /// Up to so many names of descriptors that are ready, and whether that is for room.
    pub fn ready(&self, most: usize, names: &mut Vec<(u64, bool)>) {
        let mut events = Vec::with_capacity(most);
        let zero = Duration::ZERO.try_into().expect("zero is a time");
        names.clear();
        let spare = rustix::buffer::spare_capacity(&mut events);
        if epoll::wait(&self.fd, spare, Some(&zero)).is_ok() {
            let name = |event: &epoll::Event| {
                let epoll::Event { flags, data } = *event;
                (data.u64(), flags == epoll::EventFlags::OUT)
            };
            names.extend(events.iter().map(name));
        }
    }
}
