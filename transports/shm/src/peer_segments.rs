//! Segments that go between two peers: the peer's that are mapped here or were asked for, and ours
//! of which the peer has a descriptor.

use crate::segment;
use petasos_fabric::Region;
use rustix::fd::OwnedFd;
use std::sync::Weak;

/// Descriptors asked for at a time.
const MAX_WANTED: usize = 16;

/// A segment of the peer's, mapped here.
struct Mapped {
    id: u64,
    region: Region,
    /// When it was last used: a number that grows.
    used: u64,
}

/// A segment whose descriptor was asked for.
struct Wanted {
    id: u64,
    writable: bool,
    len: usize,
    /// The answer was no.
    refused: bool,
}

/// Segments of the peer's.
#[derive(Default)]
pub(crate) struct PeerSegments {
    mapped: Vec<Mapped>,
    wanted: Vec<Wanted>,
    uses: u64,
}

impl PeerSegments {
    /// How many are mapped.
    pub(crate) fn len(&self) -> usize {
        self.mapped.len()
    }

    /// A segment, if it is mapped with the wanted rights.
    pub(crate) fn find(&mut self, id: u64, writable: bool) -> Option<Region> {
        self.get(id, writable).cloned()
    }

    /// The same, for a moment.
    pub(crate) fn get(&mut self, id: u64, writable: bool) -> Option<&Region> {
        self.uses += 1;
        let uses = self.uses;
        let mapped = self.mapped.iter_mut().find(|mapped| mapped.id == id)?;
        mapped.used = uses;
        (mapped.region.is_writable() || !writable).then_some(&mapped.region)
    }

    /// Whether the descriptor of a segment may still come; none if it was not asked for.
    pub(crate) fn may_come(&self, id: u64, writable: bool) -> Option<bool> {
        let mut wanted = self.wanted.iter();
        let wanted = wanted.find(|wanted| wanted.id == id && wanted.writable == writable)?;
        Some(!wanted.refused)
    }

    /// Whether no other one may be asked for.
    pub(crate) fn is_full(&self) -> bool {
        self.wanted.len() >= MAX_WANTED
    }

    /// Makes room for others: those that were refused may be asked for again.
    pub(crate) fn forget_refused(&mut self) {
        self.wanted.retain(|wanted| !wanted.refused);
    }

    /// A segment of this length was asked for.
    pub(crate) fn asked(&mut self, id: u64, writable: bool, len: usize) {
        self.wanted.push(Wanted { id, writable, len, refused: false });
    }

    /// How many were asked for, and have not come.
    pub(crate) fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// The peer's answer: maps the segment, of which `most` stay mapped.
    pub(crate) fn answered(&mut self, id: u64, writable: bool, fd: Option<OwnedFd>, most: usize) {
        let is = |wanted: &Wanted| wanted.id == id && wanted.writable == writable;
        let at = self.wanted.iter().position(|wanted| is(wanted) && !wanted.refused);
        let Some(at) = at else { return };
        let len = self.wanted[at].len;
        match fd.map(|fd| segment::adopt(&fd, len, writable)) {
            Some(Ok(region)) => {
                self.wanted.swap_remove(at);
                self.keep(id, region, most);
            }
            _ => self.wanted[at].refused = true,
        }
    }

    /// Keeps a segment, in the place of the one that was not used for longest if there are too
    /// many.
    fn keep(&mut self, id: u64, region: Region, most: usize) {
        self.unmap(id);
        if self.mapped.len() >= most.max(1) {
            let oldest = (0..self.mapped.len()).min_by_key(|at| self.mapped[*at].used);
            oldest.map(|at| self.mapped.swap_remove(at));
        }
        self.uses += 1;
        self.mapped.push(Mapped { id, region, used: self.uses });
    }

    /// The peer does not use a segment any more.
    pub(crate) fn unmap(&mut self, id: u64) {
        self.mapped.retain(|mapped| mapped.id != id);
    }
}

/// Segments of ours that the peer may have mapped: their numbers, and whether they are in use.
#[derive(Default)]
pub(crate) struct GrantedSegments(Vec<(u64, Weak<()>)>);

impl GrantedSegments {
    /// The peer got the descriptor of a segment.
    pub(crate) fn add(&mut self, id: u64, alive: Weak<()>) {
        self.remove(id);
        self.0.push((id, alive));
    }

    /// The peer knows that a segment is not used any more.
    pub(crate) fn remove(&mut self, id: u64) {
        self.0.retain(|(granted, _)| *granted != id);
    }

    /// A segment that is not used any more.
    pub(crate) fn unused(&self) -> Option<u64> {
        let unused = self.0.iter().find(|(_, alive)| alive.strong_count() == 0);
        unused.map(|(id, _)| *id)
    }
}
