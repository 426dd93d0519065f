//! The lock in an endpoint's memory of the shm provider, left held as by a process that was killed
//! or stopped: it holds up what is for that endpoint, and nothing else.

mod common;

use common::{SHM, config, found};
use petasos_fabric::{Clock, Endpoint, Event, Peer};
use petasos_ofi::Ofi;
use petasos_testing::skip;
use std::{
    fs::{File, OpenOptions},
    os::unix::fs::FileExt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Where the lock lies.
const LOCK: u64 = 24;

/// An endpoint with its clock and events.
struct End(Ofi, Clock, Vec<Event>);

impl End {
    fn open() -> End {
        End(petasos_ofi::open(&SHM.anywhere(), config(SHM)).unwrap(), Clock::start(), Vec::new())
    }

    fn pass(&mut self) {
        self.0.progress(self.1.now(), 64, &mut self.2);
    }

    fn messages(&self) -> Vec<Vec<u8>> {
        let message = |event: &Event| match event {
            Event::Message { message, .. } => Some(message.to_vec()),
            _ => None,
        };
        self.2.iter().filter_map(message).collect()
    }

    /// The memory that the provider has of it.
    fn memory(&self) -> File {
        let name = String::from_utf8(self.0.device().fabric_name().to_vec()).unwrap();
        let file = name.trim_end_matches('\0').strip_prefix("fi_shm://").unwrap();
        OpenOptions::new().read(true).write(true).open(format!("/dev/shm/{file}")).unwrap()
    }
}

fn until(ends: &mut [&mut End], what: &str, seen: impl Fn(&[&mut End]) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !seen(ends) {
        ends.iter_mut().for_each(|end| end.pass());
        assert!(Instant::now() < end, "not seen: {what}");
    }
}

fn peer(from: &mut End, to: &End) -> Peer {
    from.0.resolve(to.0.address(), PATIENCE).unwrap()
}

/// A lock that is held, until it is released; by another thread, if a call waits for it for long.
struct Held {
    file: Arc<File>,
    free: [u8; 4],
    /// The other thread had to.
    waited: Arc<AtomicBool>,
    released: Arc<AtomicBool>,
}

impl Held {
    fn hold(end: &End) -> Held {
        let (file, mut free) = (Arc::new(end.memory()), [0; 4]);
        file.read_exact_at(&mut free, LOCK).unwrap();
        let taken = i32::from_ne_bytes(free) ^ 1;
        file.write_all_at(&taken.to_ne_bytes(), LOCK).unwrap();
        let (waited, released) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
        let (lock, late, over) = (file.clone(), waited.clone(), released.clone());
        thread::spawn(move || {
            thread::sleep(PATIENCE / 2);
            if !over.load(Relaxed) {
                late.store(true, Relaxed);
                lock.write_all_at(&free, LOCK).unwrap();
            }
        });
        Held { file, free, waited, released }
    }

    fn release(self) {
        assert!(!self.waited.load(Relaxed), "a call waited for the lock");
        self.released.store(true, Relaxed);
        self.file.write_all_at(&self.free, LOCK).unwrap();
    }
}

/// Whether the library is one that has the lock there.
fn has_lock() -> bool {
    if found().is_none() {
        return false;
    }
    let mut version = [0];
    End::open().memory().read_exact_at(&mut version, 0).unwrap();
    let known = [4, 5].contains(&version[0]);
    if !known {
        skip("this libfabric has no lock in its shared memory");
    }
    known
}

/// Three endpoints that know each other.
fn three() -> [End; 3] {
    let [mut a, mut b, mut c] = [End::open(), End::open(), End::open()];
    peer(&mut a, &b);
    peer(&mut a, &c);
    peer(&mut b, &c);
    until(&mut [&mut a, &mut b, &mut c], "all are up", |ends| {
        let ups = |end: &End| end.2.iter().filter(|e| matches!(e, Event::PeerUp { .. })).count();
        ends.iter().all(|end| ups(end) == 2)
    });
    [a, b, c]
}

#[test]
fn of_a_peer_holds_up_what_is_for_that_peer() {
    if !has_lock() {
        return;
    }
    let [mut a, mut b, mut c] = three();
    let [to_b, to_c] = [peer(&mut a, &b), peer(&mut a, &c)];
    let held = Held::hold(&b);
    for i in 0..40u8 {
        for to in [to_b, to_c] {
            while a.0.inject(to, &[&[i; 100]]).is_err() {
                a.pass();
                c.pass();
            }
        }
    }
    until(&mut [&mut a, &mut c], "what is for the other", |ends| ends[1].messages().len() == 40);
    assert!(b.messages().is_empty());
    held.release();
    until(&mut [&mut a, &mut b], "what was held up", |ends| ends[1].messages().len() == 40);
    assert_eq!(b.messages(), (0..40).map(|i| vec![i; 100]).collect::<Vec<_>>());
}

#[test]
fn of_its_own_stops_no_pass() {
    if !has_lock() {
        return;
    }
    let [mut a, mut b, _c] = three();
    let to_b = peer(&mut a, &b);
    a.0.inject(to_b, &[b"first"]).unwrap();
    let held = Held::hold(&b);
    for _ in 0..1000 {
        b.pass();
    }
    assert!(b.messages().is_empty());
    held.release();
    until(&mut [&mut a, &mut b], "the message", |ends| ends[1].messages().len() == 1);
}
