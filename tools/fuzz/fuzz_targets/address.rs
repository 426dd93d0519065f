//! Addresses: what is taken is what was written, in two parts, and short.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_fabric::Address;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    // An error quotes the text, escaped, which may be six times as long, and grows by doubling.
    let parsed = petasos_fuzz::bounded(20 * Address::MAX, || Address::parse(text));
    if let Ok(address) = parsed {
        assert_eq!(address.as_str(), text);
        assert!(text.len() <= Address::MAX && text.is_ascii());
        assert_eq!(format!("{}://{}", address.scheme(), address.rest()), text);
    }
});
