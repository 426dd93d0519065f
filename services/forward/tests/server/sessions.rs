//! Sessions: which clients have one, how they end, and what they may use.

use crate::common::{Client, HELLO, engine, listening_like, server, until};
use petasos::{
    CallOptions, OpenOptions, TypedCall,
    fabric::{Access, Address, Clock, Endpoint, Event, Region},
};
use petasos_forward::{
    FsResult, RelPath,
    client::{ConnectOptions, Remote},
    protocol::{
        Allocation, Creation, Extent, Finish, ForwardClient, Hello, Kind, Lock, Node, OpenFlags,
        RenameMode, SetAttr, Ticket, VERSION, Welcome, XattrMode,
    },
    server::ServerConfig,
};
use rustix::io::Errno;
use std::{
    sync::atomic::Ordering::SeqCst,
    time::{Duration, Instant},
};

const ALL: Lock = Lock { owner: 1, pid: 77, exclusive: true, start: 0, end: u64::MAX };

#[test]
fn a_client_that_vanishes_leaves_nothing() {
    let (server, memory) = server(ServerConfig::default());
    for (round, address) in server.addresses().iter().enumerate() {
        // Its engine ends; or it gives up the call that keeps the session.
        for gently in [false, true] {
            let mut lost = Client::named(address, "lost");
            let other = Client::new(address);
            let file = lost.open("shared");
            lost.wait(lost.calls.lock(lost.session, file, ALL, false)).unwrap();
            let stage = |client: &Client| {
                client.wait(client.calls.stage(client.session, [1; 16], b"staged".to_vec()))
            };
            let (staged, _) = stage(&lost).unwrap();
            lost.write_from(staged, 0, vec![1; 5000]).unwrap();
            let theirs = other.open("shared");
            let test = other.wait(other.calls.test_lock(other.session, theirs, ALL)).unwrap();
            assert_eq!(test.map(|lock| lock.pid), Some(77));
            let refused = other.wait(other.calls.lock(other.session, theirs, ALL, false));
            assert_eq!(refused.unwrap_err().errno(), Errno::AGAIN);
            let waits = other.calls.lock(other.session, theirs, ALL, true);
            for _ in 0..100 {
                other.engine.progress();
            }
            let before = server.status();
            let names: Vec<_> = before.sessions.iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, ["lost", "tester"]);
            assert_eq!((before.sessions[0].files, before.sessions[0].locks), (2, 1));
            if gently {
                lost.hold = None;
                for _ in 0..100 {
                    lost.engine.progress();
                }
            } else {
                drop(lost);
            }
            other.wait(waits).unwrap();
            until("its files are closed", || memory.watch.open.load(SeqCst) == 1);
            let status = server.status();
            assert_eq!(status.lost as usize, 2 * round + usize::from(gently) + 1);
            assert_eq!((status.sessions.len(), status.sessions[0].locks), (1, 1));
            let (again, attr) = stage(&other).unwrap();
            assert_eq!(attr.size, 5000);
            other.wait(other.calls.discard(other.session, again)).unwrap();
            other.wait(other.calls.goodbye(other.session)).unwrap();
            other.engine.block_on(other.hold.unwrap()).unwrap().unwrap();
            until("all is closed", || memory.watch.open.load(SeqCst) == 0);
        }
    }
    assert_eq!(server.status().lost, 6);
}

/// However a staged file is left, it goes away where that is wanted; what has its name stays.
#[test]
fn staged_files_end_with_their_session() {
    let mut config = ServerConfig::default();
    config.keep_staged = false;
    let (server, memory) = server(config);
    for address in server.addresses() {
        let other = Client::new(&address);
        let stage = |client: &Client| {
            client.wait(client.calls.stage(client.session, [1; 16], b"staged".to_vec()))
        };
        let ends: [fn(Client, u64); 4] = [
            |client, number| client.wait(client.calls.close(client.session, number)).unwrap(),
            |client, _| client.wait(client.calls.goodbye(client.session)).unwrap(),
            |mut client, _| {
                client.hold = None;
                (0..100).for_each(|_| _ = client.engine.progress());
            },
            |client, _| drop(client),
        ];
        for end in ends {
            let client = Client::named(&address, "leaves");
            let (number, attr) = stage(&client).unwrap();
            assert_eq!(attr.size, 0);
            client.write_from(number, 0, vec![1; 5000]).unwrap();
            assert_eq!(memory.staged(), 1);
            end(client, number);
            until("it is discarded", || memory.staged() == 0);
        }
        let (number, _) = stage(&other).unwrap();
        other.write_from(number, 0, vec![1; 5000]).unwrap();
        let finish = Finish { size: 5000, replace: true, ..Finish::default() };
        let publish = other.calls.publish(other.session, number, b"staged".to_vec(), finish);
        other.wait(publish).unwrap();
        other.wait(other.calls.goodbye(other.session)).unwrap();
        until("all is closed", || memory.watch.open.load(SeqCst) == 0);
        assert_eq!(memory.contents("staged"), Some(vec![1; 5000]));
    }
}

fn hold(client: &Client, welcome: &Welcome) -> TypedCall<FsResult<()>> {
    client.calls.hold(welcome.session, welcome.ticket, String::new(), false)
}

#[test]
fn strangers() {
    let (server, _) = server(ServerConfig::default());
    for address in server.addresses() {
        let client = Client::new(&address);
        let file = client.open("file");
        let other = Client::new(&address);
        let stale = other.wait(other.calls.stat_fs(client.session ^ 1));
        assert_eq!(stale.unwrap_err().errno(), Errno::STALE);
        assert_eq!(other.wait(hold(&other, &client.welcome)).unwrap_err().errno(), Errno::STALE);
        let forged = Welcome { session: 1, ..other.welcome };
        assert_eq!(other.wait(hold(&other, &forged)).unwrap_err().errno(), Errno::STALE);
        let twice = client.wait(hold(&client, &client.welcome));
        assert_eq!(twice.unwrap_err().errno(), Errno::BUSY);
        let bulk = other.engine.bulk(Region::zeroed(4096), Access::WRITE).unwrap();
        let theirs = other.wait(other.calls.read_into(client.session, file, 0, bulk.handle()));
        assert_eq!(theirs.unwrap_err().errno(), Errno::ACCESS);
        let old = Hello { version: VERSION + 1 };
        assert_eq!(other.wait(other.calls.hello(old)).unwrap_err().errno(), Errno::PROTO);
        let guest = Client::named(&address, &"ä".repeat(1000));
        assert!(server.status().sessions.iter().any(|it| it.name.len() == 256));
        other.wait(other.calls.goodbye(guest.session)).unwrap();
        let again = other.wait(other.calls.goodbye(guest.session));
        assert_eq!(again.unwrap_err().errno(), Errno::STALE);
    }
}

/// Hellos that were recorded, replayed again and again by many: they are answered, and that is
/// all. Nor does what another client said to begin its session.
#[test]
fn recorded_words_take_no_place() {
    let mut config = ServerConfig::default();
    config.limits.sessions = 8;
    let (server, _) = server(config);
    for address in server.addresses() {
        let url = listening_like(&address);
        let [hello, hold] = recorded(url);
        let mut thieves: Vec<_> = (0..16).map(|_| replay(url, &address, &hello, 50)).collect();
        assert!(server.status().sessions.is_empty());
        thieves.push(replay(url, &address, &hold, 50));
        assert!(server.status().sessions.is_empty());
        // All places are free, while all those are there.
        let clients: Vec<_> = (0..8).map(|_| Client::new(&address)).collect();
        assert_eq!(server.status().sessions.len(), clients.len());
        drop((thieves, clients));
        until("all have gone", || server.status().sessions.is_empty());
    }
}

/// What a client says at the beginning, as a server gets it that never answers.
fn recorded(url: &str) -> [Vec<u8>; 2] {
    let mut fake = petasos::open(url, &OpenOptions::default()).unwrap();
    let engine = engine(fake.address());
    let calls = ForwardClient::new(&engine, fake.address());
    let ticket = Ticket { until_ms: 5000, proof: [7; 16] };
    let _waiting = (calls.hello(HELLO), calls.hold(9, ticket, "recorded".to_owned(), false));
    let (clock, mut events, mut frames) = (Clock::start(), Vec::new(), Vec::new());
    until("both are said", || {
        engine.progress();
        fake.progress(clock.now(), 64, &mut events);
        frames.extend(events.drain(..).filter_map(|event| match event {
            Event::Message { message, .. } => Some(message.to_vec()),
            _ => None,
        }));
        frames.len() == 2
    });
    frames.try_into().unwrap()
}

/// Says the same so many times, over an endpoint of its own, until all is answered.
fn replay(url: &str, server: &Address, frame: &[u8], times: usize) -> Box<dyn Endpoint> {
    let mut endpoint = petasos::open(url, &OpenOptions::default()).unwrap();
    let peer = endpoint.resolve(server, Duration::from_secs(20)).unwrap();
    let (clock, mut events) = (Clock::start(), Vec::new());
    let (mut said, mut answered) = (0, 0);
    until("all is answered", || {
        while said < times && endpoint.inject(peer, &[frame]).is_ok() {
            said += 1;
        }
        endpoint.progress(clock.now(), 64, &mut events);
        let answers = events.drain(..).filter(|event| matches!(event, Event::Message { .. }));
        answered += answers.count();
        answered == times
    });
    endpoint
}

#[test]
fn limits() {
    let mut config = ServerConfig::default();
    config.limits.sessions = 2;
    config.limits.files_per_session = 3;
    config.limits.locks_per_session = 2;
    config.limits.calls_per_session = 2;
    config.threads = 1;
    let (server, memory) = server(config);
    for address in server.addresses() {
        let client = Client::new(&address);
        let second = Client::new(&address);
        let (calls, id) = (&client.calls, client.session);
        let stranger = engine(&address);
        let third = ForwardClient::new(&stranger, &address).hello(HELLO);
        let refused = stranger.block_on(third).unwrap().unwrap_err();
        assert_eq!(refused.errno(), Errno::AGAIN);
        assert!(refused.detail().contains("2 sessions"), "{refused}");

        let file = client.open("a");
        client.open("b");
        client.open("c");
        let flags = OpenFlags::READ;
        let fourth = client.wait(calls.open(id, b"a".to_vec(), flags, Creation::default()));
        assert_eq!(fourth.unwrap_err().errno(), Errno::MFILE);
        for start in [0, 10] {
            let lock = Lock { start, end: start + 5, ..ALL };
            client.wait(calls.lock(id, file, lock, true)).unwrap();
        }
        let third = client.wait(calls.lock(id, file, Lock { start: 20, end: 21, ..ALL }, true));
        assert_eq!(third.unwrap_err().errno(), Errno::NOLCK);

        memory.watch.block();
        let read = || calls.read(id, file, 0, 10);
        // Two are served, two wait, and that is enough.
        let four = [read(), read(), read(), read()];
        let fifth = client.wait(read()).unwrap_err();
        assert_eq!(fifth.errno(), Errno::NOBUFS);
        assert!(fifth.detail().contains("2 calls"), "{fifth}");
        memory.watch.release();
        for read in four {
            client.wait(read).unwrap();
        }
        // A client that waits for a lock keeps none from freeing it.
        let theirs = second.open("a");
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                second.calls.lock(second.session, theirs, Lock { start: 0, end: 5, ..ALL }, true)
            })
            .collect();
        second.wait(second.calls.read(second.session, theirs, 0, 1)).unwrap();
        client.wait(calls.unlock(id, file, ALL)).unwrap();
        for lock in waiting {
            second.wait(lock).unwrap();
        }
        client.wait(calls.goodbye(id)).unwrap();
        second.wait(second.calls.goodbye(second.session)).unwrap();
    }
}

/// A client that is silent for longer than its lease loses its lock to one that wants it, and
/// learns that when it writes.
#[test]
fn locks_of_silent_clients_are_taken() {
    let mut config = ServerConfig::default();
    config.limits.lease = Some(Duration::from_millis(300));
    let (server, memory) = server(config);
    for address in server.addresses() {
        let (silent, other) = (Client::new(&address), Client::new(&address));
        assert_eq!(silent.welcome.lease_ms, 300);
        let (mine, theirs) = (silent.open("file"), other.open("file"));
        let begin = Instant::now();
        silent.wait(silent.calls.lock(silent.session, mine, ALL, true)).unwrap();
        let most = Duration::from_secs(60);
        let patient = other.calls.with(CallOptions::default().timeout(most));
        other.wait(patient.lock(other.session, theirs, ALL, true)).unwrap();
        assert!(begin.elapsed() >= Duration::from_millis(300), "{:?}", begin.elapsed());
        other.write_from(theirs, 0, vec![2; 5000]).unwrap();
        // All that would spoil what the other one wrote, through this file or lent or not.
        let before = memory.watch.writes.lock().unwrap().len();
        let nolck = |refused: FsResult<u64>| refused.unwrap_err().errno() == Errno::NOLCK;
        assert!(nolck(silent.write_from(mine, 0, vec![1; 5000])));
        let (calls, id) = (&silent.calls, silent.session);
        assert!(nolck(silent.wait(calls.write(id, mine, 0, vec![1; 50].into()))));
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        let cut = silent.wait(calls.set_attr(id, Node::File(mine), cut, true));
        assert!(nolck(cut.map(|attr| attr.size)));
        assert!(nolck(silent.wait(calls.lock(id, mine, ALL, true)).map(|()| 0)));
        assert_eq!(memory.watch.writes.lock().unwrap().len(), before);
        assert_eq!(silent.wait(calls.read(id, mine, 0, 3)).unwrap(), [2, 2, 2][..]);
        // With the lock its misfortune is over, of which it hears once more.
        assert!(nolck(silent.wait(calls.unlock(id, mine, ALL)).map(|()| 0)));
        silent.wait(calls.unlock(id, mine, ALL)).unwrap();
        silent.wait(calls.write(id, mine, 0, vec![1; 50].into())).unwrap();
        // A client that tries and does not wait gets it as well.
        std::thread::sleep(Duration::from_millis(350));
        silent.wait(calls.lock(id, mine, ALL, false)).unwrap();
        assert!(nolck(other.wait(other.calls.write(other.session, theirs, 0, vec![1].into()))));
    }
}

/// A client of the library says by itself that it is there, also when it does nothing.
#[test]
fn locks_of_idle_clients_stay() {
    let mut config = ServerConfig::default();
    let lease = Duration::from_secs(4);
    config.limits.lease = Some(lease);
    let (server, _) = server(config);
    let address = server.addresses().pop().unwrap();
    let idle = engine(&address);
    let remote = idle.block_on(Remote::connect(&idle, &address, ConnectOptions::default()));
    let remote = remote.unwrap();
    let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
    let path = RelPath::parse(b"file").unwrap();
    let file = idle.block_on(remote.open(&path, flags, 0o600)).unwrap();
    idle.block_on(file.lock(ALL, true)).unwrap();
    let other = Client::new(&address);
    let theirs = other.open("file");
    let short = other.calls.with(CallOptions::default().timeout(lease * 3 / 2));
    let mut wanted = Box::pin(short.lock(other.session, theirs, ALL, true));
    // Both are driven, and neither does anything but wait.
    let late = idle.block_on(std::future::poll_fn(|context| {
        other.engine.progress();
        context.waker().wake_by_ref();
        wanted.as_mut().poll(context)
    }));
    assert!(matches!(late, Err(petasos::CallError::Deadline { .. })), "{late:?}");
    idle.block_on(file.write_bytes(0, vec![1; 10].into())).unwrap();
}

#[test]
fn locks_that_are_waited_for_too_long() {
    let (server, _) = server(ServerConfig::default());
    for address in server.addresses() {
        let (one, two) = (Client::new(&address), Client::new(&address));
        let (first, second) = (one.open("file"), two.open("file"));
        one.wait(one.calls.lock(one.session, first, ALL, true)).unwrap();
        let short = two.calls.with(CallOptions::default().timeout(Duration::from_millis(30)));
        let late = two.engine.block_on(short.lock(two.session, second, ALL, true));
        assert!(matches!(late, Err(petasos::CallError::Deadline { .. })), "{late:?}");
        until("the call is over", || server.status().sessions.iter().all(|it| it.calls == 0));
        // Closing any of its files frees what was locked through it.
        one.wait(one.calls.close(one.session, first)).unwrap();
        let mine = two.wait(two.calls.test_lock(two.session, second, ALL)).unwrap();
        assert_eq!(mine, None, "nothing was locked for the client that gave up");
    }
}

#[test]
fn the_end_of_a_server_is_told() {
    for at in 0..3 {
        let (server, memory) = server(ServerConfig::default());
        let mut client = Client::new(&server.addresses()[at]);
        let file = client.open("file");
        memory.watch.block();
        let call = client.calls.read(client.session, file, 0, 10);
        let waits = client.calls.read(client.session, file, 0, 10);
        for _ in 0..20 {
            client.engine.progress();
        }
        until("it reads", || memory.watch.came.load(SeqCst) > 0);
        let watch = memory.watch.clone();
        let ending = std::thread::spawn(move || server.stop());
        let hold = client.hold.take().unwrap();
        let ended = client.engine.block_on(hold).unwrap();
        assert_eq!(ended.unwrap_err().errno(), Errno::SHUTDOWN);
        watch.release();
        // What had begun has come to its end; what had not is refused, or the server is gone.
        let _ = client.engine.block_on(call);
        let _ = client.engine.block_on(waits);
        ending.join().unwrap();
        assert_eq!(memory.watch.open.load(SeqCst), 0);
    }
}

#[test]
fn nothing_changes_what_is_read_only() {
    let mut config = ServerConfig::default();
    config.read_only = true;
    let (server, _) = server(config);
    let client = Client::new(&server.addresses()[0]);
    let (calls, id) = (&client.calls, client.session);
    assert!(client.welcome.read_only && server.status().read_only);
    let path = || b"x".to_vec();
    let node = || Node::Path(path());
    let bulk = client.engine.bulk(vec![1; 1000], Access::READ).unwrap();
    let (creation, range) = (Creation::default(), Extent { offset: 0, len: 1 });
    let finish = Finish::default();
    let write = OpenFlags::READ.with(OpenFlags::WRITE);
    let mode = XattrMode::Any;
    macro_rules! refused {
        ($($call:expr),* $(,)?) => {$(
            let error = client.wait($call).map(drop).unwrap_err();
            assert_eq!(error.errno(), Errno::ROFS, stringify!($call));
        )*};
    }
    refused!(
        calls.set_attr(id, node(), SetAttr::default(), true),
        calls.make_dir(id, path(), creation),
        calls.make_symlink(id, path(), path()),
        calls.make_node(id, path(), Kind::Fifo, creation),
        calls.hard_link(id, path(), path()),
        calls.rename(id, path(), path(), RenameMode::Keep),
        calls.remove(id, path(), false),
        calls.set_xattr(id, node(), path(), path().into(), mode),
        calls.remove_xattr(id, node(), path()),
        calls.open(id, path(), write, creation),
        calls.open(id, path(), OpenFlags::WRITE, creation),
        calls.open(id, path(), OpenFlags::READ.with(OpenFlags::CREATE), creation),
        calls.open(id, path(), OpenFlags::READ.with(OpenFlags::TRUNCATE), creation),
        calls.open(id, path(), write.with(OpenFlags::TRUNCATE), creation),
        calls.open(id, path(), OpenFlags::READ.with(OpenFlags::APPEND), creation),
        calls.open(id, path(), OpenFlags::TRUNCATE, creation),
        calls.write(id, 1, 0, path().into()),
        calls.write_from(id, 1, 0, bulk.handle()),
        calls.allocate(id, 1, Allocation::Zero, range),
        calls.put(id, path(), path().into(), finish),
        calls.stage(id, [0; 16], path()),
        calls.publish(id, 1, path(), finish),
        calls.discard(id, 1),
    );
    assert!(client.wait(calls.stat(id, Node::Path(Vec::new()), true)).is_ok());
}
