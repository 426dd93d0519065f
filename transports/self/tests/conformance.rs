//! The contract, kept inside one process.

use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Level, LostReason, OpErrorKind, Operation, PeerState,
    Region, RemoteSpan, Time, Token,
};
use petasos_self::{Local, OpenError};
use std::{thread, time::Duration};

#[derive(Default)]
struct InProcess(RealTime);

impl Fixture for InProcess {
    fn fresh(&self) -> Address {
        Address::parse(&format!("self://{}", self.0.name())).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Local::open(at).unwrap())
    }

    fn now(&self) -> Time {
        self.0.now()
    }

    fn refuses(&self) -> bool {
        true
    }
}

conformance!(InProcess::default());
conformance!(faulty, InProcess::default());
conformance!(attended, InProcess::default());

#[test]
fn memory_is_closed_under_delayed_accesses() {
    for seed in 0..8 {
        petasos_conformance::delayed::closings(&InProcess::default(), seed);
    }
}

/// A region is deregistered in the middle of a copy by another thread: without patience that ends
/// with an error, and asked again it waits for the end of the copy.
#[test]
fn memory_is_closed_in_the_middle_of_a_copy() {
    const LEN: usize = 8 << 20;
    let fixture = InProcess::default();
    let open = || fixture.open(&fixture.fresh());
    let (mut a, mut b) = (open(), open());
    let peer = a.resolve(b.address(), Duration::from_secs(10)).unwrap();
    let mut begun = Vec::new();
    while !matches!(a.peer(peer).map(|info| info.state), Some(PeerState::Up)) {
        a.progress(fixture.now(), 64, &mut begun);
        b.progress(fixture.now(), 64, &mut begun);
    }
    for round in 0..20u64 {
        let memory = Region::from_vec(vec![0x11; LEN]);
        let region = b.register(&memory.whole(), Access::ALL).unwrap();
        let remote = a.import(&b.export(region).unwrap()).unwrap();
        let from = Region::from_vec(vec![0xaa; LEN]);
        thread::scope(|scope| {
            let (a, fixture, from) = (&mut a, &fixture, &from);
            let copies = scope.spawn(move || {
                let mut events = Vec::new();
                for number in 0.. {
                    let (token, level) = (Token(number), Level::Visible);
                    let local = [from.whole()].into_iter().collect();
                    let spans = [RemoteSpan { offset: 0, len: LEN as u64 }].into_iter().collect();
                    let event = None;
                    a.submit(
                        &mut [Operation::Put { token, remote, local, spans, level, event }].into(),
                    );
                    while events.is_empty() {
                        a.progress(fixture.now(), 64, &mut events);
                    }
                    for event in events.drain(..) {
                        if matches!(event, Event::Done { result: Err(_), .. }) {
                            return;
                        }
                    }
                }
            });
            // It has begun, and is anywhere by now.
            while memory.to_vec()[0] == 0x11 {
                thread::yield_now();
            }
            thread::sleep(Duration::from_micros(137 * round));
            let mut close = |patience| {
                let token = Token(1);
                b.submit(&mut [Operation::Deregister { token, region, patience }].into());
                let mut events = Vec::new();
                loop {
                    b.progress(fixture.now(), 64, &mut events);
                    if let Some(Event::Done { result, .. }) = events.pop() {
                        break result.map(drop);
                    }
                }
            };
            if let Err(error) = close(Duration::ZERO) {
                assert_eq!(error.kind, OpErrorKind::StillReached, "{error}");
                close(Duration::from_secs(20)).unwrap();
            }
            memory.write(0, &vec![0x55; LEN]);
            copies.join().unwrap();
        });
        assert!(memory.to_vec().iter().all(|byte| *byte == 0x55), "a copy went on");
        a.release(remote);
    }
}

/// Two endpoints at their simplest: opened, resolved, a message, the end.
#[test]
fn a_message_there_and_the_end_back() {
    let clock = Clock::start();
    let any: Address = "self://*".parse().unwrap();
    let (mut a, mut b) = (Local::open(&any).unwrap(), Local::open(&any).unwrap());
    let taken = Local::open(&b.address().clone());
    assert!(matches!(taken.err(), Some(OpenError::Taken(_))));
    let peer = a.resolve(&b.address().clone(), Duration::ZERO).unwrap();
    a.inject(peer, &[b"hello, ", b"you"]).unwrap();
    let mut events = Vec::new();
    assert!(b.progress(clock.now(), 16, &mut events));
    let [Event::PeerUp { incarnation, .. }, Event::Message { message, .. }] = &events[..] else {
        panic!("{events:?}");
    };
    assert_eq!((*incarnation, &message[..]), (a.incarnation(), &b"hello, you"[..]));
    drop(b);
    events.clear();
    a.progress(clock.now(), 16, &mut events);
    let lost = |e: &Event| matches!(e, Event::PeerLost { reason: LostReason::Closed, .. });
    assert!(events.iter().any(lost), "{events:?}");
}
