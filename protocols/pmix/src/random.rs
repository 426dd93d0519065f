//! Random bytes, and bytes as text.

/// 32 unpredictable bytes.
///
/// # Panics
/// If the system has no random source, which Linux always has.
#[must_use]
pub fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system's random source answers");
    bytes
}

/// Bytes as hexadecimal text.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
