//! What goes to a peer: the window, and operations that the library has not completed.

use super::WINDOW;
use petasos_fabric::two_sided::Packet;
use std::collections::VecDeque;

/// The state of sending to one peer.
#[derive(Debug)]
pub(crate) struct Outbound {
    /// Packets sent, and how many of them the peer has taken.
    sent: u32,
    acknowledged: u32,
    /// Packets of the engine's that are under way: whether the library has completed each.
    under_way: VecDeque<bool>,
    /// The serial number of the first of them.
    first: u32,
    /// Sends and accesses that the library has not completed.
    running: u32,
    /// A packet for which the library had no room.
    refused: Option<Packet>,
    /// The library already writes the payload of the next packet.
    payload_written: bool,
    /// The engine has packets for the peer.
    has_packets: bool,
    /// The peer is in the list of those to be sent to.
    queued: bool,
}

impl Outbound {
    /// `first` is the serial number after the last one of the slot's earlier user.
    pub(super) fn new(first: u32) -> Outbound {
        Outbound {
            sent: 0,
            acknowledged: 0,
            under_way: VecDeque::new(),
            first,
            running: 0,
            refused: None,
            payload_written: false,
            has_packets: false,
            queued: false,
        }
    }

    // The window.

    /// How many packets were sent; the number of the next one.
    #[inline]
    pub(crate) fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether the peer has room for another packet.
    #[inline]
    pub(crate) fn has_window(&self) -> bool {
        self.sent.wrapping_sub(self.acknowledged) < WINDOW
    }

    /// The peer says how many packets it has taken. False if that cannot be.
    #[inline]
    pub(crate) fn acknowledge(&mut self, taken: u16) -> bool {
        let more = taken.wrapping_sub(self.acknowledged as u16) as i16;
        if i64::from(more) > i64::from(self.sent.wrapping_sub(self.acknowledged)) {
            return false;
        }
        // A negative number was overtaken by a later one.
        self.acknowledged = self.acknowledged.wrapping_add(more.max(0) as u32);
        true
    }

    /// The next packet was sent.
    #[inline]
    pub(crate) fn packet_sent(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        self.payload_written = false;
    }

    // Operations under way.

    /// A packet of the engine's is under way. Returns its serial number.
    #[inline]
    pub(crate) fn depart(&mut self) -> u32 {
        self.under_way.push_back(false);
        self.next_serial().wrapping_sub(1)
    }

    /// The serial number of the next packet.
    #[inline]
    pub(crate) fn next_serial(&self) -> u32 {
        self.first.wrapping_add(self.under_way.len() as u32)
    }

    /// The library has completed a packet. Returns how many of the oldest ones are complete now
    /// that were not before; `None` if it is a packet of an earlier user of the slot.
    #[inline]
    pub(crate) fn arrive(&mut self, serial: u32) -> Option<u32> {
        let at = serial.wrapping_sub(self.first) as usize;
        *self.under_way.get_mut(at)? = true;
        let mut done = 0;
        while self.under_way.front() == Some(&true) {
            self.under_way.pop_front();
            self.first = self.first.wrapping_add(1);
            done += 1;
        }
        Some(done)
    }

    /// The serial number of the first packet under way, and how many there are.
    #[inline]
    pub(crate) fn serials(&self) -> (u32, u32) {
        (self.first, self.under_way.len() as u32)
    }

    /// The library has this many operations more.
    #[inline]
    pub(crate) fn begin_operations(&mut self, count: u32) {
        self.running += count;
    }

    /// The library has completed an operation.
    #[inline]
    pub(crate) fn end_operation(&mut self) {
        self.running -= 1;
    }

    /// Sends and accesses that the library has not completed.
    #[inline]
    pub(crate) fn running(&self) -> u32 {
        self.running
    }

    // The next packet.

    /// Keeps a packet for which the library had no room.
    #[inline]
    pub(crate) fn keep_refused(&mut self, packet: Packet) {
        self.refused = Some(packet);
    }

    #[inline]
    pub(crate) fn take_refused(&mut self) -> Option<Packet> {
        self.refused.take()
    }

    #[inline]
    pub(crate) fn has_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// The library writes the payload of the next packet, which goes without it.
    #[inline]
    pub(crate) fn set_payload_written(&mut self) {
        self.payload_written = true;
    }

    #[inline]
    pub(crate) fn is_payload_written(&self) -> bool {
        self.payload_written
    }

    // Lists.

    #[inline]
    pub(crate) fn set_has_packets(&mut self, has_packets: bool) {
        self.has_packets = has_packets;
    }

    #[inline]
    pub(crate) fn has_packets(&self) -> bool {
        self.has_packets
    }

    /// The peer comes into the list of those to be sent to. False if it was there.
    #[inline]
    pub(crate) fn enter_queue(&mut self) -> bool {
        !std::mem::replace(&mut self.queued, true)
    }

    #[inline]
    pub(crate) fn leave_queue(&mut self) {
        self.queued = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_done_in_order() {
        let mut out = Outbound::new(u32::MAX);
        let serials: Vec<u32> = (0..3).map(|_| out.depart()).collect();
        assert_eq!(serials, [u32::MAX, 0, 1]);
        assert_eq!(out.arrive(0), Some(0));
        assert_eq!(out.arrive(1), Some(0));
        assert_eq!(out.arrive(u32::MAX), Some(3));
        assert_eq!(out.arrive(u32::MAX), None, "of an earlier user");
        assert_eq!(out.arrive(2), None, "not under way");
    }

    #[test]
    fn only_what_was_sent_is_acknowledged() {
        let mut out = Outbound::new(0);
        out.sent = 5;
        assert!(!out.acknowledge(6));
        assert!(out.acknowledge(3) && out.acknowledge(3) && out.acknowledge(5));
        assert!(out.acknowledge(4) && out.acknowledged == 5, "overtaken");
        out.sent = out.acknowledged.wrapping_add(WINDOW);
        assert!(!out.has_window());
    }
}
