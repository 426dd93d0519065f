//! Numbers as OpenPMIx packs them since 4.1, for its clients as for its servers: seven bits a byte,
//! the least first, where a set eighth bit says that more follow; a ninth byte is a whole one.

const MOST: u32 = 8;

/// Puts a number at the end.
pub fn put_unsigned(out: &mut Vec<u8>, mut number: u64) {
    let mut bytes = 0;
    while number > 0x7f && bytes < MOST {
        out.push(number as u8 & 0x7f | 0x80);
        number >>= 7;
        bytes += 1;
    }
    out.push(number as u8);
}

/// Puts a number with a sign at the end. The sign is the lowest bit, so that small numbers are
/// short on both sides of zero.
pub fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_unsigned(out, ((number << 1) ^ (number >> 63)) as u64);
}

/// Takes a number off the front; `None` if it is cut short.
pub(super) fn take_unsigned(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for at in 0..=MOST {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        let byte = u64::from(*first);
        if at == MOST || byte & 0x80 == 0 {
            return Some(number | byte << (7 * at));
        }
        number |= (byte & 0x7f) << (7 * at);
    }
    None
}

pub(super) fn take_signed(bytes: &mut &[u8]) -> Option<i64> {
    let number = take_unsigned(bytes)?;
    Some((number >> 1) as i64 ^ -((number & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back_and_never_from_less() {
        let edges = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, u64::MAX << bit]);
        for number in edges {
            let mut out = Vec::new();
            put_unsigned(&mut out, number);
            put_signed(&mut out, number as i64);
            let mut rest = &out[..];
            assert_eq!(take_unsigned(&mut rest), Some(number));
            let whole = rest;
            assert_eq!(take_signed(&mut rest), Some(number as i64));
            assert!(rest.is_empty());
            for len in 0..whole.len() {
                assert_eq!(take_signed(&mut &whole[..len]), None, "{number} cut at {len}");
            }
        }
    }
}
