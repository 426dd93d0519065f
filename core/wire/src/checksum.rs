//! Checksums of headers and payloads.

/// CRC-32 (IEEE 802.3) of the parts, as one.
#[must_use]
pub fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(super::checksum(&[b"1234", b"56789"]), 0xcbf4_3926);
    }
}
