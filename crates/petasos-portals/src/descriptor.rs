//! Memory descriptors.

/// A memory descriptor.
#[derive(Debug)]
pub struct Descriptor;
