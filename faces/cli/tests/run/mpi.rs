//! Programs of others: MPICH's, which speak PMI-1, and Open MPI's, which speak PMIx. Each in the
//! version that the system has packages of, and in the next one, which `scripts/mpi` fetches.

use crate::{
    common::Place,
    hosts::{START, on_a, three},
    text,
};
use petasos_launch::inventory;
use petasos_testing::{Hosts, skip};
use std::{
    ffi::OsString,
    fs::Permissions,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

/// The compiler of an MPI.
pub(crate) enum Mpi {
    /// Of a package of the system.
    Packaged(&'static str),
    /// Of `scripts/mpi`.
    Fetched(&'static str),
}

pub(crate) const MPICH: Mpi = Mpi::Packaged("mpicc.mpich");
pub(crate) const OPEN_MPI: Mpi = Mpi::Packaged("mpicc.openmpi");
pub(crate) const MPICH_5: Mpi = Mpi::Fetched("mpich/bin/mpicc");
/// The interface that all MPIs are to have in common, in a library of a name of its own.
pub(crate) const MPICH_5_COMMON: Mpi = Mpi::Fetched("mpich/bin/mpicc_abi");
pub(crate) const OPEN_MPI_5: Mpi = Mpi::Fetched("openmpi/bin/mpicc");

impl Mpi {
    fn compiler(&self) -> OsString {
        match self {
            Mpi::Packaged(name) => name.into(),
            Mpi::Fetched(name) => fetched(name).into(),
        }
    }
}

/// Where a program is that `scripts/mpi` fetches.
pub(crate) fn fetched(name: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os("PETASOS_MPI") {
        return PathBuf::from(directory).join(name);
    }
    // Beside what this test was built into.
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(3).unwrap().join("mpi").join(name)
}

/// A ring and an allreduce, built with one of them.
pub(crate) fn ring(place: &Place, mpi: &Mpi) -> Option<PathBuf> {
    built(place, mpi, "ring.c")
}

/// A program of this directory, built with one of them.
pub(crate) fn built(place: &Place, mpi: &Mpi, source: &str) -> Option<PathBuf> {
    let source = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run")).join(source);
    let name = source.file_stem().unwrap().to_str().unwrap();
    let (program, compiler) = (place.path(name), mpi.compiler());
    match Command::new(&compiler).arg("-o").arg(&program).arg(&source).output() {
        Ok(built) => assert!(built.status.success(), "{}", text(&built)),
        Err(_) => {
            let from = match mpi {
                Mpi::Packaged(_) => "packages libmpich-dev, libopenmpi-dev, gcc",
                Mpi::Fetched(_) => "scripts/mpi fetches it",
            };
            skip(&format!("{} ({from}) is not here", compiler.display()));
            return None;
        }
    }
    Some(program)
}

/// Open MPI does not like to be run by root.
pub(crate) fn allowed(mut command: Command) -> Command {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

#[track_caller]
fn runs_here(mpi: &Mpi) {
    let place = Place::new();
    let Some(program) = ring(&place, mpi) else { return };
    let output = allowed(place.command(&["run", "-n", "4", program.to_str().unwrap()])).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output));
    check(&text(&output), 4);
    place.assert_clean();
}

#[track_caller]
fn runs_on_three_hosts(mpi: &Mpi) {
    let place = Place::new();
    let Some(program) = ring(&place, mpi) else { return };
    let Some(hosts) = Hosts::several(3) else { return };
    let list = three(&hosts, [2, 1, 2]);
    let program = program.to_str().unwrap();
    let options = ["run", "-n", "5", "--hosts", &list, START[0], START[1], program];
    let output = on_a(&hosts, &allowed(place.command(&options))).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    check(&text(&output), 5);
    place.assert_clean();
}

pub(crate) fn check(said: &str, ranks: u32) {
    let sum: u32 = (0..ranks).sum();
    for rank in 0..ranks {
        let line = format!("rank {rank} of {ranks}: token 42, sum {sum}");
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn a_program_of_mpich_runs_here() {
    runs_here(&MPICH);
}

#[test]
fn a_program_of_mpich_runs_on_three_hosts() {
    runs_on_three_hosts(&MPICH);
}

#[test]
fn a_program_of_open_mpi_runs_here() {
    runs_here(&OPEN_MPI);
}

#[test]
fn a_program_of_open_mpi_runs_on_three_hosts() {
    runs_on_three_hosts(&OPEN_MPI);
}

#[test]
fn a_program_of_mpich_5_runs_here() {
    runs_here(&MPICH_5);
}

#[test]
fn a_program_of_mpich_5_runs_on_three_hosts() {
    runs_on_three_hosts(&MPICH_5);
}

#[test]
fn a_program_of_open_mpi_5_runs_here() {
    runs_here(&OPEN_MPI_5);
}

#[test]
fn a_program_of_open_mpi_5_runs_on_three_hosts() {
    runs_on_three_hosts(&OPEN_MPI_5);
}

#[test]
fn a_program_of_the_common_interface_runs_here() {
    runs_here(&MPICH_5_COMMON);
}

/// What is not seen from the program that is run: that it starts one of an MPI. Whichever wire was
/// chosen, the ranks find each other.
#[test]
fn a_script_that_starts_one_is_served_as_that_one_speaks() {
    for mpi in [&OPEN_MPI, &OPEN_MPI_5, &MPICH, &MPICH_5, &MPICH_5_COMMON] {
        let place = Place::new();
        let Some(program) = ring(&place, mpi) else { continue };
        let script = format!("{} || exit 9", program.display());
        for wire in ["auto", "pmix", "pmi1"] {
            let options = ["run", "-n", "3", "--wire", wire, "sh", "-c", &script];
            let output = allowed(place.command(&options)).output().unwrap();
            let said = text(&output);
            assert!(output.status.success(), "--wire {wire}: {said}");
            check(&said, 3);
        }
        place.assert_clean();
    }
}

/// Several programs in one job, as docs/launch.md shows it: a script chooses by the rank.
#[test]
fn programs_that_a_script_chooses_by_rank_are_one_job() {
    for mpi in [&OPEN_MPI, &OPEN_MPI_5, &MPICH, &MPICH_5] {
        let place = Place::new();
        let Some(program) = ring(&place, mpi) else { continue };
        petasos_testing::copy_program(&program, &place.path("server"));
        let script = "#!/bin/sh\ncase $PETASOS_RANK in\n0) exec ./server ;;\n*) exec ./ring \"$@\" ;;\nesac\n";
        std::fs::write(place.path("both"), script).unwrap();
        std::fs::set_permissions(place.path("both"), Permissions::from_mode(0o755)).unwrap();
        let output = allowed(place.command(&["run", "-n", "3", "./both"])).output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        check(&said, 3);
        place.assert_clean();
    }
}

#[test]
fn a_rank_of_mpich_that_dies_ends_the_job() {
    let place = Place::new();
    let Some(program) = ring(&place, &MPICH) else { return };
    // Rank 1 never comes to the barriers of the others' start.
    let script = format!("[ $PETASOS_RANK = 1 ] && exit 3; exec {}", program.display());
    let options = ["run", "-n", "3", "--wire", "pmi1", "sh", "-c", &script];
    place.run(&options).assert(3).says("rank 1 on ");
    place.assert_clean();
}

/// A rank is one MPI program. A second one of the same rank is told so, and never takes itself for
/// a job of one.
#[test]
fn a_second_program_of_the_same_rank_fails_and_it_is_said_why() {
    for (mpi, wire) in
        [(&OPEN_MPI, "pmix"), (&OPEN_MPI_5, "pmix"), (&MPICH, "pmi1"), (&MPICH_5, "pmi1")]
    {
        let place = Place::new();
        let Some(program) = ring(&place, mpi) else { continue };
        let program = program.display();
        // What a rank has finished takes nothing from the others: the job's directory is still
        // there.
        let script = format!("{program} && ls $PETASOS_JOB_DIR/token && {program}");
        let options = ["run", "-n", "2", "--wire", wire, "--timeout", "60s", "sh", "-c", &script];
        let output = allowed(place.command(&options)).output().unwrap();
        let said = text(&output);
        assert!(!output.status.success() && output.status.code() != Some(124), "{said}");
        check(&said, 2);
        assert_eq!(said.matches("token 42").count(), 2, "{said}");
        assert!(said.contains("has finished; another one cannot be it"), "{said}");
        // Open MPI 4.1's own, of a program that reached no server.
        for entry in std::fs::read_dir(place.path("tmp")).unwrap().flatten() {
            if entry.file_name().to_string_lossy().starts_with("ompi.") {
                std::fs::remove_dir_all(entry.path()).unwrap();
            }
        }
        place.assert_clean();
    }
}

/// Open MPI chooses by what it is told of the places of bound ranks.
#[test]
fn ranks_of_open_mpi_that_are_bound_know_who_is_near() {
    let cpus = inventory::Inventory::sample().cpus;
    let package = |cpu: &u32| cpus.iter().find(|one| one.number == *cpu).map(|one| one.package);
    let [first, second, ..] = inventory::binding()[..] else {
        return skip("there are not two processors here");
    };
    let near = if package(&first) == package(&second) { 2 } else { 1 };
    for mpi in [&OPEN_MPI, &OPEN_MPI_5] {
        let place = Place::new();
        let Some(program) = ring(&place, mpi) else { continue };
        let options = ["run", "-n", "2", "--bind", "core", program.to_str().unwrap(), "near"];
        let output = allowed(place.command(&options)).output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{said}");
        for rank in 0..2 {
            assert!(said.contains(&format!("rank {rank}: {near} on its package")), "{said}");
        }
        place.assert_clean();
    }
}
