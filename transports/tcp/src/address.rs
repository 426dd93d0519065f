//! Addresses: where to listen, where to connect.

use crate::SecretError;
use nix::ifaddrs::getifaddrs;
use petasos_fabric::{Address, AddressError};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The scheme of TCP addresses.
pub(crate) const SCHEME: &str = "tcp";

/// Why an endpoint was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not an address of this transport.
    #[error(
        "{0} is not a TCP address: write it as tcp://HOST:PORT, port 0 for a free one, or \
         tcp://HOST:PORT?encrypt"
    )]
    NotTcp(String),
    /// No such host, interface or subnet here.
    #[error("{address}: {reason}")]
    NoSuchPlace {
        /// What was asked for.
        address: Address,
        /// What is wrong.
        reason: String,
    },
    /// Listening beyond this machine without a secret.
    #[error(
        "{0} can be reached from other machines: that needs a shared secret (a file of mode \
             600, the same on all machines), or listen on 127.0.0.1 or [::1]"
    )]
    NeedsSecret(SocketAddr),
    /// Encryption without a secret.
    #[error("{0}: encryption needs a shared secret (a file of mode 600, the same on all machines)")]
    NeedsKey(Address),
    /// The secret is no good.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The system refused.
    #[error("{address}: {error}")]
    System {
        /// Where.
        address: SocketAddr,
        /// What it said.
        error: std::io::Error,
    },
}

impl From<AddressError> for OpenError {
    fn from(error: AddressError) -> OpenError {
        OpenError::NotTcp(error.to_string())
    }
}

/// What stands behind an address whose connections are to be encrypted.
const ENCRYPT: &str = "?encrypt";

/// What is before the options of a TCP address, and whether it asks for encryption.
pub(crate) fn options(address: &Address) -> (&str, bool) {
    let rest = address.rest();
    rest.strip_suffix(ENCRYPT).map_or((rest, false), |place| (place, true))
}

/// Host and port of a TCP address.
pub(crate) fn split(address: &Address) -> Option<(&str, u16)> {
    if address.scheme() != SCHEME {
        return None;
    }
    let (host, port) = options(address).0.rsplit_once(':')?;
    let plain = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let port = port.parse().ok()?;
    (!host.is_empty()).then_some((plain.unwrap_or(host), port))
}

/// The address as a URL.
pub(crate) fn url(socket: SocketAddr, encrypt: bool) -> Address {
    let options = if encrypt { ENCRYPT } else { "" };
    let url = format!("{SCHEME}://{socket}{options}");
    Address::parse(&url).expect("a socket address makes a short URL")
}

/// The socket address of one that has numbers alone.
pub(crate) fn numeric(address: &Address) -> Option<SocketAddr> {
    let (host, port) = split(address)?;
    host.parse::<IpAddr>().ok().map(|ip| (ip, port).into())
}

/// An address that needs no look-up.
pub(crate) fn literal(host: &str, port: u16) -> Option<SocketAddr> {
    if host == "localhost" {
        return Some((Ipv4Addr::LOCALHOST, port).into());
    }
    host.parse::<IpAddr>().ok().map(|ip| (ip, port).into())
}

/// Where to listen: a host, an interface (`tcp://eth0:0`), or this machine's address in a subnet
/// (`tcp://10.1.0.0/16:0`). An empty or `*` host is the loopback interface.
pub(crate) fn listening(address: &Address) -> Result<SocketAddr, OpenError> {
    let not_tcp = || OpenError::NotTcp(address.to_string());
    if address.scheme() == SCHEME && matches!(options(address).0, "" | "*") {
        return Ok((Ipv4Addr::LOCALHOST, 0).into());
    }
    let (host, port) = split(address).ok_or_else(not_tcp)?;
    if host == "*" {
        return Ok((Ipv4Addr::LOCALHOST, port).into());
    }
    if let Some(socket) = literal(host, port) {
        return Ok(socket);
    }
    let no = |reason: &str| OpenError::NoSuchPlace {
        address: address.clone(),
        reason: reason.to_owned(),
    };
    if let Some((net, bits)) = host.split_once('/') {
        let net: IpAddr = net.parse().map_err(|_| not_tcp())?;
        let bits: u32 = bits.parse().map_err(|_| not_tcp())?;
        let found = own_addresses().into_iter().find(|(_, ip)| within(*ip, net, bits));
        let (_, ip) = found.ok_or_else(|| no("this machine has no address in that subnet"))?;
        return Ok((ip, port).into());
    }
    let own = own_addresses();
    let of_interface = own.iter().filter(|(name, _)| name == host).map(|(_, ip)| *ip);
    if let Some(ip) = of_interface.min_by_key(|ip| ip.is_ipv6()) {
        return Ok((ip, port).into());
    }
    let looked_up = std::net::ToSocketAddrs::to_socket_addrs(&(host, port));
    let found = looked_up.ok().and_then(|mut list| list.next());
    found.ok_or_else(|| no("no such host, and no interface of that name"))
}

/// What to tell others when listening on `bound`: something that they can connect to.
pub(crate) fn announced(bound: SocketAddr) -> SocketAddr {
    if !bound.ip().is_unspecified() {
        return bound;
    }
    let own = own_addresses();
    let fits = |ip: &IpAddr| !ip.is_loopback() && (bound.is_ipv6() || ip.is_ipv4());
    let first = own.iter().map(|(_, ip)| *ip).find(fits);
    let loopback = match bound {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
    };
    (first.unwrap_or(loopback), bound.port()).into()
}

/// The addresses of this machine's interfaces, but those that need a scope.
fn own_addresses() -> Vec<(String, IpAddr)> {
    let mut found = Vec::new();
    for interface in getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        let ip = if let Some(v4) = address.as_sockaddr_in() {
            IpAddr::V4(v4.ip())
        } else if let Some(v6) = address.as_sockaddr_in6() {
            IpAddr::V6(v6.ip())
        } else {
            continue;
        };
        let scoped = matches!(ip, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80);
        if !scoped {
            found.push((interface.interface_name, ip));
        }
    }
    found
}

fn within(ip: IpAddr, net: IpAddr, bits: u32) -> bool {
    let same = |a: u128, b: u128, width: u32| {
        bits <= width && (bits == 0 || (a ^ b) >> (width - bits) == 0)
    };
    match (ip, net) {
        (IpAddr::V4(a), IpAddr::V4(b)) => same(u32::from(a).into(), u32::from(b).into(), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => same(a.into(), b.into(), 128),
        _ => false,
    }
}

/// The addresses at which this machine could listen, as `interface address`; for `petasos info`.
#[must_use]
pub fn probe() -> Vec<String> {
    own_addresses().into_iter().map(|(name, ip)| format!("{name} {ip}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Result<SocketAddr, OpenError> {
        listening(&Address::parse(text).unwrap())
    }

    #[test]
    fn where_to_listen() {
        let v4 = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(at("tcp://").unwrap(), v4(0));
        assert_eq!(at("tcp://*").unwrap(), v4(0));
        assert_eq!(at("tcp://*:99").unwrap(), v4(99));
        assert_eq!(at("tcp://localhost:1").unwrap(), v4(1));
        assert_eq!(at("tcp://[::1]:7").unwrap(), SocketAddr::from((Ipv6Addr::LOCALHOST, 7)));
        assert_eq!(at("tcp://lo:5").unwrap(), v4(5));
        assert_eq!(at("tcp://127.0.0.0/8:5").unwrap(), v4(5));
        assert_eq!(at("tcp://*?encrypt").unwrap(), v4(0));
        assert_eq!(at("tcp://[::1]:7?encrypt").unwrap(), at("tcp://[::1]:7").unwrap());
        assert!(at("tcp://203.0.113.0/24:5").unwrap_err().to_string().contains("subnet"));
        for bad in
            ["tcp://127.0.0.1", "shm://x", "tcp://:5", "tcp://127.0.0.1:99999", "tcp://h:1?x"]
        {
            assert!(matches!(at(bad), Err(OpenError::NotTcp(_))), "{bad}");
        }
    }
}
