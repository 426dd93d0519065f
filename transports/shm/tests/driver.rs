//! Several threads that submit, wait and read counts of one endpoint at once, by the fabric's
//! driver, over shared memory.

use petasos_fabric::{
    Address, Clock, Done, Endpoint, Event, Level, Operation, Peer, Region, Remote, RemoteSpan,
    Sleep, Token,
    driver::{Armed, Board, Driven, Driver},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const LONG: Duration = Duration::from_secs(30);

/// An endpoint, and how many completions came for each token, and messages.
struct Counting {
    endpoint: petasos_shm::Shm,
    clock: Clock,
    events: Vec<Event>,
    submits: VecDeque<Operation>,
    done: [u64; 4],
    messages: u64,
    keys: Vec<Vec<u8>>,
    board: Arc<Board>,
    news: bool,
}

/// For what a thread waits.
#[derive(Clone)]
enum What {
    Done(usize, u64),
    Messages(u64),
}

impl Driven for Counting {
    type Wait = What;

    fn pass(&mut self, _: bool) -> bool {
        self.endpoint.submit(&mut self.submits);
        let busy = self.endpoint.progress(self.clock.now(), 64, &mut self.events);
        for event in self.events.drain(..) {
            match event {
                Event::Done { token, result } => {
                    assert!(matches!(result, Ok(Done::Put)), "{result:?}");
                    let at = token.0 as usize;
                    self.done[at] += 1;
                    self.board.set(at as u32, 1, [self.done[at], 2 * self.done[at]]);
                }
                Event::Message { message, .. } => {
                    self.keys.push(message.to_vec());
                    self.messages += 1;
                }
                Event::PeerLost { reason, .. } => panic!("{reason}"),
                _ => continue,
            }
            self.news = true;
        }
        busy
    }

    fn is_ready(&mut self, what: &What) -> bool {
        match what {
            What::Done(at, count) => self.done[*at] >= *count,
            What::Messages(count) => self.messages >= *count,
        }
    }

    fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    fn relax(&self) {
        self.endpoint.relax();
    }

    fn arm(&mut self) -> Armed {
        let now = self.clock.now();
        match self.endpoint.arm(now) {
            Sleep::Busy => Armed::Busy,
            Sleep::Until(until) => Armed::For(Some(until.since(now))),
        }
    }
}

fn open(spin: Duration) -> (Driver<Counting>, Arc<Board>, Address) {
    let endpoint = petasos_shm::Shm::open(&"shm://*".parse().unwrap()).unwrap();
    let fd = endpoint.fd().map(|fd| fd.try_clone_to_owned().unwrap());
    let (address, board) = (endpoint.address().clone(), Arc::new(Board::default()));
    let counting = Counting {
        endpoint,
        clock: Clock::start(),
        events: Vec::new(),
        submits: VecDeque::new(),
        done: [0; 4],
        messages: 0,
        keys: Vec::new(),
        board: board.clone(),
        news: false,
    };
    (Driver::new(counting, fd, Some(spin)).unwrap(), board, address)
}

fn inject(driver: &Driver<Counting>, peer: Peer, bytes: &[u8]) {
    while driver.lock().endpoint.inject(peer, &[bytes]).is_err() {
        driver.progress();
    }
}

fn put(token: u64, remote: Remote, bytes: Region) -> Operation {
    Operation::Put {
        token: Token(token),
        remote,
        local: [bytes.whole()].into(),
        spans: [RemoteSpan { offset: 8 * token, len: 8 }].into(),
        level: Level::Visible,
        event: None,
    }
}

#[test]
fn four_threads_submit_wait_and_read_at_once() {
    for spin in [Duration::ZERO, Duration::from_micros(50)] {
        let (near, board, _) = open(spin);
        let (far, _, address) = open(spin);
        let memory = Region::zeroed(32);
        let key = {
            let mut far = far.lock();
            let region = far.endpoint.register(&memory.whole(), petasos_fabric::Access::ALL);
            far.endpoint.export(region.unwrap()).unwrap()
        };
        let remote = near.lock().endpoint.import(&key).unwrap();
        let peer = near.lock().endpoint.resolve(&address, LONG).unwrap();
        let over = AtomicBool::new(false);
        let rounds = 300;
        std::thread::scope(|scope| {
            scope.spawn(|| far.serve(|| over.load(Ordering::Relaxed)));
            let threads: Vec<_> = (0..4)
                .map(|at| {
                    let (near, board, far) = (&near, &board, &far);
                    scope.spawn(move || {
                        for round in 1..=rounds {
                            let bytes = Region::from_vec(u64::to_ne_bytes(round).to_vec());
                            near.lock().submits.push_back(put(at, remote, bytes));
                            let waited = near.wait(LONG, &What::Done(at as usize, round));
                            assert!(waited.is_ready(), "thread {at}, round {round}");
                            drop(waited);
                            let [count, twice] = board.get(at as u32, 1).unwrap();
                            assert!(count >= round && twice == 2 * count);
                            // The other threads' counts are read as they change.
                            let other = board.get((at as u32 + 1) % 4, 1).unwrap_or_default();
                            assert_eq!(other[1], 2 * other[0]);
                        }
                        inject(near, peer, b"done");
                        assert!(far.wait(LONG, &What::Messages(4)).is_ready());
                    })
                })
                .collect();
            let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            over.store(true, Ordering::Relaxed);
            far.interrupt();
            assert!(outcomes.iter().all(Result::is_ok));
        });
        let expected = [rounds; 4].map(u64::to_ne_bytes).concat();
        assert_eq!(memory.to_vec(), expected);
        assert_eq!(far.lock().keys, vec![b"done"; 4]);
    }
}
