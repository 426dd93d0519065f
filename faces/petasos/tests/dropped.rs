//! Futures dropped at any moment, and forgotten ones: the memory that they were given comes back,
//! nothing touches it afterwards, and neither side keeps anything.
//!
//! Two processes; both fill what the engine has let go with a pattern, look later whether it is
//! still there, and lend the memory again.

use petasos::{
    BulkHandle, CallOptions, Context, Engine, EngineConfig, EngineThread, Method, OpenOptions,
    RemoteBulk, Target, Usage,
    fabric::{Access, Endpoint, Region},
    open, serve, shm,
    wire::Wire,
};
use petasos_testing::{again, role};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io::{Read, stdin},
    pin::Pin,
    rc::Rc,
    task::{Context as PollContext, Poll, Waker},
    time::{Duration, Instant},
};

const PING: Method = Method::typed("Drop::ping", u64::SHAPE, u64::SHAPE);
const WAIT: Method = Method::typed("Drop::wait", u64::SHAPE, u64::SHAPE);
const ECHO: Method = Method::typed("Drop::echo", <Vec<u8>>::SHAPE, <Vec<u8>>::SHAPE);
const PULL: Method = Method::typed("Drop::pull", <(BulkHandle, u8)>::SHAPE, bool::SHAPE);
const PUSH: Method = Method::typed("Drop::push", <(BulkHandle, u8)>::SHAPE, bool::SHAPE);
const LEND: Method = Method::typed("Drop::lend", <()>::SHAPE, <(BulkHandle, BulkHandle)>::SHAPE);
const COUNT: Method = Method::typed("Drop::count", <()>::SHAPE, <Vec<u64>>::SHAPE);

/// Futures that are dropped before they are ready.
const DROPS: u32 = 50_000;
const FORGOTTEN: usize = 100;
/// Futures at a time.
const FLIGHTS: usize = 16;
/// From what travels within a descriptor to what takes many packets.
const LENS: [usize; 4] = [200, 5000, 70_000, 600_000];
const POISON: u8 = 0xDB;
/// What the server lends to be read is full of.
const LENT: u8 = 0x11;
/// Poisoned regions of each length that are left alone before one is used again.
const KEPT: usize = 24;
/// A handler that waits for so many turns waits for its end.
const FOREVER: u64 = u64::MAX;
const PATIENCE: Duration = Duration::from_secs(10);
const QUIET: Duration = Duration::from_millis(300);

struct Random(petasos_testing::Random);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0.draw() % bound
    }

    /// Which length: mostly those in the middle.
    fn class(&mut self) -> usize {
        [0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3][self.below(14) as usize]
    }

    /// What memory is filled with: never the poison.
    fn tag(&mut self) -> u8 {
        1 + self.below(200) as u8
    }
}

fn is_full_of(region: &Region, byte: u8) -> bool {
    let bytes = region.to_vec();
    bytes[0] == byte && bytes[1..] == bytes[..bytes.len() - 1]
}

fn fill(region: &Region, byte: u8) {
    region.write(0, &vec![byte; region.len()]);
}

/// Memory that is lent, and memory that was let go and is watched.
struct Pool {
    engine: Engine,
    given: Vec<Region>,
    poisoned: [VecDeque<Region>; LENS.len()],
    made: u64,
    /// Regions found touched after they had been let go.
    touched: u64,
    let_go: u64,
}

impl Pool {
    fn new(engine: &Engine) -> Pool {
        let (engine, poisoned) = (engine.clone(), Default::default());
        Pool { engine, given: Vec::new(), poisoned, made: 0, touched: 0, let_go: 0 }
    }

    /// Memory to lend; it is watched from now on.
    fn take(&mut self, class: usize) -> Region {
        self.sweep();
        let region = if self.poisoned[class].len() > KEPT {
            let region = self.poisoned[class].pop_front().unwrap();
            self.touched += u64::from(!is_full_of(&region, POISON));
            region
        } else {
            self.made += 1;
            // The transport's own, and ordinary memory.
            let own = self.made.is_multiple_of(2);
            let own = own.then(|| self.engine.alloc(LENS[class]).unwrap());
            own.unwrap_or_else(|| Region::zeroed(LENS[class]))
        };
        self.given.push(region.clone());
        region
    }

    /// Poisons what has no other holder any more.
    fn sweep(&mut self) {
        for region in self.given.extract_if(.., |region| region.is_unique()) {
            fill(&region, POISON);
            self.let_go += 1;
            let class = LENS.iter().position(|len| *len == region.len()).unwrap();
            self.poisoned[class].push_back(region);
        }
    }

    /// How many regions were touched that had been let go.
    fn touched(&mut self) -> u64 {
        self.sweep();
        let poisoned = self.poisoned.iter().flatten();
        self.touched + poisoned.filter(|region| !is_full_of(region, POISON)).count() as u64
    }
}

/// What the server saw of its handlers.
#[derive(Default)]
struct Seen {
    started: Cell<u64>,
    finished: Cell<u64>,
    cancelled: Cell<u64>,
    /// Transfers that brought something else than what was lent.
    wrong: Cell<u64>,
}

fn count(cell: &Cell<u64>) {
    cell.set(cell.get() + 1);
}

struct Handler {
    seen: Rc<Seen>,
    finished: bool,
}

impl Handler {
    fn new(seen: &Rc<Seen>) -> Handler {
        count(&seen.started);
        Handler { seen: Rc::clone(seen), finished: false }
    }

    fn finish<T>(mut self, result: T) -> T {
        self.finished = true;
        result
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        count(if self.finished { &self.seen.finished } else { &self.seen.cancelled });
    }
}

async fn turns(mut left: u64) {
    poll_fn(|context| match left {
        0 => Poll::Ready(()),
        FOREVER => Poll::Pending,
        _ => {
            left -= 1;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

fn class_of(handle: &BulkHandle) -> usize {
    LENS.iter().position(|len| *len as u64 == handle.len()).unwrap()
}

fn server(engine: &Engine) {
    let seen = Rc::new(Seen::default());
    let pool = Rc::new(RefCell::new(Pool::new(&engine.clone())));
    engine.register(PING, 0, serve(|_: Context, n: u64| async move { n }));
    let waiting = Rc::clone(&seen);
    let wait = move |_: Context, n: u64| {
        let handler = Handler::new(&waiting);
        async move {
            turns(n).await;
            handler.finish(n)
        }
    };
    engine.register(WAIT, 0, serve(wait));
    let echoing = Rc::clone(&seen);
    let echo = move |_: Context, bytes: Vec<u8>| {
        let handler = Handler::new(&echoing);
        async move { handler.finish(bytes) }
    };
    engine.register(ECHO, 0, serve(echo));
    let (pulling, into) = (Rc::clone(&seen), Rc::clone(&pool));
    let pull = move |context: Context, (handle, tag): (BulkHandle, u8)| {
        let (handler, into) = (Handler::new(&pulling), into.borrow_mut().take(class_of(&handle)));
        async move {
            let remote = context.engine().open(&handle).unwrap();
            let pulled = remote.pull_into(0, into.whole()).await.is_ok();
            if pulled && !is_full_of(&into, tag) {
                count(&handler.seen.wrong);
            }
            handler.finish(pulled)
        }
    };
    engine.register(PULL, 0, serve(pull));
    let (pushing, from) = (Rc::clone(&seen), Rc::clone(&pool));
    let push = move |context: Context, (handle, tag): (BulkHandle, u8)| {
        let (handler, from) = (Handler::new(&pushing), from.borrow_mut().take(class_of(&handle)));
        fill(&from, tag);
        async move {
            let remote = context.engine().open(&handle).unwrap();
            handler.finish(remote.push(0, from.whole()).await.is_ok())
        }
    };
    engine.register(PUSH, 0, serve(push));
    let readable = Region::zeroed(LENS[3]);
    fill(&readable, LENT);
    let readable = engine.bulk(readable, Access::READ).unwrap();
    let writable = engine.bulk(Region::zeroed(LENS[3]), Access::WRITE).unwrap();
    let lend = move |_: Context, (): ()| {
        let handles = (readable.handle(), writable.handle());
        async move { handles }
    };
    engine.register(LEND, 0, serve(lend));
    let report = move |context: Context, (): ()| {
        let (usage, stats) = (context.engine().usage(), context.engine().stats());
        let mut pool = pool.borrow_mut();
        let counts = vec![
            seen.started.get(),
            seen.finished.get(),
            seen.cancelled.get(),
            seen.wrong.get(),
            pool.touched(),
            pool.given.len() as u64,
            stats.cancelled_by_caller,
            // All that is under way, less the call that asks.
            held(&usage) - 1,
        ];
        async move { counts }
    };
    engine.register(COUNT, 0, serve(report));
}

fn held(usage: &Usage) -> u64 {
    let calls = usage.calls + usage.credit + usage.waiting + usage.serving;
    (calls + usage.lent_results + usage.deferred + usage.operations + usage.tasks) as u64
}

type Work = Pin<Box<dyn Future<Output = Result<(), String>>>>;

/// A future, and how many turns it has left.
struct Flight {
    work: Work,
    left: u64,
}

/// The side that drops.
struct Client {
    engine: Engine,
    target: Target,
    readable: RemoteBulk,
    writable: RemoteBulk,
    pool: Pool,
    random: Random,
    flights: Vec<Flight>,
    dropped: u32,
    ready: u32,
}

impl Client {
    fn new(endpoint: Box<dyn Endpoint>, at: &str, seed: u64) -> Client {
        let engine = Engine::new(endpoint, EngineConfig::default());
        let target = engine.target(&at.parse().unwrap());
        let lent = target.call::<_, (BulkHandle, BulkHandle)>(LEND, &CallOptions::default(), &());
        let (readable, writable) = engine.block_on(lent).unwrap();
        let (readable, writable) =
            (engine.open(&readable).unwrap(), engine.open(&writable).unwrap());
        let (pool, random) = (Pool::new(&engine), Random(petasos_testing::Random::new(seed)));
        let (flights, dropped, ready) = (Vec::new(), 0, 0);
        Client { engine, target, readable, writable, pool, random, flights, dropped, ready }
    }

    /// A call without bulk data.
    fn small(&mut self) -> Work {
        let (target, options) = (&self.target, CallOptions::default());
        let (method, n) = match self.random.below(10) {
            0..6 => (PING, self.random.below(1000)),
            6..9 => (WAIT, self.random.below(300)),
            _ => (WAIT, FOREVER),
        };
        if self.random.below(8) > 0 {
            let call = target.call::<u64, u64>(method, &options, &n);
            return work(async move { same(call.await.map_err(text)?, n) });
        }
        // Neither arguments nor result fit into a message.
        let bytes = vec![n as u8; 70_000 + n.min(1000) as usize];
        let call = target.call::<Vec<u8>, Vec<u8>>(ECHO, &options, &bytes);
        work(async move { same(call.await.map_err(text)?, bytes) })
    }

    /// A call that lends memory, which the server reads or writes.
    fn lending(&mut self) -> (Work, Region) {
        let (region, tag) = (self.pool.take(self.random.class()), self.random.tag());
        let options = CallOptions::default();
        if self.random.below(2) == 0 {
            fill(&region, tag);
            let bulk = self.engine.bulk(region.clone(), Access::READ).unwrap();
            let call = self.target.call::<_, bool>(PULL, &options, &(bulk.handle(), tag));
            let pulled = work(async move {
                let pulled = call.await.map_err(text)?;
                drop(bulk);
                same(pulled, true)
            });
            return (pulled, region);
        }
        let bulk = self.engine.bulk(region.clone(), Access::WRITE).unwrap();
        let call = self.target.call::<_, bool>(PUSH, &options, &(bulk.handle(), tag));
        let memory = region.clone();
        let pushed = work(async move {
            let pushed = call.await.map_err(text)?;
            drop(bulk);
            same((pushed, is_full_of(&memory, tag)), (true, true))
        });
        (pushed, region)
    }

    /// A transfer to or from what the server lends.
    fn transfer(&mut self) -> (Work, Region) {
        let region = self.pool.take(self.random.class());
        let offset = self.random.below((LENS[3] - region.len() + 1) as u64);
        let memory = region.clone();
        if self.random.below(2) == 0 {
            let remote = self.readable.clone();
            let pulled = work(async move {
                remote.pull_into(offset, memory.whole()).await.map_err(text)?;
                same(is_full_of(&memory, LENT), true)
            });
            return (pulled, region);
        }
        fill(&region, self.random.tag());
        let remote = self.writable.clone();
        let push = async move { remote.push(offset, memory.whole()).await.map(drop).map_err(text) };
        (work(push), region)
    }

    fn start(&mut self) {
        let work = match self.random.below(4) {
            0 => self.small(),
            1 => self.transfer().0,
            _ => self.lending().0,
        };
        // Before the first poll, or after some turns, each order of magnitude alike.
        let most = 2 << self.random.below(15);
        let left = if self.random.below(8) == 0 { 0 } else { self.random.below(most) };
        self.flights.push(Flight { work, left });
    }

    fn drop_so_many(&mut self, drops: u32) {
        let end = self.dropped + drops;
        let mut context = PollContext::from_waker(Waker::noop());
        while self.dropped < end {
            while self.flights.len() < FLIGHTS {
                self.start();
            }
            self.flights.retain_mut(|flight| {
                if flight.left == 0 {
                    self.dropped += 1;
                    return false;
                }
                flight.left -= 1;
                match flight.work.as_mut().poll(&mut context) {
                    Poll::Ready(result) => {
                        assert_eq!(result, Ok(()));
                        self.ready += 1;
                        false
                    }
                    Poll::Pending => true,
                }
            });
            self.engine.progress();
        }
        self.flights.clear();
    }

    /// Turns until it is so.
    fn until(&mut self, what: &str, mut seen: impl FnMut(&mut Client) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(self) {
            self.engine.progress();
            assert!(Instant::now() < end, "{what}: {:?}", self.engine.usage());
        }
    }

    /// Waits until both sides have let go of all that was dropped, and looks at what they saw.
    fn settle(&mut self, idle: &Usage) -> Vec<u64> {
        self.until("something stays", |client| {
            client.pool.sweep();
            client.engine.usage() == *idle
        });
        let end = Instant::now() + PATIENCE;
        loop {
            let call = self.target.call::<(), Vec<u64>>(COUNT, &CallOptions::default(), &());
            let counts = self.engine.block_on(call).unwrap();
            let [started, finished, cancelled, wrong, touched, given, _, held] = counts[..] else {
                panic!("{counts:?}")
            };
            assert_eq!((wrong, touched), (0, 0), "transfers gone wrong at the server");
            if started == finished + cancelled && given == 0 && held == 0 {
                return counts;
            }
            assert!(Instant::now() < end, "something stays at the server: {counts:?}");
        }
    }

    /// Forgets futures. Their memory is never let go, and when all is quiet nothing touches it.
    fn forget(&mut self) {
        let mut context = PollContext::from_waker(Waker::noop());
        let (mut memory, mut idle) = (Vec::<Region>::new(), Usage::default());
        while memory.len() < FORGOTTEN {
            let lends = self.random.below(2) == 0;
            // Transfers are often over within a few turns.
            let ((mut work, region), turns) =
                if lends { (self.lending(), 100) } else { (self.transfer(), 3) };
            let (mut ready, turns) = (false, self.random.below(turns));
            for _ in 0..turns {
                ready = ready || work.as_mut().poll(&mut context).is_ready();
                self.engine.progress();
            }
            if ready {
                continue;
            }
            std::mem::forget(work);
            memory.push(region);
            // What is not polled any more keeps its slot.
            idle.calls += usize::from(lends);
            idle.operations += usize::from(!lends && turns > 0);
        }
        let forgotten = |region: &Region| memory.iter().any(|m| m.as_ptr() == region.as_ptr());
        self.pool.given.retain(|region| !forgotten(region));
        self.settle(&idle);
        // Transfers that are not awaited are over soon.
        let since = Instant::now();
        self.until("time passes", |_| since.elapsed() > QUIET);
        memory.iter().for_each(|region| fill(region, POISON));
        self.drop_so_many(DROPS / 20);
        self.until("the memory is let go", |client| {
            client.pool.sweep();
            client.pool.given.is_empty() && client.engine.usage() == idle
        });
        assert_eq!(self.pool.touched(), 0);
        assert!(memory.iter().all(|region| is_full_of(region, POISON)), "memory was touched");
        // The smallest may have been copied into its descriptor, and was never lent.
        let mut lent = memory.iter().filter(|region| region.len() > LENS[0]);
        assert!(lent.all(|region| !region.is_unique()), "lent memory was let go");
    }
}

fn work(future: impl Future<Output = Result<(), String>> + 'static) -> Work {
    Box::pin(future)
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn same<T: PartialEq>(seen: T, expected: T) -> Result<(), String> {
    if seen == expected { Ok(()) } else { Err("a wrong result".to_owned()) }
}

/// An endpoint that reaches ordinary memory of other processes by itself, or not.
fn endpoint(scheme: &str, reaches: bool) -> Box<dyn Endpoint> {
    let any = format!("{scheme}://*");
    if reaches || scheme != "shm" {
        return open(&any, &OpenOptions::default()).unwrap();
    }
    let mut config = shm::Config::default();
    config.cross_memory = false;
    Box::new(shm::Shm::open_with(&any.parse().unwrap(), config).unwrap())
}

#[test]
fn dropped_futures_leave_nothing_and_touch_nothing() {
    let test = "dropped_futures_leave_nothing_and_touch_nothing";
    if let Some(role) = role() {
        let (scheme, reaches) = role.split_once(' ').unwrap();
        let endpoint = endpoint(scheme, reaches == "true");
        let server = EngineThread::start(endpoint, EngineConfig::default(), server).unwrap();
        println!("\nready {}", server.handle().address());
        let _ = stdin().read(&mut [0]);
        return;
    }
    for (seed, (scheme, reaches)) in
        [("shm", true), ("shm", false), ("tcp", false)].iter().enumerate()
    {
        let begun = Instant::now();
        let mut server = again(test, &format!("{scheme} {reaches}")).start();
        let at = server.line("ready ");
        let mut client = Client::new(endpoint(scheme, *reaches), &at, seed as u64);
        client.drop_so_many(DROPS);
        let counts = client.settle(&Usage::default());
        let [started, finished, cancelled, _, _, _, by_caller, _] = counts[..] else { panic!() };
        client.until("the memory is let go", |client| {
            client.pool.sweep();
            client.pool.given.is_empty()
        });
        assert_eq!(client.pool.touched(), 0, "memory was touched that had been let go");
        assert!(cancelled > 0 && client.engine.stats().calls_cancelled >= cancelled);
        // Also cancelled: calls whose arguments had not yet been fetched for a handler.
        assert!(by_caller >= cancelled, "handlers were dropped for some other reason");
        let Client { dropped, ready, .. } = client;
        let Pool { let_go, made, .. } = client.pool;
        client.forget();
        println!(
            "over {scheme} ({reaches}) in {:?}: {dropped} dropped, {ready} ready; {made} regions \
             lent {let_go} times; handlers: {started} started, {finished} finished, {cancelled} \
             cancelled",
            begun.elapsed(),
        );
    }
}
