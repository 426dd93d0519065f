//! Bounce buffers: registered memory of this crate, for data that does not lie in a region.

use crate::device::{Device, Registration, RemoteKey};
use petasos_fabric::{Access, Region, RegisterError, Slice};

/// Buffers of one length, made when needed and kept, up to a limit. A peer has no more of them than
/// are free, so that one that stands still leaves some to the others.
#[derive(Debug)]
pub(crate) struct Bounces {
    free: Vec<Bounce>,
    made: usize,
    limit: usize,
    len: usize,
    access: Access,
    /// Bytes of the buffers beyond the limit.
    beyond: usize,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Bounce {
    memory: Region,
    registration: Registration,
    pub(crate) key: RemoteKey,
    /// It is beyond the limit, and not kept.
    beyond: bool,
}

impl Bounce {
    /// The first `len` bytes.
    pub(crate) fn part(&self, len: usize) -> Slice {
        self.memory.slice(0, len).expect("not longer than the buffer")
    }
}

impl Bounces {
    pub(crate) fn new(limit: usize, len: usize, access: Access) -> Bounces {
        Bounces { free: Vec::new(), made: 0, limit, len, access, beyond: 0 }
    }

    /// The length of each, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes held by all buffers.
    pub(crate) fn memory(&self) -> usize {
        self.made * self.len + self.beyond
    }

    /// A buffer for a peer that has `held` of them; `None` while no more than that are free, or when
    /// the device registers no more memory.
    pub(crate) fn take(&mut self, device: &mut impl Device, held: usize) -> Option<Bounce> {
        if held >= self.limit - self.made + self.free.len() {
            return None;
        }
        if let Some(bounce) = self.free.pop() {
            return Some(bounce);
        }
        let bounce = self.make(device, self.len, false).ok()?;
        self.made += 1;
        Some(bounce)
    }

    /// The same for `len` bytes without which a peer does not get on. If it has no buffer for such,
    /// which `waits` says, it gets one in any case: beyond the limit if need be, of just this
    /// length.
    pub(crate) fn take_next(
        &mut self,
        device: &mut impl Device,
        held: usize,
        waits: bool,
        len: usize,
    ) -> Option<Bounce> {
        if let Some(bounce) = self.take(device, held) {
            return Some(bounce);
        }
        if !waits {
            return None;
        }
        let bounce = self.make(device, len, true).ok()?;
        self.beyond += len;
        Some(bounce)
    }

    fn make(
        &self,
        device: &mut impl Device,
        len: usize,
        beyond: bool,
    ) -> Result<Bounce, RegisterError> {
        let memory = Region::zeroed(len);
        let (registration, key) = device.register(&memory.whole(), self.access, 0)?;
        Ok(Bounce { memory, registration, key, beyond })
    }

    pub(crate) fn give_back(&mut self, bounce: Bounce, device: &mut impl Device) {
        match bounce.beyond {
            true => self.close(&bounce, device),
            false => self.free.push(bounce),
        }
    }

    /// Closes a buffer and makes another in its place. The peer may still know its key; or the peer
    /// is lost, and not every device that reports this has let go of the memory, which it holds
    /// until it has.
    pub(crate) fn replace(&mut self, bounce: Bounce, device: &mut impl Device) {
        self.close(&bounce, device);
        if bounce.beyond {
            return;
        }
        if let Ok(fresh) = self.make(device, self.len, false) {
            self.made += 1;
            self.free.push(fresh);
        }
    }

    fn close(&mut self, bounce: &Bounce, device: &mut impl Device) {
        device.deregister(bounce.registration, None);
        match bounce.beyond {
            true => self.beyond -= bounce.memory.len(),
            false => self.made -= 1,
        }
    }
}
