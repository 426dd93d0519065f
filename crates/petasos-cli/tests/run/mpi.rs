//! Programs of others: MPICH's, which speak PMI-1, and Open MPI's, which speak PMIx.

use crate::{
    common::Place,
    hosts::{START, on_a, three},
    text,
};
use petasos_testing::{Hosts, skip};
use std::{path::PathBuf, process::Command};

const MPICH: &str = "mpicc.mpich";
const OPEN_MPI: &str = "mpicc.openmpi";

/// A ring and an allreduce, built with one of them.
fn ring(place: &Place, compiler: &str) -> Option<PathBuf> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/ring.c");
    let program = place.path("ring");
    match Command::new(compiler).arg("-o").arg(&program).arg(source).output() {
        Ok(built) => assert!(built.status.success(), "{}", text(&built)),
        Err(_) => {
            skip(&format!("{compiler} (packages libmpich-dev, libopenmpi-dev, gcc) is not here"));
            return None;
        }
    }
    Some(program)
}

/// Open MPI does not like to be run by root.
fn allowed(mut command: Command) -> Command {
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command
}

#[track_caller]
fn runs_here(compiler: &str) {
    let place = Place::new();
    let Some(program) = ring(&place, compiler) else { return };
    let output = allowed(place.command(&["run", "-n", "4", program.to_str().unwrap()])).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", text(&output));
    check(&text(&output), 4);
    place.assert_clean();
}

#[track_caller]
fn runs_on_three_hosts(compiler: &str) {
    let place = Place::new();
    let Some(program) = ring(&place, compiler) else { return };
    let Some(hosts) = Hosts::several(3) else { return };
    let list = three(&hosts, [2, 1, 2]);
    let program = program.to_str().unwrap();
    let options = ["run", "-n", "5", "--hosts", &list, START[0], START[1], program];
    let output = on_a(&hosts, &allowed(place.command(&options))).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    check(&text(&output), 5);
    place.assert_clean();
}

fn check(said: &str, ranks: u32) {
    let sum: u32 = (0..ranks).sum();
    for rank in 0..ranks {
        let line = format!("rank {rank} of {ranks}: token 42, sum {sum}");
        assert!(said.contains(&line), "{said}");
    }
}

#[test]
fn a_program_of_mpich_runs_here() {
    runs_here(MPICH);
}

#[test]
fn a_program_of_mpich_runs_on_three_hosts() {
    runs_on_three_hosts(MPICH);
}

#[test]
fn a_program_of_open_mpi_runs_here() {
    runs_here(OPEN_MPI);
}

#[test]
fn a_program_of_open_mpi_runs_on_three_hosts() {
    runs_on_three_hosts(OPEN_MPI);
}

#[test]
fn a_rank_of_mpich_that_dies_ends_the_job() {
    let place = Place::new();
    let Some(program) = ring(&place, MPICH) else { return };
    // Rank 1 never comes to the barriers of the others' start.
    let script = format!("[ $PETASOS_RANK = 1 ] && exit 3; exec {}", program.display());
    let options = ["run", "-n", "3", "--wire", "pmi1", "sh", "-c", &script];
    place.run(&options).assert(3).says("rank 1 on ");
    place.assert_clean();
}
