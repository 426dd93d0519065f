//! Thirty-two clients at once, each a process of its own: thirty that write and read, one that is
//! stuck, one that means harm. The thirty go on with a good part of their fair share, and the
//! server's process does not grow beyond what its limit says.
//!
//! Server, clients and attackers have the same processors here. What an attacker takes of those by
//! being busy, any process could take; the server is not to blame for it. So the measure is what
//! the thirty do while in the place of the two there is a process that computes for as long as they
//! did, and never talks to the server. Of that each has a thirty-second as its fair share. `cargo
//! test --release -p petasos-forward --test crowd -- --nocapture` prints what is kept of it.

mod evil;

use petasos::{
    Engine, EngineConfig, OpenOptions,
    fabric::{Address, Region},
};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote},
    protocol::OpenFlags,
    server::{Limits, Server, ServerConfig},
    storage::Local,
};
use petasos_testing::{Process, again, median, role};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};
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
/// All of them, with the stuck one and the evil one.
const ALL: u64 = GOOD as u64 + 2;
const MEMORY: u64 = 32 << 20;
/// What a call carries at most.
const INLINE: u64 = 256 << 10;
/// What the server's process may need for each client beside data: buffers of its connection,
/// files.
const EACH: u64 = 1 << 20;
/// More than a call carries: it is lent.
const PIECE: usize = 320 << 10;
const ROUNDS: usize = 5;
/// What is asserted: that all honest clients together keep one part in so many of their fair share,
/// and each of them one in twice as many. What is wanted is half, and what is printed is more than
/// that; but windows are short, and on a machine that is busy with other things no two of them are
/// alike.
const KEPT: u64 = 4;
const WINDOW: Duration = Duration::from_millis(700);

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
        Some("evil") => evil::evil(own),
        Some("busy") => busy(),
        Some(other) => panic!("no role is called {other}"),
    }
}

fn crowd(test: &str) {
    let outside = tempfile::tempdir().unwrap();
    let export = outside.path().join("export");
    std::fs::create_dir(&export).unwrap();
    std::fs::write(outside.path().join("secret"), "not for you").unwrap();
    std::os::unix::fs::symlink("../secret", export.join("leak")).unwrap();
    // What is freed leaves the process: the hoard of the C library's allocator is not counted.
    let server = again(test, "server").env("MALLOC_MMAP_THRESHOLD_", "65536");
    let mut server = server.env("EXPORT", export.to_str().unwrap()).start();
    let url = server.line("url ");
    let idle = high_water(&server);
    let begin = |role: &str, number: usize| {
        let number = number.to_string();
        let mut client = again(test, role).env("URL", &url).env("NUMBER", &number).start();
        client.line("ready");
        client
    };
    let mut good: Vec<_> = (0..GOOD).map(|number| begin("good", number)).collect();
    let (mut beside, mut busy) = (Vec::new(), Vec::new());
    // For what is printed, and so that all have begun.
    let alone = window(&mut good).iter().sum::<u64>();
    for round in 0..ROUNDS {
        // In turns: so what else this machine does counts for both.
        let mut stuck = begin("stuck", GOOD);
        kill_process(Pid::from_raw(stuck.id() as i32).unwrap(), Signal::STOP).unwrap();
        let mut evil = begin("evil", GOOD + 1);
        evil.tell("go");
        let before = processor_time(&evil);
        beside.push(window(&mut good));
        let burnt = processor_time(&evil) - before;
        if round == 0 {
            // A client that comes now is served as well.
            let mut late = [begin("good", GOOD + 2)];
            assert!(window(&mut late)[0] > 0);
            late[0].tell("end");
            assert!(late[0].wait(Duration::from_secs(60)).success());
        }
        evil.tell("stop");
        let did = evil.line("did ");
        println!("lies, and garbage: {did}");
        let (lies, thrown) = did.split_once(' ').unwrap();
        assert!(lies != "0" && thrown != "0", "the window was too short for {did}");
        evil.kill();
        stuck.kill();
        settled(&mut server, false);
        // As much of the machine is gone, and nothing of the server.
        let mut other = begin("busy", burnt as usize);
        other.tell("go");
        let before = processor_time(&other);
        busy.push(window(&mut good));
        let computed = processor_time(&other) - before;
        println!("processor time: {burnt} ms for the evil one, {computed} ms for the other");
        other.kill();
    }

    let total = |round: &Vec<u64>| round.iter().sum::<u64>();
    let [fair, now] = [&busy, &beside].map(|rounds| median(rounds.iter().map(total)));
    let each = |rounds: &[Vec<u64>]| -> Vec<u64> {
        (0..GOOD).map(|client| median(rounds.iter().map(|round| round[client]))).collect()
    };
    let (each, each_fair) = (each(&beside), each(&busy));
    let (least, least_fair) = (*each.iter().min().unwrap(), *each_fair.iter().min().unwrap());
    // Of what there is, thirty of thirty-two parts.
    let kept = now as f64 * ALL as f64 / (fair * GOOD as u64) as f64;
    println!(
        "pieces in a window, all together: {alone} alone, {fair} beside one that computes, {now} \
         beside the two, which is {kept:.2} of their fair share; the least that one had: \
         {least_fair} and {least}, where a fair share is {}",
        fair / ALL
    );
    assert!(KEPT * ALL * now >= fair * GOOD as u64, "{now} where there were {fair}");
    assert!(2 * KEPT * ALL * least >= fair, "of {fair}, each has {each:?}");
    for mut client in good {
        client.tell("end");
        assert!(client.wait(Duration::from_secs(60)).success());
    }
    // What they had is free, and there was never more than there may be.
    let [peak, early] = settled(&mut server, true);
    let grown = high_water(&server) - idle;
    println!("MiB: {} used, {} early, grown by {}", peak >> 20, early >> 20, grown >> 20);
    assert!(peak <= MEMORY, "{peak} bytes");
    assert!(early <= MEMORY + (ALL + 1) * INLINE, "{early} bytes");
    // The flood did wait there, and all that is bounded was needed.
    assert!(early > 0 && peak > MEMORY / 2, "{early} bytes, {peak} bytes");
    let most = 2 * MEMORY + (ALL + 1) * (INLINE + EACH);
    assert!(grown <= most, "the process has grown by {grown} bytes, of {most}");
    assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"not for you");
    let names = std::fs::read_dir(outside.path()).unwrap().count();
    assert_eq!(names, 2, "something was made outside of the export");
}

/// Waits until nothing is in use, and, where all have gone, no session is left; the most memory
/// that there was, and the most that came early.
fn settled(server: &mut Process, all: bool) -> [u64; 2] {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        server.tell("status");
        let status: Vec<u64> =
            server.line("status ").split(' ').map(|number| number.parse().unwrap()).collect();
        let [used, peak, early, early_peak, sessions, calls] = status[..] else {
            panic!("{status:?}")
        };
        // Garbage may have begun sessions, which end when no client comes to hold them.
        if (used, early, calls) == (0, 0, 0) && (sessions == 0 || !all) {
            return [peak, early_peak];
        }
        assert!(Instant::now() < end, "left over: {status:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The most memory that a process ever had, in bytes.
fn high_water(process: &Process) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// How long a process has had a processor, in milliseconds.
fn processor_time(process: &Process) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap();
    // Behind the name, which is in parentheses: the 14th and 15th field, in ticks of 10 ms.
    let behind = &stat[stat.rfind(')').unwrap() + 2..];
    let ticks: u64 =
        behind.split(' ').skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum();
    ticks * 10
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
        let ([used, peak, _], [early, most]) = (status.memory, status.early);
        println!("status {used} {peak} {early} {most} {} {calls}", status.sessions.len());
    }
}

pub(crate) fn engine(own: &str) -> (Engine, Address) {
    let endpoint = petasos::open(own, &OpenOptions::default()).unwrap();
    let address = Address::parse(&std::env::var("URL").unwrap()).unwrap();
    (Engine::new(endpoint, EngineConfig::default()), address)
}

/// Works on each `go`, as long as the flag is set, which the next line takes back; until `end`.
pub(crate) fn on_each_go(mut work: impl FnMut(&AtomicBool)) {
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

pub(crate) fn read_write() -> OpenFlags {
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

/// Asks for much, lent and within calls, and is stopped before it can have the answers.
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
    let full = bytes::Bytes::from(vec![3; INLINE as usize / 2]);
    let mut reads: Vec<_> =
        (0..200u64).map(|nth| Box::pin(file.read_bytes(nth * INLINE, INLINE))).collect();
    let mut writes: Vec<_> =
        (0..200u64).map(|nth| Box::pin(file.write_bytes(nth * INLINE, full.clone()))).collect();
    let mut told = false;
    engine.block_on(std::future::poll_fn(|context| {
        asks.retain_mut(|ask| ask.as_mut().poll(context).is_pending());
        writes.retain_mut(|ask| ask.as_mut().poll(context).is_pending());
        reads.retain_mut(|ask| ask.as_mut().poll(context).is_pending());
        if !std::mem::replace(&mut told, true) {
            println!("ready");
        }
        std::task::Poll::<()>::Pending
    }));
}

/// Computes for so many milliseconds in a window, with two threads, as the evil one has.
fn busy() {
    let millis = std::env::var("NUMBER").unwrap().parse::<f64>().unwrap();
    let share = millis / (2.0 * WINDOW.as_millis() as f64);
    on_each_go(|going| {
        let begin = Instant::now();
        let compute = || {
            let own = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
            let before = own();
            while going.load(Relaxed) {
                // A client that is behind catches up.
                if own() - before < begin.elapsed().mul_f64(share) {
                    (0..1000).for_each(|_| std::hint::spin_loop());
                } else {
                    std::thread::sleep(Duration::from_micros(500));
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(compute);
            compute();
        });
    });
}
