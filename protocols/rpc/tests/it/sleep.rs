//! Timers of the engine: for handlers, tasks, and what `block_on` drives, also while the engine
//! sleeps.

use crate::common::{engine_with, run, settle, turn_for};
use petasos_fabric::Time;
use petasos_rpc::{
    CallError, CallOptions, Context, Elapsed, Engine, EngineConfig, EngineThread, Idle, service,
};
use std::{
    cell::RefCell,
    rc::Rc,
    time::{Duration, Instant},
};

const MOMENT: Duration = Duration::from_millis(20);
/// Longer than any test may take.
const DAY: Duration = Duration::from_secs(86_400);

#[service]
trait Nap {
    async fn nap(&self, context: Context, millis: u64) -> u64;
    async fn nothing(&self) -> u64;
}

struct Couch;

impl Nap for Couch {
    async fn nap(&self, context: Context, millis: u64) -> u64 {
        let before = context.engine().now();
        context.engine().sleep(Duration::from_millis(millis)).await;
        context.engine().now().since(before).as_millis() as u64
    }

    async fn nothing(&self) -> u64 {
        7
    }
}

fn over_shared_memory(idle: Idle) -> (Box<petasos_shm::Shm>, EngineConfig) {
    let endpoint = petasos_shm::Shm::open(&"shm://*".parse().unwrap()).expect("an endpoint opens");
    (Box::new(endpoint), EngineConfig::default().idle(idle))
}

/// However the engine waits: it sleeps until the time has come, and not for ever.
#[test]
fn an_engine_that_waits_wakes_for_it() {
    for idle in [Idle::Sleep, Idle::Tuned, Idle::Spin] {
        let (endpoint, config) = over_shared_memory(idle);
        let engine = Engine::new(endpoint, config);
        let begin = Instant::now();
        engine.block_on(engine.sleep(MOMENT));
        assert!(begin.elapsed() >= MOMENT, "{idle:?}: too early");
        // A task that nothing else polls.
        let (done, seen) = futures_channel::oneshot::channel();
        let (sleep, begin) = (engine.sleep(MOMENT), Instant::now());
        engine.spawn(async move {
            sleep.await;
            let _ = done.send(begin.elapsed());
        });
        assert!(engine.block_on(seen).unwrap() >= MOMENT, "{idle:?}: too early");
    }
}

#[test]
fn a_handler_sleeps_and_others_are_served_meanwhile() {
    let (endpoint, config) = over_shared_memory(Idle::Sleep);
    let server = EngineThread::start(endpoint, config, |engine| Couch.serve(engine, 0).unwrap());
    let server = server.unwrap();
    let (endpoint, config) = over_shared_memory(Idle::Sleep);
    let engine = Engine::new(endpoint, config);
    let nap = NapClient::at(engine.lookup(server.handle().address().as_str()).unwrap());
    let naps = [30u64, 10, 20].map(|millis| (millis, nap.nap(millis)));
    assert_eq!(engine.block_on(nap.nothing()).unwrap(), 7);
    for (millis, slept) in naps {
        assert!(engine.block_on(slept).unwrap() >= millis);
    }
    // The call's own deadline ends the sleep of its handler.
    let short = nap.with(CallOptions::default().timeout(MOMENT));
    let error = engine.block_on(short.nap(DAY.as_millis() as u64)).unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }), "{error}");
    let usage = || server.handle().run(async |engine: Engine| engine.usage()).wait().unwrap();
    let end = Instant::now() + Duration::from_secs(10);
    while usage().serving > 0 {
        assert!(Instant::now() < end, "the handler sleeps on");
    }
}

#[test]
fn in_order_of_time_and_dropped_ones_not_at_all() {
    let engine = engine_with(EngineConfig::default());
    let woken = Rc::new(RefCell::new(Vec::new()));
    for millis in [30u64, 10, 20] {
        let (sleep, woken) = (engine.sleep(Duration::from_millis(millis)), Rc::clone(&woken));
        engine.spawn(async move {
            sleep.await;
            woken.borrow_mut().push(millis);
        });
    }
    drop((engine.sleep(Duration::ZERO), engine.sleep(DAY)));
    let mut polled = engine.sleep(DAY);
    run(&[&engine], async {
        let over = engine.limit(MOMENT, &mut polled).await;
        assert_eq!(over, Err(Elapsed(MOMENT)));
    });
    drop(polled);
    run(&[&engine], engine.sleep(2 * MOMENT));
    assert_eq!(*woken.borrow(), [10, 20, 30]);
    settle(&[&engine]);
    // Nothing is left to wake for.
    assert!(engine.arm().is_none_or(|longest| longest > DAY), "a dropped sleep is waited for");
    engine.awake();
}

#[test]
fn what_is_ready_in_time_is_given() {
    let engine = engine_with(EngineConfig::default());
    assert_eq!(run(&[&engine], engine.limit(DAY, std::future::ready(5))), Ok(5));
    assert_eq!(run(&[&engine], engine.limit(Duration::MAX, async { 6 })), Ok(6));
    let call = NapClient::new(&engine, engine.address()).nothing();
    let error = run(&[&engine], engine.limit(DAY, call)).unwrap().unwrap_err();
    assert!(matches!(error, CallError::NoSuchMethod { .. }), "{error}");
    run(&[&engine], engine.sleep(Duration::ZERO));
}

/// On the simulated network time is what it is said to be, and no other.
#[test]
fn the_time_is_the_engines() {
    let endpoint = petasos_self::Local::open(&"self://*".parse().unwrap()).unwrap();
    let config = EngineConfig::default().idle(Idle::Spin);
    let engine = Engine::with_given_time(Box::new(endpoint), config, Time::ZERO);
    let woken = Rc::new(RefCell::new(false));
    let (sleep, seen) = (engine.sleep(DAY), Rc::clone(&woken));
    engine.spawn(async move {
        sleep.await;
        seen.replace(true);
    });
    turn_for(&[&engine], Duration::from_millis(2));
    engine.set_time(Time::ZERO.after(DAY - Duration::from_nanos(1)));
    turn_for(&[&engine], Duration::from_millis(2));
    assert!(!*woken.borrow());
    assert_eq!(engine.arm(), Some(Duration::from_nanos(1)));
    engine.awake();
    engine.set_time(Time::ZERO.after(DAY));
    turn_for(&[&engine], Duration::from_millis(2));
    assert!(*woken.borrow());
}
