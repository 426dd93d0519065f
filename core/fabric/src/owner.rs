//! The user of the peer of a connection over loopback: the kernel knows the owner of the socket at
//! the other end.
//!
//! Any user of the machine can bind any port of any address 127.x.y.z, the listener's own port as
//! well, so both ends of a connection are compared completely, addresses and ports. The kernel is
//! asked for this one socket (`sock_diag`), which costs the same however many connections there
//! are. If it refuses that, its table (`/proc/net/tcp`) is read.
//!
//! Only a socket that a process has open has a user: one that is closed, but not forgotten yet, is
//! shown with user 0. So a row counts as no socket if it has no inode, or if its state is not that
//! of a connection whose other end can still write or has ended its writing.

use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind,
        netlink::{self, SocketAddrNetlink},
        recv, sendto, socket_with,
    },
};
use std::{
    fs, io,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    os::fd::OwnedFd,
    sync::atomic::{AtomicBool, Ordering},
};

/// `SOCK_DIAG_BY_FAMILY`, both the request and its answer.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// `INET_DIAG_NOCOOKIE`: any socket that has these ends.
const ANY: [u8; 8] = [0xff; 8];
const TCP: u8 = 6;
const INET: u8 = 2;
const INET6: u8 = 10;
/// The netlink header.
const HEADER: usize = 16;
/// `struct inet_diag_req_v2`, after that header.
const QUESTION: usize = 56;
/// `struct inet_diag_msg`.
const ANSWER: usize = 72;
/// Established, and the two states of a connection that its other end has stopped writing to.
const OPEN: [u8; 3] = [1, 4, 5];
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;

/// Asks the kernel for the users of the other ends of connections. Holds a descriptor; making one
/// is cheap.
#[derive(Debug)]
pub struct Owners {
    /// `None`: the kernel's table is read.
    socket: Option<OwnedFd>,
    asked: u32,
}

/// The kernel has answered once: so if it knows no such socket, that is not because the part of it
/// that answers is missing.
static ANSWERS: AtomicBool = AtomicBool::new(false);

impl Owners {
    /// The kernel is asked, or its table is read where it does not answer.
    #[must_use]
    pub fn new() -> Owners {
        Owners { socket: socket().ok(), asked: 0 }
    }

    /// The user of the socket that is bound to `far` and connected to `near`, an end of a
    /// connection of this process.
    ///
    /// # Errors
    /// If there is none, no process has it open any more, or the system does not say.
    pub fn of(&mut self, far: SocketAddr, near: SocketAddr) -> io::Result<u32> {
        self.owned(far, near).map(|owned| owned.user)
    }

    /// The number of that socket, by which it is shown among what its process has open.
    #[must_use]
    pub fn socket_of(&mut self, far: SocketAddr, near: SocketAddr) -> Option<u32> {
        self.owned(far, near).ok().map(|owned| owned.socket)
    }

    fn owned(&mut self, far: SocketAddr, near: SocketAddr) -> io::Result<Owned> {
        let (far, near) = (plain(far), plain(near));
        if let Some(socket) = &self.socket {
            self.asked = self.asked.wrapping_add(1);
            match ask(socket, self.asked, far, near) {
                Ok(owned) => {
                    ANSWERS.store(true, Ordering::Relaxed);
                    return owned.ok_or_else(no_such_socket);
                }
                Err(Errno::NOENT) if ANSWERS.load(Ordering::Relaxed) => {
                    return Err(no_such_socket());
                }
                // The part of the kernel that answers such requests may be missing. Then the table
                // is better informed.
                Err(Errno::NOENT) => {
                    let owned = of_table(far, near)?;
                    self.socket = None;
                    return Ok(owned);
                }
                Err(_) => self.socket = None,
            }
        }
        of_table(far, near)
    }
}

impl Default for Owners {
    fn default() -> Owners {
        Owners::new()
    }
}

/// The user of a socket, and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owned {
    user: u32,
    socket: u32,
}

fn no_such_socket() -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, "no process has its other end")
}

fn socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(netlink::SOCK_DIAG);
    let socket = socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?;
    bind(&socket, &SocketAddrNetlink::new(0, 0))?;
    Ok(socket)
}

/// IPv4 where an address is of it, however it is written.
fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

/// An address as the kernel writes it: 16 bytes.
fn bytes(ip: IpAddr) -> [u8; 16] {
    let mut out = [0; 16];
    match ip {
        IpAddr::V4(ip) => out[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out = ip.octets(),
    }
    out
}

/// Ports, and addresses, as the kernel writes a socket's: its own end first.
fn ends(own: SocketAddr, other: SocketAddr) -> [u8; 36] {
    let mut out = [0; 36];
    out[..2].copy_from_slice(&own.port().to_be_bytes());
    out[2..4].copy_from_slice(&other.port().to_be_bytes());
    out[4..20].copy_from_slice(&bytes(own.ip()));
    out[20..].copy_from_slice(&bytes(other.ip()));
    out
}

fn question(number: u32, far: SocketAddr, near: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER + QUESTION);
    out.extend(((HEADER + QUESTION) as u32).to_ne_bytes());
    out.extend([BY_FAMILY.to_ne_bytes(), REQUEST.to_ne_bytes()].concat());
    out.extend(number.to_ne_bytes());
    out.extend([0; 4]);
    out.extend([if far.is_ipv4() { INET } else { INET6 }, TCP, 0, 0]);
    // States matter only where many sockets are asked for.
    out.extend(u32::MAX.to_ne_bytes());
    out.extend(ends(far, near));
    out.extend([0; 4]);
    out.extend(ANY);
    out
}

/// `None`: no process has that socket.
fn ask(
    socket: &OwnedFd,
    number: u32,
    far: SocketAddr,
    near: SocketAddr,
) -> Result<Option<Owned>, Errno> {
    let question = question(number, far, near);
    // The kernel has answered when this returns.
    sendto(socket, &question, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut said = [0; 512];
    loop {
        match recv(socket, &mut said[..], RecvFlags::DONTWAIT) {
            // Otherwise it answers an earlier request.
            Ok((len, _)) => match take(&said[..len.min(said.len())], number, far, near) {
                Some(answer) => return answer,
                None => continue,
            },
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

fn word(said: &[u8], at: usize) -> Option<u32> {
    said.get(at..at + 4)?.first_chunk().copied().map(u32::from_ne_bytes)
}

/// Decodes an answer; `None` if it is to another request.
fn take(
    said: &[u8],
    number: u32,
    far: SocketAddr,
    near: SocketAddr,
) -> Option<Result<Option<Owned>, Errno>> {
    if word(said, 8)? != number {
        return None;
    }
    let body = said.get(HEADER..)?;
    let kind = said.get(4..6)?.first_chunk().copied().map(u16::from_ne_bytes);
    let body = match kind {
        Some(BY_FAMILY) => body.get(..ANSWER),
        Some(ERROR) => {
            let error = word(body, 0).map_or(0, u32::cast_signed).saturating_neg();
            return Some(Err(Errno::from_raw_os_error(error)));
        }
        _ => None,
    };
    let Some(body) = body else { return Some(Err(Errno::PROTO)) };
    let is = |own: SocketAddr, other: SocketAddr| body[4..40] == ends(own, other);
    let same = match body[0] {
        INET => far.is_ipv4() && is(far, near),
        // A socket of IPv6 that talks to one of IPv4 is shown with its addresses.
        INET6 => is(mapped(far), mapped(near)),
        _ => false,
    };
    // It may be a listener that the kernel has found in the place of a connection that has ended.
    let open = OPEN.contains(&body[1]);
    let owned = Owned { user: word(body, 64)?, socket: word(body, 68)? };
    Some(Ok((same && open && owned.socket != 0).then_some(owned)))
}

fn mapped(at: SocketAddr) -> SocketAddr {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    SocketAddr::new(IpAddr::V6(ip), at.port())
}

/// The same by the kernel's table.
fn of_table(far: SocketAddr, near: SocketAddr) -> io::Result<Owned> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let mut found = None;
    for path in tables {
        // There may be no IPv6 here.
        let Ok(table) = fs::read_to_string(path) else { continue };
        if let Some(owned) = table.lines().find_map(|line| row(line, far, near)) {
            found = Some(owned);
            break;
        }
    }
    found.ok_or_else(no_such_socket)
}

/// The user of a row, if it is of this socket and a process has it open.
fn row(line: &str, far: SocketAddr, near: SocketAddr) -> Option<Owned> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (own, other) = (address(words.get(1)?)?, address(words.get(2)?)?);
    let state = u8::from_str_radix(words.get(3)?, 16).ok()?;
    let owned = Owned { user: words.get(7)?.parse().ok()?, socket: words.get(9)?.parse().ok()? };
    let is = plain(own) == far && plain(other) == near;
    (is && OPEN.contains(&state) && owned.socket != 0).then_some(owned)
}

/// An address of that table: words of 32 bits, as they lie in memory, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut all = Vec::with_capacity(16);
    for at in (0..ip.len()).step_by(8) {
        let part = u32::from_str_radix(ip.get(at..at + 8)?, 16).ok()?;
        all.extend(part.to_ne_bytes());
    }
    let ip = match <[u8; 4]>::try_from(&all[..]) {
        Ok(ip) => IpAddr::from(ip),
        Err(_) => IpAddr::V6(Ipv6Addr::from(<[u8; 16]>::try_from(&all[..]).ok()?)),
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::net::{Shutdown, TcpListener, TcpStream};

    type Asks<'a> = &'a mut dyn FnMut(SocketAddr, SocketAddr) -> io::Result<u32>;

    /// Both ways to ask say the same; the first only where the kernel answers.
    fn both(check: impl Fn(Asks<'_>)) {
        check(&mut |far, near| of_table(far, near).map(|owned| owned.user));
        let mut owners = Owners::new();
        if owners.socket.is_some() {
            check(&mut |far, near| owners.of(far, near));
        }
    }

    #[test]
    fn both_ends_have_to_be_the_same() {
        let own = geteuid().as_raw();
        both(|of| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = listener.local_addr().unwrap();
            let client = TcpStream::connect(near).unwrap();
            let far = client.local_addr().unwrap();
            let taken = listener.accept().unwrap().0;
            assert_eq!(of(far, near).unwrap(), own);
            // The same ports at other addresses are another socket's.
            let elsewhere = |port| SocketAddr::from(([127, 0, 0, 77], port));
            assert!(of(elsewhere(far.port()), near).is_err());
            assert!(of(far, elsewhere(near.port())).is_err());
            // The listener is at that address, and is no connection.
            assert!(of(near, elsewhere(1)).is_err());
            // An end that has shut down its writing is still there, one that was closed is not.
            client.shutdown(Shutdown::Write).unwrap();
            assert_eq!(of(far, near).unwrap(), own);
            drop(client);
            assert!(of(far, near).is_err());
            drop(taken);
            assert!(of(far, near).is_err());
        });
    }

    #[test]
    fn a_socket_of_ipv6_that_talks_to_ipv4_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = listener.local_addr().unwrap();
        let to = SocketAddr::new(IpAddr::V6("::ffff:127.0.0.1".parse().unwrap()), near.port());
        let Ok(client) = TcpStream::connect(to) else {
            return petasos_testing::skip("there is no IPv6 here");
        };
        let (_taken, far) = listener.accept().unwrap();
        assert_eq!(plain(client.local_addr().unwrap()), far);
        both(|of| assert_eq!(of(far, near).unwrap(), geteuid().as_raw()));
    }

    #[test]
    fn answers_that_are_not_whole_name_no_owner() {
        let [far, near] = [1, 2].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let mut said = question(7, far, near);
        assert_eq!(said.len(), HEADER + QUESTION);
        assert!(take(&said, 8, far, near).is_none() && take(&[], 7, far, near).is_none());
        // The kernel's answer has the ends at another place.
        assert!(matches!(take(&said, 7, far, near), Some(Err(Errno::PROTO))));
        said.truncate(HEADER);
        let mut body = vec![INET, 1, 0, 0];
        body.extend(ends(far, near));
        body.resize(64, 0);
        body.extend([1234u32.to_ne_bytes(), 99u32.to_ne_bytes()].concat());
        let with = |body: &[u8]| [&said, body].concat();
        assert!(matches!(
            take(&with(&body), 7, far, near),
            Some(Ok(Some(Owned { user: 1234, socket: 99 })))
        ));
        assert!(matches!(take(&with(&body), 7, near, far), Some(Ok(None))));
        assert!(matches!(take(&with(&body[..71]), 7, far, near), Some(Err(Errno::PROTO))));
        for (at, value) in [(1, 6), (1, 10), (68, 0)] {
            let mut other = body.clone();
            other[at] = value;
            assert!(matches!(take(&with(&other), 7, far, near), Some(Ok(None))));
        }
    }
}
