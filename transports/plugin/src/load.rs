//! Finding plug-ins, and checking what they export.

use crate::{
    Foreign, OpenError, Packets, Prover,
    table::{FIRST_SIZE, Library, MAGIC, MAX_TEXT, SYMBOL, Table, Text, VERSION},
};
use libloading::os::unix::{Library as Shared, RTLD_LOCAL, RTLD_NOW};
use petasos_fabric::Address;
use std::{
    collections::HashSet,
    env,
    ffi::{OsStr, OsString},
    fs,
    mem::{ManuallyDrop, MaybeUninit},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    slice,
};

/// The variable of the environment that lists plug-ins: paths of files and directories, separated
/// by `:`.
pub const VARIABLE: &str = "PETASOS_TRANSPORTS";
/// Transports in one plug-in, at most.
const MOST: u32 = 64;

/// A transport that was loaded.
#[derive(Clone, Copy)]
pub struct Plugin {
    /// The scheme of its addresses.
    pub scheme: &'static str,
    /// What it is.
    pub title: &'static str,
    /// An address that any number of endpoints can be opened with.
    pub any: &'static str,
    /// Where it is from.
    pub file: &'static Path,
    table: &'static Table,
}

impl Plugin {
    /// Opens an endpoint. With a prover, all peers must have the same secret.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        &self,
        at: &Address,
        prover: Option<Prover>,
    ) -> Result<Packets<Foreign>, OpenError> {
        let refused = |reason| OpenError::Refused { address: at.clone(), reason };
        if at.scheme() != self.scheme {
            return Err(refused(format!("its addresses begin with {}://", self.scheme)));
        }
        let medium = Foreign::open(self.table, self.file, at.as_str()).map_err(refused)?;
        Packets::over(medium, self.scheme, at, prover)
    }
}

/// Why a plug-in was not loaded.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {why}", file.display())]
#[non_exhaustive]
pub struct LoadError {
    /// The file, or what the variable has in the place of one.
    pub file: PathBuf,
    /// What is wrong, and what to do.
    pub why: String,
}

/// What [`load`] found.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Found {
    /// Transports, in the order of the list.
    pub plugins: Vec<Plugin>,
    /// What was not loaded.
    pub failures: Vec<LoadError>,
}

/// What [`VARIABLE`] lists; `None` if it is not set or is empty, and in a process that has more
/// rights than the user who started it (set-user-ID, capabilities): such a user's files are not
/// loaded, as the system's linker does not load those of `LD_PRELOAD`.
#[must_use]
pub fn listed() -> Option<OsString> {
    // SAFETY: reads what the kernel has told this process.
    let privileged = unsafe { libc::getauxval(libc::AT_SECURE) } != 0;
    env::var_os(VARIABLE).filter(|list| !privileged && !list.is_empty())
}

/// Loads the plug-ins of a list, as [`VARIABLE`] has one. Their schemes are not to be among those
/// `taken`; of two with the same scheme the first one has it.
///
/// Libraries stay loaded until the process ends.
pub fn load(list: &OsStr, taken: &[&str]) -> Found {
    let (mut found, mut seen) = (Found::default(), HashSet::new());
    for entry in list.as_bytes().split(|byte| *byte == b':').filter(|entry| !entry.is_empty()) {
        let path = Path::new(OsStr::from_bytes(entry));
        let files = match files(path) {
            Ok(files) => files,
            Err(why) => {
                found.failures.push(LoadError { file: path.to_owned(), why });
                continue;
            }
        };
        for file in files {
            // The same file by another name is not loaded once more.
            let real = fs::canonicalize(&file).unwrap_or_else(|_| file.clone());
            if !seen.insert(real) {
                continue;
            }
            match load_file(&file, taken, &mut found.plugins) {
                Ok(()) => {}
                Err(why) => {
                    tracing::warn!(file = %file.display(), %why, "a plug-in was not loaded");
                    found.failures.push(LoadError { file, why });
                }
            }
        }
    }
    found
}

/// The files that an entry of the list stands for.
fn files(entry: &Path) -> Result<Vec<PathBuf>, String> {
    if !entry.is_absolute() {
        return Err(format!("{VARIABLE} has whole paths, which begin with /"));
    }
    if !fs::metadata(entry).map_err(|error| error.to_string())?.is_dir() {
        return Ok(vec![entry.to_owned()]);
    }
    let entries = fs::read_dir(entry).map_err(|error| error.to_string())?;
    let name = |path: &Path| {
        let name = path.file_name().unwrap_or_default().as_bytes();
        name.starts_with(b"libpetasos_transport_") && name.ends_with(b".so")
    };
    let mut files: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    files.retain(|path| name(path));
    files.sort();
    Ok(files)
}

fn load_file(file: &Path, taken: &[&str], plugins: &mut Vec<Plugin>) -> Result<(), String> {
    let refused = |error: libloading::Error| format!("the system does not load it: {error}");
    // SAFETY: its initialisers run now; the user who names the file in the environment answers for
    // it, as with LD_LIBRARY_PATH.
    let shared = unsafe { Shared::open(Some(file), RTLD_NOW | RTLD_LOCAL) }.map_err(refused)?;
    // Never unloaded, whatever it is: it may have threads, and its tables are used to the end.
    let shared = ManuallyDrop::new(shared);
    // SAFETY: the symbol's address is taken as it is, and looked at below.
    let library = unsafe { shared.get::<*const Library>(SYMBOL.as_bytes()) };
    let library: *const Library = match library {
        Ok(symbol) => symbol.into_raw().cast_const().cast(),
        Err(_) => {
            return Err(format!(
                "it exports no `{SYMBOL}`: a transport for Petasos does so by petasos_plugin::export!"
            ));
        }
    };
    if library.is_null() || !library.is_aligned() {
        return Err(format!("its `{SYMBOL}` is at {library:p}, where no table can be"));
    }
    // SAFETY: what has this name begins with these fields, in all versions of the interface; the
    // first of them says that it is it. It is never written.
    let (magic, version) = unsafe { ((*library).magic, (*library).version) };
    if magic != MAGIC {
        return Err(format!("its `{SYMBOL}` is not that of a transport for Petasos"));
    }
    if version != VERSION {
        return Err(format!(
            "it is for version {version} of the interface, and this program has version {VERSION}: \
             build it with petasos-plugin {}",
            env!("CARGO_PKG_VERSION")
        ));
    }
    // SAFETY: of this version it has all the fields.
    let Library { table_size, count, tables, .. } = unsafe { &*library };
    let (stride, count, tables) = (*table_size as usize, *count, *tables);
    if stride < FIRST_SIZE || !stride.is_multiple_of(align_of::<Table>()) {
        return Err(format!(
            "its tables have {stride} bytes, at least {FIRST_SIZE} are needed: build it with \
             petasos-plugin {}",
            env!("CARGO_PKG_VERSION")
        ));
    }
    if count == 0 || count > MOST || tables.is_null() || !tables.is_aligned() {
        return Err(format!("it has {count} transports at {tables:p}: 1 to {MOST} can be"));
    }
    let file: &'static Path = Box::leak(file.to_owned().into_boxed_path());
    let mut new = Vec::new();
    for nth in 0..count as usize {
        let mut table = MaybeUninit::<Table>::zeroed();
        let known = stride.min(size_of::<Table>());
        // SAFETY: the plug-in says that there are `count` tables of `stride` bytes each. What a
        // shorter one does not have stays zero, which is no function.
        let table = unsafe {
            let from = tables.cast::<u8>().add(nth * stride);
            table.as_mut_ptr().cast::<u8>().copy_from_nonoverlapping(from, known);
            table.assume_init()
        };
        let plugin = check(Box::leak(Box::new(table)), file)?;
        let scheme = plugin.scheme;
        if taken.contains(&scheme) {
            return Err(format!("this program has a transport {scheme} of its own"));
        }
        if let Some(first) = plugins.iter().chain(&new).find(|other| other.scheme == scheme) {
            let first = first.file.display();
            return Err(format!("the transport {scheme} was loaded from {first} before"));
        }
        new.push(plugin);
    }
    plugins.extend(new);
    Ok(())
}

/// The transport of a table that has all of the functions, and texts that are some.
fn check(table: &'static Table, file: &'static Path) -> Result<Plugin, String> {
    let functions = [
        ("open", table.open.is_some()),
        ("close", table.close.is_some()),
        ("address", table.address.is_some()),
        ("connect", table.connect.is_some()),
        ("accept", table.accept.is_some()),
        ("send", table.send.is_some()),
        ("receive", table.receive.is_some()),
        ("shut", table.shut.is_some()),
        ("poll", table.poll.is_some()),
        ("arm", table.arm.is_some()),
    ];
    if let Some((name, _)) = functions.iter().find(|(_, is_there)| !is_there) {
        return Err(format!("its table has no function `{name}`"));
    }
    let scheme = words("scheme", table.scheme)?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if scheme.is_empty() || scheme.len() > 32 || !scheme.bytes().all(plain) {
        return Err(format!("`{scheme}` is no scheme: up to 32 small letters, digits and `-`"));
    }
    let (title, any) = (words("title", table.title)?, words("any", table.any)?);
    let is_own = |any: &str| Address::parse(any).is_ok_and(|any| any.scheme() == scheme);
    if !is_own(any) {
        return Err(format!("its address for any endpoint, `{any}`, is none of {scheme}://"));
    }
    Ok(Plugin { scheme, title, any, file, table })
}

/// A text of the table.
fn words(name: &str, text: Text) -> Result<&'static str, String> {
    if text.len == 0 {
        return Ok("");
    }
    if text.at.is_null() || text.len > MAX_TEXT {
        return Err(format!("its {name} is a text of {} bytes at {:p}", text.len, text.at));
    }
    // SAFETY: a text of the plug-in, which is never unloaded, and says how long it is.
    let bytes = unsafe { slice::from_raw_parts(text.at, text.len) };
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(char::is_control) => Ok(text),
        _ => Err(format!("its {name} is no text of one line")),
    }
}
