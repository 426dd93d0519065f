//! Transfers with servers that lie, and disks that are full.

mod odd;

use odd::Odd;
use petasos::{Engine, EngineConfig, OpenOptions};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote, RemoteError},
    protocol::OpenFlags,
    server::{Server, ServerConfig},
    transfer::{self, Cause, Connection, Options, Progress, Report, SyncOptions},
};
use rustix::io::Errno;
use std::{
    fs,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use tempfile::TempDir;

struct Setting {
    place: TempDir,
    odd: Arc<Odd>,
    server: Server,
    engine: Engine,
}

impl Setting {
    fn new() -> Setting {
        let place = tempfile::tempdir().unwrap();
        for name in ["exp", "src", "out", "outside"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        let odd = Arc::new(Odd::new(&place.path().join("exp"), &place.path().join("outside")));
        let options = OpenOptions::default();
        let config = ServerConfig::default();
        let server = Server::listen(odd.clone(), &["shm://*"], &options, config).unwrap();
        let endpoint = petasos::open("shm://*", &options).unwrap();
        let engine = Engine::new(endpoint, EngineConfig::default());
        Setting { place, odd, server, engine }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    async fn connect(&self) -> Rc<Connection> {
        let address = &self.server.addresses()[0];
        let connection =
            Connection::connect(&self.engine, address, ConnectOptions::default(), Duration::ZERO)
                .await;
        Rc::new(connection.unwrap())
    }

    fn put(&self, from: &str, to: &str) -> Report {
        self.engine.block_on(async {
            let sources = [(self.path(from), path(to))];
            let (options, progress) = (Options::default(), Progress::new());
            let connection = self.connect().await;
            transfer::put(&connection, &sources, &options, &progress, Box::new(|_| ()))
                .await
                .unwrap()
        })
    }

    fn get(&self, from: &str, to: &str) -> Report {
        self.engine.block_on(async {
            let sources = [(path(from), self.path(to))];
            let (options, progress) = (Options::default(), Progress::new());
            let connection = self.connect().await;
            transfer::get(&connection, &sources, &options, &progress, Box::new(|_| ()))
                .await
                .unwrap()
        })
    }
}

/// A lost session may have to stay lost, and the first word have its time nevertheless.
#[test]
fn a_server_that_takes_its_time_to_begin() {
    let place = tempfile::tempdir().unwrap();
    let options = OpenOptions::default();
    let endpoint = petasos::open("shm://*", &options).unwrap();
    let address = endpoint.address().clone();
    let storage = Arc::new(petasos_forward::storage::Local::open(place.path()).unwrap());
    let late = std::thread::spawn(move || {
        // Longer than a connection without patience waits: see the end.
        std::thread::sleep(Duration::from_millis(1500));
        Server::start(storage, vec![endpoint], ServerConfig::default()).unwrap()
    });
    let engine = Engine::new(petasos::open("shm://*", &options).unwrap(), EngineConfig::default());
    let mut connecting = ConnectOptions::default();
    connecting.patience = Some(Duration::from_secs(20));
    let connection =
        engine.block_on(Connection::connect(&engine, &address, connecting, Duration::ZERO));
    let connection = connection.unwrap();
    drop(late.join().unwrap());
    let lost = engine.block_on(connection.stat(&RelPath::root(), true)).unwrap_err();
    assert!(lost.is_lost() && connection.failure().is_some(), "{lost}");
}

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().into_owned()
    };
    let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(name).collect();
    names.sort();
    names
}

/// A server that sends names that lead elsewhere, and one name twice: as a connection to somewhere
/// else, and as a directory with something in it.
#[test]
fn a_server_cannot_write_elsewhere() {
    let setting = Setting::new();
    fs::write(setting.path("exp/good"), "good").unwrap();
    setting.odd.lies.store(true, Relaxed);
    for _ in 0..3 {
        let report = setting.get("", "out");
        assert_eq!(fs::read(setting.path("out/good")).unwrap(), b"good");
        assert!(report.problems.len() >= 5, "{:?}", report.problems);
        let named = report.problems.iter().filter(|p| matches!(p.cause, Cause::Name(_)));
        assert!(named.count() >= 4, "{:?}", report.problems);
    }
    assert_eq!(names(&setting.path("outside")), [] as [&str; 0]);
    assert_eq!(names(setting.place.path()), ["exp", "out", "outside", "src"]);
    let sync = setting.engine.block_on(async {
        let mut sync = SyncOptions::default();
        sync.delete = true;
        let (options, progress) = (Options::default(), Progress::new());
        let (connection, to) = (setting.connect().await, setting.path("out"));
        let watch = Box::new(|_: transfer::Event<'_>| ());
        transfer::sync_from(&connection, &path(""), &to, &options, sync, &progress, watch)
            .await
            .unwrap()
    });
    assert!(!sync.problems.is_empty());
    assert_eq!(names(&setting.path("outside")), [] as [&str; 0]);
    assert_eq!(names(setting.place.path()), ["exp", "out", "outside", "src"]);
}

/// What is a hole on both sides is not read to be compared.
#[test]
fn holes_are_not_compared() {
    use std::os::unix::fs::FileExt;
    const SIZE: u64 = 512 << 20;
    let setting = Setting::new();
    for name in ["src/sparse", "exp/sparse"] {
        let file = fs::File::create(setting.path(name)).unwrap();
        file.set_len(SIZE).unwrap();
        file.write_all_at(b"in the middle", SIZE / 2 + 5).unwrap();
    }
    let sync = |there: bool| {
        setting.engine.block_on(async {
            let (mut options, progress) = (Options::default(), Progress::new());
            options.checksum = true;
            let (connection, from) = (setting.connect().await, setting.path("src"));
            let watch = Box::new(|_: transfer::Event<'_>| ());
            let sync = SyncOptions::default();
            match there {
                true => {
                    transfer::sync_to(
                        &connection,
                        &from,
                        &path(""),
                        &options,
                        sync,
                        &progress,
                        watch,
                    )
                    .await
                }
                false => {
                    transfer::sync_from(
                        &connection,
                        &path(""),
                        &from,
                        &options,
                        sync,
                        &progress,
                        watch,
                    )
                    .await
                }
            }
            .unwrap()
        })
    };
    let read = || setting.server.status().total.read;
    for there in [true, false] {
        let before = read();
        let report = sync(there);
        assert!(report.problems.is_empty() && report.files == 0, "{there}: {report:?}");
        assert_eq!(report.same, 1, "{there}: {report:?}");
        assert!(read() - before <= 16 << 20, "{there}: {} bytes were read", read() - before);
    }
    // One side has zeroes where the other has nothing: still the same.
    let there = fs::File::options().write(true).open(setting.path("exp/sparse")).unwrap();
    there.write_all_at(&[0; 4096], 9 << 20).unwrap();
    assert_eq!(sync(true).same, 1);
    // And where there is something else, it is found on either side.
    there.write_all_at(b"x", 99 << 20).unwrap();
    assert_eq!(sync(true).files, 1);
    let mut byte = [1];
    let there = fs::File::open(setting.path("exp/sparse")).unwrap();
    there.read_exact_at(&mut byte, 99 << 20).unwrap();
    assert_eq!(byte, [0]);
}

/// The disk of the server is full: an error for the file that is too large, and nothing else.
#[test]
fn a_full_disk_is_an_error_of_one_file() {
    let setting = Setting::new();
    fs::write(setting.path("src/large"), vec![1; 20 << 20]).unwrap();
    for number in 0..20 {
        fs::write(setting.path(&format!("src/small{number}")), vec![2; 100]).unwrap();
    }
    setting.odd.room.store(5 << 20, Relaxed);
    let report = setting.put("src", "there");
    assert_eq!((report.files, report.problems.len()), (20, 1), "{report:?}");
    assert!(report.problems[0].path.ends_with(b"large"));
    match &report.problems[0].cause {
        Cause::Remote(RemoteError::Refused { error, .. }) => {
            assert_eq!(error.errno(), Errno::NOSPC);
        }
        other => panic!("{other}"),
    }
    assert_eq!(names(&setting.path("exp/.petasos/stage")), [] as [&str; 0]);
    setting.odd.room.store(u64::MAX, Relaxed);
    let report = setting.put("src", "there");
    assert!(report.problems.is_empty());
    assert_eq!(fs::read(setting.path("exp/there/large")).unwrap().len(), 20 << 20);
}

/// What is lent comes back, and can be used again at once.
#[test]
fn memory_is_the_callers_again() {
    let setting = Setting::new();
    setting.engine.block_on(async {
        let address = &setting.server.addresses()[0];
        let options = ConnectOptions::default();
        let remote = Remote::connect(&setting.engine, address, options).await.unwrap();
        let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
        let file = remote.open(&path("f"), flags, 0o600).await.unwrap();
        let region = petasos::fabric::Region::zeroed(3 << 20);
        region.write(0, &[7; 1000]);
        file.write_lent(0, region.whole()).await.unwrap();
        let mut own = region.into_exclusive().expect("it has no other holder");
        own.fill(0);
        let region = own.into_region();
        assert_eq!(file.read_lent(0, region.whole()).await.unwrap(), 3 << 20);
        let own = region.into_exclusive().expect("it has no other holder");
        assert!(own[..1000].iter().all(|byte| *byte == 7) && own[1000] == 0);
    });
}
