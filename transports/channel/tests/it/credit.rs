//! Credit rides on what goes the other way: a channel between two that answer each other costs no
//! packets for it.

use crate::common::{End, join, message, net, numbers_of, open};
use petasos_channel::{Config, Counters, Force};
use petasos_fabric::{Endpoint, Event, Peer};
use petasos_sim::device::DeviceNet;
use std::time::Duration;

/// What was counted in between.
fn since(after: &Counters, before: &Counters) -> [u64; 4] {
    [
        after.exclusive + after.mp - before.exclusive - before.mp,
        after.exclusive - before.exclusive,
        after.acks_ridden - before.acks_ridden,
        after.acks_explicit - before.acks_explicit,
    ]
}

/// Sends a message, and drives both until the other side has it.
fn pass(net: &DeviceNet, from: (&mut End, Peer), to: &mut End, number: u32, len: usize) {
    let (from, peer) = from;
    let address = from.address().clone();
    from.inject(peer, &[&message(0, 1, number, len)]).unwrap();
    let (mut events, mut passes) = (Vec::new(), 0);
    while numbers_of(to, &events, &address, number) == 0 {
        let mut others = Vec::new();
        from.progress(net.now(), 64, &mut others);
        assert!(!others.iter().any(|event| matches!(event, Event::Message { .. })));
        to.progress(net.now(), 64, &mut events);
        net.run_for(Duration::from_micros(1));
        passes += 1;
        assert!(passes < 100_000, "message {number} does not come");
    }
}

/// Requests and answers, by one channel, more than its credit is worth many times over.
fn request_and_response(force: Force, len: usize) {
    let net = net(3);
    let mut config = Config::default();
    config.force = force;
    let (mut a, mut b) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, ba) = join(&net, &mut a, &mut b);
    let mut before = None;
    for number in 0..1000 {
        // Until then, channels were given.
        if number == 20 {
            before = Some((a.counters(), b.counters()));
        }
        pass(&net, (&mut a, ab), &mut b, number, len);
        pass(&net, (&mut b, ba), &mut a, number, len);
    }
    let (of_a, of_b) = before.unwrap();
    for (end, before) in [(&a, of_a), (&b, of_b)] {
        let [packets, exclusive, ridden, explicit] = since(&end.counters(), &before);
        // All by the channel, and an acknowledgement on each message. The credit of leases is in a
        // few more packets, which have nothing new to acknowledge, and may be acknowledged late.
        let forced = if force == Force::Exclusive { packets } else { 0 };
        assert_eq!(exclusive, forced, "{force:?}, {end:?}");
        assert!(ridden + explicit >= 980 && packets < 1030, "{force:?}, {end:?}");
        assert!(explicit <= packets - 980, "{force:?}, {end:?}");
    }
}

#[test]
fn of_an_exclusive_channel() {
    request_and_response(Force::Exclusive, 80);
    request_and_response(Force::Exclusive, 900);
    request_and_response(Force::Exclusive, 4000);
}

#[test]
fn of_short_packets() {
    request_and_response(Force::Mp, 80);
}
