//! What a request is before its handler is called.

use crate::timed;
use petasos::wire::{Encoding, encode_into, from_bytes, rpc};
use std::{hint::black_box, time::Duration};

/// The header of a request and its arguments, checked and decoded.
#[inline(never)]
fn path_decode(frame: &[u8], count: u64) {
    for _ in 0..count {
        let Ok(rpc::Frame::Request(request, rest)) = rpc::decode(black_box(frame)) else {
            panic!("not a request");
        };
        let arguments: (u64, u32) = from_bytes(request.encoding, rest).expect("arguments");
        black_box((request, arguments));
    }
}

fn a_request() -> Vec<u8> {
    let request = rpc::Request {
        one_way: false,
        encoding: Encoding::Native,
        checked: false,
        overflow: false,
        trace: None,
        provider: 0,
        call: rpc::CallId { slot: 1, generation: 2 },
        method: 3,
        signature: 4,
        left_us: 5,
    };
    let mut frame = Vec::new();
    request.encode(&mut frame);
    encode_into(Encoding::Native, &(6u64, 7u32), &mut frame);
    frame
}

pub(crate) fn run(count: u64) -> Duration {
    let frame = a_request();
    timed(|| path_decode(&frame, count))
}
