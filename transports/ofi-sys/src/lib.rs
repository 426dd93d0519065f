//! The binary interface of libfabric, as far as it is used (`petasos-ofi`) and provided
//! (`petasos-provider`) here, written down by hand.
//!
//! libfabric exports a handful of functions; all else goes through tables of functions that its
//! objects carry. Structures grow at their end from release to release. So a program that uses the
//! library makes none that the library fills (descriptions of providers are the library's own, by
//! `fi_getinfo` and `fi_dupinfo`), and those that it fills in the program's memory have slack
//! behind them; a provider allocates what the library reads with zeros behind it. The layouts are
//! those of 1.17, which is the version that is asked for; a test compares them with the headers,
//! where these are installed.
//!
//! Only declarations: there is no code here.

#![allow(non_camel_case_types, reason = "the names of libfabric")]
#![allow(missing_docs, reason = "documented by libfabric")]

mod access;
mod completion;
mod constants;
mod endpoint;
mod info;
#[cfg(test)]
mod layout;
mod objects;

pub use access::*;
pub use completion::*;
pub use constants::*;
pub use endpoint::*;
pub use info::*;
pub use objects::*;
use std::ffi::{c_char, c_int, c_void};

/// What the library finds in a shared object (`fi_prov_ini`).
#[repr(C)]
pub struct fi_provider {
    pub version: u32,
    pub fi_version: u32,
    /// The library's own.
    pub context: [*mut c_void; 4],
    pub name: *const c_char,
    pub getinfo: unsafe extern "C" fn(
        u32,
        *const c_char,
        *const c_char,
        u64,
        *const fi_info,
        *mut *mut fi_info,
    ) -> c_int,
    pub fabric:
        unsafe extern "C" fn(*mut fi_fabric_attr, *mut *mut fid_fabric, *mut c_void) -> c_int,
    pub cleanup: unsafe extern "C" fn(),
}
