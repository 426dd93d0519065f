//! The end of a connection.

use sha2::{Digest, Sha256};
use std::{
    fs,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    sync::LazyLock,
};

/// The responder's end of a connection: address and port, and the machine if the connection does
/// not leave it. That is so for connections to the loopback interface, and for those from an
/// address to itself: many machines have the same address, as that of a bridge for containers.
///
/// The initiator encodes the end to which it connected; the responder compares that with the end at
/// which the connection arrived. So a relay in between, which passes on to one endpoint what was
/// meant for another, is detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponderAddress {
    ip: Ipv6Addr,
    port: u16,
    /// Where the connection stays within it: one boot of one kernel, and one network name space of
    /// it. Else zeroes.
    machine: [u8; 16],
}

impl ResponderAddress {
    /// Length of [`ResponderAddress::to_bytes`].
    pub const LEN: usize = 16 + 2 + 16;

    /// The responder's end of a connection. Both ends are given as this machine sees them.
    #[must_use]
    pub fn of_connection(dialled: SocketAddr, dialler: SocketAddr) -> ResponderAddress {
        let stays = dialled.ip().to_canonical() == dialler.ip().to_canonical();
        ResponderAddress {
            machine: if stays { here() } else { ResponderAddress::of(dialled).machine },
            ..ResponderAddress::of(dialled)
        }
    }

    /// The end of connections to this address.
    #[must_use]
    pub fn of(socket: SocketAddr) -> ResponderAddress {
        let ip = socket.ip().to_canonical();
        let machine = if ip.is_loopback() { here() } else { [0; 16] };
        let ip = match ip {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        ResponderAddress { ip, port: socket.port(), machine }
    }

    /// Whether it is this address, on whichever machine: for addresses that this endpoint's own
    /// configuration names.
    #[must_use]
    pub fn is_of(&self, socket: SocketAddr) -> bool {
        let at = ResponderAddress::of(socket);
        (at.ip, at.port) == (self.ip, self.port)
    }

    /// Its encoding.
    #[must_use]
    pub fn to_bytes(self) -> [u8; ResponderAddress::LEN] {
        let mut bytes = [0; ResponderAddress::LEN];
        bytes[..16].copy_from_slice(&self.ip.octets());
        bytes[16..18].copy_from_slice(&self.port.to_le_bytes());
        bytes[18..].copy_from_slice(&self.machine);
        bytes
    }

    /// Decodes it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; ResponderAddress::LEN]) -> ResponderAddress {
        let (ip, rest) = bytes.split_at(16);
        let (port, machine) = rest.split_at(2);
        ResponderAddress {
            ip: Ipv6Addr::from(std::array::from_fn::<u8, 16, _>(|at| ip[at])),
            port: u16::from_le_bytes([port[0], port[1]]),
            machine: std::array::from_fn(|at| machine[at]),
        }
    }
}

/// A hash of what tells this machine's own connections from all others; where the system does not
/// say, there is one machine. The name space is that of this thread, now.
fn here() -> [u8; 16] {
    static BOOT: LazyLock<String> =
        LazyLock::new(|| fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default());
    let space = fs::read_link("/proc/thread-self/ns/net").unwrap_or_default();
    let text = format!("petasos loopback\n{}\n{}", BOOT.trim(), space.display());
    let hash = Sha256::digest(text.as_bytes());
    std::array::from_fn(|at| hash[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in ["127.0.0.1:1", "[::1]:2", "10.0.0.1:65535", "[fd00::1]:4040"] {
            let spot = ResponderAddress::of(text.parse().unwrap());
            assert_eq!(ResponderAddress::from_bytes(&spot.to_bytes()), spot, "{text}");
        }
    }

    #[test]
    fn places_are_told_apart() {
        let at = |text: &str| ResponderAddress::of(text.parse().unwrap());
        assert_eq!(
            at("[::ffff:10.0.0.1]:5"),
            at("10.0.0.1:5"),
            "as a listener of both kinds sees it"
        );
        let different = ["10.0.0.1:5", "10.0.0.1:6", "10.0.0.2:5", "127.0.0.1:5", "[::1]:5"];
        for (nth, one) in different.iter().enumerate() {
            assert!(different[..nth].iter().all(|other| at(other) != at(one)), "{one}");
        }
        let mut elsewhere = at("127.0.0.1:5").to_bytes();
        elsewhere[20] ^= 1;
        assert_ne!(
            ResponderAddress::from_bytes(&elsewhere),
            at("127.0.0.1:5"),
            "of another machine"
        );
        assert_eq!(at("10.0.0.1:5").machine, [0; 16]);
    }

    #[test]
    fn connections_within_a_machine_are_told_from_those_between_machines() {
        let at = |dialled: &str, dialler: &str| {
            ResponderAddress::of_connection(dialled.parse().unwrap(), dialler.parse().unwrap())
        };
        let within = at("172.17.0.1:5", "172.17.0.1:99");
        assert_eq!(within, at("[::ffff:172.17.0.1]:5", "172.17.0.1:7"), "from whichever port");
        // The relay on the worker was reached within that machine; its other half connects to the
        // head node within that one.
        let mut elsewhere = within.to_bytes();
        elsewhere[20] ^= 1;
        assert_ne!(
            ResponderAddress::from_bytes(&elsewhere),
            within,
            "of another machine, with the same address"
        );
        assert_ne!(within, at("172.17.0.1:5", "172.17.0.2:99"), "from elsewhere");
        assert_eq!(
            at("10.0.0.1:5", "10.0.0.2:6"),
            ResponderAddress::of("10.0.0.1:5".parse().unwrap())
        );
        assert_eq!(
            at("127.0.0.1:5", "127.0.0.2:6"),
            ResponderAddress::of("127.0.0.1:5".parse().unwrap())
        );
        assert!(within.is_of("172.17.0.1:5".parse().unwrap()));
        assert!(!within.is_of("172.17.0.1:6".parse().unwrap()));
        assert!(!within.is_of("172.17.0.2:5".parse().unwrap()));
    }
}
