//! Arrays that are given with a result, among real processes of which one is killed, stopped, or
//! scribbles: the owner's memory comes back, no process waits without an end, and what was read
//! stays what it was.

mod processes;

use petasos_rpc::{
    Borrowed, BulkError, CallOptions, Context, Engine, EngineConfig, Loan, Method, serve,
};
use petasos_testing::{Process, again, role};
use petasos_wire::Wire;
use processes::{SCHEMES, env, open};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    cell::RefCell,
    io::BufRead,
    rc::Rc,
    time::{Duration, Instant},
};

const LEN: usize = 300_000;
/// Of the first number, and for how long the array is kept at most, in milliseconds.
const RAMP: Method = Method::typed("Loans::ramp", <(u64, u64)>::SHAPE, <Loan<u64>>::SHAPE);
/// How many arrays are given and not back, and how much the process has mapped.
const GIVEN: Method = Method::typed("Loans::given", <()>::SHAPE, u64::SHAPE);
const LONG: u64 = 60_000;
const PATIENCE: Duration = Duration::from_secs(20);

fn engine(scheme: &str) -> Engine {
    Engine::new(open(scheme), EngineConfig::default())
}

fn register(engine: &Engine) {
    let ramp = |context: Context, (first, longest): (u64, u64)| async move {
        let mut array = context.engine().array::<u64>(LEN).unwrap();
        array.fill(|at| first + at as u64);
        array.give(&context, Duration::from_millis(longest))
    };
    engine.register(RAMP, 0, serve(ramp));
    let given = |context: Context, (): ()| async move { context.engine().usage().given as u64 };
    engine.register(GIVEN, 0, serve(given));
}

/// The process that has arrays.
fn owner() {
    let engine = engine(&env("SCHEME"));
    register(&engine);
    println!("\nat {}", engine.address());
    engine.block_on(std::future::pending())
}

/// The process that reads: it borrows, says so, and keeps what it has until it is told to end.
fn reader() {
    let engine = engine(&env("SCHEME"));
    let target = engine.lookup(env("AT").as_str()).unwrap();
    let options = CallOptions::default().timeout(PATIENCE);
    let arguments = (7u64, env("LONGEST").parse::<u64>().unwrap());
    let loan = engine.block_on(target.call::<_, Loan<u64>>(RAMP, &options, &arguments)).unwrap();
    let numbers = engine.block_on(engine.borrow(&loan)).unwrap();
    println!("\nborrowed {}", numbers.is_in_place());
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).unwrap();
    // Whatever has become of its owner.
    check(&numbers, 7);
    engine.give_back(&loan).unwrap();
    // Once its owner has heard of that it is closed.
    let end = Instant::now() + PATIENCE;
    while engine.block_on(engine.limit(PATIENCE, engine.borrow(&loan))).unwrap().is_ok() {
        assert!(Instant::now() < end, "what was given back stays open");
    }
    println!("\nread all");
}

fn check(numbers: &Borrowed<u64>, first: u64) {
    assert_eq!(numbers.len(), LEN);
    numbers.each_part(|at, part| {
        assert!(part.iter().zip(at as u64..).all(|(number, at)| *number == first + at));
    });
}

fn signal(process: &Process, signal: Signal) {
    kill_process(Pid::from_raw(process.id() as i32).unwrap(), signal).unwrap();
}

/// Drives the engine until this holds.
fn until(engine: &Engine, what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        engine.progress();
        assert!(Instant::now() < end, "not within {PATIENCE:?}: {what}; {:?}", engine.usage());
    }
}

/// A line that another process says, while this one's engine is driven.
fn line(engine: &Engine, process: &mut Process, prefix: &str) -> String {
    std::thread::scope(|threads| {
        let said = threads.spawn(|| process.line(prefix));
        until(engine, prefix, || said.is_finished());
        said.join().unwrap()
    })
}

fn start_reader(test: &str, scheme: &str, owner: &Engine, longest: u64) -> Process {
    again(test, "reader")
        .env("SCHEME", scheme)
        .env("AT", owner.address().as_str())
        .env("LONGEST", &longest.to_string())
        .start()
}

/// An owner in a process of its own, and an engine here that reads.
fn start_owner(test: &str, scheme: &str) -> (Process, Engine, petasos_rpc::Target) {
    let mut there = again(test, "owner").env("SCHEME", scheme).start();
    let here = engine(scheme);
    let target = here.lookup(there.line("at ").as_str()).unwrap();
    (there, here, target)
}

fn ramp(here: &Engine, target: &petasos_rpc::Target, first: u64, longest: u64) -> Loan<u64> {
    let options = CallOptions::default().timeout(PATIENCE);
    here.block_on(target.call(RAMP, &options, &(first, longest))).unwrap()
}

#[test]
fn a_reader_that_is_done_or_killed_costs_its_owner_nothing() {
    if role().is_some() {
        return reader();
    }
    let test = "a_reader_that_is_done_or_killed_costs_its_owner_nothing";
    for scheme in SCHEMES {
        let owner = engine(scheme);
        register(&owner);
        let start = || start_reader(test, scheme, &owner, LONG);
        let (mut done, mut killed) = (start(), start());
        line(&owner, &mut done, "borrowed ");
        line(&owner, &mut killed, "borrowed ");
        assert_eq!(owner.usage().given, 2);
        // One is killed in the middle of reading.
        killed.kill();
        until(&owner, "what the killed one had is back", || owner.usage().given == 1);
        done.tell("end");
        line(&owner, &mut done, "read all");
        until(&owner, "what the other one had is back", || owner.usage().given == 0);
        assert_eq!(owner.stats().lent_released, 1);
        until(&owner, "nothing is under way", || owner.usage().operations == 0);
    }
}

#[test]
fn a_reader_that_is_stopped_has_its_time() {
    if role().is_some() {
        return reader();
    }
    let test = "a_reader_that_is_stopped_has_its_time";
    for scheme in SCHEMES {
        let owner = engine(scheme);
        register(&owner);
        let mut stopped = start_reader(test, scheme, &owner, 300);
        line(&owner, &mut stopped, "borrowed ");
        signal(&stopped, Signal::STOP);
        until(&owner, "the time of the stopped one is over", || owner.usage().given == 0);
        assert_eq!(owner.stats().lent_released, 0);
        // Another one is served meanwhile.
        let mut other = start_reader(test, scheme, &owner, LONG);
        line(&owner, &mut other, "borrowed ");
        other.tell("end");
        line(&owner, &mut other, "read all");
        until(&owner, "it is done", || owner.usage().given == 0);
        // The first goes on later: what it has read it still has, and it gets nothing new.
        signal(&stopped, Signal::CONT);
        stopped.tell("end");
        line(&owner, &mut stopped, "read all");
        until(&owner, "nothing is under way", || {
            owner.usage().given + owner.usage().operations == 0
        });
    }
}

#[test]
fn an_owner_that_is_killed_or_stopped_holds_up_no_reader() {
    if role().is_some() {
        return owner();
    }
    let test = "an_owner_that_is_killed_or_stopped_holds_up_no_reader";
    for scheme in SCHEMES {
        let (mut there, here, target) = start_owner(test, scheme);
        let loans: Vec<_> = (0..3).map(|first| ramp(&here, &target, first, LONG)).collect();
        let first = here.block_on(here.borrow(&loans[0])).unwrap();
        signal(&there, Signal::STOP);
        // What was borrowed is read; what was not is waited for as long as the reader says.
        check(&first, 0);
        here.give_back(&loans[0]).unwrap();
        let limit = Duration::from_millis(300);
        let second = here.block_on(here.limit(limit, here.borrow(&loans[1])));
        match second {
            // In place, where no word of the owner's is needed.
            Ok(second) => check(&second.unwrap(), 1),
            Err(elapsed) => assert_eq!(elapsed.0, limit),
        }
        signal(&there, Signal::CONT);
        let third = here.block_on(here.limit(PATIENCE, here.borrow(&loans[2]))).unwrap().unwrap();
        check(&third, 2);
        // The word of before has arrived.
        let options = CallOptions::default().timeout(PATIENCE);
        let end = Instant::now() + PATIENCE;
        while here.block_on(target.call::<_, u64>(GIVEN, &options, &())).unwrap() > 2 {
            assert!(Instant::now() < end, "the first array is not given back");
        }
        // It is killed: what is borrowed stays, what is not is lost.
        let fourth = ramp(&here, &target, 3, LONG);
        there.kill();
        check(&third, 2);
        let fourth = here.block_on(here.limit(PATIENCE, here.borrow(&fourth))).unwrap();
        match (scheme, fourth) {
            (_, Err(BulkError::Transfer(_) | BulkError::Import(_))) => {}
            (scheme, fourth) => panic!("{scheme}: {fourth:?}"),
        }
        // Nor is it waited for: no program is to be told.
        let _ = here.give_back(&loans[2]);
        check(&third, 2);
        until(&here, "nothing is under way", || here.usage().operations == 0);
    }
}

/// A peer that says that it is done with what it was not given, and an owner that changes what it
/// has given.
#[test]
fn who_scribbles_harms_no_other() {
    for scheme in SCHEMES {
        let server = engine(scheme);
        register(&server);
        let kept = Rc::new(RefCell::new(server.array::<u64>(LEN).unwrap()));
        kept.borrow_mut().fill(|at| at as u64);
        let client = engine(scheme);
        let target = client.lookup(server.address().as_str()).unwrap();
        let together = |client: &Engine, what: &str, holds: &dyn Fn() -> bool| {
            until(client, what, || {
                server.progress();
                holds()
            });
        };
        // A loan of an array that the owner keeps itself: a reader's word does not close it.
        let loan = kept.borrow().loan();
        let borrow = |loan: &Loan<u64>| {
            let found = Rc::new(RefCell::new(None));
            let (into, borrowed) = (found.clone(), client.borrow(loan));
            client.spawn(async move { *into.borrow_mut() = Some(borrowed.await) });
            together(&client, "it is borrowed", &|| found.borrow().is_some());
            found.take().unwrap()
        };
        // So that there is a connection.
        let call = target.call::<_, Loan<u64>>(RAMP, &CallOptions::default(), &(5u64, LONG));
        together(&client, "the call", &|| call.is_ready());
        let given = client.block_on(call).unwrap();
        let garbage = server.stats().garbage;
        client.give_back(&loan).unwrap();
        client.give_back(&loan).unwrap();
        together(&client, "its word comes", &|| server.stats().garbage == garbage + 2);
        assert!(borrow(&loan).is_ok() && server.usage().given == 1);
        // The owner writes while it is read: each number that is read is one of the two.
        let in_place = borrow(&loan).unwrap();
        for round in 0..50 {
            kept.borrow_mut().fill(|at| if round % 2 == 0 { u64::MAX } else { at as u64 });
            in_place.each_part(|at, part| {
                let known = |(number, at): (&u64, u64)| *number == at || *number == u64::MAX;
                assert!(part.iter().zip(at as u64..).all(known));
            });
        }
        // What was given is given back once; the second word changes nothing.
        let numbers = borrow(&given).unwrap();
        check(&numbers, 5);
        client.give_back(&given).unwrap();
        together(&client, "it is back", &|| server.usage().given == 0);
        client.give_back(&given).unwrap();
        assert!(borrow(&given).is_err());
        check(&numbers, 5);
    }
}

#[test]
fn it_sleeps_while_it_keeps() {
    // The owner's engine is not kept awake by what it has given.
    let owner = engine("shm");
    register(&owner);
    let target = owner.target(owner.address());
    let options = CallOptions::default();
    let loan: Loan<u64> = owner.block_on(target.call(RAMP, &options, &(1u64, LONG))).unwrap();
    assert_eq!(owner.usage().given, 1);
    until(&owner, "it may sleep", || owner.arm().is_some_and(|time| time > Duration::from_secs(1)));
    owner.awake();
    owner.give_back(&loan).unwrap();
    until(&owner, "it is back", || owner.usage().given == 0);
}
