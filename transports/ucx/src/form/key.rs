//! Keys of memory.
//!
//! A map of memory domains (64 bits), the kind of memory (8 bits), and for each domain of the map a
//! length (8 bits) and that many bytes. UCX looks up what belongs to a domain in its tables, and
//! the domain's part finds its own way through its bytes, which differ in length from version to
//! version. So a key has to have the map, the kind and the lengths of our own keys; the bytes of
//! the domains are their owner's.

use super::bytes::Bytes;

/// What a key looks like, but for the bytes of the domains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyForm {
    domains: u64,
    kind: u8,
    lengths: Vec<u8>,
}

impl KeyForm {
    /// That of this key; `None` if it is none that UCX packs.
    #[must_use]
    pub fn of(key: &[u8]) -> Option<KeyForm> {
        let mut rest = Bytes(key);
        let (domains, kind) = (u64::from_le_bytes(rest.array()?), rest.byte()?);
        let mut lengths = Vec::new();
        for _ in 0..domains.count_ones() {
            let len = rest.byte()?;
            rest.take(len.into())?;
            lengths.push(len);
        }
        rest.is_empty().then_some(KeyForm { domains, kind, lengths })
    }

    /// Whether this key looks the same.
    #[must_use]
    pub fn fits(&self, key: &[u8]) -> bool {
        KeyForm::of(key).as_ref() == Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As 1.13 packs it for a NIC and for copies between processes.
    const KEY: [u8; 20] = [5, 0, 0, 0, 0, 0, 0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0];

    #[test]
    fn keys_differ_in_the_bytes_of_their_domains_alone() {
        let form = KeyForm::of(&KEY).unwrap();
        for at in 0..KEY.len() {
            for bit in 0..8 {
                let mut other = KEY;
                other[at] ^= 1 << bit;
                assert_eq!(form.fits(&other), (10..19).contains(&at), "bit {bit} of byte {at}");
            }
        }
    }

    #[test]
    fn keys_end_where_they_say() {
        let form = KeyForm::of(&KEY).unwrap();
        assert!((0..KEY.len()).all(|len| !form.fits(&KEY[..len])));
        assert!(!form.fits(&[&KEY[..], &[0]].concat()));
        let none = [0; 9];
        assert!(KeyForm::of(&none).unwrap().fits(&none) && !form.fits(&none));
    }
}
