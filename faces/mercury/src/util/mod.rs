//! The functions of `mercury_util` that are not in its headers.

mod request;
