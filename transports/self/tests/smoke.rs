//! Two endpoints of one process, at their simplest: opened, resolved, heard, gone.

use petasos_fabric::{Address, Clock, Endpoint, Event, LostReason};
use petasos_self::{Local, OpenError};
use std::time::Duration;

#[test]
fn a_message_there_and_the_end_back() {
    let clock = Clock::start();
    let any: Address = "self://*".parse().unwrap();
    let (mut a, mut b) = (Local::open(&any).unwrap(), Local::open(&any).unwrap());
    let taken = Local::open(&b.address().clone());
    assert!(matches!(taken.err(), Some(OpenError::Taken(_))));
    let peer = a.resolve(&b.address().clone(), Duration::ZERO).unwrap();
    a.inject(peer, &[b"hello, ", b"you"]).unwrap();
    let mut events = Vec::new();
    assert!(b.progress(clock.now(), 16, &mut events));
    let [Event::PeerUp { incarnation, .. }, Event::Message { message, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((*incarnation, &message[..]), (a.incarnation(), &b"hello, you"[..]));
    drop(b);
    events.clear();
    a.progress(clock.now(), 16, &mut events);
    let lost = |e: &Event| matches!(e, Event::PeerLost { reason: LostReason::Closed, .. });
    assert!(events.iter().any(lost), "{events:?}");
}
