//! `petasos bench forward`: what it measures, what it prints, and that it leaves nothing. Speed is
//! not asserted, and which other programs are installed is not known.

use crate::common::{Place, signal, until, wait};
use serde_json::Value;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// The shortest run.
const BRIEF: [&str; 9] =
    ["--rounds", "1", "--size", "1MiB", "--files", "30", "--clients", "1,3", "--json"];

fn forward<'a>(what: &[&'a str]) -> Vec<&'a str> {
    [&["bench", "forward", "--quick"], &BRIEF[..], what].concat()
}

fn array<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("no {name} in {value}"))
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The rows of a table that have a figure of Petasos.
fn ours(results: &Value, table: &str) -> Vec<String> {
    let lines = array(results, "lines").iter().filter(|line| line["table"] == table);
    let ours = |line: &&Value| array(line, "standings").iter().any(|one| one["kind"] == "ours");
    lines.filter(ours).map(|line| line["what"].as_str().unwrap().to_owned()).collect()
}

/// Each figure is a positive number, beside a limit.
fn check(results: &Value) {
    for line in array(results, "lines") {
        let standings = array(line, "standings");
        assert_eq!(standings[0]["kind"], "limit", "{line}");
        for one in standings {
            let (value, limit) = (number(&one["value"]), number(&one["limit"]));
            assert!(value > 0.0 && value.is_finite() && limit > 0.0, "{line}");
            assert!((number(&one["ratio"]) - value / limit).abs() < 1e-9 * value / limit, "{line}");
            assert_eq!(array(one, "rounds").len(), 1, "{line}");
        }
        if standings.len() > 1 {
            assert!(line["ahead"]["name"].is_string(), "{line}");
        }
    }
    assert!(array(results, "broken").is_empty(), "{results}");
    let skipped = results["skipped"].to_string();
    assert!(skipped.contains("NFS: "), "{skipped}");
}

/// No process refers to a directory, and nothing is mounted there.
fn assert_quiet(place: &Place) {
    place.assert_clean();
    let path = place.path("tmp").to_string_lossy().into_owned();
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&path), "{mounts}");
    assert_eq!(processes(&path), Vec::<String>::new());
}

/// The command lines of processes that have a path in them.
fn processes(path: &str) -> Vec<String> {
    let lines = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let line = fs::read(entry.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&line).replace('\0', " "))
    });
    lines.filter(|line| line.contains(path)).collect()
}

#[test]
fn all_programs_that_are_installed() {
    let place = Place::new();
    let results = place.run(&forward(&["--report", "page"])).assert(0).json();
    check(&results);
    for (table, least) in [("commands", 5), ("clients-by-commands", 6)] {
        assert!(ours(&results, table).len() >= least, "{table}: {results}");
    }
    if !results["skipped"].to_string().contains("mounts: ") {
        for (table, least) in [("mounts", 6), ("metadata", 5), ("clients-by-mounts", 6)] {
            assert!(ours(&results, table).len() >= least, "{table}: {results}");
        }
    }
    let written = fs::read_to_string(place.path("page/results.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), results);
    let page = fs::read_to_string(place.path("page/index.html")).unwrap();
    for title in ["Large files by clients", "Whole commands", "Large files", "How it was measured"]
    {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\""), "coordinates are numbers");
    assert_quiet(&place);
}

#[test]
fn without_other_programs() {
    let place = Place::new();
    // Administration programs are found without it; so only sshfs is missing of ssh.
    let alone = [("PATH", "/nonexistent")];
    let results = place.run_with(&forward(&["commands"]), &alone).assert(0).json();
    check(&results);
    let skipped = results["skipped"].to_string();
    for package in ["rclone", "rsync"] {
        assert!(skipped.contains(&format!("it is in the package {package}")), "{skipped}");
    }
    let peers = array(&results, "lines").iter().flat_map(|line| array(line, "standings"));
    assert!(peers.filter(|one| one["kind"] == "peer").count() == 0, "{results}");
    assert_quiet(&place);
}

#[test]
fn wrong_data_is_reported() {
    let place = Place::new();
    let programs = place.path("programs");
    fs::create_dir(&programs).unwrap();
    let liar = "#!/bin/sh\nfor last; do :; done\necho wrong > \"${last#bench:}\"\n";
    fs::write(programs.join("scp"), liar).unwrap();
    fs::set_permissions(programs.join("scp"), fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let results = place.run_with(&forward(&["commands"]), &[("PATH", &path)]).assert(0).json();
    check(&results);
    let skipped = results["skipped"].to_string();
    if !skipped.contains("ssh: ") {
        assert!(skipped.contains("WRONG DATA: scp: put, large file"), "{skipped}");
        let lines = array(&results, "lines").iter().flat_map(|line| array(line, "standings"));
        assert!(lines.filter(|one| one["name"] == "scp").count() == 0, "{results}");
    }
    assert_quiet(&place);
}

/// Starts a long run, and waits until it measures.
fn under_way(place: &Place) -> std::process::Child {
    let long = ["--quick", "--rounds", "100", "--size", "1MiB", "--files", "30"];
    // What it is interrupted in, without what is measured before.
    let without_mounts = !Path::new("/dev/fuse").exists();
    let part = if without_mounts { "commands" } else { "mounts" };
    let mut command = place.command(&[&["bench", "forward", part], &long[..]].concat());
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let path = place.path("tmp").to_string_lossy().into_owned();
    let mounted = || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&path);
    until("the run is under way", || {
        let copied = processes(&path).iter().any(|line| line.contains("forward"));
        (mounted() || without_mounts && copied).then_some(())
    });
    child
}

#[test]
fn an_interrupted_run_leaves_nothing() {
    let place = Place::new();
    let mut child = under_way(&place);
    signal(child.id(), "INT");
    assert_eq!(wait(&mut child, Duration::from_secs(60)).code(), Some(130));
    assert_quiet(&place);
}

#[test]
fn a_killed_run_leaves_no_processes() {
    let place = Place::new();
    let mut child = under_way(&place);
    signal(child.id(), "KILL");
    wait(&mut child, Duration::from_secs(60));
    let path = place.path("tmp").to_string_lossy().into_owned();
    until("all processes have ended", || processes(&path).is_empty().then_some(()));
    // Some cannot unmount while the mount is used, and end nevertheless.
    for line in fs::read_to_string("/proc/self/mountinfo").unwrap().lines() {
        let at = line.split(' ').nth(4).unwrap();
        if at.contains(&path) {
            let _ = Command::new("fusermount3").args(["-q", "-u", "-z", at]).status();
        }
    }
}

#[test]
fn impossible_options_are_refused_before_a_measurement() {
    let place = Place::new();
    place.run(&["bench", "forward", "--size", "1"]).assert(2).says("at least 64KiB");
    place.run(&["bench", "forward", "--clients", "0"]).assert(2).says("--clients");
    place.run(&["bench", "forward", "commandz"]).assert(2).says("commands");
    let full = place.run(&["bench", "forward", "--size", "1000TiB"]).assert(1);
    full.says("are free").says("--dir DIR");
    place.assert_clean();
}
