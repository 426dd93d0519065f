//! The first moments of a process of the job: tied to the daemon's life, in a process group of its
//! own, on its core; then it becomes the program.

use nix::sys::signal::SigSet;
use rustix::{
    process::{Pid, Signal, getppid, set_parent_process_death_signal, setpgid},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

/// The word on the command line that makes a process the beginning of a rank.
pub const RANK: &str = "pmix-rank";
/// How such a process ends if the program cannot be started: as in a shell.
pub(crate) const NOT_STARTED: i32 = 127;

/// Becomes the program: arguments are the daemon's process number, the place among the cores of
/// this machine (`-`: any), the program, and its arguments.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let number = |word: Option<OsString>| word?.to_str()?.parse::<i32>().ok();
    let daemon = number(arguments.next()).and_then(Pid::from_raw);
    let core = number(arguments.next());
    let Some(program) = arguments.next() else { return ExitCode::from(2) };
    // With the daemon ends the rank, even if nobody can tell it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if getppid() != daemon {
        return ExitCode::from(NOT_STARTED as u8);
    }
    let _ = setpgid(None, None);
    if let Some(core) = core {
        bind(core as usize);
    }
    let _ = SigSet::empty().thread_set_mask();
    let error = Command::new(&program).args(arguments).exec();
    let why = match error.kind() {
        io::ErrorKind::NotFound => "there is no such program".to_owned(),
        _ => error.to_string(),
    };
    eprintln!("petasos: {}: {why}", program.to_string_lossy());
    ExitCode::from(NOT_STARTED as u8)
}

/// Keeps to one of the cores that this process may use, the nth, counted around.
fn bind(nth: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect();
    if let Some(core) = cores.get(nth % cores.len().max(1)) {
        let mut own = CpuSet::new();
        own.set(*core);
        let _ = sched_setaffinity(None, &own);
    }
}
