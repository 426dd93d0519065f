//! The thread and the program, over an endpoint that does what the test says.

use super::{unread::*, *};
use crate::{Clock, Doorbell, LostReason, Notify, PeerState, driver::sleep_on};
use std::{
    collections::VecDeque,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Instant,
};

const LONG: Duration = Duration::from_secs(20);

/// What the test and the endpoint share.
#[derive(Default)]
struct Net {
    coming: Mutex<VecDeque<Event>>,
    passes: AtomicUsize,
    panics: AtomicBool,
    dropped: AtomicUsize,
    quotas: Mutex<Vec<(Peer, bool)>>,
}

/// An endpoint that raises what the test has put there.
struct Scripted {
    net: Arc<Net>,
    address: Address,
    capabilities: Capabilities,
    bell: Arc<Doorbell>,
}

impl Net {
    fn send(&self, bell: &Doorbell, event: Event) {
        self.coming.lock().unwrap().push_back(event);
        bell.ring();
    }

    fn passes(&self) -> usize {
        self.passes.load(Ordering::SeqCst)
    }
}

impl Scripted {
    fn attended(config: AttendedConfig) -> (Attended, Arc<Net>, Arc<Doorbell>) {
        let (net, bell) = (Arc::new(Net::default()), Arc::new(Doorbell::new().unwrap()));
        let endpoint = Scripted {
            net: net.clone(),
            address: Address::parse("scripted://here").unwrap(),
            capabilities: Capabilities::emulated("scripted", crate::Limits::default()),
            bell: bell.clone(),
        };
        (Attended::new(Box::new(endpoint), config).unwrap(), net, bell)
    }
}

impl Endpoint for Scripted {
    fn address(&self) -> &Address {
        &self.address
    }
    fn incarnation(&self) -> Incarnation {
        Incarnation::new(1).unwrap()
    }
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }
    fn resolve(&mut self, _: &Address, _: Duration) -> Result<Peer, ResolveError> {
        Ok(peer(0))
    }
    fn peer(&self, peer: Peer) -> Option<PeerInfo> {
        let info = PeerInfo::new(self.address.clone(), None, PeerState::Up);
        Some(info.with_attended(peer.index.is_multiple_of(2)))
    }
    fn forget(&mut self, _: Peer) {}
    fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        self.net.quotas.lock().unwrap().push((peer, quota.deferred));
        Ok(())
    }
    fn usage(&self, of: Peer) -> Option<PeerUsage> {
        let quotas = self.net.quotas.lock().unwrap();
        let held = quotas.iter().rev().find(|(peer, _)| *peer == of).is_some_and(|(_, h)| *h);
        Some(PeerUsage::new(PeerQuota::UNLIMITED.with_deferred(held)))
    }
    fn inject(&mut self, _: Peer, _: &[&[u8]]) -> Result<(), InjectError> {
        Ok(())
    }
    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused> {
        if operation.target() == Some(FULL) {
            return Err(Refused { operation, full: Full::Peer });
        }
        // Complete in the next pass, of which nothing tells the thread.
        let event = Event::Done { token: operation.token(), result: Ok(crate::Done::Flushed) };
        self.net.coming.lock().unwrap().push_back(event);
        Ok(())
    }
    fn cancel(&mut self, _: Token) {}
    fn in_use(&self, _: &Slice) -> Option<InUse> {
        None
    }
    fn progress(&mut self, _: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        self.bell.awake();
        self.bell.take();
        self.net.passes.fetch_add(1, Ordering::SeqCst);
        assert!(!self.net.panics.swap(false, Ordering::SeqCst), "a pass fails");
        let mut coming = self.net.coming.lock().unwrap();
        let count = coming.len().min(budget);
        events.extend(coming.drain(..count));
        count > 0
    }
    fn arm(&mut self, _: Time) -> Sleep {
        if self.bell.prepare() || !self.net.coming.lock().unwrap().is_empty() {
            return Sleep::Busy;
        }
        Sleep::Until(Time::NEVER)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.bell.as_fd())
    }
    fn notifier(&self) -> Notifier {
        Notifier::new(self.bell.clone())
    }
    fn register(&mut self, _: &Slice, _: Access) -> Result<RegionId, RegisterError> {
        Err(RegisterError::TooMany { limit: 0 })
    }
    fn export(&self, _: RegionId) -> Result<Key, ExportError> {
        Err(ExportError::UnknownRegion)
    }
    fn import(&mut self, _: &Key) -> Result<Remote, ImportError> {
        Err(ImportError::UnknownPeer)
    }
    fn release(&mut self, _: Remote) {}
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.net.dropped.fetch_add(1, Ordering::SeqCst);
    }
}

/// A peer that takes no operations.
const FULL: Peer = Peer { index: 99, generation: 0 };

fn peer(index: u32) -> Peer {
    Peer { index, generation: 0 }
}

fn message(of: u32, byte: u8) -> Event {
    Event::Message { peer: peer(of), message: Lease::inline(&[byte]) }
}

fn up(of: u32) -> Event {
    Event::PeerUp { peer: peer(of), incarnation: Incarnation::new(7).unwrap() }
}

fn lost(of: u32) -> Event {
    Event::PeerLost { peer: peer(of), reason: LostReason::Closed }
}

fn until(what: &str, mut seen: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !seen() {
        assert!(begin.elapsed() < LONG, "not seen: {what}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// Bytes of the messages among events.
fn bytes(events: &[Event]) -> Vec<u8> {
    let byte = |event: &Event| match event {
        Event::Message { message, .. } => Some(message[0]),
        _ => None,
    };
    events.iter().filter_map(byte).collect()
}

#[test]
fn what_comes_is_taken_in_and_kept_in_order() {
    let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
    (0..200).for_each(|nth| net.send(&bell, message(1, nth)));
    until("all are taken in", || net.coming.lock().unwrap().is_empty());
    // By both ways, and with what comes behind them.
    net.coming.lock().unwrap().push_back(message(1, 200));
    let (mut seen, mut lease) = (Vec::new(), Lease::default());
    until("all are there", || {
        let mut events = Vec::new();
        while seen.len() % 3 != 0
            && let Some(from) = end.poll_message(&mut lease)
        {
            assert_eq!(from, peer(1));
            seen.push(lease[0]);
        }
        end.progress(Time(1), 2, &mut events);
        assert!(events.len() <= 2, "no more than the budget");
        seen.extend(bytes(&events));
        seen.len() > 200
    });
    assert!(seen.into_iter().eq(0..=200));
}

#[test]
fn completions_that_were_kept_are_polled_up_to_another_event() {
    let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
    let done = |nth| Event::Done { token: Token(nth), result: Ok(crate::Done::Flushed) };
    for event in [done(1), done(2), message(1, 7), done(3)] {
        net.send(&bell, event);
    }
    until("all are taken in", || net.coming.lock().unwrap().is_empty());
    let mut token = || end.poll_completion().map(|completion| completion.token().0);
    assert_eq!([token(), token(), token(), token()], [Some(1), Some(2), None, None]);
    let mut events = Vec::new();
    assert!(end.next_completion(Time(1), &mut events).is_none());
    assert_eq!(bytes(&events), [7]);
    assert!(matches!(events[..], [_, Event::Done { token: Token(3), .. }]), "{events:?}");
    events.remove(0);
    let last = end.next_completion(Time(1), &mut events).expect("the last one");
    assert_eq!((last.token(), events.len()), (Token(3), 0));
}

#[test]
fn what_the_program_leaves_is_carried_out() {
    let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
    for nth in 1..50 {
        // It drives, and then submits and leaves.
        for _ in 0..nth % 4 {
            end.progress(Time(nth), 8, &mut Vec::new());
        }
        if nth % 3 == 0 {
            std::thread::sleep(Duration::from_micros(nth * 37));
        }
        let flush = Operation::Flush { token: Token(nth), peer: peer(1) };
        end.try_submit(flush).unwrap();
        until("the thread carries it out", || net.coming.lock().unwrap().is_empty());
        net.send(&bell, message(1, 9));
        until("it attends", || net.coming.lock().unwrap().is_empty());
    }
}

#[test]
fn the_program_sleeps_until_there_is_something_for_it() {
    let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
    let clock = Clock::start();
    for nth in 0..100 {
        let mut events = Vec::new();
        while end.arm(clock.now()) == Sleep::Busy {
            end.progress(clock.now(), 8, &mut events);
        }
        if nth % 2 == 0 {
            net.send(&bell, message(1, nth));
        } else {
            end.notifier().notify();
        }
        let [woken] = sleep_on([end.fd().unwrap()], Some(LONG));
        assert!(woken, "slept through {nth}");
        until("it is there", || {
            end.progress(clock.now(), 8, &mut events);
            nth % 2 == 1 || bytes(&events) == [nth]
        });
    }
    // Passes of which nothing comes for the program do not wake it.
    while end.arm(clock.now()) == Sleep::Busy {
        end.progress(clock.now(), 8, &mut Vec::new());
    }
    let before = net.passes();
    bell.notify();
    until("the thread makes a pass", || net.passes() > before);
    assert_eq!(sleep_on([end.fd().unwrap()], Some(Duration::from_millis(20))), [false]);
}

/// While the program drives, the thread makes no pass of its own; once it stops, it does.
#[test]
fn a_program_that_drives_is_left_alone() {
    let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
    let (begin, mut own) = (Instant::now(), 0);
    let mut longest = Duration::ZERO;
    let mut last = begin;
    let before = net.passes();
    while begin.elapsed() < Duration::from_millis(100) {
        end.progress(Time(1), 8, &mut Vec::new());
        own += 1;
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    let more = net.passes() - before - own;
    // A program that is kept from its processor for long has stopped to drive, for the thread.
    assert!(more < 20 || longest > Duration::from_micros(100), "{more} passes beside {own}");
    net.send(&bell, message(1, 1));
    until("the thread drives", || net.coming.lock().unwrap().is_empty());
}

#[test]
fn a_panic_of_the_thread_is_the_programs() {
    for asleep in [false, true] {
        let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
        let clock = Clock::start();
        while asleep && end.arm(clock.now()) == Sleep::Busy {
            end.progress(clock.now(), 8, &mut Vec::new());
        }
        net.panics.store(true, Ordering::SeqCst);
        net.send(&bell, message(1, 1));
        until("the pass fails", || !net.panics.load(Ordering::SeqCst));
        if asleep {
            assert_eq!(sleep_on([end.fd().unwrap()], Some(LONG)), [true], "it is woken");
        } else {
            until("the thread has ended", || end.thread.as_ref().unwrap().is_finished());
        }
        let pass = std::panic::AssertUnwindSafe(|| end.progress(Time(1), 8, &mut Vec::new()));
        let panic = std::panic::catch_unwind(pass).unwrap_err();
        assert!(panic.downcast_ref::<&str>().is_some_and(|text| text.contains("a pass fails")));
        // From now on the program drives alone, and does not sleep for long.
        let mut events = Vec::new();
        end.progress(clock.now(), 8, &mut events);
        assert_eq!(bytes(&events), [1]);
        // The first time there may be a notice, of the panic.
        let until = std::iter::repeat_with(|| end.arm(clock.now()))
            .take(2)
            .find_map(|sleep| if let Sleep::Until(until) = sleep { Some(until) } else { None });
        assert!(until.is_some_and(|until| until.since(clock.now()) <= Duration::from_millis(1)));
        drop(end);
        assert_eq!(net.dropped.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn dropping_it_ends_the_thread_wherever_it_is() {
    for nth in 0..200u64 {
        let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
        match nth % 4 {
            // Asleep on the descriptor, or on its way there.
            0 => std::thread::sleep(Duration::from_micros(nth)),
            1 => {
                for _ in 0..nth {
                    end.progress(Time(1), 8, &mut Vec::new());
                }
            }
            2 => net.send(&bell, message(1, 1)),
            _ => {
                end.arm(Time(1));
            }
        }
        drop(end);
        assert_eq!((net.dropped.load(Ordering::SeqCst), Arc::strong_count(&net)), (1, 1));
    }
}

#[test]
fn peers_are_told_apart() {
    let (end, ..) = Scripted::attended(AttendedConfig::default());
    assert!(end.capabilities().attended && !end.capabilities().passive_target);
    for nth in 0..6 {
        let can = end.capabilities_of(peer(nth)).unwrap();
        let attended = nth % 2 == 0;
        assert_eq!((can.attended, can.passive_target), (attended, attended));
    }
    assert!(std::ptr::eq(
        end.capabilities_of(peer(1)).unwrap(),
        end.capabilities_of(peer(3)).unwrap()
    ));
}

#[test]
fn peers_are_held_by_what_the_program_has_not_taken() {
    let config = AttendedConfig::default().unread_per_peer(8);
    let (mut end, net, bell) = Scripted::attended(config);
    let held = || net.quotas.lock().unwrap().clone();
    (0..8).for_each(|nth| net.send(&bell, message(1, nth)));
    (0..3).for_each(|nth| net.send(&bell, message(2, nth)));
    until("the peer is held", || held() == [(peer(1), true)]);
    // What the program sets, and sees, is beside that.
    end.set_quota(peer(1), PeerQuota::UNLIMITED).unwrap();
    assert_eq!(held(), [(peer(1), true), (peer(1), true)]);
    assert!(!end.usage(peer(1)).unwrap().quota.deferred);
    let mut events = Vec::new();
    end.progress(Time(1), 3, &mut events);
    assert_eq!(held().len(), 2);
    end.progress(Time(1), 1, &mut events);
    assert_eq!(held()[2..], [(peer(1), false)]);
    // One that goes on is cut off.
    (0..=255).cycle().take(8 + 2000).for_each(|nth| net.send(&bell, message(3, nth)));
    until("all is taken in", || net.coming.lock().unwrap().is_empty());
    events.clear();
    until("it is lost", || {
        end.progress(Time(2), 64, &mut events);
        events.iter().any(|event| {
            let Event::PeerLost { peer: of, reason } = event else { return false };
            assert!(matches!(reason, LostReason::Protocol(_)));
            *of == peer(3)
        })
    });
}

#[test]
fn events_of_all_peers_together_are_bounded() {
    let mut unread = Unread::new(AttendedConfig::default().unread_per_peer(100).unread(10));
    (0..9).for_each(|nth| assert_eq!(unread.push(message(nth, 0), false), None));
    assert!(!unread.is_full());
    for nth in 9..12 {
        assert_eq!(unread.push(message(nth, 0), false), Some(Verdict::Hold(peer(nth))));
    }
    // It is let go in any case when nothing of it is left.
    let released: Vec<_> =
        std::iter::from_fn(|| unread.pop()).filter_map(|(_, peer)| peer).collect();
    assert_eq!(released, [peer(9), peer(10), peer(11)]);
    assert!(unread.is_empty() && !unread.is_full());
}

#[test]
fn nothing_is_told_of_a_peer_that_was_forgotten() {
    let (mut end, net, bell) = Scripted::attended(AttendedConfig::default().unread_per_peer(2));
    for event in [up(1), message(1, 1), up(2), message(2, 2), message(1, 3), lost(1)] {
        net.send(&bell, event);
    }
    until("all is taken in", || net.coming.lock().unwrap().is_empty());
    end.forget(peer(1));
    let mut events = Vec::new();
    end.progress(Time(1), 64, &mut events);
    assert!(events.len() == 2 && events.iter().all(|event| event.peer() == Some(peer(2))));
    // What is counted of others goes on to be right.
    (0..4).for_each(|byte| net.send(&bell, message(2, byte)));
    until("it is held", || net.quotas.lock().unwrap().last() == Some(&(peer(2), true)));
    end.progress(Time(2), 64, &mut events);
    assert_eq!(net.quotas.lock().unwrap().last(), Some(&(peer(2), false)));
}

/// It is told once that there is room for each time that it has found none.
#[test]
fn what_was_full_again_is_not_writable() {
    let mut unread = Unread::new(AttendedConfig::default());
    for event in [Event::Writable { peer: peer(1) }, Event::Writable { peer: peer(2) }] {
        assert_eq!(unread.push(event, false), None);
    }
    unread.full_again(peer(1));
    let (left, _) = unread.pop().unwrap();
    assert!(matches!(left, Event::Writable { peer: of } if of == peer(2)) && unread.is_empty());
}

/// Also where that was found by submitting several operations.
#[test]
fn what_was_full_again_when_several_were_submitted_is_not_writable() {
    let (mut end, net, bell) = Scripted::attended(AttendedConfig::default());
    for of in [FULL, peer(2)] {
        net.send(&bell, Event::Writable { peer: of });
    }
    until("the thread has taken both", || net.coming.lock().unwrap().is_empty());
    end.submit(&mut [Operation::Flush { token: Token(1), peer: FULL }].into());
    let mut events = Vec::new();
    end.progress(Clock::start().now(), 64, &mut events);
    assert!(
        matches!(events[..], [Event::Writable { peer: of }] if of == peer(2)),
        "{events:?}: a second one would follow"
    );
}

#[test]
fn peers_that_come_and_go_leave_nothing() {
    let mut unread = Unread::new(AttendedConfig::default());
    for nth in 0..1000 {
        assert_eq!(unread.push(up(nth), true), None);
        assert_eq!(unread.push(lost(nth), true), None);
    }
    assert!(unread.is_empty());
    // The program knows of it, or there is something of it.
    unread.push(up(1), true);
    unread.push(lost(1), false);
    unread.push(up(2), true);
    unread.push(message(2, 0), true);
    unread.push(lost(2), true);
    unread.push(up(3), true);
    unread.push(Event::Writable { peer: peer(3) }, true);
    unread.push(lost(3), true);
    assert_eq!(std::iter::from_fn(|| unread.pop()).count(), 8);
}
