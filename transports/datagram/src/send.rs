//! What an endpoint sends beside its NIC's packets: acknowledgements, and rings.

use crate::{
    datagrams::Datagrams,
    frame::{Control, HEADER_LEN},
    network::{Mark, Network, Refusal, Taken},
};
use petasos_fabric::LostReason;

impl<N: Network> Datagrams<N> {
    /// A packet of this peer was taken. The peer is told now and then, if no packet does so.
    #[inline]
    pub(crate) fn took(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        link.inward.advance();
        self.lists.owe(link);
    }

    /// Tells peers how many of their packets were taken.
    pub(crate) fn acknowledge(&mut self) -> bool {
        let mut told = false;
        for index in self.lists.take_owing() {
            let Datagrams { links, net, .. } = self;
            let Some(link) = links.get_mut(index) else { continue };
            link.inward.leave_owing();
            let Some(node) = link.node().filter(|_| link.is_up()) else { continue };
            if !link.inward.owes() {
                continue;
            }
            let header = link.header().to_bytes();
            let mark = Mark::Packet { link: index, serial: link.peer().generation };
            let sent = if HEADER_LEN <= net.facts().inject {
                net.inject(node, HEADER_LEN, |room| room.copy_from_slice(&header), mark)
            } else {
                net.send_short(node, &[&header], &[], mark).map(|()| Taken::Waits)
            };
            match sent {
                Ok(taken) => {
                    link.out.begin_operations(u32::from(taken == Taken::Waits));
                    link.inward.acknowledged();
                    self.counters.acknowledgements += 1;
                    told = true;
                    if link.rings && self.rings {
                        self.ring(index);
                    }
                }
                Err(Refusal::Full) => {
                    self.lists.owe(link);
                    self.full(index);
                }
                Err(Refusal::Failed(code)) => self.fail(index, code),
            }
        }
        told
    }

    /// Rings for a peer that may sleep.
    #[cold]
    pub(crate) fn ring(&mut self, index: u32) {
        let Some(link) = self.links.get_mut(index) else { return };
        self.counters.rings += 1;
        let rung = self.control.inject(link.control(), &[&Control::Ring.to_bytes()]);
        link.controls.set_ring(false);
        if rung.is_err() {
            self.ring_later(index);
        }
    }

    /// The library cannot send to this peer.
    #[cold]
    pub(crate) fn fail(&mut self, index: u32, code: isize) {
        let reason = LostReason::System(self.net.error(code));
        self.end(index, reason);
    }
}
