//! The name of an endpoint as programs of libfabric carry it: 64 bytes, as no MPI library has room
//! for more.
//!
//! | bytes | |
//! |---|---|
//! | 0..8 | `petasos` and the version of this format |
//! | 8..16 | the node |
//! | 16 | length of the name in shared memory |
//! | 17..40 | that name |
//! | 40 | 4 or 6: the family of the Internet address; 128 more: what goes there is encrypted |
//! | 41..57 | that address, in network order, from the first byte on |
//! | 57..59 | the port |
//! | 59..63 | the job: a digest of its secret, or zero |
//! | 63 | zero |
//!
//! It says what the fabric's `auto://NODE/shm://NAME,tcp://HOST:PORT` says, and of which job.

use super::open::Job;
use petasos_auto::AutoAddress;
use petasos_fabric::Address;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// How long a name is.
pub(crate) const LEN: usize = 64;
const MAGIC: [u8; 8] = *b"petasos\x01";
const LONGEST: usize = 23;
/// What stands behind the addresses of endpoints that encrypt, and its bit here.
const ENCRYPT: (&str, u8) = ("?encrypt", 0x80);

/// A name, as it is carried.
pub(crate) type Name = [u8; LEN];

/// The name of an endpoint of a job at this address; `None` if it is not of the two transports.
pub(crate) fn encode(address: &Address, job: Job) -> Option<Name> {
    let Ok(AutoAddress::Whole { node, members }) = AutoAddress::parse(address) else {
        return None;
    };
    let [shm, tcp] = &members[..] else { return None };
    let (place, encrypts) = match tcp.rest().strip_suffix(ENCRYPT.0) {
        Some(place) => (place, ENCRYPT.1),
        None => (tcp.rest(), 0),
    };
    let (name, place) = (shm.rest().as_bytes(), place.parse::<SocketAddr>().ok()?);
    if shm.scheme() != "shm" || tcp.scheme() != "tcp" || name.len() > LONGEST {
        return None;
    }
    let mut out = [0; LEN];
    out[..8].copy_from_slice(&MAGIC);
    let node = u64::from_str_radix(&node.to_string(), 16).ok()?;
    out[8..16].copy_from_slice(&node.to_le_bytes());
    out[16] = name.len() as u8;
    out[17..17 + name.len()].copy_from_slice(name);
    match place.ip() {
        IpAddr::V4(ip) => {
            out[40] = 4;
            out[41..45].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            out[40] = 6;
            out[41..57].copy_from_slice(&ip.octets());
        }
    }
    out[40] |= encrypts;
    out[57..59].copy_from_slice(&place.port().to_be_bytes());
    out[59..63].copy_from_slice(&job);
    Some(out)
}

/// The address that a name stands for, and the job; `None` if it is none.
pub(crate) fn decode(name: &Name) -> Option<(Address, Job)> {
    let (magic, rest) = name.split_first_chunk::<8>()?;
    let (node, rest) = rest.split_first_chunk::<8>()?;
    let len = usize::from(rest[0]);
    let shm = std::str::from_utf8(rest[1..].get(..len.min(LONGEST))?).ok()?;
    let option = if name[40] & ENCRYPT.1 == 0 { "" } else { ENCRYPT.0 };
    let ip: IpAddr = match name[40] & !ENCRYPT.1 {
        4 => Ipv4Addr::from(*name[41..].first_chunk::<4>()?).into(),
        6 => Ipv6Addr::from(*name[41..].first_chunk::<16>()?).into(),
        _ => return None,
    };
    let place = SocketAddr::new(ip, u16::from_be_bytes(*name[57..].first_chunk::<2>()?));
    let node = u64::from_le_bytes(*node);
    let text = format!("auto://{node:016x}/shm://{shm},tcp://{place}{option}");
    let job = *name[59..].first_chunk()?;
    let address = Address::parse(&text).ok()?;
    // One name for each address: padding, and whatever the text would hide, is compared.
    (*magic == MAGIC && encode(&address, job)? == *name).then_some((address, job))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for text in [
            "auto://0123456789abcdef/shm://0011223344556677,tcp://127.0.0.1:4040",
            "auto://9f3c2a7b11d04e55/shm://4711-0123456789abcdef,tcp://[fe80::1:2:3:4]:65535",
            "auto://9f3c2a7b11d04e55/shm://x,tcp://[::1]:1?encrypt",
        ] {
            let (address, job) = (Address::parse(text).unwrap(), [1, 2, 3, 4]);
            let name = encode(&address, job).unwrap();
            assert_eq!(decode(&name), Some((address, job)));
        }
    }

    #[test]
    fn what_is_no_name() {
        for text in [
            "auto://127.0.0.1:40",
            "auto://0123456789abcdef/shm://x",
            "auto://0123456789abcdef/shm://a-name-that-is-too-long-by-a-lot,tcp://127.0.0.1:1",
            "auto://0123456789abcdef/shm://x,tcp://host:1",
        ] {
            assert_eq!(encode(&Address::parse(text).unwrap(), [0; 4]), None, "{text}");
        }
        let text = "auto://0123456789abcdef/shm://x,tcp://127.0.0.1:4040";
        let name = encode(&Address::parse(text).unwrap(), [0; 4]).unwrap();
        assert_eq!(decode(&[0; LEN]), None);
        // Every byte counts: another value is another address, or none.
        for at in 0..LEN {
            let mut other = name;
            other[at] ^= 0x15;
            let same = |(address, job): &(Address, Job)| address.as_str() == text && *job == [0; 4];
            let decoded = decode(&other);
            assert!(!decoded.as_ref().is_some_and(same), "{at}");
            let again = decoded.map(|(address, job)| encode(&address, job));
            assert!(again.is_none_or(|again| again == Some(other)), "{at}");
        }
    }
}
