//! One transfer of more than 2 GiB, which the kernel does not make in one go.

use petasos::{
    Engine, EngineConfig, EngineThread, OpenOptions,
    fabric::{Access, Region},
    open,
};

const LEN: usize = (2 << 30) + (200 << 20) + 123;
/// Somewhere in each of the pieces that the kernel makes of it.
const MARKS: [usize; 5] = [0, 4096, 0x7fff_f000 - 8, 0x7fff_f000, LEN - 8];

fn pull(url: &str) {
    let open = || open(url, &OpenOptions::default()).expect("an endpoint");
    let owner = EngineThread::start(open(), EngineConfig::default(), |_| ()).expect("a thread");
    let handle = owner.handle().run(async |engine: Engine| {
        let memory = Region::zeroed(LEN);
        for at in MARKS {
            memory.write(at, &at.to_le_bytes());
        }
        let bulk = engine.bulk(memory, Access::READ).expect("memory to lend");
        let handle = bulk.handle();
        // Lent until the engine ends.
        engine.spawn(async move {
            let _bulk = bulk;
            std::future::pending().await
        });
        handle
    });
    let handle = handle.wait().expect("a descriptor");
    let engine = Engine::new(open(), EngineConfig::default());
    let bulk = engine.open(&handle).expect("a key");
    assert_eq!(bulk.len(), LEN as u64);
    let into = engine.block_on(bulk.pull_into(0, Region::zeroed(LEN).into())).expect("the data");
    for at in MARKS {
        let mut seen = [0; 8];
        into.read(at, &mut seen);
        assert_eq!(usize::from_le_bytes(seen), at, "over {url}");
    }
    let mut between = [1; 64];
    into.read(1 << 30, &mut between);
    assert_eq!(between, [0; 64]);
}

// One test, so that only one of them holds the memory at a time.
#[test]
fn more_than_two_gibibytes_in_one_transfer() {
    for url in ["shm://*", "tcp://*"] {
        pull(url);
    }
}
