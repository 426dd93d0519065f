//! `petasos run`, as a user runs it: on this host, and on emulated ones.

mod afar;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod fences;
mod floods;
mod hosts;
mod inventory;
mod jobs;
mod launchers;
mod leftovers;
mod limits;
mod lives;
mod matrix;
mod mpi;
mod options;
mod outsiders;
mod places;
mod pmix;
mod portals;
mod private;
mod provider;
mod ranks;
mod relay;
mod restarts;
mod slurm;
mod spares;
mod staging;
mod storm;
mod terminal;
mod tree;

use common::Place;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// `petasos run` with a shell script as the program.
fn shell(place: &Place, options: &[&str], script: &str) -> common::Ran {
    place.run(&[&["run"], options, &["sh", "-c", script]].concat())
}

/// This test's own binary as the program: each rank runs the test `name` again, in the role
/// `rank`.
fn ranks(place: &Place, options: &[&str], name: &str) -> Command {
    let own = std::env::current_exe().unwrap();
    let mut command = place.command(&[&["run"], options].concat());
    command.arg(own).args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("PETASOS_TEST_ROLE", "rank");
    command
}

fn text(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[track_caller]
fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}: {}", output.status, text(&output));
    text(&output)
}

/// An example that cargo built beside this test.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{}: build it with `cargo build --examples`", path.display());
    path
}

/// Whether a process with this in its command line exists.
fn exists(marker: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.map(|process| process.path().join("cmdline")).any(|path| {
        let line = std::fs::read(&path).unwrap_or_default();
        String::from_utf8_lossy(&line).replace('\0', " ").contains(marker)
            && !path.starts_with(Path::new("/proc").join(std::process::id().to_string()))
    })
}
