//! An endpoint of another process: storms of messages, puts and gets, and a death in the middle.
//!
//! The test starts the other process, which [`serve`]s, passes on the two lines that it prints, and
//! knows how to kill it.

use crate::world::all_are;
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Key, Level, OpErrorKind, Operation, Peer, Region,
    Remote, RemoteSpan, Slice, Token,
};
use smallvec::smallvec;
use std::{
    collections::{HashSet, VecDeque},
    time::{Duration, Instant},
};

/// How long each wait may take.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of memory that is opened.
const LEN: usize = 8 << 20;

/// The other process: opens memory to every peer, returns each message, and reports each put with
/// event, until a peer is lost. Prints first what [`Client::meet`] needs, as `at ADDRESS` and
/// `key HEX`, a line each.
///
/// # Panics
/// If memory cannot be opened.
pub fn serve(end: &mut dyn Endpoint) {
    let memory = Region::zeroed(LEN).whole();
    let region = end.register(&memory, Access::ALL).expect("memory is registered");
    let key = end.export(region).expect("it has a key");
    println!("at {}", end.address());
    let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("key {hex}");
    let (clock, mut events, mut owed) = (Clock::start(), Vec::new(), VecDeque::new());
    loop {
        end.progress(clock.now(), 64, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Message { peer, message } => owed.push_back((peer, message.to_vec())),
                Event::PutArrived { peer, offset, len, data, .. } => {
                    let there = memory.part(offset as usize, len as usize);
                    let good = there.is_some_and(|put| all_are(&put.to_vec(), data as u8));
                    owed.push_back((peer, arrival(offset, len, data, good)));
                }
                Event::PeerLost { .. } => return,
                _ => {}
            }
        }
        while let Some((peer, message)) = owed.front()
            && end.inject(*peer, &[message]).is_ok()
        {
            owed.pop_front();
        }
    }
}

/// The report of a put that arrived: offset, length, its data, and whether all its bytes equal
/// that.
fn arrival(offset: u64, len: u64, data: u64, good: bool) -> Vec<u8> {
    [offset, len, data, good.into()].iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// This process: the client of the one that serves.
pub struct Client<E> {
    /// Its endpoint.
    pub end: E,
    clock: Clock,
    events: Vec<Event>,
    peer: Peer,
    remote: Remote,
    memory: Slice,
}

impl<E: Endpoint> Client<E> {
    /// Connects to the process that serves, by the lines that it printed.
    ///
    /// # Panics
    /// If it is not there, or the lines are damaged.
    #[must_use]
    pub fn meet(mut end: E, address: &str, key: &str) -> Client<E> {
        let address = Address::parse(address).expect("an address");
        let byte = |at: usize| u8::from_str_radix(&key[at..at + 2], 16).expect("a byte");
        let key: Vec<u8> = (0..key.len()).step_by(2).map(byte).collect();
        let peer = end.resolve(&address, PATIENCE).expect("it is resolved");
        let remote = end.import(&Key::from_bytes(key).expect("a key")).expect("it is imported");
        let memory = Slice::from((0..LEN).map(|i| ((i * 7) >> 3) as u8).collect::<Vec<u8>>());
        let (clock, events) = (Clock::start(), Vec::new());
        let mut client = Client { end, clock, events, peer, remote, memory };
        client.until("the peer is up", |e| e.iter().any(|e| matches!(e, Event::PeerUp { .. })));
        client
    }

    fn until(&mut self, what: &str, mut seen: impl FnMut(&mut Vec<Event>) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(&mut self.events) {
            self.end.progress(self.clock.now(), 64, &mut self.events);
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.events);
        }
    }

    /// Puts with event, of lengths from 1 byte to 200 KiB: each is reported once, when its data is
    /// there.
    ///
    /// # Panics
    /// If one is not.
    pub fn puts_with_event(&mut self) {
        const PLACES: u64 = 32;
        let count = 200u64;
        let put = |i: u64| ((i % PLACES) * (256 << 10), 1 + (i * 7919) % (200 << 10), u64::MAX - i);
        let expected = |i| {
            let (offset, len, data) = put(i);
            arrival(offset, len, data, true)
        };
        // Reports come in any order.
        let mut missing: HashSet<Vec<u8>> = HashSet::new();
        for i in 0..count {
            // What lay at this place was looked at.
            if let Some(before) = i.checked_sub(PLACES) {
                self.reports(&mut missing, |missing| !missing.contains(&expected(before)));
            }
            missing.insert(expected(i));
            let (offset, len, data) = put(i);
            let token = Token(1000 + i);
            let operation = Operation::Put {
                token,
                remote: self.remote,
                local: smallvec![Slice::from(vec![data as u8; len as usize])],
                spans: smallvec![RemoteSpan { offset, len }],
                level: Level::Visible,
                event: Some(data),
            };
            self.end.submit(&mut VecDeque::from([operation]));
            // A few at a time.
            if i >= 8 {
                self.done(1000 + i - 8).expect("it is put");
            }
        }
        for i in count - 8..count {
            self.done(1000 + i).expect("it is put");
        }
        self.reports(&mut missing, HashSet::is_empty);
    }

    /// Takes reports of puts, each of which is to be missing, until there are enough.
    fn reports(
        &mut self,
        missing: &mut HashSet<Vec<u8>>,
        enough: impl Fn(&HashSet<Vec<u8>>) -> bool,
    ) {
        self.until("a put is reported", |events| {
            events.retain(|event| {
                let Event::Message { message, .. } = event else { return true };
                assert!(missing.remove(&message.to_vec()), "a put, once and whole: {message:?}");
                false
            });
            enough(missing)
        });
    }

    fn access(&mut self, token: u64, put: bool, memory: &Slice) {
        let (token, remote, local) = (Token(token), self.remote, smallvec![memory.clone()]);
        let spans = smallvec![RemoteSpan { offset: 0, len: memory.len() as u64 }];
        let operation = match put {
            true => {
                Operation::Put { token, remote, local, spans, level: Level::Visible, event: None }
            }
            false => Operation::Get { token, remote, local, spans },
        };
        self.end.submit(&mut VecDeque::from([operation]));
    }

    fn done(&mut self, token: u64) -> Result<(), OpErrorKind> {
        let mut result = None;
        self.until("a completion", |events| {
            let is = |e: &Event| matches!(e, Event::Done { token: t, .. } if t.0 == token);
            let at = events.iter().position(is);
            if let Some(Event::Done { result: found, .. }) = at.map(|at| events.swap_remove(at)) {
                result = Some(found.map(drop).map_err(petasos_fabric::OpError::into_kind));
            }
            result.is_some()
        });
        result.expect("seen")
    }

    /// Messages of all lengths, more than there is room for, in order and whole, there and back.
    ///
    /// # Panics
    /// If one is not.
    pub fn storm(&mut self) {
        let count = 3000usize;
        let longest = self.end.capabilities().limits.max_inject.min(9000);
        let message = |i: usize| vec![i as u8; 8 + (i * 131) % (longest - 8)];
        let (mut sent, mut got) = (0, 0);
        let end = Instant::now() + PATIENCE;
        while got < count {
            while sent < count && self.end.inject(self.peer, &[&message(sent)]).is_ok() {
                sent += 1;
            }
            self.end.progress(self.clock.now(), 64, &mut self.events);
            for event in self.events.drain(..) {
                if let Event::Message { message: came, .. } = event {
                    assert!(came[..] == message(got), "message {got} of {} bytes", came.len());
                    got += 1;
                }
            }
            assert!(Instant::now() < end, "{sent} sent, {got} returned");
        }
    }

    /// Puts 8 MiB, and gets them back.
    ///
    /// # Panics
    /// If that fails, or other bytes come back.
    pub fn there_and_back(&mut self) {
        let memory = self.memory.clone();
        self.access(1, true, &memory);
        self.done(1).expect("it is put");
        let back = Region::zeroed(LEN).whole();
        self.access(2, false, &back);
        self.done(2).expect("it is got");
        assert!(back.to_vec() == memory.to_vec());
    }

    /// A death in the middle of puts and gets: each ends once, and the loss is seen. The memory
    /// outlives the endpoint.
    ///
    /// # Panics
    /// If one ends as it should not, or there is no loss.
    pub fn dies_in_the_middle(mut self, kill: impl FnOnce()) {
        let memory = self.memory.clone();
        for token in 10..14 {
            self.access(token, token % 2 == 0, &memory);
        }
        self.end.progress(self.clock.now(), 64, &mut self.events);
        kill();
        for token in 10..14 {
            if let Err(kind) = self.done(token) {
                assert!(matches!(kind, OpErrorKind::PeerLost(_)), "{kind}");
            }
        }
        self.until("the loss", |e| e.iter().any(|e| matches!(e, Event::PeerLost { .. })));
        drop(self);
        assert!(memory.region().expect("not raw").clone().whole().len() == LEN);
    }
}
