//! What this crate sends on its own: the header of each packet, and the control messages between
//! two endpoints.
//!
//! # Packets
//!
//! Each packet that goes through the library begins with a header of [`HEADER_LEN`] bytes,
//! little-endian; a packet of a NIC's follows ([`packet`](crate::nic::packet)), or nothing (then
//! it only acknowledges):
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | the sender's slot in the receiver's table; the highest bit says that the packet waits
//! for its completion data |
//! | 4..6 | how many packets of the receiver's the sender has taken so far, modulo 2^16 |
//! | 6..8 | the packet's number, modulo 2^16 |
//! | 8..16 | the ticket: a random number that the receiver gave to this sender alone |
//!
//! A packet without a valid ticket is thrown away. So nothing depends on whether a library reports
//! the source of a packet; nor, thanks to the number, on whether long packets overtake short ones,
//! as they do where a library fetches them. A mere acknowledgement has the number that the next
//! packet will have.
//!
//! A packet that waits for its completion data is part of a put, and arrives without its payload:
//! the library writes that to where it belongs, with [`CompletionData`].
//!
//! # Control messages
//!
//! They travel on the connection by which the two met; the first byte is the kind. Over TCP that
//! connection begins with the handshake of `petasos-tcp`, which proves the secret and is bound to
//! the address that was dialled and to the identities of both sides; a peer that connects is
//! dialled back before it is accepted. Over shared memory the kernel identifies the peer. So a
//! ticket is known to the one peer that it was given to, and bound to what that connection is bound
//! to. (In the headers of packets it is in clear on the library's network, and only as secret as
//! that is.)

use petasos_fabric::Access;

/// The length of a packet's header, in bytes.
pub const HEADER_LEN: usize = 16;
/// The longest name of an endpoint in the library's network, in bytes.
pub const MAX_NAME: usize = 2048;
/// What names a region, in bytes, in its key.
pub const TARGET: usize = 16;
/// The longest name of a library's protocol, in bytes.
pub const MAX_PROTOCOL: usize = 64;
/// What stands before it: the version of what packets carry, and of how long they may be where that
/// depends on the library. Endpoints of different versions refuse each other.
pub const CHANNELS: &str = "channels 4;";
/// The longest description of memory that is open to a peer, in bytes.
pub const MAX_LOCATION: usize = 1024;
/// The version of this format.
const VERSION: u8 = 4;

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's slot in the receiver's table.
    pub slot: u32,
    /// How many packets were taken so far, modulo 2^16.
    pub taken: u16,
    /// The packet's number.
    pub number: u16,
    /// The random number that the receiver gave to this sender.
    pub ticket: u64,
}

impl Header {
    /// Encodes it.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; HEADER_LEN] {
        let low = u64::from(self.number) << 48 | u64::from(self.taken) << 32 | u64::from(self.slot);
        (u128::from(self.ticket) << 64 | u128::from(low)).to_le_bytes()
    }

    /// Decodes these bytes.
    #[inline]
    #[must_use]
    pub fn from_bytes(bytes: [u8; HEADER_LEN]) -> Header {
        let word = u128::from_le_bytes(bytes);
        Header::from_words(word as u64, (word >> 64) as u64)
    }

    /// Decodes two words in the byte order of this processor.
    #[inline]
    pub(crate) fn from_words(low: u64, ticket: u64) -> Header {
        Header { slot: low as u32, taken: (low >> 32) as u16, number: (low >> 48) as u16, ticket }
    }
}

/// In [`Header::slot`]: the packet is to be taken when its completion data has arrived. Slots are
/// smaller.
pub const WAITS: u32 = 1 << 31;

/// The completion data of a write by the library of a packet's payload.
///
/// Its lower bits say which of the packets that may be under way is meant, the others are the
/// receiver's *name* of the link. The name is random: every process that can write to the library's
/// port can send completion data. There are more numbers than packets under way, so that late
/// completion data is not taken for that of another packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionData {
    /// The receiver's name of the link.
    pub name: u64,
    /// The packet's number, modulo 2^8.
    pub number: u8,
}

impl CompletionData {
    const NUMBER: u32 = u8::BITS;
    /// The fewest bits of completion data that are made use of: with fewer a name would be guessed
    /// soon.
    pub const LEAST: u32 = 32;

    /// How many different names there are with this many bits of completion data. They begin with
    /// 1.
    #[must_use]
    pub fn names(bits: u32) -> u64 {
        match bits {
            Self::LEAST.. => u64::MAX >> (64 - (bits.min(64) - Self::NUMBER)),
            _ => 0,
        }
    }

    /// Encodes it in this many bits; `None` if the name needs more.
    #[inline]
    #[must_use]
    pub fn to_data(self, bits: u32) -> Option<u64> {
        let known = (1..=Self::names(bits)).contains(&self.name);
        known.then_some(self.name << Self::NUMBER | u64::from(self.number))
    }

    /// Decodes completion data.
    #[inline]
    #[must_use]
    pub fn from_data(data: u64) -> CompletionData {
        CompletionData { name: data >> Self::NUMBER, number: data as u8 }
    }
}

/// A grant: leave to access a region through the library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permission {
    /// Key and place, in the form in which the library takes it.
    pub location: Vec<u8>,
    /// The rights that are granted.
    pub access: Access,
    /// With what completion data to the owner begins: see [`CompletionData`]. 0: there is none
    /// here.
    pub notice: u64,
}

/// A message on the connection between two endpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// My name in the library's network, and what you write into the headers of packets to me.
    Hello {
        /// Your slot in my table.
        slot: u32,
        /// Your ticket.
        ticket: u64,
        /// The protocol that I speak through the library, after [`CHANNELS`].
        protocol: String,
        /// My name in the fabric.
        name: Vec<u8>,
    },
    /// I sent something: poll.
    Ring,
    /// I poll: do not ring.
    Awake,
    /// I want to sleep: ring from now on, and say how much you sent before.
    Sleep,
    /// I ring for you from now on; before, I sent this many packets.
    Rung(u32),
    /// I end. I sent this many packets.
    Bye(u32),
    /// I hold the key of this region of yours: grant me access to it through the library.
    Ask([u8; TARGET]),
    /// Granted.
    Grant([u8; TARGET], Permission),
    /// Not granted.
    Refuse([u8; TARGET]),
    /// I close the region: return the grant.
    Revoke([u8; TARGET]),
    /// I return the grant: nothing of mine is under way to the region any more.
    Released([u8; TARGET]),
    /// I end, or forget you: nothing of mine is under way to any region of yours, nor will be.
    Returned,
}

/// Not a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a control message: {0}")]
pub struct Garbled(pub &'static str);

const HELLO: u8 = 1;
const RING: u8 = 2;
const AWAKE: u8 = 3;
const SLEEP: u8 = 4;
const RUNG: u8 = 5;
const BYE: u8 = 6;
const ASK: u8 = 7;
const GRANT: u8 = 8;
const REFUSE: u8 = 9;
const REVOKE: u8 = 10;
const RELEASED: u8 = 11;
const RETURNED: u8 = 12;

impl Control {
    /// Encodes it.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let number = |kind: u8, number: &u32| {
            let mut out = vec![kind];
            out.extend_from_slice(&number.to_le_bytes());
            out
        };
        let named = |kind: u8, target: &[u8; TARGET]| {
            let mut out = vec![kind];
            out.extend_from_slice(target);
            out
        };
        match self {
            Control::Hello { slot, ticket, protocol, name } => {
                let mut out = vec![HELLO, VERSION];
                out.extend_from_slice(&slot.to_le_bytes());
                out.extend_from_slice(&ticket.to_le_bytes());
                out.push(protocol.len() as u8);
                out.extend_from_slice(protocol.as_bytes());
                out.extend_from_slice(name);
                out
            }
            Control::Ring => vec![RING],
            Control::Awake => vec![AWAKE],
            Control::Sleep => vec![SLEEP],
            Control::Rung(count) => number(RUNG, count),
            Control::Bye(count) => number(BYE, count),
            Control::Ask(target) => named(ASK, target),
            Control::Grant(target, Permission { location, access, notice }) => {
                let mut out = named(GRANT, target);
                out.push(access.bits());
                out.extend_from_slice(&notice.to_le_bytes());
                out.extend_from_slice(location);
                out
            }
            Control::Refuse(target) => named(REFUSE, target),
            Control::Revoke(target) => named(REVOKE, target),
            Control::Released(target) => named(RELEASED, target),
            Control::Returned => vec![RETURNED],
        }
    }

    /// Decodes these bytes.
    ///
    /// # Errors
    /// They are not a control message of this version.
    pub fn from_bytes(bytes: &[u8]) -> Result<Control, Garbled> {
        let (&kind, rest) = bytes.split_first().ok_or(Garbled("empty"))?;
        let number = || rest.try_into().map(u32::from_le_bytes).map_err(|_| Garbled("no number"));
        let named = || rest.try_into().map_err(|_| Garbled("no region"));
        let alone = |control| if rest.is_empty() { Ok(control) } else { Err(Garbled("too long")) };
        match kind {
            HELLO => hello(rest),
            RING => alone(Control::Ring),
            AWAKE => alone(Control::Awake),
            SLEEP => alone(Control::Sleep),
            RUNG => number().map(Control::Rung),
            BYE => number().map(Control::Bye),
            ASK => named().map(Control::Ask),
            GRANT => grant(rest),
            REFUSE => named().map(Control::Refuse),
            REVOKE => named().map(Control::Revoke),
            RELEASED => named().map(Control::Released),
            RETURNED => alone(Control::Returned),
            _ => Err(Garbled("unknown kind")),
        }
    }
}

fn grant(rest: &[u8]) -> Result<Control, Garbled> {
    const WRONG: Garbled = Garbled("a grant of a bad length");
    let (target, rest) = rest.split_first_chunk().ok_or(WRONG)?;
    let (&access, rest) = rest.split_first().ok_or(WRONG)?;
    let (notice, location) = rest.split_first_chunk().ok_or(WRONG)?;
    let notice = u64::from_le_bytes(*notice);
    if location.is_empty() || location.len() > MAX_LOCATION {
        return Err(WRONG);
    }
    let access = Access::from_bits(access).ok_or(Garbled("a grant of unknown rights"))?;
    Ok(Control::Grant(*target, Permission { location: location.to_vec(), access, notice }))
}

fn hello(rest: &[u8]) -> Result<Control, Garbled> {
    const SHORT: Garbled = Garbled("a greeting cut short");
    let (&version, rest) = rest.split_first().ok_or(SHORT)?;
    if version != VERSION {
        return Err(Garbled("a greeting of another version"));
    }
    let (slot, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (ticket, rest) = rest.split_first_chunk().ok_or(SHORT)?;
    let (&len, rest) = rest.split_first().ok_or(SHORT)?;
    let (protocol, name) = rest.split_at_checked(usize::from(len)).ok_or(SHORT)?;
    let protocol =
        std::str::from_utf8(protocol).ok().filter(|p| p.len() <= CHANNELS.len() + MAX_PROTOCOL);
    if name.is_empty() || name.len() > MAX_NAME {
        return Err(Garbled("a greeting without a valid name"));
    }
    Ok(Control::Hello {
        slot: u32::from_le_bytes(*slot),
        ticket: u64::from_le_bytes(*ticket),
        protocol: protocol.ok_or(Garbled("a protocol without a name"))?.to_owned(),
        name: name.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn controls() -> impl Strategy<Value = Control> {
        let hello = (
            any::<u32>(),
            any::<u64>(),
            "[a-z;_]{0,73}",
            prop::collection::vec(any::<u8>(), 1..MAX_NAME),
        );
        let location = prop::collection::vec(any::<u8>(), 1..=MAX_LOCATION);
        let permission = (location, 0..8u8, any::<u64>()).prop_map(|(location, bits, notice)| {
            Permission { location, notice, access: Access::from_bits(bits).expect("three bits") }
        });
        prop_oneof![
            hello.prop_map(|(slot, ticket, protocol, name)| Control::Hello {
                slot,
                ticket,
                protocol,
                name
            }),
            prop::sample::select(vec![
                Control::Ring,
                Control::Awake,
                Control::Sleep,
                Control::Returned
            ]),
            any::<u32>().prop_map(Control::Rung),
            any::<u32>().prop_map(Control::Bye),
            any::<[u8; TARGET]>().prop_map(Control::Ask),
            (any::<[u8; TARGET]>(), permission)
                .prop_map(|(target, permission)| Control::Grant(target, permission)),
            any::<[u8; TARGET]>().prop_map(Control::Refuse),
            any::<[u8; TARGET]>().prop_map(Control::Revoke),
            any::<[u8; TARGET]>().prop_map(Control::Released),
        ]
    }

    #[test]
    fn names_have_what_the_number_leaves() {
        for (bits, names) in [(0, 0), (16, 0), (31, 0), (32, (1 << 24) - 1), (64, (1 << 56) - 1)] {
            assert_eq!(CompletionData::names(bits), names, "{bits} bits");
            let most = CompletionData { name: names, number: 255 };
            let data = (names > 0).then(|| u64::MAX >> (64 - bits));
            assert_eq!(most.to_data(bits), data);
            assert_eq!(
                CompletionData { name: names + 1, ..most }.to_data(bits),
                None,
                "too long a name"
            );
        }
        assert_eq!(CompletionData { name: 0, number: 1 }.to_data(64), None, "no name");
        assert_eq!(CompletionData { name: 5, number: 3 }.to_data(32), Some(0x503));
    }

    proptest! {
        #[test]
        fn headers_go_there_and_back(slot: u32, taken: u16, number: u16, ticket: u64) {
            let header = Header { slot, taken, number, ticket };
            prop_assert_eq!(Header::from_bytes(header.to_bytes()), header);
        }

        #[test]
        fn completion_data_goes_there_and_back(name: u64, shorter in 0..64u32, number: u8, bits in 0..=64u32) {
            let completion = CompletionData { name: name >> shorter, number };
            match completion.to_data(bits) {
                Some(data) => {
                    prop_assert!(bits >= CompletionData::LEAST && (bits == 64 || data >> bits == 0));
                    prop_assert_eq!(CompletionData::from_data(data), completion);
                }
                None => prop_assert!(completion.name == 0 || completion.name > CompletionData::names(bits)),
            }
        }

        #[test]
        fn control_messages_go_there_and_back(control in controls()) {
            prop_assert_eq!(Control::from_bytes(&control.to_bytes()), Ok(control));
        }

        #[test]
        fn cut_short_or_with_more_they_are_refused(control in controls(), at: prop::sample::Index, more: u8) {
            let mut bytes = control.to_bytes();
            let open_ended = matches!(control, Control::Hello { .. } | Control::Grant(..));
            if !open_ended {
                prop_assert!(Control::from_bytes(&bytes[..at.index(bytes.len())]).is_err());
                bytes.push(more);
                prop_assert!(Control::from_bytes(&bytes).is_err());
            }
            if matches!(control, Control::Grant(..)) {
                let least = 1 + TARGET + 1 + 8 + 1;
                prop_assert!(Control::from_bytes(&bytes[..at.index(least)]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_taken_in(bytes: Vec<u8>, kind in 0..13u8) {
            let _ = Control::from_bytes(&bytes);
            let mut bytes = bytes;
            bytes.insert(0, kind);
            if let Ok(control) = Control::from_bytes(&bytes) {
                // What is understood means one thing.
                prop_assert_eq!(control.to_bytes(), bytes);
            }
        }
    }
}
