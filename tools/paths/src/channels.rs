//! A message of 32 bytes over one channel, over the shortest device there is, both ends on one
//! thread.

use crate::{timed, wire};
use petasos::{
    channel::{Channels, Config, Force},
    fabric::{Endpoint, Event, Lease, Peer, Time},
};
use std::{error::Error, time::Duration};

type End = Channels<wire::End>;

/// How far time goes on for each message, so that the counts are the same every time.
const STEP: Duration = Duration::from_micros(1);

/// Messages until all is warm: an exclusive channel was given, what is used again is there.
const WARM: u64 = 4000;

/// Two ends that are joined.
struct Line {
    a: End,
    b: End,
    ab: Peer,
    now: Time,
    message: Lease,
    events: Vec<Event>,
}

impl Line {
    fn new(force: Force) -> Result<Line, Box<dyn Error>> {
        let mut config = Config::default();
        config.force = force;
        let [mut a, b] = wire::pair()?.map(|end| Channels::new(end, config.clone()));
        let ab = a.resolve(&b.address().clone(), Duration::from_secs(3600))?;
        let now = Time(1);
        Ok(Line { a, b, ab, now, message: Lease::default(), events: Vec::new() })
    }

    /// Sends one and receives it, and has the sender hear what was acknowledged.
    #[inline]
    fn message(&mut self, bytes: &[u8; 32]) {
        while self.a.inject(self.ab, &[bytes]).is_err() {
            self.pass();
        }
        self.now = self.now.after(STEP);
        while !self.receive(bytes) {
            self.a.progress(self.now, 8, &mut self.events);
        }
        self.a.progress(self.now, 8, &mut self.events);
        self.events.clear();
    }

    /// By the fast path or as an event; false if it is not there yet.
    #[inline]
    fn receive(&mut self, bytes: &[u8; 32]) -> bool {
        let mut came = self.b.poll_message(&mut self.message).is_some();
        if !came {
            self.b.progress(self.now, 8, &mut self.events);
            for event in self.events.drain(..) {
                if let Event::Message { message, .. } = event {
                    self.message = message;
                    came = true;
                }
            }
        }
        assert!(!came || self.message[..] == bytes[..]);
        came
    }

    /// Both sides go on, with nothing to be sent.
    fn pass(&mut self) {
        self.now = self.now.after(STEP);
        self.a.progress(self.now, 64, &mut self.events);
        self.b.progress(self.now, 64, &mut self.events);
        self.events.clear();
    }

    #[inline]
    fn messages(&mut self, count: u64) {
        let mut bytes = [7; 32];
        for n in 0..count {
            bytes[0] = n as u8;
            self.message(&bytes);
        }
    }
}

/// What is counted: one function for all channels, as two that do the same may become one.
#[inline(never)]
fn path_channel(line: &mut Line, count: u64) {
    line.messages(count);
}

/// Runs a path by this channel.
pub(crate) fn run(force: Force, count: u64) -> Result<Duration, Box<dyn Error>> {
    let mut line = Line::new(force)?;
    line.messages(WARM);
    let before = line.a.counters();
    let took = timed(|| path_channel(&mut line, count));
    let after = line.a.counters();
    // It took the channel that was asked for, and no other.
    let (packets, puts) = (after.mp - before.mp, after.immediate - before.immediate);
    let expected = if force == Force::Mp { (count, 0) } else { (0, count) };
    if (packets, puts) != expected {
        return Err(format!("{packets} by packets, {puts} by puts, of {count}").into());
    }
    Ok(took)
}
