//! What travels between daemons, and between them and their clients: each value alone, and frames
//! and lines that come in pieces; and a job's data, as processes map it. The first byte says which.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_fuzz::{bounded, bounded_in_all};

fuzz_target!(|data: &[u8]| {
    match data.split_first() {
        Some((4, rest)) => bounded(256 << 10, || petasos_pmix::fuzzing::frames(rest)),
        Some((5.., rest)) => bounded(8 << 20, || petasos_pmix::fuzzing::table(rest)),
        _ => petasos_launch::fuzzing::wire(data, |limit, work| bounded_in_all(limit, work)),
    }
});
