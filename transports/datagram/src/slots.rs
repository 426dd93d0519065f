//! Slots of operations under way: each has a buffer for a short packet, and holds what the library
//! works on.

use petasos_fabric::{Region, Slice, two_sided::Outgoing};

/// The slots. Their buffers lie at fixed places, of which libraries may be told.
///
/// Slots whose operations never complete, as some libraries leave those with lost peers, are
/// replaced by others ([`Slots::grow`]), as many at a time as there were at first.
#[derive(Debug)]
pub struct Slots<T> {
    buffers: Region,
    /// How many slots there were at first, and the buffers of all others.
    first: usize,
    more: Vec<Region>,
    held: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// The length of a slot's buffer, in bytes: packets up to here are copied.
    pub const BUFFER: usize = 4096 + 128;

    /// This many slots.
    #[must_use]
    pub fn new(count: usize) -> Slots<T> {
        Slots {
            buffers: Region::zeroed(count * Self::BUFFER),
            first: count,
            more: Vec::new(),
            held: (0..count).map(|_| None).collect(),
            free: (0..count as u32).rev().collect(),
        }
    }

    /// A slot that is free: the next one that [`Slots::keep`] takes.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<u32> {
        self.free.last().copied()
    }

    /// The slot that `next` gave is in use, and this is held.
    ///
    /// # Panics
    /// If there is no free slot.
    #[inline]
    pub fn keep(&mut self, slot: u32, held: T) {
        let top = self.free.pop();
        assert_eq!(top, Some(slot), "the slot that `next` gave");
        self.held[slot as usize] = Some(held);
    }

    /// An operation has completed: frees its slot, and returns what it held. `None` if it held
    /// nothing.
    #[inline]
    pub fn done(&mut self, slot: u32) -> Option<T> {
        let held = self.held.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(held)
    }

    /// Adds as many slots as there were at first. Returns the memory of their buffers.
    ///
    /// # Panics
    /// If there are 2^32, or were none at first.
    #[cold]
    pub fn grow(&mut self) -> Region {
        assert!(self.first > 0, "there are slots at first");
        let (from, to) = (self.held.len(), self.held.len() + self.first);
        let (from, to) = (from as u32, u32::try_from(to).expect("fewer slots than 2^32"));
        let buffers = Region::zeroed(self.first * Self::BUFFER);
        self.more.push(buffers.clone());
        self.held.resize_with(to as usize, || None);
        // The earlier slots are used first.
        self.free.splice(0..0, (from..to).rev());
        buffers
    }

    /// What is held of all operations under way.
    pub fn entries(&self) -> impl Iterator<Item = &T> {
        self.held.iter().flatten()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.held.len()
    }

    /// How many are in use.
    #[must_use]
    pub fn running(&self) -> usize {
        self.held.len() - self.free.len()
    }

    /// The memory of all buffers that there were at first.
    #[must_use]
    pub fn memory(&self) -> Region {
        self.buffers.clone()
    }

    /// Where the buffer of a slot is.
    #[inline]
    fn locate(&self, slot: u32) -> (&Region, usize) {
        let slot = slot as usize;
        if slot < self.first {
            return (&self.buffers, slot * Self::BUFFER);
        }
        self.locate_further(slot - self.first)
    }

    #[cold]
    fn locate_further(&self, slot: usize) -> (&Region, usize) {
        (&self.more[slot / self.first], slot % self.first * Self::BUFFER)
    }

    /// The buffer of a slot: [`Slots::BUFFER`] bytes, as long as [`Slots::memory`], or what
    /// [`Slots::grow`] gave, is held.
    ///
    /// # Panics
    /// If there is no such slot.
    #[inline]
    #[must_use]
    pub fn buffer(&self, slot: u32) -> *mut u8 {
        let (region, at) = self.locate(slot);
        region.as_ptr().wrapping_add(at)
    }

    /// Copies to the buffer of a slot.
    #[inline]
    pub fn write(&self, slot: u32, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= Self::BUFFER);
        let (region, base) = self.locate(slot);
        region.write(base + at, bytes);
    }

    /// Copies the payload of a packet to the buffer of a slot.
    pub fn copy(&self, slot: u32, at: usize, payload: &Outgoing) {
        assert!(at + payload.len() <= Self::BUFFER);
        let (region, base) = self.locate(slot);
        copy_payload(payload, region, base + at);
    }
}

/// Copies the payload of a packet to memory, from `at` on.
pub fn copy_payload(payload: &Outgoing, to: &Region, mut at: usize) {
    match payload {
        Outgoing::Nothing => {}
        Outgoing::Bytes(bytes) => to.write(at, bytes),
        Outgoing::Memory(pieces) => {
            for piece in pieces {
                if let Some(room) = to.slice(at, Slice::len(piece)) {
                    at += piece.copy_to(&room);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_used_again() {
        let mut slots = Slots::new(2);
        let slot = slots.next().unwrap();
        slots.keep(slot, "held");
        assert_eq!((slots.running(), slots.count()), (1, 2));
        assert_eq!(
            (slots.done(slot), slots.done(slot), slots.done(99)),
            (Some("held"), None, None)
        );
        assert_eq!(slots.running(), 0);
    }

    /// Slots that are never freed are replaced, and buffers stay where they are.
    #[test]
    fn others_are_added() {
        let mut slots = Slots::new(2);
        for _ in 0..2 {
            let slot = slots.next().unwrap();
            slots.keep(slot, "never done");
        }
        let (before, none) = (slots.buffer(0), slots.next());
        assert_eq!(none, None);
        let more = slots.grow();
        let further = slots.grow();
        assert_eq!((slots.count(), slots.running()), (6, 2));
        assert_eq!((slots.buffer(0), slots.buffer(2), slots.buffer(4)), {
            (before, more.as_ptr(), further.as_ptr())
        });
        slots.write(5, 3, b"here");
        let at = Slots::<&str>::BUFFER + 3;
        assert_eq!(further.slice(at, 4).unwrap().to_vec(), b"here");
        for _ in 0..4 {
            let slot = slots.next().unwrap();
            slots.keep(slot, "done soon");
        }
        assert_eq!((slots.next(), slots.done(5), slots.next()), (None, Some("done soon"), Some(5)));
    }

    #[test]
    fn payloads_are_copied_piece_by_piece() {
        let slots: Slots<()> = Slots::new(2);
        let memory = Slice::from(b"abcdef".to_vec());
        let pieces = [(4, 2), (0, 3)].map(|(at, len)| memory.part(at, len).unwrap());
        slots.copy(1, 10, &Outgoing::Memory(pieces.into_iter().collect()));
        slots.write(1, 15, b"!");
        let there = slots.memory().slice(Slots::<()>::BUFFER + 10, 6).unwrap();
        assert_eq!(there.to_vec(), b"efabc!");
    }
}
