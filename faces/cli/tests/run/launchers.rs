//! Programs of ours that another project's launcher starts: `mpirun` of Open MPI, `mpiexec` of
//! MPICH, of the versions that the system has packages of, and of the next ones.

use crate::{
    common::Place,
    example,
    mpi::fetched,
    outsiders::{meets_the_other, take_names},
    text,
};
use petasos_pmix::{
    Error, FenceOptions, GetOptions, Group, Job, JobError, Proc, Reply, Scope, Value,
    chain::Registration, event::Range, message::Persistence,
};
use petasos_testing::{role, skip};
use std::{
    process::{Command, Output, Stdio},
    sync::mpsc::channel,
    time::{Duration, Instant},
};

const SOON: Duration = Duration::from_secs(30);
const OPEN_MPI: &[&str] = &["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"];
const MPICH: &[&str] = &["mpiexec.hydra"];
const MPICH_PORT: &[&str] = &["mpiexec.hydra", "-pmi-port"];
/// Fetched by `scripts/mpi`.
const OPEN_MPI_5: &[&str] =
    &["openmpi/bin/prterun", "--allow-run-as-root", "--map-by", ":oversubscribe"];
const MPICH_5: &[&str] = &["mpich/bin/mpiexec.hydra"];

/// Runs so many ranks of a program; nothing, with a word, if the launcher is not here.
fn launched(place: &Place, launcher: &[&str], ranks: u32, program: &[&str]) -> Option<Output> {
    // One that hangs is ended, and its ranks with it.
    let mut command = Command::new("timeout");
    let [launcher, options @ ..] = launcher else { panic!("no launcher") };
    match launcher.contains('/') {
        true => command.args(["-k", "2", "100"]).arg(fetched(launcher)),
        false => command.args(["-k", "2", "100", launcher]),
    };
    command.args(options).args(["-n", &ranks.to_string()]).args(program);
    command.env("TMPDIR", place.path("tmp")).env("PETASOS_TEST_ROLE", "rank");
    command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
    let output = command.output().unwrap();
    if output.status.code() == Some(127) {
        let from = "packages openmpi-bin, mpich, or scripts/mpi";
        skip(&format!("{launcher} ({from}) is not here"));
        return None;
    }
    Some(output)
}

/// Each rank runs the test `name` of this binary.
fn ranks(launcher: &[&str], ranks: u32, name: &str) -> Option<Output> {
    let (place, own) = (Place::new(), std::env::current_exe().unwrap());
    let program = [own.to_str().unwrap(), name, "--exact", "--nocapture", "--test-threads=1"];
    launched(&place, launcher, ranks, &program)
}

#[track_caller]
fn all_succeed(launcher: &[&str], count: u32, name: &str) {
    let Some(output) = ranks(launcher, count, name) else { return };
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("rank is done").count(), count as usize, "{said}");
}

#[test]
fn every_rank_calls_every_other_whoever_started_them() {
    let program = example("all_to_all");
    for launcher in [OPEN_MPI, MPICH, MPICH_PORT, OPEN_MPI_5, MPICH_5] {
        let place = Place::new();
        let program = [program.to_str().unwrap(), "256"];
        let Some(output) = launched(&place, launcher, 4, &program) else { continue };
        let said = text(&output);
        assert!(output.status.success(), "{launcher:?}: {said}");
        for rank in 0..4 {
            let expected = format!("rank {rank} of 4: 786432 bytes to 3 peers");
            assert!(said.contains(&expected), "{launcher:?}: {said}");
        }
    }
}

/// What all launchers have.
pub(crate) fn cards(job: &Job) {
    let (rank, size) = (job.rank(), job.size());
    assert_eq!(job.get(Proc::JOB, "pmix.job.size").unwrap(), Value::Uint(u64::from(size)));
    assert!(job.get(Proc::JOB, "pmix.nothing").is_err());
    let values = |rank: u32| {
        let list = Value::List(vec![rank.into(), "x".into(), true.into()]);
        let (text, bytes) = (Value::from("a text, with = and spaces"), vec![rank as u8; 40_000]);
        [list, text, bytes.into(), (-5i64).into(), 0.1f64.into(), Value::Bytes(vec![])]
    };
    for (at, value) in values(rank).into_iter().enumerate() {
        job.put(Scope::Global, &format!("full {at}"), value);
    }
    job.put(Scope::Remote, "elsewhere", true);
    job.put(Scope::Local, "here", true);
    job.put(Scope::Internal, "mine", true);
    job.commit().unwrap();
    job.fence().unwrap();
    for other in 0..size {
        for (at, value) in values(other).into_iter().enumerate() {
            assert_eq!(job.get(other, &format!("full {at}")).unwrap(), value);
        }
        let (own, near) = (other == rank, job.map().node_of(other) == job.map().node_of(rank));
        assert_eq!(job.get(other, "here").ok(), near.then_some(Value::Bool(true)));
        assert_eq!(job.get(other, "mine").is_ok(), own);
        assert_eq!(job.get(other, "elsewhere").is_ok(), own || !near);
        let start = Instant::now();
        let missing = job.get(other, "never");
        let not_found = matches!(missing, Err(JobError::Refused(Error::NotFound { .. })));
        assert!(not_found && start.elapsed() < SOON, "{missing:?}");
    }
    // Again, with what is new.
    job.put(Scope::Global, "second", u64::from(rank));
    job.commit().unwrap();
    job.fence().unwrap();
    let next = (rank + 1) % size;
    assert_eq!(job.get(next, "second").unwrap(), Value::Uint(u64::from(next)));
    assert!(matches!(job.get(size, "second"), Err(JobError::Refused(_))));
    let query = job.query(&["petasos.processes"]);
    assert!(matches!(query, Err(JobError::NotOffered { .. })), "{query:?}");
}

/// What most of them have.
pub(crate) fn publishes(job: &Job) {
    if job.rank() == 0 {
        job.publish("where", "here", Range::Session, Persistence::Session).unwrap();
    }
    assert_eq!(job.lookup("where", Some(SOON)).unwrap().0, Value::from("here"));
    assert!(job.lookup("nowhere", None).is_err());
    job.fence().unwrap();
}

pub(crate) fn done(job: &Job) {
    job.fence().unwrap();
    job.finalize().unwrap();
    assert!(matches!(job.fence(), Err(JobError::Lost(_))));
    println!("\nrank is done");
}

#[test]
fn ranks_of_mpiexec_exchange_cards() {
    let name = "launchers::ranks_of_mpiexec_exchange_cards";
    if role().is_none() {
        return [MPICH, MPICH_5].iter().for_each(|launcher| all_succeed(launcher, 3, name));
    }
    let job = Job::init().unwrap();
    let next = (job.rank() + 1) % job.size();
    // What it cannot do it says.
    let early = job.get(next, "second").unwrap_err();
    assert!(early.to_string().contains("which no fence has spread"), "{early}");
    // A launcher may show at once what is put: the others put nothing before all have asked.
    job.fence().unwrap();
    let event = job.notify(5, Range::Session, Vec::new()).unwrap_err();
    assert!(
        event.to_string().contains("events is not offered by this launcher (PMI-1)"),
        "{event}"
    );
    cards(&job);
    publishes(&job);
    done(&job);
}

#[test]
fn ranks_of_mpirun_exchange_cards_and_events() {
    let name = "launchers::ranks_of_mpirun_exchange_cards_and_events";
    if role().is_none() {
        return [OPEN_MPI, OPEN_MPI_5].iter().for_each(|launcher| all_succeed(launcher, 3, name));
    }
    let job = Job::init().unwrap();
    let (rank, next) = (job.rank(), (job.rank() + 1) % job.size());
    // Directly: the get waits for the commit.
    std::thread::sleep(Duration::from_millis(100 * u64::from(rank)));
    job.put(Scope::Global, "direct", u64::from(rank));
    job.commit().unwrap();
    assert_eq!(job.get(next, "direct").unwrap(), Value::Uint(u64::from(next)));
    let how =
        GetOptions { timeout: Some(Duration::from_secs(1)), wait: true, ..GetOptions::default() };
    let late = job.get_with(next, "late", how).unwrap_err();
    let named = match &late {
        JobError::Refused(Error::GetTimeout { proc, .. } | Error::NotFound { proc, .. }) => {
            proc.rank
        }
        other => panic!("{other}"),
    };
    assert_eq!(named, next);
    cards(&job);
    publishes(&job);
    if rank < 2 {
        let group = Some(Group::of([job.proc_of(0), job.proc_of(1)]));
        for _ in 0..20 {
            let how =
                FenceOptions { group: group.clone(), without_cards: true, timeout: Some(SOON) };
            job.fence_with(how).unwrap();
        }
    }
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![-5005], ..Registration::default() };
    let handler = job.on_event(with, move |event, _| {
        sender.send((event.source.rank, event.info[0].1.to_string())).unwrap();
        Reply::seen()
    });
    let handler = handler.unwrap();
    job.fence().unwrap();
    let told = |text: &str| vec![("which".to_owned(), text.into())];
    if rank == 0 {
        job.notify(-5005, Range::Namespace, told("all")).unwrap();
        let one = Range::Custom(Group::of([job.proc_of(1)]));
        job.notify(-5005, one, told("one")).unwrap();
    }
    // The rank that made an event runs its own handler.
    let heard = receiver.recv_timeout(SOON).unwrap();
    assert_eq!(heard, (0, "all".to_owned()));
    if rank < 2 {
        assert_eq!(receiver.recv_timeout(SOON).unwrap(), (0, "one".to_owned()));
    }
    job.fence().unwrap();
    assert!(receiver.try_recv().is_err());
    job.remove_handler(handler).unwrap();
    done(&job);
}

/// Another user sees the name of the job, but has no name of a rank to take before that listens
/// there.
#[test]
fn no_name_of_a_rank_follows_from_the_job() {
    let name = "launchers::no_name_of_a_rank_follows_from_the_job";
    if role().is_none() {
        let all = [OPEN_MPI, MPICH, MPICH_PORT, OPEN_MPI_5, MPICH_5];
        return all.iter().for_each(|launcher| all_succeed(launcher, 2, name));
    }
    let job = Job::init().unwrap();
    let names = &job.map().spec().name;
    // This kind of name belongs to the one that takes it first, of whichever user.
    let user = rustix::process::getuid().as_raw();
    let taken = (job.rank() == 0).then(|| take_names(user, names, 2));
    job.fence().unwrap();
    meets_the_other(&job);
    drop(taken);
    done(&job);
}

#[test]
fn abort_ends_all_of_another_launcher() {
    let name = "launchers::abort_ends_all_of_another_launcher";
    if role().is_none() {
        for launcher in [OPEN_MPI, MPICH] {
            let Some(output) = ranks(launcher, 2, name) else { continue };
            assert_eq!(output.status.code(), Some(9), "{launcher:?}: {}", text(&output));
        }
        return;
    }
    let job = Job::init().unwrap();
    job.fence().unwrap();
    if job.rank() == 1 {
        let _ = job.abort(9, "enough of it");
    }
    std::thread::sleep(Duration::from_secs(90));
}
