//! What tenants and brokers say to each other: decoding is bounded, and what was understood can be
//! said again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_tenant::{
    control::Control,
    wire::{Answer, Request},
};

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(8 << 10, || {
        if let Ok(request) = Request::decode(data) {
            assert_eq!(Request::decode(&request.encode().to_vec()), Ok(request));
        }
        if let Ok(answer) = Answer::decode(data) {
            assert_eq!(Answer::decode(&answer.encode().to_vec()), Ok(answer));
        }
        if let Some(control) = Control::decode(data) {
            assert_eq!(Control::decode(&control.encode()), Some(control));
        }
    });
});
