//! The library, loaded once per process, when it is first needed.

use super::{LAST_MAJOR, VERSION, fi_info, fid_fabric};
use crate::LoadError;
use libloading::os::unix::{Library as Shared, RTLD_LOCAL, RTLD_NOW};
use std::{
    ffi::{CStr, OsString, c_char, c_int, c_void},
    mem::ManuallyDrop,
    sync::OnceLock,
};

type Getinfo = unsafe extern "C" fn(
    u32,
    *const c_char,
    *const c_char,
    u64,
    *const fi_info,
    *mut *mut fi_info,
) -> c_int;

/// What libfabric exports.
pub(crate) struct Library {
    pub(crate) getinfo: Getinfo,
    pub(crate) freeinfo: unsafe extern "C" fn(*mut fi_info),
    pub(crate) dupinfo: unsafe extern "C" fn(*const fi_info) -> *mut fi_info,
    pub(crate) fabric:
        unsafe extern "C" fn(*mut c_void, *mut *mut fid_fabric, *mut c_void) -> c_int,
    strerror: unsafe extern "C" fn(c_int) -> *const c_char,
    version: u32,
    path: OsString,
}

/// Names under which the library is looked for, in the order of the system's linker.
const NAMES: [&str; 2] = ["libfabric.so.1", "libfabric.so"];

/// The library; loaded by the first call, and never unloaded, for it has threads and handlers of
/// its own.
pub(crate) fn library() -> Result<&'static Library, LoadError> {
    static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Library, LoadError> {
    super::environment::prepare();
    let wish = std::env::var_os("PETASOS_LIBFABRIC").filter(|path| !path.is_empty());
    let names: Vec<OsString> = match wish {
        Some(path) => vec![path],
        None => NAMES.iter().map(OsString::from).collect(),
    };
    let mut why = String::new();
    for name in names {
        // SAFETY: libfabric's initialisers may run at any time and on any thread; the user who
        // names another file in the environment answers for it, as with LD_LIBRARY_PATH.
        match unsafe { Shared::open(Some(&name), RTLD_NOW | RTLD_LOCAL) } {
            Ok(shared) => return symbols(shared, name),
            Err(error) => why = error.to_string(),
        }
    }
    Err(LoadError::Missing(why))
}

fn symbols(shared: Shared, path: OsString) -> Result<Library, LoadError> {
    // Never unloaded, whatever it is: it has threads, and handlers of signals.
    let shared = ManuallyDrop::new(shared);
    let missing = |error: libloading::Error| LoadError::Symbol(error.to_string());
    // SAFETY: the function of libfabric with this name, which has had this signature in all
    // versions.
    let version = unsafe {
        let version =
            shared.get::<unsafe extern "C" fn() -> u32>(b"fi_version").map_err(missing)?;
        version()
    };
    check(version)?;
    // SAFETY: these are the functions of libfabric with those names, in the signatures that
    // fabric.h and fi_errno.h give them in these versions; they stay valid because the library is
    // not unloaded.
    unsafe {
        Ok(Library {
            getinfo: *shared.get(b"fi_getinfo").map_err(missing)?,
            freeinfo: *shared.get(b"fi_freeinfo").map_err(missing)?,
            dupinfo: *shared.get(b"fi_dupinfo").map_err(missing)?,
            fabric: *shared.get(b"fi_fabric").map_err(missing)?,
            strerror: *shared.get(b"fi_strerror").map_err(missing)?,
            version,
            path,
        })
    }
}

/// Whether the binary interface of this version is the one that is written down here. A new first
/// number says that it may be another.
fn check(version: u32) -> Result<(), LoadError> {
    match (version >> 16, version) {
        (_, ..VERSION) => Err(LoadError::TooOld { found: text(version) }),
        (..=LAST_MAJOR, _) => Ok(()),
        _ => Err(LoadError::TooNew { found: text(version) }),
    }
}

/// A version, as `1.17`.
fn text(version: u32) -> String {
    format!("{}.{}", version >> 16, version & 0xffff)
}

impl Library {
    /// Its version, as `1.17`.
    pub(crate) fn version_text(&self) -> String {
        text(self.version)
    }

    /// The first part of it.
    pub(crate) fn major(&self) -> u32 {
        self.version >> 16
    }

    /// The file, as it was asked for.
    pub(crate) fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// What an error number means; negative ones as well.
    pub(crate) fn error(&self, code: isize) -> String {
        let code = c_int::try_from(code.unsigned_abs()).unwrap_or(c_int::MAX);
        // SAFETY: takes any number, and gives a string that lives as long as the library.
        let text = unsafe { (self.strerror)(code) };
        if text.is_null() {
            return format!("error {code}");
        }
        // SAFETY: not null, ends with a zero, and is not changed.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_known_are_taken() {
        for (major, minor, taken) in [
            (0, 99, false),
            (1, 16, false),
            (1, 17, true),
            (1, 22, true),
            (2, 0, true),
            (2, 65_535, true),
            (3, 0, false),
            (65_535, 65_535, false),
        ] {
            assert_eq!(check(major << 16 | minor).is_ok(), taken, "{major}.{minor}");
        }
    }

    #[test]
    fn loads_once() {
        let (Ok(one), Ok(two)) = (library(), library()) else {
            petasos_testing::skip("libfabric is not installed");
            return;
        };
        assert!(std::ptr::eq(one, two));
        assert!(one.version >= VERSION);
        assert_eq!(one.error(-11), one.error(11));
    }
}
