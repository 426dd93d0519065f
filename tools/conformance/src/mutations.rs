//! What a peer said, as it would not say it: for tests of what parses it.

use crate::random::Random;

/// These bytes with some damage: bits turned, bytes of other values, parts cut off, put in, taken
/// out or repeated. Never the bytes themselves.
///
/// # Panics
/// If there are no bytes.
#[must_use]
pub fn mutated(original: &[u8], random: &mut Random) -> Vec<u8> {
    loop {
        let mut bytes = original.to_vec();
        for _ in 0..=random.below(3) {
            damage(&mut bytes, random);
        }
        if bytes != original {
            return bytes;
        }
    }
}

fn damage(bytes: &mut Vec<u8>, random: &mut Random) {
    let (len, draw) = (bytes.len(), random.draw() as u8);
    if len == 0 {
        return bytes.push(draw);
    }
    let at = random.below(len);
    match random.below(8) {
        // Most of all, since it leaves the rest where it is.
        0..=2 => bytes[at] ^= 1 << random.below(8),
        3 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff, draw][random.below(6)],
        4 => bytes.truncate(at),
        5 => {
            let more = 1 + random.below(64);
            let end = match random.below(3) {
                0 => vec![0; more],
                1 => vec![0xff; more],
                _ => random.bytes(more),
            };
            bytes.extend(end);
        }
        6 => {
            let part = bytes[at..len.min(at + 1 + random.below(16))].to_vec();
            let to = random.below(len);
            bytes.splice(to..to, part);
        }
        _ => drop(bytes.drain(at..len.min(at + 1 + random.below(8)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_of_every_kind_and_repeatable() {
        let original: Vec<u8> = (0..40).collect();
        let all = |seed| mutated(&original, &mut Random::new(seed));
        let lengths = [0..39, 39..40, 40..41, 41..42, 42..200];
        for lengths in lengths {
            assert!((0..500).any(|seed| lengths.contains(&all(seed).len())), "{lengths:?}");
        }
        assert!((0..500).all(|seed| all(seed) != original && all(seed) == all(seed)));
    }
}
