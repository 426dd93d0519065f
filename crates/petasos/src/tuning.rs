//! What `petasos tune` found out about this machine, for engines to use.

#[cfg(feature = "channel")]
use petasos_channel::{ThresholdError, Thresholds};
use petasos_rpc::{EngineConfig, Idle};
use std::{
    env, fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

/// Numbers that are best for a machine, as `petasos tune` measures and writes them.
///
/// ```
/// let tuning: petasos::Tuning = "spin_us = 45\nshm.lend_above = 262144\n".parse()?;
/// let config = tuning.engine("shm");
/// assert_eq!(config.lend_above, 262144);
/// # Ok::<(), petasos::TuningError>(())
/// ```
///
/// The file is text: lines `NAME = NUMBER`, and comments from `#` on. Names that are not known are
/// passed over, as a later version may have written them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// How long an engine that waits looks again before it sleeps.
    pub spin: Option<Duration>,
    /// By the scheme of a transport: from how many bytes on arguments and results are lent rather
    /// than sent within the message. See [`EngineConfig::lend_above`].
    pub lend_above: Vec<(String, usize)>,
    /// By the scheme of a transport: which size takes which channel over it. Without the feature
    /// `channel` these lines are passed over.
    #[cfg(feature = "channel")]
    pub channels: Vec<(String, Thresholds)>,
}

/// Why a file is no tuning.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuningError {
    /// It could not be read.
    #[error("reading {path}: {error}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It is longer than any tuning.
    #[error("{0} is longer than the {LONGEST} bytes of a tuning")]
    TooLong(PathBuf),
    /// A line that says nothing.
    #[error("line {line} is not `NAME = NUMBER`: {text:?}")]
    Line {
        /// From 1 on.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// A number that makes no sense.
    #[error("{name} is {value}, which is not from {least} to {most}")]
    Range {
        /// Of what.
        name: String,
        /// The number.
        value: u64,
        /// The least that does.
        least: u64,
        /// The most that does.
        most: u64,
    },
    /// Thresholds of channels that contradict each other.
    #[cfg(feature = "channel")]
    #[error("{scheme}.channel: {error}")]
    Channels {
        /// Over which transport.
        scheme: String,
        /// How.
        error: ThresholdError,
    },
}

/// Bytes of a file.
const LONGEST: u64 = 64 << 10;
/// Microseconds of spinning.
const SPIN: [u64; 2] = [0, 100_000];
/// Bytes from which something is lent.
const LEND: [u64; 2] = [1024, 1 << 30];

impl Tuning {
    /// Where the file is: as `PETASOS_TUNING` says, or else `petasos/tuning` in the directory for
    /// settings (`XDG_CONFIG_HOME`, or `.config` at home). None without any of these.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        let of = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let settings = || of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")));
        of("PETASOS_TUNING").or_else(|| Some(settings()?.join("petasos/tuning")))
    }

    /// What the file at [`Tuning::path`] says; nothing if there is none.
    pub fn load() -> Result<Tuning, TuningError> {
        match Tuning::path() {
            Some(path) if path.exists() => Tuning::read(&path),
            _ => Ok(Tuning::default()),
        }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Tuning, TuningError> {
        let failed = |error| TuningError::File { path: path.to_owned(), error };
        let mut text = String::new();
        let file = fs::File::open(path).map_err(failed)?;
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > LONGEST {
            return Err(TuningError::TooLong(path.to_owned()));
        }
        text.parse()
    }

    /// Settings of an engine over the transport with this scheme: the defaults, but for what was
    /// found out.
    #[must_use]
    pub fn engine(&self, scheme: &str) -> EngineConfig {
        let mut config = EngineConfig::default();
        if let Some(spin) = self.spin {
            config.idle = Idle::Adaptive(spin);
        }
        if let Some((_, bytes)) = self.lend_above.iter().find(|(of, _)| of == scheme) {
            config.lend_above = *bytes;
        }
        config
    }

    /// Settings of channels over the transport with this scheme: the defaults, but for what was
    /// found out.
    #[cfg(feature = "channel")]
    #[must_use]
    pub fn channel(&self, scheme: &str) -> petasos_channel::Config {
        let mut config = petasos_channel::Config::default();
        if let Some((_, thresholds)) = self.channels.iter().find(|(of, _)| of == scheme) {
            config.thresholds = *thresholds;
        }
        config
    }
}

/// Thresholds as they stand in lines, of which some may be missing.
#[cfg(feature = "channel")]
#[derive(Default)]
struct Lines {
    scheme: String,
    /// In the order of [`NAMES`].
    numbers: [Option<usize>; 3],
}

#[cfg(feature = "channel")]
const NAMES: [&str; 3] = ["mp", "exclusive", "immediate"];

#[cfg(feature = "channel")]
impl Lines {
    /// Takes a number, if that is what the name says.
    fn take(all: &mut Vec<Lines>, name: &str, value: usize) {
        let Some((scheme, Some(at))) = name
            .split_once(".channel.")
            .map(|(scheme, which)| (scheme, NAMES.iter().position(|name| *name == which)))
        else {
            return;
        };
        let found = all.iter().position(|lines| lines.scheme == scheme).unwrap_or_else(|| {
            all.push(Lines { scheme: scheme.to_owned(), ..Lines::default() });
            all.len() - 1
        });
        all[found].numbers[at] = Some(value);
    }

    fn thresholds(self) -> Result<(String, Thresholds), TuningError> {
        let usual = Thresholds::default();
        let [mp, exclusive, immediate] = self.numbers;
        let found = Thresholds::new(
            mp.unwrap_or(usual.mp()),
            exclusive.unwrap_or(usual.exclusive()),
            immediate.unwrap_or(usual.immediate()),
        );
        match found {
            Ok(thresholds) => Ok((self.scheme, thresholds)),
            Err(error) => Err(TuningError::Channels { scheme: self.scheme, error }),
        }
    }
}

impl std::str::FromStr for Tuning {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Tuning, TuningError> {
        let mut tuning = Tuning::default();
        #[cfg(feature = "channel")]
        let mut channels = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default().trim();
            if said.is_empty() {
                continue;
            }
            let number = |value: &str| value.trim().parse::<u64>().ok();
            let Some((name, Some(value))) =
                said.split_once('=').map(|(n, v)| (n.trim(), number(v)))
            else {
                let text = line.chars().take(80).collect();
                return Err(TuningError::Line { line: at + 1, text });
            };
            let within = |[least, most]: [u64; 2]| match (least..=most).contains(&value) {
                true => Ok(value),
                false => Err(TuningError::Range { name: name.to_owned(), value, least, most }),
            };
            if name == "spin_us" {
                tuning.spin = Some(Duration::from_micros(within(SPIN)?));
            } else if let Some(scheme) = name.strip_suffix(".lend_above") {
                let bytes = within(LEND)? as usize;
                tuning.lend_above.retain(|(of, _)| of != scheme);
                tuning.lend_above.push((scheme.to_owned(), bytes));
            } else {
                #[cfg(feature = "channel")]
                Lines::take(&mut channels, name, usize::try_from(value).unwrap_or(usize::MAX));
            }
        }
        #[cfg(feature = "channel")]
        for lines in channels {
            tuning.channels.push(lines.thresholds()?);
        }
        Ok(tuning)
    }
}

/// As it stands in a file.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(spin) = self.spin {
            writeln!(f, "spin_us = {}", spin.as_micros())?;
        }
        for (scheme, bytes) in &self.lend_above {
            writeln!(f, "{scheme}.lend_above = {bytes}")?;
        }
        #[cfg(feature = "channel")]
        for (scheme, thresholds) in &self.channels {
            let numbers = [thresholds.mp(), thresholds.exclusive(), thresholds.immediate()];
            for (name, number) in NAMES.iter().zip(numbers) {
                writeln!(f, "{scheme}.channel.{name} = {number}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let text = "# a machine\nspin_us = 7 # short\n\ntcp.lend_above=2048\nshm.lend_above = 4096\n\
                    shm.lend_above = 8192\nof.later = 1\n";
        let tuning: Tuning = text.parse().unwrap();
        assert_eq!(
            tuning.to_string(),
            "spin_us = 7\ntcp.lend_above = 2048\nshm.lend_above = 8192\n"
        );
        assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        assert_eq!(tuning.engine("shm").lend_above, 8192);
        assert_eq!(tuning.engine("tcp").idle, Idle::Adaptive(Duration::from_micros(7)));
        assert_eq!(tuning.engine("other").lend_above, usize::MAX);
        assert_eq!(Tuning::default().engine("shm").idle, Idle::default());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (text, said) in [
            ("spin_us = 100001", "spin_us is 100001, which is not from 0 to 100000"),
            ("shm.lend_above = 1023", "shm.lend_above is 1023"),
            ("\nspin_us", "line 2 is not"),
            ("spin_us = -1", "line 1 is not"),
            ("spin_us = 99999999999999999999", "line 1 is not"),
            ("= = =", "line 1 is not"),
        ] {
            let error = text.parse::<Tuning>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[cfg(feature = "channel")]
    #[test]
    fn thresholds_of_channels() {
        let text = "shm.channel.exclusive = 70000\nshm.channel.later = 9\nshm.channel.mp = 60000\n\
                    tcp.channel.mp = 100\n";
        let tuning: Tuning = text.parse().unwrap();
        let usual = Thresholds::default();
        let shm = Thresholds::new(60_000, 70_000, usual.immediate()).unwrap();
        assert_eq!(tuning.channel("shm").thresholds, shm);
        assert_eq!(tuning.channel("tcp").thresholds.exclusive(), usual.exclusive());
        assert_eq!(tuning.channel("other").thresholds, usual);
        assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        for (text, said) in [
            ("shm.channel.mp = 40000", "shm.channel: short packets up to 40000 bytes"),
            ("x.channel.exclusive = 16777217", "x.channel: exclusive of 16777217 bytes"),
            ("x.channel.immediate = 18446744073709551615", "immediate of"),
            ("x.channel.immediate = -1", "line 1"),
        ] {
            let error = text.parse::<Tuning>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn files() {
        let place = std::env::temp_dir().join(format!("petasos-tuning-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let path = place.join("tuning");
        assert!(matches!(Tuning::read(&path), Err(TuningError::File { .. })));
        fs::write(&path, "spin_us = 3").unwrap();
        assert_eq!(Tuning::read(&path).unwrap().spin, Some(Duration::from_micros(3)));
        fs::write(&path, vec![b'#'; 70_000]).unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::TooLong(_))));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::File { .. })));
        fs::remove_dir_all(&place).unwrap();
    }
}
