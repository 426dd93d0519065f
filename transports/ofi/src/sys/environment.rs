//! Settings that libfabric reads only from the environment.

use std::{env, fs};

/// Names and values that this transport needs, for layered providers over a device.
///
/// * Shared receive contexts: without, `ofi_rxm` gives receive buffers of connections that are
///   closed to later ones and crashes on them (1.17), and each connection has 2 MB of them (128 of
///   16 KiB).
/// * No watch over memory, for which the library would write over the code of `munmap` and its like
///   whenever a domain is opened: a thread that is in one of them then comes back to half an
///   instruction.
const NEEDED: [(&str, &str); 2] =
    [("FI_OFI_RXM_USE_SRX", "1"), ("FI_MR_CACHE_MONITOR", "disabled")];

/// Sets in the environment what libfabric needs to find there for networks of RDMA devices, unless
/// it is set already. A process that already has several threads is left as it is, since they may
/// be reading the environment: so programs that start threads call this first. It costs
/// microseconds, and loads nothing.
pub fn prepare() {
    if missing().is_none() || !alone() {
        return;
    }
    for (name, value) in NEEDED {
        if env::var_os(name).is_none() {
            // SAFETY: no thread reads or writes the environment meanwhile, for this is the only one
            // of the process, and only it could start another.
            unsafe { env::set_var(name, value) };
        }
    }
}

/// What is not set, as `NAME=VALUE`.
pub(crate) fn missing() -> Option<String> {
    let unset = NEEDED.iter().filter(|(name, _)| env::var_os(name).is_none());
    let unset: Vec<String> = unset.map(|(name, value)| format!("{name}={value}")).collect();
    (!unset.is_empty()).then(|| unset.join(" "))
}

/// Whether this process has one thread; no, if that cannot be found out.
fn alone() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}
