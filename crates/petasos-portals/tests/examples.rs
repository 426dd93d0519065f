//! The examples, with processes of their own.

use std::process::Command;

/// Runs an example that cargo built beside this test.
fn example(name: &str, processes: &str) -> String {
    let own = std::env::current_exe().unwrap();
    let path = own.parent().unwrap().parent().unwrap().join("examples").join(name);
    assert!(path.exists(), "{}: build it with `cargo build --examples`", path.display());
    let run = Command::new(path).arg(processes).output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{name}: {said}{}", String::from_utf8_lossy(&run.stderr));
    said
}

#[test]
fn two_sided_messages() {
    for processes in ["1", "3"] {
        assert!(example("two_sided", processes).contains("all is well"));
    }
}

#[test]
fn a_small_shmem() {
    for processes in ["1", "2", "5"] {
        assert!(example("shmem", processes).contains("all is well"));
    }
}
