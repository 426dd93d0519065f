//! Which channel a message takes by its length, beside an exclusive channel that is open; and what
//! the endpoint says of that.

use crate::common::{End, join, message, net, numbers_of, open, until};
use petasos_channel::{Config, Force, Thresholds};
use petasos_fabric::{
    ChannelState, ChannelUse, Endpoint, Event, Lease, Level, Operation, Payload, Peer, Token,
    two_sided::header::{self, PREFIX},
};
use petasos_sim::device::DeviceNet;
use std::{collections::HashMap, ops::RangeInclusive, time::Duration};

struct Line {
    net: DeviceNet,
    a: End,
    b: End,
    ab: Peer,
    sent: u32,
}

/// Short packets up to 2,000 bytes; 500 to 1,000 through an exclusive channel.
fn some() -> Config {
    let mut config = Config::default();
    let thresholds = Thresholds::new(2000 + PREFIX, 0, 192).unwrap();
    let thresholds = thresholds.with_exclusive(500 + PREFIX, 1000 + PREFIX).unwrap();
    config.thresholds = Some(thresholds);
    config
}

impl Line {
    fn new(config: &Config) -> Line {
        let net = net(1);
        let (mut a, mut b) = (open(&net, "a", config), open(&net, "b", config));
        let (ab, _) = join(&net, &mut a, &mut b);
        Line { net, a, b, ab, sent: 0 }
    }

    /// Sends one, in one go or as an operation, and takes it.
    fn send(&mut self, len: usize, at_once: bool) {
        let bytes = message(0, 1, self.sent, len);
        if at_once {
            self.a.inject(self.ab, &[&bytes]).unwrap();
        } else {
            let (token, peer, payload) = (Token(1), self.ab, Payload::Bytes(bytes.into()));
            let send = Operation::Send { token, peer, payload, level: Level::Delivered };
            self.a.submit(&mut [send].into());
        }
        let (from, first) = (self.a.address().clone(), self.sent);
        until(&self.net, &mut [&mut self.a, &mut self.b], "a message", |ends, events| {
            numbers_of(ends[1], &events[1], &from, first) == 1
        });
        self.sent += 1;
    }

    /// How many take each channel: short packets, exclusive, fetched.
    fn counts(&self) -> [u64; 3] {
        let counters = self.a.counters();
        [counters.mp, counters.exclusive, counters.shared]
    }

    /// By which channel one goes.
    fn by(&mut self, len: usize, at_once: bool) -> [u64; 3] {
        let before = self.counts();
        self.send(len, at_once);
        let after = self.counts();
        [0, 1, 2].map(|at| after[at] - before[at])
    }

    /// Makes the peer hot with messages of this length.
    fn warm(&mut self, len: usize) {
        for _ in 0..100 {
            self.send(len, true);
        }
    }

    fn described(&self) -> HashMap<&'static str, ChannelUse> {
        let all = self.a.channels_of(self.ab);
        all.into_iter().map(|channel| (channel.name, channel)).collect()
    }

    fn exclusive(&self) -> ChannelUse {
        self.described().remove("exclusive FIFO").unwrap()
    }
}

const MP: [u64; 3] = [1, 0, 0];
const EXCLUSIVE: [u64; 3] = [0, 1, 0];
const FETCHED: [u64; 3] = [0, 0, 1];

/// While the channel is open, only the lengths that it is for go through it.
#[test]
fn beside_an_open_channel() {
    let mut line = Line::new(&some());
    // The first one asks for the credit of leases.
    line.send(499, true);
    for len in [499, 500, 1000, 1001, 2000] {
        assert_eq!(line.by(len, true), MP, "{len} bytes, without a channel");
    }
    line.warm(600);
    assert_eq!(line.exclusive().state, ChannelState::Open);
    for at_once in [true, false] {
        // An operation has a longer header.
        let header = if at_once { 0 } else { header::MAX - PREFIX };
        for (len, expected) in [
            (12, MP),
            (499 - header, MP),
            (500, EXCLUSIVE),
            (1000 - header, EXCLUSIVE),
            (1001, MP),
            (2000 - header, MP),
            (2001, FETCHED),
            (4000, FETCHED),
        ] {
            assert_eq!(line.by(len, at_once), expected, "{len} bytes, {at_once}");
        }
    }
}

/// Messages that would not go through it do not make a peer hot.
#[test]
fn other_lengths_ask_for_no_channel() {
    let mut line = Line::new(&some());
    line.warm(100);
    line.warm(1500);
    assert_eq!(line.exclusive().state, ChannelState::Closed);
    assert_eq!(line.b.counters().given, 0);
    line.warm(700);
    assert_eq!(line.b.counters().given, 1);
}

/// `never`: whatever the traffic, there is no exclusive channel, and no memory for one.
#[test]
fn never() {
    let mut config = some();
    config.thresholds = config.thresholds.map(Thresholds::without_exclusive);
    let mut line = Line::new(&config);
    for len in [20, 600, 1500] {
        line.warm(len);
    }
    assert_eq!((line.by(600, true), line.b.counters().given), (MP, 0));
    let exclusive = line.exclusive();
    assert_eq!((exclusive.state, exclusive.credit), (ChannelState::Never, None));
    assert!(exclusive.sizes.is_empty());
}

/// What an endpoint says of its channels to a peer follows them.
#[test]
fn described() {
    let mut config = some();
    config.ack_delay = Duration::from_secs(1000);
    let mut line = Line::new(&config);
    let sizes = |channel: &ChannelUse| channel.sizes.clone();
    let of = |from, to| -> Vec<RangeInclusive<usize>> { vec![from..=to] };
    let before = line.described();
    assert_eq!(sizes(&before["short packets"]), of(0, 2000));
    assert_eq!(sizes(&before["rendezvous"]), of(2001, usize::MAX));
    let exclusive = &before["exclusive FIFO"];
    assert_eq!((exclusive.state, exclusive.credit), (ChannelState::Closed, None));
    assert_eq!(sizes(exclusive), of(500, 1000), "if it were open");

    line.warm(600);
    let after = line.described();
    assert_eq!(sizes(&after["short packets"]), vec![0..=499, 1001..=2000]);
    assert_eq!(sizes(&after["rendezvous"]), of(2001, usize::MAX));
    assert_eq!(after["exclusive FIFO"].state, ChannelState::Open);
    // A peer that takes nothing leaves less and less credit.
    let credit = |line: &Line, name| line.described()[name].credit.unwrap();
    for (name, len) in [("exclusive FIFO", 600), ("short packets", 100)] {
        let before = credit(&line, name);
        line.a.inject(line.ab, &[&message(0, 1, line.sent, len)]).unwrap();
        line.sent += 1;
        let after = credit(&line, name);
        assert!(after.free < before.free && after.all == before.all, "{name}: {after:?}");
    }
    // One that is lost has none.
    line.a.forget(line.ab);
    assert!(line.a.channels_of(line.ab).is_empty());
}

/// Where one channel is forced, nothing takes another.
#[test]
fn forced() {
    let names = |force| {
        let mut config = some();
        config.force = force;
        let mut line = Line::new(&config);
        line.send(600, false);
        let used = line.described().into_values().filter(|c| c.state == ChannelState::Open);
        let mut used: Vec<_> =
            used.filter(|c| !c.sizes.is_empty()).map(|c| (c.name, c.sizes[0].clone())).collect();
        used.sort_by_key(|(name, _)| *name);
        used
    };
    let all = 0..=usize::MAX;
    assert_eq!(names(Force::Mp), [("short packets", all.clone())]);
    assert_eq!(names(Force::Shared), [("rendezvous", all.clone())]);
    assert_eq!(names(Force::Exclusive), [("exclusive FIFO", all)]);
}

/// Messages of all lengths in a row stay in order, though short ones could overtake.
#[test]
fn order_across_lengths() {
    let mut line = Line::new(&some());
    line.warm(600);
    let (from, first) = (line.a.address().clone(), line.sent);
    let (mut events, mut sent, mut came) = (Vec::new(), 0, 0);
    let end = line.net.now().after(Duration::from_secs(5));
    while came < 3000 {
        assert!(line.net.now() < end, "{came} of {sent}");
        while sent < 3000 {
            let len = [20, 600, 1500, 550, 3000, 900][sent as usize % 6];
            let bytes = message(0, 1, first + sent, len);
            if line.a.inject(line.ab, &[&bytes]).is_err() {
                break;
            }
            sent += 1;
        }
        line.a.progress(line.net.now(), 64, &mut Vec::new());
        let mut lease = Lease::default();
        while let Some(peer) = line.b.poll_message(&mut lease) {
            events.push(Event::Message { peer, message: std::mem::take(&mut lease) });
        }
        line.b.progress(line.net.now(), 64, &mut events);
        came += numbers_of(&line.b, &events, &from, first + came);
        events.clear();
        line.net.run_for(Duration::from_micros(2));
    }
    let counts = line.counts();
    assert!(counts.iter().all(|count| *count >= 400), "{counts:?}");
}
