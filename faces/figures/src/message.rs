//! Messages that are recognised when they come back.

use crate::exit::{Code, Failure, Outcome};

/// Bytes of which no part looks like another, to be sent and to come back.
pub fn message(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8).collect()
}

/// What came back is what was sent, as far as its length and its ends tell.
pub fn same(message: &[u8], bytes: usize) -> Outcome {
    let last = bytes.checked_sub(1);
    let ends = [Some(0).filter(|_| bytes > 0), last].map(|at| at.map(|at| (at % 251) as u8));
    match message.len() == bytes && [message.first().copied(), message.last().copied()] == ends {
        true => Ok(()),
        false => Err(Failure::new(Code::Mismatch, "another message came back")),
    }
}
