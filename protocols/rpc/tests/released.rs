//! Memory that is given back before the answer, among real processes of which one is stopped or
//! killed: what is lent comes back, nothing hangs, and a word that comes late changes nothing.

mod processes;

use petasos_fabric::{Access, Region};
use petasos_rpc::{
    Bulk, BulkHandle, CallError, CallOptions, Context, Engine, EngineConfig, EngineThread, Method,
    TypedCall, serve,
};
use petasos_testing::{Process, again, role};
use petasos_wire::Wire;
use processes::{SCHEMES, env, open};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

const LEN: usize = 300_000;
/// Of the memory, whether to give it back, and how long to wait then, in milliseconds.
const KEEP: Method = Method::typed("Release::keep", <(BulkHandle, bool, u64)>::SHAPE, u64::SHAPE);
const PING: Method = Method::typed("Release::ping", u64::SHAPE, u64::SHAPE);
const LONG: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(20);

fn register(engine: &Engine) {
    engine.register(PING, 0, serve(|_: Context, n: u64| async move { n + 1 }));
    let keep = |context: Context, (handle, back, millis): (BulkHandle, bool, u64)| async move {
        let memory = context.engine().open(&handle).unwrap();
        let sum = memory.pull(0, memory.len()).await.unwrap().to_vec();
        if back {
            memory.release();
        }
        println!("pulled");
        context.engine().sleep(Duration::from_millis(millis)).await;
        sum.iter().map(|byte| u64::from(*byte)).sum::<u64>()
    };
    engine.register(KEEP, 0, serve(keep));
}

/// What the process does that serves.
fn target() {
    let engine = Engine::new(open(&env("SCHEME")), EngineConfig::default());
    register(&engine);
    println!("at {}", engine.address());
    engine.block_on(std::future::pending())
}

/// What the process does that lends.
fn caller() {
    let engine = Engine::new(open(&env("SCHEME")), EngineConfig::default());
    let target = engine.lookup(env("AT").as_str()).unwrap();
    let region = Region::from_vec(vec![1; LEN]);
    let bulk = engine.bulk(region.clone(), Access::READ).unwrap();
    let arguments = (bulk.handle(), true, 0u64);
    println!("lent");
    let call = target.call::<_, u64>(KEEP, &CallOptions::default(), &arguments);
    engine.block_on(bulk.released());
    println!("released {}", region.is_unique());
    println!("answered {}", engine.block_on(call).unwrap());
}

fn signal(process: &Process, signal: Signal) {
    kill_process(Pid::from_raw(process.id() as i32).unwrap(), signal).unwrap();
}

/// Another process in the role of the target, and an engine here that lends to it.
struct Pair {
    there: Process,
    here: Engine,
    target: petasos_rpc::Target,
}

impl Pair {
    fn new(test: &str, scheme: &str) -> Pair {
        let mut there = again(test, "target").env("SCHEME", scheme).start();
        let here = Engine::new(open(scheme), EngineConfig::default());
        let target = here.lookup(there.line("at ").as_str()).unwrap();
        Pair { there, here, target }
    }

    /// Lends memory to a call, and waits until it is pulled.
    fn lend(&mut self, back: bool, timeout: Duration) -> (Region, Bulk, TypedCall<u64>) {
        let region = Region::from_vec(vec![1; LEN]);
        let bulk = self.here.bulk(region.clone(), Access::READ).unwrap();
        let options = CallOptions::default().timeout(timeout);
        let call = self.target.call::<_, u64>(KEEP, &options, &(bulk.handle(), back, LONG));
        let Pair { there, here, .. } = self;
        std::thread::scope(|threads| {
            // The engine here may have to serve the pull.
            let pulled = threads.spawn(|| there.line("pulled"));
            while !pulled.is_finished() {
                here.progress();
            }
        });
        (region, bulk, call)
    }

    fn ping(&self) -> bool {
        let options = CallOptions::default().timeout(PATIENCE);
        self.here.block_on(self.target.call::<u64, u64>(PING, &options, &1)).is_ok()
    }

    /// Nothing is left here.
    fn settle(&self) {
        let end = Instant::now() + PATIENCE;
        while self.here.usage() != petasos_rpc::Usage::default() {
            self.here.progress();
            assert!(Instant::now() < end, "{:?}", self.here.usage());
        }
    }
}

#[test]
fn a_target_that_is_stopped_and_goes_on_later() {
    if role().is_some() {
        return target();
    }
    let test = "a_target_that_is_stopped_and_goes_on_later";
    for scheme in SCHEMES {
        let mut pair = Pair::new(test, scheme);
        // It is stopped after it has given the memory back: that is the caller's now.
        let (region, bulk, call) = pair.lend(true, PATIENCE);
        pair.here.block_on(bulk.released());
        signal(&pair.there, Signal::STOP);
        let mut memory = region.into_exclusive().expect("it is ours alone");
        memory.fill(3);
        drop((call, bulk));

        // It is stopped before that: the call ends at its time limit, and the memory with it.
        signal(&pair.there, Signal::CONT);
        let (region, bulk, call) = pair.lend(false, Duration::from_millis(600));
        signal(&pair.there, Signal::STOP);
        let ended = pair.here.block_on(call);
        assert!(matches!(ended, Err(CallError::Deadline { .. })), "{ended:?}");
        let released = bulk.released();
        drop(bulk);
        pair.here.block_on(released);
        assert!(region.is_unique());
        signal(&pair.there, Signal::CONT);
        assert!(pair.ping(), "it goes on as if nothing had been");
        pair.settle();
    }
}

#[test]
fn a_target_that_is_killed() {
    if role().is_some() {
        return target();
    }
    for scheme in SCHEMES {
        for back in [true, false] {
            let mut pair = Pair::new("a_target_that_is_killed", scheme);
            let (region, bulk, call) = pair.lend(back, PATIENCE);
            if back {
                pair.here.block_on(bulk.released());
                assert!(region.is_unique());
            }
            pair.there.kill();
            let ended = pair.here.block_on(call);
            assert!(matches!(ended, Err(CallError::PeerLost { .. })), "{ended:?}");
            let released = bulk.released();
            assert_eq!(released.is_ready(), back, "who is lost gives nothing back");
            drop(bulk);
            pair.here.block_on(released);
            assert!(region.is_unique());
            pair.settle();
        }
    }
}

#[test]
fn a_caller_that_is_stopped_hears_of_it_when_it_goes_on() {
    if role().is_some() {
        return caller();
    }
    for scheme in SCHEMES {
        let server = EngineThread::start(open(scheme), EngineConfig::default(), register).unwrap();
        let at = server.handle().address().clone();
        let start = || {
            again("a_caller_that_is_stopped_hears_of_it_when_it_goes_on", "caller")
                .env("SCHEME", scheme)
                .env("AT", at.as_str())
                .start()
        };
        let mut stopped = start();
        stopped.line("lent");
        signal(&stopped, Signal::STOP);
        // Others are served meanwhile.
        let mut other = start();
        assert_eq!(other.line("released "), "true");
        assert_eq!(other.line("answered "), LEN.to_string());
        assert!(other.wait(PATIENCE).success());
        signal(&stopped, Signal::CONT);
        assert_eq!(stopped.line("released "), "true");
        assert_eq!(stopped.line("answered "), LEN.to_string());
        assert!(stopped.wait(PATIENCE).success());

        // And who lends and is killed costs the server nothing.
        let mut killed = start();
        killed.line("lent");
        killed.kill();
        let idle = |engine: Engine| async move {
            let end = engine.now().after(PATIENCE);
            while engine.usage().serving + engine.usage().deferred > 0 && engine.now() < end {
                engine.sleep(Duration::from_millis(1)).await;
            }
            engine.usage().serving + engine.usage().deferred
        };
        assert_eq!(server.handle().run(idle).wait().unwrap(), 0);
    }
}
