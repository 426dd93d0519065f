//! Skipping a test visibly.

use std::io::Write;

/// Says on the real standard error that a test did not run, and why; return after it.
///
/// # Panics
/// If `PETASOS_NO_SKIP` is set, as it is where every test must run.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    assert!(std::env::var_os("PETASOS_NO_SKIP").is_none(), "{name} may not be skipped: {reason}");
    // Not `eprintln`, which the test harness captures.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}
