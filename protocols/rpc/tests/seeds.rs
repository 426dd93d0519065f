//! Calls on the simulated network, by seeds: 200 endpoints call each other at random, with and
//! without bulk data, while endpoints die and come back, lines are cut and mended, calls are
//! dropped and deadlines pass. In the end each call has ended once, all credit is back, and
//! nothing stays allocated.
//!
//! `PETASOS_SEEDS` sets how many seeds (default 100), `PETASOS_SEED` tries a single one.

use petasos_fabric::{Access, Address, Region};
use petasos_rpc::{
    BulkHandle, CallError, CallOptions, Context, Engine, EngineConfig, Method, Pieces, Usage, serve,
};
use petasos_sim::{Random, SimConfig, SimNet};
use petasos_wire::Wire;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

const ENDPOINTS: u64 = 200;
const CALLS: u32 = 600;
const ECHO: Method = Method::typed("Seed::echo", <Vec<u8>>::SHAPE, <Vec<u8>>::SHAPE);
const SLOW: Method = Method::typed("Seed::slow", u64::SHAPE, u64::SHAPE);
const SUM: Method = Method::typed("Seed::sum", BulkHandle::SHAPE, <Result<u64, String>>::SHAPE);

/// How the calls ended.
#[derive(Default)]
struct Ledger {
    made: Cell<u32>,
    ended: Cell<u32>,
    dropped: Cell<u32>,
    succeeded: Cell<u32>,
    lost: Cell<u32>,
    late: Cell<u32>,
}

impl Ledger {
    fn end<T>(&self, result: &Result<T, CallError>) {
        let count = |cell: &Cell<u32>| cell.set(cell.get() + 1);
        count(&self.ended);
        match result {
            Ok(_) => count(&self.succeeded),
            Err(CallError::PeerLost { .. }) => count(&self.lost),
            Err(CallError::Deadline { .. }) => count(&self.late),
            Err(CallError::Busy { .. } | CallError::Transfer { .. }) => {}
            Err(error) => panic!("an error that nothing explains: {error}"),
        }
    }
}

/// Counts a handler at work; dropped with it.
struct AtWork(Rc<Cell<i64>>);

impl AtWork {
    fn begin(count: &Rc<Cell<i64>>) -> AtWork {
        count.set(count.get() + 1);
        AtWork(Rc::clone(count))
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

struct Run {
    net: SimNet,
    random: Random,
    engines: Vec<(Address, Option<Engine>)>,
    ledger: Rc<Ledger>,
    at_work: Rc<Cell<i64>>,
}

impl Run {
    fn new(seed: u64) -> Run {
        let net = SimNet::new(SimConfig::with_seed(seed));
        let random = Random::new(seed ^ 0xabcd);
        let address = |n| Address::parse(&format!("sim://{n}")).unwrap();
        let engines = (0..ENDPOINTS).map(|n| (address(n), None)).collect();
        let mut run = Run { net, random, engines, ledger: Rc::default(), at_work: Rc::default() };
        (0..ENDPOINTS as usize).for_each(|at| run.open(at));
        run
    }

    fn open(&mut self, at: usize) {
        let endpoint = self.net.open(&self.engines[at].0).unwrap();
        let mut config = EngineConfig::default();
        config.calls_per_peer = 4;
        config.patience = Duration::from_millis(20);
        let engine = Engine::with_given_time(Box::new(endpoint), config, self.net.now());
        engine.register(ECHO, 0, serve(|_: Context, bytes: Vec<u8>| async { bytes }));
        let (count, turns) = (Rc::clone(&self.at_work), self.random.below(30));
        engine.register(
            SLOW,
            0,
            serve(move |_: Context, n: u64| {
                let working = AtWork::begin(&count);
                async move {
                    let _working = working;
                    for _ in 0..turns {
                        yield_once().await;
                    }
                    if n.is_multiple_of(7) { std::future::pending().await } else { n }
                }
            }),
        );
        let count = Rc::clone(&self.at_work);
        engine.register(
            SUM,
            0,
            serve(move |context: Context, handle: BulkHandle| {
                let working = AtWork::begin(&count);
                async move {
                    let _working = working;
                    let bulk = context.engine().open(&handle).map_err(|e| e.to_string())?;
                    let mut blocks = bulk.blocks(5000, 3);
                    let mut sum = 0;
                    while let Some(block) = blocks.next().await {
                        let bytes = block.map_err(|e| e.to_string())?.to_vec();
                        sum += bytes.iter().map(|b| u64::from(*b)).sum::<u64>();
                    }
                    // Some give the memory back, and go on.
                    if handle.len().is_multiple_of(8) {
                        bulk.release();
                        yield_once().await;
                    }
                    Ok::<u64, String>(sum)
                }
            }),
        );
        self.engines[at].1 = Some(engine);
    }

    /// Makes a call at random. It is driven by its own engine, and dies with it.
    fn call(&mut self) {
        let (from, to) = (self.random.below(ENDPOINTS), self.random.below(ENDPOINTS));
        let Some(engine) = self.engines[from as usize].1.clone() else { return };
        let target = engine.target(&self.engines[to as usize].0);
        let ledger = Rc::clone(&self.ledger);
        ledger.made.set(ledger.made.get() + 1);
        // Whatever becomes of it: the call ends, or this is dropped with the engine.
        let fate = Fate { ledger, over: Cell::new(false) };
        let timeout = Duration::from_micros(200 + self.random.below(3000));
        let options = CallOptions::default().timeout(timeout);
        let size = [0, 10, 300, 5000, 100_000][self.random.below(5) as usize];
        let patience = self.random.one_in(4).then(|| self.random.below(40));
        match self.random.below(3) {
            0 => {
                let bytes = vec![7u8; size];
                let call = target.call::<_, Vec<u8>>(ECHO, &options, &bytes);
                engine.spawn(fate.follow(call, patience, move |back| assert!(back == bytes)));
            }
            1 => {
                let n = self.random.below(1000);
                let call = target.call::<_, u64>(SLOW, &options, &n);
                engine.spawn(fate.follow(call, patience, move |back| assert_eq!(back, n)));
            }
            _ => {
                let region = Region::from_vec(vec![3u8; size]);
                // In one piece, or in up to 40.
                let piece = size.div_ceil(1 + self.random.below(40) as usize).max(1);
                let part = |at| region.slice(at, piece.min(size - at)).unwrap();
                let pieces = Pieces::of((0..size).step_by(piece).map(part));
                let bulk = engine.bulk(pieces, Access::READ).unwrap();
                let call = target.call::<_, Result<u64, String>>(SUM, &options, &bulk.handle());
                // Whatever becomes of the call, this ends, or something stays.
                engine.spawn(bulk.released());
                engine.spawn(fate.follow(call, patience, move |sum| {
                    // A transfer fails when one of the two dies: then so does the call, mostly.
                    if let Ok(sum) = sum {
                        assert_eq!(sum, 3 * bulk.len());
                    }
                }));
            }
        }
    }

    fn fault(&mut self) {
        let at = self.random.below(ENDPOINTS) as usize;
        let other = self.random.below(ENDPOINTS) as usize;
        let (a, b) = (self.engines[at].0.clone(), self.engines[other].0.clone());
        match self.random.below(4) {
            0 => match self.engines[at].1.take() {
                // Killed: the network forgets it first, so that nothing is said.
                Some(engine) => {
                    self.net.kill(&a);
                    drop(engine);
                }
                None => self.open(at),
            },
            1 => self.net.cut(&a, &b),
            2 => self.net.heal(&a, &b),
            _ => {
                // A polite end.
                self.engines[at].1 = None;
                self.open(at);
            }
        }
    }

    /// All engines, in an order of its own each time.
    fn turn(&mut self) {
        let start = self.random.below(ENDPOINTS) as usize;
        let stride = [1, 3, 7, 9][self.random.below(4) as usize];
        let now = self.net.now();
        for n in 0..ENDPOINTS as usize {
            let at = (start + n * stride) % ENDPOINTS as usize;
            if let Some(engine) = &self.engines[at].1 {
                engine.set_time(now);
                engine.progress();
            }
        }
    }

    fn usage(&self) -> Vec<(usize, Usage)> {
        let engines = self.engines.iter().enumerate();
        let usage = engines.filter_map(|(n, (_, e))| e.as_ref().map(|e| (n, e.usage())));
        usage.filter(|(_, usage)| *usage != Usage::default()).collect()
    }

    fn go(mut self, seed: u64) {
        while self.ledger.made.get() < CALLS {
            (0..self.random.below(20)).for_each(|_| self.call());
            if self.random.one_in(3) {
                self.fault();
            }
            self.turn();
            self.net.run_for(Duration::from_micros(10));
        }
        // All deadlines, and the silence of cut lines, pass.
        for _ in 0..400 {
            self.turn();
            self.net.run_for(Duration::from_millis(5));
        }
        let ledger = &self.ledger;
        let ended = ledger.ended.get() + ledger.dropped.get();
        assert_eq!(ended, ledger.made.get(), "seed {seed}: calls that did not end");
        assert_eq!(self.usage(), [], "seed {seed}: something stays");
        assert_eq!(self.at_work.get(), 0, "seed {seed}: handlers are still at work");
        let enough = |count: &Cell<u32>| count.get() > CALLS / 100;
        assert!(enough(&ledger.succeeded), "seed {seed}: hardly a call went well");
    }
}

/// A call's way to its one end.
struct Fate {
    ledger: Rc<Ledger>,
    over: Cell<bool>,
}

impl Fate {
    async fn follow<T>(
        self,
        call: impl Future<Output = Result<T, CallError>>,
        patience: Option<u64>,
        check: impl FnOnce(T),
    ) {
        let mut call = Box::pin(call);
        let result = match patience {
            None => Some(call.as_mut().await),
            Some(turns) => {
                let mut over = None;
                for _ in 0..turns {
                    over = futures_util::FutureExt::now_or_never(call.as_mut());
                    if over.is_some() {
                        break;
                    }
                    yield_once().await;
                }
                over
            }
        };
        let Some(result) = result else { return };
        assert!(!self.over.replace(true));
        self.ledger.end(&result);
        if let Ok(value) = result {
            check(value);
        }
    }
}

impl Drop for Fate {
    fn drop(&mut self) {
        if !self.over.get() {
            self.ledger.dropped.set(self.ledger.dropped.get() + 1);
        }
    }
}

/// Lets the engine turn once.
async fn yield_once() {
    let yielded = RefCell::new(false);
    std::future::poll_fn(|context| {
        if yielded.replace(true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

#[test]
fn each_call_ends_once_whatever_happens() {
    if let Some(seed) = std::env::var("PETASOS_SEED").ok().and_then(|s| s.parse().ok()) {
        return Run::new(seed).go(seed);
    }
    let seeds = std::env::var("PETASOS_SEEDS").ok().and_then(|s| s.parse().ok()).unwrap_or(100);
    for seed in 0..seeds {
        Run::new(seed).go(seed);
    }
}
