//! Thirty-two clients at once, each a process of its own: thirty that write and read, one that is
//! stuck, one that means harm. The thirty keep their share, and memory stays within its limit.

use bytes::Bytes;
use petasos::{
    CallOptions, Engine, EngineConfig, OpenOptions,
    fabric::{Access, Address, Region},
};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote},
    protocol::{
        Allocation, Creation, Extent, Finish, ForwardClient, Hello, Node, OpenFlags, RenameMode,
        SetAttr, VERSION,
    },
    server::{Limits, Server, ServerConfig},
    storage::Local,
};
use petasos_testing::{Process, again, role};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::BufRead,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

const GOOD: usize = 30;
const MEMORY: u64 = 32 << 20;
const PIECE: usize = 1 << 20;
const WINDOW: Duration = Duration::from_secs(2);

#[test]
fn shares_over_shared_memory() {
    shares("shares_over_shared_memory", "shm://*");
}

#[test]
fn shares_over_tcp() {
    shares("shares_over_tcp", "tcp://127.0.0.1:0");
}

fn shares(test: &str, own: &str) {
    match role().as_deref() {
        None => crowd(test),
        Some("server") => serve(own),
        Some("good") => good(own),
        Some("stuck") => stuck(own),
        Some("evil") => evil(own),
        Some(other) => panic!("nobody plays {other}"),
    }
}

fn crowd(test: &str) {
    let outside = tempfile::tempdir().unwrap();
    let export = outside.path().join("export");
    std::fs::create_dir(&export).unwrap();
    std::fs::write(outside.path().join("secret"), "not for you").unwrap();
    std::os::unix::fs::symlink("../secret", export.join("leak")).unwrap();
    let mut server = again(test, "server").env("EXPORT", export.to_str().unwrap()).start();
    let url = server.line("url ");
    let begin = |role: &str, number: usize| {
        let number = number.to_string();
        let mut client = again(test, role).env("URL", &url).env("NUMBER", &number).start();
        client.line("ready");
        client
    };
    let mut good: Vec<_> = (0..GOOD).map(|number| begin("good", number)).collect();
    let alone = window(&mut good);

    let mut stuck = begin("stuck", 30);
    let pid = Pid::from_raw(stuck.id() as i32).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let mut evil = begin("evil", 31);
    evil.tell("go");
    let beside = window(&mut good);
    // Somebody who comes now is served as well.
    good.push(begin("good", 32));
    evil.tell("stop");
    let did: u64 = evil.line("did ").parse().unwrap();
    assert!(did > 0, "the window was too short to lie in");
    kill_process(pid, Signal::CONT).unwrap();
    stuck.kill();

    let least = *beside.iter().min().unwrap();
    let mean = beside.iter().sum::<u64>() / GOOD as u64;
    let before = alone.iter().sum::<u64>() / GOOD as u64;
    println!("pieces: {before} each alone; {mean} each beside them, the least {least}; lies {did}");
    assert!(least * 2 >= mean, "shares are {beside:?}");
    assert!(mean * 4 >= before, "{mean} pieces each where there were {before}");
    for mut client in good {
        client.tell("end");
        assert!(client.wait(Duration::from_secs(60)).success());
    }
    evil.kill();
    // What the two had is free, and memory was never beyond the limit.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        server.tell("status");
        let status: Vec<u64> =
            server.line("status ").split(' ').map(|number| number.parse().unwrap()).collect();
        let [used, peak, sessions, calls] = status[..] else { panic!("{status:?}") };
        assert!(peak <= MEMORY, "{peak} bytes");
        if (used, sessions, calls) == (0, 0, 0) {
            break;
        }
        assert!(Instant::now() < end, "left over: {status:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"not for you");
    let names = std::fs::read_dir(outside.path()).unwrap().count();
    assert_eq!(names, 2, "something was made outside of the export");
}

/// How many pieces each client moves in the same stretch of time.
fn window(clients: &mut [Process]) -> Vec<u64> {
    clients.iter_mut().for_each(|client| client.tell("go"));
    std::thread::sleep(WINDOW);
    clients.iter_mut().for_each(|client| client.tell("stop"));
    clients.iter_mut().map(|client| client.line("moved ").parse().unwrap()).collect()
}

fn serve(own: &str) {
    let mut config = ServerConfig::default();
    let mut limits = Limits::default();
    limits.memory = MEMORY;
    config.limits = limits;
    let export = std::env::var("EXPORT").unwrap();
    let storage = Arc::new(Local::open(Path::new(&export)).unwrap());
    let server = Server::listen(storage, &[own], &OpenOptions::default(), config).unwrap();
    println!("url {}", server.addresses()[0]);
    for _ in std::io::stdin().lock().lines() {
        let status = server.status();
        let calls: u64 = status.sessions.iter().map(|session| session.calls).sum();
        let [used, peak, _] = status.memory;
        println!("status {used} {peak} {} {calls}", status.sessions.len());
    }
}

fn engine(own: &str) -> (Engine, Address) {
    let endpoint = petasos::open(own, &OpenOptions::default()).unwrap();
    let address = Address::parse(&std::env::var("URL").unwrap()).unwrap();
    (Engine::new(endpoint, EngineConfig::default()), address)
}

/// Works on each `go`, as long as the flag is set, which the next line takes back; until `end`.
fn on_each_go(mut work: impl FnMut(&AtomicBool)) {
    let going = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let flag = Arc::clone(&going);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let line = line.unwrap_or_default();
            flag.store(line == "go", Relaxed);
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    println!("ready");
    while let Ok(line) = receiver.recv() {
        match line.as_str() {
            "go" => work(&going),
            "end" => break,
            _ => {}
        }
    }
}

fn read_write() -> OpenFlags {
    OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE)
}

/// Writes pieces to a file of its own and reads them back.
fn good(own: &str) {
    let (engine, address) = engine(own);
    let number = std::env::var("NUMBER").unwrap();
    let path = RelPath::parse(format!("file-{number}").as_bytes()).unwrap();
    let connect = Remote::connect(&engine, &address, ConnectOptions::default().name(&*number));
    let remote = engine.block_on(connect).unwrap();
    let file = engine.block_on(remote.open(&path, read_write(), 0o600)).unwrap();
    let byte = number.parse::<u8>().unwrap() + 1;
    let (full, back) = (Region::from_vec(vec![byte; PIECE]), Region::from_vec(vec![0; PIECE]));
    let mut moved = 0;
    on_each_go(|going| {
        let before = moved;
        while going.load(Relaxed) {
            let at = (moved % 8) * PIECE as u64;
            engine.block_on(file.write_at(at, full.whole())).unwrap();
            let got = engine.block_on(file.read_at(at, back.whole())).unwrap();
            assert_eq!(got, PIECE as u64);
            assert!(back.to_vec().iter().all(|found| *found == byte), "not what was written");
            moved += 1;
        }
        println!("moved {}", moved - before);
    });
    engine.block_on(file.close()).unwrap();
    engine.block_on(remote.disconnect()).unwrap();
}

/// Asks for much, and is stopped before it can have the answers.
fn stuck(own: &str) {
    let (engine, address) = engine(own);
    let connect = Remote::connect(&engine, &address, ConnectOptions::default().name("stuck"));
    let remote = engine.block_on(connect).unwrap();
    let path = RelPath::parse(b"stuck").unwrap();
    let file = engine.block_on(remote.open(&path, read_write(), 0o600)).unwrap();
    let memory = Region::zeroed(64 << 20);
    let mut asks: Vec<_> = (0..64u64)
        .map(|nth| {
            let part = memory.slice((nth as usize % 4) << 24, 16 << 20).unwrap();
            Box::pin(file.write_at((nth % 4) << 24, part))
        })
        .collect();
    let mut told = false;
    engine.block_on(std::future::poll_fn(|context| {
        asks.retain_mut(|ask| ask.as_mut().poll(context).is_pending());
        if !std::mem::replace(&mut told, true) {
            println!("ready");
        }
        std::task::Poll::<()>::Pending
    }));
}

/// Does what must not have any effect, as fast as it can.
fn evil(own: &str) {
    let (engine, address) = engine(own);
    let client = ForwardClient::new(&engine, &address)
        .with(CallOptions::default().timeout(Duration::from_secs(5)));
    let hello = || client.hello(Hello { version: VERSION, name: "x".repeat(10_000) });
    let session = engine.block_on(hello()).unwrap().unwrap().session;
    let forever = client.with(CallOptions::default().timeout(Duration::MAX));
    let _held = forever.hold(session);
    // As many sessions as it can get, each held; as many files as it can open.
    let all = futures_util::future::join_all((0..3000).map(|_| hello()));
    let mine = engine.block_on(all).into_iter().filter_map(|answer| answer.ok()?.ok());
    let _holds: Vec<_> = mine.map(|welcome| forever.hold(welcome.session)).collect();
    let open = |nth| {
        let path = format!("evil-{}", nth % 7).into_bytes();
        client.open(session, path, read_write(), Creation::default())
    };
    for batch in 0..30 {
        engine.block_on(futures_util::future::join_all((batch * 100..).take(100).map(open)));
    }
    on_each_go(|going| {
        let memory = Region::from_vec(vec![7; 4096]);
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut done = 0;
        while going.load(Relaxed) {
            let lies = (0..256).map(|nth| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                lie(&engine, &client, session, random, nth, &memory)
            });
            done += engine.block_on(futures_util::future::join_all(lies)).len();
        }
        println!("did {done}");
    });
}

/// One thing that should not be asked for.
async fn lie(
    engine: &Engine,
    client: &ForwardClient,
    session: u64,
    random: u64,
    nth: u64,
    memory: &Region,
) {
    let outside =
        [&b"../secret"[..], b"/../../etc/passwd", b"leak", b"a/../../secret", b"\0", b"."];
    let path = outside[(random >> 8) as usize % outside.len()].to_vec();
    let session = if random & 7 == 0 { random } else { session };
    let file = random >> 40;
    let flags = OpenFlags((random >> 16) as u32);
    let huge = Extent { offset: random, len: u64::MAX - 5 };
    let finish = Finish { size: random, replace: true, ..Finish::default() };
    let set = SetAttr { size: Some(u64::MAX), mode: Some(0o777), ..SetAttr::default() };
    let lent = engine.bulk(memory.whole(), Access::READ).unwrap();
    match nth % 16 {
        0 => drop(client.open(session, path, flags, Creation::default()).await),
        1 => {
            let open = client.open(session, path, OpenFlags::READ, Creation::default()).await;
            if let Ok(Ok((file, _))) = open {
                let data = client.read(session, file, 0, 64).await;
                let secret = matches!(data, Ok(Ok(data)) if data.starts_with(b"not for"));
                assert!(!secret, "it could read what is outside");
            }
        }
        2 => drop(client.put(session, path, Bytes::from_static(b"mine"), finish).await),
        3 => drop(client.rename(session, path, b"got".to_vec(), RenameMode::Replace).await),
        4 => drop(client.hard_link(session, path, b"got".to_vec()).await),
        5 => drop(client.set_attr(session, Node::Path(path), set, true).await),
        6 => drop(client.read(session, file, u64::MAX, u64::MAX).await),
        7 => drop(client.hashes(session, file, huge, random >> 30).await),
        8 => drop(client.allocate(session, file, Allocation::Reserve, huge).await),
        9 => drop(client.write(session, file, u64::MAX - 1, Bytes::from(vec![1; 300_000])).await),
        10 => drop(client.open_dir(session, path).await),
        11 => drop(client.stage(session, [random as u8; 16], path).await),
        12 => drop(client.publish(session, file, path, finish).await),
        13 => drop(client.remove(session, path, random & 1 == 0).await),
        14 => drop(client.write_from(session, file, random, lent.handle()).await),
        // Gone before the server has moved anything.
        _ => drop(client.write_from(session, file & 7, 0, lent.handle())),
    }
}
