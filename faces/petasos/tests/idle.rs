//! An idle service costs nothing: the processor time of real processes with many peers that have
//! nothing to say.

use petasos::{
    CallOptions, Context, EngineConfig, EngineThread, Method, OpenOptions, fabric::Address, open,
    serve, wire::Wire,
};
use petasos_testing::{Process, again, role};
use std::{io::stdin, time::Duration};

const TEST: &str = "an_idle_service_uses_no_processor_time";
const DOUBLE: Method = Method::typed("Double::double", u64::SHAPE, u64::SHAPE);
const CLIENTS: u64 = 50;
/// After the last call, until no engine spins any more.
const SETTLE: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(10);
/// In so long a time, of one service: a thousandth of a processor.
const MOST: Duration = Duration::from_millis(10);

fn engine(url: &str) -> EngineThread {
    let endpoint = open(url, &OpenOptions::default()).unwrap();
    EngineThread::start(endpoint, EngineConfig::default(), |engine| {
        engine.register(DOUBLE, 0, serve(|_: Context, n: u64| async move { 2 * n }));
    })
    .unwrap()
}

/// Serves until its input is closed.
fn server(url: &str) {
    let engine = engine(url);
    println!("\nready {}", engine.handle().address());
    let _ = stdin().read_line(&mut String::new());
}

/// Each calls once, at the beginning and at each line of input, and sleeps meanwhile.
fn clients(at: &str) {
    let any = at.split_once("://").unwrap().0.to_owned() + "://*";
    let engines: Vec<_> = (0..CLIENTS).map(|_| engine(&any)).collect();
    let at: Address = at.parse().unwrap();
    loop {
        for (n, client) in (0..CLIENTS).zip(&engines) {
            let at = at.clone();
            let call = client.handle().run(move |engine| async move {
                engine.target(&at).call::<u64, u64>(DOUBLE, &CallOptions::default(), &n).await
            });
            assert_eq!(call.wait().unwrap().unwrap(), 2 * n);
        }
        println!("\ncalled");
        if stdin().read_line(&mut String::new()).unwrap() == 0 {
            return;
        }
    }
}

/// What all threads of a process have used.
fn processor_time(process: &Process) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", process.id())).unwrap();
    let of = |task: std::io::Result<std::fs::DirEntry>| {
        let line = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
        line.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    Duration::from_nanos(tasks.map(of).sum())
}

#[test]
fn an_idle_service_uses_no_processor_time() {
    match role() {
        Some(role) if role.starts_with("server ") => return server(&role[7..]),
        Some(role) => return clients(&role),
        None => {}
    }
    // Both transports at a time: they idle for the same ten seconds.
    let mut processes = Vec::new();
    for url in ["shm://*", "tcp://*"] {
        let mut server = again(TEST, &format!("server {url}")).start();
        let at = server.line("ready ");
        let mut clients = again(TEST, &at).start();
        clients.line("called");
        processes.push((format!("the server over {url}"), server));
        processes.push((format!("{CLIENTS} clients over {url}"), clients));
    }
    std::thread::sleep(SETTLE);
    let before: Vec<_> = processes.iter().map(|(_, p)| processor_time(p)).collect();
    std::thread::sleep(IDLE);
    let after: Vec<_> = processes.iter().map(|(_, p)| processor_time(p)).collect();
    for ((what, process), (before, after)) in processes.iter_mut().zip(before.iter().zip(&after)) {
        let used = *after - *before;
        println!("{what}: {used:?} of processor time in {IDLE:?}");
        assert!(used <= MOST, "{what} used {used:?} of processor time in {IDLE:?} of idleness");
        if what.contains("clients") {
            process.tell("once more");
            process.line("called");
        }
    }
    // They were there all the time, and work is seen when it is done.
    for ((what, process), after) in processes.iter().zip(after) {
        assert!(processor_time(process) > after, "{what} answered without any processor time");
    }
}
