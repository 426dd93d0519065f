//! What an endpoint over a medium says first: what is taken is what was written, and short.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_fabric::Address;
use petasos_plugin::Hello;

fuzz_target!(|data: &[u8]| {
    // An error of the address quotes it.
    let hello = petasos_fuzz::bounded(4 * Address::MAX, || Hello::decode(data));
    if let Some(hello) = hello {
        assert_eq!(hello.encode(), data);
        assert!(hello.address.as_str().len() <= Address::MAX);
    }
});
