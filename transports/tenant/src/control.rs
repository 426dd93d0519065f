//! What goes over the socket of a tenant and its broker: the greeting, files, and doorbells.
//!
//! | kind | from | then | with |
//! |---|---|---|---|
//! | 1 hello | tenant | `petatnt2`, the name that it wants, or nothing | the link's file |
//! | 2 welcome | broker | `petatnt2`, how much it may register (bytes: 8 bytes; files: 4), the name that it has | |
//! | 3 refused | broker | why | |
//! | 4 file | tenant | its number, its length (8 bytes each) | the file |
//! | 5 doorbell | both | | |

use crate::name::Name;

/// Changes with the protocol.
const MAGIC: &[u8; 8] = b"petatnt2";
/// The longest message, in bytes.
pub const MAX: usize = 400;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// A tenant opens an endpoint: of this name, or of any.
    Hello(Option<Name>),
    /// It is let in.
    Welcome {
        /// The name that it has.
        name: Name,
        /// How many bytes of files it may register at a time.
        memory: u64,
        /// How many files.
        files: u32,
    },
    /// It is not let in: why.
    Refused(String),
    /// Memory that the broker may read and write for this tenant.
    File {
        /// Its number: no other of this tenant's had it.
        id: u64,
        /// Its length in bytes.
        len: u64,
    },
    /// Something is in the ring.
    Doorbell,
}

impl Control {
    /// Its bytes: at most [`MAX`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let with = |kind: u8, parts: &[&[u8]]| {
            let mut bytes = vec![kind];
            parts.iter().for_each(|part| bytes.extend_from_slice(part));
            bytes.truncate(MAX);
            bytes
        };
        match self {
            Control::Hello(None) => with(1, &[MAGIC]),
            Control::Hello(Some(name)) => with(1, &[MAGIC, name.to_string().as_bytes()]),
            Control::Welcome { name, memory, files } => {
                let (memory, files) = (memory.to_le_bytes(), files.to_le_bytes());
                with(2, &[MAGIC, &memory, &files, name.to_string().as_bytes()])
            }
            Control::Refused(why) => with(3, &[why.as_bytes()]),
            Control::File { id, len } => with(4, &[&id.to_le_bytes(), &len.to_le_bytes()]),
            Control::Doorbell => with(5, &[]),
        }
    }

    /// What these bytes say; `None` if they are no message.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Control> {
        if bytes.len() > MAX {
            return None;
        }
        let (kind, rest) = bytes.split_first()?;
        let name = |bytes: &[u8]| std::str::from_utf8(bytes).ok()?.parse::<Name>().ok();
        match kind {
            1 => match rest.strip_prefix(MAGIC)? {
                [] => Some(Control::Hello(None)),
                text => Some(Control::Hello(Some(name(text)?))),
            },
            2 => {
                let (memory, rest) = rest.strip_prefix(MAGIC)?.split_first_chunk()?;
                let (files, text) = rest.split_first_chunk()?;
                let (memory, files) = (u64::from_le_bytes(*memory), u32::from_le_bytes(*files));
                Some(Control::Welcome { name: name(text)?, memory, files })
            }
            3 => {
                let plain = |b: &u8| match b {
                    b if b.is_ascii_graphic() || *b == b' ' => *b as char,
                    _ => '?',
                };
                Some(Control::Refused(rest.iter().map(plain).collect()))
            }
            4 => {
                let (id, rest) = rest.split_first_chunk()?;
                let len = rest.try_into().ok()?;
                Some(Control::File { id: u64::from_le_bytes(*id), len: u64::from_le_bytes(len) })
            }
            5 if rest.is_empty() => Some(Control::Doorbell),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_and_nothing_else() {
        let name: Name = "a@b".parse().unwrap();
        for control in [
            Control::Hello(None),
            Control::Hello(Some(name.clone())),
            Control::Welcome { name, memory: 1 << 40, files: 1 << 20 },
            Control::Refused("no such tenant".to_owned()),
            Control::File { id: 3, len: u64::MAX },
            Control::Doorbell,
        ] {
            let bytes = control.encode();
            assert_eq!(Control::decode(&bytes), Some(control.clone()));
            let longer = [&bytes[..], b"@"].concat();
            assert_ne!(Control::decode(&longer), Some(control));
        }
        for bad in [&b""[..], b"\x01petatnt1", b"\x01petatnt2a", b"\x04123", b"\x05x", &[3; 401]] {
            assert_eq!(Control::decode(bad), None, "{bad:?}");
        }
        assert_eq!(Control::decode(b"\x03a\nb"), Some(Control::Refused("a?b".to_owned())));
    }
}
