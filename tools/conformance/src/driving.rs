//! Sleeping, waking, and handing the endpoint from thread to thread.
//!
//! These drive endpoints by hand, with real sleeps on their descriptors. Where there is none, as
//! on virtual time, there is nothing to sleep on, and the probe ends.

use crate::{Fixture, Random, world::World};
use bytes::Bytes;
use petasos_fabric::{
    Endpoint, Event, Handoff, Level, NotSubmitted, Operation, Payload, Peer, Sleep, Time, Token,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// A sleep that lasts longer than this has missed its wake-up.
const TOO_LONG: Duration = Duration::from_secs(5);

/// Waits on the descriptor. True if it became readable.
fn wait(endpoint: &dyn Endpoint, timeout: Duration) -> bool {
    let fd = endpoint.fd().expect("a descriptor");
    let mut fds = [PollFd::new(&fd, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).expect("a short time");
    loop {
        match poll(&mut fds, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            result => return result.expect("poll works") > 0,
        }
    }
}

/// Sleeps as `arm` allows. True if it was for good, and nothing came.
fn sleep(endpoint: &mut dyn Endpoint, now: Time) -> bool {
    match endpoint.arm(now) {
        Sleep::Busy => false,
        Sleep::Until(Time::NEVER) => !wait(endpoint, TOO_LONG),
        Sleep::Until(until) => {
            let rest = until.since(now);
            let woken = wait(endpoint, rest.min(TOO_LONG));
            !woken && rest > TOO_LONG
        }
    }
}

/// Drives until `arm` allows to sleep without end, or for half a second.
fn calm(fixture: &dyn Fixture, endpoint: &mut dyn Endpoint) {
    let end = Instant::now() + Duration::from_millis(500);
    let mut events = Vec::new();
    while Instant::now() < end {
        endpoint.progress(fixture.now(), 64, &mut events);
        if endpoint.arm(fixture.now()) == Sleep::Until(Time::NEVER) {
            return;
        }
    }
}

/// Two endpoints that know each other, taken out of the world; `None` without a descriptor.
type Ends = (Box<dyn Endpoint>, Peer, Box<dyn Endpoint>, Peer);

fn ends(w: &mut World) -> Option<Ends> {
    let (a, b, ab, ba) = w.pair();
    w[a].endpoint().fd()?;
    Some((w.take_out(a), ab, w.take_out(b), ba))
}

/// The notifier ends a sleep, and if there is none, the next one at once; `progress` between the
/// two does not swallow it.
pub fn notifier(w: &mut World) {
    let Some((mut a, ..)) = ends(w) else {
        return;
    };
    let fixture = w.fixture();
    let notifier = a.notifier();
    for round in 0..20 {
        calm(fixture, &mut *a);
        if round % 2 == 0 {
            let notifier = notifier.clone();
            // Before the thread begins: else a notice may come, and be taken, within these four
            // milliseconds.
            let begin = Instant::now();
            let other = thread::spawn(move || {
                thread::sleep(Duration::from_millis(5));
                notifier.notify();
            });
            while begin.elapsed() < Duration::from_millis(4) {
                assert!(!sleep(&mut *a, fixture.now()), "slept through the notifier");
                a.progress(fixture.now(), 1, &mut Vec::new());
            }
            other.join().expect("the thread that notifies");
        } else {
            notifier.notify();
            for _ in 0..round {
                a.progress(fixture.now(), 16, &mut Vec::new());
            }
            let begin = Instant::now();
            assert!(!sleep(&mut *a, fixture.now()), "slept over a notice");
            assert!(begin.elapsed() < TOO_LONG / 2, "slept over a notice");
        }
    }
    drop(a);
    notifier.notify();
}

/// A message wakes a sleeper. Both sides sleep whenever they can, for many rounds, with pauses
/// that vary, so that the message meets every moment of falling asleep.
pub fn messages_wake(w: &mut World) {
    let Some((mut a, ab, mut b, ba)) = ends(w) else {
        return;
    };
    let fixture = w.fixture();
    let rounds = 3000u32;
    let going = &AtomicU32::new(2);
    thread::scope(|scope| {
        let echo = scope.spawn(move || {
            let result = bounce(fixture, &mut *b, ba, rounds, 1);
            drive_until_over(fixture, &mut *b, going);
            result.map(|()| b)
        });
        loop {
            match a.inject(ab, &[b"start"]) {
                Ok(()) => break,
                Err(_) => _ = a.progress(fixture.now(), 8, &mut Vec::new()),
            }
        }
        let here = bounce(fixture, &mut *a, ab, rounds, 2);
        drive_until_over(fixture, &mut *a, going);
        let there = echo.join().expect("the other side");
        here.expect("this side");
        drop(there.expect("the other side"));
    });
}

/// Answers so many messages, asleep in between.
fn bounce(
    fixture: &dyn Fixture,
    end: &mut dyn Endpoint,
    peer: Peer,
    rounds: u32,
    seed: u64,
) -> Result<(), String> {
    let mut random = Random::new(seed);
    let (mut got, mut owed) = (0, 0);
    let mut events = Vec::new();
    while got < rounds || owed > 0 {
        end.progress(fixture.now(), 4, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Message { .. } => (got, owed) = (got + 1, owed + 1),
                // The other side was done first: it has had all answers it waits for.
                Event::PeerLost { .. } if got >= rounds => return Ok(()),
                Event::PeerLost { reason, .. } => return Err(format!("lost: {reason}")),
                _ => {}
            }
        }
        while owed > 0 && end.inject(peer, &[b"on"]).is_ok() {
            owed -= 1;
        }
        for _ in 0..random.below(300) {
            std::hint::spin_loop();
        }
        if got < rounds && owed == 0 && sleep(end, fixture.now()) {
            return Err(format!("a wake-up was missed after {got} messages"));
        }
    }
    Ok(())
}

/// This side is done, and driven until the other one is, too: its last messages may be fetched.
fn drive_until_over(fixture: &dyn Fixture, end: &mut dyn Endpoint, going: &AtomicU32) {
    let begin = fixture.now();
    going.fetch_sub(1, Ordering::Relaxed);
    while going.load(Ordering::Relaxed) > 0 && fixture.now().since(begin) < fixture.deadline() {
        end.progress(fixture.now(), 4, &mut Vec::new());
        thread::yield_now();
    }
}

/// An operation handed over by another thread wakes the driver, and completes there.
pub fn handoff(w: &mut World) {
    let Some((mut a, ab, mut b, _)) = ends(w) else {
        return;
    };
    let fixture = w.fixture();
    let mut handoff = Handoff::new(&*a);
    let count = 200u64;
    let submitter = handoff.submitter();
    let ended = &AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut random = Random::new(4);
            for i in 0..count {
                thread::sleep(Duration::from_micros(random.below(300) as u64));
                let payload = Payload::Bytes(Bytes::copy_from_slice(&i.to_le_bytes()));
                let send =
                    Operation::Send { token: Token(i), peer: ab, payload, level: Level::Delivered };
                submitter.submit(send).expect("the driver is there");
            }
        });
        let other = scope.spawn(move || {
            let (mut events, mut got) = (Vec::new(), 0_u64);
            let begin = Instant::now();
            // Also after the last message: that it was delivered may take a few passes to say.
            let more = |got| got < count || !ended.load(Ordering::Relaxed);
            while more(got) && begin.elapsed() < Duration::from_secs(20) {
                b.progress(fixture.now(), 64, &mut events);
                for event in events.drain(..) {
                    if let Event::Message { message, .. } = event {
                        assert_eq!(message[..], got.to_le_bytes(), "in order");
                        got += 1;
                    }
                }
                thread::sleep(Duration::from_micros(20));
            }
            (b, got)
        });
        let (mut done, mut events) = (0, Vec::new());
        while done < count {
            let more = handoff.drain(&mut *a);
            a.progress(fixture.now(), 64, &mut events);
            done +=
                events.drain(..).filter(|e| matches!(e, Event::Done { result: Ok(_), .. })).count()
                    as u64;
            if !more && done < count {
                assert!(!sleep(&mut *a, fixture.now()), "slept with {done} of {count} done");
            }
        }
        ended.store(true, Ordering::Relaxed);
        let (_b, got) = other.join().expect("the receiver");
        assert_eq!(got, count);
    });
    let late = handoff.submitter();
    let send = || {
        let (payload, level) = (Payload::Bytes(Bytes::new()), Level::Delivered);
        Operation::Send { token: Token(0), peer: ab, payload, level }
    };
    // It is never drained: it is full at some time, and then closed.
    let taken = (0..1_000_000).take_while(|_| match late.submit(send()) {
        Ok(()) => true,
        Err(NotSubmitted::Full(_)) => false,
        Err(other) => panic!("{other}"),
    });
    assert!(taken.count() <= 65_536, "it takes without bound");
    drop(handoff);
    let refused = late.submit(send());
    assert!(matches!(refused, Err(NotSubmitted::Gone(_))), "its endpoint is dropped");
}

/// An idle endpoint sleeps, with a live peer, too.
///
/// What is left to be said after the first contact, and on a loaded machine that takes a while, is
/// no fault: so the endpoint has until the deadline to come to rest. One that never sleeps does not
/// pass.
pub fn sleeps_soundly(w: &mut World) {
    let Some((mut a, _, mut b, _)) = ends(w) else {
        return;
    };
    let fixture = w.fixture();
    let end = Instant::now() + w.patience();
    loop {
        for _ in 0..50 {
            b.progress(fixture.now(), 64, &mut Vec::new());
            a.progress(fixture.now(), 64, &mut Vec::new());
            thread::sleep(Duration::from_micros(100));
        }
        let (wakes, passes) = watch(fixture, &mut *a);
        if wakes < 20 && passes < 100 {
            return;
        }
        assert!(Instant::now() < end, "idle, but {wakes} wake-ups in {passes} passes");
    }
}

/// How often an endpoint that sleeps as it may wakes up in 400 ms, and how often it is driven.
fn watch(fixture: &dyn Fixture, endpoint: &mut dyn Endpoint) -> (u32, u32) {
    let (begin, mut wakes, mut passes) = (Instant::now(), 0, 0);
    while begin.elapsed() < Duration::from_millis(400) {
        passes += 1;
        endpoint.progress(fixture.now(), 64, &mut Vec::new());
        if let Sleep::Until(until) = endpoint.arm(fixture.now()) {
            let rest = until.since(fixture.now()).min(Duration::from_millis(100));
            wakes += u32::from(wait(endpoint, rest));
        }
    }
    (wakes, passes)
}

/// The loss of a peer wakes, too.
pub fn loss_wakes(w: &mut World) {
    let Some((mut a, ab, b, _)) = ends(w) else {
        return;
    };
    let fixture = w.fixture();
    calm(fixture, &mut *a);
    let killer = thread::scope(|scope| {
        let killer = scope.spawn(move || {
            thread::sleep(Duration::from_millis(20));
            fixture.kill(b);
        });
        let begin = fixture.now();
        let mut events = Vec::new();
        loop {
            a.progress(fixture.now(), 8, &mut events);
            let lost = |e: &Event| matches!(e, Event::PeerLost { peer, .. } if *peer == ab);
            if events.iter().any(lost) {
                break;
            }
            assert!(
                fixture.now().since(begin) < fixture.deadline(),
                "the loss was not noticed: {events:?}"
            );
            sleep(&mut *a, fixture.now());
        }
        killer.join()
    });
    killer.expect("the thread that kills");
}

/// A peer that starts late wakes the endpoint that waits for it.
pub fn late_peer_wakes(w: &mut World) {
    let a = w.open();
    if w[a].endpoint().fd().is_none() {
        return;
    }
    let mut a = w.take_out(a);
    let patience = w.patience();
    let fixture = w.fixture();
    let address = fixture.fresh();
    let peer = a.resolve(&address, patience).expect("a handle");
    let opened = OnceLock::new();
    thread::scope(|scope| {
        let opener = scope.spawn(|| {
            thread::sleep(Duration::from_millis(20));
            let mut b = fixture.open(&address);
            _ = opened.set(fixture.now());
            let begin = Instant::now();
            let mut events = Vec::new();
            let up = |e: &Event| matches!(e, Event::PeerUp { .. });
            while begin.elapsed() < patience && !events.iter().any(up) {
                b.progress(fixture.now(), 8, &mut events);
                thread::sleep(Duration::from_micros(50));
            }
            b
        });
        let (begin, mut events) = (fixture.now(), Vec::new());
        let up = |e: &Event| matches!(e, Event::PeerUp { peer: p, .. } if *p == peer);
        while !events.iter().any(up) {
            a.progress(fixture.now(), 8, &mut events);
            // How long opening takes is not the question.
            let since = *opened.get().unwrap_or(&begin);
            let waited = fixture.now().since(since);
            let soon = if opened.get().is_some() { patience / 3 } else { patience };
            assert!(waited < soon, "not up after {waited:?}: {events:?}");
            sleep(&mut *a, fixture.now());
        }
        drop(opener.join());
    });
}

/// The driver is handed from thread to thread while messages flow; nothing is lost.
pub fn hand_over(w: &mut World) {
    let (a, b, ab, _) = w.pair();
    let mut expected = 0u32;
    let mut sent = 0u32;
    for round in 0..20 {
        for _ in 0..10 {
            w.inject(a, ab, &sent.to_le_bytes());
            sent += 1;
        }
        let send = w.send(a, ab, &sent.to_le_bytes());
        sent += 1;
        // Half the rounds: both endpoints move to a thread of their own for a few passes.
        if round % 2 == 0 {
            w.drive_others();
        }
        while expected < sent {
            assert_eq!(w.message(b).1, expected.to_le_bytes());
            expected += 1;
        }
        w.ok(a, send);
    }
}
