//! Frames of remote calls, and where bodies lie that did not fit: decoding allocates nothing, and
//! what was understood can be said again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_wire::rpc::{self, Frame, FrameError, Remote};

fuzz_target!(|data: &[u8]| {
    match petasos_fuzz::bounded_in_all(0, || rpc::decode(data)) {
        Ok(frame) => understood(data, frame),
        Err(FrameError::Checksum) => {
            // The fuzzer cannot guess it; a peer computes it.
            let traced = data[0] & 15 != 3 && data[1] & 8 != 0;
            let fixed = if data[0] & 15 == 3 { rpc::RESPONSE_LEN } else { rpc::REQUEST_LEN };
            let mut sealed = data.to_vec();
            rpc::seal(&mut sealed, fixed + if traced { 24 } else { 0 } + 4);
            match rpc::decode(&sealed) {
                Ok(frame) => understood(&sealed, frame),
                Err(error) => assert_ne!(error, FrameError::Checksum, "it was sealed"),
            }
        }
        Err(_) => {}
    }
});

fn understood(data: &[u8], frame: Frame<'_>) {
    let mut again = Vec::new();
    match frame {
        Frame::Request(request, body) => {
            request.encode(&mut again);
            again.extend_from_slice(body);
            if request.checked {
                rpc::seal(&mut again, request.header_len());
            }
            remote(body);
        }
        Frame::Response(response, body) => {
            response.encode(&mut again);
            again.extend_from_slice(body);
            if response.checked {
                rpc::seal(&mut again, response.header_len());
            }
            remote(body);
        }
        Frame::Cancel(call) => again.extend(rpc::cancel(call)),
        Frame::Release(call) => again.extend(rpc::release(call)),
        Frame::GiveBack(key) => {
            again.extend(rpc::give_back());
            again.extend(key);
        }
    }
    assert_eq!(rpc::decode(&again), Ok(frame), "{data:?}");
}

fn remote(body: &[u8]) {
    if let Ok(remote) = petasos_fuzz::bounded_in_all(0, || Remote::decode(body)) {
        assert!(remote.key.len() <= rpc::MAX_KEY);
        let mut again = Vec::new();
        remote.encode(&mut again);
        assert_eq!(again, body);
    }
}
