//! Bulk memory: pulled, pushed, streamed, forwarded, closed.

use crate::common::{engine, run, settle, turn_for};
use petasos_fabric::{Access, AtomicOp, AtomicType, Key, Region};
use petasos_rpc::{BulkError, BulkHandle, CallOptions, Context, Method, serve};
use petasos_wire::Wire;

const SUM: Method = Method::typed("Bulk::sum", BulkHandle::SHAPE, u64::SHAPE);
const FILL: Method = Method::typed("Bulk::fill", BulkHandle::SHAPE, u64::SHAPE);
const FORWARD: Method = Method::typed("Bulk::forward", <(String, BulkHandle)>::SHAPE, u64::SHAPE);

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 253) as u8).collect()
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// Sums bulk data up in blocks of 10,000 bytes, four on the way.
async fn sum_of(context: Context, handle: BulkHandle) -> u64 {
    let bulk = context.engine().open(&handle).unwrap();
    let (mut total, mut expected) = (0, 0);
    let mut blocks = bulk.blocks(10_000, 4);
    while let Some(block) = blocks.next().await {
        let block = block.unwrap();
        assert_eq!(block.offset, expected);
        expected += block.len() as u64;
        total += sum(&block.to_vec());
    }
    assert_eq!(expected, handle.len());
    total
}

#[test]
fn the_target_pulls_in_a_pipeline_from_one_piece_and_from_several() {
    let (client, server) = (engine(), engine());
    server.register(SUM, 0, serve(sum_of));
    let target = client.target(server.address());
    for len in [0, 10, 300, 10_000, 123_456] {
        let bytes = pattern(len);
        let expected = sum(&bytes);
        let region = Region::from_vec(bytes);
        let pieces = [
            region.slice(0, len / 3).unwrap(),
            region.slice(len / 3, 0).unwrap(),
            region.slice(len / 3, len - len / 3).unwrap(),
        ];
        for bulk in [
            client.bulk(region.clone(), Access::READ).unwrap(),
            client.bulk_of(&pieces, Access::READ).unwrap(),
        ] {
            let call = target.call::<_, u64>(SUM, &CallOptions::default(), &bulk.handle());
            assert_eq!(run(&[&client, &server], call).unwrap(), expected, "{len} bytes");
        }
        drop(pieces);
        settle(&[&client, &server]);
        assert!(region.is_unique(), "the engine holds it no longer");
    }
}

#[test]
fn the_target_pushes_and_the_memory_comes_back() {
    let (client, server) = (engine(), engine());
    server.register(
        FILL,
        0,
        serve(|context: Context, handle: BulkHandle| async move {
            let bulk = context.engine().open(&handle).unwrap();
            let mut sink = bulk.sink(3);
            for (n, offset) in (0..bulk.len()).step_by(1000).enumerate() {
                let len = (bulk.len() - offset).min(1000) as usize;
                sink.push(offset, vec![n as u8; len].into()).await.unwrap();
            }
            sink.finish().await.unwrap();
            bulk.len()
        }),
    );
    let target = client.target(server.address());
    let region = Region::zeroed(12_345);
    let bulk = client.bulk(region.clone(), Access::WRITE).unwrap();
    let call = target.call::<_, u64>(FILL, &CallOptions::default(), &bulk.handle());
    assert_eq!(run(&[&client, &server], call).unwrap(), 12_345);
    run(&[&client, &server], bulk.close()).unwrap();
    let memory = region.into_exclusive().expect("nothing else holds it");
    assert!(memory.iter().enumerate().all(|(at, byte)| *byte == (at / 1000) as u8));
}

#[test]
fn a_descriptor_can_be_forwarded_to_a_third() {
    let (client, middle, last) = (engine(), engine(), engine());
    last.register(SUM, 0, serve(sum_of));
    middle.register(
        FORWARD,
        0,
        serve(|context: Context, (to, handle): (String, BulkHandle)| async move {
            let target = context.engine().target(&to.parse().unwrap());
            target.call::<_, u64>(SUM, &CallOptions::default(), &handle).await.unwrap()
        }),
    );
    let bytes = pattern(50_000);
    let expected = sum(&bytes);
    let bulk = client.bulk(bytes, Access::READ).unwrap();
    let target = client.target(middle.address());
    let arguments = (last.address().to_string(), bulk.handle());
    let call = target.call::<_, u64>(FORWARD, &CallOptions::default(), &arguments);
    assert_eq!(run(&[&client, &middle, &last], call).unwrap(), expected);
    drop(bulk);
    settle(&[&client, &middle, &last]);
}

#[test]
fn bounds_rights_and_stale_descriptors() {
    let (owner, other) = (engine(), engine());
    let both = [&owner, &other];
    let bulk = owner.bulk(pattern(5000), Access::READ).unwrap();
    let handle = bulk.handle();
    let remote = other.open(&handle).unwrap();
    let beyond = run(&both, remote.pull(4000, 1001)).unwrap_err();
    assert!(matches!(beyond, BulkError::OutOfBounds { bound: 5000, .. }));
    assert!(run(&both, remote.pull(u64::MAX, 2)).is_err());
    let denied = run(&both, remote.push(0, vec![1u8; 10].into())).unwrap_err();
    assert!(matches!(denied, BulkError::Transfer(_)), "{denied}");
    assert_eq!(run(&both, remote.pull(4999, 1)).unwrap().to_vec(), [(4999 % 253) as u8]);
    run(&both, bulk.close()).unwrap();
    assert!(run(&both, remote.pull(0, 10)).is_err(), "closed memory was read");
    drop(remote);
    settle(&both);
}

#[test]
fn dropped_transfers_leave_nothing() {
    let (owner, other) = (engine(), engine());
    let region = Region::from_vec(pattern(1 << 20));
    let bulk = owner.bulk(region.clone(), Access::READ).unwrap();
    let remote = other.open(&bulk.handle()).unwrap();
    let into = Region::zeroed(1 << 20);
    for turns in 0..50 {
        let pull = remote.pull_into(0, into.whole());
        let mut pull = Box::pin(pull);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = pull.as_mut().poll(&mut context);
        for _ in 0..turns % 5 {
            other.progress();
            owner.progress();
        }
        drop(pull);
    }
    drop((bulk, remote));
    turn_for(&[&owner, &other], std::time::Duration::from_millis(5));
    settle(&[&owner, &other]);
    assert!(region.is_unique() && into.is_unique());
}

#[test]
fn put_get_and_atomics_on_exported_memory() {
    let (owner, other) = (engine(), engine());
    let both = [&owner, &other];
    let region = owner.alloc(4096).unwrap();
    let exported = owner.export(region.clone(), Access::ALL).unwrap();
    let key = Key::from_bytes(exported.key().as_bytes().to_vec()).unwrap();
    let memory = other.import(&key).unwrap();
    run(&both, memory.put(100, vec![1, 2, 3].into())).unwrap();
    let got = run(&both, memory.get(99, vec![9; 5].into())).unwrap();
    assert_eq!(got.to_vec(), [0, 1, 2, 3, 0]);
    let add = async |n: u64| {
        memory.atomic(8, AtomicOp::Sum, AtomicType::U64, &n.to_le_bytes(), &[]).await
    };
    assert_eq!(run(&both, add(5)).unwrap()[..], 0u64.to_le_bytes());
    assert_eq!(run(&both, add(5)).unwrap()[..], 5u64.to_le_bytes());
    if let Ok(mapped) = run(&both, memory.map()) {
        let mut bytes = [0; 3];
        mapped.read(100, &mut bytes);
        assert_eq!(bytes, [1, 2, 3]);
    }
    run(&both, exported.close()).unwrap();
    assert!(run(&both, memory.get(0, vec![0; 5].into())).is_err());
}
