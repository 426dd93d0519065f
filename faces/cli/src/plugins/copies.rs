//! Files to the nodes of a job, by our own transfers: each daemon exports its directory for as long
//! as files come, at an address of its own that asks for a secret of the job, and the launcher puts
//! them there.

use super::{Moving, rate};
use crate::{output, progress::Progress as Bar};
use futures_util::future::{Either, select};
use petasos::{Engine, EngineConfig, OpenOptions, SecretBytes, fabric::Address};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, RemoteError},
    protocol::Creation,
    server::{Server, ServerConfig},
    storage::Local,
    transfer::{self, Cause, Connection, Options, Progress},
};
use petasos_launch::{
    Estimate, FileMover, FileToStage, Files, Key, NotPlaced, Placing, Receiving, Target,
};
use rustix::io::Errno;
use std::{
    net::{IpAddr, SocketAddr},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    pin::pin,
    rc::Rc,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Hosts that get files at a time: a few fill the network of this one.
const HOSTS: usize = 8;
/// Files on the way to a host at a time.
const PARALLEL: usize = 16;
/// Data on the way to a host, in bytes.
const MEMORY: u64 = 32 << 20;
/// How long one step may take: a piece of a file, on a slow disk.
const PATIENCE: Duration = Duration::from_secs(30);
/// Threads that write at a host.
const THREADS: usize = 4;
/// Bytes a second that copies make, whatever the network, and what each file takes beside its
/// bytes: for estimates, and a little worse than what two cores were seen to do.
const COPY: f64 = 1e9;
const FILE: Duration = Duration::from_micros(100);
/// No progress is shown of what is over so soon.
const SOON: Duration = Duration::from_secs(1);
/// How long the launcher looks away from the copies.
const LOOK: Duration = Duration::from_millis(50);

/// The mover.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copies {
    moving: Moving,
}

impl Copies {
    pub(super) fn new(moving: Moving) -> Copies {
        Copies { moving }
    }
}

fn secret(key: &Key) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.secret = Some(SecretBytes::new(key.0));
    options
}

impl FileMover for Copies {
    fn name(&self) -> &str {
        "copies"
    }

    fn estimate(&self, files: &Files, others: u32, here: bool) -> Estimate {
        let (bits, mut basis) = rate::of_network();
        let mut rate = bits as f64 / 8.0;
        if let Some(limit) = self.moving.rate {
            let all = limit as f64 * f64::from(others.clamp(1, HOSTS as u32));
            if all < rate {
                rate = all;
                basis = format!("{}/s to each host", output::size(limit));
            }
        }
        let bytes = files.bytes() as f64;
        let mut seconds = bytes * f64::from(others) / rate.min(COPY);
        let rounds = others.div_ceil(HOSTS as u32) + u32::from(here);
        if here {
            seconds += bytes / self.moving.rate.map_or(COPY, |limit| (limit as f64).min(COPY));
        }
        let each = FILE * u32::try_from(files.count()).unwrap_or(u32::MAX);
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let time = time.saturating_add(each.saturating_mul(rounds));
        if others == 0 {
            basis = "copies on this host".to_owned();
        }
        Estimate { time, basis }
    }

    fn receive(&self, into: &Path, at: Option<IpAddr>, key: &Key) -> Result<Receiving, String> {
        let url = match at {
            Some(address) => format!("tcp://{}", SocketAddr::new(address, 0)),
            None => "self://*".to_owned(),
        };
        let storage = Local::open(into).map_err(|error| format!("{}: {error}", into.display()))?;
        let mut config = ServerConfig::default();
        config.threads = THREADS;
        let options = if at.is_some() { secret(key) } else { OpenOptions::default() };
        let server = Server::listen(Arc::new(storage), &[url], &options, config);
        let server = server.map_err(|error| error.to_string())?;
        let address =
            server.addresses().first().map(|address| address.as_str().as_bytes().to_vec());
        Ok(Receiving::new(address.unwrap_or_default(), Done(Some(server), into.to_owned())))
    }

    fn place(&self, placing: &Placing) -> Result<(), NotPlaced> {
        let progress: Vec<Arc<Progress>> =
            placing.targets.iter().map(|_| Progress::new()).collect();
        let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
        let fail = |target: &Target, file: PathBuf, why: String| {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(NotPlaced { host: target.host.clone(), file, why });
            // The others need not go on.
            placing.stop();
        };
        let work = || {
            while !placing.is_stopped() {
                let at = next.fetch_add(1, Relaxed);
                let (Some(target), Some(progress)) = (placing.targets.get(at), progress.get(at))
                else {
                    return;
                };
                match self.to(target, placing, progress) {
                    Ok(()) => placing.done(target.node),
                    Err((file, why)) => fail(target, file, why),
                }
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> = (0..placing.targets.len().min(HOSTS))
                .map(|_| thread::Builder::new().name("copies".to_owned()).spawn_scoped(scope, work))
                .collect();
            // Those that there are do the work of all.
            if let (Some(Err(error)), Some(target)) = (workers.first(), placing.targets.first()) {
                return fail(target, PathBuf::from("."), format!("starting a thread: {error}"));
            }
            let ended = || workers.iter().flatten().all(thread::ScopedJoinHandle::is_finished);
            self.watch(placing, &progress, ended);
        });
        failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }
}

/// Takes files until it is dropped; then only they are there.
struct Done(Option<Server>, PathBuf);

impl Drop for Done {
    fn drop(&mut self) {
        self.0 = None;
        // What is not complete: of a copy that was given up.
        let _ = std::fs::remove_dir_all(self.1.join(RelPath::RESERVED));
    }
}

impl Copies {
    /// Brings all to one host.
    fn to(
        &self,
        target: &Target,
        placing: &Placing,
        progress: &Arc<Progress>,
    ) -> Result<(), (PathBuf, String)> {
        let entries = placing.files.entries();
        let Some(first) = entries.first() else { return Ok(()) };
        placing.begins(target.node, first.source());
        let at_first = |why: String| (first.source().to_owned(), why);
        let text = String::from_utf8_lossy(&target.address);
        let address = Address::parse(&text).map_err(|error| at_first(error.to_string()))?;
        let within = address.scheme() == "self";
        let (own, options) = match within {
            true => ("self://*", OpenOptions::default()),
            false if text.contains("//[") => ("tcp://[::]:0", secret(&placing.key)),
            false => ("tcp://0.0.0.0:0", secret(&placing.key)),
        };
        let endpoint = petasos::open(own, &options).map_err(|error| at_first(error.to_string()))?;
        let engine = Engine::new(endpoint, EngineConfig::default());
        let work = self.send(&engine, &address, target, placing, progress);
        engine.block_on(async {
            match select(pin!(work), pin!(placing.stopped())).await {
                Either::Left((sent, _)) => sent,
                // The code that stopped it knows why.
                Either::Right(_) => Ok(()),
            }
        })
    }

    async fn send(
        &self,
        engine: &Engine,
        address: &Address,
        target: &Target,
        placing: &Placing,
        progress: &Arc<Progress>,
    ) -> Result<(), (PathBuf, String)> {
        let entries = placing.files.entries();
        let at = |entry: &FileToStage| entry.source().to_owned();
        let connecting = ConnectOptions::default().name("petasos run").timeout(PATIENCE);
        let connection = Connection::connect(engine, address, connecting, Duration::ZERO).await;
        let first = entries.first().map_or_else(PathBuf::new, at);
        let connection = Rc::new(connection.map_err(|error| (first, why(&error.into())))?);
        let mut options = Options::default();
        (options.parallel, options.memory, options.resume) = (PARALLEL, MEMORY, false);
        options.rate = self.moving.rate;
        for entry in entries {
            placing.begins(target.node, entry.source());
            let to = RelPath::parse(entry.name().as_os_str().as_bytes());
            let to = to.map_err(|error| (at(entry), error.to_string()))?;
            let made = directories(&connection, &to).await;
            made.map_err(|error| (at(entry), why(&error.into())))?;
            let sources = [(entry.source().to_owned(), to)];
            let report =
                transfer::put(&connection, &sources, &options, progress, Box::new(|_| ())).await;
            let report = report.map_err(|cause| (at(entry), why(&cause)))?;
            if let Some(problem) = report.problems.first() {
                let path = PathBuf::from(std::ffi::OsStr::from_bytes(&problem.path));
                return Err((path, why(&problem.cause)));
            }
        }
        if let Ok(connection) = Rc::try_unwrap(connection) {
            connection.disconnect().await;
        }
        Ok(())
    }

    /// Shows how far the copies are, until they have ended.
    fn watch(&self, placing: &Placing, progress: &[Arc<Progress>], ended: impl Fn() -> bool) {
        let total = placing.files.bytes() * placing.targets.len() as u64;
        let begun = Instant::now();
        let (mut bar, mut shown) = (None, 0);
        while !ended() {
            thread::sleep(LOOK.min(begun.elapsed() / 8 + Duration::from_millis(1)));
            if self.moving.quiet || begun.elapsed() < SOON {
                continue;
            }
            let hosts = output::count(placing.targets.len() as u64, "host", "hosts");
            let bar = bar.get_or_insert_with(|| Bar::bytes(total, format!("files to {hosts}")));
            let now: u64 = progress.iter().map(|one| one.snapshot().bytes).sum();
            bar.add(now.saturating_sub(shown));
            shown = now;
        }
    }
}

/// Makes the directories above a name.
async fn directories(connection: &Connection, to: &RelPath) -> Result<(), RemoteError> {
    let mut above = Vec::new();
    let mut at = to.split().map(|(parent, _)| parent);
    while let Some(path) = at.filter(|path| !path.is_root()) {
        at = path.split().map(|(parent, _)| parent);
        above.push(path);
    }
    for path in above.iter().rev() {
        match connection.remote().make_dir(path, Creation { mode: 0o700, owner: None }).await {
            Err(error) if error.errno() == Errno::EXIST => {}
            made => drop(made?),
        }
    }
    Ok(())
}

/// Why, without what the user knows already.
fn why(cause: &Cause) -> String {
    match cause {
        Cause::Remote(RemoteError::Refused { error, .. }) => error.to_string(),
        cause => cause.to_string(),
    }
}
