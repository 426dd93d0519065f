//! Programs of Portals in C, as ranks of a job: `faces/portals-c/tests/c/job.c`.

use crate::{
    common::Place,
    hosts::{START, on_a, three},
    text,
};
use petasos_testing::Hosts;
use std::{
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// The program, with the library beside it, which was built with this test.
fn program(place: &Place) -> PathBuf {
    let crate_ = Path::new(env!("CARGO_MANIFEST_DIR")).join("../portals-c");
    let own = std::env::current_exe().unwrap();
    let library = own.with_file_name("libportals.so");
    assert!(library.exists(), "{} was built with the test", library.display());
    symlink(library, place.path("libportals.so.4")).unwrap();
    symlink("libportals.so.4", place.path("libportals.so")).unwrap();
    let program = place.path("job");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_.join("include"))
        .arg(crate_.join("tests/c/job.c"))
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(place.path(""))
        .args(["-lportals", "-pthread"])
        .arg(format!("-Wl,-rpath,{}", place.path("").display()))
        .status();
    assert!(status.expect("a C compiler").success());
    program
}

fn run(place: &Place, options: &[&str], program: &Path, what: &str) -> (Option<i32>, String) {
    let program = [program.to_str().unwrap(), what];
    let output = place.command(&[&["run", "--timeout", "60s"], options, &program].concat());
    let output = { output }.output().unwrap();
    (output.status.code(), text(&output))
}

#[test]
fn ranks_of_portals_put_to_each_other() {
    let place = Place::new();
    let program = program(&place);
    let (code, said) = run(&place, &["-n", "4", "--oversubscribe"], &program, "");
    assert!(code == Some(0) && said.matches("of 4 is done").count() == 4, "{said}");
    place.assert_clean();
}

#[test]
fn a_rank_of_portals_that_is_stopped_holds_up_no_other() {
    let place = Place::new();
    let program = program(&place);
    let (code, said) = run(&place, &["-n", "4", "--oversubscribe"], &program, "stop");
    assert!(code == Some(0) && said.matches("of 4 is done").count() == 4, "{said}");
    place.assert_clean();
}

#[test]
fn a_rank_of_portals_that_is_killed_is_an_error_to_the_others() {
    let place = Place::new();
    let program = program(&place);
    let options = ["-n", "4", "--oversubscribe", "--keep-going"];
    let (code, said) = run(&place, &options, &program, "kill");
    assert!(code == Some(137) && said.matches(" lives").count() == 3, "{said}");
    place.assert_clean();
}

#[test]
fn ranks_of_portals_on_three_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let program = program(&place);
    let list = three(&hosts, [2, 1, 1]);
    let options = ["run", "-n", "4", "--timeout", "60s", "--hosts", &list, START[0], START[1]];
    let command = place.command(&[&options[..], &[program.to_str().unwrap()]].concat());
    let output = on_a(&hosts, &command).output().unwrap();
    let said = text(&output);
    assert!(output.status.success() && said.matches("of 4 is done").count() == 4, "{said}");
    place.assert_clean();
}
