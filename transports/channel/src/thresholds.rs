//! Which size goes by which channel.

use petasos_fabric::{Tuning, TuningError};

/// From which length on a packet takes another channel, in bytes. Both sides may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    mp: usize,
    exclusive: usize,
    immediate: usize,
}

/// Why numbers are not valid thresholds.
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

/// Their names in a tuning.
const MP: &str = "mp";
const EXCLUSIVE: &str = "exclusive";
const IMMEDIATE: &str = "immediate";

fn line(scheme: &str, name: &str) -> String {
    format!("{scheme}.channel.{name}")
}

impl Thresholds {
    /// The most that makes sense for any of them.
    pub const MAX: usize = 16 << 20;

    /// Packets of the engine's of up to `mp` bytes go as short packets, as a few if they do not fit
    /// into one; with an exclusive channel, up to `exclusive` bytes go through that; what is longer
    /// is fetched by the receiver. Records of up to `immediate` bytes go as immediate puts, as far
    /// as the device has those.
    ///
    /// # Errors
    /// `mp` is beyond `exclusive`, or a number is beyond [`Thresholds::MAX`].
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

    /// What is best on this machine over a device with this scheme, as `petasos tune` found it; the
    /// defaults where it said nothing, or nothing that makes sense, which is logged.
    #[must_use]
    pub fn of_machine(scheme: &str) -> Thresholds {
        Thresholds::of_machine_or(scheme, Thresholds::default())
    }

    /// The same, but `usual` where the tuning says nothing.
    #[must_use]
    pub fn of_machine_or(scheme: &str, usual: Thresholds) -> Thresholds {
        Thresholds::tuned_from(Tuning::of_machine(), scheme, usual).unwrap_or_else(|error| {
            tracing::warn!(scheme, %error, "going on without what `petasos tune` wrote");
            usual
        })
    }

    /// What `tuning` says for a scheme: the defaults, but for `SCHEME.channel.mp`,
    /// `SCHEME.channel.exclusive` and `SCHEME.channel.immediate`, in bytes.
    ///
    /// # Errors
    /// The numbers contradict each other, or the defaults for those that are missing.
    pub fn tuned(tuning: &Tuning, scheme: &str) -> Result<Thresholds, ThresholdError> {
        Thresholds::tuned_from(tuning, scheme, Thresholds::default())
    }

    fn tuned_from(
        tuning: &Tuning,
        scheme: &str,
        usual: Thresholds,
    ) -> Result<Thresholds, ThresholdError> {
        let number = |name: &str, usual: usize| match tuning.number(&line(scheme, name)) {
            Some(bytes) => usize::try_from(bytes).unwrap_or(usize::MAX),
            None => usual,
        };
        Thresholds::new(
            number(MP, usual.mp),
            number(EXCLUSIVE, usual.exclusive),
            number(IMMEDIATE, usual.immediate),
        )
    }

    /// Writes the thresholds into a tuning.
    ///
    /// # Errors
    /// None today: any name and number can be set.
    pub fn tune(&self, tuning: &mut Tuning, scheme: &str) -> Result<(), TuningError> {
        for (name, bytes) in
            [(MP, self.mp), (EXCLUSIVE, self.exclusive), (IMMEDIATE, self.immediate)]
        {
            tuning.set(&line(scheme, name), bytes as u64)?;
        }
        Ok(())
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

    #[test]
    fn of_a_tuning() {
        let text = "shm.channel.exclusive = 70000\nshm.channel.later = 9\nshm.channel.mp = 60000\n\
                    tcp.channel.mp = 100\n";
        let tuning: Tuning = text.parse().unwrap();
        let usual = Thresholds::default();
        let shm = Thresholds::new(60_000, 70_000, usual.immediate()).unwrap();
        assert_eq!(Thresholds::tuned(&tuning, "shm"), Ok(shm));
        let tcp = Thresholds::tuned(&tuning, "tcp").unwrap();
        assert_eq!((tcp.mp(), tcp.exclusive()), (100, usual.exclusive()));
        assert_eq!(Thresholds::tuned(&tuning, "other"), Ok(usual));
        let mut written = Tuning::default();
        shm.tune(&mut written, "of").unwrap();
        assert_eq!(Thresholds::tuned(&written, "of"), Ok(shm));
        for (text, said) in [
            ("shm.channel.mp = 40000", "short packets up to 40000 bytes"),
            ("shm.channel.exclusive = 16777217", "exclusive of 16777217 bytes"),
            ("shm.channel.immediate = 18446744073709551615", "immediate of"),
        ] {
            let tuning: Tuning = text.parse().unwrap();
            let error = Thresholds::tuned(&tuning, "shm").unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
