//! Which size goes by which channel.

use petasos_fabric::{Setting, Tuning, TuningError};

/// Their names in a tuning, after the scheme.
const MP: &str = "mp";
const EXCLUSIVE: &str = "exclusive";
const EXCLUSIVE_FROM: &str = "exclusive_from";
const IMMEDIATE: &str = "immediate";

fn line(scheme: &str, name: &str) -> String {
    format!("{scheme}.channel.{name}")
}

/// Which channel a packet takes by its length in bytes. Both sides may differ.
///
/// ```
/// use petasos_channel::Thresholds;
///
/// // Short packets up to 4 KiB; while an exclusive channel is open, 512 bytes to 16 KiB go
/// // through that, and what is shorter by short packets all the same.
/// let some = Thresholds::new(4096, 16_384, 128)?.with_exclusive(512, 16_384)?;
/// assert!(some.suits_exclusive(512) && !some.suits_exclusive(511));
/// // Never through an exclusive channel: peers are asked for none.
/// assert_eq!(some.without_exclusive().exclusive(), None);
/// # Ok::<(), petasos_channel::ThresholdError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    mp: usize,
    exclusive: Exclusive,
    immediate: usize,
}

/// The lengths that go through an exclusive channel: none if they end before they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Exclusive {
    from: usize,
    to: usize,
}

impl Exclusive {
    const NEVER: Exclusive = Exclusive { from: usize::MAX, to: 0 };
}

/// Why numbers are not valid thresholds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ThresholdError {
    /// The lengths for the exclusive channel end before they begin.
    #[error("the exclusive channel from {from} bytes on, but only up to {to}")]
    Order {
        /// The shortest.
        from: usize,
        /// The longest.
        to: usize,
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
    pub const MAX: usize = Tuning::LONGEST_PACKET as usize;

    /// Packets of the engine's of up to `mp` bytes go as short packets, as a few if they do not fit
    /// into one; with an exclusive channel, up to `exclusive` bytes go through that; what is longer
    /// is fetched by the receiver. With an `exclusive` of 0 nothing goes through an exclusive
    /// channel, and none is asked for. Records of up to `immediate` bytes go as immediate puts, as
    /// far as the device has those.
    ///
    /// # Errors
    /// A number is beyond [`Thresholds::MAX`].
    pub fn new(
        mp: usize,
        exclusive: usize,
        immediate: usize,
    ) -> Result<Thresholds, ThresholdError> {
        for (what, value) in [("mp", mp), ("exclusive", exclusive), ("immediate", immediate)] {
            if value > Self::MAX {
                return Err(ThresholdError::TooLarge { what, value, max: Self::MAX });
            }
        }
        let exclusive = match exclusive {
            0 => Exclusive::NEVER,
            to => Exclusive { from: 0, to },
        };
        Ok(Thresholds { mp, exclusive, immediate })
    }

    /// The same, but only packets of `from` to `to` bytes go through an exclusive channel; others
    /// take the channel that they take without one.
    ///
    /// # Errors
    /// `from` is beyond `to`, or `to` beyond [`Thresholds::MAX`].
    pub fn with_exclusive(self, from: usize, to: usize) -> Result<Thresholds, ThresholdError> {
        if from > to {
            return Err(ThresholdError::Order { from, to });
        }
        let Thresholds { exclusive, .. } = Thresholds::new(self.mp, to, self.immediate)?;
        let exclusive = match exclusive {
            Exclusive::NEVER => exclusive,
            _ => Exclusive { from, to },
        };
        Ok(Thresholds { exclusive, ..self })
    }

    /// The same, but nothing goes through an exclusive channel, and peers are asked for none.
    #[must_use]
    pub fn without_exclusive(self) -> Thresholds {
        Thresholds { exclusive: Exclusive::NEVER, ..self }
    }

    /// What is best on this machine over a device with this scheme, as `petasos tune` found it; the
    /// defaults where it said nothing.
    #[must_use]
    pub fn of_machine(scheme: &str) -> Thresholds {
        Thresholds::of_machine_or(scheme, Thresholds::default())
    }

    /// The same, but `usual` where the tuning says nothing.
    #[must_use]
    pub fn of_machine_or(scheme: &str, usual: Thresholds) -> Thresholds {
        Thresholds::tuned_or(Tuning::of_machine(), scheme, usual)
    }

    /// What `tuning` says for a scheme: the defaults, but for `SCHEME.channel.mp`,
    /// `SCHEME.channel.exclusive`, `SCHEME.channel.exclusive_from` and
    /// `SCHEME.channel.immediate`, in bytes ([`Tuning`]).
    #[must_use]
    pub fn tuned(tuning: &Tuning, scheme: &str) -> Thresholds {
        Thresholds::tuned_or(tuning, scheme, Thresholds::default())
    }

    /// The same, but `usual` in place of the defaults. Where that has no exclusive channel, there
    /// is one only if the tuning has `exclusive_from` as well: files of versions that did not write
    /// it measured something else.
    #[must_use]
    pub fn tuned_or(tuning: &Tuning, scheme: &str, usual: Thresholds) -> Thresholds {
        let said = |name: &str| tuning.get(&line(scheme, name));
        let number = |name: &str| match said(name)? {
            // What makes no sense is not in a tuning: this is for numbers that were set unchecked.
            Setting::Number(bytes) => Some(bytes.min(Self::MAX as u64) as usize),
            Setting::Never => None,
        };
        let to = match said(EXCLUSIVE) {
            Some(Setting::Never) => Some(0),
            _ => number(EXCLUSIVE),
        };
        let from = number(EXCLUSIVE_FROM).or(usual.exclusive().map(|(from, _)| from));
        let exclusive = match (from, to) {
            (_, None) => usual.exclusive,
            (Some(from), Some(to)) if to > 0 && from <= to => Exclusive { from, to },
            _ => Exclusive::NEVER,
        };
        Thresholds {
            mp: number(MP).unwrap_or(usual.mp),
            exclusive,
            immediate: number(IMMEDIATE).unwrap_or(usual.immediate),
        }
    }

    /// Writes the thresholds into a tuning.
    ///
    /// # Errors
    /// None for thresholds that exist: the tuning allows the same numbers.
    pub fn tune(&self, tuning: &mut Tuning, scheme: &str) -> Result<(), TuningError> {
        let mut set = |name: &str, bytes| tuning.set(&line(scheme, name), bytes);
        set(MP, Setting::Number(self.mp as u64))?;
        set(IMMEDIATE, Setting::Number(self.immediate as u64))?;
        match self.exclusive() {
            None => set(EXCLUSIVE, Setting::Never),
            Some((from, to)) => {
                set(EXCLUSIVE, Setting::Number(to as u64))?;
                set(EXCLUSIVE_FROM, Setting::Number(from as u64))
            }
        }
    }

    /// The longest that goes as short packets.
    #[must_use]
    pub fn mp(&self) -> usize {
        self.mp
    }

    /// The shortest and the longest that go through an exclusive channel; `None` if nothing does.
    #[must_use]
    pub fn exclusive(&self) -> Option<(usize, usize)> {
        let Exclusive { from, to } = self.exclusive;
        (from <= to).then_some((from, to))
    }

    /// Whether a packet of this length goes through an exclusive channel, if there is one.
    #[inline]
    #[must_use]
    pub fn suits_exclusive(&self, len: usize) -> bool {
        (self.exclusive.from..=self.exclusive.to).contains(&len)
    }

    /// The longest immediate put.
    #[must_use]
    pub fn immediate(&self) -> usize {
        self.immediate
    }
}

impl Default for Thresholds {
    /// 8 KiB, 32 KiB through an exclusive channel, and 192 bytes.
    fn default() -> Thresholds {
        let exclusive = Exclusive { from: 0, to: 32 << 10 };
        Thresholds { mp: 8 << 10, exclusive, immediate: 192 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused() {
        assert_eq!(Thresholds::new(8 << 10, 32 << 10, 192), Ok(Thresholds::default()));
        let usual = Thresholds::default();
        assert_eq!(usual.with_exclusive(2, 1), Err(ThresholdError::Order { from: 2, to: 1 }));
        assert!(usual.with_exclusive(0, Thresholds::MAX + 1).is_err());
        assert!(Thresholds::new(0, Thresholds::MAX + 1, 0).is_err());
        assert!(Thresholds::new(0, 0, usize::MAX).is_err());
        assert!(Thresholds::new(Thresholds::MAX + 1, 0, 0).is_err());
    }

    #[test]
    fn never_is_a_choice() {
        let never = Thresholds::new(100, 0, 0).unwrap();
        assert_eq!(never.exclusive(), None);
        assert_eq!(Thresholds::default().without_exclusive().exclusive(), None);
        assert!([0, 1, 100, usize::MAX].iter().all(|len| !never.suits_exclusive(*len)));
        let some = never.with_exclusive(10, 20).unwrap();
        let suits: Vec<usize> = (0..30).filter(|len| some.suits_exclusive(*len)).collect();
        assert_eq!(suits, (10..=20).collect::<Vec<_>>());
    }

    #[test]
    fn of_a_tuning() {
        let text = "shm.channel.exclusive = 70000\nshm.channel.later = 9\nshm.channel.mp = 60000\n\
                    tcp.channel.mp = 100\nofi+tcp.channel.exclusive = never\n\
                    ucx.channel.exclusive = 9000\nucx.channel.exclusive_from = 500\n\
                    old.channel.exclusive = 0\n";
        let tuning: Tuning = text.parse().unwrap();
        let usual = Thresholds::default();
        let of = |scheme| Thresholds::tuned(&tuning, scheme);
        let shm = Thresholds::new(60_000, 70_000, usual.immediate()).unwrap();
        assert_eq!(of("shm"), shm);
        assert_eq!((of("tcp").mp(), of("tcp").exclusive()), (100, usual.exclusive()));
        assert_eq!(of("other"), usual);
        assert_eq!(of("ofi+tcp"), usual.without_exclusive());
        assert_eq!(of("old"), usual.without_exclusive());
        assert_eq!(of("ucx").exclusive(), Some((500, 9000)));
        // Where there is none usually, an old file does not begin to use one.
        let never = usual.without_exclusive();
        for (scheme, expected) in [("shm", None), ("ucx", Some((500, 9000))), ("other", None)] {
            assert_eq!(Thresholds::tuned_or(&tuning, scheme, never).exclusive(), expected);
        }
    }

    #[test]
    fn written_and_read() {
        let usual = Thresholds::default();
        for written in [usual, usual.without_exclusive(), usual.with_exclusive(64, 4096).unwrap()] {
            let mut tuning = Tuning::default();
            written.tune(&mut tuning, "ofi+verbs;ofi_rxm").unwrap();
            let read: Tuning = tuning.to_string().parse().unwrap();
            for usual in [usual, usual.without_exclusive()] {
                assert_eq!(Thresholds::tuned_or(&read, "ofi+verbs;ofi_rxm", usual), written);
            }
        }
    }
}
