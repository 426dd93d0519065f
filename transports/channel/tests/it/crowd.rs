//! A thousand senders to one receiver: nothing is lost, no sender starves, and the receiver's
//! memory has a bound.
//!
//! `PETASOS_SENDERS` sets how many (default 1000), `PETASOS_MESSAGES` how many each sends (default
//! 150).

use crate::common::{End, PATIENCE, address, from_environment, message, open, read};
use petasos_channel::Config;
use petasos_fabric::{Endpoint, Event, Peer};
use petasos_sim::device::{DeviceConfig, DeviceNet};
use std::{collections::HashMap, time::Duration};

/// Lets a crowd send to one; `len` is the length of the messages by sender and number.
fn crowd(config: &Config, slots: usize, len: impl Fn(u32, u32) -> usize) {
    let count = from_environment("PETASOS_SENDERS", 1000) as u32;
    let each = from_environment("PETASOS_MESSAGES", 150) as u32;
    let mut device = DeviceConfig::with_seed(count.into());
    device.slots = slots;
    let net = DeviceNet::new(device);
    let mut receiver = open(&net, "receiver", config);
    let mut senders: Vec<End> = (0..count).map(|n| open(&net, n, config)).collect();
    let to: Vec<Peer> = senders
        .iter_mut()
        .map(|end| end.resolve(&address("receiver"), PATIENCE).unwrap())
        .collect();
    let mut sent = vec![0; senders.len()];
    let mut got: HashMap<Peer, u32> = HashMap::new();
    // How far each had come when the first was through, and the receiver's memory at its most.
    let (mut then, mut most, mut total) = (None, 0, 0);
    let limit = net.now().after(Duration::from_secs(100));
    while total < count * each {
        assert!(net.now() < limit, "{total} of {} came", count * each);
        for (n, end) in senders.iter_mut().enumerate() {
            while sent[n] < each {
                let bytes = message(n as u32, 0, sent[n], len(n as u32, sent[n]));
                if end.inject(to[n], &[&bytes]).is_err() {
                    break;
                }
                sent[n] += 1;
            }
            end.progress(net.now(), 16, &mut Vec::new());
        }
        // The receiver is short of time.
        let mut events = Vec::new();
        for _ in 0..8 {
            receiver.progress(net.now(), 64, &mut events);
        }
        for event in events {
            if let Event::Message { peer, message } = event {
                let (_, _, number) = read(&message);
                let expected = got.entry(peer).or_default();
                assert_eq!(number, *expected, "from {peer:?}");
                *expected += 1;
                total += 1;
                if *expected == each && then.is_none() {
                    then = Some(got.clone());
                }
            }
        }
        most = most.max(receiver.counters().memory);
        net.run_for(Duration::from_micros(2));
    }
    let then = then.expect("one was the first");
    let slowest = then.values().min().copied().unwrap_or(0);
    let share = then.values().sum::<u32>() / count;
    let (counters, nic) = (receiver.counters(), net.account(&address("receiver")).unwrap());
    println!("{count} senders: the slowest had {slowest} through, its share is {share}");
    println!("{most} bytes at the most, {} slots of {slots}; {counters:?}", nic.slots_most);
    assert_eq!(then.len(), count as usize, "a sender was not heard at all");
    assert!(slowest * 2 >= share, "the slowest had {slowest} through, its fair share is {share}");
    assert!(nic.slots_most <= slots);
    // What may be deferred, what may be in hand, and what may be given.
    let deferred = config.deferred as u64 + 64;
    let bound = deferred * 2048 + config.exclusive.give.bytes as u64 + (config.bounce * 16) as u64;
    assert!(counters.deferred_most <= deferred, "{counters:?}");
    assert!(most <= bound, "{most} bytes, more than {bound}");
    assert_eq!(counters.violations, 0);
}

#[test]
fn short_messages() {
    let mut config = Config::default();
    config.deferred = 500;
    crowd(&config, 128, |_, number| 12 + number as usize % 100);
}

#[test]
fn short_and_long_messages() {
    let mut config = Config::default();
    config.exclusive.hot.messages = 8;
    crowd(&config, 1024, |sender, number| match (sender + number) % 20 {
        0 => 4096,
        _ => 12 + number as usize * 3,
    });
}
