//! Flushes and fences to a peer that is stopped: no flush completes before the peer has what it
//! waits for, and nothing with a fence arrives before.

use super::{LEN, Owner, Where, message};
use crate::{Fixture, world::all_are};
use petasos_fabric::{
    Access, Capabilities, Done, Endpoint, Event, Key, Level, OpErrorKind, Operation, Payload, Peer,
    Region, Remote, RemoteSpan, Slice, Support, Token,
};
use smallvec::smallvec;
use std::time::{Duration, Instant};

/// Flushes to a stopped peer in one test.
const ROUNDS: u8 = 6;
/// How long the peer is stopped, at least.
const STOPPED: Duration = Duration::from_millis(60);

/// Memory that the peer opens, and what it says of it.
#[derive(Default)]
pub(super) struct Exposed(Option<Slice>);

impl Exposed {
    /// Carries out a request that is about this memory. Returns the answer.
    pub(super) fn answer(&mut self, end: &mut dyn Endpoint, [what, byte]: [u8; 2]) -> Vec<u8> {
        if what == message::CHECK {
            let memory = self.0.as_ref().expect("it was opened");
            let good = all_are(&memory.to_vec(), byte);
            return vec![if good { message::OVER } else { message::BAD }];
        }
        let memory = match byte {
            0 => Region::zeroed(LEN),
            _ => end.alloc(LEN).expect("memory"),
        };
        let memory = self.0.insert(memory.whole());
        let region = end.register(memory, Access::ALL).expect("registered");
        let key = end.export(region).expect("a key");
        [&[message::KEY][..], key.as_bytes()].concat()
    }
}

/// Puts to memory of a peer that is stopped before, or in the middle, and flushes: the flush ends
/// once the peer goes on, and then the memory is complete.
///
/// # Panics
/// If it ends too early, or not at all.
pub fn flushes(fixture: &dyn Fixture, serve: &str, of: Where) {
    rounds(
        fixture,
        serve,
        of,
        |can| can.flush != Support::None,
        |owner, of| owner.flush_to_stopped(of),
    );
}

/// Puts to memory of a peer that is stopped before, or in the middle, and behind them a message
/// with a fence: when the peer goes on and has the message, the memory is complete.
///
/// # Panics
/// If it is not, or the message does not arrive.
pub fn fences(fixture: &dyn Fixture, serve: &str, of: Where) {
    rounds(fixture, serve, of, |can| can.fences, |owner, of| owner.ask_stopped(of));
}

fn rounds(
    fixture: &dyn Fixture,
    serve: &str,
    of: Where,
    can: impl Fn(&Capabilities) -> bool,
    run: impl Fn(&mut Owner<'_>, (Peer, Remote, u8)),
) {
    if fixture.missing().is_some() {
        return;
    }
    let mut owner = Owner::new(fixture, serve, 17);
    let all = owner.driver.end.capabilities();
    if all.remote_access == Support::None || !can(all) {
        return;
    }
    for round in 0..ROUNDS {
        let peer = owner.peer();
        let ask = [message::EXPOSE, u8::from(of == Where::Alloc)];
        owner.driver.say(peer, &[&ask]);
        let (_, said) = owner.driver.message().expect("it lives");
        let (&what, key) = said.split_first().expect("a key");
        assert_eq!(what, message::KEY);
        let key = Key::from_bytes(key.to_vec()).expect("a key");
        let remote = owner.driver.end.import(&key).expect("it is imported");
        run(&mut owner, (peer, remote, round));
        owner.driver.end.release(remote);
    }
}

impl Owner<'_> {
    /// Fills the peer's memory.
    fn put_all(&mut self, remote: Remote, byte: u8) -> Vec<Token> {
        let (mut puts, mut offset) = (Vec::new(), 0);
        while offset < LEN {
            let len = [1, 8, 100, 4096, 70_000, 1 << 20][self.random.below(6)].min(LEN - offset);
            puts.push(self.driver.submit(|token| put(token, remote, offset, &vec![byte; len])));
            offset += len;
        }
        puts
    }

    /// The peer is stopped for a while: at some moment of the operations, if it is not yet.
    fn stop_and_wait(&mut self, within: bool) {
        if within {
            for _ in 0..self.random.below(300) {
                self.driver.pass();
            }
            self.stop();
        }
        let begin = Instant::now();
        while begin.elapsed() < STOPPED {
            self.driver.pass();
        }
    }

    fn ask_stopped(&mut self, (peer, remote, round): (Peer, Remote, u8)) {
        let byte = 0x40 + round;
        let within = !round.is_multiple_of(3);
        if !within {
            self.stop();
        }
        let puts = self.put_all(remote, byte);
        let asked = self.driver.submit(|token| {
            let payload = Payload::Bytes(vec![message::CHECK, byte].into());
            Operation::Send { token, peer, payload, level: Level::Reusable }.fenced()
        });
        self.stop_and_wait(within);
        self.go_on();
        if let Err(error) = self.driver.done(asked) {
            // It was cut off.
            assert!(matches!(error.kind, OpErrorKind::PeerLost(_)), "{error}");
            self.peer = None;
            for put in puts {
                let _ = self.driver.done(put);
            }
            return self.driver.events.clear();
        }
        for put in puts {
            let result = self.driver.done(put);
            assert!(result.is_ok(), "{result:?}");
        }
        let (_, said) = self.driver.message().expect("it lives");
        assert_eq!(said[0], message::OVER, "the message passed the data; within: {within}");
    }

    fn flush_to_stopped(&mut self, (peer, remote, round): (Peer, Remote, u8)) {
        let byte = 0x40 + round;
        let within = !round.is_multiple_of(3);
        if !within {
            self.stop();
        }
        let puts = self.put_all(remote, byte);
        let flush = self.driver.submit(|token| Operation::Flush { token, peer });
        self.stop_and_wait(within);
        let waited = self.has_waited();
        let is = |event: &Event| matches!(event, Event::Done { token, .. } if *token == flush);
        let early = self.driver.events.iter().any(is);
        let passive = self.driver.end.capabilities_of(peer).is_some_and(|can| can.passive_target);
        assert!(within || passive || waited || !early, "the flush did not wait for the peer");
        self.go_on();
        let flushed = self.driver.done(flush);
        for put in puts {
            let result = self.driver.done(put);
            assert!(result.is_ok() || flushed.is_err(), "{result:?}");
        }
        if let Err(error) = flushed {
            // It was cut off.
            assert!(matches!(error.kind, OpErrorKind::PeerLost(_)), "{error}");
            self.peer = None;
            return self.driver.events.clear();
        }
        assert!(matches!(flushed, Ok(Done::Flushed)), "{flushed:?}");
        self.driver.say(peer, &[&[message::CHECK, byte]]);
        let (_, said) = self.driver.message().expect("it lives");
        assert_eq!(said[0], message::OVER, "flushed, and not complete; within: {within}");
    }
}

fn put(token: Token, remote: Remote, offset: usize, bytes: &[u8]) -> Operation {
    Operation::Put {
        token,
        remote,
        local: smallvec![Slice::from(bytes.to_vec())],
        spans: smallvec![RemoteSpan { offset: offset as u64, len: bytes.len() as u64 }],
        level: Level::Reusable,
        event: None,
    }
}
