//! Operations with a peer that is stopped, from and into memory that the program keeps, and frees
//! in the moment of their completion.

use super::{Driver, FIRST, LATE, LEN, Owner, message};
use crate::{
    Fixture, Random,
    foreign::{Over, Pages},
};
use bytes::Bytes;
use petasos_fabric::{
    Access, Event, Key, Level, Operation, Payload, Peer, Region, Remote, RemoteSpan, Slice,
    Support, Token,
};
use smallvec::smallvec;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

/// Peers that are stopped in one test.
const ROUNDS: usize = 6;

/// What the peer does: it opens memory, and then whatever its endpoint does by itself.
pub(super) fn expose(driver: &mut Driver<'_>, owner: Peer) {
    let memory = Region::from_vec(vec![FIRST; LEN]);
    let region = driver.end.register(&memory.whole(), Access::ALL).expect("registered");
    let key = driver.end.export(region).expect("a key");
    driver.say(owner, &[&[message::BEGUN], key.as_bytes()]);
    let lost = |event: &Event| matches!(event, Event::PeerLost { .. });
    while !driver.events.iter().any(lost) {
        driver.events.clear();
        driver.pass_or_wait();
    }
    // Without a report of the test that this is to its harness: the owner does not read it.
    std::process::exit(0);
}

/// Memory of operations under way.
struct Lent {
    pages: HashMap<Token, Pages>,
    over: Vec<Over>,
}

impl Lent {
    /// Frees what has completed.
    fn collect(&mut self, driver: &mut Driver<'_>, random: &mut Random) {
        for event in driver.events.drain(..) {
            if let Event::Done { token, .. } = event
                && let Some(pages) = self.pages.remove(&token)
            {
                let used = driver.end.in_use(&pages.slice());
                assert_eq!(used, None, "of an operation that is complete");
                self.over.push(pages.end(random.below(2) == 0).1);
            }
        }
    }
}

/// Frees memory of operations with a peer that is stopped, as soon as they complete: on their own,
/// cancelled, or because the peer is forgotten. When it goes on it finds nothing there.
///
/// # Panics
/// If something is written to freed memory, or an operation does not end.
pub fn operations(fixture: &dyn Fixture, serve: &str) {
    if fixture.missing().is_some() {
        return;
    }
    let driver = Driver::open(fixture);
    let access = driver.end.capabilities().remote_access != Support::None;
    let mut owner = Owner { driver, serve, random: Random::new(77), peer: None };
    for round in 0..ROUNDS {
        owner.stop_within(access, round % 3);
    }
}

impl Owner<'_> {
    fn stop_within(&mut self, access: bool, end: usize) {
        let peer = self.peer();
        self.driver.say(peer, &[&[message::EXPOSE_AND_END, 0]]);
        let (_, said) = self.driver.message().expect("it lives");
        let key = Key::from_bytes(said[1..].to_vec()).expect("a key");
        let remote = access.then(|| self.driver.end.import(&key).expect("it is imported"));
        let mut lent = Lent { pages: HashMap::new(), over: Vec::new() };
        self.submit_all(peer, remote, &mut lent);
        let regions = self.submit_regions(peer, remote);
        self.pass_some(300, &mut lent);
        self.stop();
        self.pass_some(100, &mut lent);
        if end > 0 {
            let tokens: Vec<Token> = lent.pages.keys().copied().collect();
            tokens.into_iter().for_each(|token| self.driver.end.cancel(token));
            self.pass_some(100, &mut lent);
        }
        if end > 1 {
            // The peer goes on in the middle of the end.
            self.go_on();
        }
        self.driver.end.forget(peer);
        let begin = Instant::now();
        while !lent.pages.is_empty() {
            self.driver.pass();
            lent.collect(&mut self.driver, &mut self.random);
            // A call that waited for the peer has taken long, and the peer goes on.
            let most = if self.has_waited() { self.driver.fixture.deadline() } else { LATE };
            let (late, left) = (begin.elapsed() > most, lent.pages.len());
            assert!(!late, "{left} operations do not end");
        }
        self.has_waited();
        // What is free now is not touched any more, whatever the peer and the library do then.
        let free = |memory: &Slice| self.driver.end.in_use(memory).is_none();
        let free: Vec<_> = regions.into_iter().filter(free).map(|m| (m.to_vec(), m)).collect();
        self.go_on();
        // It carries out what it has, and learns that it is forgotten.
        let (mut process, _) = self.peer.take().expect("started");
        let until = Instant::now() + Duration::from_millis(300);
        while Instant::now() < until && process.is_running() {
            self.pass_some(10, &mut lent);
        }
        drop(process);
        assert!(lent.over.iter().all(Over::is_untouched), "freed memory was written to");
        assert!(free.iter().all(|(then, now)| now.to_vec() == *then), "free memory was written to");
    }

    fn pass_some(&mut self, most: usize, lent: &mut Lent) {
        for _ in 0..self.random.below(most) {
            self.driver.pass();
            lent.collect(&mut self.driver, &mut self.random);
        }
    }

    /// The same with memory that operations hold: what there is of it.
    fn submit_regions(&mut self, peer: Peer, remote: Option<Remote>) -> Vec<Slice> {
        let driver = &mut self.driver;
        let memory = [FIRST; 3].map(|byte| Region::from_vec(vec![byte; LEN]).whole());
        let [body, from, into] = memory.clone();
        driver.submit(|token| Operation::SendLong { token, peer, header: Bytes::new(), body });
        let Some(remote) = remote else { return memory.into() };
        let (level, event, all) = (Level::Visible, None, RemoteSpan { offset: 0, len: LEN as u64 });
        driver.submit(|token| {
            let (local, spans) = (smallvec![from], smallvec![all]);
            Operation::Put { token, remote, local, spans, level, event }
        });
        driver.submit(|token| {
            let (local, spans) = (smallvec![into], smallvec![all]);
            Operation::Get { token, remote, local, spans }
        });
        memory.into()
    }

    fn submit_all(&mut self, peer: Peer, remote: Option<Remote>, lent: &mut Lent) {
        let driver = &mut self.driver;
        let tagged = driver.end.capabilities().tagged != Support::None;
        let short = driver.end.capabilities().limits.max_message.min(60_000);
        let mut submit = |len: usize, make: &dyn Fn(Token, Slice) -> Operation| {
            let pages = Pages::new(&vec![FIRST; len]);
            let slice = pages.slice();
            let token = driver.submit(|token| make(token, slice));
            lent.pages.insert(token, pages);
        };
        let level = Level::Visible;
        submit(short, &|token, from| Operation::Send {
            token,
            peer,
            payload: Payload::Memory(from),
            level,
        });
        submit(LEN, &|token, body| Operation::SendLong { token, peer, header: Bytes::new(), body });
        if tagged {
            submit(LEN, &|token, from| {
                let payload = Payload::Memory(from);
                Operation::SendTagged { token, peer, tag: 4, payload, level }
            });
            submit(64, &|token, into| Operation::PostReceive {
                token,
                source: Some(peer),
                tag: 9,
                ignore: 0,
                into,
            });
        }
        let Some(remote) = remote else { return };
        let all = RemoteSpan { offset: 0, len: LEN as u64 };
        for event in [None, Some(7)] {
            submit(LEN, &|token, from| Operation::Put {
                token,
                remote,
                local: smallvec![from],
                spans: smallvec![all],
                level,
                event,
            });
        }
        submit(LEN, &|token, into| Operation::Get {
            token,
            remote,
            local: smallvec![into],
            spans: smallvec![all],
        });
    }
}
