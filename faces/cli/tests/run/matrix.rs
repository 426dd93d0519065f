//! Each MPI, on one host and on three, with more ranks than processors: what their programs do,
//! regular and not.

use crate::{
    common::Place,
    hosts::{START, on_a, three},
    lives::LEFT,
    mpi::{MPICH, MPICH_5, MPICH_5_COMMON, Mpi, OPEN_MPI, OPEN_MPI_5, allowed, built, check},
    text,
};
use petasos_launch::inventory;
use petasos_testing::{Hosts, skip};
use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Ranks: more than the two processors that a job here has.
const RANKS: u32 = 5;

/// An MPI, its compiler for Fortran if there is one, and whether its sessions may follow each
/// other: those of the others crash in a second one by themselves.
const MPIS: [(&Mpi, Option<&str>, bool); 5] = [
    (&MPICH, Some("mpif90.mpich"), false),
    (&MPICH_5, None, true),
    (&MPICH_5_COMMON, None, true),
    (&OPEN_MPI, Some("mpif90.openmpi"), false),
    (&OPEN_MPI_5, None, false),
];

/// What a run is to come to.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// All is well, and this is said so often.
    Well(&'static str, usize),
    /// Ranks of it left without finalizing. Where the library of another one notices first, that
    /// aborts the job.
    Left,
    /// It asked for what is refused.
    Refused,
}

impl Expected {
    fn is_met_by(self, code: Option<i32>, said: &str) -> bool {
        match self {
            Expected::Well(text, times) => code == Some(0) && said.matches(text).count() == times,
            Expected::Left if said.contains(LEFT) => code == Some(1),
            // With the library's code: neither well, nor late, nor a signal's.
            Expected::Left => said.contains(" aborted the job: ") && matches!(code, Some(1..124)),
            Expected::Refused => code == Some(3) && said.contains("spawn is refused"),
        }
    }
}

/// A job of this program, on two processors, which those of one host at least have to share. It
/// hangs no longer than a time.
fn run(place: &Place, hosts: Option<&Hosts>, words: &[&str]) -> (Option<i32>, String) {
    let list = hosts.map(|hosts| three(hosts, [1, 3, 1]));
    let count = RANKS.to_string();
    let mut options = vec!["run", "-n", &count, "--timeout", "60s"];
    if let Some(list) = &list {
        options.extend(["--hosts", list, START[0], START[1]]);
    }
    let petasos = allowed(place.command(&[&options[..], words].concat()));
    let two: Vec<String> = inventory::binding().iter().take(2).map(u32::to_string).collect();
    let mut command = Command::new("taskset");
    command.args(["-c", &two.join(",")]).arg(petasos.get_program()).args(petasos.get_args());
    for (name, value) in petasos.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(petasos.get_current_dir().unwrap());
    let output = match hosts {
        Some(hosts) => on_a(hosts, &command).output(),
        None => command.output(),
    };
    let output = output.unwrap();
    (output.status.code(), text(&output))
}

/// A program in Fortran, which asks only for the library of its interface.
fn fortran(place: &Place, compiler: &str) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/ring.f90");
    let program = place.path("fortran");
    let built = Command::new(compiler).arg("-o").arg(&program).arg(source).output();
    let built = built.is_ok_and(|built| built.status.success());
    if !built {
        skip(&format!("{compiler} is not here, or has no compiler"));
    }
    built.then_some(program)
}

/// What Open MPI makes outside of the job's directory, and leaves where it is killed.
fn clean(place: &Place) {
    for entry in std::fs::read_dir(place.path("tmp")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ompi.") {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    place.assert_clean();
}

fn all_run(hosts: Option<&Hosts>) {
    let ranks = RANKS as usize;
    for (mpi, compiler, sessions) in MPIS {
        let place = Place::new();
        let Some(ring) = built(&place, mpi, "ring.c") else { continue };
        let Some(leaves) = built(&place, mpi, "leaves.c") else { continue };
        let word = |path: &Path| path.to_str().unwrap().to_owned();
        let (ring, leaves) = (word(&ring), word(&leaves));
        let (code, said) = run(&place, hosts, &[&ring]);
        assert_eq!(code, Some(0), "{ring}: {said}");
        check(&said, RANKS);
        // Which of them it is, is not seen from a script.
        let script = format!("{ring}; exit $?");
        let (code, said) = run(&place, hosts, &["sh", "-c", &script]);
        assert_eq!(code, Some(0), "{script}: {said}");
        check(&said, RANKS);
        let mut cases = vec![
            (vec![leaves.clone(), "one".to_owned()], Expected::Left),
            (vec![leaves.clone(), "all".to_owned()], Expected::Left),
            (vec![leaves.clone(), "spawn".to_owned()], Expected::Refused),
        ];
        if let Some(program) = compiler.and_then(|compiler| fortran(&place, compiler)) {
            cases.push((vec![word(&program)], Expected::Well("of 5, sum 10", ranks)));
        }
        if sessions {
            let program = built(&place, mpi, "cycles.c").expect("a compiler that was here");
            cases.push((vec![word(&program)], Expected::Well("of 5, sum 10", 3 * ranks)));
        }
        for (words, expected) in cases {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let (code, said) = run(&place, hosts, &words);
            let met = expected.is_met_by(code, &said);
            assert!(met, "{words:?}: {expected:?}, and not {code:?}: {said}");
        }
        clean(&place);
    }
}

#[test]
fn programs_of_each_mpi_run_and_end_as_they_should_here() {
    all_run(None);
}

#[test]
fn programs_of_each_mpi_run_and_end_as_they_should_on_three_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    all_run(Some(&hosts));
}
