//! The first moments of a process of the job: tied to the daemon's life, in a process group of its
//! own, on its core; then it becomes the program.

use nix::sys::signal::SigSet;
use rustix::{
    io::FdFlags,
    process::{Pid, Signal, getppid, set_parent_process_death_signal, setpgid},
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::{
        fd::IntoRawFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

/// The word on the command line that makes a process the beginning of a rank.
pub const RANK: &str = "pmix-rank";
/// How such a process ends if the program cannot be started: as in a shell.
pub(crate) const NOT_STARTED: i32 = 127;

/// Becomes the program: arguments are the daemon's process number, the place among the cores of
/// this machine (`-`: any), what the program speaks (`native`, `pmi1`, `pmix`, or `auto`: look at it), the program, and
/// its arguments.
pub fn run(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let number = |word: Option<OsString>| word?.to_str()?.parse::<i32>().ok();
    let daemon = number(arguments.next()).and_then(Pid::from_raw);
    let core = number(arguments.next());
    let wire = arguments.next().unwrap_or_default();
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
    let mut command = Command::new(&program);
    let ready = match (wire.to_str(), linked_with(&program)) {
        (Some("pmi1"), _) | (Some("auto"), Library::Mpich) => speak_pmi1(&mut command),
        (Some("pmix"), _) | (Some("auto"), Library::Pmix) => speak_pmix41(&mut command),
        _ => Ok(()),
    };
    if let Err(error) = ready {
        eprintln!("petasos: preparing {}: {error}", program.to_string_lossy());
        return ExitCode::from(NOT_STARTED as u8);
    }
    let error = command.args(arguments).exec();
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

/// The library by which a program finds its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Mpich,
    /// OpenPMIx, or Open MPI, which is built on it.
    Pmix,
    None,
}

/// Which library a program asks the loader for.
fn linked_with(program: &OsStr) -> Library {
    let named = Path::new(program);
    let path = match named.components().count() {
        1 => std::env::var_os("PATH").and_then(|path| {
            std::env::split_paths(&path).map(|at| at.join(named)).find(|at| at.is_file())
        }),
        _ => Some(named.to_owned()),
    };
    let needed = path.map_or_else(Vec::new, |path| super::elf::needed(&path));
    let has = |wanted: &str| needed.iter().any(|name| name.starts_with(wanted));
    // The second is the name of the common interface of MPICH's descendants.
    if has("libmpich.so") || has("libmpi.so.12") {
        Library::Mpich
    } else if has("libmpi.so.40") || has("libpmix.so.2") {
        Library::Pmix
    } else {
        Library::None
    }
}

/// What the PMIx library finds its daemon by, and Open MPI that it was launched at all.
fn speak_pmix41(command: &mut Command) -> io::Result<()> {
    let variable = |name: &str| std::env::var(name).map_err(io::Error::other);
    let directory = variable(crate::JOB_DIR)?;
    let uri = std::fs::read_to_string(Path::new(&directory).join("pmix41"))?;
    for name in ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4"] {
        command.env(name, &uri);
    }
    for name in ["PMIX_SERVER_TMPDIR", "PMIX_SYSTEM_TMPDIR", "OMPI_MCA_btl_vader_backing_directory"]
    {
        // Its own for each node, also where several are emulated on one machine.
        command.env(name, &directory);
    }
    command.env("PMIX_NAMESPACE", variable("PETASOS_JOB_NAME")?);
    command.env("PMIX_RANK", variable(crate::RANK_VARIABLE)?);
    command.env("PMIX_HOSTNAME", variable("PETASOS_NODE_NAME")?);
    command.env("PMIX_SECURITY_MODE", "native");
    command.env("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC");
    command.env("PMIX_GDS_MODULE", "hash");
    command.env("PMIX_VERSION", crate::pmix41::VERSION);
    // Open MPI 4.1 runs as many single processes under a launcher that it does not know.
    command.env("JSM_JSRUN_PORT", "1");
    Ok(())
}

/// Connects to the daemon on the program's behalf, which inherits the connection.
fn speak_pmi1(command: &mut Command) -> io::Result<()> {
    let variable = |name: &str| std::env::var(name).map_err(io::Error::other);
    let directory = PathBuf::from(variable(crate::JOB_DIR)?);
    let rank = variable(crate::RANK_VARIABLE)?;
    let number = rank.parse().map_err(io::Error::other)?;
    let mut stream = UnixStream::connect(directory.join("server"))?;
    let token = std::fs::read(directory.join("token"))?;
    stream.write_all(&super::greeting(&token, Some(number)))?;
    rustix::io::fcntl_setfd(&stream, FdFlags::empty())?;
    let fd = stream.into_raw_fd();
    command.env("PMI_FD", fd.to_string()).env("PMI_RANK", rank);
    command.env("PMI_SIZE", variable("PETASOS_SIZE")?);
    Ok(())
}
