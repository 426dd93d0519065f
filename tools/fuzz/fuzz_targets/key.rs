//! Keys: bytes that are taken have one meaning, which gives the same bytes.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use petasos_fabric::Key;

fuzz_target!(|data: &[u8]| {
    let parsed = Key::from_bytes(Bytes::copy_from_slice(data)).map(|key| {
        // The address, the list of routes, and a copy of each.
        petasos_fuzz::bounded(4 * Key::MAX, || key.parse())
    });
    if let Ok(Ok(parts)) = parsed {
        assert_eq!(&Key::compose(&parts).expect("as long as it was").as_bytes()[..], data);
    }
});
