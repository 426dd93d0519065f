//! Memory of ours that peers fetch from. There is so much for all, and one peer has no more of it
//! than is free: a peer that fetches nothing leaves room for what others are to fetch.

use crate::{
    Config, Device,
    bounce::{Bounce, Bounces},
    device::Registration,
    header::Lent,
    packet::OutPacket,
};
use petasos_fabric::Access;

/// The longest piece that is lent for one record, in bytes.
const LONGEST: usize = 1 << 30;

/// Memory lent for one record.
#[derive(Debug)]
pub(crate) enum Loan {
    /// The packet's own.
    Memory(Registration),
    /// A copy.
    Bounce(Bounce),
}

/// What is lent to one peer.
#[derive(Debug, Default)]
pub(crate) struct LentTo {
    count: usize,
    /// Of these, copies.
    bounces: usize,
}

impl LentTo {
    /// Whether nothing is lent to it, so that nothing will come back from it.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// All that is lent.
#[derive(Debug)]
pub(crate) struct Loans {
    bounces: Bounces,
    count: usize,
    most: usize,
}

impl Loans {
    pub(crate) fn new(config: &Config) -> Loans {
        let bounces = Bounces::new(config.bounces, config.bounce, Access::READ);
        Loans { bounces, count: 0, most: config.lent }
    }

    /// How many more pieces may be lent to a peer to which so much is lent.
    pub(crate) fn free(&self, to: &LentTo) -> usize {
        (self.most - self.count).saturating_sub(to.count)
    }

    /// Bytes held in bounce buffers.
    pub(crate) fn memory(&self) -> usize {
        self.bounces.memory()
    }

    /// Registers memory to be fetched from by a peer: the packet's own, or a copy of some of its
    /// bytes. `None` while the peer has as much as is free, or the device registers no more.
    pub(crate) fn lend(
        &mut self,
        device: &mut impl Device,
        to: &mut LentTo,
        packet: &OutPacket,
        from: usize,
    ) -> Option<(Loan, Lent)> {
        if self.free(to) == 0 {
            return None;
        }
        let (loan, lent) = match packet.piece(from) {
            Some(piece) => {
                let len = piece.len().min(LONGEST);
                let piece = piece.part(0, len)?;
                let (registration, key) = device.register(&piece, Access::READ, 0).ok()?;
                (Loan::Memory(registration), Lent { len: len as u32, key })
            }
            None => {
                let bounce = self.bounces.take(device, to.bounces)?;
                let len = (packet.len() - from).min(self.bounces.len());
                let mut bytes = Vec::with_capacity(len);
                packet.copy(from, len, &mut bytes);
                bounce.part(len).write(0, &bytes);
                let lent = Lent { len: len as u32, key: bounce.key.clone() };
                to.bounces += 1;
                (Loan::Bounce(bounce), lent)
            }
        };
        self.count += 1;
        to.count += 1;
        Some((loan, lent))
    }

    /// The peer has fetched from the memory, or will not.
    pub(crate) fn end(&mut self, device: &mut impl Device, to: &mut LentTo, loan: Loan) {
        match loan {
            Loan::Memory(registration) => device.deregister(registration, None),
            Loan::Bounce(bounce) => {
                self.bounces.replace(bounce, device);
                to.bounces -= 1;
            }
        }
        self.count -= 1;
        to.count -= 1;
    }
}
