//! The packets of NICs: what the channels' device over libfabric and UCX reads from its peers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_channel::device::{Class, Fault};
use petasos_datagram::nic::packet::Header;

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(4096, || {
        // A packet is as long as it is, and its first bytes are enough to know what it is.
        let first = &data[..data.len().min(Header::MAX)];
        let Ok((header, len)) = Header::decode(first, data.len()) else { return };
        assert!((1..=first.len()).contains(&len), "a header of {len} bytes of {}", data.len());
        let has_body = match header {
            Header::Packet(Class::Data | Class::Control) => true,
            Header::Immediate(_) | Header::Put { .. } | Header::Part { .. } => true,
            Header::Refused(fault) | Header::Over { result: Err(fault), .. } => {
                let known = [Fault::Stale, Fault::Denied, Fault::OutOfBounds, Fault::Unsupported];
                assert!(known.contains(&fault));
                false
            }
            Header::Over { result: Ok(()), .. } | Header::Get { .. } | Header::Written { .. } => {
                false
            }
        };
        assert!(has_body || len == data.len(), "bytes that are not read");
        let encoded = header.encode();
        let again = Header::decode(encoded.as_bytes(), encoded.as_bytes().len());
        assert_eq!(again, Ok((header, len)));
    });
});
