//! The life of a process in its job: its rank, the other ranks, and what they put.

mod foreign;
mod handlers;
mod link;
mod places;
mod pmi1;
mod pmix;
mod server;
mod word;

use crate::{
    BusinessCard, Entry, Error, Group, Info, Node, Proc, Scope, Value,
    chain::{Registration, Returned},
    event::{Event, Range},
    job::{Facts, JobMap, JobSpec},
    message::{Answer, Persistence, Published, Request},
    shelf,
    table::Table,
};
use foreign::Found;
pub use handlers::Reply;
use handlers::Running;
use link::Link;
use petasos_fabric::Address;
use places::Places;
use server::Server;
use std::{
    collections::{BTreeMap, HashMap},
    fmt, fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

/// The variable that names the private directory of the job on this node.
pub const JOB_DIR: &str = "PETASOS_JOB_DIR";
/// The variable with the rank.
pub const RANK_VARIABLE: &str = "PETASOS_RANK";
/// How much longer than the daemon allows for a request its answer is waited for.
const SLACK: Duration = Duration::from_secs(10);
/// How long the daemon takes for a request that names no time, at most.
const PATIENCE: Duration = Duration::from_secs(360);

/// Why a process could not do something in its job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// This process was not started as part of a job.
    #[error(
        "this process is not part of a job (none of {JOB_DIR}, PMIX_NAMESPACE, PMI_FD and PMI_PORT is \
         set): start it by `petasos run`, or by a launcher that speaks PMIx or PMI-1, as mpirun and \
         mpiexec do"
    )]
    NoJob,
    /// The launcher of the job has no such thing.
    #[error("{what} is not offered by this launcher ({launcher}): `petasos run` has it")]
    NotOffered {
        /// What was asked for.
        what: String,
        /// What it speaks.
        launcher: String,
    },
    /// A file or the socket of the daemon could not be used.
    #[error("{0}: {1}")]
    Io(String, io::Error),
    /// What the daemon left for its processes makes no sense.
    #[error("{0}: {1}")]
    BadJobFile(String, String),
    /// The daemon refused, or could not.
    #[error(transparent)]
    Refused(#[from] Error),
    /// The daemon is not there any more.
    #[error("the daemon of this node is lost: {0}")]
    Lost(String),
    /// The daemon does not answer.
    #[error("the daemon of this node did not answer within {0:?}")]
    Silent(Duration),
}

/// How to look for a key; `Default` waits as long as the daemon allows.
#[derive(Clone, Copy, Debug, Default)]
pub struct GetOptions {
    /// How long to wait for the other process to commit.
    pub timeout: Option<Duration>,
    /// What is not known on this node at once is not found.
    pub immediate: bool,
    /// Wait for the key, even if the process has committed without it.
    pub wait: bool,
}

/// How to come together; `Default` is all of the job, with their cards, for as long as the daemon
/// allows.
#[derive(Clone, Debug, Default)]
pub struct FenceOptions {
    /// The processes; `None`: all of the job.
    pub group: Option<Group>,
    /// Whether cards stay where they are: nothing is exchanged, they are fetched when needed.
    pub without_cards: bool,
    /// How long to wait for the others.
    pub timeout: Option<Duration>,
}

/// A process's place in its job. May be used from any thread.
///
/// Dropping it finalizes, unless the thread panics: then the others learn that this process is
/// gone.
///
/// Its methods block the calling thread until the daemon of this node has answered, or time is up.
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
/// // Where that rank's endpoint is: no exchange was needed for this.
/// println!("rank {next} is at {}", job.peer(next)?);
/// job.finalize()?;
/// # Ok::<(), petasos_pmix::JobError>(())
/// ```
pub struct Job {
    proc: Proc,
    node: Node,
    known: Known,
    /// Which daemon this process has, and where, or what another launcher has in its place.
    link: Arc<Server>,
    places: Places,
    /// Where cards are that the daemon knows.
    shelf: Option<shelf::Reader>,
    events: Running,
    own: Mutex<Own>,
    cards: Mutex<Kept>,
    /// How often this rank was started again.
    restarts: u32,
}

/// Cards of others that this process has read.
#[derive(Debug, Default)]
struct Kept {
    cards: HashMap<Proc, BusinessCard>,
    /// How often any rank was started again until then, as far as this node knew.
    restarts: u64,
}

#[derive(Debug, Default)]
struct Own {
    all: BTreeMap<String, Entry>,
    /// What has not been committed.
    new: BTreeMap<String, Entry>,
    finalized: bool,
}

/// What is known of the job.
enum Known {
    /// What another launcher told.
    Map(JobMap),
    /// What all processes of the node map, and all of it for processes that asked for that.
    Table(Table<shelf::Source>, OnceLock<JobMap>),
}

impl Known {
    /// Whether ranks may be elsewhere than this says: it was read from a file, and nodes can be
    /// replaced.
    fn may_be_old(&self) -> bool {
        match self {
            Known::Table(table, _) => table.is_own() && table.info(crate::job::SPARES).is_some(),
            Known::Map(_) => false,
        }
    }

    fn facts(&self) -> &dyn Facts {
        match self {
            Known::Map(map) => map,
            Known::Table(table, _) => table,
        }
    }

    fn map(&self) -> &JobMap {
        match self {
            Known::Map(map) => map,
            Known::Table(table, map) => map.get_or_init(|| {
                let (nodes, runs, info) = (Vec::new(), Vec::new(), Vec::new());
                let (id, name) = (table.id(), table.name().to_owned());
                JobMap::new(table.spec())
                    .or_else(|_| JobMap::new(JobSpec { id, name, nodes, runs, info }))
                    .expect("a job without ranks is one")
            }),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn read(path: &Path) -> Result<Vec<u8>, JobError> {
    fs::read(path).map_err(|error| JobError::Io(path.display().to_string(), error))
}

impl Job {
    /// Joins the job as the rank that this process was started as: by `petasos run`, or by another
    /// launcher, whose server it then speaks to: PMIx (`mpirun` of Open MPI, `prterun`, Slurm with
    /// its PMIx plug-in), or PMI-1 (`mpiexec` of MPICH, Slurm).
    ///
    /// What the other launcher does not have ends with [`JobError::NotOffered`]. Where it has put
    /// ranks on several hosts, this waits for rank 0 (PMIx), or for all (PMI-1).
    ///
    /// # Errors
    /// If it was not started so, or its daemon is gone or refuses.
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
                let link = Link::pmix(found.stream, found.dialect).map_err(at("PMIx"))?;
                (found.map, found.proc, found.node, Server::Pmix(link))
            }
            Found::Pmi1(setting) => {
                let (map, client) = pmi1::connect(&setting).map_err(at("PMI-1"))?;
                (map, client.proc(), client.node(), Server::Pmi1(client))
            }
        };
        let job = Job::new(proc, node, Known::Map(map), server, Places::default());
        Places::exchange(&job)?;
        Ok(job)
    }

    fn new(proc: Proc, node: Node, known: Known, server: Server, places: Places) -> Job {
        Job {
            proc,
            node,
            known,
            link: Arc::new(server),
            places,
            shelf: None,
            events: Running::new(proc, node),
            own: Mutex::default(),
            cards: Mutex::default(),
            restarts: 0,
        }
    }

    /// Looks into a job from outside, by its private directory; see [`running`].
    ///
    /// # Errors
    /// If there is no such job any more, or it refuses.
    pub fn attach(directory: impl Into<PathBuf>) -> Result<Job, JobError> {
        Job::connect(directory.into(), None)
    }

    fn connect(directory: PathBuf, rank: Option<u32>) -> Result<Job, JobError> {
        let at = || directory.join(shelf::JOB).display().to_string();
        let (table, cards) = shelf::open(&directory).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => JobError::BadJobFile(at(), error.to_string()),
            _ => JobError::Io(at(), error),
        })?;
        let socket = directory.join("server");
        let link = Link::connect(&socket, &read(&directory.join("token"))?);
        let link = link.map_err(|error| JobError::Io(socket.display().to_string(), error))?;
        let request = match rank {
            Some(rank) => Request::Connect(Proc::new(table.id(), rank)),
            None => Request::ConnectTool,
        };
        let Answer::Welcome { proc, node, restarts } = link.call(request, SLACK)? else {
            return Err(unexpected());
        };
        let known = Known::Table(table, OnceLock::new());
        let mut job =
            Job::new(proc, node, known, Server::Native(link), Places::assigned(directory));
        job.restarts = restarts;
        // What looks on from outside asks for all; so does a process that cannot map them.
        job.shelf = cards.filter(|_| rank.is_some());
        Ok(job)
    }

    /// The name of this process.
    #[must_use]
    pub fn proc(&self) -> Proc {
        self.proc
    }

    /// The rank of this process: 0 to [`Job::size`].
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.proc.rank
    }

    /// How many ranks the job has.
    #[must_use]
    pub fn size(&self) -> u32 {
        self.known.facts().size()
    }

    /// The node that this process is on.
    #[must_use]
    pub fn node(&self) -> Node {
        self.node
    }

    /// The process of a rank.
    #[must_use]
    pub fn proc_of(&self, rank: u32) -> Proc {
        Proc::new(self.known.facts().id(), rank)
    }

    /// All that is known of the job. It is put together when this is first called, in time and
    /// memory that grow with the job; what [`Job::get`] and [`Job::peer`] look up does not need it.
    /// Where a node was replaced after that call, this does not say so; these two do.
    #[must_use]
    pub fn map(&self) -> &JobMap {
        self.known.map()
    }

    /// The secret by which the ranks know each other over TCP; nothing on one host, where none is
    /// needed.
    ///
    /// # Errors
    /// If the daemon's file of it is gone, or rank 0 does not tell.
    pub fn secret(&self) -> Result<Option<Vec<u8>>, JobError> {
        self.places.secret(self)
    }

    /// Where a rank's endpoint is. A rank that opens its own endpoint at its own address is reached
    /// by all. Under `petasos run` that was assigned before the job was started, and nothing is
    /// exchanged; else the rank is asked for it when this is first called.
    ///
    /// # Errors
    /// If the job has no such rank, or that rank does not tell.
    pub fn peer(&self, rank: u32) -> Result<Address, JobError> {
        let known = self.known.facts();
        let none = || JobError::Refused(Error::NoSuchProc(Proc::new(known.id(), rank)));
        known.node_of(rank).ok_or_else(none)?;
        if self.known.may_be_old() {
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
        let text = match self.places.of(self, rank)? {
            Some(text) => text,
            None => known.address(rank).ok_or_else(nowhere)?,
        };
        Address::parse(&text).map_err(|error| JobError::BadJobFile(text, error.to_string()))
    }

    /// Puts a value on this process's business card. The others see it after [`Job::commit`].
    pub fn put(&self, scope: Scope, key: &str, value: impl Into<Value>) {
        let entry = Entry { scope, value: value.into() };
        let mut own = lock(&self.own);
        own.all.insert(key.to_owned(), entry.clone());
        if scope != Scope::Internal {
            own.new.insert(key.to_owned(), entry);
        }
    }

    /// Lets the others see what was put.
    ///
    /// # Errors
    /// If a key or value is too long or a key is reserved, or the daemon is lost.
    pub fn commit(&self) -> Result<(), JobError> {
        let new = std::mem::take(&mut lock(&self.own).new);
        self.done(Request::Commit(new.into_iter().collect()), SLACK)
    }

    /// The value that a rank put under a key, or (with [`Proc::JOB`]) a value of the job. Asks for
    /// it if it is not here; waits until the rank has committed.
    ///
    /// # Errors
    /// That names the rank and the key, if the rank committed without it, is gone, or did not
    /// commit in time.
    pub fn get(&self, rank: u32, key: &str) -> Result<Value, JobError> {
        self.get_with(rank, key, GetOptions::default())
    }

    /// [`Job::get`], in other ways.
    ///
    /// # Errors
    /// As there.
    pub fn get_with(&self, rank: u32, key: &str, how: GetOptions) -> Result<Value, JobError> {
        let known = self.known.facts();
        let proc = Proc::new(known.id(), rank);
        // What is said of a rank the daemon knows better then.
        let here = rank == Proc::JOB || !self.known.may_be_old();
        if let Some(value) = known.value(rank, key).filter(|_| here) {
            return Ok(value);
        }
        if proc == self.proc
            && let Some(entry) = lock(&self.own).all.get(key)
        {
            return Ok(entry.value.clone());
        }
        // What the launcher told at the start is all there is, and it might wait for ranks that are
        // none.
        if self.link.is_foreign() && known.node_of(rank).is_none() {
            return Err(match rank {
                Proc::JOB => Error::NotFound { proc, key: key.to_owned() },
                _ => Error::NoSuchProc(proc),
            }
            .into());
        }
        let of = |card: &BusinessCard| card.entries.get(key).map(|entry| entry.value.clone());
        // What changes after this look is of no process that this one can have heard of by now.
        let restarts = self.shelf.as_ref().map_or(0, shelf::Reader::restarts);
        if let Some(value) = self.kept(restarts).cards.get(&proc).and_then(of) {
            return Ok(value);
        }
        if let Some(card) = self.shelf.as_ref().and_then(|shelf| shelf.get(rank))
            && let Some(value) = of(&card)
        {
            self.keep(restarts, proc, card);
            return Ok(value);
        }
        let GetOptions { timeout, immediate, wait } = how;
        let request = Request::Get { proc, key: key.to_owned(), timeout, immediate, wait };
        match self.link.call(request, timeout.unwrap_or(PATIENCE) + SLACK)? {
            Answer::Value(value) => Ok(value),
            Answer::BusinessCard(card) => {
                let value = of(&card);
                // A process that does not share memory with the daemon does not see when it is of a
                // process that is gone.
                if self.shelf.is_some() || self.link.is_foreign() {
                    self.keep(restarts, proc, card);
                }
                value.ok_or_else(|| Error::NotFound { proc, key: key.to_owned() }.into())
            }
            _ => Err(unexpected()),
        }
    }

    /// The cards that were read since this many restarts.
    fn kept(&self, restarts: u64) -> MutexGuard<'_, Kept> {
        let mut kept = lock(&self.cards);
        if kept.restarts < restarts {
            *kept = Kept { cards: HashMap::new(), restarts };
        }
        kept
    }

    /// Keeps a card that was asked for after this many restarts, unless there were more meanwhile.
    fn keep(&self, restarts: u64, proc: Proc, card: BusinessCard) {
        let mut kept = self.kept(restarts);
        if kept.restarts == restarts {
            kept.cards.insert(proc, card);
        }
    }

    /// Waits until all ranks have come here, and have all business cards.
    ///
    /// # Errors
    /// That names the ranks that did not come, if not all came in time or one of them is gone.
    pub fn fence(&self) -> Result<(), JobError> {
        self.fence_with(FenceOptions::default())
    }

    /// [`Job::fence`], in other ways.
    ///
    /// # Errors
    /// As there.
    pub fn fence_with(&self, how: FenceOptions) -> Result<(), JobError> {
        let FenceOptions { group, without_cards, timeout } = how;
        let whole = group.is_none();
        let request = Request::Fence { group, collect: !without_cards, timeout };
        let patience = timeout.unwrap_or(PATIENCE) + SLACK;
        match (&*self.link, &self.shelf) {
            // All of the job end it together.
            (Server::Native(link), Some(shelf)) if whole => {
                done(link.call_by_word(request, patience, shelf, self.proc.rank)?)
            }
            _ => self.done(request, patience),
        }
    }

    /// Publishes a value for all processes in `range` to look up.
    ///
    /// # Errors
    /// If that key is published already, or the head node does not answer.
    pub fn publish(
        &self,
        key: &str,
        value: impl Into<Value>,
        range: Range,
        persistence: Persistence,
    ) -> Result<(), JobError> {
        let (key, value) = (key.to_owned(), value.into());
        self.done(Request::Publish(Published { key, value, range, persistence }), PATIENCE)
    }

    /// Looks up what a process published, and waits for it if so told.
    ///
    /// # Errors
    /// If it is not there, or not in time.
    pub fn lookup(&self, key: &str, wait: Option<Duration>) -> Result<(Value, Proc), JobError> {
        let request =
            Request::Lookup { keys: vec![key.to_owned()], wait, least: 0, within: Range::Global };
        match self.link.call(request, wait.unwrap_or_default() + PATIENCE)? {
            Answer::Found(found) => {
                let first = found.into_iter().next();
                first.map(|(_, value, owner)| (value, owner)).ok_or_else(unexpected)
            }
            _ => Err(unexpected()),
        }
    }

    /// Takes back what this process published.
    ///
    /// # Errors
    /// If the head node does not answer.
    pub fn unpublish(&self, key: &str) -> Result<(), JobError> {
        self.done(Request::Unpublish(vec![key.to_owned()]), PATIENCE)
    }

    /// Asks about the running job: keys of job data, `petasos.processes`, `petasos.nodes`,
    /// `petasos.published`, `petasos.jobs`.
    ///
    /// # Errors
    /// If a key is unknown, or the head node does not answer.
    pub fn query(&self, keys: &[&str]) -> Result<Info, JobError> {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        match self.link.call(Request::Query(keys), PATIENCE)? {
            Answer::Info(info) => Ok(info),
            _ => Err(unexpected()),
        }
    }

    /// Has a function called on events, in its place in the chain, by a thread that runs handlers
    /// one after the other. Events of the last two minutes that it takes, it gets as well.
    ///
    /// # Errors
    /// If there is a first (or last) handler already, or the daemon is lost.
    pub fn on_event(
        &self,
        with: Registration,
        call: impl FnMut(&Event, &[Returned]) -> Reply + Send + 'static,
    ) -> Result<u64, JobError> {
        let codes = with.codes.clone();
        let handler = self.events.add(with, call, &self.link)?;
        match self.done(Request::Register { handler, codes }, SLACK) {
            Ok(()) => Ok(handler),
            Err(error) => {
                let _ = self.events.remove(handler);
                Err(error)
            }
        }
    }

    /// Has it called no more.
    ///
    /// # Errors
    /// If there is no such handler.
    pub fn remove_handler(&self, handler: u64) -> Result<(), JobError> {
        self.events.remove(handler)?;
        self.done(Request::Deregister(handler), SLACK)
    }

    /// Tells of an event. Handlers of this process are called as well; the others are told as far
    /// as `range` goes. Two names in `info` say how: [`NON_DEFAULT`](crate::event::NON_DEFAULT) and
    /// [`NO_CACHE`](crate::event::NO_CACHE).
    ///
    /// # Errors
    /// If the code is 0, which is that of success; if names and values in `info` have more than
    /// 64 KiB in all; or if the daemon is lost.
    pub fn notify(&self, code: i32, range: Range, mut info: Info) -> Result<(), JobError> {
        let says = |(key, value): &(String, Value)| {
            key == crate::event::NON_DEFAULT && *value == Value::Bool(true)
        };
        let non_default = info.iter().any(says);
        info.retain(|(key, _)| key != crate::event::NON_DEFAULT);
        let request =
            Request::Notify { code, range: range.clone(), non_default, info: info.clone() };
        let Answer::Notified(id) = self.link.call(request, SLACK)? else {
            return Err(unexpected());
        };
        let (source, node) = (self.proc, self.node);
        self.events.own(Event { id, code, source, node, range, non_default, info }, &self.link);
        Ok(())
    }

    /// From now on this process calls [`Job::progress`] at least this often. If it does not, the
    /// others hear of it by the event [`NO_PROGRESS`](crate::status::NO_PROGRESS), once for each
    /// such pause. `None`: it need not any more.
    ///
    /// # Errors
    /// If the daemon is lost, or does not offer this.
    pub fn watch_progress(&self, every: Option<Duration>) -> Result<(), JobError> {
        self.done(Request::Watch(every), SLACK)
    }

    /// Says that this process makes progress: see [`Job::watch_progress`].
    ///
    /// # Errors
    /// If the daemon is lost, or does not offer this.
    pub fn progress(&self) -> Result<(), JobError> {
        self.done(Request::Progress, SLACK)
    }

    /// How often this rank was started again; 0: this process is its first.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Has a rank that failed started again, on its node; says how often it was so by now. However
    /// many ask, there is one new process for one that failed. That it was started all hear by the
    /// event [`PROC_RESTARTED`](crate::status::PROC_RESTARTED). What the rank had put is gone: a
    /// get of its keys waits for what the new process commits; and that one comes to the first
    /// fence that has not ended without it.
    ///
    /// # Errors
    /// If the rank has not failed, its node is lost, it was started again as often as it may be,
    /// the job does not go on after a failure, or the head node does not answer.
    pub fn restart(&self, rank: u32) -> Result<u32, JobError> {
        let request = Request::Restart { proc: self.proc_of(rank), after: None };
        match self.link.call(request, PATIENCE)? {
            Answer::Value(value) => {
                let restarts = value.as_u64().and_then(|number| u32::try_from(number).ok());
                restarts.ok_or_else(unexpected)
            }
            _ => Err(unexpected()),
        }
    }

    /// Has the ranks of a node that is lost started again on a spare one (`petasos run --spares`);
    /// says on which. However many ask, one node takes its place. All ranks of it that had not
    /// ended begin again there, together, each as after [`Job::restart`]; all hear of it by the
    /// event [`NODE_REPLACED`](crate::status::NODE_REPLACED), after which [`Job::peer`] and the
    /// keys of the job say where they are now.
    ///
    /// # Errors
    /// If the node is not lost, is the one from which the job is run, or has no ranks that could go
    /// on; if no spare is left; if one of its ranks was started again as often as it may be, the
    /// job does not go on after a failure, or the head node does not answer.
    pub fn replace(&self, node: Node) -> Result<Node, JobError> {
        match self.link.call(Request::Replace(node), PATIENCE)? {
            Answer::Value(value) => {
                let by = value.as_u64().and_then(|number| u32::try_from(number).ok());
                by.map(Node).ok_or_else(unexpected)
            }
            _ => Err(unexpected()),
        }
    }

    /// Ends the whole job with this code; this process is ended as well, soon.
    ///
    /// # Errors
    /// If the daemon is lost.
    pub fn abort(&self, status: i32, message: &str) -> Result<(), JobError> {
        self.done(Request::Abort { status, message: message.to_owned() }, PATIENCE)
    }

    /// This process is done. The others can no longer wait for it.
    ///
    /// # Errors
    /// If the daemon is lost.
    pub fn finalize(&self) -> Result<(), JobError> {
        if std::mem::replace(&mut lock(&self.own).finalized, true) {
            return Ok(());
        }
        let done = self.done(Request::Finalize, SLACK);
        self.link.close();
        self.events.join();
        done
    }

    fn done(&self, what: Request, patience: Duration) -> Result<(), JobError> {
        done(self.link.call(what, patience)?)
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
            self.link.close();
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

/// The private directories of this user's jobs that run from this host, in no particular order.
#[must_use]
pub fn running() -> Vec<PathBuf> {
    let bases = crate::daemon::bases().into_iter();
    let entries = bases.flat_map(|base| fs::read_dir(base).into_iter().flatten()).flatten();
    let head = |path: &PathBuf| path.extension().is_some_and(|node| node == "0");
    entries.map(|entry| entry.path()).filter(head).collect()
}
