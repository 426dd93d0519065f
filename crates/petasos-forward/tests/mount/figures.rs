//! How fast it is: `cargo test --release --test mount figures -- --ignored --nocapture`.

use crate::harness::{can_mount, mount, pattern, serve};
use petasos::{
    Engine, EngineConfig, OpenOptions,
    fabric::{Address, Region},
};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote},
    mount::MountOptions,
    protocol::OpenFlags,
};
use petasos_testing::{again, role};
use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

const EXPORT: &str = "PETASOS_TEST_EXPORT";
const URL: &str = "PETASOS_TEST_URL";
const LARGE: usize = 512 << 20;
const SMALL: usize = 10_000;

fn mib(bytes: usize, begun: Instant) -> f64 {
    bytes as f64 / begun.elapsed().as_secs_f64() / f64::from(1 << 20)
}

fn write(path: &Path, block: usize) -> f64 {
    let data = pattern(block, 1);
    let _ = fs::remove_file(path);
    let begun = Instant::now();
    let mut file = fs::File::create(path).unwrap();
    for _ in 0..LARGE / block {
        file.write_all(&data).unwrap();
    }
    drop(file);
    mib(LARGE, begun)
}

fn read(path: &Path, block: usize) -> f64 {
    let mut data = vec![0; block];
    let begun = Instant::now();
    let mut file = fs::File::open(path).unwrap();
    let mut all = 0;
    loop {
        match file.read(&mut data).unwrap() {
            0 => break,
            got => all += got,
        }
    }
    assert_eq!(all, LARGE);
    mib(LARGE, begun)
}

fn client(url: &str) -> (f64, f64) {
    let any = if url.starts_with("shm") { "shm://*" } else { "tcp://127.0.0.1:0" };
    let endpoint = petasos::open(any, &OpenOptions::default()).unwrap();
    let engine = Engine::new(endpoint, EngineConfig::default());
    let server = Address::parse(url).unwrap();
    engine.block_on(async {
        let remote = Remote::connect(&engine, &server, ConnectOptions::default()).await.unwrap();
        let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
        let file = remote.open(&RelPath::parse(b"client").unwrap(), flags, 0o644).await.unwrap();
        let memory = Region::zeroed(32 << 20);
        memory.write(0, &pattern(32 << 20, 1));
        let begun = Instant::now();
        for at in (0..LARGE).step_by(memory.len()) {
            file.write_at(at as u64, memory.whole()).await.unwrap();
        }
        let written = mib(LARGE, begun);
        let begun = Instant::now();
        for at in (0..LARGE).step_by(memory.len()) {
            file.read_at(at as u64, memory.whole()).await.unwrap();
        }
        let read = mib(LARGE, begun);
        file.close().await.unwrap();
        remote.disconnect().await.unwrap();
        (written, read)
    })
}

/// Files a second: made with some bytes, looked at, read, removed.
fn small(at: &Path) -> [f64; 4] {
    let directory = at.join("small");
    fs::create_dir(&directory).unwrap();
    let name = |n: usize| directory.join(format!("f{n}"));
    let data = pattern(1024, 1);
    let timed = |work: &dyn Fn(usize)| {
        let begun = Instant::now();
        (0..SMALL).for_each(work);
        SMALL as f64 / begun.elapsed().as_secs_f64()
    };
    let made = timed(&|n| fs::write(name(n), &data).unwrap());
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let looked = timed(&|n| assert_eq!(fs::metadata(name(n)).unwrap().len(), 1024));
    let read = timed(&|n| assert_eq!(fs::read(name(n)).unwrap().len(), 1024));
    let removed = timed(&|n| fs::remove_file(name(n)).unwrap());
    fs::remove_dir(directory).unwrap();
    [made, looked, read, removed]
}

/// What the other process does; nothing by itself.
#[test]
fn server() {
    if role().is_some() {
        let export = PathBuf::from(std::env::var_os(EXPORT).unwrap());
        let server = serve(&export, &std::env::var(URL).unwrap());
        println!("\nat {}", server.addresses()[0]);
        let _ = std::io::stdin().read_line(&mut String::new());
    }
}

#[test]
#[ignore = "it measures"]
fn figures() {
    if !can_mount() {
        return;
    }
    let directory = tempfile::Builder::new().prefix("petasos-mount-").tempdir().unwrap();
    let (export, at) = (directory.path().join("export"), directory.path().join("at"));
    fs::create_dir(&export).unwrap();
    fs::create_dir(&at).unwrap();
    let only = std::env::var("PETASOS_TEST_ONLY").unwrap_or_default();
    let large = only.is_empty() || only == "large";
    if large {
        for round in 0..2 {
            let (w, r) =
                (write(&export.join("disk"), 1 << 20), read(&export.join("disk"), 1 << 20));
            println!("disk, round {round}: write {w:.0} MiB/s, read {r:.0} MiB/s");
        }
        let _ = fs::remove_file(export.join("disk"));
    }
    if only.is_empty() || only == "small" {
        println!("disk: make, stat, read, remove {:.0?} files/s", small(&export));
    }
    let all = std::env::var("PETASOS_TEST_OVER").unwrap_or("shm://*,tcp://127.0.0.1:0".to_owned());
    for any in all.split(',') {
        let starter = again("figures::server", "server").env(EXPORT, export.to_str().unwrap());
        let mut server = starter.env(URL, any).start();
        let url = server.line("at ");
        let mut options = MountOptions::default();
        // What the kernel reads ahead for others than root.
        if let Ok(bytes) = std::env::var("PETASOS_TEST_READ_AHEAD") {
            options.read_ahead = bytes.parse().unwrap();
        }
        if let Ok(micros) = std::env::var("PETASOS_TEST_SPIN") {
            options.spin = std::time::Duration::from_micros(micros.parse().unwrap());
        }
        let mounted = mount(&url, &at, options);
        for _ in 0..if large { 2 } else { 0 } {
            let (w, r) = client(&url);
            println!("client, {url}: write {w:.0} MiB/s, read {r:.0} MiB/s");
        }
        for block in [1 << 20, 128 << 10, 4 << 10] {
            for _ in 0..if large { 2 } else { 0 } {
                let (w, r) = (write(&at.join("f"), block), read(&at.join("f"), block));
                println!("mount, {url}, by {block}: write {w:.0} MiB/s, read {r:.0} MiB/s");
            }
        }
        if only.is_empty() || only == "small" {
            println!("mount, {url}: make, stat, read, remove {:.0?} files/s", small(&at));
        }
        drop(mounted);
    }
}
