//! Clients that speak the wire of OpenPMIx 4.1, on an engine: whatever they send, they are answered
//! once or cut off.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(16 << 20, || petasos_launch::fuzzing::pmix41(data));
});
