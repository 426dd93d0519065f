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

/// What it is better with.
///
/// * Fewer receive buffers: `ofi_rxm` makes 4,096 of 16 KiB for each endpoint, and clears them when
///   it is opened. Those of eight peers whose windows are full are enough to keep a connection busy;
///   what more peers send waits in the connections.
const WANTED: [(&str, &str); 1] = [("FI_OFI_RXM_MSG_RX_SIZE", "512")];

/// Sets in the environment what libfabric needs to find there for networks of RDMA devices, and what
/// it is better with, unless it is set already. A process that already has several threads is left
/// as it is, since they may be reading the environment: so programs that start threads call this
/// first. It costs microseconds, and loads nothing.
pub fn prepare() {
    let unset = |(name, _): &(&str, &str)| env::var_os(name).is_none();
    let unset: Vec<_> = NEEDED.into_iter().chain(WANTED).filter(unset).collect();
    if unset.is_empty() || !alone() {
        return;
    }
    for (name, value) in unset {
        // SAFETY: no thread reads or writes the environment meanwhile, for this is the only one of
        // the process, and only it could start another.
        unsafe { env::set_var(name, value) };
    }
}

/// What is needed and not set, as `NAME=VALUE`.
pub(crate) fn missing() -> Option<String> {
    let unset = NEEDED.iter().filter(|(name, _)| env::var_os(name).is_none());
    let unset: Vec<String> = unset.map(|(name, value)| format!("{name}={value}")).collect();
    (!unset.is_empty()).then(|| unset.join(" "))
}

/// The longest packet that `ofi_rxm` sends at once, in bytes, by its default and by the environment.
/// Of what is longer the receiver fetches each piece, and hears of each one that fails, when the
/// sender was killed: so it cannot know when the provider is done with the memory.
pub(crate) fn eager() -> usize {
    let set = env::var("FI_OFI_RXM_BUFFER_SIZE").ok().and_then(|set| set.parse().ok());
    set.unwrap_or(usize::MAX).min(16 << 10)
}

/// Whether this process has one thread; no, if that cannot be found out.
fn alone() -> bool {
    fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}
