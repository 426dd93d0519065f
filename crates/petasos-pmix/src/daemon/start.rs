//! How a rank is started: what it finds in its environment, what it inherits, and where it runs.

use super::{Daemon, child::First, control::Control, greeting, guard::Guard, ranks::Rank};
use crate::{Gone, inventory, job::JobMap, launch::is_of_a_launcher, pmix41};
use rustix::{
    process::{Pid, getpid},
    thread::CpuSet,
};
use std::{
    fs,
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const NOT_SET_UP: &str = "the job is not set up";
/// Where the PMIx library finds its daemon.
const PMIX_URIS: [&str; 2] = ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4"];
/// Where it and Open MPI have their files. It is each node's own, also where several are emulated on one
/// machine.
const PMIX_DIRECTORIES: [&str; 3] =
    ["PMIX_SERVER_TMPDIR", "PMIX_SYSTEM_TMPDIR", "OMPI_MCA_btl_vader_backing_directory"];
/// What it is to do.
const PMIX_SETTINGS: [(&str, &str); 5] = [
    ("PMIX_SECURITY_MODE", "native"),
    ("PMIX_BFROP_BUFFER_TYPE", "PMIX_BFROP_BUFFER_NON_DESC"),
    ("PMIX_GDS_MODULE", "hash"),
    ("PMIX_VERSION", pmix41::VERSION),
    // Open MPI 4.1 runs as many single processes under a launcher that it does not know.
    ("JSM_JSRUN_PORT", "1"),
];

/// A descriptor that nobody has: MPICH 4 runs as many single processes where it is told of none.
const NO_DESCRIPTOR: &str = "2147483647";

/// What is the same for all ranks of a node, found out once.
#[derive(Debug)]
struct Common {
    speaks: Speaks,
    /// The processors for ranks, in turn, if each keeps to one.
    cores: Vec<u32>,
    /// Variables by which another launcher's processes find each other.
    foreign: Vec<String>,
}

/// What the program speaks to its daemon.
#[derive(Debug)]
enum Speaks {
    Native,
    Pmi1,
    /// The wire of the PMIx library, and where that finds its daemon.
    Pmix(String),
    /// It may be a script, or an interpreter, that starts a program of an MPI: one that speaks PMIx finds its daemon,
    /// and one that speaks PMI-1 fails. Neither takes itself for a job of one.
    Unknown(String),
}

/// The library by which a program finds its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Mpich,
    /// OpenPMIx, or Open MPI, which is built on it.
    Pmix,
    None,
}

/// Something failed before there was a process.
fn unready(what: &str, error: &io::Error) -> String {
    format!("{what}: {error}")
}

impl Daemon {
    /// Starts all processes of this node.
    pub(crate) fn start_ranks(&mut self) {
        let Some(job) = self.job.clone() else { return };
        let common = self.common();
        let mut failed = Vec::new();
        for rank in job.ranks_on(self.me) {
            let started = match &common {
                Ok(common) => self.start_rank(*rank, &job, common),
                Err(why) => Err(why.clone()),
            };
            match started {
                Ok(started) => {
                    let pid = started.pid.as_raw_nonzero().get() as u32;
                    self.engine.proc_started(job.proc(*rank), pid);
                    self.ranks.insert(*rank, started);
                }
                Err(why) => failed.push((*rank, Gone::NotStarted(why))),
            }
        }
        // Not before: it may be the end of the job, which has to reach all that were started.
        for (rank, why) in failed {
            self.engine.proc_ended(self.clock.now(), job.proc(rank), why.clone());
            self.report(Control::Ended { rank, why });
        }
    }

    fn common(&self) -> Result<Common, String> {
        let (Some(setup), Some(place)) = (&self.setup, &self.place) else {
            return Err(NOT_SET_UP.to_owned());
        };
        let program = &setup.program;
        let library = match program.wire.as_str() {
            "pmi1" => Library::Mpich,
            "pmix" => Library::Pmix,
            "auto" => self.program().map_or(Library::None, |program| library_of(&program)),
            _ => Library::None,
        };
        let uri = || {
            let uri = fs::read_to_string(place.path().join("pmix41"));
            uri.map_err(|error| unready("where the daemon is", &error))
        };
        let single = self.job.as_ref().is_some_and(|job| job.size() == 1);
        let speaks = match library {
            Library::None if program.wire == "auto" && !single => Speaks::Unknown(uri()?),
            Library::None => Speaks::Native,
            Library::Mpich => Speaks::Pmi1,
            Library::Pmix => Speaks::Pmix(uri()?),
        };
        let cores = if program.bind { inventory::binding() } else { Vec::new() };
        let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        let foreign = names.filter(|name| is_of_a_launcher(name)).collect();
        Ok(Common { speaks, cores, foreign })
    }

    /// Where the program is, by its own path and from its own directory.
    fn program(&self) -> Option<PathBuf> {
        let program = &self.setup.as_ref()?.program;
        let (named, directory) = (program.arguments.first()?, Path::new(&program.directory));
        if named.contains('/') {
            return Some(directory.join(named));
        }
        let path = program.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, path)| path.into()).or_else(|| std::env::var_os("PATH"))?;
        std::env::split_paths(&path)
            .map(|at| directory.join(at).join(named))
            .find(|program| program.is_file())
    }

    /// How a rank is started, and our end of the connection that it inherits, if it does.
    fn command(
        &self,
        number: u32,
        job: &JobMap,
        common: &Common,
    ) -> Result<(Command, Option<UnixStream>), String> {
        let (Some(setup), Some(place)) = (&self.setup, &self.place) else {
            return Err(NOT_SET_UP.to_owned());
        };
        let program = &setup.program;
        let [name, arguments @ ..] = &program.arguments[..] else {
            return Err("there is no program".to_owned());
        };
        let local = job.local_rank(number).unwrap_or_default();
        let node = job.node(self.me).map_or("", |node| &node.name);
        let (rank, size) = (number.to_string(), job.size().to_string());
        let mut command = Command::new(name);
        command.args(arguments).current_dir(&program.directory);
        // Perhaps somebody else has started this daemon.
        common.foreign.iter().for_each(|name| {
            command.env_remove(name);
        });
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        command.env(crate::JOB_DIR, place.path());
        command.env(crate::RANK_VARIABLE, &rank);
        command.env("PETASOS_SIZE", &size);
        command.env("PETASOS_JOB_NAME", &job.spec().name);
        command.env("PETASOS_NODE_NAME", node);
        command.env("PETASOS_LOCAL_RANK", local.to_string());
        command.env("PETASOS_LOCAL_SIZE", job.ranks_on(self.me).len().to_string());
        command.stdin(if number == 0 { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut connected, mut inherited) = (None, None);
        match &common.speaks {
            Speaks::Native => {}
            Speaks::Pmi1 => {
                let pair = self.connection(number);
                let (ours, theirs) = pair.map_err(|error| unready("a connection", &error))?;
                command.env("PMI_FD", theirs.as_raw_fd().to_string());
                command.env("PMI_RANK", &rank).env("PMI_SIZE", &size);
                (connected, inherited) = (Some(ours), Some(theirs));
            }
            Speaks::Pmix(uri) | Speaks::Unknown(uri) => {
                if matches!(common.speaks, Speaks::Unknown(_)) {
                    command.env("PMI_FD", NO_DESCRIPTOR);
                }
                command.envs(PMIX_URIS.map(|name| (name, uri)));
                command.envs(PMIX_DIRECTORIES.map(|name| (name, place.path())));
                command.env("PMIX_NAMESPACE", &job.spec().name).env("PMIX_RANK", &rank);
                command.env("PMIX_HOSTNAME", node).envs(PMIX_SETTINGS);
            }
        }
        let core = local as usize % common.cores.len().max(1);
        let cores = common.cores.get(core).map(|core| {
            let mut own = CpuSet::new();
            own.set(*core as usize);
            own
        });
        let guard = self.guard.as_ref().map(Guard::socket);
        First { daemon: getpid(), guard, cores, inherited }.done_by(&mut command);
        Ok((command, connected))
    }

    fn start_rank(&mut self, number: u32, job: &JobMap, common: &Common) -> Result<Rank, String> {
        let (mut command, connected) = self.command(number, job, common)?;
        let spawned = command.spawn();
        // Its copies of what the process inherits are closed.
        drop(command);
        let child = spawned.map_err(|error| {
            if let Some(guard) = &self.guard {
                guard.failed();
            }
            self.why_not(&error)
        })?;
        let pid = Pid::from_child(&child);
        if let Some(guard) = &self.guard {
            guard.runs(pid);
        }
        if let Some(Err(error)) = connected.map(|stream| self.accept_client(stream)) {
            self.log(&format!("the connection of rank {number}: {error}"));
        }
        Rank::new(child).map_err(|error| {
            if let Some(guard) = &self.guard {
                guard.ended(pid);
            }
            unready("looking after it", &error)
        })
    }

    /// Why the program could not be started.
    fn why_not(&self, error: &io::Error) -> String {
        let Some(program) = self.setup.as_ref().map(|setup| &setup.program) else {
            return NOT_SET_UP.to_owned();
        };
        let name = program.arguments.first().map_or("", String::as_str);
        match error.kind() {
            ErrorKind::NotFound if !Path::new(&program.directory).is_dir() => {
                format!("{}: there is no such directory", program.directory)
            }
            ErrorKind::NotFound => format!("{name}: there is no such program"),
            _ => unready(name, error),
        }
    }

    /// A connection to this daemon for a program that inherits one, with what a client says first:
    /// our end of it, and the program's.
    fn connection(&self, rank: u32) -> io::Result<(UnixStream, OwnedFd)> {
        let (ours, mut theirs) = UnixStream::pair()?;
        theirs.write_all(&greeting(&self.token, Some(rank)))?;
        Ok((ours, theirs.into()))
    }
}

/// Which library a program asks the loader for.
fn library_of(program: &Path) -> Library {
    let needed = super::elf::needed(program);
    let has = |wanted: &str| needed.iter().any(|name| name.starts_with(wanted));
    // The second is the name of the common interface of MPICH's descendants, the third that of the
    // interface of the MPI Standard, which so far is MPICH's only.
    if has("libmpich.so") || has("libmpi.so.12") || has("libmpi_abi.so") {
        Library::Mpich
    } else if has("libmpi.so.40") || has("libpmix.so.2") {
        Library::Pmix
    } else {
        Library::None
    }
}
