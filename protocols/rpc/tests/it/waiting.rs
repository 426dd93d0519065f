//! A call that is looked at, and waited for with a time: that never ends it.

use crate::common::{engine, run, settle, turn_for};
use petasos_fabric::Region;
use petasos_rpc::{
    CallError, CallOptions, Context, Engine, EngineConfig, EngineThread, Method, ThreadError,
    serve, service,
};
use std::{cell::Cell, pin::pin, rc::Rc, task, time::Duration};

const LONG: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(3);

#[service]
trait Gate {
    /// Answers when it is open.
    async fn pass(&self, context: Context, len: u64) -> Vec<u8>;
    async fn fill(&self, context: Context, #[bulk(push)] into: Region) -> u64;
}

#[derive(Clone, Default)]
struct Door(Rc<Cell<bool>>);

impl Door {
    async fn open(&self, context: &Context) {
        while !self.0.get() {
            context.engine().sleep(Duration::from_micros(50)).await;
        }
    }
}

impl Gate for Door {
    async fn pass(&self, context: Context, len: u64) -> Vec<u8> {
        self.open(&context).await;
        vec![7; len as usize]
    }

    async fn fill(&self, context: Context, into: Region) -> u64 {
        self.open(&context).await;
        into.write(0, &vec![8; into.len()]);
        into.len() as u64
    }
}

fn gate() -> (Engine, Engine, Door, GateClient) {
    let (here, there, door) = (engine(), engine(), Door::default());
    door.clone().serve(&there, 0).unwrap();
    let client = GateClient::new(&here, there.address());
    (here, there, door, client)
}

fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> task::Poll<F::Output> {
    future.poll(&mut task::Context::from_waker(task::Waker::noop()))
}

/// Waits in vain, drops waits in the middle, and looks: the call is under way afterwards.
macro_rules! goes_on {
    ($both:expr, $call:expr) => {
        assert!(!$call.is_ready());
        assert!(!run($both, $call.ready_within(SHORT)), "nothing was answered");
        for passes in 0..4 {
            let mut wait = Box::pin($call.ready_within(LONG));
            assert!(poll(wait.as_mut()).is_pending());
            (0..passes).for_each(|_| turn_for($both, Duration::from_micros(200)));
            drop(wait);
            drop($call.ready_within(LONG));
        }
        assert!(!$call.is_ready());
    };
}

#[test]
fn waits_end_and_the_call_goes_on() {
    // Short enough to lie in the message, in lines of its own, in a buffer; and to be fetched.
    for len in [0, 10, 60, 1000, 1 << 20] {
        let (here, there, door, client) = gate();
        let both = &[&here, &there];
        let mut call = client.pass(len);
        goes_on!(both, call);
        assert_eq!((there.usage().serving, here.stats().calls_cancelled), (1, 0));
        door.0.set(true);
        assert!(run(both, call.ready_within(LONG)));
        // The outcome stays, whatever else is done.
        assert!(call.is_ready() && run(both, call.ready_within(Duration::ZERO)));
        assert_eq!(run(both, client.pass(3)).unwrap(), [7; 3]);
        assert!(call.is_ready());
        assert_eq!(run(both, call).unwrap(), vec![7; len as usize]);
        settle(both);
    }
}

#[test]
fn a_call_that_lends_memory_is_ready_when_that_is_back() {
    let (here, there, door, client) = gate();
    let both = &[&here, &there];
    let into = Region::zeroed(100_000);
    let mut call = client.fill(&into);
    goes_on!(both, call);
    door.0.set(true);
    assert!(run(both, call.ready_within(LONG)));
    assert!(call.is_ready() && call.released(0).is_ready() && into.is_unique());
    assert_eq!(poll(pin!(call)).map(Result::unwrap), task::Poll::Ready(100_000));
    assert_eq!(into.to_vec(), vec![8; 100_000]);
    settle(both);
}

#[test]
fn dropping_the_call_cancels_it() {
    let (here, there, _, client) = gate();
    let both = &[&here, &there];
    let into = Region::zeroed(100_000);
    let (mut plain, mut lending) = (client.pass(1), client.fill(&into));
    goes_on!(both, plain);
    goes_on!(both, lending);
    assert_eq!(there.usage().serving, 2);
    drop((plain, lending));
    settle(both);
    assert_eq!((here.stats().calls_cancelled, there.stats().cancelled_by_caller), (2, 2));
    assert!(into.is_unique());
}

#[test]
fn every_end_is_an_end_of_the_wait() {
    let (here, there, _, client) = gate();
    let both = &[&here, &there];
    let hasty = client.with(CallOptions::default().timeout(Duration::from_millis(20)));
    let mut late = hasty.pass(1);
    assert!(!run(both, late.ready_within(SHORT)));
    assert!(run(both, late.ready_within(LONG)), "its time limit has passed");
    assert!(matches!(run(both, late), Err(CallError::Deadline { .. })));

    // One that was never sent has its outcome from the beginning.
    let nowhere = here.target(&"tcp://127.0.0.1:1".parse().unwrap());
    let method = Method::named("Gate::none").of::<u64, u64>();
    let mut call = nowhere.call::<u64, u64>(method, &CallOptions::default(), &1);
    assert!(call.is_ready() && call.wait_for(Duration::ZERO));
    assert!(matches!(run(both, call), Err(CallError::Unresolved { .. })));

    let mut lost = client.pass(1);
    assert!(!run(both, lost.ready_within(SHORT)));
    here.shut_down();
    assert!(lost.is_ready() && run(both, lost.ready_within(LONG)));
    assert!(matches!(run(both, lost), Err(CallError::EngineEnded)));
}

/// The blocking face drives the engine, and is woken by the answer.
#[test]
fn a_thread_that_blocks_for_a_time() {
    let endpoint = || Box::new(petasos_self::Local::open(&"self://*".parse().unwrap()).unwrap());
    let nap = Method::named("Gate::nap").of::<u64, u64>();
    let server = EngineThread::start(endpoint(), EngineConfig::default(), move |engine| {
        let sleep = |context: Context, millis: u64| async move {
            context.engine().sleep(Duration::from_millis(millis)).await;
            millis
        };
        engine.register(nap, 0, serve(sleep));
    })
    .unwrap();
    let engine = Engine::new(endpoint(), EngineConfig::default());
    let target = engine.target(server.handle().address());
    let options = CallOptions::default();
    let mut calls = [60u64, 5, 0].map(|millis| target.call::<u64, u64>(nap, &options, &millis));
    assert!(!calls[0].wait_for(SHORT), "it sleeps for longer");
    for call in calls.iter_mut().rev() {
        assert!(call.wait_for(LONG) && call.is_ready());
    }
    for (call, millis) in calls.into_iter().zip([60, 5, 0]) {
        assert_eq!(engine.block_on(call).unwrap(), millis);
    }

    // Work on another thread's engine.
    let mut work = server.handle().run(|engine| async move {
        engine.sleep(Duration::from_millis(60)).await;
        9
    });
    assert_eq!(work.wait_for(SHORT), None);
    assert_eq!(work.wait_for(LONG), Some(Ok(9)));
    let mut never = server.handle().run(|_| std::future::pending::<()>());
    assert_eq!(never.wait_for(SHORT), None);
    drop(server);
    assert_eq!(never.wait_for(LONG), Some(Err(ThreadError::Ended)));
}
