//! The examples, as the README shows them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Runs an example that cargo built beside this test.
fn example(name: &str, arguments: &[&str], directory: &Path) -> String {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{}: build it with `cargo build --examples`", path.display());
    let run = Command::new(path).args(arguments).current_dir(directory).output();
    let Output { status, stdout, stderr } = run.unwrap();
    assert!(status.success(), "{name}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn hello() {
    let place = tempfile::tempdir().unwrap();
    assert_eq!(example("hello", &[], place.path()), "Good morning, Ada.\n");
}

#[test]
fn remote_write() {
    let place = tempfile::tempdir().unwrap();
    let data: Vec<u8> = (0..5_000_001u32).map(|at| (at * 31 + (at >> 9)) as u8).collect();
    fs::write(place.path().join("file"), &data).unwrap();
    let said = example("remote_write", &["file", "copy"], place.path());
    assert!(said.starts_with("5000001 bytes"), "{said}");
    assert!(fs::read(place.path().join("copy")).unwrap() == data, "the copy differs");
}

#[test]
fn in_situ() {
    let place = tempfile::tempdir().unwrap();
    let said = example("in_situ", &["256", "200"], place.path());
    assert!(said.contains("looks") && said.contains("slow-down of the computation"), "{said}");
    assert!(!said.contains("\n0 looks"), "the observer saw nothing: {said}");
}
