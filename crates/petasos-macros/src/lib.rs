//! Derive macros for encodings and the service attribute
