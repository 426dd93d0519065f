//! What is under way: a buffer for a short packet each, and whatever is to be held meanwhile.

use petasos_fabric::{Region, Slice, two_sided::Outgoing};

/// The slots. Their buffers lie at fixed places, of which libraries may be told.
#[derive(Debug)]
pub struct Slots<T> {
    buffers: Region,
    held: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slots<T> {
    /// The length of a slot's buffer, in bytes: packets up to here are copied.
    pub const BUFFER: usize = 4096 + 128;

    /// So many.
    #[must_use]
    pub fn new(count: usize) -> Slots<T> {
        Slots {
            buffers: Region::zeroed(count * Self::BUFFER),
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

    /// A slot may be used again: gives what it held. `None` if it held nothing.
    #[inline]
    pub fn done(&mut self, slot: u32) -> Option<T> {
        let held = self.held.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        Some(held)
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

    /// The memory of all buffers.
    #[must_use]
    pub fn memory(&self) -> Region {
        self.buffers.clone()
    }

    /// The buffer of a slot: [`Slots::BUFFER`] bytes, as long as [`Slots::memory`] is held.
    #[inline]
    #[must_use]
    pub fn buffer(&self, slot: u32) -> *mut u8 {
        assert!((slot as usize) < self.held.len());
        self.buffers.as_ptr().wrapping_add(slot as usize * Self::BUFFER)
    }

    /// Copies to the buffer of a slot.
    #[inline]
    pub fn write(&self, slot: u32, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= Self::BUFFER);
        self.buffers.write(slot as usize * Self::BUFFER + at, bytes);
    }

    /// Copies the payload of a packet to the buffer of a slot.
    pub fn copy(&self, slot: u32, at: usize, payload: &Outgoing) {
        assert!(at + payload.len() <= Self::BUFFER);
        copy_payload(payload, &self.buffers, slot as usize * Self::BUFFER + at);
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
