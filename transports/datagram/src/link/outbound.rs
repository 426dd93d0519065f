//! What goes to a peer: the window, and operations that the library has not completed.

use super::WINDOW;

/// The state of sending to one peer.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    /// Packets sent, and how many of them the peer has taken.
    sent: u32,
    acknowledged: u32,
    /// Sends and accesses that the library has not completed.
    running: u32,
    /// The library already writes the data of the next packet.
    payload_written: bool,
}

impl Outbound {
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

    /// The library writes the payload of the next packet, which goes without it.
    #[inline]
    pub(crate) fn set_payload_written(&mut self) {
        self.payload_written = true;
    }

    #[inline]
    pub(crate) fn is_payload_written(&self) -> bool {
        self.payload_written
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_sent_is_acknowledged() {
        let mut out = Outbound { sent: 5, ..Outbound::default() };
        assert!(!out.acknowledge(6));
        assert!(out.acknowledge(3) && out.acknowledge(3) && out.acknowledge(5));
        assert!(out.acknowledge(4) && out.acknowledged == 5, "overtaken");
        out.sent = out.acknowledged.wrapping_add(WINDOW);
        assert!(!out.has_window());
    }
}
