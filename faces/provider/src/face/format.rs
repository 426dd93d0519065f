//! How programs carry addresses: as names of 64 bytes, as text, or as Internet addresses.

use crate::state::{
    error::Errno,
    name::{LEN, Name, Named},
};
use petasos_ofi_sys::*;
use std::{
    ffi::{CStr, c_char, c_void},
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    ptr, slice,
};

/// Names of 64 bytes of this provider's own.
pub(super) const OWN: u32 = FI_PROV_SPECIFIC | 0x7065;
/// The longest text, with its zero, in bytes.
const TEXT: usize = 256;

/// A format of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// `petasos_name`: whole addresses of one length.
    Own,
    /// `FI_ADDR_STR`: URLs, each with a zero behind it.
    Text,
    /// `FI_SOCKADDR_IN`: hosts and ports.
    Internet,
    /// `FI_SOCKADDR_IN6`
    Internet6,
}

impl Format {
    /// The one with this number of libfabric's; `None`: it is none of these.
    pub(super) fn of(number: u32) -> Option<Format> {
        match number {
            FI_FORMAT_UNSPEC | OWN => Some(Format::Own),
            FI_ADDR_STR => Some(Format::Text),
            FI_SOCKADDR | FI_SOCKADDR_IN => Some(Format::Internet),
            FI_SOCKADDR_IN6 => Some(Format::Internet6),
            _ => None,
        }
    }

    pub(super) fn number(self) -> u32 {
        match self {
            Format::Own => OWN,
            Format::Text => FI_ADDR_STR,
            Format::Internet => FI_SOCKADDR_IN,
            Format::Internet6 => FI_SOCKADDR_IN6,
        }
    }

    /// No address in particular.
    pub(super) fn anywhere(self) -> Named {
        let ip: IpAddr = match self {
            Format::Internet6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => Ipv4Addr::UNSPECIFIED.into(),
        };
        Named::Place(SocketAddr::new(ip, 0))
    }

    /// An address in this format; `None` if that has no such addresses.
    pub(super) fn encode(self, named: &Named) -> Option<Vec<u8>> {
        match (self, named.place()) {
            (Format::Own, _) => named.encode().map(Vec::from),
            (Format::Text, _) => {
                let mut text = named.to_text().into_bytes();
                text.push(0);
                Some(text)
            }
            (Format::Internet, Some(SocketAddr::V4(place))) => {
                let mut bytes = vec![0; size_of::<libc::sockaddr_in>()];
                bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                bytes[2..4].copy_from_slice(&place.port().to_be_bytes());
                bytes[4..8].copy_from_slice(&place.ip().octets());
                Some(bytes)
            }
            (Format::Internet6, Some(SocketAddr::V6(place))) => {
                let mut bytes = vec![0; size_of::<libc::sockaddr_in6>()];
                bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                bytes[2..4].copy_from_slice(&place.port().to_be_bytes());
                bytes[8..24].copy_from_slice(&place.ip().octets());
                Some(bytes)
            }
            _ => None,
        }
    }

    /// The address that begins these bytes, if it is one, and how long it is. What is longer is
    /// cut, and so it is none.
    fn decode(self, bytes: &[u8]) -> (Option<Named>, usize) {
        match self {
            Format::Own => {
                let name: Option<&Name> = bytes.first_chunk();
                (name.and_then(Named::decode), LEN)
            }
            Format::Text => {
                let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
                let text = std::str::from_utf8(&bytes[..end]).ok();
                (text.and_then(super::hosts::named), end + 1)
            }
            Format::Internet => {
                let named = || {
                    let family = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family))?;
                    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
                    let ip = Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?);
                    let there = i32::from(family) == libc::AF_INET;
                    there.then(|| Named::Place(SocketAddr::new(ip.into(), port)))
                };
                (named(), size_of::<libc::sockaddr_in>())
            }
            Format::Internet6 => {
                let named = || {
                    let family = bytes.first_chunk().map(|family| u16::from_ne_bytes(*family))?;
                    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
                    let ip = Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?);
                    let there = i32::from(family) == libc::AF_INET6;
                    there.then(|| Named::Place(SocketAddr::new(ip.into(), port)))
                };
                (named(), size_of::<libc::sockaddr_in6>())
            }
        }
    }

    /// How long an address is, where all are of one length.
    fn fixed(self) -> Option<usize> {
        match self {
            Format::Own => Some(LEN),
            Format::Text => None,
            Format::Internet => Some(size_of::<libc::sockaddr_in>()),
            Format::Internet6 => Some(size_of::<libc::sockaddr_in6>()),
        }
    }

    /// The address at this place, if it is one, and how long it is.
    ///
    /// # Safety
    /// There is an address of this format: so many bytes, or a text with a zero at its end.
    pub(super) unsafe fn read(self, at: *const u8) -> (Option<Named>, usize) {
        let len = match self.fixed() {
            Some(len) => len,
            // SAFETY: a text with a zero at its end (the caller's promise).
            None => unsafe { CStr::from_ptr(at.cast::<c_char>()) }.count_bytes() + 1,
        };
        // SAFETY: so long (the caller's promise), and copied at once.
        let bytes = unsafe { slice::from_raw_parts(at, len) }.to_vec();
        match self {
            Format::Text if len > TEXT => (None, len),
            _ => self.decode(&bytes),
        }
    }

    /// An address of a description, if it has one.
    ///
    /// # Errors
    /// It is none.
    ///
    /// # Safety
    /// `at` is null or there are `len` bytes.
    pub(super) unsafe fn given(
        self,
        at: *const c_void,
        len: usize,
    ) -> Result<Option<Named>, Errno> {
        if at.is_null() || len == 0 {
            return Ok(None);
        }
        let least = self.fixed().unwrap_or(1);
        if len < least || self.fixed().is_none() && len > TEXT {
            return Err(libc::EINVAL);
        }
        // SAFETY: not null, and so long (the caller's promise); copied at once.
        let bytes = unsafe { slice::from_raw_parts(at.cast::<u8>(), len) }.to_vec();
        self.decode(&bytes).0.map(Some).ok_or(libc::EINVAL)
    }
}

/// A copy for `free`. Null where there is no memory.
pub(super) fn copied(bytes: &[u8]) -> *mut c_void {
    // SAFETY: takes any size.
    let at = unsafe { libc::malloc(bytes.len().max(1)) };
    if !at.is_null() {
        // SAFETY: there is so much room, in memory that was allocated just now.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>(), bytes.len()) };
    }
    at
}

/// Writes an address, or as much as there is room for, and its length. False: that is not all.
///
/// # Errors
/// There is no length, or no place.
///
/// # Safety
/// `len` is null or that of the room at `out`, which is null or has so much.
pub(super) unsafe fn tell(bytes: &[u8], out: *mut c_void, len: *mut usize) -> Result<bool, Errno> {
    // SAFETY: null, or a length (the caller's promise).
    let room = unsafe { len.as_mut() }.ok_or(libc::EINVAL)?;
    let given = mem::replace(room, bytes.len());
    let fits = given.min(bytes.len());
    if fits > 0 && out.is_null() {
        return Err(libc::EINVAL);
    }
    if fits > 0 {
        // SAFETY: no more than there is room for, in memory that is not ours.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), out.cast(), fits) };
    }
    Ok(given >= bytes.len())
}

/// Whether what a function of libfabric's is to write has fit.
pub(super) fn whole(fits: bool) -> Result<isize, Errno> {
    if fits { Ok(0) } else { Err(FI_ETOOSMALL) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let url = "auto://0123456789abcdef/shm://x,tcp://10.0.0.7:4040#01020304";
        let (whole, four) = (Named::parse(url).unwrap(), Named::parse("auto://10.0.0.7:4040"));
        let (four, six) = (four.unwrap(), Named::parse("auto://[fe80::1]:4040").unwrap());
        let all = [Format::Own, Format::Text, Format::Internet, Format::Internet6];
        for format in all {
            assert_eq!(Format::of(format.number()), Some(format));
            for named in [&whole, &four, &six, &format.anywhere()] {
                let Some(bytes) = format.encode(named) else {
                    let other = named.place().is_some_and(|place| place.is_ipv4());
                    assert_eq!(format, if other { Format::Internet6 } else { Format::Internet });
                    continue;
                };
                let place = Named::Place(named.place().unwrap());
                let known = if format.fixed() != Some(LEN) && format != Format::Text {
                    &place
                } else {
                    named
                };
                assert_eq!(format.decode(&bytes), (Some(known.clone()), bytes.len()), "{format:?}");
                // SAFETY: bytes that were written so, with a zero behind a text.
                let read = unsafe { format.read(bytes.as_ptr()) };
                assert_eq!(read, (Some(known.clone()), bytes.len()));
                for len in 0..bytes.len() - 1 {
                    // SAFETY: there are more bytes than that.
                    let given = unsafe { format.given(bytes.as_ptr().cast(), len) };
                    assert_ne!(given, Ok(Some(known.clone())), "{format:?} cut at {len}");
                }
            }
        }
        assert_eq!(Format::of(FI_FORMAT_UNSPEC), Some(Format::Own));
        assert_eq!(Format::of(FI_SOCKADDR), Some(Format::Internet));
        assert_eq!(Format::of(4), None);
        let mut other = Format::Internet.encode(&four).unwrap();
        other[0] = libc::AF_UNIX as u8;
        assert_eq!(Format::Internet.decode(&other).0, None);
    }
}
