//! What a message takes over libfabric, by datagrams and by channels: both ends on one thread, so
//! that neither waits for a processor. For a network or for shared memory of this machine:
//!
//! ```text
//! cargo run --release -p petasos-ofi --example channels [ofi+tcp://127.0.0.1:0] [COUNT]
//! cargo run --release -p petasos-ofi --example channels 'ofi+shm://*'
//! ```
//!
//! Each line has the least time per message of several rounds, in turn for both. Messages of up to
//! 64 KiB are injected; what is longer is a long message into memory of the receiver's. Puts and gets
//! are of the other's memory.

use bytes::Bytes;
use petasos_datagram::Datagrams;
use petasos_fabric::{
    Access, Address, Body, Clock, Endpoint, Event, InjectError, Level, Operation, Peer, Region,
    Remote, RemoteSpan, Token,
};
use petasos_ofi::{Config, Net};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    error::Error,
    time::{Duration, Instant},
};

const SIZES: [(What, usize); 8] = [
    (What::Message, 8),
    (What::Message, 4 << 10),
    (What::Message, 64 << 10),
    (What::Message, 1 << 20),
    (What::Put, 64 << 10),
    (What::Put, 1 << 20),
    (What::Get, 64 << 10),
    (What::Get, 1 << 20),
];
const ROUNDS: usize = 5;
/// The longest message that is injected.
const SHORT: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

#[derive(Clone, Copy, Debug)]
enum What {
    Message,
    Put,
    Get,
}

/// Two ends that know each other.
struct Line {
    ends: [Box<dyn Endpoint>; 2],
    to: Peer,
    /// Memory of the second one's.
    remote: Remote,
    clock: Clock,
    events: Vec<Event>,
}

impl Line {
    fn new(open: impl Fn() -> Result<Box<dyn Endpoint>>) -> Result<Line> {
        let mut ends = [open()?, open()?];
        let address = ends[1].address().clone();
        let to = ends[0].resolve(&address, PATIENCE)?;
        let region = ends[1].register(&Region::zeroed(1 << 20).whole(), Access::ALL)?;
        let key = ends[1].export(region)?;
        let remote = ends[0].import(&key)?;
        let mut line = Line { ends, to, remote, clock: Clock::start(), events: Vec::new() };
        let up = |event: &Event| matches!(event, Event::PeerUp { .. });
        line.find(1, |event| up(event).then_some(()))?;
        Ok(line)
    }

    /// Drives both until one has an event that is wanted.
    fn find<T>(&mut self, at: usize, wanted: impl Fn(&Event) -> Option<T>) -> Result<T> {
        let end = Instant::now() + PATIENCE;
        loop {
            for turn in [1 - at, at] {
                let now = self.clock.now();
                self.events.clear();
                self.ends[turn].progress(now, 64, &mut self.events);
                if let Some(Event::PeerLost { reason, .. }) =
                    self.events.iter().find(|event| matches!(event, Event::PeerLost { .. }))
                {
                    return Err(reason.to_string().into());
                }
                if turn == at
                    && let Some(found) = self.events.iter().find_map(&wanted)
                {
                    return Ok(found);
                }
            }
            if Instant::now() > end {
                return Err(format!("nothing of the kind in {PATIENCE:?}").into());
            }
        }
    }

    fn short(&mut self, bytes: &[u8]) -> Result<()> {
        loop {
            match self.ends[0].inject(self.to, &[bytes]) {
                Ok(()) => break,
                Err(InjectError::Full) => {
                    for end in &mut self.ends {
                        end.progress(self.clock.now(), 64, &mut Vec::new());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        let len = bytes.len();
        self.find(1, |event| match event {
            Event::Message { message, .. } if message.len() == len => Some(()),
            _ => None,
        })
    }

    fn long(&mut self, from: &Region, into: &Region) -> Result<()> {
        let (peer, header, body) = (self.to, Bytes::new(), from.whole());
        let send = Operation::SendLong { token: Token(1), peer, header, body };
        self.ends[0].submit(&mut VecDeque::from([send]));
        let body: Body = self.find(1, |event| match event {
            Event::LongMessage { body, .. } => Some(*body),
            _ => None,
        })?;
        let receive = Operation::Receive { token: Token(2), body, into: into.whole() };
        self.ends[1].submit(&mut VecDeque::from([receive]));
        self.find(1, |event| match event {
            Event::Done { result, .. } => Some(result.is_ok()),
            _ => None,
        })?;
        Ok(())
    }

    fn access(&mut self, put: bool, memory: &Region) -> Result<()> {
        let (token, remote, level, event) = (Token(3), self.remote, Level::Visible, None);
        let local = smallvec![memory.whole()];
        let spans = smallvec![RemoteSpan { offset: 0, len: memory.len() as u64 }];
        let operation = match put {
            true => Operation::Put { token, remote, local, spans, level, event },
            false => Operation::Get { token, remote, local, spans },
        };
        self.ends[0].submit(&mut VecDeque::from([operation]));
        match self.find(0, |event| match event {
            Event::Done { result, .. } => Some(result.is_ok()),
            _ => None,
        })? {
            true => Ok(()),
            false => Err("an access failed".into()),
        }
    }

    /// What one of them takes.
    fn measure(&mut self, what: What, len: usize, count: usize) -> Result<Duration> {
        let bytes = vec![7; len];
        let (from, into) = (Region::from_vec(bytes.clone()), Region::zeroed(len));
        let begin = Instant::now();
        for _ in 0..count {
            match what {
                What::Message if len <= SHORT => self.short(&bytes)?,
                What::Message => self.long(&from, &into)?,
                What::Put => self.access(true, &from)?,
                What::Get => self.access(false, &into)?,
            }
        }
        Ok(begin.elapsed() / count as u32)
    }
}

fn main() -> Result<()> {
    petasos_ofi::prepare();
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "ofi+tcp://127.0.0.1:0".to_owned());
    let count: usize = arguments.next().map_or(Ok(2000), |count| count.parse())?;
    let address = Address::parse(&url)?;
    let datagrams = || -> Result<Box<dyn Endpoint>> {
        Ok(Box::new(Datagrams::<Net>::open(&address, Config::default())?))
    };
    let channels = || -> Result<Box<dyn Endpoint>> {
        Ok(Box::new(petasos_ofi::open(&address, Config::default())?))
    };
    let mut lines = [Line::new(datagrams)?, Line::new(channels)?];
    println!("{:>7} {:>9} {:>12} {:>12}   µs over {url}", "", "bytes", "datagrams", "channels");
    for (what, len) in SIZES {
        // Fewer of the long ones.
        let count = (count * 1024 / len.max(1024)).clamp(20, count.max(20));
        let mut least = [Duration::MAX; 2];
        for _ in 0..ROUNDS {
            for (line, least) in lines.iter_mut().zip(&mut least) {
                *least = line.measure(what, len, count)?.min(*least);
            }
        }
        let [datagrams, channels] = least.map(|time| time.as_secs_f64() * 1e6);
        let what = format!("{what:?}").to_lowercase();
        println!("{what:>7} {len:>9} {datagrams:>12.1} {channels:>12.1}");
    }
    Ok(())
}
