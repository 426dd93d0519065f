//! Short messages on an open stream allocate nothing, on either side, by whichever channel and path
//! they are taken; the simulated network that carries them included.

mod common;

use common::{End, join, net, open};
use petasos_channel::{Channels, Config, Device, Force};
use petasos_fabric::{Endpoint, Event, Lease, Peer, Time};
use petasos_sim::device::DeviceNet;
use std::time::Duration;

/// Messages before it is counted, and while it is.
const WARM: u32 = 4000;
const COUNTED: u32 = 2000;
/// Injected before the receiver looks.
const BATCH: u32 = 4;

/// What a receiver reuses.
#[derive(Default)]
struct Inbox {
    message: Lease,
    events: Vec<Event>,
}

impl Inbox {
    /// Takes what has come, as events or by the fast path; gives how many messages there were.
    fn take<D: Device>(
        &mut self,
        end: &mut Channels<D>,
        now: Time,
        short: bool,
        len: usize,
    ) -> u32 {
        let mut count = 0;
        while short && end.poll_message(&mut self.message).is_some() {
            assert_eq!(self.message.len(), len);
            count += 1;
        }
        end.progress(now, 64, &mut self.events);
        for event in self.events.drain(..) {
            if let Event::Message { message, .. } = event {
                assert_eq!(message.len(), len);
                count += 1;
            }
        }
        count
    }
}

/// Two endpoints that are joined, and time.
struct Line<D: Device> {
    a: Channels<D>,
    b: Channels<D>,
    ab: Peer,
    inboxes: [Inbox; 2],
}

impl<D: Device> Line<D> {
    /// Sends so many messages, and takes them all.
    fn talk(&mut self, count: u32, len: usize, short: bool, mut pass: impl FnMut() -> Time) {
        let bytes = [7; 1000];
        let [of_a, of_b] = &mut self.inboxes;
        let (mut sent, mut heard) = (0, 0);
        while heard < count {
            for _ in 0..BATCH.min(count - sent) {
                // In two parts, as callers do.
                if self.a.inject(self.ab, &[&bytes[..len / 2], &bytes[len / 2..len]]).is_err() {
                    break;
                }
                sent += 1;
            }
            let now = pass();
            of_a.take(&mut self.a, now, short, len);
            heard += of_b.take(&mut self.b, now, short, len);
        }
    }

    /// Blocks of memory that were allocated, one for each message or less often.
    fn allocations(&mut self, len: usize, short: bool, mut pass: impl FnMut() -> Time) -> u64 {
        self.talk(WARM, len, short, &mut pass);
        let before = self.b.counters().short_in;
        let heap = allocation_counter::measure(|| self.talk(COUNTED, len, short, &mut pass));
        assert!(!short || self.b.counters().short_in > before + u64::from(COUNTED) / 2);
        assert!(self.a.counters().short_out > u64::from(COUNTED), "{:?}", self.a);
        heap.count_total
    }
}

fn simulated(force: Force) -> (DeviceNet, Line<petasos_sim::device::SimDevice>) {
    let net = net(1);
    let mut config = Config::default();
    config.force = force;
    let (mut a, mut b): (End, End) = (open(&net, "a", &config), open(&net, "b", &config));
    let (ab, _) = join(&net, &mut a, &mut b);
    (net, Line { a, b, ab, inboxes: Default::default() })
}

/// None at all, by events and by the fast path.
fn none(force: Force) {
    let (net, mut line) = simulated(force);
    for short in [true, false] {
        for len in [0, 8, 30, 90, 170, 1000] {
            let pass = || {
                net.run_for(Duration::from_micros(4));
                net.now()
            };
            let count = line.allocations(len, short, pass);
            println!("{force:?}, {len} bytes, short way {short}: {count} for {COUNTED} messages");
            assert_eq!(count, 0, "{force:?}, {len} bytes, short way {short}");
        }
    }
}

#[test]
fn none_by_short_packets() {
    none(Force::Mp);
}

#[test]
fn none_by_the_exclusive_channel() {
    none(Force::Exclusive);
}
