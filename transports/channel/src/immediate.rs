//! Operations that ride in messages, for devices that carry immediate puts so, as the NICs of
//! `petasos-datagram`.
//!
//! The target's side writes what arrives into the memory that is registered there. It names the
//! memory by a [`Name`] with a secret that is part of the key: a peer that was not given the key
//! writes nowhere.

use crate::{
    DeviceEvent,
    device::{Fault, Node, Registration},
};
use petasos_fabric::{Access, Slice};

/// The length of a [`Name`], in bytes.
pub const NAME: usize = 16;
/// What names memory in messages: a registration, and a secret that cannot be guessed.
pub type Name = [u8; NAME];

/// The name of a registration.
#[must_use]
pub fn name(registration: Registration, secret: u64) -> Name {
    let mut name = [0; NAME];
    name[..8].copy_from_slice(&registration.0.to_le_bytes());
    name[8..].copy_from_slice(&secret.to_le_bytes());
    name
}

/// The registration and the secret that a name consists of.
#[must_use]
pub fn named(name: Name) -> (Registration, u64) {
    let number = u128::from_le_bytes(name);
    (Registration(number as u64), (number >> 64) as u64)
}

/// Where an immediate put goes: what stands before its bytes.
///
/// | bytes | what |
/// |---|---|
/// | 0 | whether there is an event |
/// | 1..17 | the name with which the memory's key begins: registration and secret |
/// | 17..25 | offset in the memory, little-endian |
/// | 25..33 | the data of the event, little-endian |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutHeader {
    /// The memory.
    pub name: Name,
    /// Where in it the put begins, in bytes.
    pub offset: u64,
    /// The data of its event, if it has one.
    pub event: Option<u64>,
}

impl PutHeader {
    /// Its length, in bytes.
    pub const LEN: usize = 1 + NAME + 8 + 8;

    /// Encodes it.
    #[inline]
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = self.event.is_some().into();
        bytes[1..1 + NAME].copy_from_slice(&self.name);
        bytes[1 + NAME..Self::LEN - 8].copy_from_slice(&self.offset.to_le_bytes());
        bytes[Self::LEN - 8..].copy_from_slice(&self.event.unwrap_or_default().to_le_bytes());
        bytes
    }

    /// Decodes these bytes, each of which means something.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> PutHeader {
        let (mut name, mut offset, mut data) = ([0; NAME], [0; 8], [0; 8]);
        name.copy_from_slice(&bytes[1..1 + NAME]);
        offset.copy_from_slice(&bytes[1 + NAME..Self::LEN - 8]);
        data.copy_from_slice(&bytes[Self::LEN - 8..]);
        let event = (bytes[0] != 0).then_some(u64::from_le_bytes(data));
        PutHeader { name, offset: u64::from_le_bytes(offset), event }
    }
}

/// Memory that was opened to such operations.
#[derive(Debug)]
pub struct Opened {
    /// The memory.
    pub memory: Slice,
    /// What others may do with it.
    pub access: Access,
    /// The user's tag, which comes with events.
    pub tag: u64,
    /// The secret in its name.
    pub secret: u64,
}

impl Opened {
    /// A part of the memory, for an access that needs this right, by one who knows the secret.
    ///
    /// # Errors
    /// [`Fault::Stale`] if the secret is not this memory's, [`Fault::Denied`] if it was not opened
    /// so, [`Fault::OutOfBounds`] if the part is not in it.
    #[inline]
    pub fn part(
        &self,
        secret: u64,
        offset: u64,
        len: usize,
        needed: Access,
    ) -> Result<Slice, Fault> {
        if secret != self.secret {
            return Err(Fault::Stale);
        }
        if !self.access.allows(needed) {
            return Err(Fault::Denied);
        }
        let at = usize::try_from(offset).map_err(|_| Fault::OutOfBounds)?;
        self.memory.part(at, len).ok_or(Fault::OutOfBounds)
    }

    /// The event of a put of `len` bytes that was written here, if it has one.
    #[inline]
    #[must_use]
    pub fn arrived(&self, node: Node, put: &PutHeader, len: usize) -> Option<DeviceEvent> {
        let (tag, offset, len) = (self.tag, put.offset, len as u64);
        put.event.map(|data| DeviceEvent::PutArrived { node, tag, offset, len, data })
    }
}

/// By their codes in messages.
const FAULTS: [Fault; 4] = [Fault::Stale, Fault::Denied, Fault::OutOfBounds, Fault::Unsupported];

/// The code of a fault in a message.
#[must_use]
pub fn code(fault: Fault) -> u8 {
    let at = FAULTS.iter().position(|known| *known == fault);
    at.unwrap_or(FAULTS.len() - 1) as u8
}

/// What a code of a message means; an unknown one, that the peer does not do that.
#[must_use]
pub fn fault(code: u8) -> Fault {
    FAULTS.get(usize::from(code)).copied().unwrap_or(Fault::Unsupported)
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::Region;

    #[test]
    fn headers_go_there_and_back() {
        let name = name(Registration(7 << 32 | 3), u64::MAX - 1);
        assert_eq!(named(name), (Registration(7 << 32 | 3), u64::MAX - 1));
        for event in [None, Some(0), Some(u64::MAX / 3)] {
            let put = PutHeader { name, offset: 1 << 40 | 5, event };
            assert_eq!(PutHeader::from_bytes(&put.to_bytes()), put);
        }
    }

    #[test]
    fn what_is_reached() {
        let memory = Region::zeroed(10).whole();
        let opened = Opened { memory, access: Access::WRITE, tag: 1, secret: 2 };
        let part = |secret, offset, len, needed| {
            opened.part(secret, offset, len, needed).map(|part| part.len())
        };
        assert_eq!(part(2, 4, 6, Access::WRITE), Ok(6));
        assert_eq!(part(3, 4, 6, Access::WRITE), Err(Fault::Stale));
        assert_eq!(part(2, 4, 6, Access::READ), Err(Fault::Denied));
        for offset in [5, u64::MAX - 2] {
            assert_eq!(part(2, offset, 6, Access::WRITE), Err(Fault::OutOfBounds));
        }
    }

    #[test]
    fn faults_have_codes() {
        for known in FAULTS {
            assert_eq!(fault(code(known)), known);
        }
        assert_eq!((fault(200), code(Fault::Misaligned)), (Fault::Unsupported, 3));
    }
}
