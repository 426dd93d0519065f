//! Conventions that `petasos bench` shares with all commands: exit codes, `--json`, errors as JSON,
//! the log, hang-ups, completions.

use crate::common::{Place, Ran, present, server_of, signal, until, wait};
use serde_json::Value;
use std::{
    fs,
    io::Read,
    process::{Command, Stdio},
    time::Duration,
};

/// Failures of each command on any machine: the arguments, the exit code, its kind, and a part of
/// the message.
const FAILURES: [(&str, &str, i32, &str, &str); 6] = [
    ("bench", "--transport nothing", 2, "usage", "`nothing` is no transport"),
    ("bench", "null --report file", 1, "failed", "file"),
    ("bench forward", "--transport nothing", 2, "usage", "nothing"),
    ("bench launch", "--ranks none", 2, "usage", "none"),
    ("bench mpi", "--size 0", 2, "usage", "256 MiB"),
    ("bench paper", "--transport nothing", 2, "usage", "`nothing` is no transport"),
];

#[track_caller]
fn check(ran: &Ran, code: i32, kind: &str, message: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let lines: Vec<Value> =
        ran.err.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    let error = &lines[0]["error"];
    assert_eq!((&error["code"], &error["kind"]), (&code.into(), &kind.into()), "{ran:?}");
    assert!(error["message"].as_str().unwrap().contains(message), "`{message}`: {ran:?}");
}

#[test]
fn every_command_takes_json_and_reports_errors_as_json() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    for (command, arguments, code, kind, message) in FAILURES {
        let command: Vec<&str> = command.split(' ').collect();
        let arguments: Vec<&str> = arguments.split(' ').collect();
        check(
            &place.run(&[&command[..], &["--json"], &arguments[..]].concat()),
            code,
            kind,
            message,
        );
        check(&place.run(&[&["--json"], &command[..], &arguments].concat()), code, kind, message);
        let help = place.run(&[&command[..], &["--help"]].concat()).assert(0).out;
        assert!(help.contains(&format!("petasos {}", command.join(" "))), "{help}");
        for option in ["--json", "--log <FILTER>", "-v, --verbose"] {
            assert!(help.contains(option), "{command:?} has no {option}: {help}");
        }
        let wrong = [&command[..], &["--no-such-option"]].concat();
        check(&place.run(&[&wrong[..], &["--json"]].concat()), 2, "usage", "--no-such-option");
        // Without it the error is text.
        let ran = place.run(&wrong).assert(2);
        assert!(ran.err.starts_with("error: ") && !ran.err.contains('{'), "{ran:?}");
    }
    place.assert_clean();
}

#[test]
fn it_is_found_by_its_own_name() {
    // As a shell starts it, not the command.
    let ran = Command::new(env!("CARGO_BIN_EXE_petasos-bench")).arg("--help").output().unwrap();
    assert!(Ran::of(&ran).assert(0).out.contains("Usage: petasos bench"));
}

#[test]
fn it_goes_on_under_nohup() {
    let place = Place::new();
    let what = ["bench", "null", "--transport", "shm", "--quick", "--rounds", "1", "--time", "1ms"];
    let whole = place.command(&what);
    if Command::new("nohup").arg("--version").output().is_err() {
        return petasos_testing::skip("nohup is not installed");
    }
    let mut command = Command::new("nohup");
    command.arg(whole.get_program()).args(whole.get_args());
    for (name, value) in whole.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(place.directory.path()).stdin(Stdio::null());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    until("a server process", || server_of(child.id()));
    signal(child.id(), "HUP");
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(wait(&mut child, Duration::from_secs(60)).code(), Some(0));
    assert!(text.contains("null call p99.9, spinning"), "{text}");
    place.assert_clean();
}

#[test]
fn its_processes_log_too() {
    let place = Place::new();
    let words = ["bench", "connect", "--quick", "--rounds", "1", "--time", "1ms"];
    // Before the name or after it.
    for words in [
        [&words[..], &["--transport", "shm", "--log", "petasos=debug"]].concat(),
        [&["--log", "petasos=debug"], &words[..], &["--transport", "shm"]].concat(),
    ] {
        assert!(place.run(&words).assert(0).err.contains("started a process"));
    }
}

#[test]
fn unknown_networks_are_refused() {
    let place = Place::new();
    for network in present(&["ofi+nothing", "ucx+nothing"]) {
        let ran = place.run(&["bench", "null", "--quick", "--transport", network]);
        ran.assert(2).says("means nothing");
    }
    // A network whose library is missing.
    let without = [("PETASOS_UCX", "/nowhere/libucp.so"), ("PETASOS_LIBFABRIC", "/nowhere")];
    for (network, package) in [("ofi+tcp", "libfabric1"), ("ucx+tcp", "libucx0")] {
        let words = ["bench", "null", "--quick", "--transport", network];
        place.run_with(&words, &without).assert(6).says(network).says(package);
    }
}

#[test]
fn completions_have_its_options() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).assert(0).out;
        // Only words that all shells complete: fish completes no values of positional arguments.
        for word in ["quickstart", "paper", "rounds"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_petasos-bench"));
    let ran = command.args(["completions", "tcsh"]).output().unwrap();
    assert_eq!(ran.status.code(), Some(2));
}
