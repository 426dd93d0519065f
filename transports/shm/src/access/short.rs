//! A short access to memory that is mapped here: moved in one go, within one announcement.

use super::within;
use crate::channel::Channel;
use petasos_fabric::{Access as Rights, Key, RemoteSpan, Slice, two_sided::Imported};

/// A put (`needed` is the right to write) or a get of one piece. The caller has checked that both
/// sides are of one length, of [`Short::MOST`] bytes at most, and that the local side is memory of
/// the host, for a get to be written.
pub(crate) struct Short<'a> {
    pub(crate) slot: u32,
    pub(crate) tag: u64,
    pub(crate) local: &'a Slice,
    pub(crate) span: RemoteSpan,
    pub(crate) needed: Rights,
}

impl Short<'_> {
    /// What is copied by way of the stack, so that nothing has to be held meanwhile.
    pub(crate) const MOST: usize = 128;
}

/// The slot and the tag of a region, if its key says how to reach it without its owner.
#[inline]
pub(crate) fn place(imported: &Imported) -> Option<(u32, u64)> {
    let (slot, tag) = imported.parts.route(Key::ROUTE_ADDRESS)?.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*slot), u64::from_le_bytes(tag.try_into().ok()?)))
}

impl Channel {
    /// Moves all of it. False, and nothing was done, if the memory is not mapped here, or anything
    /// else is in the way.
    pub(crate) fn move_short(&mut self, short: &Short<'_>) -> bool {
        self.pair.announce(short.tag);
        let moved = self.move_within(short).is_some();
        self.pair.withdraw();
        moved
    }

    /// The same while the region is announced.
    fn move_within(&mut self, short: &Short<'_>) -> Option<()> {
        let Short { slot, tag, local, span, needed } = *short;
        let entry = self.table.entry(slot, tag)?;
        // It gave the pair up, and need not look at our announcements any more.
        if self.pair.is_ended() || !entry.access.allows(needed) || entry.segment == 0 {
            return None;
        }
        within(span.offset, span.len, entry.len).ok()?;
        let puts = needed == Rights::WRITE;
        let region = self.segments.get(entry.segment, puts)?;
        // All of the entry lies within the segment, or the owner is wrong about it.
        within(entry.offset, entry.len, region.len() as u64).ok()?;
        let at = usize::try_from(entry.offset.checked_add(span.offset)?).ok()?;
        let mut room = [0; Short::MOST];
        let bytes = room.get_mut(..local.len())?;
        if puts {
            local.read(0, bytes);
            region.write(at, bytes);
        } else {
            region.read(at, bytes);
            local.write(0, bytes);
        }
        Some(())
    }
}
