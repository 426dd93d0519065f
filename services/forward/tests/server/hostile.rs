//! Callers that go away at any moment, and callers that send what makes no sense.

use crate::common::{
    Client, EVERYWHERE,
    random::{LENDING, METHODS, Random, any_call},
    server, until,
};
use petasos::{CallError, CallOptions};
use petasos_forward::{
    protocol::{ForwardClient, Lock, OpenFlags},
    server::{Server, ServerConfig},
};
use proptest::prelude::*;
use std::sync::atomic::Ordering::SeqCst;

fn some_files(client: &Client) -> Vec<u64> {
    let both = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
    let appended = client.open_as("c", both.with(OpenFlags::APPEND));
    let (staged, _) =
        client.wait(client.calls.stage(client.session, [9; 16], b"s".to_vec())).unwrap();
    vec![client.open("a"), client.open("b"), appended, staged]
}

/// Nothing is in use for calls, and all that a session had is gone when it ends.
fn check_idle(server: &Server, client: &Client, open: impl Fn() -> usize) {
    let status = || {
        client.engine.progress();
        server.status()
    };
    until("nothing goes on", || {
        let status = status();
        status.memory[0] == 0
            && status.queued == 0
            && status.sessions.iter().all(|it| it.calls == 0)
    });
    client.wait(client.calls.goodbye(client.session)).unwrap();
    until("all is closed", || server.status().sessions.is_empty() && open() == 0);
}

#[test]
fn dropped_at_any_moment() {
    let (server, memory) = server(ServerConfig::default());
    for (at, address) in server.addresses().iter().enumerate() {
        for seed in 0..6 {
            let mut random = Random::new(1000 * at as u64 + seed);
            let client = Client::new(address);
            let files = some_files(&client);
            memory.watch.millis.store(seed % 2, SeqCst);
            let mut under_way = Vec::new();
            for _ in 0..150 {
                let method = random.below(METHODS);
                under_way.push(any_call(&client, &mut random, method, &files));
                for _ in 0..random.below(20) {
                    client.engine.progress();
                }
                if random.below(3) > 0 {
                    let which = random.below(under_way.len() as u64) as usize;
                    drop(under_way.swap_remove(which));
                }
            }
            drop(under_way);
            memory.watch.millis.store(0, SeqCst);
            check_idle(&server, &client, || memory.watch.open.load(SeqCst));
            let after = Client::new(address);
            let file = after.open("a");
            let all = Lock { owner: 0, pid: 0, exclusive: true, start: 0, end: u64::MAX };
            after.wait(after.calls.lock(after.session, file, all, false)).unwrap();
            after.wait(after.calls.goodbye(after.session)).unwrap();
            until("all is closed", || memory.watch.open.load(SeqCst) == 0);
        }
    }
}

/// What a server may say to nonsense: anything but that it broke.
fn check<T>(result: Result<T, CallError>) -> Result<(), TestCaseError> {
    match result {
        Ok(_) | Err(CallError::BadArguments { .. } | CallError::TooLarge { .. }) => Ok(()),
        Err(error) => Err(TestCaseError::fail(error.to_string())),
    }
}

#[test]
fn nonsense_is_refused() {
    let (server, memory) = server(ServerConfig::default());
    for address in server.addresses() {
        let client = Client::new(&address);
        let files = some_files(&client);
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
            cases: 1500 / EVERYWHERE.len() as u32,
            failure_persistence: None,
            ..ProptestConfig::default()
        });
        let checked = runner.run(&(0..METHODS, any::<u64>()), |(method, seed)| {
            let call = any_call(&client, &mut Random::new(seed), method, &files);
            match client.engine.block_on(call) {
                Err(CallError::Deadline { .. }) if LENDING.contains(&method) => Ok(()),
                result => check(result),
            }
        });
        checked.unwrap();
        check_idle(&server, &client, || memory.watch.open.load(SeqCst));
    }
}

#[test]
fn bytes_that_are_no_arguments() {
    type Calls = ForwardClient;
    let methods = [
        Calls::HELLO,
        Calls::HOLD,
        Calls::GOODBYE,
        Calls::STATUS,
        Calls::STAT,
        Calls::SET_ATTR,
        Calls::OPEN_DIR,
        Calls::READ_DIR,
        Calls::MAKE_DIR,
        Calls::MAKE_SYMLINK,
        Calls::MAKE_NODE,
        Calls::READ_LINK,
        Calls::HARD_LINK,
        Calls::RENAME,
        Calls::REMOVE,
        Calls::STAT_FS,
        Calls::GET_XATTR,
        Calls::LIST_XATTR,
        Calls::SET_XATTR,
        Calls::REMOVE_XATTR,
        Calls::OPEN,
        Calls::CLOSE,
        Calls::READ,
        Calls::READ_INTO,
        Calls::WRITE,
        Calls::WRITE_FROM,
        Calls::SYNC,
        Calls::ALLOCATE,
        Calls::EXTENTS,
        Calls::HASHES,
        Calls::LOCK,
        Calls::UNLOCK,
        Calls::TEST_LOCK,
        Calls::PUT,
        Calls::GET,
        Calls::STAGE,
        Calls::PUBLISH,
        Calls::DISCARD,
    ];
    let (server, _) = server(ServerConfig::default());
    for address in server.addresses() {
        let client = Client::new(&address);
        let target = client.engine.target(&address);
        let mut random = Random::new(3);
        for _ in 0..40 {
            for method in methods {
                let mut bytes = random.bytes(120);
                if random.below(2) == 0 && method != Calls::GOODBYE {
                    bytes.splice(..8.min(bytes.len()), client.session.to_le_bytes());
                }
                let call = target.call_raw(method, &CallOptions::default(), |_, out| {
                    out.extend_from_slice(&bytes);
                });
                if method != Calls::HOLD {
                    check(client.engine.block_on(call)).unwrap();
                }
            }
        }
        client.wait(client.calls.stat_fs(client.session)).unwrap();
    }
}
