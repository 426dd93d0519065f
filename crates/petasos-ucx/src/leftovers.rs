//! placeholder
pub(crate) fn remove(_: &[u8]) {}
