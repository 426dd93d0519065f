//! Clients that speak PMI-1, on an engine.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(8 << 20, || petasos_launch::fuzzing::pmi1(data));
});
