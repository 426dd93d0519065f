//! Messages over the bare transport.

use crate::{connect, timed};
use petasos::fabric::{Endpoint, Event, Lease, Peer, Time};
use std::time::Duration;

/// One message of 32 bytes over the bare transport, sent and received.
#[inline(never)]
fn path_message((sender, to): (&mut dyn Endpoint, Peer), receiver: &mut dyn Endpoint, count: u64) {
    let mut bytes = [7; 32];
    for n in 0..count {
        bytes[0] = n as u8;
        sender.inject(to, &[&bytes]).expect("room");
        assert_eq!(receive(receiver)[..], bytes);
    }
}

/// The next message, by the short way or as an event.
#[inline]
fn receive(endpoint: &mut dyn Endpoint) -> Lease {
    let (mut message, mut events) = (Lease::default(), Vec::new());
    loop {
        if endpoint.poll_message(&mut message).is_some() {
            return message;
        }
        endpoint.progress(Time::ZERO, 8, &mut events);
        for event in events.drain(..) {
            if let Event::Message { message, .. } = event {
                return message;
            }
        }
    }
}

/// Connects two ends, and runs the path.
pub(crate) fn run(count: u64, url: &str) -> Duration {
    let ([mut a, mut b], [to, _]) = connect(url);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    // What connecting left to be sent is not part of the path, nor is what the first message makes
    // a library do.
    a.inject(to, &[b"first"]).expect("room");
    let came = |event: &Event| matches!(event, Event::Message { .. });
    while !theirs.iter().any(came) {
        a.progress(Time::ZERO, 8, &mut ours);
        b.progress(Time::ZERO, 8, &mut theirs);
    }
    timed(|| path_message((&mut *a, to), &mut *b, count))
}
