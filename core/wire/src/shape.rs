//! Hashes of names and structures, computed by the compiler. FNV-1a, 64 bits: not a secret, only
//! unlikely to collide by accident.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0100_0000_01b3;

const fn add_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(PRIME)
}

/// The hash of a name.
#[must_use]
pub const fn hash_name(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = OFFSET;
    let mut at = 0;
    while at < bytes.len() {
        hash = add_byte(hash, bytes[at]);
        at += 1;
    }
    hash
}

/// The hash of a structure so far, and one more part of it.
#[must_use]
pub const fn shape_join(shape: u64, part: u64) -> u64 {
    let bytes = part.to_le_bytes();
    let mut hash = shape.rotate_left(17) ^ OFFSET;
    let mut at = 0;
    while at < 8 {
        hash = add_byte(hash, bytes[at]);
        at += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_and_order() {
        assert_eq!(hash_name(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash_name("a"), 0xaf63_dc4c_8601_ec8c);
        assert_ne!(shape_join(1, 2), shape_join(2, 1));
    }
}
