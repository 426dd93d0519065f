//! Memory that is given back before the call is answered: by the handler, or by the library.

use crate::common::{engine, engine_over, run, settle, turn_for};
use petasos_fabric::{Access, Clock, Endpoint, Region};
use petasos_rpc::{
    BulkCall, BulkError, BulkHandle, CallError, CallOptions, Context, Engine, EngineConfig, Lent,
    Method, Pieces, serve, service,
};
use petasos_self::Local;
use petasos_wire::{Wire, rpc};
use std::{cell::Cell, pin::pin, rc::Rc, task, time::Duration};

const LEN: usize = 100_000;
const KEEP: Method =
    Method::typed("Release::keep", BulkHandle::SHAPE, <Result<u64, String>>::SHAPE);

/// What a handler waits for.
#[derive(Clone, Default)]
struct Gate(Rc<Cell<bool>>);

impl Gate {
    async fn open(&self, context: &Context) {
        while !self.0.get() {
            context.engine().sleep(Duration::from_micros(100)).await;
        }
    }
}

#[service]
trait Store {
    /// Waits when it has the data.
    async fn slow(&self, context: Context, #[bulk(pull)] data: Region) -> u64;
    async fn quick(&self, #[bulk(pull)] data: Region) -> u64;
    /// Waits, and then fills the second.
    async fn both(
        &self,
        context: Context,
        #[bulk(pull)] data: Region,
        #[bulk(push)] into: Region,
    ) -> u64;
}

impl Store for Gate {
    async fn slow(&self, context: Context, data: Region) -> u64 {
        self.open(&context).await;
        data.to_vec().iter().map(|byte| u64::from(*byte)).sum()
    }

    async fn quick(&self, data: Region) -> u64 {
        data.len() as u64
    }

    async fn both(&self, context: Context, data: Region, into: Region) -> u64 {
        self.open(&context).await;
        into.write(0, &vec![7; into.len()]);
        data.len() as u64
    }
}

/// A handler that takes what it needs, gives the memory back, and waits at the gate. It then tries
/// to reach the memory once more, by this descriptor and by another copy of it.
fn keeps(engine: &Engine, gate: &Gate) {
    let gate = gate.clone();
    let keep = serve(move |context: Context, handle: BulkHandle| {
        let gate = gate.clone();
        async move {
            let (memory, copy) = open_twice(&context, &handle)?;
            let sum = memory.pull(0, memory.len()).await?.to_vec();
            memory.release();
            memory.release();
            gate.open(&context).await;
            for end in [
                memory.pull(0, 10).await.map(drop),
                memory.push(0, vec![9; 10].into()).await.map(drop),
            ] {
                if !matches!(end, Err(BulkError::Released)) {
                    return Err(format!("what was given back is used: {end:?}"));
                }
            }
            for end in
                [copy.pull(0, 10).await.map(drop), copy.push(0, vec![9; 10].into()).await.map(drop)]
            {
                if !matches!(end, Err(BulkError::Transfer(_))) {
                    return Err(format!("its owner lets it be used: {end:?}"));
                }
            }
            copy.release();
            Ok(sum.iter().map(|byte| u64::from(*byte)).sum::<u64>())
        }
    });
    engine.register(KEEP, 0, keep);
}

fn open_twice(
    context: &Context,
    handle: &BulkHandle,
) -> Result<(petasos_rpc::RemoteBulk, petasos_rpc::RemoteBulk), BulkError> {
    Ok((context.engine().open(handle)?, context.engine().open(handle)?))
}

fn pairs() -> impl Iterator<Item = (Engine, Engine)> {
    ["self://*", "shm://*", "tcp://127.0.0.1:0"].into_iter().map(|at| {
        let open = || engine_over(at, EngineConfig::default());
        (open(), open())
    })
}

fn poll<F: Future + Unpin>(future: &mut F) -> task::Poll<F::Output> {
    pin!(future).poll(&mut task::Context::from_waker(task::Waker::noop()))
}

#[test]
fn a_handler_gives_memory_back_and_cannot_reach_it_any_more() {
    for (here, there) in pairs() {
        for pieces in [false, true] {
            let (both, gate) = ([&here, &there], Gate::default());
            there.unregister(KEEP, 0);
            keeps(&there, &gate);
            let target = here.target(there.address());
            let region = Region::from_vec(vec![1; LEN]);
            let memory = match pieces {
                true => {
                    Pieces::of([region.slice(0, 1).unwrap(), region.slice(1, LEN - 1).unwrap()])
                }
                false => Pieces::of([region.clone()]),
            };
            let bulk = here.bulk(memory, Access::ALL).unwrap();
            let call = target.call::<_, Result<u64, String>>(
                KEEP,
                &CallOptions::default(),
                &bulk.handle(),
            );
            let mut call = pin!(call);
            assert!(!bulk.released().is_ready());
            run(&both, bulk.released());
            assert!(bulk.released().is_ready() && bulk.pieces().next().is_none());
            assert!(poll(&mut call.as_mut()).is_pending(), "the handler waits at the gate");
            // The memory is the program's, for anything: here for the next call.
            let mut exclusive = region.into_exclusive().expect("nothing else holds it");
            exclusive.fill(2);
            gate.0.set(true);
            assert_eq!(run(&both, call.as_mut()).unwrap(), Ok(LEN as u64));
            assert!(exclusive.iter().all(|byte| *byte == 2), "it was written to");
            run(&both, bulk.close()).unwrap();
        }
        settle(&[&here, &there]);
        // Another copy of the descriptor said it again.
        assert_eq!((here.stats().lent_released, here.stats().garbage), (2, 2));
    }
}

#[test]
fn the_library_gives_back_what_it_has_pulled() {
    for (here, there) in pairs() {
        let (both, gate) = ([&here, &there], Gate::default());
        gate.clone().serve(&there, 0).unwrap();
        let store = StoreClient::new(&here, there.address());

        // Not if the answer comes at once: that says the same.
        assert_eq!(run(&both, store.quick(vec![1; LEN])).unwrap(), LEN as u64);
        assert_eq!(here.stats().lent_released, 0);

        let data = Region::from_vec(vec![1; LEN]);
        let mut call = store.slow(data.clone());
        run(&both, call.released(0));
        data.into_exclusive().expect("it is ours alone").fill(9);
        assert!(poll(&mut call).is_pending());
        gate.0.set(true);
        assert_eq!(run(&both, call).unwrap(), LEN as u64);

        // What is to be written is kept until it is written.
        gate.0.set(false);
        let into = Region::zeroed(LEN);
        let mut call = store.both(vec![1; LEN], &into);
        run(&both, call.released(0));
        turn_for(&both, Duration::from_millis(2));
        assert!(!call.released(1).is_ready() && poll(&mut call).is_pending());
        gate.0.set(true);
        let written = call.released(1);
        run(&both, call).unwrap();
        assert!(written.is_ready() && into.to_vec() == [7; LEN]);

        // What travels within the descriptor is free from the beginning.
        let call = store.slow(vec![1; 10]);
        assert!(call.released(0).is_ready());
        assert_eq!(run(&both, call).unwrap(), 10);
        assert_eq!((here.stats().lent_released, here.stats().garbage), (2, 0));
        settle(&both);
    }
}

/// Without a release, the end of a call is the end of its lending, however it ends.
#[test]
fn every_end_of_a_call_gives_the_memory_back() {
    type End = fn(&Engine, &Engine, BulkCall<'static, u64>);
    let ends: [End; 5] = [
        |_, _, call| drop(call),
        |here, there, call| {
            let ended = run(&[here, there], call);
            assert!(matches!(ended, Err(CallError::Deadline { .. })), "{ended:?}");
        },
        // Nobody polls the call.
        |here, there, call| {
            let released = call.released(0);
            run(&[here, there], released);
            std::mem::forget(call);
        },
        |here, there, call| {
            there.shut_down();
            let ended = run(&[here, there], call);
            assert!(ended.is_err(), "{ended:?}");
        },
        |here, there, call| {
            here.shut_down();
            let ended = run(&[here, there], call);
            assert!(matches!(ended, Err(CallError::EngineEnded)), "{ended:?}");
        },
    ];
    let sum = Method::named("Never::sum").of::<BulkHandle, u64>();
    for end in ends {
        for (here, there) in pairs() {
            there.register(
                sum,
                0,
                serve(|_: Context, _: BulkHandle| std::future::pending::<u64>()),
            );
            let target = here.target(there.address());
            let options = CallOptions::default().timeout(Duration::from_millis(30));
            let data = Region::from_vec(vec![1; LEN]);
            let memory = [Lent::pull(data.clone())];
            let call = target.call_lending(sum, &options, memory, |[handle]| handle);
            let released = call.released(0);
            turn_for(&[&here, &there], Duration::from_millis(3));
            assert!(!released.is_ready());
            end(&here, &there, call);
            run(&[&here, &there], released);
            assert!(data.is_unique(), "the memory is the program's alone");
        }
    }
}

#[test]
fn a_call_that_cannot_be_made_lends_nothing() {
    let here = engine();
    let target = here.target(&"tcp://127.0.0.1:1".parse().unwrap());
    let sum = Method::named("Never::sum").of::<BulkHandle, u64>();
    let data = Region::from_vec(vec![1; LEN]);
    let memory = [Lent::pull(data.clone())];
    let call =
        target.call_lending::<1, _, u64>(sum, &CallOptions::default(), memory, |[handle]| handle);
    run(&[&here], call.released(0));
    assert!(data.is_unique());
    assert!(matches!(run(&[&here], call), Err(CallError::Unresolved { .. })));
    settle(&[&here]);
}

/// A peer that says it for memory that was not lent to it, or is not lent any more.
#[test]
fn who_does_not_know_the_key_gives_nothing_back() {
    let (owner, other) = (engine(), engine());
    let both = [&owner, &other];
    let bulk = owner.bulk(Region::from_vec(vec![5; LEN]), Access::READ).unwrap();
    let closed = owner.bulk(Region::zeroed(LEN), Access::READ).unwrap();
    let open = |engine: &Engine, bulk: &petasos_rpc::Bulk| engine.open(&bulk.handle()).unwrap();
    let (remote, late) = (open(&other, &bulk), open(&other, &closed));
    let own = other.bulk(Region::zeroed(LEN), Access::READ).unwrap();
    run(&both, closed.close()).unwrap();

    let mut endpoint = Local::open(&"self://*".parse().unwrap()).unwrap();
    let victim = endpoint.resolve(owner.address(), Duration::from_secs(5)).unwrap();
    let mine = endpoint.register(&Region::zeroed(64).whole(), Access::ALL).unwrap();
    let mine = endpoint.export(mine).unwrap();
    let header = rpc::give_back();
    let frames: [&[u8]; 5] = [&[], &[0], &[7; 512], &[7; 600], mine.as_bytes()];
    for key in frames {
        endpoint.inject(victim, &[&header, key]).unwrap();
    }
    let clock = Clock::start();
    for _ in 0..20 {
        endpoint.progress(clock.now(), 64, &mut Vec::new());
        owner.progress();
    }
    assert_eq!(owner.stats().garbage, frames.len() as u64);
    late.release();
    turn_for(&both, Duration::from_millis(2));
    assert_eq!((owner.stats().garbage, owner.stats().lent_released), (6, 0));
    assert!(!bulk.released().is_ready() && !own.released().is_ready());
    // Nobody is lost for that, and what is lent is there.
    assert_eq!(owner.stats().peers_lost, 0);
    assert_eq!(run(&both, remote.pull(0, 5)).unwrap().to_vec(), [5; 5]);

    // A third that was given the descriptor may use the memory, and give it back.
    let third = engine();
    open(&third, &bulk).release();
    run(&[&owner, &other, &third], bulk.released());
    assert!(run(&both, remote.pull(0, 5)).is_err());
    drop((own, bulk, remote, late));
}

/// An engine may lend to itself.
#[test]
fn calls_to_oneself_give_back_as_well() {
    let (engine, gate) = (engine(), Gate::default());
    gate.clone().serve(&engine, 0).unwrap();
    let store = StoreClient::new(&engine, engine.address());
    let data = Region::from_vec(vec![1; LEN]);
    let call = store.slow(data.clone());
    run(&[&engine], call.released(0));
    assert!(data.is_unique());
    gate.0.set(true);
    assert_eq!(run(&[&engine], call).unwrap(), LEN as u64);
    settle(&[&engine]);
}

/// A future that is polled again and again, or dropped, leaves nothing.
#[test]
fn waiting_for_a_release_costs_nothing_that_stays() {
    let (owner, other) = (engine(), engine());
    let woken = std::sync::Arc::new(Woken::default());
    let bulk = owner.bulk(Region::zeroed(LEN), Access::READ).unwrap();
    let waker = task::Waker::from(std::sync::Arc::clone(&woken));
    for _ in 0..1000 {
        let mut released = bulk.released();
        for _ in 0..3 {
            let mut context = task::Context::from_waker(&waker);
            assert!(pin!(&mut released).poll(&mut context).is_pending());
        }
    }
    // The test's own two, and one that waits.
    assert_eq!(std::sync::Arc::strong_count(&woken), 3);
    other.open(&bulk.handle()).unwrap().release();
    run(&[&owner, &other], bulk.released());
    assert_eq!(woken.0.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[derive(Default)]
struct Woken(std::sync::atomic::AtomicUsize);

impl task::Wake for Woken {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}
