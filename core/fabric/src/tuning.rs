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
/// use petasos_fabric::{Setting, Tuning};
/// let tuning: Tuning = "spin_us = 45\nshm.lend_above = 262144\n\
///                       ofi+tcp.channel.exclusive = never\n".parse()?;
/// assert_eq!(tuning.lend_above("shm"), Some(262144));
/// assert_eq!(tuning.get("ofi+tcp.channel.exclusive"), Some(Setting::Never));
/// # Ok::<(), petasos_fabric::TuningError>(())
/// ```
///
/// # The file
///
/// It is text of at most 64 KiB: lines `NAME = NUMBER` or `NAME = never`, and comments from `#` on.
/// Of several lines with one name the last one counts. A name is of at most 128 visible ASCII
/// characters. These are known:
///
/// | name | from | to | what |
/// |---|---|---|---|
/// | `spin_us` | 0 | 100000 | microseconds of polling before a sleep |
/// | `SCHEME.lend_above` | 1024 | 2^30 | bytes from which arguments and results are lent |
/// | `SCHEME.channel.mp` | 0 | 2^24 | the longest packet that goes as short packets, without or beside an exclusive channel, in bytes |
/// | `SCHEME.channel.exclusive` | 0 | 2^24 | the longest that goes through an exclusive channel that is open; `never` (or 0): there is none |
/// | `SCHEME.channel.exclusive_from` | 0 | 2^24 | the shortest that does; only with a number for `exclusive`, and not beyond it |
/// | `SCHEME.channel.immediate` | 0 | 2^24 | the longest record that goes as an immediate put |
///
/// A file with a line that is none of these, a known name with a number that makes no sense, or
/// `never` where a number is needed, is refused as a whole, with an error that names the file and
/// the line. Names that are not known are kept and passed over, as a later version may have
/// written them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    settings: BTreeMap<String, Setting>,
}

/// What a line of a tuning says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A number, in the unit of the name.
    Number(u64),
    /// What the name is the limit of is never done.
    Never,
}

impl From<u64> for Setting {
    fn from(number: u64) -> Setting {
        Setting::Number(number)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Setting::Number(number) => number.fmt(f),
            Setting::Never => f.write_str(NEVER),
        }
    }
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
    /// It was read, and says what makes no sense.
    #[error("{path}, {error}")]
    In {
        /// Which.
        path: PathBuf,
        /// What: most errors name the line.
        error: Box<TuningError>,
    },
    /// A line that says nothing.
    #[error("line {line} is not `NAME = NUMBER`: {text:?}")]
    Line {
        /// From 1 on.
        line: usize,
        /// Its beginning.
        text: String,
    },
    /// A line that says what makes no sense.
    #[error("line {line}: {error}")]
    At {
        /// From 1 on.
        line: usize,
        /// What is wrong with it.
        error: Box<TuningError>,
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
    /// `never`, of something that is always done.
    #[error("{name} is a number, and not `never`")]
    NotNever {
        /// Of what.
        name: String,
    },
    /// What goes through an exclusive channel ends before it begins, or has no end.
    #[error("{name} is {from}, but {channel} is {to}", to = to.map_or("missing".to_owned(), |to| to.to_string()))]
    Empty {
        /// The name of the beginning.
        name: String,
        /// The beginning.
        from: u64,
        /// The name of the end.
        channel: String,
        /// The end, if it is said.
        to: Option<Setting>,
    },
    /// Not a name.
    #[error("{name:?} is no name of a setting")]
    Name {
        /// Its beginning.
        name: String,
    },
}

/// Bytes of a file.
const LONGEST: u64 = 64 << 10;
/// Characters of a name.
const LONGEST_NAME: usize = 128;
/// What stands for no number.
const NEVER: &str = "never";
/// Microseconds of spinning: the name.
const SPIN: &str = "spin_us";
/// Bytes from which something is lent, by scheme.
const LEND: &str = "lend_above";
/// The bounds of an exclusive channel, by scheme.
const EXCLUSIVE: &str = "channel.exclusive";
const EXCLUSIVE_FROM: &str = "channel.exclusive_from";

/// A name that is known: what it is called after the scheme, the numbers that make sense, and
/// whether it may be `never`.
struct Known {
    name: &'static str,
    range: [u64; 2],
    never: bool,
}

const fn known(name: &'static str, range: [u64; 2], never: bool) -> Known {
    Known { name, range, never }
}

static BY_SCHEME: [Known; 5] = [
    known(LEND, [1024, 1 << 30], false),
    known("channel.mp", [0, Tuning::LONGEST_PACKET], false),
    known(EXCLUSIVE, [0, Tuning::LONGEST_PACKET], true),
    known(EXCLUSIVE_FROM, [0, Tuning::LONGEST_PACKET], false),
    known("channel.immediate", [0, Tuning::LONGEST_PACKET], false),
];
static ALONE: Known = known(SPIN, [0, 100_000], false);

/// What is known of a name, if anything is.
fn look_up(name: &str) -> Option<&'static Known> {
    let after = |known: &&Known| {
        let scheme = name.strip_suffix(known.name).and_then(|before| before.strip_suffix('.'));
        scheme.is_some_and(|scheme| !scheme.is_empty())
    };
    if name == SPIN { Some(&ALONE) } else { BY_SCHEME.iter().find(after) }
}

impl Tuning {
    /// The most that makes sense for the length of what goes by a channel, in bytes.
    pub const LONGEST_PACKET: u64 = 16 << 20;

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
            .map_err(|error| TuningError::In { path: path.to_owned(), error: Box::new(error) })
    }

    /// How long a waiting thread polls before it sleeps.
    #[must_use]
    pub fn spin(&self) -> Option<Duration> {
        self.number(SPIN).map(Duration::from_micros)
    }

    /// From how many bytes on data is better fetched by the other side than sent within a message,
    /// over the transport with this scheme.
    #[must_use]
    pub fn lend_above(&self, scheme: &str) -> Option<usize> {
        self.number(&format!("{scheme}.{LEND}")).map(|bytes| bytes as usize)
    }

    /// Any number: `spin_us`, or `SCHEME.NAME` for what differs between transports.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.get(name)? {
            Setting::Number(number) => Some(number),
            Setting::Never => None,
        }
    }

    /// What is said of a name: as [`Tuning::number`], or `never`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Setting> {
        self.settings.get(name).copied()
    }

    /// Sets a number, or `never`, as a line of the file would.
    ///
    /// # Errors
    /// [`TuningError::Name`] for what cannot be a name; [`TuningError::Range`] and
    /// [`TuningError::NotNever`], where the name is one that this crate knows.
    pub fn set(&mut self, name: &str, value: impl Into<Setting>) -> Result<(), TuningError> {
        let visible = name.chars().all(|c| c.is_ascii_graphic() && c != '#' && c != '=');
        if name.is_empty() || name.len() > LONGEST_NAME || !visible {
            return Err(TuningError::Name { name: name.chars().take(80).collect() });
        }
        let (value, name) = (value.into(), name.to_owned());
        match (look_up(&name), value) {
            (Some(Known { range: [least, most], .. }), Setting::Number(value))
                if !(*least..=*most).contains(&value) =>
            {
                return Err(TuningError::Range { name, value, least: *least, most: *most });
            }
            (Some(Known { never: false, .. }), Setting::Never) => {
                return Err(TuningError::NotNever { name });
            }
            _ => self.settings.insert(name, value),
        };
        Ok(())
    }

    /// Whether `petasos tune` finds out what this name is for: of the transport with this scheme
    /// if it has one.
    #[must_use]
    pub fn is_of(name: &str, scheme: &str) -> bool {
        let of_scheme = name.strip_prefix(scheme).is_some_and(|rest| rest.starts_with('.'));
        of_scheme
            && look_up(name).is_some_and(|known| name.len() == scheme.len() + 1 + known.name.len())
    }

    /// The first name whose lines contradict each other, with what is wrong.
    fn contradiction(&self) -> Result<(), (&str, TuningError)> {
        for (name, value) in &self.settings {
            let (Some(scheme), Setting::Number(from)) = (name.strip_suffix(EXCLUSIVE_FROM), *value)
            else {
                continue;
            };
            let channel = format!("{scheme}{EXCLUSIVE}");
            match self.get(&channel) {
                Some(Setting::Number(to)) if from <= to => {}
                to => {
                    let error = TuningError::Empty { name: name.clone(), from, channel, to };
                    return Err((name, error));
                }
            }
        }
        Ok(())
    }
}

impl std::str::FromStr for Tuning {
    type Err = TuningError;

    fn from_str(text: &str) -> Result<Tuning, TuningError> {
        let mut tuning = Tuning::default();
        let mut lines = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let said = line.split('#').next().unwrap_or_default().trim();
            if said.is_empty() {
                continue;
            }
            let at = at + 1;
            let parsed = said.split_once('=').and_then(|(name, value)| {
                let value = match value.trim() {
                    NEVER => Setting::Never,
                    number => Setting::Number(number.parse().ok()?),
                };
                Some((name.trim(), value))
            });
            let Some((name, value)) = parsed else {
                let text = line.chars().take(80).collect();
                return Err(TuningError::Line { line: at, text });
            };
            let located = |error| TuningError::At { line: at, error: Box::new(error) };
            tuning.set(name, value).map_err(located)?;
            lines.insert(name, at);
        }
        tuning.contradiction().map_err(|(name, error)| {
            let line = lines.get(name).copied().unwrap_or_default();
            TuningError::At { line, error: Box::new(error) }
        })?;
        Ok(tuning)
    }
}

/// As it stands in a file.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.iter().try_for_each(|(name, value)| writeln!(f, "{name} = {value}"))
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
            ("= 3", "line 1: \"\" is no name"),
            ("a b = 3", "line 1: \"a b\" is no name"),
            ("\n\x1b[2J.lend_above = 1", "line 2: \"\\u{1b}[2J.lend_above\" is no name"),
            ("spin_us = never", "line 1: spin_us is a number, and not `never`"),
            ("x.lend_above = never", "line 1: x.lend_above is a number"),
            ("x.channel.mp = never", "line 1: x.channel.mp is a number"),
            ("x.channel.mp = 16777217", "x.channel.mp is 16777217, which is not from 0 to 1677721"),
            ("x.channel.exclusive = 16777217", "line 1: x.channel.exclusive is 16777217"),
            ("x.channel.exclusive = Never", "line 1 is not"),
            ("x.channel.immediate = 18446744073709551615", "x.channel.immediate is 184467440737"),
            (
                "x.channel.exclusive = 8\nx.channel.exclusive_from = 9",
                "line 2: x.channel.exclusive_from is 9, but x.channel.exclusive is 8",
            ),
            (
                "x.channel.exclusive_from = 9\n\nx.channel.exclusive = never",
                "line 1: x.channel.exclusive_from is 9, but x.channel.exclusive is never",
            ),
            (
                "x.channel.exclusive_from = 9\ny.channel.exclusive = 9",
                "line 1: x.channel.exclusive_from is 9, but x.channel.exclusive is missing",
            ),
        ] {
            let error = text.parse::<Tuning>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        let long = format!("{}.lend_above = 2048", "x".repeat(LONGEST_NAME));
        let error = long.parse::<Tuning>().unwrap_err().to_string();
        assert!(error.contains("no name") && error.len() < 200, "{error}");
    }

    #[test]
    fn never() {
        let text = "a.channel.exclusive = never\nlater = never\n";
        let tuning: Tuning = text.parse().unwrap();
        assert_eq!(tuning.to_string(), text);
        let name = "a.channel.exclusive";
        assert_eq!((tuning.get(name), tuning.number(name)), (Some(Setting::Never), None));
        assert_eq!(tuning.get("b.channel.exclusive"), None);
    }

    #[test]
    fn names_of_a_transport() {
        for name in ["ofi+tcp.lend_above", "ofi+tcp.channel.mp", "ofi+tcp.channel.exclusive_from"] {
            assert!(Tuning::is_of(name, "ofi+tcp"), "{name}");
            assert!(!Tuning::is_of(name, "ofi") && !Tuning::is_of(name, "tcp"), "{name}");
        }
        for name in ["ofi.later", "spin_us", "lend_above", "ofi.x.lend_above", "ofi"] {
            assert!(!Tuning::is_of(name, "ofi"), "{name}");
        }
    }

    /// Whatever a file holds, it is read or refused.
    #[test]
    fn garbage() {
        let words = [
            "spin_us",
            "x.lend_above",
            "x.channel.exclusive",
            "=",
            "never",
            "1",
            " ",
            "\n",
            "#",
            "é",
        ];
        let mut seed = 1_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..12 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text += words[(seed >> 33) as usize % words.len()];
            }
            if let Ok(tuning) = text.parse::<Tuning>() {
                assert_eq!(tuning.to_string().parse::<Tuning>().unwrap(), tuning, "{text:?}");
            }
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
        fs::write(&path, "\n\nspin_us = x").unwrap();
        let error = Tuning::read(&path).unwrap_err().to_string();
        assert_eq!(
            error,
            format!("{}, line 3 is not `NAME = NUMBER`: \"spin_us = x\"", path.display())
        );
        fs::write(&path, vec![b'#'; 70_000]).unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::TooLong(_))));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Tuning::read(&path), Err(TuningError::File { .. })));
        fs::remove_dir_all(&place).unwrap();
    }
}
