//! When a peer is due an acknowledgement.

/// What was taken of a peer since the last acknowledgement to it.
#[derive(Debug, Default)]
pub(crate) struct AckDue {
    packets: u32,
    /// Cells of its FIFO.
    cells: u32,
    /// The peer is waiting for the acknowledgement.
    urgent: bool,
    /// A timer runs for it.
    timed: bool,
}

impl AckDue {
    /// A short packet was taken.
    #[inline]
    pub(crate) fn add_packet(&mut self) {
        self.packets += 1;
    }

    /// A record was taken out of the FIFO, in this many cells.
    #[inline]
    pub(crate) fn add_cells(&mut self, cells: u32) {
        self.cells += cells;
    }

    /// The peer is waiting.
    #[inline]
    pub(crate) fn set_urgent(&mut self) {
        self.urgent = true;
    }

    /// Whether to acknowledge now: past half of the window, past a quarter of the cells of the
    /// FIFO, or as the peer is waiting.
    #[inline]
    pub(crate) fn is_now(&self, window: u32, cells: u32) -> bool {
        self.packets >= window / 2 || self.cells >= cells / 4 || self.urgent
    }

    /// All was acknowledged.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.packets, self.cells, self.urgent) = (0, 0, false);
    }

    // The timer.

    /// Whether a timer runs.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        self.timed
    }

    #[inline]
    pub(crate) fn set_timed(&mut self, timed: bool) {
        self.timed = timed;
    }
}
