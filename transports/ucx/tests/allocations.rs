//! Short messages on an open stream that are taken as they come allocate nothing, on either side, by
//! whichever channel; but for one block with each packet of the NIC's that only acknowledges, one in
//! 32.

mod common;

use common::{POSIX, is_here};
use petasos_channel::{Channels, Force};
use petasos_conformance::RealTime;
use petasos_fabric::{Endpoint, Event, Lease, Peer, Time};
use petasos_ucx::Nic;
use std::time::{Duration, Instant};

type End = Channels<Nic>;

/// Messages before it is counted, and while it is.
const WARM: u32 = 4000;
const COUNTED: u32 = 2000;

struct Line {
    ends: [End; 2],
    to: Peer,
    begin: Instant,
    lease: Lease,
    events: Vec<Event>,
}

impl Line {
    fn new(force: Force) -> Line {
        let time = RealTime::default();
        let mut ends = [(); 2].map(|()| {
            let nic = Nic::open(&POSIX.fresh(&time), common::config(POSIX)).unwrap();
            let mut settings = nic.settings();
            settings.force = force;
            Channels::new(nic, settings)
        });
        let address = ends[1].address().clone();
        let to = ends[0].resolve(&address, Duration::from_secs(10)).unwrap();
        Line { ends, to, begin: Instant::now(), lease: Lease::default(), events: Vec::new() }
    }

    /// Sends so many, each when the last one was taken.
    fn talk(&mut self, count: u32, len: usize) {
        let bytes = [7; 1000];
        let (mut sent, mut came) = (0, 0);
        while came < count {
            assert!(self.begin.elapsed() < Duration::from_secs(100), "{came} of {sent}");
            let [a, b] = &mut self.ends;
            if sent == came {
                let parts = [&bytes[..len / 2], &bytes[len / 2..len]];
                sent += u32::from(a.inject(self.to, &parts).is_ok());
            }
            let now = Time(1 + self.begin.elapsed().as_nanos() as u64);
            a.progress(now, 64, &mut self.events);
            self.events.clear();
            while b.poll_message(&mut self.lease).is_some() {
                assert_eq!(self.lease.len(), len);
                came += 1;
            }
            b.progress(now, 64, &mut self.events);
            let message = |event: &Event| matches!(event, Event::Message { .. });
            came += self.events.drain(..).filter(message).count() as u32;
        }
    }
}

#[test]
fn fewer_than_messages() {
    if !is_here(POSIX) {
        return;
    }
    for force in [Force::None, Force::Mp, Force::Exclusive] {
        let mut line = Line::new(force);
        for len in [8, 90, 140, 600] {
            line.talk(WARM, len);
            let heap = allocation_counter::measure(|| line.talk(COUNTED, len));
            let counters = line.ends[0].counters();
            println!("{force:?}, {len} bytes: {} for {COUNTED} messages", heap.count_total);
            assert_eq!(counters.exclusive > 0, force == Force::Exclusive, "{counters:?}");
            assert!(heap.count_total <= u64::from(COUNTED / 16), "{force:?}, {len} bytes");
        }
    }
}
