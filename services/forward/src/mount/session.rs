//! A mount from its beginning to its end, and its threads.

use super::{
    MountError, MountId, MountOptions, attach,
    connection::Connection,
    dispatcher::Dispatcher,
    fs::{Fs, Job, MountUsage},
    mountinfo::mounted_on,
    notify::KernelNotifier,
    pool::Pool,
    refresh,
    request_queue::RequestQueues,
};
use crate::{
    client::ConnectOptions,
    descriptors,
    protocol::{Attr, Kind},
    timer::TimerThread,
};
use fuser::{Session, SessionUnmounter};
use futures_channel::mpsc as queue;
use futures_util::StreamExt;
use petasos::{
    Engine, EngineConfig, EngineThread, Idle,
    fabric::{Address, Endpoint},
};
use rustix::mount::UnmountFlags;
use std::{
    io,
    path::{Path, PathBuf},
    rc::Rc,
    sync::{
        Arc,
        mpsc::{self, RecvTimeoutError, Sender},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// How long a server that does not answer is waited for when a session begins.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long what was written is waited for at the end.
const FAREWELL: Duration = Duration::from_secs(10);
/// How long a mount that is in use is tried to be unmounted before its name is taken away.
const UNUSED: Duration = Duration::from_millis(200);

/// A mounted export. Dropping it unmounts it, also where programs still use it: they get errors.
///
/// What was written gets to the server before that, if no program uses the mount: dropping waits
/// ten seconds at most for it.
///
/// ```no_run
/// use petasos::{OpenOptions, fabric::Address};
/// use petasos_forward::mount::{MountOptions, Mounted, Unmounted};
/// use std::{path::Path, time::Duration};
///
/// let endpoint = petasos::open("tcp://127.0.0.1:0", &OpenOptions::default())?;
/// let server = Address::parse("tcp://127.0.0.1:7000")?;
/// let at = Path::new("/mnt/results");
/// let mut mounted = Mounted::new(endpoint, &server, at, MountOptions::default())?;
/// println!("{}", std::fs::read_dir(at)?.count());
/// if mounted.unmount()? == Unmounted::Detached {
///     // A program has a file open there.
///     mounted.wait(Duration::from_secs(60));
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Mounted {
    directory: PathBuf,
    /// If the system shows it.
    id: Option<MountId>,
    /// Where a helper has mounted it.
    unmounter: Option<SessionUnmounter>,
    session: Option<JoinHandle<()>>,
    over: mpsc::Receiver<()>,
    engine: Option<EngineThread>,
    ended: mpsc::Receiver<()>,
    /// To the engine's thread; until the end, which it waits for.
    jobs: Option<queue::UnboundedSender<Job>>,
    settled: bool,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unmounted {
    /// It is gone.
    Clean,
    /// A program uses it: it has no name any more, and is gone when the last one leaves it.
    Detached,
}

impl Mounted {
    /// Mounts the export at `server` on `directory`, over an endpoint that is this mount's alone.
    ///
    /// # Errors
    /// If the server does not answer within some seconds, or has no such directory; if the system
    /// does not let this process mount.
    pub fn new(
        endpoint: Box<dyn Endpoint>,
        server: &Address,
        directory: &Path,
        options: MountOptions,
    ) -> Result<Mounted, MountError> {
        let system = |doing| {
            let path = directory.to_owned();
            move |error| MountError::System { doing, path, error }
        };
        let directory = attach::place(directory).map_err(system("mounting on"))?;
        let pool = Arc::new(Pool::new(options.write_behind));
        let queues = Arc::new(RequestQueues::new(options.write_behind));
        let timer = Arc::new(TimerThread::start().map_err(system("starting a thread for"))?);
        let (jobs, requests) = queue::unbounded();
        let (report, begun) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        let mut config = EngineConfig::default();
        config.patience = PATIENCE;
        config.idle = match options.spin {
            Duration::ZERO => Idle::Sleep,
            spin => Idle::Adaptive(spin),
        };
        let start = {
            let (server, options) = (server.clone(), options.clone());
            let shared = (Arc::clone(&pool), Arc::clone(&queues), timer);
            move |engine: &Engine| {
                let serving = serve(engine.clone(), server, options, shared, requests, report, end);
                engine.spawn(serving);
            }
        };
        let engine = EngineThread::start(endpoint, config, start);
        let engine = engine.map_err(system("starting a thread for"))?;
        begun.recv().map_err(|_| MountError::Engine)??;

        let dispatcher = Dispatcher::new(jobs.clone(), pool, queues, &options);
        let own = attach::attach(&directory, &options).map_err(system("mounting on"))?;
        let (session, unmounter) = match own {
            Some(device) => {
                let config = options.config();
                let session = Session::from_fd(dispatcher, device, config.acl, config);
                let taken = session.inspect_err(|_| drop(attach::detach(&directory)));
                (taken.map_err(system("mounting on"))?, None)
            }
            None => {
                // It may have `fusermount3` mount.
                let session = descriptors::as_before(|| {
                    Session::new(dispatcher, &directory, &options.config())
                });
                let mut session = session.map_err(system("mounting on"))?;
                let unmounter = session.unmount_callable();
                (session, Some(unmounter))
            }
        };
        let notifier = KernelNotifier::start(session.notifier(), &directory);
        let notifier = notifier.map_err(system("starting a thread for"))?;
        let _ = jobs.unbounded_send(Box::new(move |fs| fs.kernel.set_notifier(notifier)));
        let jobs = Some(jobs);
        let (leave, over) = mpsc::channel();
        let run = move || {
            if let Err(error) = session.run() {
                tracing::warn!(%error, "the kernel's requests cannot be taken any more");
            }
            drop(leave);
        };
        let thread = thread::Builder::new().name("petasos-mount".to_owned()).spawn(run);
        let session = Some(thread.map_err(system("starting a thread for"))?);
        read_ahead(&directory, options.read_ahead);
        let id = mounted_on(&directory).ok().flatten();
        let engine = Some(engine);
        let settled = false;
        Ok(Mounted { directory, id, unmounter, session, over, engine, ended, jobs, settled })
    }

    /// Which mount it is; `None` where the system did not show it at its directory when it began.
    #[must_use]
    pub fn id(&self) -> Option<&MountId> {
        self.id.as_ref()
    }

    /// Waits until it is unmounted, here or by another process, so long at most; true if it is.
    pub fn wait(&self, longest: Duration) -> bool {
        self.over.recv_timeout(longest) == Err(RecvTimeoutError::Disconnected)
    }

    /// What it keeps in memory; nothing when it has ended.
    #[must_use]
    pub fn usage(&self) -> MountUsage {
        let (sender, kept) = mpsc::channel();
        let ask = move |fs: &Rc<Fs>| {
            let _ = sender.send(fs.usage());
        };
        if let Some(jobs) = &self.jobs {
            let _ = jobs.unbounded_send(Box::new(ask));
        }
        kept.recv().unwrap_or_default()
    }

    /// Unmounts it; where a program uses it, takes its name away. If that has happened already,
    /// what is on its directory since is left alone.
    ///
    /// # Errors
    /// If the system refuses both.
    pub fn unmount(&mut self) -> Result<Unmounted, MountError> {
        self.settled = true;
        if self.wait(Duration::ZERO) {
            return Ok(Unmounted::Clean);
        }
        // Its name was taken away elsewhere; another mount may have come.
        if self.id.is_some() && mounted_on(&self.directory).is_ok_and(|on| on != self.id) {
            return Ok(Unmounted::Detached);
        }
        let busy = match self.unmount_unused() {
            Ok(()) if self.wait(FAREWELL) => return Ok(Unmounted::Clean),
            // Without the right to unmount, it was detached by a helper.
            Ok(()) => return Ok(Unmounted::Detached),
            Err(busy) => busy,
        };
        tracing::debug!(error = %busy, "detaching");
        let path = self.directory.clone();
        match attach::detach(&self.directory) {
            Ok(()) => Ok(Unmounted::Detached),
            Err(error) => Err(MountError::System { doing: "unmounting", path, error }),
        }
    }

    /// Unmounts it unless a program uses it. The kernel itself may use it for some moments more
    /// after the last program, for what it reads ahead and writes back: so this is tried for a
    /// while.
    fn unmount_unused(&mut self) -> io::Result<()> {
        let until = Instant::now() + UNUSED;
        loop {
            let unmounted = match &mut self.unmounter {
                Some(unmounter) => descriptors::as_before(|| unmounter.unmount()),
                None => rustix::mount::unmount(&self.directory, UnmountFlags::NOFOLLOW)
                    .map_err(io::Error::from),
            };
            match unmounted {
                Err(_) if Instant::now() < until => thread::sleep(UNUSED / 10),
                unmounted => return unmounted,
            }
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.settled
            && let Err(error) = self.unmount()
        {
            tracing::warn!(%error, "still mounted");
        }
        self.jobs.take();
        // After a clean end what was written gets to the server, and the session ends with a
        // goodbye.
        if self.wait(Duration::ZERO) {
            if let Some(session) = self.session.take() {
                let _ = session.join();
            }
            let _ = self.ended.recv_timeout(FAREWELL);
        }
        // Requests that are still to come fail.
        self.engine.take();
    }
}

/// Lives on the engine's thread: connects, then does requests until there are no more.
async fn serve(
    engine: Engine,
    server: Address,
    options: MountOptions,
    shared: (Arc<Pool>, Arc<RequestQueues>, Arc<TimerThread>),
    mut requests: queue::UnboundedReceiver<Job>,
    report: Sender<Result<(), MountError>>,
    end: Sender<()>,
) {
    let begun = begin(&engine, &server, &options).await;
    let (connection, root) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            let _ = report.send(Err(error));
            return;
        }
    };
    let fs = Fs::new(engine, options, connection, shared, root);
    let _ = report.send(Ok(()));
    while let Some(job) = requests.next().await {
        job(&fs);
    }
    fs.tasks.quiet().await;
    fs.close_all();
    if let Some(remote) = fs.connection.current() {
        let _ = remote.disconnect().await;
    }
    drop(end);
}

async fn begin(
    engine: &Engine,
    server: &Address,
    options: &MountOptions,
) -> Result<(Connection, Attr), MountError> {
    let mut connect = ConnectOptions::default().timeout(options.timeout);
    connect.patience = Some(PATIENCE);
    connect.directories = true;
    connect.name = format!("mount, process {}", std::process::id());
    let connection = Connection::connect(engine, server, connect).await?;
    let remote = connection.current().expect("it has just connected");
    let root = remote.stat(&options.path, true).await?;
    if root.kind != Kind::Directory {
        return Err(MountError::NoDirectory(options.path.to_string()));
    }
    Ok((connection, root))
}

/// Has the kernel read ahead more than by default, which only root may ask for.
fn read_ahead(directory: &Path, bytes: usize) {
    let Some((major, minor)) = refresh::device(directory) else { return };
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    if let Err(error) = std::fs::write(&path, format!("{}\n", bytes >> 10)) {
        tracing::debug!(path, %error, "the system reads ahead as much as it likes");
    }
}
