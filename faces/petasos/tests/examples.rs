//! The examples, as the README shows them, and with another URL.

use petasos::Transport;
use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
};

/// An example that cargo built beside this test.
fn command(name: &str, arguments: &[&str]) -> Command {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{}: build it with `cargo build --examples`", path.display());
    let mut command = Command::new(path);
    command.args(arguments);
    command
}

/// Runs one, and gives what it says.
fn example(name: &str, arguments: &[&str], directory: &Path) -> String {
    let run = command(name, arguments).current_dir(directory).output();
    let Output { status, stdout, stderr } = run.unwrap();
    let complaint = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{name} {arguments:?}: {status}\n{complaint}");
    String::from_utf8(stdout).unwrap()
}

/// Transports that need not be named, and those that need a library and are here.
fn transports() -> Vec<&'static str> {
    let here = |scheme: &&str| {
        let transport = Transport::of(scheme).expect("a transport");
        let missing = transport.missing();
        missing.inspect(|why| petasos_testing::skip(&format!("{scheme}: {why}"))).is_none()
    };
    let all = ["shm", "tcp", "auto", "ofi+tcp", "ofi+shm", "ucx+tcp", "ucx+posix"];
    all.into_iter().filter(here).collect()
}

/// An example that serves until this is dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn hello() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(example("hello", &[], place.path()), "Good morning, Ada.\n");
}

#[test]
fn hello_in_two_processes() {
    let place = tempfile::tempdir().unwrap();
    for scheme in transports() {
        let mut serve = command("hello", &["serve", &format!("{scheme}://*")]);
        let mut server = Serving(serve.stdout(Stdio::piped()).spawn().unwrap());
        let mut said = String::new();
        BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let url = said.strip_prefix("serving at ").and_then(|rest| rest.split(';').next());
        let url = url.unwrap_or_else(|| panic!("{scheme}: {said}"));
        assert!(url.starts_with(scheme), "{said}");
        let answer = example("hello", &["call", url, "Grace"], place.path());
        assert_eq!(answer, "Good morning, Grace.\n", "{scheme}");
    }
}

#[test]
fn remote_write() {
    let place = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..5_000_001u32).map(|at| (at * 31 + (at >> 9)) as u8).collect();
    fs::write(place.path().join("file"), &data).unwrap();
    let copied = |arguments: &[&str]| {
        let said = example("remote_write", arguments, place.path());
        assert!(said.starts_with("5000001 bytes"), "{said}");
        let copy = fs::read(place.path().join("copy")).unwrap();
        assert!(copy == data, "{arguments:?}: the copy differs");
        fs::remove_file(place.path().join("copy")).unwrap();
    };
    copied(&["file", "copy"]);
    for scheme in transports() {
        copied(&["file", "copy", &format!("{scheme}://*"), "256", "3"]);
    }
}

#[test]
fn in_situ() {
    let place = tempfile::tempdir().unwrap();
    let watched = |arguments: &[&str]| {
        let said = example("in_situ", arguments, place.path());
        assert!(
            said.contains("observations") && said.contains("slow-down of the computation"),
            "{said}"
        );
        assert!(
            !said.contains("\n0 observations"),
            "{arguments:?}: the observer saw nothing: {said}"
        );
    };
    watched(&["128", "60"]);
    for scheme in transports() {
        watched(&["64", "40", &format!("{scheme}://*")]);
    }
}
