//! The small commands: what they print, and how they end.

use crate::{
    common::Place,
    export::{Export, TRANSPORTS},
};
use serde_json::Value;
use std::fs;

#[test]
fn names_are_listed_made_moved_and_removed() {
    let place = Place::new();
    for transport in TRANSPORTS {
        let mut export = Export::start(&place, transport, &[]);
        let run = |arguments: &[&str]| export.run(&place, arguments);
        run(&["mkdir", "@/a/b"]).assert(1).says("No such file");
        run(&["mkdir", "-p", "-m", "750", "@/a/b", "@/a/b"]).assert(0);
        fs::write(place.path("exp/a/b/file"), "contents").unwrap();
        std::os::unix::fs::symlink("file", place.path("exp/a/b/link")).unwrap();
        assert_eq!(run(&["ls", "@/a/b"]).assert(0).out, "file\nlink\n");
        let long = run(&["ls", "-lR", "@/a"]).assert(0).out;
        assert!(long.contains("drwxr-x---") && long.contains("link -> file"), "{long}");
        assert!(long.contains("/a/b:\n"), "{long}");
        let lines = run(&["ls", "--json", "@/a/b"]).assert(0).out;
        let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
        assert_eq!((&first["path"], &first["kind"]), (&"a/b/file".into(), &"file".into()));
        assert_eq!(first["size"], 8);
        let link = run(&["stat", "--json", "@/a/b/link"]).assert(0).json();
        assert_eq!(link["kind"], "symlink");
        assert_eq!(run(&["stat", "-L", "--json", "@/a/b/link"]).assert(0).json()["kind"], "file");
        assert!(run(&["stat", "@/a"]).assert(0).out.contains("drwxr-x---"));
        assert_eq!(run(&["cat", "@/a/b/file", "@/a/b/link"]).assert(0).out, "contentscontents");
        run(&["mv", "@/a/b/file", "@/a"]).assert(0);
        assert!(place.path("exp/a/file").exists());
        run(&["mv", "-n", "@/a/file", "@/a/b/link"]).assert(1).says("exists");
        run(&["rm", "@/a"]).assert(1).says("--recursive");
        run(&["rm", "-r", "@/a"]).assert(0);
        run(&["rm", "@/a"]).assert(1).says("No such file");
        run(&["rm", "-f", "@/a"]).assert(0);
        run(&["rm", "-r", "@"]).assert(2).says("the root of the export");
        assert!(run(&["status", "@"]).assert(0).out.contains("exports exp"));
        let status = run(&["status", "--json", "@"]).assert(0).json();
        assert_eq!(status["read_only"], false);
        assert!(status["total"]["calls"].as_u64().unwrap() > 10, "{status}");
        assert_eq!(export.interrupt(), Some(0));
        assert_eq!(fs::read_dir(place.path("exp")).unwrap().count(), 0);
    }
    place.assert_clean();
}

#[test]
fn large_files_are_printed_whole() {
    let place = Place::new();
    let export = Export::start(&place, "shm", &[]);
    let line = "0123456789abcdef\n";
    let text = line.repeat((20 << 20) / line.len());
    fs::write(place.path("exp/large"), &text).unwrap();
    assert!(export.run(&place, &["cat", "@/large"]).assert(0).out == text);
}

#[test]
fn what_goes_wrong_is_said_and_has_a_code() {
    let place = Place::new();
    fs::write(place.path("file"), "x").unwrap();
    fs::create_dir(place.path("directory")).unwrap();
    let run = |arguments: &[&str]| place.run(&[&["forward"], arguments].concat());
    run(&["put", "file", "nowhere"]).assert(2).says("names no path at a server");
    run(&["put", "file", "tcp://127.0.0.1:1/../x"]).assert(2).says("leads out");
    run(&["sync", "directory", "directory"]).assert(2).says("the other at a server");
    run(&["serve", "no-such-directory"]).assert(2).says("name a directory");
    run(&["serve", "directory", "--limit", "speed=3"]).assert(2).says("unknown limit");
    assert!(run(&["serve", "directory", "--limit", "help"]).assert(0).out.contains("memory"));
    run(&["put", "--timeout", "300ms", "file", "tcp://127.0.0.1:1/x"]).assert(3);
    run(&["ls", "--timeout", "300ms", "shm://nobody-is-here"]).assert(3);

    let export = Export::start(&place, "shm", &["--read-only"]);
    let run = |arguments: &[&str]| export.run(&place, arguments);
    run(&["put", "file", "@/x"]).assert(1).says("read-only");
    run(&["mkdir", "@/x"]).assert(5).says("read-only");
    run(&["get", "@/none", "x"]).assert(1).says("No such file");
    drop(export);

    let export = Export::start(&place, "tcp", &[]);
    let run = |arguments: &[&str]| export.run(&place, arguments);
    run(&["put", "file", "none", "directory", "@/x/"]).assert(2).says("mkdir -p");
    run(&["mkdir", "@/x"]).assert(0);
    let put = run(&["put", "--json", "file", "none", "directory", "@/x"]).assert(1);
    let lines: Vec<Value> =
        put.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{put:?}");
    assert!(lines[0]["failed"]["path"].as_str().unwrap().ends_with("none"), "{put:?}");
    assert_eq!(lines[0]["failed"]["exit"], 1);
    assert_eq!(lines[1]["summary"]["files"], 1);
    run(&["put", "file", "directory/../file", "@/x"]).assert(2).says("two sources");
    // A directory is not replaced by a file, nor the other way round.
    run(&["put", "directory", "@/x/file"]).assert(1).says("no directory");
    fs::create_dir(place.path("exp/x/directory/file")).unwrap();
    run(&["get", "@/x/directory", "file"]).assert(1).says("no directory");
    assert_eq!(fs::read(place.path("file")).unwrap(), b"x");
    run(&["get", "@/x/file", "@/x/directory", "file"]).assert(2).says("no directory");
    run(&["get", "-q", "@/x/file", "@/x/directory", "directory"]).assert(0);
    assert!(place.path("directory/directory/file").is_dir());
    place.assert_clean();
}

#[test]
fn a_secret_is_needed_where_there_is_one() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new();
    for (name, secret) in [("secret", "something long enough to be one 123"), ("other", "no")] {
        let text = format!("{secret}{}", "x".repeat(32));
        fs::write(place.path(name), text).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    let export = Export::start(&place, "tcp", &["--secret", "secret"]);
    export.run(&place, &["ls", "--secret", "secret", "@"]).assert(0);
    let refused = export.run(&place, &["ls", "--timeout", "2s", "--secret", "other", "@"]);
    assert!(matches!(refused.code, Some(3 | 5)), "{refused:?}");
}
