//! Answers need no lease of the caller's pool that its program keeps: who has as many results
//! unread and requests at work as there are leases still gets every answer.

use futures_util::future::join_all;
use petasos_fabric::{Endpoint, Lease};
use petasos_rpc::{Call, CallOptions, Engine, EngineConfig, Incoming, Method, Target, bytes};
use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

const LEASES: usize = 16;
/// Longer than what needs no lease, shorter than a message.
const LEN: usize = 1000;
const _: () = assert!(LEN > Lease::LINES);
const PATIENCE: Duration = Duration::from_secs(10);

fn open(scheme: &str, leases: usize) -> Box<dyn Endpoint> {
    match scheme {
        "shm" => {
            let mut config = petasos_shm::Config::default();
            config.max_leases = leases;
            Box::new(petasos_shm::Shm::open_with(&"shm://*".parse().unwrap(), config).unwrap())
        }
        _ => {
            let mut config = petasos_tcp::Config::default();
            config.limits.max_leases = leases;
            let at = "tcp://127.0.0.1:0".parse().unwrap();
            Box::new(petasos_tcp::TcpEndpoint::open(&at, config).unwrap())
        }
    }
}

fn engine(scheme: &str, leases: usize) -> Engine {
    Engine::new(open(scheme, leases), EngineConfig::default().timeout(PATIENCE))
}

fn echo() -> Method {
    Method::named("Answers::echo")
}

/// An engine that echoes.
fn server(scheme: &str) -> Engine {
    let server = engine(scheme, 4096);
    server.register(echo(), 0, bytes(|call: Incoming| async move { Ok(call.to_vec()) }));
    server
}

fn call(target: &Target, byte: usize) -> Call {
    target.call_bytes(echo(), &CallOptions::default(), &[byte as u8; LEN])
}

/// Drives all until `done`.
fn drive(engines: &[&Engine], what: &str, mut done: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !done() {
        engines.iter().for_each(|engine| {
            engine.progress();
        });
        assert!(Instant::now() < end, "{what}");
    }
}

/// The program makes calls, and reads no result before all are there.
#[test]
fn results_that_are_not_read_hold_up_no_other() {
    for scheme in ["shm", "tcp"] {
        let (here, first, second) = (engine(scheme, LEASES), server(scheme), server(scheme));
        let all = [&here, &first, &second];
        let targets = [&first, &second].map(|server| here.target(server.address()));
        for round in 0..3 {
            let calls: Vec<Call> = (0..10 * LEASES).map(|n| call(&targets[n % 2], n)).collect();
            let what = format!("answers of {scheme} wait for results that are not read");
            drive(&all, &what, || calls.iter().all(Call::is_ready));
            // In any order, and some never.
            for (n, call) in calls.into_iter().enumerate().rev() {
                if n % 3 != round {
                    let result = here.block_on(call).unwrap();
                    assert!(result == [n as u8; LEN], "call {n}");
                }
            }
        }
        drive(&all, "something stays", || here.usage().calls == 0);
    }
}

/// Handlers keep their requests, as many as there are leases, and each waits for an answer.
#[test]
fn requests_at_work_hold_up_no_answer() {
    for scheme in ["shm", "tcp"] {
        let (caller, middle, last) = (engine(scheme, 4096), engine(scheme, LEASES), server(scheme));
        let at_work = Rc::new(Cell::new(0));
        let (count, to) = (Rc::clone(&at_work), last.address().clone());
        middle.register(
            echo(),
            0,
            bytes(move |request: Incoming| {
                count.set(count.get() + 1);
                let (count, to) = (Rc::clone(&count), to.clone());
                async move {
                    let engine = request.context().engine();
                    // All of them are at work before one goes on, and keep their requests.
                    while count.get() < 4 * LEASES {
                        engine.sleep(Duration::from_micros(50)).await;
                    }
                    let target = engine.target(&to);
                    let mut result = call(&target, request[0].into()).await?;
                    result.extend_from_slice(&request);
                    Ok(result)
                }
            }),
        );
        let target = caller.target(middle.address());
        // From the first answer the caller learns how many calls it may have under way.
        let first = Method::named("Answers::first");
        middle.register(first, 0, bytes(|_| async { Ok(Vec::new()) }));
        let hello = target.call_bytes(first, &CallOptions::default(), &[]);
        drive(&[&caller, &middle], "the first answer", || hello.is_ready());
        let calls: Vec<Call> = (0..4 * LEASES).map(|n| call(&target, n)).collect();
        let what = format!("answers of {scheme} wait for requests at work");
        drive(&[&caller, &middle, &last], &what, || calls.iter().all(Call::is_ready));
        for (n, result) in caller.block_on(join_all(calls)).into_iter().enumerate() {
            assert!(result.unwrap() == [n as u8; 2 * LEN], "call {n}");
        }
        assert_eq!(at_work.get(), 4 * LEASES);
    }
}

/// A peer that sends requests without end, and reads no answer, holds up no answer of another.
#[test]
fn one_who_floods_holds_up_no_answer_of_another() {
    for scheme in ["shm", "tcp"] {
        let (flood, here, other) = (engine(scheme, 4096), engine(scheme, LEASES), server(scheme));
        here.register(
            echo(),
            0,
            bytes(|call: Incoming| async move {
                std::future::pending::<()>().await;
                drop(call);
                Ok(Vec::new())
            }),
        );
        let target = flood.target(here.address());
        let flooding: Vec<Call> = (0..20 * LEASES).map(|n| call(&target, n)).collect();
        drive(&[&flood, &here], "requests arrive", || here.usage().serving >= LEASES);
        let to = here.target(other.address());
        let what = format!("answers of {scheme} wait for requests of another");
        let calls: Vec<Call> = (0..4 * LEASES).map(|n| call(&to, n)).collect();
        drive(&[&flood, &here, &other], &what, || calls.iter().all(Call::is_ready));
        drop((flooding, calls));
    }
}
