//! libfabric, as it is found at run time: the library, its environment, what it offers. Its binary
//! interface is in a crate of its own, as the provider for it has the same.

pub(crate) mod environment;
pub(crate) mod library;
pub(crate) mod offer;

pub(crate) use petasos_ofi_sys::*;
