//! Sockets as the endpoint wants them.

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getpeername, listen, socket_with, sockopt,
};
use std::{io, net::SocketAddr, os::fd::OwnedFd, time::Duration};

/// Where a connection was made to.
pub(super) fn there(socket: &OwnedFd) -> Option<SocketAddr> {
    getpeername(socket).ok().flatten().and_then(|name| SocketAddr::try_from(name).ok())
}

/// Listens; what is accepted has the listener's options, without a system call for each.
pub(super) fn listen_at(address: SocketAddr, silence: Duration) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let listener = socket_with(family, SocketType::STREAM, flags, None)?;
    // A server that starts again finds its port free.
    sockopt::set_socket_reuseaddr(&listener, true)?;
    tune(&listener, silence)?;
    bind(&listener, &address)?;
    listen(&listener, 1024)?;
    Ok(listener)
}

/// No delay, and a bounded time to notice that the other side is gone: by probes when nothing is
/// under way, by the lack of acknowledgements when something is.
pub(super) fn tune(socket: &OwnedFd, silence: Duration) -> io::Result<()> {
    let silence = silence.max(Duration::from_secs(2));
    let probe = Duration::from_secs((silence.as_secs() / 4).max(1));
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, (silence / 2).max(Duration::from_secs(1)))?;
    sockopt::set_tcp_keepintvl(socket, probe)?;
    sockopt::set_tcp_keepcnt(socket, 2)?;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(silence.as_millis()).unwrap_or(u32::MAX))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{accept_with, getsockname};
    use std::net::TcpStream;

    #[test]
    fn what_is_accepted_is_tuned_like_the_listener() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = listen_at(any, Duration::from_secs(8)).unwrap();
        let bound = SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
        let _caller = TcpStream::connect(bound).unwrap();
        let mut waiting = [rustix::event::PollFd::new(&listener, rustix::event::PollFlags::IN)];
        rustix::event::poll(&mut waiting, None).unwrap();
        let accepted = accept_with(&listener, SocketFlags::CLOEXEC).unwrap();
        assert!(sockopt::tcp_nodelay(&accepted).unwrap());
        assert!(sockopt::socket_keepalive(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), Duration::from_secs(4));
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), Duration::from_secs(2));
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 8000);
    }
}
