//! Bounce buffers: registered memory of this crate, for data that does not lie in a region.

use crate::device::{Device, Registration, RemoteKey};
use petasos_fabric::{Access, Region, RegisterError, Slice};

/// A bounded number of buffers of one length. They are made when needed, and kept.
#[derive(Debug)]
pub(crate) struct Bounces {
    free: Vec<Bounce>,
    made: usize,
    limit: usize,
    len: usize,
    access: Access,
    /// How many are in use for records whose turn has not come.
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

    /// Bytes held by all buffers.
    pub(crate) fn memory(&self) -> usize {
        self.made * self.len
    }

    /// How many are not in use.
    pub(crate) fn available(&self) -> usize {
        self.limit - self.made + self.free.len()
    }

    /// A buffer; `None` while all are in use, or when the device registers no more memory.
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

    /// A buffer for a record whose turn has not come. At most half of the buffers serve such
    /// records, and at least one never does, so that the next record always gets one in the end.
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

    /// [`Bounces::replace`] for a buffer of a record whose turn had not come.
    pub(crate) fn replace_ahead(&mut self, bounce: Bounce, device: &mut impl Device) {
        self.ahead -= 1;
        self.replace(bounce, device);
    }

    /// Closes a buffer and makes another in its place. The peer may still know its key; or the peer
    /// is lost, and not every device that reports this has let go of the memory, which it holds
    /// until it has.
    pub(crate) fn replace(&mut self, bounce: Bounce, device: &mut impl Device) {
        device.deregister(bounce.registration, None);
        self.made -= 1;
        if let Ok(fresh) = self.make(device) {
            self.made += 1;
            self.free.push(fresh);
        }
    }
}
