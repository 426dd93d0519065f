//! What the system, another user or the configuration refuses an unprivileged process: what can
//! work nevertheless does, and for the rest an error says what is wrong and what to do.

mod common;

use common::Watched;
use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::Pid,
};
use petasos::{
    BulkHandle, CallOptions, Context, Engine, EngineConfig, EngineThread, Method, OpenOptions,
    fabric::{Access, Address, Endpoint, Region},
    open, serve,
    shm::Shm,
    wire::Wire,
};
use petasos_testing::{Process, again_as_nobody, role};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::{
    io::{IoSliceMut, stdin},
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    time::Duration,
};

/// `nobody`, the user that the processes of these tests run as.
const NOBODY: u32 = 65534;
const LEN: usize = 4 << 20;
const DOUBLE: Method = Method::typed("Double::double", u64::SHAPE, u64::SHAPE);
const LEND: Method = Method::typed("Memory::lend", <()>::SHAPE, BulkHandle::SHAPE);
const COUNT: Method = Method::typed("Memory::count", u8::SHAPE, u64::SHAPE);

fn as_nobody(test: &str, role: &str) -> Option<Process> {
    Some(again_as_nobody(test, role)?.start())
}

fn name(what: &str) -> String {
    format!("test-{what}-{}", std::process::id())
}

/// Says one thing on one line.
fn say(what: &str, text: impl std::fmt::Display) {
    println!("\n{what} {text}");
}

/// Sleeps until the test is over.
fn until_told() {
    let _ = stdin().read_line(&mut String::new());
}

/// Lends memory to others, full of sevens.
fn lend(at: &str) {
    let endpoint = open(at, &OpenOptions::default()).unwrap();
    let _engine = EngineThread::start(endpoint, EngineConfig::default(), |engine| {
        let memory = Region::from_vec(vec![7; LEN]);
        let bulk = engine.bulk(memory.clone(), Access::ALL).unwrap();
        engine.register(
            LEND,
            0,
            serve(move |_: Context, ()| {
                let handle = bulk.handle();
                async { handle }
            }),
        );
        let count = move |byte| memory.to_vec().iter().filter(|b| **b == byte).count() as u64;
        engine.register(
            COUNT,
            0,
            serve(move |_: Context, byte: u8| {
                let count = count(byte);
                async move { count }
            }),
        );
    })
    .unwrap();
    // A place in this process that a debugger could look at.
    let place = Box::new([7u8; 8]);
    say("ready", format!("{:p}", &raw const *place));
    until_told();
}

/// Pulls and pushes, and says whether that went right and by which way.
fn borrow(at: &str) {
    let (endpoint, counters) =
        Watched::new(Shm::open(&"shm://*".parse().unwrap()).unwrap(), Shm::counters);
    let engine = Engine::new(Box::new(endpoint), EngineConfig::default());
    let (target, options) = (engine.target(&at.parse().unwrap()), CallOptions::default());
    let good = engine.block_on(async {
        let handle: BulkHandle = target.call(LEND, &options, &()).await.unwrap();
        let remote = engine.open(&handle).unwrap();
        let pulled = remote.pull(0, LEN as u64).await.unwrap();
        let sevens = pulled.to_vec().iter().filter(|byte| **byte == 7).count();
        remote.push(0, Region::from_vec(vec![9; LEN]).into()).await.unwrap();
        let nines: u64 = target.call(COUNT, &options, &9u8).await.unwrap();
        sevens == LEN && nines == LEN as u64
    });
    let counters = *counters.lock().unwrap();
    let served = counters.served_by_owner > 0;
    say("moved", format!("{good} {} {served}", counters.cross_memory_bytes));
}

/// A process that is closed to debuggers lends its memory to another of the same user.
#[test]
fn memory_that_the_system_keeps_closed() {
    const TEST: &str = "memory_that_the_system_keeps_closed";
    if let Some(role) = role() {
        match role.split_once(' ').unwrap() {
            ("closed", at) => {
                set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
                lend(at);
            }
            ("open", at) => lend(at),
            ("peek", whom) => {
                let (pid, place) = whom.split_once(" 0x").unwrap();
                let from = RemoteIoVec { base: usize::from_str_radix(place, 16).unwrap(), len: 8 };
                let mut bytes = [0; 8];
                let into = &mut [IoSliceMut::new(&mut bytes)];
                let read = process_vm_readv(Pid::from_raw(pid.parse().unwrap()), into, &[from]);
                say("peeked", format!("{read:?}"));
            }
            (_, at) => borrow(at),
        }
        return;
    }
    let (closed, open) = ("true 0 true".to_owned(), format!("true {} false", 2 * LEN));
    for (kind, peeked, moved) in [("closed", "Err(EPERM)", closed), ("open", "Ok(8)", open)] {
        let at = format!("shm://{}-{kind}", name("lent"));
        let Some(mut server) = as_nobody(TEST, &format!("{kind} {at}")) else { return };
        let place = server.line("ready ");
        let role = format!("peek {} {place}", server.id());
        let mut peek = as_nobody(TEST, &role).unwrap();
        assert_eq!(peek.line("peeked "), peeked, "the system's own word, {kind}");
        let mut client = as_nobody(TEST, &format!("borrow {at}")).unwrap();
        assert_eq!(client.line("moved "), moved, "{kind}");
    }
}

/// Calls, impatiently, and says what came of it.
fn call(what: &str, endpoint: Box<dyn Endpoint>, at: &str) {
    let mut config = EngineConfig::default();
    config.patience = Duration::from_millis(300);
    let engine = Engine::new(endpoint, config);
    let at: Address = at.parse().unwrap();
    let call = engine.target(&at).call::<u64, u64>(DOUBLE, &CallOptions::default(), &21);
    match engine.block_on(call) {
        Ok(answer) => say(what, format!("answered {answer}")),
        Err(error) => say(what, error),
    }
}

/// No other user gets into a service of root's that was not told to admit others, and is told why.
#[test]
fn a_service_of_another_user() {
    const TEST: &str = "a_service_of_another_user";
    if let Some(role) = role() {
        let (name, path) = role.split_once(' ').unwrap();
        let options = OpenOptions::default();
        let any = || open("shm://*", &options).unwrap();
        call("wary", any(), &format!("shm://0@{name}"));
        let mut config = petasos::shm::Config::default();
        config.admit = vec![0];
        let bold = Shm::open_with(&"shm://65534@bold".parse().unwrap(), config).unwrap();
        call("bold", Box::new(bold), &format!("shm://0@{name}"));
        call("own", any(), &format!("shm://{name}"));
        call("path", any(), &format!("shm://{path}"));
        say("squat", open(&format!("shm://0@{name}"), &options).err().unwrap());
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    let (name, path) = (name("root"), directory.path().join("socket"));
    let path = path.to_str().unwrap();
    let Some(mut nobody) = as_nobody(TEST, &format!("{name} {path}")) else { return };
    let urls = [format!("shm://0@{name}"), format!("shm://{name}"), format!("shm://{path}")];
    let servers = urls.each_ref().map(|url| {
        let endpoint = open(url, &OpenOptions::default()).unwrap();
        EngineThread::start(endpoint, EngineConfig::default(), |engine| {
            engine.register(DOUBLE, 0, serve(|_: Context, n: u64| async move { 2 * n }));
        })
        .unwrap()
    });
    let mut said = |what: &str, words: &[&str]| {
        let line = nobody.line(&format!("{what} "));
        for word in words {
            assert!(line.contains(word), "{what}: `{word}` is missing: {line}");
        }
    };
    said("wary", &["Double::double", &urls[0], "user 0 listens"]);
    said("bold", &["Double::double", &urls[0], "user 65534 is not admitted"]);
    // The plain name is one's own user's: root's service of that name is another.
    said("own", &["Double::double", &urls[1], "Connection refused"]);
    said("path", &["Double::double", &urls[2], "Permission denied"]);
    said("squat", &[&urls[0], "user 0", "65534"]);
    // Root itself is served at all of them.
    for (url, server) in urls.iter().zip(&servers) {
        let engine = Engine::new(open("shm://*", &OpenOptions::default()).unwrap(), {
            EngineConfig::default()
        });
        let target = engine.target(&url.parse().unwrap());
        let answer = engine.block_on(target.call(DOUBLE, &CallOptions::default(), &21u64));
        assert_eq!(answer.ok(), Some(42u64), "{url}");
        let stats = server.handle().run(|engine| async move { engine.stats() }).wait().unwrap();
        assert_eq!((stats.calls_served, stats.garbage), (1, 0), "{url}");
    }
}

/// Opens beyond this machine with a file of the secret, and says what came of it.
fn open_with(path: &Path) {
    let options = OpenOptions::default().secret_file(path);
    let what = path.file_name().unwrap().to_str().unwrap();
    match open("tcp://0.0.0.0:0", &options) {
        Ok(_) => say(what, "open"),
        Err(error) => say(what, error),
    }
}

/// A secret that others can read is none, and one that we cannot read is of no use.
#[test]
fn files_of_secrets() {
    const TEST: &str = "files_of_secrets";
    /// File, owner, mode, and what must be said of it, beside its path.
    const FILES: [(&str, u32, u32, &[&str]); 9] = [
        ("closed", NOBODY, 0o600, &["open"]),
        ("read-only", NOBODY, 0o400, &["open"]),
        ("group-reads", NOBODY, 0o640, &["open to others", "640", "chmod 600"]),
        ("world-reads", NOBODY, 0o604, &["open to others", "604", "chmod 600"]),
        ("all-read", NOBODY, 0o644, &["open to others", "644", "chmod 600"]),
        ("group-writes", NOBODY, 0o620, &["open to others", "620", "chmod 600"]),
        ("no-mode", NOBODY, 0o000, &["Permission denied"]),
        ("of-root", 0, 0o600, &["Permission denied"]),
        ("of-root-open", 0, 0o644, &["belongs to user 0", "65534"]),
    ];
    if let Some(directory) = role() {
        FILES.iter().for_each(|(file, ..)| open_with(&Path::new(&directory).join(file)));
        open_with(&Path::new(&directory).join("missing"));
        return;
    }
    if !petasos_testing::is_root() {
        return petasos_testing::skip("only root can make files of other users");
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    for (file, owner, mode, _) in FILES {
        let path = directory.path().join(file);
        std::fs::write(&path, "a secret of some length\n").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        chown(&path, Some(owner), None).unwrap();
    }
    let mut nobody = as_nobody(TEST, directory.path().to_str().unwrap()).unwrap();
    let mut said = |file: &str, words: &[&str]| {
        let line = nobody.line(&format!("{file} "));
        let path = directory.path().join(file);
        for word in words {
            assert!(line.contains(word), "{file}: `{word}` is missing: {line}");
        }
        assert!(line == "open" || line.contains(path.to_str().unwrap()), "{file}: which? {line}");
    };
    for (file, _, _, words) in FILES {
        said(file, words);
    }
    said("missing", &["No such file"]);
}

/// Others can connect from other machines only if there is a secret that they must know.
#[test]
fn beyond_this_machine_without_a_secret() {
    const TEST: &str = "beyond_this_machine_without_a_secret";
    const EVERYWHERE: [&str; 2] = ["tcp://0.0.0.0:0", "tcp://[::]:0"];
    if role().is_some() {
        for url in EVERYWHERE {
            say("refused", open(url, &OpenOptions::default()).err().unwrap());
        }
        let here = open("tcp://127.0.0.1:0", &OpenOptions::default()).unwrap();
        say("open", here.address());
        return;
    }
    let Some(mut nobody) = as_nobody(TEST, "nobody") else { return };
    for url in EVERYWHERE {
        let line = nobody.line("refused ");
        let place = url.trim_start_matches("tcp://");
        for word in [place, "other machines", "secret", "600", "127.0.0.1"] {
            assert!(line.contains(word), "`{word}` is missing: {line}");
        }
    }
    assert!(nobody.line("open ").starts_with("tcp://127.0.0.1:"));
}
