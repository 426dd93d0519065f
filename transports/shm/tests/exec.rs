//! An owner of memory that becomes another program: nothing that a peer does reaches that.

use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Key, Level, OpErrorKind, Operation, Peer, Region,
    RemoteSpan, Token, memory::RegionBuilder,
};
use petasos_shm::{Config, Shm};
use petasos_testing::{again, role, skip};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    io::BufRead,
    os::unix::process::CommandExt,
    process::Command,
    ptr::NonNull,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// Where the memory lies in both programs: where the system puts nothing by itself.
const PLACE: usize = 0x2000_0000_0000;
const LEN: usize = 16 << 20;
/// What is in it: of the first program, of a peer, and of the next program.
const FIRST: u8 = 1;
const PUT: u8 = 2;
const NEXT: u8 = 3;

/// Memory at that place, which nothing else in this process has.
fn mapped() -> NonNull<u8> {
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
    );
    // SAFETY: a new mapping, which replaces none.
    let at = unsafe { libc::mmap(PLACE as *mut _, LEN, protection, flags, -1, 0) };
    assert_eq!(at as usize, PLACE, "{}", std::io::Error::last_os_error());
    NonNull::new(at.cast()).unwrap()
}

/// Memory at that place as a region, which is never unmapped.
fn region() -> Region {
    // SAFETY: the mapping is `LEN` bytes long and writable, it stays for good, and there are no
    // references into it.
    unsafe { RegionBuilder::new(mapped(), LEN).build(Box::new(())) }
}

struct End {
    shm: Shm,
    clock: Clock,
    events: Vec<Event>,
}

impl End {
    fn open(at: &str) -> End {
        let at: Address = at.parse().unwrap();
        let shm = Shm::open_with(&at, Config::default()).unwrap();
        End { shm, clock: Clock::start(), events: Vec::new() }
    }

    fn until<T>(&mut self, mut seen: impl FnMut(&mut Vec<Event>) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = seen(&mut self.events) {
                return found;
            }
            assert!(Instant::now() < end, "it did not happen; {:?}", self.events);
            self.shm.progress(self.clock.now(), 64, &mut self.events);
        }
    }

    fn message(&mut self) -> (Peer, Vec<u8>) {
        self.until(|events| {
            let is = |event: &Event| matches!(event, Event::Message { .. });
            let at = events.iter().position(is)?;
            match events.remove(at) {
                Event::Message { peer, message } => Some((peer, message.to_vec())),
                _ => None,
            }
        })
    }
}

/// Gives its key to the first peer that asks, and at the next message becomes another program,
/// without dropping anything.
/// dropping anything.
fn owner(at: &str) -> ! {
    let mut end = End::open(at);
    let memory = region();
    memory.write(0, &vec![FIRST; LEN]);
    let region = end.shm.register(&memory.whole(), Access::ALL).unwrap();
    let key = end.shm.export(region).unwrap();
    println!("\nready");
    let (peer, _) = end.message();
    end.shm.inject(peer, &[key.as_bytes()]).unwrap();
    end.message();
    let mut next = Command::new(std::env::current_exe().unwrap());
    next.args(std::env::args_os().skip(1)).env("PETASOS_TEST_NEXT", "1");
    panic!("not executed: {}", next.exec());
}

/// The next program: has memory at the same place, and watches it.
fn next() -> ! {
    let memory = region();
    memory.write(0, &vec![NEXT; LEN]);
    println!("\nmapped");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    let changed = memory.to_vec().iter().filter(|byte| **byte != NEXT).count();
    println!("\nchanged {changed}");
    std::process::exit(0);
}

/// The peer's put and get were begun before the owner became another program, or are begun after
/// that; and the peer has not looked at anything in between.
#[test]
fn the_next_program_of_a_process_is_not_reached() {
    if role().is_some() {
        match std::env::var_os("PETASOS_TEST_NEXT") {
            Some(_) => next(),
            None => owner(&std::env::var("AT").unwrap()),
        }
    }
    if petasos_shm::probe().cross_memory.is_err() {
        return skip("processes may not reach into each other here");
    }
    for begun in [false, true] {
        let at = format!("shm://test-exec-{}-{begun}", std::process::id());
        let test = "the_next_program_of_a_process_is_not_reached";
        let mut process = again(test, "owner").env("AT", &at).start();
        process.line("ready");
        let mut end = End::open("shm://*");
        let peer = end.shm.resolve(&at.parse().unwrap(), PATIENCE).unwrap();
        end.until(|e| e.iter().any(|e| matches!(e, Event::PeerUp { .. })).then_some(()));
        end.shm.inject(peer, &[b"key"]).unwrap();
        let key = Key::from_bytes(end.message().1).unwrap();
        let remote = end.shm.import(&key).unwrap();
        let local = smallvec![Region::from_vec(vec![PUT; LEN]).whole()];
        let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
        let (level, event) = (Level::Visible, None);
        let put = Operation::Put { token: Token(1), remote, local, spans, level, event };
        let into = Region::zeroed(LEN);
        let (local, spans) =
            (smallvec![into.whole()], smallvec![RemoteSpan { offset: 0, len: LEN as u64 }]);
        let get = Operation::Get { token: Token(2), remote, local, spans };
        let mut operations = VecDeque::from([put, get]);
        if begun {
            end.shm.submit(&mut operations);
            // One slice of each.
            end.shm.progress(end.clock.now(), 1, &mut end.events);
        }
        end.shm.inject(peer, &[b"become another"]).unwrap();
        process.line("mapped");
        end.shm.submit(&mut operations);
        for token in [1, 2] {
            let result = end.until(|events| {
                let is = |e: &Event| matches!(e, Event::Done { token: of, .. } if of.0 == token);
                let at = events.iter().position(is)?;
                match events.remove(at) {
                    Event::Done { result, .. } => Some(result),
                    _ => None,
                }
            });
            let error = result.expect_err("that memory is no more");
            assert!(matches!(error.kind, OpErrorKind::PeerLost(_)), "{error}");
        }
        assert!(into.to_vec().iter().all(|byte| *byte != NEXT), "nothing of it was read");
        process.tell("look");
        assert_eq!(process.line("changed "), "0", "bytes of the next program");
    }
}
