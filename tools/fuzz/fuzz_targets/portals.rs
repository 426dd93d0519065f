//! Headers of matching one-sided messages: decoding allocates nothing, and what was understood can
//! be said again, and then means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_wire::portals::{self, Frame, MAX};

fuzz_target!(|data: &[u8]| {
    let Ok((frame, rest)) = petasos_fuzz::bounded_in_all(0, || portals::decode(data)) else {
        return;
    };
    assert!(data.len() - rest.len() <= MAX);
    let mut again = Vec::new();
    match &frame {
        Frame::Request(request) => request.encode(&mut again),
        Frame::Response(response) => response.encode(&mut again),
    }
    again.extend_from_slice(rest);
    assert_eq!(portals::decode(&again), Ok((frame, rest)), "{data:?}");
});
