//! Calls: results, errors, deadlines, cancellation, credit, sizes.

use crate::common::{engine, engine_with, run, settle, turn_for};
use petasos_fabric::Address;
use petasos_rpc::{
    CallError, CallOptions, Context, EngineConfig, Failure, Incoming, Method, serve,
};
use petasos_wire::{Encoding, Wire};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

const ADD: Method = Method::typed("Sum::add", <(u64, u64)>::SHAPE, u64::SHAPE);
const ECHO: Method = Method::typed("Echo::echo", <Vec<u8>>::SHAPE, <Vec<u8>>::SHAPE);
const WAIT: Method = Method::raw("Wait::forever");

fn options() -> CallOptions {
    CallOptions::default()
}

fn echo() -> impl petasos_rpc::Handler {
    serve(|_: Context, bytes: Vec<u8>| async { bytes })
}

/// A handler that never answers, and counts those at work.
fn waiting(at_work: &Rc<Cell<i32>>) -> impl petasos_rpc::Handler + use<> {
    struct Count(Rc<Cell<i32>>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.set(self.0.get() - 1);
        }
    }
    let at_work = Rc::clone(at_work);
    move |_: Incoming| -> petasos_rpc::HandlerFuture {
        at_work.set(at_work.get() + 1);
        let count = Count(Rc::clone(&at_work));
        Box::pin(async move {
            let _count = count;
            std::future::pending().await
        })
    }
}

#[test]
fn a_call_has_a_result_in_both_encodings_and_with_checksums() {
    let (client, server) = (engine(), engine());
    server.register(ADD, 0, serve(|_, (a, b): (u64, u64)| async move { a + b }));
    let target = client.target(server.address());
    for encoding in [Encoding::Native, Encoding::Xdr] {
        for options in [options().encoding(encoding), options().encoding(encoding).checked()] {
            let sum =
                run(&[&client, &server], target.call::<_, u64>(ADD, &options, &(40u64, 2u64)));
            assert_eq!(sum.unwrap(), 42);
        }
    }
    settle(&[&client, &server]);
}

#[test]
fn sizes_from_nothing_to_megabytes() {
    let (client, server) = (engine(), engine());
    server.register(ECHO, 0, echo());
    let target = client.target(server.address());
    for size in [0, 1, 63, 64, 4000, 4096, 65_536, 65_537, 1 << 20, 5_000_001] {
        for options in [options(), options().checked()] {
            let bytes: Vec<u8> = (0..size).map(|at| (at * 7 % 251) as u8).collect();
            let back: Vec<u8> =
                run(&[&client, &server], target.call(ECHO, &options, &bytes)).unwrap();
            assert!(back == bytes, "{size} bytes");
        }
    }
    settle(&[&client, &server]);
}

#[test]
fn what_does_not_fit_is_refused_by_the_limit() {
    let (client, server) = (
        engine(),
        engine_with({
            let mut config = EngineConfig::default();
            config.max_body = 100_000;
            config
        }),
    );
    server.register(ECHO, 0, echo());
    let target = client.target(server.address());
    let result: Result<Vec<u8>, _> =
        run(&[&client, &server], target.call(ECHO, &options(), &vec![0u8; 200_000]));
    assert!(matches!(result, Err(CallError::TooLarge { .. })), "{result:?}");
    settle(&[&client, &server]);
}

#[test]
fn errors_name_the_peer_and_the_method() {
    let (client, server) = (engine(), engine());
    server.register(ADD, 3, serve(|_, (a, b): (u64, u64)| async move { a + b }));
    server.register(ECHO, 0, |_: Incoming| -> petasos_rpc::HandlerFuture { panic!("oh dear") });
    let target = client.target(server.address());
    let both = [&client, &server];
    let call = |method, options: &CallOptions| {
        run(&both, target.call::<_, u64>(method, options, &(1u64, 2u64))).unwrap_err()
    };
    let error = call(WAIT, &options());
    assert!(matches!(error, CallError::NoSuchMethod { .. }));
    assert!(error.to_string().contains(server.address().as_str()), "{error}");
    assert!(error.to_string().contains("Wait::forever"), "{error}");
    assert!(matches!(call(ADD, &options()), CallError::NoSuchProvider { provider: 0, .. }));
    let other = Method::typed("Sum::add", u64::SHAPE, u64::SHAPE);
    let error = call(other, &options().provider(3));
    let expected = (other.signature, ADD.signature);
    assert!(
        matches!(error, CallError::SignatureMismatch { ours, theirs, .. } if (ours, theirs) == expected)
    );
    let error = call(ECHO, &options());
    assert!(matches!(&error, CallError::Failed { reason, .. } if reason.contains("oh dear")));
    let garbled = target.call_raw(ADD, &options().provider(3), |_, out| out.push(1));
    let error = run(&both, garbled).unwrap_err();
    assert!(matches!(error, CallError::BadArguments { .. }), "{error}");
    assert_eq!(
        run(&both, target.call::<_, u64>(ADD, &options().provider(3), &(1u64, 2u64))).unwrap(),
        3
    );
    settle(&both);
}

#[test]
fn a_deadline_ends_the_call_on_both_sides() {
    let (client, server) = (engine(), engine());
    let at_work = Rc::new(Cell::new(0));
    server.register(WAIT, 0, waiting(&at_work));
    let target = client.target(server.address());
    let options = options().timeout(Duration::from_millis(30));
    let call = target.call_raw(WAIT, &options, |_, _| ());
    let error = run(&[&client, &server], call).unwrap_err();
    assert!(matches!(error, CallError::Deadline { .. }));
    settle(&[&client, &server]);
    assert_eq!(at_work.get(), 0);
}

#[test]
fn a_target_stops_by_itself_when_the_time_is_over() {
    let (client, server) = (engine(), engine());
    let at_work = Rc::new(Cell::new(0));
    server.register(WAIT, 0, waiting(&at_work));
    let target = client.target(server.address());
    let options = options().timeout(Duration::from_millis(50));
    let call = target.call_raw(WAIT, &options, |_, _| ());
    turn_for(&[&client, &server], Duration::from_millis(10));
    assert_eq!(at_work.get(), 1);
    // The caller stands still: nothing of it cancels the call.
    turn_for(&[&server], Duration::from_millis(100));
    assert_eq!(at_work.get(), 0);
    assert_eq!(server.stats().served_too_late, 1);
    assert!(matches!(run(&[&client], call), Err(CallError::Deadline { .. })));
    settle(&[&client, &server]);
}

#[test]
fn dropping_a_call_cancels_the_handler() {
    let (client, server) = (engine(), engine());
    let at_work = Rc::new(Cell::new(0));
    server.register(WAIT, 0, waiting(&at_work));
    let target = client.target(server.address());
    let calls: Vec<_> = (0..10).map(|_| target.call_raw(WAIT, &options(), |_, _| ())).collect();
    turn_for(&[&client, &server], Duration::from_millis(10));
    assert_eq!(at_work.get(), 10);
    drop(calls);
    settle(&[&client, &server]);
    assert_eq!(at_work.get(), 0);
    assert_eq!(server.stats().cancelled_by_caller, 10);
}

#[test]
fn one_way_calls_arrive_and_leave_nothing() {
    let (client, server) = (engine(), engine());
    let seen = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&seen);
    server.register(
        ECHO,
        0,
        serve(move |_, line: Vec<u8>| {
            log.borrow_mut().push(line);
            async { Vec::<u8>::new() }
        }),
    );
    let target = client.target(server.address());
    for line in 0..100u8 {
        target.notify(ECHO, &options(), &vec![line]).unwrap();
    }
    let too_large = target.notify(ECHO, &options(), &vec![0u8; 10_000_000]);
    assert!(matches!(too_large, Err(CallError::TooLarge { .. })));
    turn_for(&[&client, &server], Duration::from_millis(20));
    assert_eq!(client.stats().one_way_made, 100);
    settle(&[&client, &server]);
    assert_eq!(*seen.borrow(), (0..100u8).map(|line| vec![line]).collect::<Vec<_>>());
}

#[test]
fn calls_to_oneself() {
    let engine = engine();
    engine.register(ECHO, 0, echo());
    let target = engine.target(engine.address());
    for size in [3, 300_000] {
        let bytes = vec![5u8; size];
        let back: Vec<u8> = engine.block_on(target.call(ECHO, &options(), &bytes)).unwrap();
        assert!(back == bytes);
    }
    settle(&[&engine]);
}

#[test]
fn answers_in_any_order_and_from_other_threads() {
    let (client, server) = (engine(), engine());
    let held = Rc::new(RefCell::new(Vec::new()));
    let hold = Rc::clone(&held);
    server.register(ECHO, 0, move |incoming: Incoming| {
        incoming.later(|incoming, responder| hold.borrow_mut().push((incoming.to_vec(), responder)))
    });
    let target = client.target(server.address());
    let calls: Vec<_> =
        (0..8u8).map(|n| target.call_raw(ECHO, &options(), |_, out| out.push(n))).collect();
    turn_for(&[&client, &server], Duration::from_millis(5));
    let mut held = std::mem::take(&mut *held.borrow_mut());
    assert_eq!(held.len(), 8);
    let (_, dropped) = held.pop().unwrap();
    drop(dropped);
    let thread = std::thread::spawn(move || {
        while let Some((bytes, responder)) = held.pop() {
            assert!(!responder.is_cancelled());
            responder.respond(Ok(bytes));
        }
    });
    for (n, call) in calls.into_iter().enumerate() {
        let result = run(&[&client, &server], call);
        if n == 7 {
            assert!(matches!(result, Err(CallError::Failed { .. })));
        } else {
            assert_eq!(result.unwrap(), [n as u8]);
        }
    }
    thread.join().unwrap();
    settle(&[&client, &server]);
}

#[test]
fn credit_bounds_what_a_target_holds_and_nothing_is_lost() {
    let (client, server) = (
        engine(),
        engine_with({
            let mut config = EngineConfig::default();
            config.calls_per_peer = 8;
            config
        }),
    );
    let most = Rc::new(Cell::new(0));
    let now = Rc::new(Cell::new(0));
    let (max, count) = (Rc::clone(&most), Rc::clone(&now));
    server.register(
        ECHO,
        0,
        serve(move |context: Context, bytes: Vec<u8>| {
            count.set(count.get() + 1);
            max.set(max.get().max(count.get()));
            let count = Rc::clone(&count);
            async move {
                let engine = context.engine();
                let own = engine.target(engine.address());
                // Some turns pass.
                let _ = own.call_raw(WAIT, &CallOptions::default(), |_, _| ()).await;
                count.set(count.get() - 1);
                bytes
            }
        }),
    );
    let target = client.target(server.address());
    // The first call tells the window.
    run(&[&client, &server], target.call::<_, Vec<u8>>(ECHO, &options(), &vec![0u8])).unwrap();
    let calls: Vec<_> =
        (0..200u8).map(|n| target.call::<_, Vec<u8>>(ECHO, &options(), &vec![n])).collect();
    assert!(client.usage().waiting >= 190);
    let all = futures_util::future::join_all(calls);
    for (n, result) in run(&[&client, &server], all).into_iter().enumerate() {
        assert_eq!(result.unwrap(), [n as u8]);
    }
    assert!(most.get() <= 8, "{} calls at a time", most.get());
    settle(&[&client, &server]);
}

#[test]
fn a_busy_target_says_so() {
    let (client, server) = (
        engine(),
        engine_with({
            let mut config = EngineConfig::default();
            config.calls_in_all = 4;
            config
        }),
    );
    let at_work = Rc::new(Cell::new(0));
    server.register(WAIT, 0, waiting(&at_work));
    let target = client.target(server.address());
    let held: Vec<_> = (0..4).map(|_| target.call_raw(WAIT, &options(), |_, _| ())).collect();
    turn_for(&[&client, &server], Duration::from_millis(5));
    let error = run(&[&client, &server], target.call_raw(WAIT, &options(), |_, _| ())).unwrap_err();
    assert!(matches!(error, CallError::Busy { retry_after, .. } if !retry_after.is_zero()));
    drop(held);
    settle(&[&client, &server]);
}

#[test]
fn a_server_that_ends_fails_its_calls_and_its_successor_is_found() {
    let client = engine();
    let name = "self://restarted-server";
    let open = || {
        let endpoint = petasos_self::Local::open(&name.parse().unwrap()).unwrap();
        let server = petasos_rpc::Engine::new(Box::new(endpoint), EngineConfig::default());
        server.register(WAIT, 0, waiting(&Rc::default()));
        server.register(ECHO, 0, echo());
        server
    };
    let target = client.target(&Address::parse(name).unwrap());
    let server = open();
    let bytes = vec![1u8; 100_000];
    let calls: Vec<_> = (0..100).map(|_| target.call_raw(WAIT, &options(), |_, _| ())).collect();
    turn_for(&[&client, &server], Duration::from_millis(5));
    drop(server);
    for call in calls {
        let error = run(&[&client], call).unwrap_err();
        assert!(matches!(&error, CallError::PeerLost { peer, .. } if peer.as_str() == name));
    }
    settle(&[&client]);
    let server = open();
    let back: Vec<u8> = run(&[&client, &server], target.call(ECHO, &options(), &bytes)).unwrap();
    assert!(back == bytes);
    settle(&[&client, &server]);
}

#[test]
fn a_client_that_ends_leaves_nothing_at_the_server() {
    let (client, server) = (engine(), engine());
    let at_work = Rc::new(Cell::new(0));
    server.register(WAIT, 0, waiting(&at_work));
    let target = client.target(server.address());
    let calls: Vec<_> = (0..20).map(|_| target.call_raw(WAIT, &options(), |_, _| ())).collect();
    turn_for(&[&client, &server], Duration::from_millis(5));
    assert_eq!(server.usage().serving, 20);
    drop((calls, target, client));
    settle(&[&server]);
    assert_eq!(at_work.get(), 0);
}

#[test]
fn a_handler_may_refuse() {
    let (client, server) = (engine(), engine());
    server.register(WAIT, 0, |_: Incoming| -> petasos_rpc::HandlerFuture {
        Box::pin(std::future::ready(Err(Failure::Failed("not today".into()))))
    });
    let target = client.target(server.address());
    let error = run(&[&client, &server], target.call_raw(WAIT, &options(), |_, _| ())).unwrap_err();
    assert!(error.to_string().contains("not today"));
}
