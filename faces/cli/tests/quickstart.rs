//! Files to a server process and back.

mod common;

use common::{Place, Serving, server_of, signal, until, wait};
use std::{
    fs,
    os::{
        fd::OwnedFd,
        unix::{
            fs::{PermissionsExt, symlink},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The shortest measurements, where none is asserted but that it is there.
const BRIEF: [&str; 2] = ["--time", "1ms"];

/// A tree with something of everything, awkward names included.
fn make_tree(root: &Path) {
    for directory in ["", "a", "a/b", "empty", "closed"] {
        fs::create_dir(root.join(directory)).unwrap();
    }
    fs::write(root.join("nothing"), "").unwrap();
    fs::write(root.join("a/one byte"), "x").unwrap();
    let large: Vec<u8> = (0..40_000_000u32).map(|at| (at * 7 + (at >> 13)) as u8).collect();
    fs::write(root.join("a/b/larger than a piece"), large).unwrap();
    for number in 0..100 {
        fs::write(root.join(format!("a/{number}")), vec![number as u8; number * 100]).unwrap();
    }
    let strange =
        <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"not \xff UTF-8\n");
    fs::write(root.join(strange), "strange").unwrap();
    symlink("../a/one byte", root.join("a/link")).unwrap();
    symlink("/nowhere", root.join("broken link")).unwrap();
    fs::write(root.join("closed/inside"), "inside").unwrap();
    let mode = |name: &str, mode| {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("a/one byte", 0o751);
    mode("a/0", 0o400);
    mode("closed", 0o555);
}

fn same(a: &Path, b: &Path) {
    let differ = Command::new("diff").args(["-r", "--no-dereference"]).args([a, b]).output();
    let differ = differ.unwrap();
    assert!(differ.status.success(), "{}", String::from_utf8_lossy(&differ.stdout));
    let listing = |root: &Path| {
        let mut find = Command::new("find");
        let find = find.args([".", "-printf", r"%m %y %p %l\n"]).current_dir(root);
        let found = String::from_utf8_lossy(&find.output().unwrap().stdout).into_owned();
        let mut lines: Vec<_> = found.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(listing(a), listing(b));
}

fn over(transport: &str) {
    let place = Place::new();
    make_tree(&place.path("tree"));
    let arguments =
        [&["quickstart", "tree", "--transport", transport, "--out", "copy", "--json"][..], &BRIEF]
            .concat();
    let ran = place.run(&arguments).assert(0);
    let report = ran.json();
    assert_eq!(report["verified"], true);
    assert_eq!(report["data"]["files"], 105);
    assert_eq!(report["data"]["links"], 2);
    assert_eq!(report["transports"][0], transport);
    let figures = report["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 6);
    for figure in figures {
        assert!(figure["value"].as_f64().unwrap() > 0.0, "{figure}");
        assert!(figure["ratio"].as_f64().unwrap() > 0.0, "{figure}");
    }
    same(&place.path("tree"), &place.path("copy"));
    fs::set_permissions(place.path("tree/closed"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(place.path("copy/closed"), fs::Permissions::from_mode(0o755)).unwrap();
    place.assert_clean();
}

#[test]
fn a_tree_over_shared_memory() {
    over("shm");
}

#[test]
fn a_tree_over_tcp() {
    over("tcp");
}

#[test]
fn made_data_a_table_and_one_file() {
    let place = Place::new();
    let ran = place.run(&["quickstart", "--size", "3MiB"]).assert(0);
    for word in ["shm", "tcp", "null call, median", "cache line", "3 MiB in"] {
        assert!(ran.out.contains(word), "`{word}` is not in {}", ran.out);
    }
    fs::write(place.path("file"), "some bytes").unwrap();
    fs::write(place.path("old"), "old bytes").unwrap();
    let arguments = ["quickstart", "file", "--transport", "shm", "--out", "old"];
    place.run(&[&arguments[..], &BRIEF].concat()).assert(0);
    assert_eq!(fs::read_to_string(place.path("old")).unwrap(), "some bytes");
    place.assert_clean();
}

#[test]
fn the_server_is_killed_and_the_old_file_stays() {
    for transport in ["shm", "tcp"] {
        let place = Place::new();
        make_large(&place.path("large"));
        let start = || {
            fs::write(place.path("old"), "old bytes").unwrap();
            place.command(
                &[&["quickstart", "large", "--transport", transport, "--out", "old"][..], &BRIEF]
                    .concat(),
            )
        };
        let mut child = midway(start, || store(&place, &format!("store-{transport}")));
        let server = server_of(child.id()).expect("a server process");
        signal(server, "KILL");
        signal(child.id(), "CONT");
        let status = wait(&mut child, Duration::from_secs(20));
        let mut said = String::new();
        std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
        assert_eq!(status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("{server} ended")) && said.contains("try:"), "{said}");
        assert_eq!(fs::read_to_string(place.path("old")).unwrap(), "old bytes");
        place.assert_clean();
    }
}

#[test]
fn interrupted_or_killed_it_leaves_nothing() {
    for (name, code) in [("INT", Some(130)), ("KILL", None)] {
        let place = Place::new();
        make_large(&place.path("large"));
        let start = || {
            // One that was too fast has made it.
            let _ = fs::remove_file(place.path("copy"));
            place.command(
                &[&["quickstart", "large", "--transport", "shm", "--out", "copy"][..], &BRIEF]
                    .concat(),
            )
        };
        let mut child = midway(start, || store(&place, "store-shm"));
        let server = server_of(child.id()).expect("a server process");
        signal(child.id(), name);
        signal(child.id(), "CONT");
        assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), code);
        // The server goes by itself, and removes what is left.
        let gone = || (!Path::new(&format!("/proc/{server}")).exists()).then_some(());
        until("the end of the server", gone);
        let empty = || fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
        until("an empty directory", empty);
        assert!(!place.path("copy").exists());
        if name == "KILL" {
            // What it had beside the copy goes when the next one is made there.
            fs::write(place.path("small"), "some bytes").unwrap();
            let arguments = ["quickstart", "small", "--transport", "shm", "--out", "copy"];
            place.run(&[&arguments[..], &BRIEF].concat()).assert(0);
        }
        place.assert_clean();
    }
}

#[test]
fn a_server_whose_parent_died_before_it_said_a_word() {
    let place = Place::new();
    let [scratch, other] = ["petasos-scratch-x", "other"].map(|name| place.path("tmp").join(name));
    for path in [&scratch, &other] {
        fs::create_dir_all(path.join("store")).unwrap();
        let (_, theirs) = UnixStream::pair().unwrap();
        let mut command = place.command(&["server-process", path.to_str().unwrap()]);
        let ended = command.stdin(OwnedFd::from(theirs)).output().unwrap();
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    }
    assert!(!scratch.exists() && other.exists());
    // Typed by a user, it does nothing.
    fs::create_dir(&scratch).unwrap();
    place.run(&["server-process", scratch.to_str().unwrap()]).assert(2).says("petasos serve");
    assert!(scratch.exists());
}

/// A server with files over TCP, as on another host, with a secret.
fn elsewhere(place: &Place) -> Serving {
    fs::write(place.path("secret"), "a secret of both sides").unwrap();
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let listen = ["--files", "--listen", "tcp://127.0.0.1:0", "--secret", "secret"];
    Serving::start(place, &listen, 1)
}

#[test]
fn a_file_that_is_added_meanwhile() {
    let place = Place::new();
    fs::create_dir(place.path("tree")).unwrap();
    fs::write(place.path("tree/file"), "some bytes").unwrap();
    let mut command = place.command(&["quickstart", "tree", "--transport", "shm"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // By then it has looked at the tree, and not yet sent it.
    let there = until("a place for the copy", || store(&place, "store-shm"));
    stop(&child);
    assert!(!there.join("copy").exists(), "it was sent already");
    fs::write(place.path("tree/added"), "more bytes").unwrap();
    signal(child.id(), "CONT");
    assert_eq!(wait(&mut child, Duration::from_secs(30)).code(), Some(4));
    let mut said = String::new();
    std::io::Read::read_to_string(child.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(said.contains("added") && said.contains("run it again"), "{said}");
    place.assert_clean();
}

/// Data without holes, which would not be sent: quick to make, slow enough to be interrupted.
fn make_large(path: &Path) {
    let mut file = fs::File::create(path).unwrap();
    let block = vec![0x5c; 1 << 20];
    (0..512).for_each(|_| std::io::Write::write_all(&mut file, &block).unwrap());
}

/// Starts a command that sends files to this store, and stops it while one is staged. One that was
/// done before it could be stopped is waited for, and started again.
fn midway(start: impl Fn() -> Command, store: impl Fn() -> Option<PathBuf>) -> Child {
    let is_staged = || store().is_some_and(|store| !staged(&store).is_empty());
    for _ in 0..10 {
        let mut command = start();
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until("a file under way", || (is_staged() || ended(&mut child)).then_some(()));
        if ended(&mut child) {
            continue;
        }
        stop(&child);
        if is_staged() {
            return child;
        }
        signal(child.id(), "CONT");
        wait(&mut child, Duration::from_secs(60));
    }
    panic!("files are sent too fast");
}

fn ended(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_some()
}

/// Stops a child, and waits until it does nothing more.
fn stop(child: &Child) {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    signal(child.id(), "STOP");
    let news = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let pid = Pid::from_raw(child.id() as i32).unwrap();
    waitid(WaitId::Pid(pid), news).unwrap();
}

/// Names of files in a store that are not complete.
fn staged(store: &Path) -> Vec<std::ffi::OsString> {
    let found = fs::read_dir(store.join(".petasos/stage")).into_iter().flatten().flatten();
    found.map(|file| file.file_name()).collect()
}

/// The directory of this name in which a server keeps files.
fn store(place: &Place, name: &str) -> Option<PathBuf> {
    let scratch = fs::read_dir(place.path("tmp")).ok()?.flatten();
    scratch.map(|found| found.path().join(name)).find(|store| store.exists())
}

/// What it keeps, complete or not.
fn kept_by_server(place: &Place) -> Vec<std::ffi::OsString> {
    let store = store(place, "store").expect("a store");
    let names = fs::read_dir(&store).unwrap().flatten().map(|entry| entry.file_name());
    let own = |name: &std::ffi::OsString| name == "lock" || name == ".petasos";
    names.filter(|name| !own(name)).chain(staged(&store)).collect()
}

#[test]
fn a_tree_to_a_server_elsewhere() {
    let place = Place::new();
    make_tree(&place.path("tree"));
    let mut serving = elsewhere(&place);
    let url = serving.urls[0].clone();
    let there = [&["quickstart", "--server", &url, "--secret", "secret"][..], &BRIEF].concat();
    for round in 0..2 {
        let out = format!("copy{round}");
        let arguments = [&there[..], &["tree", "--out", &out, "--json"]].concat();
        let report = place.run(&arguments).assert(0).json();
        assert_eq!(report["verified"], true);
        assert_eq!(report["server"], url.as_str());
        assert_eq!(report["transports"][0], "tcp");
        let figures = report["figures"].as_array().unwrap();
        assert_eq!(figures.len(), 6);
        for figure in figures {
            assert!(figure["value"].as_f64().unwrap() > 0.0, "{figure}");
            // What lies between two hosts neither of them can tell.
            let of_files = figure["what"].as_str().unwrap().starts_with("files");
            assert_eq!(figure["limit"].is_null(), !of_files, "{figure}");
        }
        same(&place.path("tree"), &place.path(&out));
        // Each client takes away what it brought.
        assert_eq!(kept_by_server(&place), Vec::<std::ffi::OsString>::new());
    }
    let ran = place.run(&[&there[..], &["--size", "3MiB"]].concat()).assert(0);
    for word in [&url, "null call, median", "memory to server, 3 MiB", "files read back"] {
        assert!(ran.out.contains(word), "`{word}` is not in {}", ran.out);
    }
    assert_eq!(serving.interrupt(), Some(0));
    for closed in ["tree", "copy0", "copy1"] {
        let closed = place.path(closed).join("closed");
        fs::set_permissions(closed, fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.assert_clean();
}

#[test]
fn one_client_at_a_time_elsewhere() {
    let place = Place::new();
    make_large(&place.path("large"));
    let serving = elsewhere(&place);
    let url = serving.urls[0].clone();
    let there = [&["quickstart", "--server", &url, "--secret", "secret"][..], &BRIEF].concat();
    let start = || place.command(&[&there[..], &["large"]].concat());
    let mut first = midway(start, || store(&place, "store"));
    let second = [&there[..], &["--size", "1MiB"]].concat();
    place.run(&second).assert(1).says("another client").says("try:");
    // What one was sending that is killed goes at once, and what it had the next one may have.
    signal(first.id(), "KILL");
    wait(&mut first, Duration::from_secs(20));
    until("the end of what it sent", || kept_by_server(&place).is_empty().then_some(()));
    place.run(&second).assert(0);
    assert_eq!(kept_by_server(&place), Vec::<std::ffi::OsString>::new());
    // And a server that is killed is an error, not a wait.
    let mut third = midway(start, || store(&place, "store"));
    drop(serving);
    signal(third.id(), "CONT");
    assert_eq!(wait(&mut third, Duration::from_secs(30)).code(), Some(3));
    let mut said = String::new();
    std::io::Read::read_to_string(third.stderr.as_mut().unwrap(), &mut said).unwrap();
    assert!(said.contains(&url) && said.contains("try:"), "{said}");
}

#[test]
fn what_is_wrong_with_a_server_elsewhere() {
    let place = Place::new();
    let serving = Serving::start(&place, &["--listen", "tcp://127.0.0.1:0"], 1);
    let run = |arguments: &[&str]| place.run(&[&["quickstart", "--server"], arguments].concat());
    run(&[&serving.urls[0], "--size", "1"]).assert(1).says("keeps no files").says("serve --files");
    run(&["pigeon://x"]).assert(2).says("no transport");
    run(&["self://x", "--size", "1"]).assert(2).says("try:");
    run(&[&serving.urls[0], "--transport", "tcp"]).assert(2);
    place.run(&["quickstart", "--secret", "file"]).assert(2).says("--server");
    drop(serving);
    place.assert_clean();
}

#[test]
fn what_cannot_be_is_said() {
    let place = Place::new();
    let run = |arguments: &[&str]| place.run(&[&["quickstart"], arguments].concat());
    run(&["missing"]).assert(2).says("missing").says("try:");
    run(&["--size", "many"]).assert(2).says("no size");
    run(&["--transport", "pigeon"]).assert(2).says("pigeon").says("--transport shm,tcp");
    let without = [("PETASOS_UCX", "/nowhere/libucp.so")];
    place.run_with(&["quickstart", "--transport", "ucx"], &without).assert(6).says("libucx0");
    run(&["--size", "1000TiB"]).assert(1).says("are free").says("TMPDIR");
    fs::write(place.path("file"), "x").unwrap();
    fs::create_dir_all(place.path("full/x")).unwrap();
    run(&["file", "--out", "full"]).assert(2).says("not a file");
    run(&["full", "--out", "file"]).assert(2).says("not an empty directory");
    run(&["file", "--size", "1"]).assert(2);
    run(&["file", "--time", "1us"]).assert(2).says("at least 1ms");
    place.assert_clean();
}
