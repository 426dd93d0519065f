//! The functions of `mercury_util` that are not in its headers.

mod poll;
mod pool;
mod request;
mod threads;

use std::ffi::c_int;

/// `HG_UTIL_SUCCESS` or `HG_UTIL_FAIL`.
fn result(good: bool) -> c_int {
    if good { 0 } else { -1 }
}
