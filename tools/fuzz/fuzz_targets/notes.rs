//! What travels over the socket of a pair: decoding is bounded, and what was understood can be
//! said again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(8 << 10, || petasos_shm::fuzzing::note(data));
});
