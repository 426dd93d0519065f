//! The handshake of a job's daemons, from both sides, with a peer that may know the secret.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(8 << 10, || petasos_launch::fuzzing::admission(data));
});
