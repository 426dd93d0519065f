//! Options as other launchers call them, and what is wrong with a command line or a program, in
//! words.

use crate::{common::Place, shell};
use std::{fs, os::unix::fs::PermissionsExt};

#[test]
fn options_of_other_launchers_do_here_what_they_do_there() {
    let place = Place::new();
    fs::create_dir(place.path("elsewhere")).unwrap();
    let script = "echo $PETASOS_SIZE $A $(basename $PWD) $TMPDIR";
    let options = ["-np", "2", "-x", "A=a word", "-wdir", "elsewhere", "-x", "TMPDIR"];
    let ran = shell(&place, &options, script).assert(0);
    let line = format!("2 a word elsewhere {}\n", place.path("tmp").display());
    assert_eq!(ran.out, line.repeat(2));
    // More than there are slots for.
    let hosts = ["-np", "5", "--host", "localhost:2"];
    shell(&place, &hosts, "echo").assert(2).says("5 ranks are more").says("--oversubscribe");
    let ran = shell(&place, &[&hosts[..], &["--oversubscribe"]].concat(), "echo ran").assert(0);
    assert_eq!(ran.out, "ran\n".repeat(5));
    let ran = place.run(&["run", "-n", "4", "--host", "node[08-10]:2", "--dry-run", "--json", "x"]);
    assert_eq!(
        ran.assert(0).json()["ranks"],
        serde_json::json!(["node08", "node08", "node09", "node09"])
    );
    shell(&place, &["-x", "NOT_SET_ANYWHERE"], "echo").assert(2).says("-x NOT_SET_ANYWHERE: ");
    shell(&place, &["--wdir", "nowhere"], "echo").assert(127).says("no such directory");
    place.assert_clean();
}

#[test]
fn an_option_that_is_none_is_no_program_and_programs_are_no_arguments() {
    let place = Place::new();
    place.run(&["run", "-ppn", "2", "true"]).assert(2).says("-ppn").says("--hosts a:4");
    place.run(&["run", "--mca", "btl", "self", "true"]).assert(2).says("OMPI_MCA_NAME=VALUE");
    let ran = place.run(&["run", "-n", "2", "--of-no-meaning", "true"]).assert(2);
    ran.says("unexpected argument '--of-no-meaning'");
    let several = ["run", "-n", "2", "echo", "one", ":", "-n", "1", "echo", "two"];
    let ran = place.run(&several).assert(2).says("`:`").says("$PETASOS_RANK");
    assert_eq!(ran.out, "");
    // It may be an argument all the same.
    assert_eq!(place.run(&["run", "sh", "-c", ":"]).assert(0).out, "");
    assert_eq!(place.run(&["run", "--", "echo", ":", "two"]).assert(0).out, ": two\n");
    assert_eq!(place.run(&["run", "echo", "-np", "--label"]).assert(0).out, "-np --label\n");
    place.assert_clean();
}

#[test]
fn of_what_cannot_be_run_it_is_said_what_it_lacks() {
    let place = Place::new();
    let program = |name: &str, text: &[u8]| {
        fs::write(place.path(name), text).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(0o755)).unwrap();
    };
    program("script", b"#! /no/such/interpreter -x\necho\n");
    let binary = without_loader();
    binary.iter().for_each(|binary| program("binary", binary));
    fs::create_dir(place.path("directory")).unwrap();
    let lacks = |name: &str, what: &str| {
        let ran = place.run(&["run", name]).assert(127);
        assert!(ran.err.contains(&format!("{name}: {what}")), "{ran:?}");
    };
    lacks("./script", "what it is run by is not there: /no/such/interpreter");
    if binary.is_some() {
        lacks("./binary", "what it is run by is not there: /non64/ld-linux-x86-64.so.2");
    }
    lacks("./directory", "this is a directory");
    lacks("directory", "this is a directory");
    lacks("./none", "there is no such program");
    lacks("none", "there is no such program");
    // A start command, as ssh is where there is none.
    let path = place.path("empty").display().to_string();
    let ran = place.run_with(&["run", "--hosts", "a:1", "true"], &[("PATH", &path)]).assert(1);
    ran.says("a: no daemon was started there: starting it by `ssh`: ssh: there is no such program");
    place.assert_clean();
}

/// A program of this machine whose loader is somewhere else.
fn without_loader() -> Option<Vec<u8>> {
    let mut program = fs::read("/bin/true").unwrap();
    let loader = b"/lib64/ld-linux-x86-64.so.2\0";
    let at = program.windows(loader.len()).position(|bytes| bytes == loader)?;
    program[at..at + 6].copy_from_slice(b"/non64");
    Some(program)
}
