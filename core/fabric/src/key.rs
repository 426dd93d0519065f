//! Exported keys: with them one process lets another access its memory.

use crate::{Access, Address, ExportError, ImportError, Incarnation};
use bytes::{BufMut, Bytes};
use std::time::Duration;

/// The right to access a region: opaque bytes, at most [`Key::MAX`], made by
/// [`Endpoint::export`](crate::Endpoint::export).
///
/// To users it is bytes to be carried. To transports it is the owner's address and incarnation,
/// the region's length and rights, and one *route* per way to reach it, whose bytes are the
/// transport's own. A key that came from outside is only bytes until [`Key::parse`] checked it.
///
/// ```
/// use petasos_fabric::{Access, Endpoint, Key, Region};
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let memory = Region::zeroed(4096);
/// let region = endpoint.register(&memory.slice(0, 100).unwrap(), Access::READ)?;
/// // These bytes go to another process, in a message of the protocol's own.
/// let bytes = endpoint.export(region)?.as_bytes().clone();
/// let key = Key::from_bytes(bytes)?;
/// let parts = key.parse()?;
/// assert_eq!((parts.len, parts.access), (100, Access::READ));
/// assert_eq!(&parts.owner, endpoint.address());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key(Bytes);

/// Names a key to a part of a region, made by
/// [`Endpoint::export_part`](crate::Endpoint::export_part): a handle, valid at that endpoint until
/// the key is revoked or its region is deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KeyId {
    /// Slot in the endpoint's table.
    pub index: u32,
    /// How often that slot was used before.
    pub generation: u32,
}

/// The meaning of a key, checked.
#[derive(Clone, Debug)]
pub struct KeyParts {
    /// The owner of the memory.
    pub owner: Address,
    /// The incarnation of the owner.
    pub incarnation: Incarnation,
    /// Length of the region in bytes.
    pub len: u64,
    /// What the holder may do.
    pub access: Access,
    /// Ways to reach it: the kind of route, and its bytes.
    pub routes: Vec<(u8, Bytes)>,
}

const FORMAT: u8 = 1;
const MAX_ROUTES: usize = 8;
/// Bytes of a key without the address and the routes.
const FIXED: usize = 20;

impl Key {
    /// The longest key in bytes.
    pub const MAX: usize = 512;

    /// Kind of the route through the two-sided engine: see [`crate::two_sided`].
    pub const ROUTE_TWO_SIDED: u8 = 1;
    /// Kind of the route by a virtual address in the owner's process.
    pub const ROUTE_ADDRESS: u8 = 2;
    /// Kind of the route by a segment that can be mapped.
    pub const ROUTE_SEGMENT: u8 = 3;
    /// Kind of the route by a slot in a table that both sides see, inside one process.
    pub const ROUTE_SLOT: u8 = 4;
    /// Kind of the route by a network device that reaches registered memory by itself.
    pub const ROUTE_DEVICE: u8 = 5;
    /// Kind of the route through one of several transports under a common address.
    pub const ROUTE_MEMBER: u8 = 6;

    /// How long an import tries to connect to the owner of the key.
    pub const IMPORT_PATIENCE: Duration = Duration::from_secs(5);

    /// A key that came from outside; checked when it is used.
    ///
    /// # Errors
    /// [`ImportError::Malformed`] for more than [`Key::MAX`] bytes.
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Key, ImportError> {
        let bytes = bytes.into();
        if bytes.len() > Key::MAX {
            return Err(ImportError::Malformed("longer than a key can be"));
        }
        Ok(Key(bytes))
    }

    /// Its bytes, to be carried.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// Encodes the parts.
    ///
    /// # Errors
    /// [`ExportError::TooLong`] if the owner's address and the routes do not fit: in all
    /// [`Key::MAX`] bytes, at most 8 routes, the address and each route at most 255 bytes.
    pub fn compose(parts: &KeyParts) -> Result<Key, ExportError> {
        let owner = parts.owner.as_str().as_bytes();
        let routes = || parts.routes.iter().map(|(_, bytes)| bytes.len());
        let len = FIXED + owner.len() + routes().map(|len| 2 + len).sum::<usize>();
        let longest = routes().chain([owner.len()]).max().unwrap_or(0);
        if len > Key::MAX || longest > usize::from(u8::MAX) || parts.routes.len() > MAX_ROUTES {
            return Err(ExportError::TooLong { len, routes: parts.routes.len() });
        }
        let mut out = Vec::with_capacity(128);
        out.put_u8(FORMAT);
        out.put_u8(parts.access.bits());
        out.put_u8(parts.routes.len() as u8);
        out.put_u8(owner.len() as u8);
        out.put_u64_le(parts.incarnation.get());
        out.put_u64_le(parts.len);
        out.put_slice(owner);
        for (kind, bytes) in &parts.routes {
            out.put_u8(*kind);
            out.put_u8(bytes.len() as u8);
            out.put_slice(bytes);
        }
        Ok(Key(out.into()))
    }

    /// Checks the bytes and reads the parts.
    ///
    /// # Errors
    /// [`ImportError::Malformed`] if bytes are missing, left over or make no sense;
    /// [`ImportError::Version`] if the format is of another version.
    pub fn parse(&self) -> Result<KeyParts, ImportError> {
        const SHORT: ImportError = ImportError::Malformed("cut short");
        let mut rest = &self.0[..];
        let mut take = |count: usize| -> Result<&[u8], ImportError> {
            let (head, tail) = rest.split_at_checked(count).ok_or(SHORT)?;
            rest = tail;
            Ok(head)
        };
        let &[format, access, routes, owner_len] = take(4)? else {
            return Err(SHORT);
        };
        if format != FORMAT {
            return Err(ImportError::Version(format));
        }
        let access = Access::from_bits(access).ok_or(ImportError::Malformed("unknown rights"))?;
        if usize::from(routes) > MAX_ROUTES {
            return Err(ImportError::Malformed("too many routes"));
        }
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).map_err(|_| SHORT);
        let incarnation =
            Incarnation::new(number(take(8)?)?).ok_or(ImportError::Malformed("no incarnation"))?;
        let len = number(take(8)?)?;
        let owner = std::str::from_utf8(take(usize::from(owner_len))?)
            .ok()
            .and_then(|text| Address::parse(text).ok())
            .ok_or(ImportError::Malformed("no address"))?;
        let mut list = Vec::with_capacity(usize::from(routes));
        for _ in 0..routes {
            let &[kind, len] = take(2)? else {
                return Err(SHORT);
            };
            list.push((kind, Bytes::copy_from_slice(take(usize::from(len))?)));
        }
        if !rest.is_empty() {
            return Err(ImportError::Malformed("too long for what it says"));
        }
        Ok(KeyParts { owner, incarnation, len, access, routes: list })
    }
}

impl KeyParts {
    /// The bytes of the route of this kind.
    #[must_use]
    pub fn route(&self, kind: u8) -> Option<&Bytes> {
        self.routes.iter().find(|(k, _)| *k == kind).map(|(_, bytes)| bytes)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_parts() -> KeyParts {
        KeyParts {
            owner: Address::parse("tcp://127.0.0.1:99").unwrap(),
            incarnation: Incarnation::new(7).unwrap(),
            len: 12,
            access: Access::READ,
            routes: vec![(1, Bytes::from_static(b"abc")), (9, Bytes::new())],
        }
    }

    fn sample() -> Key {
        Key::compose(&sample_parts()).unwrap()
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let compose = |routes: &[usize]| {
            let routes = routes.iter().map(|len| (1, Bytes::from(vec![7; *len]))).collect();
            Key::compose(&KeyParts { routes, ..sample_parts() })
        };
        let fixed = FIXED + sample_parts().owner.as_str().len();
        // As long as a key can be, in two routes; and one byte more.
        let rest = Key::MAX - fixed - 2 - 2 - 255;
        let longest = compose(&[255, rest]).unwrap();
        assert_eq!(longest.as_bytes().len(), Key::MAX);
        assert_eq!(longest.parse().unwrap().routes[1].1.len(), rest);
        let (len, routes) = (Key::MAX + 1, 2);
        assert_eq!(compose(&[255, rest + 1]), Err(ExportError::TooLong { len, routes }));
        // A length that its byte cannot say.
        let len = fixed + 2 + 256;
        assert_eq!(compose(&[256]), Err(ExportError::TooLong { len, routes: 1 }));
        assert!(compose(&[1; MAX_ROUTES]).unwrap().parse().is_ok());
        let len = fixed + 3 * (MAX_ROUTES + 1);
        let routes = MAX_ROUTES + 1;
        assert_eq!(compose(&[1; MAX_ROUTES + 1]), Err(ExportError::TooLong { len, routes }));
    }

    #[test]
    fn there_and_back() {
        let parts = sample().parse().unwrap();
        assert_eq!(parts.owner.as_str(), "tcp://127.0.0.1:99");
        assert_eq!((parts.incarnation.get(), parts.len, parts.access), (7, 12, Access::READ));
        assert_eq!(parts.route(1).unwrap(), &Bytes::from_static(b"abc"));
        assert_eq!(parts.route(9).unwrap().len(), 0);
        assert!(parts.route(2).is_none());
    }

    #[test]
    fn cut_anywhere_it_is_refused() {
        let bytes = sample().as_bytes().clone();
        for len in 0..bytes.len() {
            assert!(Key::from_bytes(bytes.slice(..len)).unwrap().parse().is_err(), "cut at {len}");
        }
        let mut longer = bytes.to_vec();
        longer.push(0);
        assert!(Key::from_bytes(longer).unwrap().parse().is_err());
    }
}
