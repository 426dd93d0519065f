//! `petasos broker`, and programs in containers that use it: namespaces of their own for users,
//! mounts, network, IPC and processes, and nothing in common but the file system and a socket.
//! The commands are those of docs/containers.md.

use super::common::{Place, Ran, signal, wait};
use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A command that runs until it is stopped.
struct Running(Child);

impl Running {
    /// Starts it; gives the first lines that it prints.
    fn start(mut command: Command, lines: usize) -> (Running, Vec<String>) {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines().take(lines);
        let said = out.map(Result::unwrap).collect();
        (Running(child), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In a container without privileges, in which /dev/shm is empty and cannot be written.
const CONTAINER: [&str; 9] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--net",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
];

fn contained(place: &Place, socket: &str, words: &[&str]) -> Command {
    let inner = place.command(words);
    let mut command = Command::new(CONTAINER[0]);
    command.args(&CONTAINER[1..]).args(["sh", "-c"]);
    command.arg("mount -t tmpfs -o ro none /dev/shm && exec \"$@\"").arg("sh");
    command.arg(inner.get_program()).args(inner.get_args());
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PETASOS_BROKER", place.path(socket));
    command.current_dir(place.directory.path()).stdin(Stdio::null());
    command
}

/// Whether this system lets users make containers.
fn has_containers() -> bool {
    let words = [&CONTAINER[1..], &["true"]].concat();
    let made = Command::new(CONTAINER[0]).args(words).output();
    made.is_ok_and(|output| output.status.success())
}

#[test]
fn files_go_from_container_to_container_by_the_rules() {
    if !has_containers() {
        return petasos_testing::skip("no user namespaces here (unshare --user --map-root-user)");
    }
    let place = Place::new();
    fs::create_dir(place.path("export")).unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ at >> 9) as u8).collect();
    fs::write(place.path("export/data"), &content).unwrap();
    let mut words = vec!["broker", "--control", "control", "--allow", "bob=files@alice"];
    words.extend(["--tenant", "alice=alice.sock", "--tenant", "bob=bob.sock"]);
    words.extend(["--tenant", "eve=eve.sock", "--limit", "eve.endpoints=2"]);
    let (mut broker, said) = Running::start(place.command(&words), 3);
    assert!(said[0].starts_with("tenant alice at "), "{said:?}");

    let url = "tenant://files@alice";
    let serve = contained(&place, "alice.sock", &["forward", "serve", "export", "--listen", url]);
    let (server, said) = Running::start(serve, 1);
    assert!(said[0].contains(url), "{said:?}");
    let run =
        |socket: &str, words: &[&str]| Ran::of(&contained(&place, socket, words).output().unwrap());
    let from = format!("{url}/data");
    run("bob.sock", &["forward", "get", &from, "copy"]).assert(0);
    assert!(fs::read(place.path("copy")).unwrap() == content, "all of it came");
    let eve = run("eve.sock", &["forward", "get", &from, "stolen", "--retry", "0s"]).assert(3);
    assert!(eve.err.contains("no rule allows it"), "{eve:?}");
    assert!(!place.path("stolen").exists());
    // What the socket says counts, and not what a program says.
    let listen = ["forward", "serve", "export", "--listen", "tenant://files@bob"];
    assert!(run("eve.sock", &listen).err.contains("the socket of the tenant eve"));

    let ask = ["broker", "status", "--control", "control"];
    let status = place.run(&[&ask[..], &["--json"]].concat()).assert(0).json();
    assert!(status["tenants"][0]["sent"]["bytes"].as_u64() > Some(3_000_000), "{status}");
    assert_eq!(status["tenants"][2]["sent"]["bytes"], 0, "{status}");
    let text = place.run(&ask).assert(0).out;
    assert!(text.contains("alice") && text.contains("no rule allows it"), "{text}");
    place.run(&["broker", "reload", "--control", "control"]).assert(1).says("no file to read");

    drop(server);
    signal(broker.0.id(), "INT");
    assert_eq!(wait(&mut broker.0, Duration::from_secs(20)).code(), Some(0));
    assert!(!place.path("alice.sock").exists(), "its sockets go with it");
    fs::remove_file(place.path("copy")).unwrap();
    place.assert_clean();
}
