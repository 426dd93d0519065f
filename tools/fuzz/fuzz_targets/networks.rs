//! What travels between endpoints over libfabric and UCX: headers of packets, and messages where
//! they meet; and the handshake messages of `auto://`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_auto::{AutoAddress, SCHEME, handshake::Handshake};
use petasos_datagram::frame::{Control, HEADER_LEN, Header};
use petasos_fabric::Address;
use petasos_fuzz::Cut;

fuzz_target!(|data: &[u8]| {
    let mut cut = Cut(data);
    let choice = cut.u8() % 4;
    let rest = cut.0;
    petasos_fuzz::bounded(4096, || match choice {
        0 => {
            // Any bytes are a header, and mean one thing.
            if let Some(bytes) = rest.first_chunk::<HEADER_LEN>() {
                assert_eq!(Header::from_bytes(*bytes).to_bytes(), *bytes);
            }
        }
        1 => {
            if let Ok(control) = Control::from_bytes(rest) {
                assert_eq!(control.to_bytes(), rest);
            }
        }
        2 => {
            let text = std::str::from_utf8(rest).ok();
            let address = text.and_then(|text| Address::parse(text).ok());
            if let Some(address) = address
                && address.scheme() == SCHEME
                && let Ok(AutoAddress::Whole { node, members }) = AutoAddress::parse(&address)
            {
                assert_eq!(AutoAddress::compose(node, &members), Ok(address));
            }
        }
        _ => {
            if let Ok(handshake) = Handshake::decode(rest) {
                assert_eq!(handshake.encode(), rest);
            }
        }
    });
});
