//! The library, loaded once per process, when it is first needed.

use super::{
    VERSION, ucp_am_handler_param, ucp_config, ucp_context, ucp_ep, ucp_ep_params, ucp_mem,
    ucp_mem_map_params, ucp_params, ucp_request_param, ucp_rkey, ucp_worker, ucp_worker_params,
    ucs_status_ptr_t, ucs_status_t,
};
use crate::{LoadError, signals};
use libloading::os::unix::{Library as Shared, RTLD_LOCAL, RTLD_NOW};
use std::{
    ffi::{CStr, OsString, c_char, c_int, c_uint, c_void},
    mem::ManuallyDrop,
    sync::OnceLock,
};

/// Functions of the library, by their names.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)+) => {
        /// What UCX exports, as far as it is used here.
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)+
            set_global: Option<unsafe extern "C" fn(*const c_char, *const c_char) -> ucs_status_t>,
            version: (c_uint, c_uint),
            path: OsString,
        }

        /// # Safety
        /// This is UCX.
        unsafe fn bind(shared: &Shared, path: OsString) -> Result<Library, libloading::Error> {
            // SAFETY: the functions of UCX with these names, in the signatures of its headers; they
            // stay valid because the library is never unloaded.
            unsafe {
                Ok(Library {
                    $($name: *shared.get(stringify!($name).as_bytes())?,)+
                    set_global: shared.get(b"ucs_global_opts_set_value").ok().map(|found| *found),
                    version: (0, 0),
                    path,
                })
            }
        }
    };
}

functions! {
    ucs_status_string: fn(ucs_status_t) -> *const c_char;
    ucp_config_read: fn(*const c_char, *const c_char, *mut *mut ucp_config) -> ucs_status_t;
    ucp_config_modify: fn(*mut ucp_config, *const c_char, *const c_char) -> ucs_status_t;
    ucp_config_release: fn(*mut ucp_config);
    ucp_init_version: fn(c_uint, c_uint, *const ucp_params, *const ucp_config, *mut *mut ucp_context) -> ucs_status_t;
    ucp_cleanup: fn(*mut ucp_context);
    ucp_worker_create: fn(*mut ucp_context, *const ucp_worker_params, *mut *mut ucp_worker) -> ucs_status_t;
    ucp_worker_destroy: fn(*mut ucp_worker);
    ucp_worker_get_address: fn(*mut ucp_worker, *mut *mut c_void, *mut usize) -> ucs_status_t;
    ucp_worker_release_address: fn(*mut ucp_worker, *mut c_void);
    ucp_worker_progress: fn(*mut ucp_worker) -> c_uint;
    ucp_worker_get_efd: fn(*mut ucp_worker, *mut c_int) -> ucs_status_t;
    ucp_worker_arm: fn(*mut ucp_worker) -> ucs_status_t;
    ucp_worker_flush_nbx: fn(*mut ucp_worker, *const ucp_request_param) -> ucs_status_ptr_t;
    ucp_worker_set_am_recv_handler: fn(*mut ucp_worker, *const ucp_am_handler_param) -> ucs_status_t;
    ucp_am_send_nbx: fn(*mut ucp_ep, c_uint, *const c_void, usize, *const c_void, usize, *const ucp_request_param) -> ucs_status_ptr_t;
    ucp_am_data_release: fn(*mut ucp_worker, *mut c_void);
    ucp_ep_create: fn(*mut ucp_worker, *const ucp_ep_params, *mut *mut ucp_ep) -> ucs_status_t;
    ucp_ep_close_nbx: fn(*mut ucp_ep, *const ucp_request_param) -> ucs_status_ptr_t;
    ucp_ep_flush_nbx: fn(*mut ucp_ep, *const ucp_request_param) -> ucs_status_ptr_t;
    ucp_ep_rkey_unpack: fn(*mut ucp_ep, *const c_void, *mut *mut ucp_rkey) -> ucs_status_t;
    ucp_rkey_destroy: fn(*mut ucp_rkey);
    ucp_put_nbx: fn(*mut ucp_ep, *const c_void, usize, u64, *mut ucp_rkey, *const ucp_request_param) -> ucs_status_ptr_t;
    ucp_get_nbx: fn(*mut ucp_ep, *mut c_void, usize, u64, *mut ucp_rkey, *const ucp_request_param) -> ucs_status_ptr_t;
    ucp_mem_map: fn(*mut ucp_context, *const ucp_mem_map_params, *mut *mut ucp_mem) -> ucs_status_t;
    ucp_mem_unmap: fn(*mut ucp_context, *mut ucp_mem) -> ucs_status_t;
    ucp_rkey_pack: fn(*mut ucp_context, *mut ucp_mem, *mut *mut c_void, *mut usize) -> ucs_status_t;
    ucp_rkey_buffer_release: fn(*mut c_void);
    ucp_request_free: fn(*mut c_void);
}

/// Names under which the library is looked for, in the order of the system's linker.
const NAMES: [&str; 2] = ["libucp.so.0", "libucp.so"];

/// The library; loaded by the first call, and never unloaded, for it has threads of its own.
pub(crate) fn library() -> Result<&'static Library, LoadError> {
    static LIBRARY: OnceLock<Result<Library, LoadError>> = OnceLock::new();
    LIBRARY.get_or_init(load).as_ref().map_err(Clone::clone)
}

fn load() -> Result<Library, LoadError> {
    let wish = std::env::var_os("PETASOS_UCX").filter(|path| !path.is_empty());
    let names: Vec<OsString> = match wish {
        Some(path) => vec![path],
        None => NAMES.iter().map(OsString::from).collect(),
    };
    let mut why = String::new();
    for name in names {
        // UCX's initialisers take signals over, which are the program's.
        let kept = signals::Kept::take();
        // SAFETY: UCX's initialisers may run at any time and on any thread; the user who names
        // another file in the environment answers for it, as with LD_LIBRARY_PATH.
        let shared = unsafe { Shared::open(Some(&name), RTLD_NOW | RTLD_LOCAL) };
        kept.restore();
        match shared {
            Ok(shared) => return symbols(shared, name),
            Err(error) => why = error.to_string(),
        }
    }
    Err(LoadError::Missing(why))
}

fn symbols(shared: Shared, path: OsString) -> Result<Library, LoadError> {
    // Never unloaded, whatever it is: it has threads.
    let shared = ManuallyDrop::new(shared);
    let missing = |error: libloading::Error| LoadError::Symbol(error.to_string());
    let (mut major, mut minor, mut release) = (0, 0, 0);
    // SAFETY: the function of UCX with this name, which has had this signature in all versions;
    // places for three numbers.
    unsafe {
        let get = shared
            .get::<unsafe extern "C" fn(*mut c_uint, *mut c_uint, *mut c_uint)>(b"ucp_get_version");
        get.map_err(missing)?(&mut major, &mut minor, &mut release);
    }
    check(major, minor)?;
    // SAFETY: a library of UCX's name, or what the user takes for one, in a version whose interface
    // is known.
    let mut library = unsafe { bind(&shared, path) }.map_err(missing)?;
    library.version = (major, minor);
    // What goes wrong is said by status; and no memory but the host's is handed to it, so that
    // there is nothing to be found out about memory by watching the program's mappings.
    library.set(c"UCX_LOG_LEVEL", c"LOG_LEVEL", c"fatal");
    library.set(c"UCX_MEMTYPE_CACHE", c"MEMTYPE_CACHE", c"n");
    Ok(library)
}

/// Whether the binary interface of this version is the one that is written down here.
fn check(major: c_uint, minor: c_uint) -> Result<(), LoadError> {
    match major == VERSION.0 && minor >= VERSION.1 {
        true => Ok(()),
        false => Err(LoadError::Version { found: format!("{major}.{minor}") }),
    }
}

impl Library {
    /// Sets an option of the whole library, unless the user has in the environment.
    fn set(&self, variable: &CStr, name: &CStr, value: &CStr) {
        let theirs = variable.to_str().is_ok_and(|variable| std::env::var_os(variable).is_some());
        if let Some(set) = self.set_global.filter(|_| !theirs) {
            // SAFETY: texts that end with a zero; nothing of the library runs yet.
            let _ = unsafe { set(name.as_ptr(), value.as_ptr()) };
        }
    }

    /// Its version, as `1.13`.
    pub(crate) fn version_text(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }

    /// The second part of it.
    pub(crate) fn minor(&self) -> u32 {
        self.version.1
    }

    /// Whether it connects endpoints over the loopback interface. 1.20 began to ask whether there
    /// is a route to the address that an endpoint gives, before it connects; on that interface what
    /// is given is no address, but says which machine it is. 1.21 does not ask there.
    pub(crate) fn connects_over_loopback(&self) -> bool {
        self.version != (1, 20)
    }

    /// The file, as it was asked for.
    pub(crate) fn path(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// What a status means.
    pub(crate) fn error(&self, code: isize) -> String {
        let code = ucs_status_t::try_from(code).unwrap_or(ucs_status_t::MIN);
        // SAFETY: takes any number, and gives a text that lives as long as the library, or is the
        // calling thread's.
        let text = unsafe { (self.ucs_status_string)(code) };
        if text.is_null() {
            return format!("status {code}");
        }
        // SAFETY: not null, and ends with a zero.
        unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_that_are_known_are_taken() {
        for (version, taken) in
            [((0, 99), false), ((1, 12), false), ((1, 13), true), ((1, 99), true), ((2, 0), false)]
        {
            assert_eq!(check(version.0, version.1).is_ok(), taken, "{version:?}");
        }
    }

    #[test]
    fn loads_once() {
        let (Ok(one), Ok(two)) = (library(), library()) else {
            petasos_testing::skip("UCX is not installed");
            return;
        };
        assert!(std::ptr::eq(one, two));
        assert!(one.version >= VERSION);
        assert_eq!(one.error(-6), "Destination is unreachable");
    }
}
