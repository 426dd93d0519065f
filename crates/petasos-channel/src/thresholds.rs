//! Which size goes by which channel.

/// From which length on a packet takes another channel, in bytes. Both sides may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    mp: usize,
    exclusive: usize,
    immediate: usize,
}

/// Why numbers are no thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    /// The limit for short packets is beyond that for the exclusive channel.
    #[error("short packets up to {mp} bytes, but the exclusive channel only up to {exclusive}")]
    Order {
        /// The limit for short packets.
        mp: usize,
        /// The limit for the exclusive channel.
        exclusive: usize,
    },
    /// Longer than anything that is sent in one packet.
    #[error("{what} of {value} bytes, at most {max} make sense")]
    TooLarge {
        /// Which.
        what: &'static str,
        /// Its value.
        value: usize,
        /// The most.
        max: usize,
    },
}

impl Thresholds {
    /// The most that makes sense for any of them.
    pub const MAX: usize = 16 << 20;

    /// Packets of the engine's of up to `mp` bytes go as short packets, as a few if they do not fit
    /// into one; with an exclusive channel, up to `exclusive` bytes go through that; what is longer
    /// is fetched by the receiver. Records of up to `immediate` bytes go as immediate puts, as far as
    /// the device has those.
    pub fn new(
        mp: usize,
        exclusive: usize,
        immediate: usize,
    ) -> Result<Thresholds, ThresholdError> {
        if mp > exclusive {
            return Err(ThresholdError::Order { mp, exclusive });
        }
        for (what, value) in [("exclusive", exclusive), ("immediate", immediate)] {
            if value > Self::MAX {
                return Err(ThresholdError::TooLarge { what, value, max: Self::MAX });
            }
        }
        Ok(Thresholds { mp, exclusive, immediate })
    }

    /// The longest that goes as short packets.
    #[must_use]
    pub fn mp(&self) -> usize {
        self.mp
    }

    /// The longest that goes through an exclusive channel.
    #[must_use]
    pub fn exclusive(&self) -> usize {
        self.exclusive
    }

    /// The longest immediate put.
    #[must_use]
    pub fn immediate(&self) -> usize {
        self.immediate
    }
}

impl Default for Thresholds {
    /// 8 KiB, 32 KiB, and 192 bytes.
    fn default() -> Thresholds {
        Thresholds { mp: 8 << 10, exclusive: 32 << 10, immediate: 192 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused() {
        assert!(Thresholds::new(0, 0, 0).is_ok());
        assert_eq!(Thresholds::new(8 << 10, 32 << 10, 192), Ok(Thresholds::default()));
        let order = ThresholdError::Order { mp: 2, exclusive: 1 };
        assert_eq!(Thresholds::new(2, 1, 0), Err(order));
        assert!(Thresholds::new(0, Thresholds::MAX + 1, 0).is_err());
        assert!(Thresholds::new(0, 0, usize::MAX).is_err());
    }
}
