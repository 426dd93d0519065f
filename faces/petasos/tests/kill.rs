//! Processes that are killed, and links that go dark: whatever was under way ends, once, soon, with
//! an error that names the lost peer, and nothing stays.

use petasos::{
    BulkHandle, CallOptions, Context, Engine, EngineConfig, EngineHandle, EngineThread, Method,
    OpenOptions, Usage,
    fabric::{Access, Address, Region},
    open, serve, shm, tcp,
    wire::Wire,
};
use petasos_testing::{Hosts, Process, again, role};
use std::{
    io::{Read, stdin},
    net::TcpListener,
    os::unix::fs::OpenOptionsExt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

const PING: Method = Method::typed("Kill::ping", u64::SHAPE, u64::SHAPE);
const HANG: Method = Method::typed("Kill::hang", u64::SHAPE, u64::SHAPE);
const LEND: Method = Method::typed("Kill::lend", u64::SHAPE, BulkHandle::SHAPE);
const PULL: Method = Method::typed("Kill::pull", BulkHandle::SHAPE, u64::SHAPE);

/// More than a peer takes at a time, so that some of them wait here.
const CALLS: usize = 1000;
/// What one transfer moves: enough to be killed in the middle of it.
const LENT: usize = 1 << 30;
/// A byte of it that is not zero: when it has come, the transfer is under way.
const MARK: usize = LENT / 16;
/// What is promised for the end of calls to a process that was killed on this node.
const PROMISE: Duration = Duration::from_millis(100);
/// How often the machine may be too busy to keep it.
const TRIES: u32 = 5;
const BOUND: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(20);
const SCHEMES: [&str; 2] = ["shm", "tcp"];
/// How the one that is not killed reaches the other's memory: by itself or through its owner.
const WAYS: [(&str, bool); 3] = [("shm", true), ("shm", false), ("tcp", false)];

/// One test at a time: they take time, and count what this process has open.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address of our own that a server can be started at again.
fn fixed(scheme: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if scheme == "tcp" {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        return format!("tcp://127.0.0.1:{}", free.local_addr().unwrap().port());
    }
    let nth = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{scheme}://petasos-kill-{}-{nth}", std::process::id())
}

fn engine(url: &str, set_up: impl FnOnce(&Engine) + Send + 'static) -> EngineThread {
    let endpoint = open(url, &OpenOptions::default()).unwrap();
    EngineThread::start(endpoint, EngineConfig::default(), set_up).unwrap()
}

/// The same, for one that may be kept from reaching ordinary memory of others by itself.
fn engine_that(
    reaches: bool,
    url: &str,
    set_up: impl FnOnce(&Engine) + Send + 'static,
) -> EngineThread {
    if reaches || !url.starts_with("shm") {
        return engine(url, set_up);
    }
    let mut config = shm::Config::default();
    config.cross_memory = false;
    let endpoint = shm::Shm::open_with(&url.parse().unwrap(), config).unwrap();
    EngineThread::start(Box::new(endpoint), EngineConfig::default(), set_up).unwrap()
}

/// An engine that no peer needs to find.
fn client(scheme: &str) -> EngineThread {
    engine(&format!("{scheme}://*"), |_| ())
}

fn no_limit() -> CallOptions {
    CallOptions::default().timeout(Duration::MAX)
}

fn zeroes() -> Region {
    let memory = Region::zeroed(LENT);
    memory.write(MARK, &[1]);
    memory
}

fn has_come(memory: &Region) -> bool {
    let mut byte = [0];
    memory.read(MARK, &mut byte);
    byte == [1]
}

fn wait_until(what: &str, mut seen: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !seen() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn usage(engine: &EngineHandle) -> Usage {
    engine.run(async |engine: Engine| engine.usage()).wait().unwrap()
}

fn ping(engine: &EngineHandle, at: &Address) -> Result<u64, String> {
    let at = at.clone();
    let call = async move |engine: Engine| {
        engine.target(&at).call::<u64, u64>(PING, &CallOptions::default(), &7).await
    };
    engine.run(call).wait().unwrap().map_err(|error| error.to_string())
}

/// Sleeps until this process is killed, or the test ends.
fn stay() {
    let _ = stdin().read(&mut [0]);
}

/// The process that never answers, and lends memory.
fn hanging_server(engine: &Engine) {
    engine.register(PING, 0, serve(|_: Context, n: u64| async move { n }));
    engine.register(HANG, 0, serve(|_: Context, _: u64| std::future::pending::<u64>()));
    let bulk = engine.bulk(zeroes(), Access::READ).unwrap();
    let lend = move |_: Context, _: u64| std::future::ready(bulk.handle());
    engine.register(LEND, 0, serve(lend));
}

/// What ended, when, and how.
type Ended = (usize, Instant, Result<(), String>);

/// Calls that hang, and a pull: numbers 0 to `CALLS`. Gives the memory that is pulled into.
async fn begin(engine: Engine, at: Address, ended: mpsc::Sender<Ended>) -> Region {
    let target = engine.target(&at);
    let handle = target.call::<u64, BulkHandle>(LEND, &no_limit(), &0).await.unwrap();
    for n in 0..CALLS {
        let call = target.call::<u64, u64>(HANG, &no_limit(), &(n as u64));
        let ended = ended.clone();
        engine.spawn(async move {
            let result = call.await.map(drop).map_err(|error| error.to_string());
            ended.send((n, Instant::now(), result)).unwrap();
        });
    }
    let into = Region::zeroed(LENT);
    let (remote, memory) = (engine.open(&handle).unwrap(), into.whole());
    engine.spawn(async move {
        let result = remote.pull_into(0, memory).await.map(drop).map_err(|e| e.to_string());
        ended.send((CALLS, Instant::now(), result)).unwrap();
    });
    into
}

/// Kills the server in the middle. Gives the time from then to the last end.
fn kill_the_server(test: &str, client: &EngineHandle, url: &str) -> Duration {
    let mut server = again(test, &format!("server {url}")).start();
    let at: Address = server.line("ready ").parse().unwrap();
    assert_eq!(at.as_str(), url);
    let (idle, (sender, ended)) = (usage(client), mpsc::channel());
    let to = at.clone();
    let into = client.run(move |engine| begin(engine, to, sender)).wait().unwrap();
    wait_until("the middle of the transfer", || has_come(&into));
    let during = usage(client);
    assert_eq!(during.calls, CALLS);
    assert!(during.credit > 0 && during.waiting > 0 && during.operations > 0, "{during:?}");
    let killed = Instant::now();
    server.kill();
    let (mut seen, mut last) = (vec![false; CALLS + 1], Duration::ZERO);
    for left in (1..=CALLS + 1).rev() {
        let end = ended.recv_timeout(BOUND.saturating_sub(killed.elapsed()));
        let Ok((which, when, result)) = end else {
            panic!("{left} have not ended {BOUND:?} after the kill over {url}");
        };
        let error = result.expect_err("an answer of a peer that gives none");
        assert!(error.contains(url), "an error that does not name {url}: {error}");
        assert!(!std::mem::replace(&mut seen[which], true), "{which} ended twice");
        last = last.max(when.saturating_duration_since(killed));
    }
    // All senders are gone with the tasks: nothing can end a second time.
    assert_eq!(ended.recv_timeout(BOUND), Err(mpsc::RecvTimeoutError::Disconnected));
    wait_until("the memory is let go", || into.is_unique());
    assert_eq!(usage(client), idle);
    last
}

#[test]
fn a_killed_server_ends_all_calls_and_transfers_at_once() {
    let test = "a_killed_server_ends_all_calls_and_transfers_at_once";
    if let Some(role) = role() {
        let server = engine(role.strip_prefix("server ").unwrap(), hanging_server);
        println!("\nready {}", server.handle().address());
        return stay();
    }
    let _alone = alone();
    for (scheme, reaches) in WAYS {
        let (url, any) = (fixed(scheme), format!("{scheme}://*"));
        let client = engine_that(reaches, &any, |_| ());
        let mut times = Vec::new();
        // Each try but the first is also a new server at the same address.
        while times.last().is_none_or(|took| *took > PROMISE) {
            assert!(times.len() < TRIES as usize, "over {scheme}, calls ended after {times:?}");
            times.push(kill_the_server(test, client.handle(), &url));
        }
        println!("over {scheme}, {CALLS} calls and a transfer ended within {times:?}");
        // A new peer at the old address is found, by the same engine.
        let mut server = again(test, &format!("server {url}")).start();
        let at = server.line("ready ").parse().unwrap();
        assert_eq!(ping(client.handle(), &at), Ok(7), "over {scheme}");
    }
}

/// What a server saw of its handlers.
#[derive(Debug, Default)]
struct Handlers {
    started: AtomicU64,
    dropped: AtomicU64,
}

struct Handler(Arc<Handlers>);

impl Handler {
    fn new(handlers: &Arc<Handlers>) -> Handler {
        handlers.started.fetch_add(1, Ordering::Relaxed);
        Handler(Arc::clone(handlers))
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A server whose handlers hang or pull into `into`, and are counted.
fn counting_server(engine: &Engine, handlers: &Arc<Handlers>, into: &Region) {
    engine.register(PING, 0, serve(|_: Context, n: u64| async move { n }));
    let hanging = Arc::clone(handlers);
    let hang = move |_: Context, _: u64| {
        let handler = Handler::new(&hanging);
        async move {
            std::future::pending::<()>().await;
            drop(handler);
            0
        }
    };
    engine.register(HANG, 0, serve(hang));
    let pulling = Arc::clone(handlers);
    let once = Mutex::new(Some(into.clone()));
    let pull = move |context: Context, handle: BulkHandle| {
        let handler = Handler::new(&pulling);
        let into = once.lock().unwrap().take().expect("one pull");
        async move {
            let remote = context.engine().open(&handle).unwrap();
            let pulled = remote.pull_into(0, into.whole()).await;
            drop(handler);
            u64::from(pulled.is_ok())
        }
    };
    engine.register(PULL, 0, serve(pull));
}

/// The client that is killed: calls that hang, and memory that the server pulls.
fn doomed_client(url: &str) {
    let (scheme, _) = url.split_once("://").unwrap();
    let (client, at) = (client(scheme), url.parse::<Address>().unwrap());
    let calls = client.handle().run(async move |engine: Engine| {
        let target = engine.target(&at);
        // With the answer comes how many calls the server takes.
        target.call::<u64, u64>(PING, &no_limit(), &0).await.unwrap();
        let bulk = engine.bulk(zeroes(), Access::READ).unwrap();
        let pull = target.call::<_, u64>(PULL, &no_limit(), &bulk.handle());
        let hang = |n| target.call::<u64, u64>(HANG, &no_limit(), &n);
        let calls: Vec<_> = (0..CALLS as u64).map(hang).collect();
        println!("\ncalling");
        let pulled = pull.await;
        drop((bulk, calls));
        pulled
    });
    panic!("the pull ended: {:?}", calls.wait());
}

/// The client that is served throughout; says how often.
fn lasting_client(url: &str) {
    let (scheme, _) = url.split_once("://").unwrap();
    let (client, at) = (client(scheme), url.parse::<Address>().unwrap());
    let told = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&told);
    std::thread::spawn(move || {
        stay();
        stop.store(true, Ordering::Relaxed);
    });
    let (mut served, mut slowest) = (0, Duration::ZERO);
    while !told.load(Ordering::Relaxed) {
        let begun = Instant::now();
        let at = at.clone();
        let call = client.handle().run(async move |engine: Engine| {
            let options = CallOptions::default().timeout(BOUND);
            engine.target(&at).call::<u64, u64>(PING, &options, &served).await
        });
        assert_eq!(call.wait().unwrap().unwrap(), served);
        slowest = slowest.max(begun.elapsed());
        served += 1;
        if served == 1 {
            println!("\nserved");
        }
    }
    println!("\nserved {served} slowest {slowest:?}");
}

/// What this process holds for its peers: descriptors, and mappings shared with them.
fn held() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.contains("memfd:")).count())
}

fn kill_the_client(test: &str, scheme: &str, reaches: bool) {
    let (handlers, into) = (Arc::new(Handlers::default()), Region::zeroed(LENT));
    let set_up = {
        let (handlers, into) = (Arc::clone(&handlers), into.clone());
        move |engine: &Engine| counting_server(engine, &handlers, &into)
    };
    let server = engine_that(reaches, &fixed(scheme), set_up);
    let url = server.handle().address().clone();
    let mut lasting = again(test, &format!("lasting {url}")).start();
    lasting.line("served");
    let before = (usage(server.handle()), held());
    let mut doomed = again(test, &format!("doomed {url}")).start();
    doomed.line("calling");
    // As many as the server takes of one client, the pull among them.
    let most = u64::from(EngineConfig::default().calls_per_peer);
    wait_until("the handlers start", || handlers.started.load(Ordering::Relaxed) >= most);
    wait_until("the middle of the transfer", || has_come(&into));
    let during = usage(server.handle());
    assert!(during.serving as u64 >= most && during.operations > 0, "{during:?}");
    assert_eq!(handlers.dropped.load(Ordering::Relaxed), 0);
    let killed = Instant::now();
    doomed.kill();
    wait_until("the handlers are dropped", || {
        handlers.dropped.load(Ordering::Relaxed) == handlers.started.load(Ordering::Relaxed)
    });
    let took = killed.elapsed();
    assert!(took < BOUND, "the handlers were dropped after {took:?}");
    wait_until("the memory is let go", || into.is_unique());
    drop(doomed);
    wait_until("all is as before", || (usage(server.handle()), held()) == before);
    let stats = server.handle().run(async |engine: Engine| engine.stats()).wait().unwrap();
    assert_eq!(stats.peers_lost, 1);
    // The other one is served for a while longer.
    std::thread::sleep(Duration::from_millis(200));
    lasting.close_input();
    let served = lasting.line("served ");
    assert!(lasting.wait(PATIENCE).success(), "a call of the lasting client failed");
    println!("over {scheme}, {most} handlers dropped within {took:?}; calls of another: {served}");
}

#[test]
fn a_killed_client_leaves_nothing_and_others_are_served() {
    let test = "a_killed_client_leaves_nothing_and_others_are_served";
    if let Some(role) = role() {
        let (what, url) = role.split_once(' ').unwrap();
        return if what == "doomed" { doomed_client(url) } else { lasting_client(url) };
    }
    let _alone = alone();
    for (scheme, reaches) in WAYS {
        kill_the_client(test, scheme, reaches);
    }
}

/// How long a peer may be silent.
const SILENCE: Duration = Duration::from_secs(2);
/// How much later the kernel may say so.
const SLACK: Duration = Duration::from_secs(2);
const SERVER: &str = "tcp://10.77.0.1:7777";

fn on_host(url: &str) -> EngineThread {
    let mut config = tcp::Config::default();
    let file = std::env::var_os("SECRET").unwrap();
    config.secret = Some(tcp::Secret::from_file(file).unwrap());
    config.silence = SILENCE;
    let endpoint = tcp::TcpEndpoint::open(&url.parse().unwrap(), config).unwrap();
    let set_up = |engine: &Engine| {
        engine.register(PING, 0, serve(|_: Context, n: u64| async move { n }));
        engine.register(HANG, 0, serve(|_: Context, _: u64| std::future::pending::<u64>()));
    };
    EngineThread::start(Box::new(endpoint), EngineConfig::default(), set_up).unwrap()
}

/// Calls that hang: how they end.
async fn hang(engine: Engine, calls: u64) -> Vec<String> {
    let target = engine.target(&SERVER.parse().unwrap());
    let call = |n| target.call::<u64, u64>(HANG, &no_limit(), &n);
    let calls: Vec<_> = (0..calls).map(call).collect();
    println!("\ncalling");
    let mut errors = Vec::new();
    for call in calls {
        errors.push(call.await.unwrap_err().to_string());
    }
    errors
}

/// Two rounds: in the first, nothing is on the way when the link goes dark; in the second, calls
/// are made after that.
fn client_on_host() {
    let (client, at) = (on_host("tcp://10.77.0.2:0"), SERVER.parse::<Address>().unwrap());
    let line = || {
        let mut line = String::new();
        stdin().read_line(&mut line).unwrap();
    };
    for round in 0..2 {
        assert_eq!(ping(client.handle(), &at), Ok(7));
        println!("\nround {round}");
        if round == 1 {
            line();
        }
        let calls = client.handle().run(|engine| hang(engine, 100));
        let errors = calls.wait().unwrap();
        assert_eq!(errors.len(), 100);
        for error in &errors {
            assert!(error.contains(SERVER), "an error that does not name the server: {error}");
        }
        println!("\nended {}", errors[0]);
        line();
        assert_eq!(ping(client.handle(), &at), Ok(7), "after the link came back");
        println!("\nagain");
    }
}

#[test]
fn a_link_that_goes_dark() {
    let test = "a_link_that_goes_dark";
    if let Some(role) = role() {
        if role == "client" {
            return client_on_host();
        }
        let _server = on_host(SERVER);
        println!("\nready");
        return stay();
    }
    let _alone = alone();
    let Some(hosts) = Hosts::make() else { return };
    let path = std::env::temp_dir().join(format!("petasos-test-{}-secret", std::process::id()));
    let mut secret = std::fs::OpenOptions::new();
    let file = secret.write(true).create(true).truncate(true).mode(0o600).open(&path).unwrap();
    std::io::Write::write_all(&mut &file, b"a secret of the two hosts").unwrap();
    let start = |role: &str, host| {
        let starter = again(test, role).env("SECRET", path.to_str().unwrap());
        starter.in_host(&hosts.name(host)).start()
    };
    let mut server = start("server", 'a');
    server.line("ready");
    let mut client = start("client", 'b');
    for round in 0..2 {
        client.line(&format!("round {round}"));
        let cut = if round == 0 {
            client.line("calling");
            // All requests are there, and acknowledged.
            std::thread::sleep(Duration::from_millis(300));
            hosts.cut();
            Instant::now()
        } else {
            hosts.cut();
            let cut = Instant::now();
            client.tell("");
            client.line("calling");
            cut
        };
        let error = client.line("ended ");
        let took = cut.elapsed();
        println!("round {round}: calls ended {took:?} after the cut: {error}");
        assert!(took <= SILENCE + SLACK, "calls ended {took:?} after the link went dark");
        hosts.heal();
        client.tell("");
        client.line("again");
    }
    let _ = std::fs::remove_file(&path);
}

/// Names of ours where temporary files and shared memory lie.
fn names() -> Vec<String> {
    let dirs = ["/dev/shm".into(), "/tmp".into(), std::env::temp_dir()];
    let files = dirs.iter().filter_map(|dir| std::fs::read_dir(dir).ok());
    let files = files.flatten().flatten().map(|f| f.path().display().to_string());
    let mut files: Vec<_> = files.filter(|path| path.contains("petasos")).collect();
    files.sort();
    files.dedup();
    files
}

/// One of those that are all killed: a server, or a client in the middle of everything, with
/// memory of the transport's own beside ordinary memory.
fn one_of_many(what: &str, url: &str) {
    if what == "server" {
        let server = engine(url, |engine: &Engine| {
            hanging_server(engine);
            let memory = engine.alloc(1 << 20).unwrap();
            let bulk = engine.bulk(memory, Access::READ).unwrap();
            let lend = move |_: Context, _: u64| std::future::ready(bulk.handle());
            assert!(engine.register(LEND, 1, serve(lend)));
        });
        println!("\nready {}", server.handle().address());
        return stay();
    }
    let (scheme, _) = url.split_once("://").unwrap();
    let (client, at) = (client(scheme), url.parse::<Address>().unwrap());
    let (sender, _ended) = mpsc::channel();
    let into = client.handle().run(async move |engine: Engine| {
        let (target, options) = (engine.target(&at), no_limit().provider(1));
        let handle = target.call::<u64, BulkHandle>(LEND, &options, &0).await.unwrap();
        let remote = engine.open(&handle).unwrap();
        let into = engine.alloc(1 << 20).unwrap();
        remote.pull_into(0, into.whole()).await.unwrap();
        engine.spawn(async move {
            std::future::pending::<()>().await;
            drop((remote, into));
        });
        begin(engine, at, sender).await
    });
    let into = into.wait().unwrap();
    wait_until("the middle of the transfer", || has_come(&into));
    println!("\nready");
    stay();
}

#[test]
fn whoever_is_killed_leaves_no_file() {
    let test = "whoever_is_killed_leaves_no_file";
    if let Some(role) = role() {
        let (what, url) = role.split_once(' ').unwrap();
        return one_of_many(what, url);
    }
    let _alone = alone();
    let before = names();
    for scheme in SCHEMES {
        let url = fixed(scheme);
        let mut server = again(test, &format!("server {url}")).start();
        server.line("ready");
        let client = || again(test, &format!("client {url}")).start();
        let mut clients: Vec<Process> = (0..2).map(|_| client()).collect();
        for client in &mut clients {
            client.line("ready");
        }
        server.kill();
        clients.iter_mut().for_each(Process::kill);
    }
    // What others on this machine have for a moment goes; what was left behind stays.
    wait_until("no file stays", || names().iter().all(|name| before.contains(name)));
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    let ours = format!("petasos-kill-{}-", std::process::id());
    assert!(!sockets.contains(&ours), "a socket stays");
}
