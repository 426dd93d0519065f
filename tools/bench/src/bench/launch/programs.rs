//! Launchers, the programs that they start here, and the results of a job.

use super::{
    super::forward::TIED,
    rank::{RANK, nanoseconds},
};
use crate::{
    exit::{Failure, Outcome},
    scratch::Scratch,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open},
    time::ClockId,
};
use serde::Serialize;
use std::{
    fs::{self, File},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// The program that is measured with OpenPMIx, in C.
const PEER: &str = include_str!("peer.c");
/// A launcher that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long it may take to end after a signal.
const GRACE: Duration = Duration::from_secs(2);

/// The launcher of a job, and the client library of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Launcher {
    /// `petasos run`, and the client of Petasos.
    Petasos,
    /// `petasos run`, libpmix.
    PetasosLibpmix,
    /// `mpirun` of Open MPI, libpmix.
    OpenPmix,
    /// `mpiexec` of MPICH: jobs are started only.
    Mpich,
    /// No launcher: the machine's limit.
    Bare,
}

impl Launcher {
    /// In tables.
    pub(super) fn name(self) -> &'static str {
        match self {
            Launcher::Petasos => "petasos",
            Launcher::PetasosLibpmix => "libpmix in petasos run",
            Launcher::OpenPmix => "OpenPMIx, mpirun",
            Launcher::Mpich => "MPICH, mpiexec",
            Launcher::Bare => "bare",
        }
    }
}

/// The launchers and programs of this machine.
pub(super) struct Programs {
    own: PathBuf,
    mpirun: Option<PathBuf>,
    mpiexec: Option<PathBuf>,
    /// The program on libpmix.
    peer: Option<PathBuf>,
    /// For the output of jobs.
    directory: PathBuf,
}

/// A job that succeeded.
pub(in crate::bench) struct Ran {
    pub(in crate::bench) out: String,
    /// When it was started, on the clock of the machine, and how long it took, in nanoseconds.
    pub(super) begin: f64,
    pub(super) took: f64,
}

/// Without input and output.
pub(super) fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|at| at.join(program)).find(|at| at.is_file())
}

/// Compiles the program on libpmix, if that is possible here.
fn compile(directory: &Path) -> Result<PathBuf, String> {
    let gcc = find("gcc").ok_or("gcc is not here (package gcc)")?;
    let machine = Command::new(&gcc).arg("-print-multiarch").output();
    let machine = machine.map_err(|error| format!("gcc: {error}"))?.stdout;
    let machine = String::from_utf8_lossy(&machine).trim().to_owned();
    let prefixes =
        [format!("/usr/lib/{machine}/pmix2"), "/usr/local".to_owned(), "/usr".to_owned()];
    let base = prefixes.iter().map(Path::new).find(|base| base.join("include/pmix.h").exists());
    let base = base.ok_or("the headers of OpenPMIx are not here (package libpmix-dev)")?;
    let (source, program) = (directory.join("peer.c"), directory.join("peer"));
    fs::write(&source, PEER).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut command = Command::new(&gcc);
    command.arg("-O2").arg("-o").arg(&program).arg(&source);
    command.arg("-I").arg(base.join("include")).arg("-I").arg(base.join("include/pmix"));
    command.arg("-L").arg(base.join("lib")).args(["-lpmix", "-lpthread"]);
    let built = command.stdin(Stdio::null()).output().map_err(|error| format!("gcc: {error}"))?;
    match built.status.success() {
        true => Ok(program),
        false => Err(format!("gcc: {}", String::from_utf8_lossy(&built.stderr).trim())),
    }
}

impl Programs {
    /// Looks for them; `skip` gets a reason for each that is missing.
    pub(super) fn find(scratch: &Scratch, mut skip: impl FnMut(String)) -> Outcome<Programs> {
        let own = std::env::current_exe().map_err(Failure::system("finding this program"))?;
        let mpirun = find("mpirun.openmpi");
        if mpirun.is_none() {
            skip("OpenPMIx: mpirun.openmpi is not here (package openmpi-bin)".to_owned());
        }
        let mpiexec = find("mpiexec.hydra");
        if mpiexec.is_none() {
            skip("MPICH: mpiexec.hydra is not here (package mpich)".to_owned());
        }
        let peer = compile(scratch.path()).map_err(|why| skip(format!("libpmix: {why}"))).ok();
        Ok(Programs { own, mpirun, mpiexec, peer, directory: scratch.path().to_owned() })
    }

    /// Whether a program on this client library can be started by this launcher.
    pub(super) fn has(&self, launcher: Launcher) -> bool {
        match launcher {
            Launcher::Petasos | Launcher::Bare => true,
            Launcher::PetasosLibpmix => self.peer.is_some(),
            Launcher::OpenPmix => self.peer.is_some() && self.mpirun.is_some(),
            Launcher::Mpich => false,
        }
    }

    /// Whether the launcher can start programs at all.
    pub(super) fn starts(&self, launcher: Launcher) -> bool {
        match launcher {
            Launcher::Petasos | Launcher::Bare => true,
            Launcher::PetasosLibpmix => false,
            Launcher::OpenPmix => self.mpirun.is_some(),
            Launcher::Mpich => self.mpiexec.is_some(),
        }
    }

    /// A job of so many ranks of the measuring program, with these arguments.
    pub(super) fn measuring(
        &self,
        launcher: Launcher,
        ranks: u32,
        words: &[&str],
    ) -> Result<Ran, String> {
        let mut program: Vec<&str> = Vec::new();
        let path = match launcher {
            Launcher::PetasosLibpmix | Launcher::OpenPmix => {
                self.peer.as_ref().ok_or("it is not here")?
            }
            _ => {
                program.push(RANK);
                &self.own
            }
        };
        program.extend(words);
        self.job(launcher, ranks, path, &program)
    }

    /// A job of so many ranks of a program.
    pub(super) fn job(
        &self,
        launcher: Launcher,
        ranks: u32,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Ran, String> {
        let (starter, options): (_, &[&str]) = match launcher {
            Launcher::OpenPmix => {
                (self.mpirun.as_ref(), &["--oversubscribe", "--allow-run-as-root"])
            }
            Launcher::Mpich => (self.mpiexec.as_ref(), &[]),
            _ => (Some(&self.own), &[crate::COMMAND, "run"]),
        };
        let starter = starter.ok_or("it is not here")?;
        // Tied to this process, so that nothing goes on when it has ended.
        let mut command = Command::new(&self.own);
        command.args([TIED, &std::process::id().to_string()]).arg(starter);
        command.args(options).args(["-n", &ranks.to_string()]).arg(program).args(arguments);
        self.run(&mut command)
    }

    fn run(&self, command: &mut Command) -> Result<Ran, String> {
        ran_within(&self.directory, PATIENCE, command)
    }
}

/// Runs a launcher to its end, which has to come within that time; returns its output, which goes
/// through files of the directory, or why it failed.
pub(in crate::bench) fn ran_within(
    directory: &Path,
    patience: Duration,
    command: &mut Command,
) -> Result<Ran, String> {
    let [out, err] = ["out", "err"].map(|name| directory.join(name));
    let file = |path: &Path| File::create(path).map_err(|error| error.to_string());
    // A process group of its own, to end all processes of a launcher that hangs.
    command.process_group(0).stdin(Stdio::null()).stdout(file(&out)?).stderr(file(&err)?);
    let begin = nanoseconds(ClockId::Monotonic);
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let ended = ends_within(&child, patience);
    let took = nanoseconds(ClockId::Monotonic) - begin;
    if !ended {
        // SIGTERM first: the launcher ends its ranks itself, if it still can.
        for signal in [Signal::TERM, Signal::KILL] {
            let _ = kill_process_group(Pid::from_child(&child), signal);
            if ends_within(&child, GRACE) {
                break;
            }
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let read = |path: &Path| {
        let bytes = fs::read(path).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match (ended, status.success()) {
        (true, true) => Ok(Ran { out: read(&out), begin, took }),
        (false, _) => Err(format!("it had not ended after {} s", patience.as_secs())),
        (true, false) => {
            let said = read(&err);
            // The launcher's own last word, rather than what a library says in passing.
            let own = said.lines().rev().find_map(|line| line.strip_prefix("petasos: "));
            let mut lines = said.lines().map(str::trim);
            let line = own.or_else(|| lines.find(|line| line.chars().any(char::is_alphanumeric)));
            Err(format!("{status}: {}", line.unwrap_or("no message")))
        }
    }
}

fn ends_within(child: &Child, patience: Duration) -> bool {
    let Ok(process) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else { return false };
    let timeout = Timespec::try_from(patience).ok();
    poll(&mut [PollFd::new(&process, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ended| ended > 0)
}
