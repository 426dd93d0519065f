//! What an endpoint does about operations under way with peers that are lost.

use crate::{
    datagrams::Datagrams,
    link::Link,
    network::{Network, Node},
};
use petasos_fabric::{LostReason, Peer};

impl<N: Network> Datagrams<N> {
    /// A peer is lost, with operations under way.
    pub(crate) fn keep_lost(&mut self, link: &Link) {
        if link.out.running() == 0 {
            return;
        }
        self.lost.add(link);
        self.lost.note_crowding(self.config.lost, self.now);
        self.net.spare(self.lost.count().min(self.config.lost));
    }

    /// The library has completed an operation with a peer that is not there any more.
    #[cold]
    pub(crate) fn lost_done(&mut self, peer: Peer) {
        if let Some(node) = self.lost.take(peer) {
            self.retire_node(node, peer);
        }
        self.lost.note_crowding(self.config.lost, self.now);
    }

    /// A node is not used any more. Libraries may still work for it, or find something of it in
    /// their queues, and not all of them tolerate one that has left the table. So it leaves later:
    /// when nothing is under way with it, and it had time to notice that the connection was closed.
    pub(crate) fn retire_node(&mut self, node: Node, peer: Peer) {
        self.lost.retire(node, peer, self.now);
        // The oldest of many leave the table of addresses when their time has come.
        while let Some((node, peer)) = self.lost.pop_retired(self.now) {
            // Operations that were not completed may refer to it.
            if !self.lost.keeps(peer, node) {
                self.net.remove(node);
            }
        }
    }

    /// The library has no room for an operation with this peer. If it never has again, the peer is
    /// lost.
    #[cold]
    pub(crate) fn full(&mut self, index: u32) {
        self.counters.again += 1;
        let Some(since) = self.lost.crowded() else { return };
        let others = self.net.running() > self.lost.count();
        if others || self.now < since.after(self.config.mourning) {
            return;
        }
        let (count, most) = (self.lost.count(), self.config.lost);
        let why = format!(
            "the library has not completed {count} operations with peers that were lost, and has no room for more; \
             at most {most} may be so (`lost`)"
        );
        self.end(index, LostReason::System(why));
    }
}
