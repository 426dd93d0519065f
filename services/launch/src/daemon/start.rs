//! How a rank is started: what it finds in its environment, what it inherits, and where it runs.

use super::{
    Daemon,
    child::{First, Process, Spawner, Streams, beyond_streams, has_terminal, pipe},
    image::{Image, find, variable, why_not},
    libraries,
    rank::{Pipes, Rank},
    subreaper::STARTED_BY,
    sweep::{MARKS, marks},
};
use crate::{
    inventory, pmix41,
    speaks::{Speaks, is_of_a_launcher},
};
use petasos_pmix::{Termination, job::JobMap};
use rustix::{net::sockopt::set_socket_passcred, process::getpid, thread::CpuSet};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
};

const NOT_SET_UP: &str = "the job is not set up";
/// Where the PMIx library finds its daemon.
const PMIX_URIS: [&str; 2] = ["PMIX_SERVER_URI41", "PMIX_SERVER_URI4"];
/// Where it and Open MPI have their files. It is each node's own, also where several are emulated
/// on one machine.
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

/// What libraries are told where ranks share processors: one that waits lets another one run.
const CROWDED: [(&str, &str); 1] = [("OMPI_MCA_mpi_yield_when_idle", "1")];

/// MPICH 5 does not choose where it finds the variables of both wires: it is to take PMI-1.
const MPICH_WIRE: (&str, &str) = ("MPIR_CVAR_PMI_VERSION", "1");

/// The longest message that the library takes, in megabytes: it may be a whole business card.
const PMIX_LONGEST: (&str, &str) = ("PMIX_MCA_ptl_base_max_msg_size", "256");

/// Variables of which each rank has its own.
const OWN: [&str; 6] =
    [petasos_pmix::RANK_VARIABLE, RESTARTS, LOCAL_RANK, PMI_FD, PMI_RANK, PMIX_RANK];
/// How often the rank was started again.
const RESTARTS: &str = "PETASOS_RESTARTS";
const LOCAL_RANK: &str = "PETASOS_LOCAL_RANK";
/// Where processes of other nodes of the job reach this one.
const NODE_ADDRESS: &str = "PETASOS_NODE_ADDRESS";
const PMI_FD: &str = "PMI_FD";
const PMI_RANK: &str = "PMI_RANK";
const PMIX_RANK: &str = "PMIX_RANK";

/// What is the same for all ranks of a node, found out once.
#[derive(Debug)]
pub(super) struct Common {
    served: Served,
    /// The processors for ranks, in turn, if each keeps to one.
    cores: Vec<u32>,
    /// What is to be said of how the program is served.
    note: Option<String>,
    image: Image,
    /// What those read that have no input.
    nothing: OwnedFd,
    /// Whether each is in a session of its own.
    session: bool,
    spawner: Spawner,
}

/// How the program is served.
#[derive(Debug)]
enum Served {
    Native,
    Pmi1,
    /// The wire of the PMIx library, and where that finds its daemon.
    Pmix(String),
    /// It may be a script, or an interpreter, that starts a program of an MPI, of which it is not
    /// seen what that speaks: both are served, so that none takes itself for a job of one.
    Either(String),
}

/// The library by which a program finds its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Library {
    Mpich,
    /// OpenPMIx, or Open MPI, which is built on it.
    Pmix,
    None,
}

impl Library {
    fn wire(self) -> &'static str {
        match self {
            Library::Mpich => "PMI-1",
            Library::Pmix => "PMIx",
            Library::None => "nothing of that",
        }
    }
}

impl Common {
    /// Starts a rank with these variables besides; its standard streams are pipes.
    fn spawn(
        &mut self,
        input: bool,
        own: &[(&str, String)],
        first: &First,
    ) -> io::Result<(Process, Pipes)> {
        let variables = own.iter().map(|(name, value)| variable(name.as_ref(), value.as_ref()));
        let variables: Vec<_> = variables.collect::<io::Result<_>>()?;
        let (theirs, feed) =
            if input { pipe().map(|(a, b)| (Some(a), Some(b)))? } else { (None, None) };
        let ((out, output), (err, errors)) = (pipe()?, pipe()?);
        let streams = Streams {
            input: Some(theirs.as_ref().map_or(self.nothing.as_fd(), AsFd::as_fd)),
            output: Some(output.as_fd()),
            errors: Some(errors.as_fd()),
        };
        let process = self.spawner.spawn(&self.image, &variables, streams, first)?;
        Ok((process, Pipes { input: feed, out, err }))
    }
}

/// Something failed before there was a process.
fn unready(what: &str, error: &io::Error) -> String {
    format!("{what}: {error}")
}

impl Daemon {
    /// Starts all processes of this node.
    pub(crate) fn start_ranks(&mut self) {
        let Some(job) = self.job.clone() else { return };
        let mut common = self.common(&job);
        if let Ok(common) = &mut common {
            self.ranks.keep_to(&common.cores);
            common.note.take().into_iter().for_each(|note| self.log(&note));
        }
        let mut failed = Vec::new();
        // Some of a lost node may have begun here before this.
        let first = |rank: &&u32| self.engine.restarts_of(job.proc(**rank)) == 0;
        let ranks: Vec<u32> = job.ranks_on(self.me).iter().filter(first).copied().collect();
        for rank in &ranks {
            let started = match &mut common {
                Ok(common) => self.start_rank(*rank, 0, &job, common),
                Err(why) => Err(why.clone()),
            };
            match started {
                Ok(started) => {
                    let pid = started.pid().as_raw_nonzero().get() as u32;
                    tracing::debug!(rank, pid, "a rank is started");
                    self.engine.proc_started(job.proc(*rank), pid);
                    self.ranks.insert(*rank, started);
                }
                Err(why) => failed.push((*rank, Termination::NotStarted(why))),
            }
        }
        // Not before: it may be the end of the job, which has to reach all that were started.
        for (rank, why) in failed {
            self.engine.proc_ended(self.clock.now(), job.proc(rank), 0, why.clone());
            self.report_end(rank, 0, why);
        }
    }

    pub(super) fn common(&self, job: &JobMap) -> Result<Common, String> {
        let (Some(setup), Some(place)) = (&self.setup, self.files.directory()) else {
            return Err(NOT_SET_UP.to_owned());
        };
        let program = &setup.program;
        let speaks = program.speaks;
        let chosen = match speaks {
            Speaks::Pmi1 => Library::Mpich,
            Speaks::Pmix => Library::Pmix,
            Speaks::Native | Speaks::Auto => Library::None,
        };
        // What the program is seen to speak is what it is served with, whatever was chosen: else
        // each of its ranks takes itself for a job of one.
        let seen = self.library();
        let other = seen != Library::None && speaks != Speaks::Auto && seen != chosen;
        let note = other.then(|| {
            let (seen, chosen) = (seen.wire(), speaks.name());
            format!("the program speaks {seen}, and is served so, not by --wire {chosen}")
        });
        let uri = || {
            let uri = fs::read_to_string(place.path().join("pmix41"));
            uri.map_err(|error| unready("where the daemon is", &error))
        };
        let single = self.job.as_ref().is_some_and(|job| job.size() == 1);
        let alone = speaks == Speaks::Auto && single;
        let served = match seen {
            Library::None if speaks == Speaks::Native || alone => Served::Native,
            Library::None => Served::Either(uri()?),
            Library::Mpich => Served::Pmi1,
            Library::Pmix => Served::Pmix(uri()?),
        };
        let cores = if program.bind { inventory::binding() } else { Vec::new() };
        let environment = self.environment(job, &served)?;
        let image = Image::new(&program.arguments, &environment, Some(&program.directory));
        let image = image.map_err(|error| self.why_not(&error))?;
        let nothing = File::open("/dev/null").and_then(|file| beyond_streams(file.into()));
        let nothing = nothing.map_err(|error| unready("/dev/null", &error))?;
        let spawner = Spawner::new();
        // Where ranks share processors, those that wait busily get a share each by a session of
        // their own (`sched_autogroup_enabled`). Those that yield while they wait would be slow so:
        // `sched_yield` lets only others of the same session run. Elsewhere none takes the terminal
        // from another, if there is one.
        let session = match self.is_crowded() {
            true => matches!(served, Served::Pmi1),
            false => has_terminal(),
        };
        Ok(Common { served, cores, session, note, image, nothing, spawner })
    }

    /// Whether there are more ranks on this node than processors that this daemon may use.
    pub(super) fn is_crowded(&self) -> bool {
        let ranks = self.job.as_ref().map_or(0, |job| job.ranks_on(self.me).len());
        // It has a look at the limits of a container, too.
        std::thread::available_parallelism().is_ok_and(|processors| ranks > processors.get())
    }

    /// By which library the program finds its peers, as far as that is seen from its file, and
    /// those of its libraries.
    fn library(&self) -> Library {
        let look = || {
            let program = &self.setup.as_ref()?.program;
            let directory = Path::new(&program.directory);
            let set = |name: &str| {
                let set = program.environment.iter().find(|(set, _)| set == name);
                set.map(|(_, value)| value.into()).or_else(|| std::env::var_os(name))
            };
            let path = set("PATH");
            let found = find(program.arguments.first()?, path.as_deref(), directory).ok()?;
            let more = set("LD_LIBRARY_PATH").unwrap_or_default();
            libraries::find(&directory.join(found), &more, directory, library_named)
        };
        look().unwrap_or(Library::None)
    }

    /// What the program finds in its environment, whichever rank it is.
    fn environment(
        &self,
        job: &JobMap,
        served: &Served,
    ) -> Result<BTreeMap<OsString, OsString>, String> {
        let (Some(setup), Some(place)) = (&self.setup, self.files.directory()) else {
            return Err(NOT_SET_UP.to_owned());
        };
        let node = job.node(self.me).map_or("", |node| &node.name);
        let size = job.size().to_string();
        let local_size = job.ranks_on(self.me).len().to_string();
        // Perhaps another launcher has started this daemon.
        let foreign = |name: &OsStr| name.to_str().is_some_and(is_of_a_launcher);
        let mut all: BTreeMap<OsString, OsString> =
            std::env::vars_os().filter(|(name, _)| !foreign(name)).collect();
        let mut set = |name: &str, value: &OsStr| {
            all.insert(name.into(), value.into());
        };
        for (name, value) in &setup.program.environment {
            set(name, value.as_ref());
        }
        set(petasos_pmix::JOB_DIR, place.path().as_os_str());
        set(MARKS, &marks(self.guards.mark(), std::env::var_os(MARKS)));
        set("PETASOS_SIZE", size.as_ref());
        set("PETASOS_JOB_NAME", job.spec().name.as_ref());
        set("PETASOS_NODE_NAME", node.as_ref());
        set("PETASOS_LOCAL_SIZE", local_size.as_ref());
        if let Some(address) = self.resources.address() {
            set(NODE_ADDRESS, address.to_string().as_ref());
        }
        match served {
            Served::Native | Served::Pmi1 => {}
            Served::Pmix(uri) | Served::Either(uri) => {
                PMIX_URIS.iter().for_each(|name| set(name, uri.as_ref()));
                PMIX_DIRECTORIES.iter().for_each(|name| set(name, place.path().as_os_str()));
                set("PMIX_NAMESPACE", job.namespace().as_ref());
                set("PMIX_HOSTNAME", node.as_ref());
                PMIX_SETTINGS.iter().for_each(|(name, value)| set(name, value.as_ref()));
            }
        }
        if matches!(served, Served::Pmi1 | Served::Either(_)) {
            all.insert("PMI_SIZE".into(), size.into());
        }
        if matches!(served, Served::Either(_)) {
            let (name, version) = MPICH_WIRE;
            all.entry(name.into()).or_insert_with(|| version.into());
        }
        if self.is_crowded() {
            for (name, value) in CROWDED {
                // Unless the user knows better.
                all.entry(name.into()).or_insert_with(|| value.into());
            }
        }
        if matches!(served, Served::Pmix(_) | Served::Either(_)) {
            // Unless the user has said something else.
            let (name, longest) = PMIX_LONGEST;
            all.entry(name.into()).or_insert_with(|| longest.into());
        }
        // What each rank has of its own comes besides. That a command has started this daemon is
        // not said of its ranks.
        OWN.iter().chain(&[STARTED_BY]).for_each(|name| drop(all.remove(OsStr::new(name))));
        Ok(all)
    }

    /// Starts a rank, which has been started so often before.
    pub(super) fn start_rank(
        &mut self,
        number: u32,
        restarts: u32,
        job: &JobMap,
        common: &mut Common,
    ) -> Result<Rank, String> {
        let local = job.local_rank(number).unwrap_or_default();
        let rank = number.to_string();
        let mut own = vec![
            (petasos_pmix::RANK_VARIABLE, rank.clone()),
            (LOCAL_RANK, local.to_string()),
            (RESTARTS, restarts.to_string()),
        ];
        let (mut connected, mut inherited) = (None, None);
        if matches!(common.served, Served::Pmix(_) | Served::Either(_)) {
            own.push((PMIX_RANK, rank.clone()));
        }
        if matches!(common.served, Served::Pmi1 | Served::Either(_)) {
            let pair = self.connection(number);
            let (ours, theirs) = pair.map_err(|error| unready("a connection", &error))?;
            own.extend([(PMI_FD, theirs.as_raw_fd().to_string()), (PMI_RANK, rank)]);
            (connected, inherited) = (Some(ours), Some(theirs));
        }
        let core = local as usize % common.cores.len().max(1);
        let cores = common.cores.get(core).map(|core| {
            let mut own = CpuSet::new();
            own.set(*core as usize);
            own
        });
        let guard = self.guards.socket();
        let files = Some(self.admission.files.before);
        let session = common.session;
        let (daemon, ends) = (getpid(), true);
        let first = First { daemon, ends, guard, cores, session, files, inherited };
        let (process, pipes) = common
            .spawn(self.ranks.reads_input(number), &own, &first)
            .map_err(|error| self.why_not(&error))?;
        if let Some(Err(error)) = connected.map(|stream| self.accept_client(stream)) {
            self.log(&format!("the connection of rank {number}: {error}"));
        }
        let pid = process.pid;
        Rank::new(process, pipes, restarts).map_err(|error| {
            self.guards.process_ended(pid);
            unready("looking after it", &error)
        })
    }

    /// Why the program could not be started.
    fn why_not(&self, error: &io::Error) -> String {
        let Some(program) = self.setup.as_ref().map(|setup| &setup.program) else {
            return NOT_SET_UP.to_owned();
        };
        let name = program.arguments.first().map_or("", String::as_str);
        let directory = Path::new(&program.directory);
        if error.kind() == ErrorKind::NotFound && !directory.is_dir() {
            return format!("{}: there is no such directory", program.directory);
        }
        let path = program.environment.iter().find(|(name, _)| name == "PATH");
        let path = path.map(|(_, path)| path.into()).or_else(|| std::env::var_os("PATH"));
        why_not(name, path.as_deref(), directory, error)
    }

    /// A connection to this daemon for a program that inherits one, with what a client says first:
    /// our end of it, and the program's.
    fn connection(&self, rank: u32) -> io::Result<(UnixStream, OwnedFd)> {
        let (ours, mut theirs) = UnixStream::pair()?;
        // From the first message on it is known which process it is of.
        set_socket_passcred(&ours, true)?;
        theirs.write_all(&self.listeners.greeting(rank))?;
        Ok((ours, theirs.into()))
    }
}

/// Which library it is whose name a program, or a library of it, asks the loader for.
fn library_named(name: &str) -> Option<Library> {
    let is = |wanted: &[&str]| wanted.iter().any(|wanted| name.starts_with(wanted));
    // The second is the name of the common interface of MPICH's descendants, the third that of the
    // interface of the MPI Standard, which so far is MPICH's only.
    if is(&["libmpich.so", "libmpi.so.12", "libmpi_abi.so"]) {
        Some(Library::Mpich)
    } else if is(&["libmpi.so.40", "libpmix.so.2"]) {
        Some(Library::Pmix)
    } else {
        None
    }
}
