//! What was measured to be best on this machine: numbers by name, in a file.
//!
//! `petasos tune` writes the file. Code that has a number to choose, and was told none by the
//! program, asks [`Tuning::of_machine`]: an engine for how long to poll before it sleeps and what
//! to lend over its transport, channels for which size goes by which of them.

use std::{
    collections::BTreeMap,
    env, fmt, fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Duration,
};

/// Numbers that are best for a machine.
///
/// ```
/// use petasos_fabric::Tuning;
/// let tuning: Tuning = "spin_us = 45\nshm.lend_above = 262144\n".parse()?;
/// assert_eq!(tuning.lend_above("shm"), Some(262144));
/// # Ok::<(), petasos_fabric::TuningError>(())
/// ```
///
/// The file is text: lines `NAME = NUMBER`, and comments from `#` on. Names that are not known are
/// kept and passed over, as a later version may have written them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    numbers: BTreeMap<String, u64>,
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
}

/// Bytes of a file.
const LONGEST: u64 = 64 << 10;
/// Microseconds of spinning: the name, and what makes sense.
const SPIN: (&str, [u64; 2]) = ("spin_us", [0, 100_000]);
/// Bytes from which something is lent, by scheme.
const LEND: (&str, [u64; 2]) = ("lend_above", [1024, 1 << 30]);

impl Tuning {
    /// That of this machine: what the file at [`Tuning::path`] said when this was first asked for.
    /// Of a file that cannot be read nothing is taken, and that is logged.
    #[must_use]
    pub fn of_machine() -> &'static Tuning {
        static MACHINE: OnceLock<Tuning> = OnceLock::new();
        MACHINE.get_or_init(|| {
            Tuning::load().unwrap_or_else(|error| {
                tracing::warn!(%error, "going on without what `petasos tune` wrote");
                Tuning::default()
            })
        })
    }

    /// Where the file is: as `PETASOS_TUNING` says, or else `petasos/tuning` in the directory for
    /// settings (`XDG_CONFIG_HOME`, or `.config` at home). None without any of these.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        let of = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let settings = || of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")));
        of("PETASOS_TUNING").or_else(|| Some(settings()?.join("petasos/tuning")))
    }

    /// What the file at [`Tuning::path`] says now; nothing if there is none.
    ///
    /// # Errors
    /// It cannot be read, or is no tuning.
    pub fn load() -> Result<Tuning, TuningError> {
        match Tuning::path() {
            Some(path) if path.exists() => Tuning::read(&path),
            _ => Ok(Tuning::default()),
        }
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no tuning.
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

    /// How long a waiting thread polls before it sleeps.
    #[must_use]
    pub fn spin(&self) -> Option<Duration> {
        self.number(SPIN.0).map(Duration::from_micros)
    }

    /// From how many bytes on data is better fetched by the other side than sent within a message,
    /// over the transport with this scheme.
    #[must_use]
    pub fn lend_above(&self, scheme: &str) -> Option<usize> {
        self.number(&format!("{scheme}.{}", LEND.0)).map(|bytes| bytes as usize)
    }

    /// Any number: `spin_us`, or `SCHEME.NAME` for what differs between transports.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.numbers.get(name).copied()
    }

    /// Sets a number, as a line of the file would.
    ///
    /// # Errors
    /// [`TuningError::Range`], where the name is one that this crate knows.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), TuningError> {
        let sense = match name.rsplit('.').next() {
            _ if name == SPIN.0 => SPIN.1,
            Some(last) if last == LEND.0 => LEND.1,
            _ => [0, u64::MAX],
        };
        let [least, most] = sense;
        if !(least..=most).contains(&value) {
            return Err(TuningError::Range { name: name.to_owned(), value, least, most });
        }
        self.numbers.insert(name.to_owned(), value);
        Ok(())
    }
}

impl std::str::FromStr for Tuning {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Tuning, TuningError> {
        let mut tuning = Tuning::default();
        for (at, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default().trim();
            if said.is_empty() {
                continue;
            }
            let parsed =
                said.split_once('=').map(|(name, value)| (name.trim(), value.trim().parse()));
            let Some((name, Ok(value))) = parsed else {
                let text = line.chars().take(80).collect();
                return Err(TuningError::Line { line: at + 1, text });
            };
            tuning.set(name, value)?;
        }
        Ok(tuning)
    }
}

/// As it stands in a file.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.numbers.iter().try_for_each(|(name, number)| writeln!(f, "{name} = {number}"))
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
            "of.later = 1\nshm.lend_above = 8192\nspin_us = 7\ntcp.lend_above = 2048\n"
        );
        assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning);
        assert_eq!(tuning.lend_above("shm"), Some(8192));
        assert_eq!(tuning.spin(), Some(Duration::from_micros(7)));
        assert_eq!(tuning.lend_above("other"), None);
        assert_eq!(Tuning::default().spin(), None);
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

    #[test]
    fn files() {
        let place = env::temp_dir().join(format!("petasos-tuning-{}", std::process::id()));
        fs::create_dir(&place).unwrap();
        let path = place.join("tuning");
        assert!(matches!(Tuning::read(&path), Err(TuningError::File { .. })));
        fs::write(&path, "spin_us = 3").unwrap();
        assert_eq!(Tuning::read(&path).unwrap().spin(), Some(Duration::from_micros(3)));
        fs::write(&path, vec![b'#'; 70_000]).unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::TooLong(_))));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::File { .. })));
        fs::remove_dir_all(&place).unwrap();
    }
}
