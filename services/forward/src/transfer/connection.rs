//! A connection to a server that is made again when it was lost.

use super::{disk::pause, tasks::Budget};
use crate::{
    RelPath,
    client::{ConnectOptions, Remote, RemoteError},
    protocol::Attr,
};
use petasos::{
    CallError, Engine,
    fabric::{Address, LostReason},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::{Duration, Instant},
};

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// A server that is connected is not given up for less silence, nor a first connection for less
/// time: the machine may be busy.
const SHORTEST: Duration = Duration::from_secs(1);

/// An operation that loses its session so often is given up: it may be what ends the server.
const TRIES: u32 = 8;

/// A session, and the next one after it. Belongs to its engine's thread.
///
/// Dropping it ends the session, without waiting for the server; [`Connection::disconnect`] waits.
///
/// ```
/// use petasos_forward::{RelPath, client::ConnectOptions, transfer::Connection};
/// use std::time::Duration;
///
/// # use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
/// # use petasos::{Engine, EngineConfig, OpenOptions};
/// # use std::sync::Arc;
/// # let folder = tempfile::tempdir()?;
/// # let storage = Arc::new(Local::open(folder.path())?);
/// # let server =
/// #     Server::listen(storage, &["self://*"], &OpenOptions::default(), ServerConfig::default())?;
/// # let address = &server.addresses()[0];
/// # let endpoint = petasos::open("self://*", &OpenOptions::default())?;
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// engine.block_on(async {
///     // A server that goes away may take half a minute to come back.
///     let retry = Duration::from_secs(30);
///     let options = ConnectOptions::default().name("backup");
///     let connection = Connection::connect(&engine, address, options, retry).await?;
///     assert!(connection.stat(&RelPath::root(), true).await.is_ok());
///     assert_eq!(connection.reconnected(), 0);
///     connection.disconnect().await;
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Connection {
    engine: Engine,
    address: Address,
    options: ConnectOptions,
    retry: Duration,
    remote: RefCell<Remote>,
    /// Which session it is: the first, the second.
    number: Cell<u64>,
    /// Since when there is no server, as long as there was none since.
    lost: Cell<Option<Instant>>,
    /// Why there will be none any more.
    failure: RefCell<Option<RemoteError>>,
    one: Rc<Budget>,
}

impl Connection {
    /// Connects, within `retry`, a second, or [`ConnectOptions::patience`], whichever is longest.
    /// When the server goes away later, it is tried for as long as `retry` to connect again:
    /// counted once for all that uses this connection, from the moment from which the server was
    /// not heard of. A server that is connected but sends nothing for so long (a second at least)
    /// is lost as well. Each time that it answers again, the time begins anew.
    ///
    /// After that everything fails at once, with the same error.
    ///
    /// Dropping the future gives up; a session that the server has begun ends.
    ///
    /// # Errors
    /// If there is no server within that time, it has another version, or it has no room for
    /// another client.
    pub async fn connect(
        engine: &Engine,
        address: &Address,
        mut options: ConnectOptions,
        retry: Duration,
    ) -> Result<Connection, RemoteError> {
        let longest = retry.max(SHORTEST);
        options.silence.get_or_insert(longest);
        let end = Instant::now() + longest.max(options.patience.unwrap_or_default());
        let remote = loop {
            match connect_until(engine, address, &options, end).await {
                // One that is there, and ends this very moment, is like one that ends later.
                Err(error) if went_away(&error) && Instant::now() < end => pause(PAUSE).await,
                connected => break connected?,
            }
        };
        Ok(Connection {
            engine: engine.clone(),
            address: address.clone(),
            options,
            retry,
            remote: RefCell::new(remote),
            number: Cell::new(0),
            lost: Cell::default(),
            failure: RefCell::default(),
            one: Budget::new(1),
        })
    }

    /// The session as it is now.
    #[must_use]
    pub fn remote(&self) -> Remote {
        self.remote.borrow().clone()
    }

    /// The attributes of a path, in this session or the next one.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`Remote::stat`].
    pub async fn stat(&self, path: &RelPath, follow: bool) -> Result<Attr, RemoteError> {
        self.with(async |remote| remote.stat(path, follow).await).await
    }

    /// How often it was connected again.
    #[must_use]
    pub fn reconnected(&self) -> u64 {
        self.number.get()
    }

    /// Why there is no server any more, and will not be looked for.
    #[must_use]
    pub fn failure(&self) -> Option<RemoteError> {
        self.failure.borrow().clone()
    }

    /// Whether the server was lost for good.
    pub(super) fn is_over(&self) -> bool {
        self.failure.borrow().is_some()
    }

    /// Ends the session, and waits until the server has closed what was open.
    ///
    /// Dropping the future leaves the rest to the server, which notices the end of the session.
    pub async fn disconnect(self) {
        // A session that has ended meanwhile needs none.
        let _ = self.remote.into_inner().disconnect().await;
    }

    /// Does something that may be done twice: again in the next session where one ended.
    pub(super) async fn with<T>(
        &self,
        operation: impl AsyncFn(Remote) -> Result<T, RemoteError>,
    ) -> Result<T, RemoteError> {
        let mut tries = 0;
        loop {
            if let Some(failure) = self.failure() {
                return Err(failure);
            }
            let (number, remote) = (self.number.get(), self.remote());
            match operation(remote).await {
                Err(error) if worth_another(&error) && tries < TRIES => {
                    tries += 1;
                    match error {
                        RemoteError::Call(CallError::Busy { retry_after, .. }) => {
                            pause(retry_after.min(Duration::from_secs(1))).await;
                        }
                        error => self.again(number, error).await?,
                    }
                }
                done => return done,
            }
        }
    }

    /// Connects again, unless that was done since the session of this number.
    async fn again(&self, number: u64, error: RemoteError) -> Result<(), RemoteError> {
        let _one_at_a_time = self.one.take(1).await;
        if self.number.get() != number {
            return Ok(());
        }
        if let Some(failure) = self.failure() {
            return Err(failure);
        }
        let remote = self.remote();
        let known = self.lost.get().filter(|_| !remote.has_answered());
        let now = Instant::now();
        let since = known.or(now.checked_sub(remote.silent_for())).unwrap_or(now);
        self.lost.set(Some(since));
        let end = since + self.retry;
        let mut last = error;
        while Instant::now() < end {
            match connect_until(&self.engine, &self.address, &self.options, end).await {
                Ok(remote) => {
                    self.remote.replace(remote);
                    self.number.set(number + 1);
                    return Ok(());
                }
                Err(error) if worth_another(&error) => last = error,
                Err(error) => {
                    last = error;
                    break;
                }
            }
            pause(PAUSE).await;
        }
        let failure = self.give_up(last);
        self.failure.replace(Some(failure.clone()));
        Err(failure)
    }

    /// What all that is still to be done fails with.
    fn give_up(&self, last: RemoteError) -> RemoteError {
        if !worth_another(&last) {
            return last;
        }
        let last = match last {
            RemoteError::Ended { reason, .. } => reason,
            last => last.to_string(),
        };
        let reason = match self.retry {
            Duration::ZERO => last,
            retry => format!("it was lost, and not there again within {retry:?}: {last}"),
        };
        RemoteError::Ended { peer: self.address.to_string(), reason }
    }
}

/// Connects, or gives up when the time is over.
async fn connect_until(
    engine: &Engine,
    address: &Address,
    options: &ConnectOptions,
    end: Instant,
) -> Result<Remote, RemoteError> {
    let mut options = options.clone();
    let left = end.saturating_duration_since(Instant::now()).max(PAUSE);
    options.patience = Some(options.patience.unwrap_or(options.timeout).min(left));
    Remote::connect(engine, address, options).await
}

/// The server was there.
fn went_away(error: &RemoteError) -> bool {
    match error {
        RemoteError::Call(CallError::PeerLost { reason, .. }) => {
            !matches!(reason, LostReason::Refused(_) | LostReason::Unreachable(..))
        }
        RemoteError::Call(CallError::Deadline { .. }) => false,
        error => error.is_lost(),
    }
}

fn worth_another(error: &RemoteError) -> bool {
    match error {
        RemoteError::Call(CallError::PeerLost { reason: LostReason::Refused(_), .. }) => false,
        RemoteError::Call(CallError::Busy { .. }) => true,
        error => error.is_lost(),
    }
}
