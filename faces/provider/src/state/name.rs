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
//! It says what the fabric's `auto://NODE/shm://NAME,tcp://HOST:PORT` says, and of which job. One
//! without a node and without a name in shared memory says no more than a host and a port, as the
//! fabric's `auto://HOST:PORT` does; what listens there is asked for the rest.
//!
//! As text a name is that URL, with `#` and the job in hexadecimal digits behind a whole one.

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

/// What a program names by an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Named {
    /// An endpoint by its whole address, and of which job it is, where that is said.
    Whole(Address, Option<Job>),
    /// What listens at a host and port.
    Place(SocketAddr),
}

impl Named {
    /// What stands for an address of the fabric's, of this job. `None`: it names none.
    pub(crate) fn of(address: &Address, job: Job) -> Option<Named> {
        match AutoAddress::parse(address).ok()? {
            AutoAddress::Whole { .. } => Some(Named::Whole(address.clone(), Some(job))),
            AutoAddress::Short(place) => Some(Named::Place(place.parse().ok()?)),
        }
    }

    /// The fabric's address.
    pub(crate) fn address(&self) -> Address {
        match self {
            Named::Whole(address, _) => address.clone(),
            Named::Place(place) => short(*place),
        }
    }

    /// Where it listens for peers of other nodes.
    pub(crate) fn place(&self) -> Option<SocketAddr> {
        match self {
            Named::Whole(address, _) => place(address),
            Named::Place(place) => Some(*place),
        }
    }

    /// As a program carries it.
    pub(crate) fn encode(&self) -> Option<Name> {
        match self {
            Named::Whole(address, job) => encode(address, job.unwrap_or_default()),
            Named::Place(place) => {
                let mut out = [0; LEN];
                out[..8].copy_from_slice(&MAGIC);
                write_place(&mut out, *place);
                Some(out)
            }
        }
    }

    /// What a name that is carried stands for; `None` if it is none.
    pub(crate) fn decode(name: &Name) -> Option<Named> {
        if name[8..=16].iter().all(|byte| *byte == 0) {
            let place = Named::Place(read_place(name)?);
            return (place.encode()? == *name).then_some(place);
        }
        decode(name).map(|(address, job)| Named::Whole(address, Some(job)))
    }

    /// As text.
    pub(crate) fn to_text(&self) -> String {
        match self {
            Named::Whole(address, None) => address.as_str().to_owned(),
            Named::Whole(address, Some(job)) => {
                format!("{}#{:08x}", address.as_str(), u32::from_be_bytes(*job))
            }
            Named::Place(place) => short(*place).as_str().to_owned(),
        }
    }

    /// What a text stands for; `None` if it is no name. A host is its Internet address.
    pub(crate) fn parse(text: &str) -> Option<Named> {
        let (url, job) = match text.split_once('#') {
            Some((url, job)) if job.len() == 8 => {
                (url, Some(u32::from_str_radix(job, 16).ok()?.to_be_bytes()))
            }
            Some(_) => return None,
            None => (text, None),
        };
        match Named::of(&Address::parse(url).ok()?, Job::default())? {
            Named::Whole(address, _) => Some(Named::Whole(address, job)),
            place @ Named::Place(_) => job.is_none().then_some(place),
        }
    }
}

/// The address of what listens there.
pub(crate) fn short(place: SocketAddr) -> Address {
    Address::parse(&format!("{}://{place}", petasos_auto::SCHEME)).expect("a short URL")
}

/// Whether an address is no more than a host and a port.
pub(crate) fn is_short(address: &Address) -> bool {
    matches!(AutoAddress::parse(address), Ok(AutoAddress::Short(_)))
}

/// Where an endpoint listens for peers of other nodes, by its whole address.
pub(crate) fn place(address: &Address) -> Option<SocketAddr> {
    let Ok(AutoAddress::Whole { members, .. }) = AutoAddress::parse(address) else { return None };
    let tcp = members.iter().find(|member| member.scheme() == "tcp")?.rest();
    tcp.strip_suffix(ENCRYPT.0).unwrap_or(tcp).parse().ok()
}

fn write_place(out: &mut Name, place: SocketAddr) {
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
    out[57..59].copy_from_slice(&place.port().to_be_bytes());
}

fn read_place(name: &Name) -> Option<SocketAddr> {
    let ip: IpAddr = match name[40] & !ENCRYPT.1 {
        4 => Ipv4Addr::from(*name[41..].first_chunk::<4>()?).into(),
        6 => Ipv6Addr::from(*name[41..].first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*name[57..].first_chunk::<2>()?)))
}

/// The name of an endpoint of a job at this address; `None` if it is not of the two transports.
fn encode(address: &Address, job: Job) -> Option<Name> {
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
    write_place(&mut out, place);
    out[40] |= encrypts;
    out[59..63].copy_from_slice(&job);
    Some(out)
}

/// The address that a name stands for, and the job; `None` if it is none.
fn decode(name: &Name) -> Option<(Address, Job)> {
    let (magic, rest) = name.split_first_chunk::<8>()?;
    let (node, rest) = rest.split_first_chunk::<8>()?;
    let len = usize::from(rest[0]);
    let shm = std::str::from_utf8(rest[1..].get(..len.min(LONGEST))?).ok()?;
    let option = if name[40] & ENCRYPT.1 == 0 { "" } else { ENCRYPT.0 };
    let place = read_place(name)?;
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
    fn hosts_and_ports_there_and_back() {
        for text in ["127.0.0.1:4040", "[fe80::1:2:3:4]:65535", "0.0.0.0:0"] {
            let place = Named::Place(text.parse().unwrap());
            let name = place.encode().unwrap();
            assert_eq!(Named::decode(&name), Some(place.clone()));
            assert_eq!(Named::parse(&place.to_text()), Some(place.clone()));
            assert_eq!(place.to_text(), format!("auto://{text}"));
            // Every byte counts: another value is another place, or none.
            for at in 0..LEN {
                let mut other = name;
                other[at] ^= 0x15;
                let decoded = Named::decode(&other);
                assert_ne!(decoded, Some(place.clone()), "{at}");
                let again = decoded.map(|named| named.encode());
                assert!(again.is_none_or(|again| again == Some(other)), "{at}");
            }
        }
    }

    #[test]
    fn as_text() {
        let text = "auto://0123456789abcdef/shm://x,tcp://10.0.0.7:4040?encrypt";
        let (address, job) = (Address::parse(text).unwrap(), [1, 2, 3, 0xff]);
        let named = Named::Whole(address.clone(), Some(job));
        assert_eq!(named.to_text(), format!("{text}#010203ff"));
        assert_eq!(Named::parse(&named.to_text()), Some(named.clone()));
        assert_eq!(Named::parse(text), Some(Named::Whole(address, None)));
        assert_eq!(named.place(), Some("10.0.0.7:4040".parse().unwrap()));
        assert_eq!(Named::decode(&named.encode().unwrap()), Some(named));
        for bad in ["", "x", "auto://x", "auto://1.2.3.4", "auto://1.2.3.4:1#00000000"] {
            assert_eq!(Named::parse(bad), None, "{bad}");
        }
        for bad in ["#", "#1", "#0102030", "#0102030g", "#010203ff0"] {
            assert_eq!(Named::parse(&format!("{text}{bad}")), None, "{bad}");
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
