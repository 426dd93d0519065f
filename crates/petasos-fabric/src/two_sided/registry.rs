//! Registered regions of this endpoint, and imported keys of others'.

use super::header::Target;
use crate::{
    Access, ExportError, ImportError, Incarnation, Key, Peer, Region, RegionId, RegisterError,
    Remote, Slice, Token, key::KeyParts,
};
use bytes::Bytes;

/// A key that was imported, as a transport with routes of its own needs to see it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Imported {
    /// The owner.
    pub peer: Peer,
    /// All that the key says.
    pub parts: KeyParts,
    pub(super) target: Option<Target>,
}

/// The regions that peers may reach.
#[derive(Debug, Default)]
pub(super) struct Regions {
    slots: Vec<Slot>,
    free: Vec<u32>,
    limit: usize,
}

#[derive(Debug)]
struct Slot {
    generation: u32,
    entry: Option<Registered>,
}

#[derive(Debug)]
pub(super) struct Registered {
    pub(super) memory: Slice,
    pub(super) access: Access,
    pub(super) secret: u64,
    /// Accesses that are under way.
    busy: u32,
    /// Set once it is being deregistered: no access begins any more.
    closing: Option<Token>,
}
