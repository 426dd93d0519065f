//! A call or transfer is under way when the method has returned; the future only waits.

use crate::common::{engine, run, settle, turn_for};
use petasos_fabric::{Access, AtomicOp, AtomicType, Region};
use petasos_rpc::{CallError, Engine, service};
use std::{cell::Cell, future::poll_fn, rc::Rc, task::Poll, time::Duration};

/// Calls at a time.
const MANY: usize = 16;

#[service]
trait Store {
    async fn plain(&self, key: u64) -> u64;
    async fn put(&self, key: u64, #[bulk(pull)] data: Region) -> u64;
    async fn get(&self, key: u64, #[bulk(push)] into: Region) -> u64;
}

/// Answers no call before all have arrived.
#[derive(Clone, Default)]
struct Together(Rc<Cell<usize>>);

impl Together {
    async fn come(&self) {
        self.0.update(|come| come + 1);
        let all = poll_fn(|context| match self.0.get() >= MANY {
            true => Poll::Ready(()),
            false => {
                context.waker().wake_by_ref();
                Poll::Pending
            }
        });
        all.await;
    }
}

impl Store for Together {
    async fn plain(&self, key: u64) -> u64 {
        self.come().await;
        key
    }

    async fn put(&self, key: u64, data: Region) -> u64 {
        self.come().await;
        assert_eq!(data.to_vec(), vec![key as u8; 10_000]);
        key
    }

    async fn get(&self, key: u64, into: Region) -> u64 {
        self.come().await;
        into.write(0, &vec![key as u8; into.len()]);
        key
    }
}

/// Turns the engines, and polls no future, until all calls have come.
fn until_all_come(engines: &[&Engine], store: &Together) {
    for _ in 0..500 {
        turn_for(engines, Duration::from_millis(2));
        if store.0.get() == MANY {
            return;
        }
    }
    panic!("{} of {MANY} calls are under way before one is waited for", store.0.get());
}

#[test]
fn calls_of_all_kinds_overlap_before_one_is_waited_for() {
    let (there, here) = (engine(), engine());
    let (both, store) = ([&there, &here], Together::default());
    store.clone().serve(&there, 0).unwrap();
    let client = StoreClient::new(&here, there.address());

    let calls: Vec<_> = (0..MANY as u64).map(|key| client.plain(key)).collect();
    until_all_come(&both, &store);
    for (key, call) in calls.into_iter().enumerate() {
        assert_eq!(run(&both, call).unwrap(), key as u64);
    }

    store.0.set(0);
    let data = |key| vec![key as u8; 10_000];
    let puts: Vec<_> = (0..MANY as u64).map(|key| client.put(key, data(key))).collect();
    until_all_come(&both, &store);
    for (key, put) in puts.into_iter().enumerate() {
        assert_eq!(run(&both, put).unwrap(), key as u64);
    }

    store.0.set(0);
    let into: Vec<Region> = (0..MANY).map(|_| Region::zeroed(10_000)).collect();
    let gets = into.iter().zip(0u64..).map(|(into, key)| client.get(key, into));
    let gets: Vec<_> = gets.collect();
    until_all_come(&both, &store);
    for (key, get) in gets.into_iter().enumerate() {
        assert_eq!(run(&both, get).unwrap(), key as u64);
    }
    for (key, into) in into.into_iter().enumerate() {
        let exclusive = into.into_exclusive().expect("it is ours again");
        assert_eq!(exclusive[..], data(key as u64));
    }
    settle(&both);
}

#[test]
fn a_call_that_lends_memory_is_cancelled_when_it_is_dropped() {
    let (there, here) = (engine(), engine());
    let (both, store) = ([&there, &here], Together::default());
    store.clone().serve(&there, 0).unwrap();
    let client = StoreClient::new(&here, there.address());
    let into = Region::zeroed(10_000);
    let calls = (client.put(1, vec![1; 10_000]), client.get(2, &into));
    for _ in 0..500 {
        if store.0.get() == 2 {
            break;
        }
        turn_for(&both, Duration::from_millis(2));
    }
    assert_eq!((store.0.get(), there.usage().serving), (2, 2), "they are under way");
    drop(calls);
    settle(&both);
    assert_eq!(there.stats().cancelled_by_caller, 2);
    assert!(into.into_exclusive().is_ok(), "the engine holds it no longer");
}

#[test]
fn errors_of_the_memory_come_with_the_future() {
    let (there, here) = (engine(), engine());
    let client = StoreClient::new(&here, there.address());
    here.shut_down();
    let into = Region::zeroed(10);
    let error = run(&[&there, &here], client.get(1, &into)).unwrap_err();
    assert!(!matches!(error, CallError::BadResult { .. }), "{error}");
}

#[test]
fn transfers_are_under_way_before_they_are_waited_for() {
    let (there, here) = (engine(), engine());
    let both = [&there, &here];
    let theirs = Region::zeroed(8192);
    let bulk = there.bulk(theirs.clone(), Access::ALL).unwrap();
    let open = here.open(&bulk.handle()).unwrap();
    let key = there.export(theirs.clone(), Access::ALL).unwrap();
    let memory = here.import(key.key()).unwrap();

    // One after the other, none of them polled.
    let push = open.push(0, vec![7; 4096].into());
    let put = memory.put(4096, vec![9; 4096].into());
    for _ in 0..500 {
        turn_for(&both, Duration::from_millis(2));
        if theirs.to_vec() == [[7; 4096], [9; 4096]].concat() {
            break;
        }
    }
    assert_eq!(theirs.to_vec(), [[7; 4096], [9; 4096]].concat());
    let (pushed, put) = run(&both, async { (push.await.unwrap(), put.await.unwrap()) });
    assert_eq!((pushed.len(), put.to_vec()), (4096, vec![9; 4096]));

    let pull = open.pull(4096, 10);
    let get = memory.get(0, vec![0; 10].into());
    let add = memory.atomic(0, AtomicOp::Sum, AtomicType::U64, &1u64.to_le_bytes(), &[]);
    turn_for(&both, Duration::from_millis(20));
    drop((open, memory));
    let (pulled, got, added) = run(&both, async { (pull.await, get.await, add.await) });
    assert_eq!(pulled.unwrap().to_vec(), [9; 10]);
    assert_eq!(got.unwrap().to_vec(), [7; 10]);
    assert_eq!(added.unwrap()[..], [7; 8]);

    // What others wrote is seen through what describes the memory, also when that is all there is.
    assert_eq!(bulk.pieces().map(|piece| piece.len()).sum::<usize>(), 8192);
    assert_eq!(key.memory().to_vec()[..2], [8, 7]);
    drop(theirs);
    let closing = (bulk.close(), key.close());
    turn_for(&both, Duration::from_millis(20));
    assert_eq!(there.usage().operations, 1, "the key's has ended, and is not awaited yet");
    run(&both, async { (closing.0.await.unwrap(), closing.1.await.unwrap()) });
    settle(&both);
}
