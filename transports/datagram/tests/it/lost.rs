//! Operations with lost peers that a library never completes: their memory stays held, and others
//! take their place, up to a bound, which an error then names.

use crate::common::{LATE, Mock, be_silent, complete_all, nodes};
use petasos_channel::Channels;
use petasos_datagram::{Config, Nic};
use petasos_fabric::{
    Access, Address, Clock, Drain, Endpoint, Event, Level, LostReason, OpErrorKind, Operation,
    Payload, Peer, Region, RegionId, Remote, RemoteSpan, Slice, StillUsed, Time, Token,
};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    ptr::NonNull,
    time::{Duration, Instant},
};

const LEN: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);
const MOURNING: Duration = Duration::from_millis(50);

fn config(sends: usize, lost: usize) -> Config {
    let mut config = Config::default();
    (config.sends, config.lost, config.mourning) = (sends, lost, MOURNING);
    config.remote_access_from = 1;
    config
}

/// `a` reaches memory of `b`, and loses it again and again.
struct Pair {
    a: Channels<Nic<Mock>>,
    b: Channels<Nic<Mock>>,
    region: RegionId,
    clock: Clock,
    /// Time that was not waited for.
    skipped: Duration,
    tokens: u64,
    events: Vec<Event>,
}

impl Pair {
    fn open(config: &Config) -> Pair {
        let place = Address::parse("mock://*").unwrap();
        let open = || Nic::<Mock>::open(&place, config.clone()).unwrap().into_endpoint();
        let (a, mut b) = (open(), open());
        let memory = Region::from_vec(vec![7; LEN]);
        let region = b.register(&memory.whole(), Access::ALL).unwrap();
        let (clock, events) = (Clock::start(), Vec::new());
        Pair { a, b, region, clock, skipped: Duration::ZERO, tokens: 0, events }
    }

    fn now(&self) -> Time {
        self.clock.now().after(self.skipped)
    }

    fn until(&mut self, what: &str, mut seen: impl FnMut(&Pair) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(self) {
            let now = self.now();
            self.a.progress(now, 64, &mut self.events);
            self.b.progress(now, 64, &mut Vec::new());
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.events);
        }
    }

    /// Connects, and gives the key.
    fn remote(&mut self) -> Remote {
        let key = self.b.export(self.region).unwrap();
        let remote = self.a.import(&key).unwrap();
        self.events.retain(|event| matches!(event, Event::Done { .. }));
        let up = |event: &Event| matches!(event, Event::PeerUp { .. });
        self.until("it is up", |pair| pair.events.iter().any(up));
        remote
    }

    fn submit(&mut self, make: impl FnOnce(Token) -> Operation) -> Token {
        self.tokens += 1;
        let token = Token(self.tokens);
        self.a.submit(&mut VecDeque::from([make(token)]));
        token
    }

    fn get(&mut self, remote: Remote, into: &Slice) -> Token {
        let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
        let local = smallvec![into.clone()];
        self.submit(|token| Operation::Get { token, remote, local, spans })
    }

    fn done(&mut self, token: Token) -> Result<(), OpErrorKind> {
        let is = |e: &Event| matches!(e, Event::Done { token: done, .. } if *done == token);
        self.until("it is done", |pair| pair.events.iter().any(is));
        let at = self.events.iter().position(is).unwrap();
        match self.events.swap_remove(at) {
            Event::Done { result, .. } => {
                result.map(drop).map_err(petasos_fabric::OpError::into_kind)
            }
            _ => unreachable!(),
        }
    }

    /// Begins a get, and loses its peer while the library is at it.
    fn lose_one(&mut self) -> (Token, Region) {
        let into = Region::zeroed(LEN);
        (self.lose_one_into(&into.whole()), into)
    }

    fn lose_one_into(&mut self, into: &Slice) -> Token {
        let remote = self.remote();
        // The grant has arrived.
        let first = self.get(remote, &Region::zeroed(LEN).whole());
        assert_eq!(self.done(first), Ok(()));
        be_silent(true);
        let begun = self.a.device().counters().accesses;
        let token = self.get(remote, into);
        self.until("it is under way", |pair| pair.a.device().counters().accesses > begun);
        be_silent(false);
        self.a.forget(remote.peer);
        token
    }

    fn works(&mut self) -> Result<(), OpErrorKind> {
        let (remote, into) = (self.remote(), Region::zeroed(LEN));
        let token = self.get(remote, &into.whole());
        self.done(token)?;
        assert!(into.to_vec() == vec![7; LEN]);
        self.a.forget(remote.peer);
        Ok(())
    }
}

fn is_lost(result: &Result<(), OpErrorKind>) -> bool {
    matches!(result, Err(OpErrorKind::PeerLost(_)))
}

/// A get ends, and its memory is the library's until that has let it go.
#[test]
fn memory_that_is_still_written_is_not_given_back() {
    let mut pair = Pair::open(&config(8, 64));
    let (token, into) = pair.lose_one();
    let whole = into.whole();
    let used = pair.a.in_use(&whole).expect("it is under way");
    assert_eq!(used.token, Some(token));
    let ended = pair.done(token);
    assert!(is_lost(&ended), "{ended:?}");
    let used = pair.a.in_use(&whole).expect("the library writes to it");
    assert_eq!((used.token, pair.a.in_use(&Region::zeroed(1).whole())), (None, None));
    let mut drain = Drain::new(whole, MOURNING);
    let wait = |pair: &Pair, drain: &mut Drain| drain.poll(&pair.a, pair.now());
    let mut waited = None;
    pair.until("the patience is over", |pair| {
        waited = wait(pair, &mut drain);
        waited.is_some()
    });
    assert_eq!(waited, Some(Err(StillUsed::new(used, MOURNING))));
    // References tell nothing as long as the program has one itself.
    drop(drain);
    let into = into.into_exclusive().expect_err("the library writes to it");
    complete_all();
    let mut drain = Drain::new(into.whole(), PATIENCE);
    pair.until("the library lets go of it", |pair| wait(pair, &mut drain) == Some(Ok(())));
    drop(drain);
    pair.until("the library completes them", |pair| pair.a.device().counters().lost == 0);
    let mine = into.into_exclusive().expect("nothing else holds it");
    assert!(mine.iter().all(|byte| *byte == LATE), "it was written to before that alone");
}

/// A get into memory that only its program keeps ends at once, however late the library is: it
/// never had that memory, nor that of other operations (which `Mock` checks).
#[test]
fn memory_that_its_program_keeps_is_free_at_once() {
    let mut config = config(8, 64);
    config.mourning = Duration::from_secs(3600);
    let mut pair = Pair::open(&config);
    let memory = NonNull::from(Vec::leak(vec![0; LEN])).cast();
    // SAFETY: the memory is never freed, and used through the slice alone.
    let raw = unsafe { Slice::raw(memory, LEN) };
    let token = pair.lose_one_into(&raw);
    let ended = pair.done(token);
    assert!(is_lost(&ended), "{ended:?}");
    raw.write(0, &[5; LEN]);
    complete_all();
    pair.until("the library completes them", |pair| pair.a.device().counters().lost == 0);
    assert_eq!(raw.to_vec(), [5; LEN], "it was written to after the end");

    // With a peer that answers it is used like other memory, by way of the library, too.
    let remote = pair.remote();
    let begun = pair.a.device().counters().accesses;
    let token = pair.get(remote, &raw);
    assert_eq!(pair.done(token), Ok(()));
    assert_eq!((raw.to_vec(), pair.a.device().counters().accesses), (vec![7; LEN], begun + 1));
    raw.write(0, &[9; LEN]);
    for event in [None, Some(1)] {
        let (local, level) = (smallvec![raw.clone()], Level::Visible);
        let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
        let put = |token| Operation::Put { token, remote, local, spans, level, event };
        let token = pair.submit(put);
        assert_eq!(pair.done(token), Ok(()));
    }
    for len in [LEN, 60_000] {
        let long = NonNull::from(Vec::leak(vec![3; len])).cast();
        // SAFETY: as above.
        let payload = Payload::Memory(unsafe { Slice::raw(long, len) });
        let (peer, level) = (remote.peer, Level::Visible);
        let token = pair.submit(|token| Operation::Send { token, peer, payload, level });
        assert_eq!(pair.done(token), Ok(()));
    }
    // Its owner serves a region of it.
    let region = pair.b.register(&raw, Access::ALL).unwrap();
    let key = pair.b.export(region).unwrap();
    let (remote, into) = (pair.a.import(&key).unwrap(), Region::zeroed(LEN));
    let begun = pair.a.device().counters().accesses;
    let token = pair.get(remote, &into.whole());
    assert_eq!(pair.done(token), Ok(()));
    assert_eq!((into.to_vec(), pair.a.device().counters().accesses), (vec![9; LEN], begun));
}

/// Peers are lost, many times as often as there are slots: the endpoint goes on, and forgets all of
/// them once the library has completed them.
#[test]
fn others_take_the_place_of_what_is_lost() {
    const LOSSES: usize = 200;
    let mut pair = Pair::open(&config(8, LOSSES));
    let mut held = Vec::new();
    for _ in 0..LOSSES {
        held.push(pair.lose_one());
    }
    assert_eq!((pair.works(), pair.a.device().counters().lost), (Ok(()), LOSSES));
    // Nodes whose time in the table is over stay as long as something is under way.
    pair.skipped += Duration::from_secs(3);
    pair.until("time passes", |_| true);
    assert_eq!(pair.works(), Ok(()));
    assert!(nodes() > LOSSES);
    for (token, _) in &held {
        assert!(is_lost(&pair.done(*token)));
    }
    complete_all();
    pair.until("the library completes them", |pair| pair.a.device().counters().lost == 0);
    assert!(held.into_iter().all(|(_, into)| into.into_exclusive().is_ok()));
    pair.skipped += Duration::from_secs(3);
    for _ in 0..4 {
        assert_eq!(pair.works(), Ok(()));
        pair.skipped += Duration::from_secs(3);
    }
    // Of both: those that were completed last.
    assert!(nodes() < 2 * 40, "{} nodes", nodes());
}

/// Beyond the bound memory is read by messages; and when nothing can be sent any more, that is
/// said.
#[test]
fn the_bound_is_told() {
    let mut pair = Pair::open(&config(8, 16));
    for _ in 0..17 {
        pair.lose_one();
    }
    let (before, remote) = (pair.a.device().counters().accesses, pair.remote());
    let into = Region::zeroed(LEN);
    let token = pair.get(remote, &into.whole());
    assert_eq!(pair.done(token), Ok(()));
    assert_eq!(pair.a.device().counters().accesses, before, "its owner served it");
    pair.a.forget(remote.peer);
    // Messages are lost, too, until there is no room for one.
    be_silent(true);
    let mut peer: Peer = pair.remote().peer;
    let end = Instant::now() + PATIENCE;
    let why = 'told: loop {
        let begun = pair.a.device().counters().packets_out;
        pair.a.inject(peer, &[&[1; 100]]).unwrap();
        pair.until("it is under way, or the end", |pair| {
            let lost = |event: &Event| matches!(event, Event::PeerLost { .. });
            pair.a.device().counters().packets_out > begun || pair.events.iter().any(lost)
        });
        for event in pair.events.drain(..) {
            if let Event::PeerLost { reason, .. } = event {
                break 'told reason;
            }
        }
        assert!(Instant::now() < end, "it is not reported");
        pair.a.forget(peer);
        peer = pair.remote().peer;
    };
    let LostReason::System(why) = why else { panic!("{why}") };
    assert!(why.contains("at most 16 may be so"), "{why}");
}
