//! The regions of an endpoint that peers may reach, and the table that tells peers of them.

use crate::table::{Entry, Table};
use petasos_fabric::RegionId;
use rustix::{
    fd::{AsFd, BorrowedFd, OwnedFd},
    io::Errno,
};

/// A region that is open to peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) region: RegionId,
    /// By which accesses name it: never used twice.
    pub(crate) tag: u64,
}

pub(crate) struct Exports {
    table: Table,
    /// The table's file, which peers map.
    fd: OwnedFd,
    /// By the index of the region.
    open: Vec<Option<Export>>,
    /// The last tag that was given.
    tags: u64,
}

impl Exports {
    pub(crate) fn new() -> Result<Exports, Errno> {
        let (fd, table) = Table::create()?;
        Ok(Exports { table, fd, open: Vec::new(), tags: 0 })
    }

    /// The file of the table, for a peer.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Opens a region to peers.
    pub(crate) fn open(&mut self, region: RegionId, entry: &Entry) {
        self.tags += 1;
        let slot = region.index as usize;
        if self.open.len() <= slot {
            self.open.resize(slot + 1, None);
        }
        self.open[slot] = Some(Export { region, tag: self.tags });
        self.table.open(region.index, self.tags, entry);
    }

    /// What is open in a slot.
    pub(crate) fn at(&self, slot: u64) -> Option<Export> {
        self.open.get(usize::try_from(slot).ok()?).copied().flatten()
    }

    /// The tag of a region, if it is open.
    pub(crate) fn tag(&self, region: RegionId) -> Option<u64> {
        let export = self.at(region.index.into()).filter(|export| export.region == region);
        export.map(|export| export.tag)
    }

    /// Closes a region to new accesses: its tag.
    pub(crate) fn close(&mut self, region: RegionId) -> Option<u64> {
        let slot = self.open.get_mut(region.index as usize)?;
        let export = slot.take_if(|export| export.region == region)?;
        self.table.close(region.index);
        Some(export.tag)
    }

    /// Closes all regions, and says that the endpoint is going.
    pub(crate) fn close_all(&mut self) -> Vec<Export> {
        let open: Vec<Export> = self.open.drain(..).flatten().collect();
        open.iter().for_each(|export| self.table.close(export.region.index));
        self.table.close_all();
        open
    }

    /// The table, to write what an owner would not.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}
