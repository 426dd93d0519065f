//! A process in its job: its rank, the other ranks, and what they put.

mod cards;
mod completion;
mod connection;
mod endpoints;
mod error;
mod events;
mod exchange;
mod foreign;
mod handlers;
mod job_data;
mod pmi1;
mod pmix;
mod recovery;
mod server;

use crate::{
    Error, Node, Proc, Value, datastore,
    job::{Facts, JobMap},
    message::{Answer, Request},
};
use cards::{Cards, OwnCard};
use connection::Connection;
use endpoints::Endpoints;
pub use error::JobError;
pub use exchange::{FenceOptions, GetOptions};
use foreign::Found;
pub use handlers::Reply;
use handlers::Running;
use job_data::JobData;
use petasos_fabric::Address;
use server::Server;
use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// The variable that names the private directory of the job on this node.
pub const JOB_DIR: &str = "PETASOS_JOB_DIR";
/// The variable with the rank.
pub const RANK_VARIABLE: &str = "PETASOS_RANK";
/// How much longer a client waits for an answer than the daemon may take for it.
const SLACK: Duration = Duration::from_secs(10);
/// How long the daemon may take for a request that names no time.
const PATIENCE: Duration = Duration::from_secs(360);

/// This process as a member of its job.
///
/// It may be used from any thread. Its methods block the calling thread until the daemon of this
/// node has answered. A request that names no time waits for other processes 5 minutes at most, and
/// for the head node 30 seconds. A daemon that does not answer ends each call with
/// [`JobError::Silent`] or [`JobError::Lost`]; what waits for a process or node that fails ends at
/// once, with an error that names it. A process may have 4,096 requests under way.
///
/// Dropping it finalizes, unless the thread panics: then the others learn that this process failed.
///
/// ```no_run
/// use petasos_pmix::{Job, Scope, Value};
///
/// // Started as one of several ranks by `petasos run`, `mpirun` or `mpiexec`.
/// let job = Job::init()?;
/// job.put(Scope::Global, "port", 4040u64 + u64::from(job.rank()));
/// job.commit()?;
/// job.fence()?;
/// let next = (job.rank() + 1) % job.size();
/// assert_eq!(job.get(next, "port")?, Value::Uint(4040 + u64::from(next)));
/// // The address of that rank's endpoint: no exchange was needed for this.
/// println!("rank {next} is at {}", job.peer(next)?);
/// job.finalize()?;
/// # Ok::<(), petasos_pmix::JobError>(())
/// ```
pub struct Job {
    proc: Proc,
    node: Node,
    /// How often this rank was started again.
    restarts: u32,
    data: JobData,
    server: Arc<Server>,
    endpoints: Endpoints,
    own: OwnCard,
    cards: Cards,
    events: Running,
    finalized: AtomicBool,
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(path: &Path) -> Result<Vec<u8>, JobError> {
    fs::read(path).map_err(|error| JobError::Io(path.display().to_string(), error))
}

impl Job {
    /// Joins the job as the rank that this process was started as: by `petasos run`, or by another
    /// launcher, to whose server it then connects: PMIx (`mpirun` of Open MPI, `prterun`, Slurm
    /// with its PMIx plug-in), or PMI-1 (`mpiexec` of MPICH, Slurm).
    ///
    /// What another launcher does not offer ends with [`JobError::NotOffered`]. Where another
    /// launcher has started ranks on several hosts, this waits for rank 0 (PMIx), or for all ranks
    /// (PMI-1).
    ///
    /// # Errors
    /// * [`JobError::NoJob`] if no launcher started this process.
    /// * [`JobError::Io`] and [`JobError::BadJobFile`] if the daemon of this node cannot be
    ///   reached.
    /// * [`JobError::Refused`] if it refuses, as when another process is connected as this rank.
    pub fn init() -> Result<Job, JobError> {
        let variable = |name: &str| std::env::var(name).ok();
        if let Some(directory) = std::env::var_os(JOB_DIR) {
            let rank = variable(RANK_VARIABLE).and_then(|text| text.parse().ok());
            return Job::connect(PathBuf::from(directory), Some(rank.ok_or(JobError::NoJob)?));
        }
        let at = |what: &str| {
            let what = format!("the {what} server of the launcher");
            move |error| JobError::Io(what.clone(), error)
        };
        let (map, proc, node, server) = match foreign::find(variable)?.ok_or(JobError::NoJob)? {
            Found::Pmix(setting) => {
                let found = pmix::connect(&setting).map_err(at("PMIx"))?;
                let connection = Connection::pmix(found.stream, found.dialect);
                let connection = connection.map_err(at("PMIx"))?;
                (found.map, found.proc, found.node, Server::Pmix(connection))
            }
            Found::Pmi1(setting) => {
                let (map, client) = pmi1::connect(&setting).map_err(at("PMI-1"))?;
                (map, client.proc(), client.node(), Server::Pmi1(client))
            }
        };
        let job = Job {
            proc,
            node,
            restarts: 0,
            data: JobData::Map(map),
            server: Arc::new(server),
            endpoints: Endpoints::default(),
            own: OwnCard::default(),
            cards: Cards::default(),
            events: Running::new(proc, node),
            finalized: AtomicBool::new(false),
        };
        Endpoints::exchange(&job)?;
        Ok(job)
    }

    /// Connects to a job as a tool, by the private directory of the job on this node. A tool has no
    /// rank: it queries, looks up, and receives the events of all processes. [`running`] lists the
    /// directories.
    ///
    /// ```no_run
    /// use petasos_pmix::{Job, running};
    ///
    /// for directory in running() {
    ///     let job = Job::attach(directory)?;
    ///     println!("{:?}", job.query(&["petasos.jobs", "petasos.processes"])?);
    /// }
    /// # Ok::<(), petasos_pmix::JobError>(())
    /// ```
    ///
    /// # Errors
    /// [`JobError::Io`] if the job has ended, or belongs to another user.
    pub fn attach(directory: impl Into<PathBuf>) -> Result<Job, JobError> {
        Job::connect(directory.into(), None)
    }

    fn connect(directory: PathBuf, rank: Option<u32>) -> Result<Job, JobError> {
        let at = || directory.join(datastore::JOB).display().to_string();
        let (table, cards) = datastore::open(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => JobError::BadJobFile(at(), error.to_string()),
            _ => JobError::Io(at(), error),
        })?;
        let socket = directory.join("server");
        let connection = Connection::connect(&socket, &read(&directory.join("token"))?);
        let connection =
            connection.map_err(|error| JobError::Io(socket.display().to_string(), error))?;
        let request = match rank {
            Some(rank) => Request::Connect(Proc::new(table.id(), rank)),
            None => Request::ConnectTool,
        };
        let Answer::Welcome { proc, node, restarts } = connection.call(request, SLACK)? else {
            return Err(unexpected());
        };
        Ok(Job {
            proc,
            node,
            restarts,
            data: JobData::table(table),
            server: Arc::new(Server::Native(connection)),
            endpoints: Endpoints::assigned(directory),
            own: OwnCard::default(),
            // A tool asks the daemon for every business card, and so does a process that cannot map
            // them.
            cards: Cards::new(cards.filter(|_| rank.is_some())),
            events: Running::new(proc, node),
            finalized: AtomicBool::new(false),
        })
    }

    /// The name of this process.
    #[must_use]
    pub fn proc(&self) -> Proc {
        self.proc
    }

    /// The rank of this process, less than [`Job::size`].
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.proc.rank
    }

    /// How many ranks the job has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.data.facts().size()
    }

    /// The node of this process.
    #[must_use]
    pub fn node(&self) -> Node {
        self.node
    }

    /// The process of a rank.
    #[must_use]
    pub fn proc_of(&self, rank: u32) -> Proc {
        Proc::new(self.data.facts().id(), rank)
    }

    /// The whole description of the job. The first call builds it, in time and memory that grow
    /// with the job; [`Job::get`] and [`Job::peer`] do not need it. It does not change when a node
    /// is replaced after that call; these two then say where ranks are.
    #[must_use]
    pub fn map(&self) -> &JobMap {
        self.data.map()
    }

    /// The secret by which the ranks authenticate each other over TCP; `None` for a job on one
    /// host, which needs none.
    ///
    /// # Errors
    /// If the daemon's file with the secret is gone or, under another launcher, rank 0 does not
    /// send it within 5 minutes.
    pub fn secret(&self) -> Result<Option<Vec<u8>>, JobError> {
        self.endpoints.secret(self)
    }

    /// The address of a rank's endpoint. A rank that opens its endpoint at its own address can be
    /// reached by all others. Under `petasos run` addresses are assigned before the job starts, and
    /// nothing is exchanged. Under another launcher the first call for a rank asks that rank, and
    /// waits 5 minutes at most.
    ///
    /// ```no_run
    /// # let job = petasos_pmix::Job::init()?;
    /// let own = job.peer(job.rank())?;
    /// println!("this rank listens at {own}");
    /// # Ok::<(), petasos_pmix::JobError>(())
    /// ```
    ///
    /// # Errors
    /// * [`JobError::Refused`] if the job has no such rank, or that rank does not send its address.
    /// * [`JobError::NotOffered`] if the job was started without a network.
    pub fn peer(&self, rank: u32) -> Result<Address, JobError> {
        let facts = self.data.facts();
        let none = || JobError::Refused(Error::NoSuchProc(Proc::new(facts.id(), rank)));
        facts.node_of(rank).ok_or_else(none)?;
        if self.data.may_be_outdated() {
            return match self.get(rank, "pmix.petasos.address")? {
                Value::Text(text) => Address::parse(&text)
                    .map_err(|error| JobError::BadJobFile(text, error.to_string())),
                _ => Err(unexpected()),
            };
        }
        let nowhere = || JobError::NotOffered {
            what: "an address of each rank".to_owned(),
            launcher: "one without a network".to_owned(),
        };
        let text = match self.endpoints.of(self, rank)? {
            Some(text) => text,
            None => facts.address(rank).ok_or_else(nowhere)?,
        };
        Address::parse(&text).map_err(|error| JobError::BadJobFile(text, error.to_string()))
    }

    /// How often this rank was started again; 0: this process is its first.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Leaves the job. The others can no longer wait for this process, and later calls of it fail
    /// with [`JobError::Lost`]. Finalizing again does nothing.
    ///
    /// # Errors
    /// If the daemon is lost.
    pub fn finalize(&self) -> Result<(), JobError> {
        if self.finalized.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let done = self.perform(Request::Finalize, SLACK);
        self.server.close();
        self.events.join();
        done
    }

    /// Sends a request whose answer has no value.
    fn perform(&self, what: Request, patience: Duration) -> Result<(), JobError> {
        done(self.server.call(what, patience)?)
    }
}

fn done(answer: Answer) -> Result<(), JobError> {
    match answer {
        Answer::Done => Ok(()),
        _ => Err(unexpected()),
    }
}

fn unexpected() -> JobError {
    JobError::Refused(Error::Misuse("the daemon's answer is to something else".to_owned()))
}

impl Drop for Job {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.server.close();
        } else {
            let _ = self.finalize();
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} of {})", self.proc, self.size())
    }
}

/// The private directories of this user's jobs that run from this host, in no particular order. See
/// [`Job::attach`].
#[must_use]
pub fn running() -> Vec<PathBuf> {
    let bases = crate::directory::bases().into_iter();
    let entries = bases.flat_map(|base| fs::read_dir(base).into_iter().flatten()).flatten();
    let of_head = |path: &PathBuf| path.extension().is_some_and(|node| node == "0");
    entries.map(|entry| entry.path()).filter(of_head).collect()
}
