//! What names a method.

use petasos_wire::{hash_name, shape_join};

/// A method as both sides know it: its id on the wire, and the hash of its signature by which
/// they notice that they were built from different interfaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// `Service::method`, for errors and statistics.
    pub name: &'static str,
    /// Hash of the name.
    pub id: u64,
    /// Hash of the types of arguments and result; 0 where bytes go in and out.
    pub signature: u64,
}

impl Method {
    /// A method of typed arguments and result, given by their shapes.
    #[must_use]
    pub const fn typed(name: &'static str, arguments: u64, result: u64) -> Method {
        Method { name, id: hash_name(name), signature: shape_join(arguments, result) }
    }

    /// A method that takes and gives bytes.
    #[must_use]
    pub const fn raw(name: &'static str) -> Method {
        Method { name, id: hash_name(name), signature: 0 }
    }
}
