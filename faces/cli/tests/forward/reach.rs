//! Which users reach a server: other users of the machine only where that was asked for.

use crate::common::{Place, Ran, signal, wait};
use petasos_testing::{copy_program, is_root, skip};
use std::{
    collections::HashSet,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Child, Stdio},
    time::Duration,
};

/// `nobody`, on Debian and most others.
const NOBODY: u32 = 65534;

/// A running `petasos forward serve exp …`.
struct Server {
    child: Child,
    urls: Vec<String>,
    /// What it said on standard error until it was ready.
    said: String,
}

impl Server {
    fn start(place: &Place, arguments: &[&str]) -> Server {
        let _ = fs::create_dir(place.path("exp"));
        fs::write(place.path("exp/file"), "contents").unwrap();
        let mut command = place.command(&[&["forward", "serve", "exp"], arguments].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut error = BufReader::new(child.stderr.take().unwrap());
        while !said.contains("Ctrl-C ends") {
            assert!(error.read_line(&mut said).unwrap() > 0, "it ended: {said}");
        }
        signal(child.id(), "STOP");
        // All URLs were printed before; the pipe has them.
        let sockets = listening(&child);
        signal(child.id(), "CONT");
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut urls = Vec::new();
        while said.matches("listening").count() == 0 && urls.len() < 1 + usize::from(sockets > 0) {
            let mut line = String::new();
            assert!(out.read_line(&mut line).unwrap() > 0);
            urls.push(line.strip_prefix("listening at ").unwrap().trim_end().to_owned());
            if arguments.contains(&"--listen") {
                break;
            }
        }
        Server { child, urls, said }
    }

    fn url(&self, scheme: &str) -> &str {
        self.urls.iter().find(|url| url.starts_with(scheme)).expect("such a URL")
    }

    fn end(mut self) {
        signal(self.child.id(), "INT");
        assert!(wait(&mut self.child, Duration::from_secs(10)).success());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How many TCP sockets of a process listen.
fn listening(child: &Child) -> usize {
    let pid = child.id();
    let mut listen = HashSet::new();
    for table in ["tcp", "tcp6"] {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        for line in text.lines().skip(1) {
            let fields: Vec<_> = line.split_whitespace().collect();
            if fields[3] == "0A" {
                listen.insert(format!("socket:[{}]", fields[9]));
            }
        }
    }
    let own = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let links = own.filter_map(|fd| fs::read_link(fd.path()).ok());
    links.filter(|link| listen.contains(&*link.to_string_lossy())).count()
}

/// Runs `petasos forward …` as another user; `None`, with a word, where this one cannot do that.
fn as_nobody(place: &Place, arguments: &[&str]) -> Option<Ran> {
    if !is_root() {
        skip("only root can run a part of this test as another user");
        return None;
    }
    // The build directory, and that of the test, may be closed to others.
    let outside = tempfile::tempdir().unwrap();
    let program = outside.path().join("petasos");
    fs::set_permissions(outside.path(), fs::Permissions::from_mode(0o755)).unwrap();
    copy_program(env!("CARGO_BIN_EXE_petasos").as_ref(), &program);
    let template = place.command(&[]);
    let mut command = std::process::Command::new(&program);
    for (name, value) in template.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("TMPDIR", outside.path()).current_dir("/").stdin(Stdio::null());
    command.arg("forward").args(arguments).uid(NOBODY).gid(NOBODY);
    Some(Ran::of(&command.output().unwrap()))
}

#[test]
fn by_default_nobody_else() {
    let place = Place::new();
    let server = Server::start(&place, &[]);
    assert_eq!(listening(&server.child), 0, "it listens over TCP: {:?}", server.urls);
    let url = server.url("shm://");
    assert!(server.said.contains("on this machine can read and write exp"), "{}", server.said);
    assert!(!server.said.contains("every user"), "{}", server.said);
    assert_eq!(place.run(&["forward", "ls", url]).assert(0).out, "file\n");
    if let Some(refused) = as_nobody(&place, &["ls", "--timeout", "2s", url]) {
        assert!(matches!(refused.code, Some(3 | 5)), "{refused:?}");
    }
    server.end();
}

#[test]
fn tcp_wants_a_secret_or_a_word() {
    let place = Place::new();
    fs::create_dir(place.path("exp")).unwrap();
    for url in ["tcp://127.0.0.1:0", "auto://127.0.0.1:0"] {
        let refused = place.run(&["forward", "serve", "exp", "--listen", url]).assert(5);
        refused.says("every user of this machine").says("--secret FILE").says("--open");
        place.run(&["serve", "--files", "--listen", url]).assert(5).says("--open");
    }
    let both = ["forward", "serve", "exp", "--open", "--secret", "file"];
    place.run(&both).assert(2).says("cannot be used with");
}

#[test]
fn an_open_server_is_open_and_says_so() {
    let place = Place::new();
    let server = Server::start(&place, &["--open"]);
    assert_eq!(listening(&server.child), 1);
    let said = &server.said;
    assert!(said.contains("every user of this machine can read and write exp as "), "{said}");
    let url = server.url("tcp://");
    // Nor does a client need a word for it.
    assert_eq!(place.run(&["forward", "ls", url]).assert(0).out, "file\n");
    if let Some(listed) = as_nobody(&place, &["ls", url]) {
        assert_eq!(listed.assert(0).out, "file\n");
    }
    server.end();
    let server = Server::start(&place, &["--open", "--read-only"]);
    assert!(server.said.contains("every user of this machine can read exp as "), "{}", server.said);
    server.end();
}

#[test]
fn with_a_secret_who_has_it() {
    let place = Place::new();
    fs::write(place.path("secret"), "x".repeat(64)).unwrap();
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let server = Server::start(&place, &["--secret", "secret"]);
    assert!(server.said.contains("clients with the secret in secret can read and write exp"));
    let url = server.url("tcp://");
    assert_eq!(place.run(&["forward", "ls", "--secret", "secret", url]).assert(0).out, "file\n");
    if let Some(refused) = as_nobody(&place, &["ls", "--timeout", "2s", url]) {
        assert!(matches!(refused.code, Some(3 | 5)), "{refused:?}");
    }
    server.end();
}
