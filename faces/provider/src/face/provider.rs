//! What libfabric finds in the shared object.

use super::{fabric, info};
use petasos_ofi_sys::fi_provider;
use std::{ptr, sync::OnceLock};

/// The newest interface whose layouts were compared with what is written here: a program that asks
/// for a later one is not given this provider.
const NEWEST: u32 = 2 << 16 | 6;

/// The table, with room for what later versions may read behind it.
#[repr(C)]
struct Table {
    provider: fi_provider,
    slack: [usize; 16],
}

/// Where the table is; it is never moved or freed, and libfabric alone writes to it.
struct Shared(*mut Table);

// SAFETY: a pointer to memory that lives for ever and that this crate does not access once it is
// given out.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

/// The table of this provider.
pub(super) fn table() -> *mut fi_provider {
    static TABLE: OnceLock<Shared> = OnceLock::new();
    let make = || {
        let provider = fi_provider {
            version: info::VERSION,
            fi_version: NEWEST,
            context: [ptr::null_mut(); 4],
            name: info::NAME.as_ptr(),
            getinfo: info::getinfo,
            fabric: fabric::open,
            cleanup,
        };
        Shared(Box::into_raw(Box::new(Table { provider, slack: [0; 16] })))
    };
    TABLE.get_or_init(make).0.cast()
}

/// libfabric's way in: it looks for this symbol in every `lib*-fi.so` of its folder.
#[unsafe(no_mangle)]
pub extern "C" fn fi_prov_ini() -> *mut fi_provider {
    table()
}

/// Objects end by themselves.
extern "C" fn cleanup() {}
