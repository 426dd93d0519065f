//! By the contract, and by calls over it.

use crate::{
    BLOCK, LEN,
    sides::{Anything, Side, hex, rate, unhex},
};
use petasos::{Engine, EngineConfig, EngineThread, Idle, OpenOptions, service};
use petasos_datagram::{Config, bare::Plain};
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Key, Lease, Level, Operation, Peer, Region,
    RemoteSpan, Slice, Time, Token,
};
use petasos_testing::median;
use std::{
    cell::RefCell,
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Messages or calls in a batch, of whose times the median counts.
const BATCH: u32 = 2000;
const BATCHES: usize = 40;

#[service]
trait Echo {
    async fn echo(&self, words: [u64; LEN / 8]) -> [u64; LEN / 8];
}

struct Same;

impl Echo for Same {
    async fn echo(&self, words: [u64; LEN / 8]) -> [u64; LEN / 8] {
        words
    }
}

/// Nanoseconds for a typed call with its deadline: 64 bytes of arguments, 64 of result.
pub(crate) fn call(address: &Address, side: &mut Side) -> Anything<f64> {
    let mut config = EngineConfig::default();
    config.idle = Idle::Spin;
    let endpoint = petasos::open(address.as_str(), &OpenOptions::default())?;
    if !side.is_first() {
        // Its thread is started by this one, and so on the same core, on which this one sleeps.
        let server = EngineThread::start(endpoint, config, |engine| {
            Same.serve(engine, 0).expect("nothing served yet");
        })?;
        side.exchange(server.handle().address().as_str())?;
        return side.until_released().map(|()| 0.0);
    }
    let engine = Engine::new(endpoint, config);
    let heard = side.exchange("")?;
    let echo = EchoClient::new(&engine, &Address::parse(&heard)?);
    let words = [7; LEN / 8];
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        let begin = Instant::now();
        engine.block_on(async {
            for _ in 0..BATCH {
                assert_eq!(echo.echo(words).await.expect("an answer"), words);
            }
        });
        batches.push(begin.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    side.release();
    Ok(median(batches))
}

/// Nanoseconds for a message there and back.
pub(crate) fn message<N: Plain>(address: &Address, side: &mut Side) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let first = side.is_first();
    let mut end = petasos_datagram::open::<N>(address, Config::default())?;
    let heard = side.exchange(end.address().as_str())?;
    let clock = Clock::start();
    let mut events = Vec::new();
    if first {
        end.resolve(&Address::parse(&heard)?, Duration::from_secs(10))?;
    }
    let peer = loop {
        end.progress(clock.now(), 16, &mut events);
        let up = events.iter().find_map(|event| match event {
            Event::PeerUp { peer, .. } => Some(*peer),
            _ => None,
        });
        // What came with it is taken by the receiver.
        events.retain(|event| matches!(event, Event::Message { .. }));
        if let Some(peer) = up {
            break peer;
        }
    };
    let end = RefCell::new(end);
    let send = || while end.borrow_mut().inject(peer, &[&[7; LEN]]).is_err() {};
    let (mut passes, mut now) = (0u32, clock.now());
    let receive =
        || receive(&mut *end.borrow_mut(), &clock, &mut now, &mut events, &mut passes, peer);
    let time = rounds(first, send, receive);
    // The last answer leaves before the endpoint does.
    for _ in 0..100 {
        end.borrow_mut().progress(clock.now(), 16, &mut Vec::new());
    }
    Ok(time)
}

/// Takes a message by the short way, as engines do, with a whole pass whenever that finds nothing.
fn receive(
    end: &mut impl Endpoint,
    clock: &Clock,
    now: &mut Time,
    events: &mut Vec<Event>,
    passes: &mut u32,
    peer: Peer,
) {
    let mut message = Lease::default();
    if events.pop().is_some() {
        return;
    }
    loop {
        if end.poll_message(&mut message) == Some(peer) {
            return;
        }
        *passes = passes.wrapping_add(1);
        if passes.is_multiple_of(64) {
            *now = clock.now();
        }
        if passes.is_multiple_of(8) {
            end.progress(*now, 16, events);
            let came = events.drain(..).any(|event| matches!(event, Event::Message { .. }));
            if came {
                return;
            }
        }
    }
}

/// Gigabytes in a second of puts, by the library's access or served by the owner.
pub(crate) fn puts<N: Plain>(address: &Address, side: &mut Side) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let first = side.is_first();
    let mut end = petasos_datagram::open::<N>(address, Config::default())?;
    let memory = Region::zeroed(BLOCK).whole();
    let region = end.register(&memory, Access::ALL)?;
    let heard = side.exchange(&hex(end.export(region)?.as_bytes()))?;
    let (clock, mut events) = (Clock::start(), Vec::new());
    if !first {
        loop {
            end.progress(clock.now(), 64, &mut events);
            if events.drain(..).any(|event| matches!(event, Event::Message { .. })) {
                return Ok(0.0);
            }
        }
    }
    memory.write(0, &vec![7; BLOCK]);
    let remote = end.import(&Key::from_bytes(unhex(&heard)?)?)?;
    let mut queue = VecDeque::new();
    let (mut passes, mut now) = (0u32, clock.now());
    let rate = rate(|room| {
        queue.extend((0..room).map(|_| Operation::Put {
            token: Token(0),
            remote,
            local: [Slice::clone(&memory)].into_iter().collect(),
            spans: [RemoteSpan { offset: 0, len: BLOCK as u64 }].into_iter().collect(),
            level: Level::Visible,
            event: None,
        }));
        if !queue.is_empty() {
            end.submit(&mut queue);
        }
        passes = passes.wrapping_add(1);
        if passes.is_multiple_of(16) {
            now = clock.now();
        }
        end.progress(now, 64, &mut events);
        let done = |event: &Event| matches!(event, Event::Done { result: Ok(_), .. });
        events.drain(..).filter(done).count() as u32
    });
    while end.inject(remote.peer, &[b"enough"]).is_err() {
        end.progress(clock.now(), 64, &mut events);
    }
    for _ in 0..1000 {
        end.progress(clock.now(), 64, &mut events);
    }
    Ok(rate)
}

/// Measures, or answers.
pub(crate) fn rounds(first: bool, mut send: impl FnMut(), mut receive: impl FnMut()) -> f64 {
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..BATCH {
            if first {
                send();
                receive();
            } else {
                receive();
                send();
            }
        }
        batches.push(begin.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    median(batches)
}
