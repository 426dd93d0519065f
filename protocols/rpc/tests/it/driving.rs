//! The ways to drive an engine: a thread of its own, an event loop of the program, tokio; and its
//! counters.

use crate::common::{engine, engine_with, run, settle};
use petasos_fabric::{Address, Endpoint};
use petasos_rpc::{
    CallError, CallOptions, Context, Engine, EngineConfig, EngineThread, Idle, Method, ThreadError,
    serve,
};
use petasos_wire::Wire;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    cell::Cell,
    rc::Rc,
    task::{Context as PollContext, Poll, Waker},
    time::Duration,
};

const DOUBLE: Method = Method::typed("Double::double", u64::SHAPE, u64::SHAPE);

fn endpoint() -> Box<dyn Endpoint> {
    let any: Address = "self://*".parse().unwrap();
    Box::new(petasos_self::Local::open(&any).unwrap())
}

/// A server with a thread of its own.
fn server() -> EngineThread {
    EngineThread::start(endpoint(), EngineConfig::default(), |engine| {
        engine.register(DOUBLE, 0, serve(|_: Context, n: u64| async move { 2 * n }));
    })
    .unwrap()
}

fn double(engine: &Engine, at: &Address, n: u64) -> impl Future<Output = Result<u64, CallError>> {
    engine.target(at).call(DOUBLE, &CallOptions::default(), &n)
}

#[test]
fn many_threads_call_through_one_engine() {
    let server = server();
    let client = EngineThread::start(endpoint(), EngineConfig::default(), |_| ()).unwrap();
    std::thread::scope(|threads| {
        for thread in 0..4u64 {
            let (handle, at) = (client.handle().clone(), server.handle().address().clone());
            threads.spawn(move || {
                for n in 0..200 {
                    let (n, at) = (1000 * thread + n, at.clone());
                    let call = handle
                        .run(move |engine| async move { double(&engine, &at, n).await.unwrap() });
                    assert_eq!(call.wait(), Ok(2 * n));
                }
            });
        }
    });
    let handle = client.handle().clone();
    drop(client);
    assert_eq!(handle.run(|_| async { 1 }).wait(), Err(ThreadError::Ended));
}

#[test]
fn work_that_waits_for_a_busy_engine_is_bounded() {
    let server = server();
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begun, waits) = std::sync::mpsc::channel();
    // The engine's thread does nothing else until it is released.
    let blocked = server.handle().run(move |_| {
        begun.send(()).unwrap();
        held.recv().ok();
        async {}
    });
    waits.recv().unwrap();
    let work = |n: u32| server.handle().run(move |_| async move { n });
    let running: Vec<_> = (0..70_000).map(work).collect();
    release.send(()).unwrap();
    blocked.wait().unwrap();
    let ends: Vec<_> = running.into_iter().map(petasos_rpc::Running::wait).collect();
    let done = ends.iter().filter(|end| end.is_ok()).count();
    assert_eq!(done, 65_536);
    assert!(ends[done..].iter().all(|end| *end == Err(ThreadError::Full)));
    assert_eq!(work(1).wait(), Ok(1), "it takes work again");
}

#[test]
fn each_way_to_be_idle() {
    let server = server();
    for idle in [Idle::Spin, Idle::Adaptive(Duration::from_micros(20)), Idle::Sleep] {
        let mut config = EngineConfig::default();
        config.idle = idle;
        let client = Engine::new(endpoint(), config);
        for n in 0..200 {
            let call = double(&client, server.handle().address(), n);
            assert_eq!(client.block_on(call).unwrap(), 2 * n, "{idle:?}");
        }
    }
}

#[test]
fn an_event_loop_of_ones_own() {
    let server = server();
    let client = engine();
    let fd = client.fd().expect("a descriptor to sleep on");
    let mut context = PollContext::from_waker(Waker::noop());
    for n in 0..200 {
        let mut call = std::pin::pin!(double(&client, server.handle().address(), n));
        loop {
            let busy = client.progress();
            if let Poll::Ready(result) = call.as_mut().poll(&mut context) {
                assert_eq!(result.unwrap(), 2 * n);
                break;
            }
            if busy {
                continue;
            }
            if let Some(longest) = client.arm() {
                let longest = Timespec::try_from(longest.min(Duration::from_secs(5))).unwrap();
                poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&longest)).unwrap();
                client.awake();
            }
        }
    }
}

#[cfg(feature = "tokio")]
#[test]
fn within_tokio() {
    let server = server();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = engine();
        for n in 0..100 {
            let call = double(&client, server.handle().address(), n);
            let result = petasos_rpc::tokio::drive(&client, call).await.unwrap();
            assert_eq!(result.unwrap(), 2 * n);
        }
        // A future of tokio's own is waited for, too.
        let sleep = tokio::time::sleep(Duration::from_millis(5));
        petasos_rpc::tokio::drive(&client, sleep).await.unwrap();
    });
}

#[test]
fn a_task_that_panics_does_not_stop_the_engine() {
    let (client, server) = (engine(), server());
    let done = Rc::new(Cell::new(0));
    let other = |done: &Rc<Cell<u32>>| {
        let done = Rc::clone(done);
        async move { done.set(done.get() + 1) }
    };
    client.spawn(other(&done));
    client.spawn(async { panic!("a task of the user's") });
    client.spawn(other(&done));
    let turn = std::panic::AssertUnwindSafe(|| client.progress());
    assert!(std::panic::catch_unwind(turn).is_err(), "the panic is the caller's");
    client.progress();
    assert_eq!(done.get(), 2, "the other tasks go on without being woken again");
    let call = double(&client, server.handle().address(), 21);
    assert_eq!(client.block_on(call).unwrap(), 42);
    assert_eq!(client.usage().tasks, 0);
}

#[test]
fn latencies_and_counters() {
    let measured = || {
        let mut config = EngineConfig::default();
        config.measure = true;
        engine_with(config)
    };
    let (client, server) = (measured(), measured());
    server.register(DOUBLE, 0, serve(|_: Context, n: u64| async move { 2 * n }));
    for n in 0..50 {
        run(&[&client, &server], double(&client, server.address(), n)).unwrap();
    }
    settle(&[&client, &server]);
    for stats in [client.stats(), server.stats()] {
        let methods = stats.methods();
        assert_eq!((methods.len(), methods[0].method, methods[0].count), (1, DOUBLE.name, 50));
        assert!(methods[0].p50_ns > 0 && methods[0].p50_ns <= methods[0].max_ns);
    }
    assert_eq!((client.stats().calls_made, server.stats().calls_served), (50, 50));
}
