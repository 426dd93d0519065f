//! Descriptors: one client does not take all of a server's, and other_users do not take a mount's.

use crate::{
    common::{Place, Ran},
    export::{Export, ended},
};
use petasos::{Engine, EngineConfig, OpenOptions, fabric::Address};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote, RemoteFile},
    protocol::OpenFlags,
};
use petasos_testing::skip;
use rustix::io::Errno;
use std::{
    fs,
    io::{ErrorKind, Read},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// The same command, in a process with this limit of `ulimit`; `-S` for the soft limit alone.
pub(crate) fn limited(command: &Command, limit: &str) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    shell.stdin(Stdio::null());
    shell
}

fn serve(place: &Place, arguments: &[&str], limit: &str) -> Export {
    let _ = fs::create_dir(place.path("exp"));
    let command = place.command(&[&["forward", "serve", "exp", "--listen"], arguments].concat());
    Export::of(limited(&command, limit), place.path("exp"))
}

fn open_limit(pid: u32) -> (String, String) {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let mut words = line["Max open files".len()..].split_whitespace().map(str::to_owned);
    (words.next().unwrap(), words.next().unwrap())
}

#[test]
fn a_server_takes_what_it_may_have() {
    let place = Place::new();
    // Shared memory raises it by itself.
    let export = serve(&place, &["tcp://127.0.0.1:0", "--open"], "-S -n 99");
    let (soft, hard) = open_limit(export.pid());
    assert_eq!(soft, hard);
    assert_ne!(soft, "99");
}

/// The program that mounts for users that may not, and unmounts, is not to have the limit that the
/// mount has raised for itself: programs that call `select(2)` break by that.
#[test]
fn helpers_of_a_mount_have_the_limit_from_before() {
    let without = ["--bounding-set=-sys_admin", "--"];
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    let can = Command::new("setpriv").args(without).arg("true").status();
    if fuse.is_err() || !can.is_ok_and(|status| status.success()) {
        return skip("only root, with /dev/fuse and setpriv, can give up what mounting takes");
    }
    let place = Place::new();
    fs::write(place.path("helper"), "#!/bin/sh\nulimit -Sn >> \"$SAYS\"; exit 1\n").unwrap();
    fs::set_permissions(place.path("helper"), fs::Permissions::from_mode(0o755)).unwrap();
    let export = Export::start(&place, "shm", &[]);
    fs::create_dir(place.path("at")).unwrap();
    let mount = place.command(&["forward", "mount", "--foreground", &export.url, "at"]);
    let mount = limited(&mount, "-S -n 99");
    let mut command = Command::new("setpriv");
    command.args(without).arg(mount.get_program()).args(mount.get_args());
    for (name, value) in mount.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(place.directory.path());
    command.env("FUSERMOUNT_PATH", place.path("helper")).env("SAYS", place.path("said"));
    let mounted = Ran::of(&command.output().unwrap());
    assert_ne!(mounted.code, Some(0), "the helper mounts nothing: {mounted:?}");
    let said = fs::read_to_string(place.path("said")).expect("a helper was asked");
    assert!(said.lines().all(|line| line == "99") && !said.is_empty(), "{said}");
}

struct Client {
    remote: Remote,
    engine: Engine,
}

impl Client {
    fn new(url: &str) -> Client {
        let any = if url.starts_with("shm") { "shm://*" } else { "tcp://127.0.0.1:0" };
        let endpoint = petasos::open(any, &OpenOptions::default()).unwrap();
        let engine = Engine::new(endpoint, EngineConfig::default());
        let address = Address::parse(url).unwrap();
        let remote = Remote::connect(&engine, &address, ConnectOptions::default());
        let remote = engine.block_on(remote).unwrap();
        Client { remote, engine }
    }

    fn open(&self, name: &str) -> Result<RemoteFile, petasos_forward::client::RemoteError> {
        let path = RelPath::parse(name.as_bytes()).unwrap();
        let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
        self.engine.block_on(self.remote.open(&path, flags, 0o600))
    }
}

#[test]
fn one_client_leaves_others_theirs() {
    let place = Place::new();
    for listen in [&["shm://*"][..], &["tcp://127.0.0.1:0", "--open"]] {
        let export = serve(&place, listen, "-n 160");
        let greedy = Client::new(&export.url);
        let mut held = Vec::new();
        let refused = loop {
            assert!(held.len() < 160, "it opens more than there are");
            match greedy.open("common") {
                Ok(file) => held.push(file),
                Err(error) => break error,
            }
        };
        assert!(held.len() > 8, "{}: {refused}", held.len());
        // Another one, and a third: they come in, and find descriptors.
        let other = Client::new(&export.url);
        for name in ["a", "b", "c", "d"] {
            let file = other.open(name).unwrap();
            let write = file.write_bytes(0, name.as_bytes().to_vec().into());
            other.engine.block_on(write).unwrap();
            let read = other.engine.block_on(file.read_bytes(0, 9)).unwrap();
            assert_eq!(read, name.as_bytes());
            held.push(file);
        }
        fs::write(place.path("file"), "contents").unwrap();
        export.run(&place, &["put", "-q", "file", "@/file"]).assert(0);
        export.run(&place, &["ls", "@"]).assert(0);
        // The client that has many knows why it gets no more.
        assert_eq!(refused.errno(), Errno::MFILE);
        assert!(refused.to_string().contains("RLIMIT_NOFILE"), "{refused}");
    }
}

/// A mount in the foreground; unmounted and ended when dropped.
struct Mounted {
    child: Child,
    at: std::path::PathBuf,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        crate::common::signal(self.child.id(), "INT");
        if !ended(&mut self.child, Duration::from_secs(20)) {
            let _ = self.child.kill();
            let _ = Command::new("umount").args(["-l", "-i"]).arg(&self.at).status();
        }
        let _ = self.child.wait();
    }
}

/// The port at which a process listens.
fn port_of(pid: u32) -> u16 {
    let own = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = own.filter_map(|fd| fs::read_link(fd.path()).ok());
    let own: Vec<String> = links.map(|link| link.to_string_lossy().into_owned()).collect();
    let table = fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let found = table.lines().skip(1).find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let listens = fields[3] == "0A" && own.contains(&format!("socket:[{}]", fields[9]));
        listens.then(|| u16::from_str_radix(fields[1].split_once(':').unwrap().1, 16).unwrap())
    });
    found.expect("it listens")
}

/// How many other_users stay at a listener.
const UNAUTHENTICATED: usize = 300;

/// Whether the other side has closed a connection, whatever it said before.
fn is_closed(other_user: &mut TcpStream) -> bool {
    let _ = other_user.set_nonblocking(true);
    loop {
        match other_user.read(&mut [0; 256]) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

/// Unauthenticated peers come to a mount's listener, more than it has descriptors, and stay: it
/// finds its server again all the same.
#[test]
fn a_mount_comes_back_among_unauthenticated_peers() {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    if fuse.is_err() || !petasos_testing::is_root() {
        return skip("only root mounts here, with /dev/fuse");
    }
    let place = Place::new();
    fs::write(place.path("secret"), "x".repeat(64)).unwrap();
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let listen = ["tcp://127.0.0.1:0", "--secret", "secret"];
    let mut export = serve(&place, &listen, "-n 1024");
    fs::write(place.path("exp/file"), "contents").unwrap();
    let at = place.path("at");
    fs::create_dir(&at).unwrap();
    let words = ["forward", "mount", "--foreground", "--cache", "none", "--secret", "secret"];
    let mount = place.command(&[&words[..], &[&export.url, "at"]].concat());
    let mut command = limited(&mount, "-n 96");
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mounted = Mounted { child, at: at.clone() };
    let read = || fs::read(at.join("file")).ok();
    let until_read = |what: &str| {
        let end = Instant::now() + Duration::from_secs(30);
        while read().as_deref() != Some(b"contents") {
            assert!(Instant::now() < end, "{what}: the mount does not answer");
            thread::sleep(Duration::from_millis(20));
        }
    };
    until_read("at first");
    let port = port_of(mounted.child.id());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let connect = || TcpStream::connect(("127.0.0.1", port)).ok();
            let mut other_users: Vec<_> = (0..UNAUTHENTICATED).filter_map(|_| connect()).collect();
            while !over.load(Relaxed) {
                for other_user in &mut other_users {
                    if is_closed(other_user)
                        && let Some(next) = connect()
                    {
                        *other_user = next;
                    }
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        // Also where the test fails.
        struct Over<'a>(&'a AtomicBool);
        impl Drop for Over<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        let _over = Over(&over);
        thread::sleep(Duration::from_millis(500));
        let url = export.url.clone();
        export.kill();
        let gone = Instant::now() + Duration::from_secs(30);
        while read().is_some() {
            assert!(Instant::now() < gone, "the server's end is not noticed");
        }
        let listen = [&url, "--secret", "secret"];
        export = serve(&place, &listen, "-n 1024");
        until_read("after a restart of the server");
    });
}
