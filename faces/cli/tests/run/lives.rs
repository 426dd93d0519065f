//! Ranks that leave without a word, that finalize and begin again, that ask for what is not here,
//! or that share a processor: over each of the wires.

use crate::{
    common::{Place, Ran},
    mpi::{MPICH, MPICH_5, Mpi, OPEN_MPI, OPEN_MPI_5, allowed, built},
    pmix, ranks, shell, text,
};
use petasos_pmix::Job;
use petasos_testing::role;
use std::{path::Path, process::Command};

const ALL: [&Mpi; 4] = [&MPICH, &MPICH_5, &OPEN_MPI, &OPEN_MPI_5];

/// What a program of an MPI says, and its exit code. It hangs no longer than a time.
fn run(place: &Place, program: &Path, options: &[&str], what: &str) -> (Option<i32>, String) {
    let program = program.to_str().unwrap();
    let options = [&["run", "--timeout", "60s"], options, &[program, what]].concat();
    let output = allowed(place.command(&options)).output().unwrap();
    (output.status.code(), text(&output))
}

pub(crate) fn lives(place: &Place) -> Option<std::path::PathBuf> {
    pmix::built(place, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/lives.c"), "lives")
}

/// Files that an MPI makes outside of the job's directory, and leaves where it is killed.
fn clean(place: &Place) {
    for entry in std::fs::read_dir(place.path("tmp")).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with("ompi.") {
            std::fs::remove_dir_all(entry.path()).unwrap();
        }
    }
    place.assert_clean();
}

pub(crate) const LEFT: &str = "it exited with code 0 without finalizing";

#[test]
fn a_rank_of_an_mpi_that_leaves_without_finalizing_ends_the_job() {
    for mpi in ALL {
        let place = Place::new();
        let Some(program) = built(&place, mpi, "leaves.c") else { continue };
        let (code, said) = run(&place, &program, &["-n", "3"], "one");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("rank 1 on ") && said.contains(LEFT), "{said}");
        let (code, said) = run(&place, &program, &["-n", "3"], "all");
        assert!(code == Some(1) && said.contains(LEFT), "{said}");
        // One that never was of an MPI is as any other program.
        let (code, said) = run(&place, &program, &["-n", "3"], "never");
        assert_eq!(code, Some(0), "{said}");
        clean(&place);
    }
}

#[test]
fn a_rank_of_the_pmix_library_that_leaves_without_finalizing_ends_the_job() {
    let place = Place::new();
    let Some(program) = lives(&place) else { return };
    let (code, said) = run(&place, &program, &["-n", "3"], "leave");
    assert!(code == Some(1) && said.contains("rank 1 on ") && said.contains(LEFT), "{said}");
    // Where the others are to go on they do, and the job has failed all the same.
    let path = program.to_str().unwrap();
    let options = ["run", "-n", "3", "--keep-going", path, "leave", "and go on"];
    let output = place.command(&options).output().unwrap();
    let (code, said) = (output.status.code(), text(&output));
    assert!(code == Some(1) && said.contains("rank 1 on ") && said.contains(LEFT), "{said}");
    assert_eq!(said.matches("is told").count(), 2, "{said}");
    place.assert_clean();
}

#[test]
fn a_rank_of_our_own_that_leaves_without_finalizing_ends_the_job() {
    let name = "lives::a_rank_of_our_own_that_leaves_without_finalizing_ends_the_job";
    if role().is_none() {
        let place = Place::new();
        let output = ranks(&place, &["-n", "3"], name).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("rank 1 on ") && said.contains(LEFT), "{said}");
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    job.fence().unwrap();
    if job.rank() == 1 {
        std::process::exit(0);
    }
    // The others hear of it, and wait for no more.
    job.fence().unwrap_err();
    job.finalize().unwrap();
}

#[test]
fn a_rank_of_our_own_may_finalize_and_begin_again() {
    let name = "lives::a_rank_of_our_own_may_finalize_and_begin_again";
    if role().is_none() {
        let place = Place::new();
        let output = ranks(&place, &["-n", "2"], name).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        return place.assert_clean();
    }
    for _ in 0..3 {
        let job = Job::init().unwrap();
        assert_eq!(job.size(), 2);
        // Only one at a time.
        assert!(Job::init().unwrap_err().to_string().contains("connected already"));
        job.finalize().unwrap();
    }
}

#[test]
fn programs_of_the_pmix_library_may_finalize_and_begin_again() {
    let place = Place::new();
    let Some(program) = lives(&place) else { return };
    let (code, said) = run(&place, &program, &["-n", "3"], "cycles");
    assert!(code == Some(0) && said.matches("is well").count() == 3, "{said}");
    // Also where the rank is a script.
    let script = format!("{} cycles; exit $?", program.display());
    let options = ["run", "-n", "3", "--timeout", "30s", "sh", "-c", &script];
    let ran = place.run(&options).assert(0);
    assert_eq!(ran.out.matches("is well").count(), 3, "{ran:?}");
    place.assert_clean();
}

/// Sessions of MPI 4. Those that MPICH 4.0 of Debian and Open MPI 5.0 come with crash in a second
/// one by themselves.
#[test]
fn sessions_of_an_mpi_may_follow_each_other() {
    let place = Place::new();
    let Some(program) = built(&place, &MPICH_5, "cycles.c") else { return };
    let (code, said) = run(&place, &program, &["-n", "3"], "");
    assert!(code == Some(0) && said.matches("of 3, sum 3").count() == 9, "{said}");
    clean(&place);
}

#[test]
fn what_is_not_served_is_refused_at_once() {
    // MPICH 4.0 and 5: as many lines, and one answer.
    for mpi in [&MPICH, &MPICH_5] {
        let place = Place::new();
        let Some(program) = built(&place, mpi, "leaves.c") else { continue };
        let (code, said) = run(&place, &program, &["-n", "2"], "spawn");
        assert!(code == Some(3) && said.contains("spawn is refused"), "{said}");
        clean(&place);
    }
    let place = Place::new();
    let Some(program) = lives(&place) else { return };
    let (code, said) = run(&place, &program, &["-n", "2"], "refused");
    assert!(code == Some(0) && said.matches("is well").count() == 2, "{said}");
    place.assert_clean();
}

#[test]
fn a_key_that_a_rank_puts_later_is_waited_for() {
    let place = Place::new();
    let Some(program) = lives(&place) else { return };
    let (code, said) = run(&place, &program, &["-n", "3"], "late");
    assert!(code == Some(0) && said.matches("is well").count() == 3, "{said}");
    place.assert_clean();
}

/// Has a shell find out whether it is in a session of its own, and what libraries are told of
/// waiting.
pub(crate) const SHARING: &str = "read pid name state parent group session more </proc/$$/stat; \
                                  [ $session = $$ ] && own=own; \
                                  said=\"idle=$OMPI_MCA_mpi_yield_when_idle session=$own\"";

/// What a rank finds where there are more than processors: whose session it is in, and what its
/// library is told.
#[test]
fn ranks_know_that_they_share_processors() {
    let place = Place::new();
    let most = std::thread::available_parallelism().unwrap().get();
    let script = &format!("{SHARING}; echo \"$said\"");
    let many = (most + 1).to_string();
    let lines = |ran: &Ran, line: &str| ran.out.lines().filter(|said| *said == line).count();
    let ran = shell(&place, &["-n", &many], script).assert(0);
    assert_eq!(lines(&ran, "idle=1 session="), most + 1, "{ran:?}");
    let ran = shell(&place, &["-n", "1"], script).assert(0);
    assert_eq!(lines(&ran, "idle= session="), 1, "{ran:?}");
    // The user's word goes before.
    let options = ["run", "-n", &many, "sh", "-c", script];
    let mut command: Command = place.command(&options);
    let output = command.env("OMPI_MCA_mpi_yield_when_idle", "0").output().unwrap();
    assert_eq!(text(&output).matches("idle=0 session=").count(), most + 1, "{}", text(&output));
    place.assert_clean();
    // A library that waits busily gets a share of the processors for each rank; one that yields
    // while it waits yields to those of its own session only.
    for (mpi, session) in
        [(&MPICH, "own"), (&MPICH_5, "own"), (&OPEN_MPI, "shared"), (&OPEN_MPI_5, "shared")]
    {
        let place = Place::new();
        let Some(program) = built(&place, mpi, "leaves.c") else { continue };
        let (code, said) = run(&place, &program, &["-n", &many], "session");
        let found = said.matches(&format!("session {session}")).count();
        assert_eq!((code, found), (Some(0), most + 1), "{said}");
    }
    let Some(program) = lives(&place) else { return };
    for (count, is) in [("1", "is alone"), (&*many, "is crowded")] {
        let (code, said) = run(&place, &program, &["-n", count], "crowded");
        assert!(code == Some(0) && said.matches(is).count().to_string() == count, "{said}");
    }
    place.assert_clean();
}

#[test]
fn a_program_that_needs_an_mpi_through_another_library_is_known() {
    let place = Place::new();
    for (mpi, compiler) in [("mpich", "mpif90.mpich"), ("openmpi", "mpif90.openmpi")] {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/ring.f90");
        let program = place.path(mpi);
        let built = Command::new(compiler).arg("-o").arg(&program).arg(source).output();
        match built {
            Ok(built) if built.status.success() => {}
            _ => {
                petasos_testing::skip(&format!("{compiler} is not here, or has no compiler"));
                continue;
            }
        }
        let (code, said) = run(&place, &program, &["-n", "3"], "");
        assert_eq!((code, said.matches("of 3, sum 3").count()), (Some(0), 3), "{said}");
        // Whatever was chosen: it is served as it speaks, and that is said.
        let (own, other) = if mpi == "mpich" { ("pmi1", "pmix") } else { ("pmix", "pmi1") };
        for (wire, notices) in [(own, 0), (other, 1), ("native", 1)] {
            let (code, said) = run(&place, &program, &["-n", "3", "--wire", wire], "");
            assert_eq!((code, said.matches("of 3, sum 3").count()), (Some(0), 3), "{said}");
            let notice = format!("is served so, not by --wire {wire}");
            assert_eq!(said.matches(&notice).count(), notices, "{said}");
        }
    }
    clean(&place);
}
