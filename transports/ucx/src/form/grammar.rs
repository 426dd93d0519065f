//! The grammar of addresses of workers, without what they mean.
//!
//! A header (the version of the form, and flags), a number of the worker, and then devices: an
//! index of the memory domain, the length of the device's address with flags, that address, and for
//! each transport on the device a checksum of its name, 16 bytes of attributes (8 in the second
//! version of the form), the length of the transport's address with flags, and that address. The
//! last device may be one without transports, whose index is the release that packed all this (1.16
//! and later).

use super::bytes::Bytes;

/// In a header: which flags an address of a worker has, and no other does; the number of the worker
/// is there.
pub(super) const WORKER: u8 = 1 << 1;
/// In an index of a memory domain: no transports follow.
const EMPTY: u8 = 0x80;
/// In lengths: the last of its list.
const LAST: u8 = 0x80;
/// In the length of a device's address: the number of paths follows, and the system's number of the
/// device.
const PATHS: u8 = 0x40;
const SYSTEM: u8 = 0x20;
/// In the length of a transport's address: addresses of endpoints follow. Not in that of a worker.
const ENDPOINTS: u8 = 0x40;
/// Transports in one address, at most, in UCX.
const MOST: usize = 128;
/// More paths than any device has.
const MOST_PATHS: u8 = 64;
/// Releases are packed in so many bits.
pub(super) const RELEASES: u32 = 16;

/// One transport on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) domain: u8,
    /// The flags of the device.
    pub(super) flags: u8,
    pub(super) device: &'a [u8],
    pub(super) transport: u16,
    pub(super) attributes: &'a [u8],
    pub(super) interface: &'a [u8],
}

/// An address, taken apart.
#[derive(Clone, Debug)]
pub(super) struct Parsed<'a> {
    pub(super) version: u8,
    pub(super) flags: u8,
    pub(super) worker: u64,
    pub(super) entries: Vec<Entry<'a>>,
    /// The release that packed it, modulo [`RELEASES`], if it is said.
    pub(super) release: Option<u8>,
}

/// Takes an address apart. `None` if it does not end where it says, or says what no worker says.
pub(super) fn parse(name: &[u8], indexed: bool) -> Option<Parsed<'_>> {
    let mut rest = Bytes(name);
    let first = rest.byte()?;
    // 0 and 1: the first and the second.
    let version = first & 0xf;
    let (flags, mut release) = match version {
        0 => (first >> 4, None),
        1 => (rest.byte()?, Some(first >> 4)),
        _ => return None,
    };
    let worker = u64::from_le_bytes(rest.array()?);
    // In a debug build of UCX: a name.
    if flags & 1 != 0 {
        let len = rest.byte()?;
        rest.take(len.into())?;
    }
    if flags & !1 != WORKER {
        return None;
    }
    let mut entries: Vec<Entry<'_>> = Vec::new();
    loop {
        let domain = rest.byte()?;
        let (flags, len) = length(rest.byte()?, &mut rest, LAST | PATHS | SYSTEM, version)?;
        if domain & EMPTY != 0 {
            // The release, and nothing else.
            if version != 0 || flags != LAST || len != 0 || domain & !EMPTY >= RELEASES as u8 {
                return None;
            }
            release = Some(domain & !EMPTY);
            break;
        }
        // In the second version the highest index says that another byte follows: more domains than
        // there are.
        if version != 0 && domain >= 31 {
            return None;
        }
        if flags & PATHS != 0 && !(1..=MOST_PATHS).contains(&rest.byte()?) {
            return None;
        }
        if flags & SYSTEM != 0 {
            rest.byte()?;
        }
        let device = rest.take(len)?;
        loop {
            let transport = u16::from_le_bytes(rest.array()?);
            let attributes = rest.take(if version == 0 { 16 } else { 8 })?;
            rest.take(usize::from(indexed))?;
            let (ends, len) = length(rest.byte()?, &mut rest, LAST | ENDPOINTS, version)?;
            let interface = rest.take(len)?;
            if ends & ENDPOINTS != 0 || entries.len() == MOST {
                return None;
            }
            let flags = flags & !LAST;
            entries.push(Entry { domain, flags, device, transport, attributes, interface });
            if ends & LAST != 0 {
                break;
            }
        }
        if flags & LAST != 0 {
            break;
        }
    }
    (rest.is_empty() && !entries.is_empty()).then_some(Parsed {
        version,
        flags,
        worker,
        entries,
        release,
    })
}

/// Flags and a length in one byte; in the second version the longest says that another byte has it.
fn length(byte: u8, rest: &mut Bytes<'_>, flags: u8, version: u8) -> Option<(u8, usize)> {
    let len = match byte & !flags {
        len if version != 0 && len == !flags => rest.byte()?,
        len => len,
    };
    Some((byte & flags, len.into()))
}

/// As UCX makes it of the names of transports: CRC-16/X-25.
pub(super) fn crc16(text: &[u8]) -> u16 {
    !text.iter().fold(u16::MAX, |crc, byte| {
        (0..8)
            .fold(crc ^ u16::from(*byte), |crc, _| crc >> 1 ^ if crc & 1 == 0 { 0 } else { 0x8408 })
    })
}
