//! `petasos bench launch`: how long jobs take to start and end, each launcher in turn with the
//! others, and what fences, cards and events take between the ranks of a job.

use crate::{
    cli::BenchLaunch,
    exit::{Code, Failure, Outcome},
    output,
};
use petasos_pmix::{
    FenceOptions, GetOptions, Group, Job, JobError, Reply, Scope, chain::Registration, event::Range,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
};
use serde::{Deserialize, Serialize};
use std::{
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    time::{Duration, Instant},
};

/// The word on the command line that makes a process a rank of what is measured.
pub(crate) const RANK: &str = "bench-launch-rank";
/// What a launched process does: nothing.
const PROGRAM: &str = "true";
/// A launcher that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const FENCES: usize = 200;
const HOPS: usize = 200;
const EVENT: i32 = 7001;

/// What is measured within a job, in nanoseconds, by rank 0.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Inside {
    init: f64,
    fence: f64,
    /// Fences with the cards of all, of 64 bytes each.
    full_fence: f64,
    /// The first get of a key of another rank.
    first_get: f64,
    /// A get of job data.
    job_get: f64,
    /// An event from rank to rank.
    event: f64,
}

/// A launcher, at a number of ranks.
#[derive(Debug, Serialize)]
struct Launched {
    launcher: &'static str,
    ranks: u32,
    /// Medians of the rounds; `None`: it failed.
    wall_ns: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Measured {
    ranks: u32,
    #[serde(flatten)]
    inside: Inside,
}

#[derive(Debug, Serialize)]
struct Results {
    launched: Vec<Launched>,
    inside: Vec<Measured>,
    missing: Vec<&'static str>,
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What starts jobs.
struct Launcher {
    name: &'static str,
    program: PathBuf,
    /// Before the number of ranks.
    options: &'static [&'static str],
}

/// The launchers that are here, and the names of those that are not.
fn launchers() -> Outcome<(Vec<Launcher>, Vec<&'static str>)> {
    let own = std::env::current_exe().map_err(Failure::system("finding this program"))?;
    let mut found = vec![Launcher { name: "petasos run", program: own, options: &["run"] }];
    let mut missing = Vec::new();
    let others: [(_, _, &[_]); 2] = [
        ("mpirun (Open MPI)", "mpirun.openmpi", &["--oversubscribe", "--allow-run-as-root"]),
        ("mpiexec (MPICH)", "mpiexec.hydra", &[]),
    ];
    for (name, program, options) in others {
        let path = std::env::var_os("PATH").unwrap_or_default();
        match std::env::split_paths(&path).map(|at| at.join(program)).find(|at| at.is_file()) {
            Some(program) => found.push(Launcher { name, program, options }),
            None => missing.push(name),
        }
    }
    Ok((found, missing))
}

fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

/// So many processes, started one after the other and then waited for.
fn bare(ranks: u32) -> Option<f64> {
    let start = Instant::now();
    let children: Vec<_> =
        (0..ranks).filter_map(|_| quiet(&mut Command::new(PROGRAM)).spawn().ok()).collect();
    let started = children.len();
    for mut child in children {
        child.wait().ok()?;
    }
    (started == ranks as usize).then(|| start.elapsed().as_nanos() as f64)
}

/// A job of so many ranks, from its start to its end; nothing if it failed, or hung.
fn launched(launcher: &Launcher, ranks: u32) -> Option<f64> {
    let mut command = Command::new(&launcher.program);
    command.args(launcher.options).args(["-n", &ranks.to_string(), PROGRAM]);
    // A group of its own, to end all of one that hangs.
    command.process_group(0);
    let start = Instant::now();
    let mut child = quiet(&mut command).spawn().ok()?;
    let ended = ends_within(&child, PATIENCE);
    let took = start.elapsed();
    if !ended {
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    let status = child.wait().ok()?;
    (ended && status.success()).then_some(took.as_nanos() as f64)
}

fn ends_within(child: &Child, patience: Duration) -> bool {
    let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else { return false };
    let timeout = Timespec::try_from(patience).ok();
    poll(&mut [PollFd::new(&process, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ended| ended > 0)
}

pub(crate) fn run(options: &BenchLaunch) -> Outcome {
    let (launchers, missing) = launchers()?;
    let mut results = Results { launched: Vec::new(), inside: Vec::new(), missing };
    for ranks in &options.ranks {
        let mut walls: Vec<Vec<Option<f64>>> = vec![Vec::new(); launchers.len() + 1];
        for _ in 0..options.rounds {
            walls[0].push(bare(*ranks));
            for (at, launcher) in launchers.iter().enumerate() {
                walls[at + 1].push(launched(launcher, *ranks));
            }
        }
        let names = std::iter::once("bare processes").chain(launchers.iter().map(|l| l.name));
        for (launcher, walls) in names.zip(walls) {
            let all: Option<Vec<f64>> = walls.into_iter().collect();
            results.launched.push(Launched { launcher, ranks: *ranks, wall_ns: all.map(median) });
        }
        let inside = (0..options.rounds).map(|_| inside(*ranks)).collect::<Outcome<Vec<_>>>()?;
        let of = |field: fn(&Inside) -> f64| median(inside.iter().map(field).collect());
        let inside = Inside {
            init: of(|i| i.init),
            fence: of(|i| i.fence),
            full_fence: of(|i| i.full_fence),
            first_get: of(|i| i.first_get),
            job_get: of(|i| i.job_get),
            event: of(|i| i.event),
        };
        results.inside.push(Measured { ranks: *ranks, inside });
    }
    if options.json.json { output::print_json(&results) } else { show(&results) }
}

/// Runs a job of ranks that measure.
fn inside(ranks: u32) -> Outcome<Inside> {
    let own = std::env::current_exe().map_err(Failure::system("finding this program"))?;
    let mut command = Command::new(&own);
    command.args(["run", "-n", &ranks.to_string()]).arg(&own).arg(RANK).stdin(Stdio::null());
    let ran = command.output().map_err(Failure::system("running a job"))?;
    serde_json::from_slice(&ran.stdout).map_err(|_| {
        let said = String::from_utf8_lossy(&ran.stderr);
        Failure::new(Code::Failed, format!("a job of {ranks} ranks failed: {}", said.trim()))
    })
}

fn show(results: &Results) -> Outcome {
    let mut table = output::table(&[">ranks", "launcher", ">start to end"]);
    for row in &results.launched {
        let wall = row.wall_ns.map_or_else(|| "failed".to_owned(), output::time);
        table.add_row([row.ranks.to_string(), row.launcher.to_owned(), wall]);
    }
    output::print(&format!("{table}\n"))?;
    let columns = [
        ">ranks",
        ">init",
        ">get of job data",
        ">first get of a peer's key",
        ">fence",
        ">fence with cards",
        ">event, one way",
    ];
    let mut table = output::table(&columns);
    for Measured { ranks, inside } in &results.inside {
        let times = [
            inside.init,
            inside.job_get,
            inside.first_get,
            inside.fence,
            inside.full_fence,
            inside.event,
        ];
        let mut row = vec![ranks.to_string()];
        // With one rank there is nobody to ask, or to tell.
        let shown = |ns: f64| if ns == 0.0 { "-".to_owned() } else { output::time(ns) };
        row.extend(times.into_iter().map(shown));
        table.add_row(row);
    }
    output::print(&table.to_string())?;
    match results.missing.is_empty() {
        true => Ok(()),
        false => output::print(&format!("not here: {}", results.missing.join(", "))),
    }
}

fn timed<T>(work: impl FnOnce() -> Result<T, JobError>) -> Result<f64, JobError> {
    let start = Instant::now();
    work()?;
    Ok(start.elapsed().as_nanos() as f64)
}

/// What a rank does; rank 0 prints what it found.
pub(crate) fn run_rank() -> Outcome {
    let measured = measure().map_err(|error| Failure::new(Code::Failed, error))?;
    measured.map_or(Ok(()), |measured| output::print_json_line(&measured))
}

fn measure() -> Result<Option<Inside>, JobError> {
    let start = Instant::now();
    let job = Job::init()?;
    let init = start.elapsed().as_nanos() as f64;
    let (rank, size) = (job.rank(), job.size());
    let bare = || job.fence_with(FenceOptions { without_cards: true, ..FenceOptions::default() });
    job.put(Scope::Global, "direct", vec![rank as u8; 64]);
    job.commit()?;
    bare()?;
    // Only rank 0 asks: the others are as idle as they would be.
    let mut gets = Vec::new();
    if rank == 0 {
        for peer in 1..size {
            gets.push(timed(|| job.get_with(peer, "direct", GetOptions::default()))?);
        }
    }
    let job_get: Result<Vec<f64>, JobError> =
        (0..FENCES).map(|_| timed(|| job.get(rank, "pmix.hname"))).collect();
    bare()?;
    let fences: Result<Vec<f64>, JobError> = (0..FENCES).map(|_| timed(bare)).collect();
    let full: Result<Vec<f64>, JobError> = (0..FENCES).map(|_| timed(|| job.fence())).collect();
    let event = if size > 1 && rank < 2 { ping_pong(&job)? } else { 0.0 };
    bare()?;
    job.finalize()?;
    let (fence, full_fence) = (median(fences?), median(full?));
    let (first_get, job_get) = (median(gets), median(job_get?));
    Ok((rank == 0).then_some(Inside { init, fence, full_fence, first_get, job_get, event }))
}

/// Ranks 0 and 1 tell each other of events in turn: the time of one way.
fn ping_pong(job: &Job) -> Result<f64, JobError> {
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![EVENT], ..Registration::default() };
    let me = job.proc();
    job.on_event(with, move |event, _| {
        if event.source != me {
            let _ = sender.send(());
        }
        Reply::seen()
    })?;
    let both = Group::of([job.map().proc(0), job.map().proc(1)]);
    let together =
        || FenceOptions { group: Some(both.clone()), without_cards: true, timeout: None };
    job.fence_with(together())?;
    let other = Range::Custom(Group::of([job.map().proc(1 - job.rank())]));
    let tell = || job.notify(EVENT, other.clone(), Vec::new());
    let hear = || {
        let heard = receiver.recv_timeout(Duration::from_secs(20));
        heard.map_err(|error| JobError::Lost(error.to_string()))
    };
    let start = Instant::now();
    for _ in 0..HOPS {
        if job.rank() == 0 {
            tell()?;
            hear()?;
        } else {
            hear()?;
            tell()?;
        }
    }
    Ok(start.elapsed().as_nanos() as f64 / (2 * HOPS) as f64)
}
