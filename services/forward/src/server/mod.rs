//! The server: many clients, one storage.
//!
//! Each endpoint has an engine and its thread; what they share is the core: the sessions, the
//! locks, the memory, and the threads that work on files. A call is a future on an engine's thread.
//! What blocks, it hands to those threads, which serve clients by deficit round robin; what it
//! moves, it moves block by block, so that network and disk work at the same time, in bounded
//! memory.
//!
//! Whatever a call waits for, its future may be dropped there, because the caller is lost. What it
//! held is free then; work that a thread has begun for it ends, and the result is dropped.

mod blocks;
mod budget;
mod bulk;
mod call;
mod config;
mod core;
mod counters;
mod descriptors;
mod errors;
mod fair_share;
mod files;
mod gather;
mod hashing;
mod io;
mod latencies;
mod leases;
mod locking;
mod locks;
mod log_limit;
mod names;
mod penalty;
mod pool;
mod rate;
mod round_robin;
mod service;
mod session;
mod sessions;
mod tickets;
mod whole;
mod workers;

use crate::{
    protocol::{Forward, Status},
    storage::Storage,
};
pub use config::{Limits, ServerConfig};
use petasos::{
    Engine, EngineConfig, EngineHandle, EngineThread, OpenError, OpenOptions,
    fabric::{Address, Endpoint},
};
use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long the end of a server waits for its last answers to leave.
const PARTING: Duration = Duration::from_secs(2);

/// The largest arguments of a call: data, and paths.
const ARGUMENTS: u64 = config::INLINE + (64 << 10);

/// Calls of a caller beyond those of a session that are served: most of them wait for locks.
const WAITING: usize = 1024;

/// Serves a storage until it is dropped.
///
/// Dropping it ends all sessions: files are closed, locks are free. It waits for work on files that
/// has begun, and for two seconds at most until the last answers have left.
///
/// ```
/// use petasos::OpenOptions;
/// use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
/// use std::sync::Arc;
///
/// # let folder = tempfile::tempdir()?;
/// let storage = Arc::new(Local::open(folder.path())?);
/// let config = ServerConfig::default();
/// let server = Server::listen(storage, &["self://*"], &OpenOptions::default(), config)?;
/// // What clients connect to.
/// println!("{}", server.addresses()[0]);
/// assert_eq!(server.status().sessions.len(), 0);
/// drop(server);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Server {
    core: Arc<core::Core>,
    engines: Vec<EngineThread>,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// An endpoint could not be opened.
    #[error("cannot listen at {url}: {reason}")]
    Open {
        /// Where.
        url: String,
        /// Why not.
        reason: OpenError,
    },
    /// Nowhere to listen.
    #[error("a server listens at one address at least")]
    NoEndpoint,
    /// The system gave no thread.
    #[error("a thread could not be started: {0}")]
    Thread(#[from] std::io::Error),
}

impl Server {
    /// Serves `storage` at these URLs.
    ///
    /// # Errors
    /// [`StartError::Open`] if an endpoint cannot be opened, [`StartError::NoEndpoint`] without any
    /// URL, [`StartError::Thread`] if the system gives no thread.
    pub fn listen<U: AsRef<str>>(
        storage: Arc<dyn Storage>,
        urls: &[U],
        options: &OpenOptions,
        config: ServerConfig,
    ) -> Result<Server, StartError> {
        let open = |url: &U| {
            let url = url.as_ref();
            petasos::open(url, options)
                .map_err(|reason| StartError::Open { url: url.to_owned(), reason })
        };
        let endpoints = urls.iter().map(open).collect::<Result<_, _>>()?;
        Server::start(storage, endpoints, config)
    }

    /// Serves `storage` at endpoints that are open already.
    ///
    /// # Errors
    /// [`StartError::NoEndpoint`] without any, [`StartError::Thread`] if the system gives no
    /// thread.
    pub fn start(
        storage: Arc<dyn Storage>,
        endpoints: Vec<Box<dyn Endpoint>>,
        config: ServerConfig,
    ) -> Result<Server, StartError> {
        let mut engine = EngineConfig::default();
        // No more than files need.
        engine.calls_per_peer = 1;
        engine.max_body = ARGUMENTS;
        Server::start_with(storage, endpoints, config, engine, |_| {})
    }

    /// The same by engines with these settings, which may serve other things as well: `more` is
    /// called with each of them, on its thread, before it takes a call. Limits of the engines that
    /// are too small for a server of files are raised.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start_with(
        storage: Arc<dyn Storage>,
        endpoints: Vec<Box<dyn Endpoint>>,
        config: ServerConfig,
        mut engine: EngineConfig,
        more: impl Fn(&Engine) + Clone + Send + 'static,
    ) -> Result<Server, StartError> {
        if endpoints.is_empty() {
            return Err(StartError::NoEndpoint);
        }
        let calls = config.limits.calls_per_session.saturating_mul(2).saturating_add(WAITING);
        let calls = u16::try_from(calls).unwrap_or(u16::MAX);
        engine.calls_per_peer = engine.calls_per_peer.max(calls);
        engine.max_body = engine.max_body.max(ARGUMENTS);
        let core = core::Core::start(storage, config)?;
        let mut server = Server { core, engines: Vec::new() };
        for endpoint in endpoints {
            let service = service::Service { core: Arc::clone(&server.core) };
            let more = more.clone();
            let thread = EngineThread::start(endpoint, engine.clone(), move |engine| {
                service.serve(engine, 0).expect("nothing else is served by a new engine");
                more(engine);
            })?;
            server.engines.push(thread);
        }
        Ok(server)
    }

    /// Where clients reach it.
    #[must_use]
    pub fn addresses(&self) -> Vec<Address> {
        self.engines.iter().map(|engine| engine.handle().address().clone()).collect()
    }

    /// Its engines, for their counters.
    #[must_use]
    pub fn engines(&self) -> Vec<EngineHandle> {
        self.engines.iter().map(|engine| engine.handle().clone()).collect()
    }

    /// What it does, and for which clients. Does not wait for anything.
    #[must_use]
    pub fn status(&self) -> Status {
        self.core.status()
    }

    /// Ends it: sessions end, files are closed. The same as dropping it.
    pub fn stop(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        self.core.stop();
        let until = Instant::now() + PARTING;
        for engine in &self.engines {
            let busy =
                || engine.handle().run(|engine| async move { engine.usage().serving }).wait();
            while busy().is_ok_and(|calls| calls > 0) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.engines.clear();
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({:?} at {:?})", self.core, self.addresses())
    }
}
