//! Bounce buffers: registered memory of our own, for data that does not lie in a region.

use crate::device::{Device, Registration, RemoteKey};
use petasos_fabric::{Access, Region, RegisterError, Slice};

/// A bounded number of buffers of one length. Made when needed, and kept.
#[derive(Debug)]
pub(crate) struct Bounces {
    free: Vec<Bounce>,
    made: usize,
    limit: usize,
    len: usize,
    access: Access,
    /// Lent for what is not next.
    ahead: usize,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Bounce {
    memory: Region,
    registration: Registration,
    pub(crate) key: RemoteKey,
}

impl Bounce {
    /// The first `len` bytes.
    pub(crate) fn part(&self, len: usize) -> Slice {
        self.memory.slice(0, len).expect("not longer than the buffer")
    }
}

impl Bounces {
    pub(crate) fn new(limit: usize, len: usize, access: Access) -> Bounces {
        Bounces { free: Vec::new(), made: 0, limit, len, access, ahead: 0 }
    }

    /// The length of each, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes held by all.
    pub(crate) fn memory(&self) -> usize {
        self.made * self.len
    }

    /// A buffer; `None` while all are lent, or when the device does not register more.
    pub(crate) fn take(&mut self, device: &mut impl Device) -> Option<Bounce> {
        if let Some(bounce) = self.free.pop() {
            return Some(bounce);
        }
        if self.made == self.limit {
            return None;
        }
        let bounce = self.make(device).ok()?;
        self.made += 1;
        Some(bounce)
    }

    /// A buffer for what is not next: at most half of them are lent so, and one at least is left, so
    /// that what is next always gets one in the end.
    pub(crate) fn take_ahead(&mut self, device: &mut impl Device) -> Option<Bounce> {
        if self.ahead == self.limit / 2 {
            return None;
        }
        while self.free.is_empty() || self.made < self.ahead + 2 {
            if self.made == self.limit {
                return None;
            }
            let bounce = self.make(device).ok()?;
            self.made += 1;
            self.free.push(bounce);
        }
        self.ahead += 1;
        self.free.pop()
    }

    pub(crate) fn give_back_ahead(&mut self, bounce: Bounce) {
        self.ahead -= 1;
        self.give_back(bounce);
    }

    fn make(&self, device: &mut impl Device) -> Result<Bounce, RegisterError> {
        let memory = Region::zeroed(self.len);
        let (registration, key) = device.register(&memory.whole(), self.access, 0)?;
        Ok(Bounce { memory, registration, key })
    }

    pub(crate) fn give_back(&mut self, bounce: Bounce) {
        self.free.push(bounce);
    }

    /// The same as [`Bounces::give_back_closed`], of one that was lent for what is not next.
    pub(crate) fn retire_ahead(&mut self, bounce: Bounce, device: &mut impl Device) {
        self.ahead -= 1;
        self.give_back_closed(bounce, device);
    }

    /// A buffer that is not to be used again: its peer may still know its key, or is lost, and not every device that says
    /// so has let go of the memory, which it holds until it has. Another one takes its place.
    pub(crate) fn give_back_closed(&mut self, bounce: Bounce, device: &mut impl Device) {
        device.deregister(bounce.registration, None);
        self.made -= 1;
        if let Ok(fresh) = self.make(device) {
            self.made += 1;
            self.free.push(fresh);
        }
    }
}
