//! The connection to the server: a session, and the next one when it was lost.

use crate::client::{ConnectOptions, Remote, RemoteError};
use futures_channel::oneshot;
use petasos::{CallError, Engine, fabric::Address};
use rustix::io::Errno;
use std::{
    cell::RefCell,
    time::{Duration, Instant},
};

/// After a failure to connect, what is asked for fails at once for so long.
const PAUSE: Duration = Duration::from_millis(500);

/// A server, and the session with it while there is one.
pub(super) struct Connection {
    engine: Engine,
    address: Address,
    options: ConnectOptions,
    state: RefCell<State>,
}

#[derive(Default)]
struct State {
    remote: Option<Remote>,
    failed: Option<Instant>,
    /// Those that wait while another one connects.
    connecting: Option<Vec<oneshot::Sender<()>>>,
}

/// Held by the request that connects. When it is dropped, also because that request is given up,
/// the waiting requests check again, and the first of them connects.
struct ConnectGuard<'a>(&'a RefCell<State>);

impl Drop for ConnectGuard<'_> {
    fn drop(&mut self) {
        let waiting = self.0.borrow_mut().connecting.take();
        drop(waiting);
    }
}

impl Connection {
    /// Connects for the first time.
    pub(super) async fn connect(
        engine: &Engine,
        address: &Address,
        options: ConnectOptions,
    ) -> Result<Connection, RemoteError> {
        let remote = Remote::connect(engine, address, options.clone()).await?;
        let state = State { remote: Some(remote), ..State::default() };
        let (engine, address) = (engine.clone(), address.clone());
        Ok(Connection { engine, address, options, state: RefCell::new(state) })
    }

    /// The session; begins one if there is none. `ENOTCONN` if that is not possible now.
    pub(super) async fn remote(&self) -> Result<Remote, Errno> {
        loop {
            let connecting = {
                let state = &mut *self.state.borrow_mut();
                if let Some(remote) = &state.remote {
                    match remote.ended() {
                        None => return Ok(remote.clone()),
                        Some(reason) => {
                            tracing::warn!(server = %self.address, reason, "the session has ended");
                            state.remote = None;
                        }
                    }
                }
                if state.failed.is_some_and(|at| at.elapsed() < PAUSE) {
                    return Err(Errno::NOTCONN);
                }
                match &mut state.connecting {
                    Some(waiting) => {
                        let (sender, done) = oneshot::channel();
                        waiting.push(sender);
                        Some(done)
                    }
                    None => {
                        state.connecting = Some(Vec::new());
                        None
                    }
                }
            };
            if let Some(done) = connecting {
                let _ = done.await;
                continue;
            }
            let ours = ConnectGuard(&self.state);
            let connected =
                Remote::connect(&self.engine, &self.address, self.options.clone()).await;
            drop(ours);
            let state = &mut *self.state.borrow_mut();
            match connected {
                Ok(remote) => {
                    tracing::info!(server = %self.address, "connected again");
                    state.failed = None;
                    state.remote = Some(remote.clone());
                    return Ok(remote);
                }
                Err(error) => {
                    tracing::warn!(server = %self.address, %error, "cannot connect");
                    state.failed = Some(Instant::now());
                    return Err(Errno::NOTCONN);
                }
            }
        }
    }

    /// The session as it is, whether it has ended or not.
    pub(super) fn current(&self) -> Option<Remote> {
        self.state.borrow().remote.clone()
    }

    /// The number for an error of `remote`, and whether the session is lost with it.
    pub(super) fn failure(&self, remote: &Remote, error: &RemoteError) -> (Errno, bool) {
        match error {
            RemoteError::Call(CallError::Deadline { .. }) => (Errno::IO, false),
            error if error.is_lost() => {
                self.lose(remote);
                (Errno::NOTCONN, true)
            }
            error => (error.errno(), false),
        }
    }

    fn lose(&self, remote: &Remote) {
        let state = &mut *self.state.borrow_mut();
        // It may be that of a file of an earlier session.
        if state.remote.as_ref().is_some_and(|current| current.is_same(remote)) {
            state.remote = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        server::{Server, ServerConfig},
        storage::Local,
        timer::TimerThread,
    };
    use futures_util::{
        FutureExt,
        future::{Either, select},
    };
    use petasos::{EngineConfig, OpenOptions};
    use std::{pin::pin, sync::Arc};

    #[test]
    fn after_a_request_that_is_given_up_the_next_one_connects() {
        let directory = tempfile::tempdir().unwrap();
        let storage = Arc::new(Local::open(directory.path()).unwrap());
        let options = OpenOptions::default();
        let config = ServerConfig::default();
        let server = Server::listen(storage, &["self://*"], &options, config).unwrap();
        let endpoint = petasos::open("self://*", &options).unwrap();
        let engine = Engine::new(endpoint, EngineConfig::default());
        let (address, timer) = (&server.addresses()[0], TimerThread::start().unwrap());
        engine.block_on(async {
            let connect = ConnectOptions::default();
            let connection = Connection::connect(&engine, address, connect).await.unwrap();
            let lost = connection.current().unwrap();
            connection.lose(&lost);
            let mut first = Box::pin(connection.remote());
            let mut second = pin!(connection.remote());
            assert!(first.as_mut().now_or_never().is_none(), "it connects");
            assert!(second.as_mut().now_or_never().is_none(), "it waits for the first");
            drop(first);
            let patience = pin!(timer.sleep(Duration::from_secs(20)));
            match select(second, patience).await {
                Either::Left((remote, _)) => assert!(!remote.unwrap().is_same(&lost)),
                Either::Right(_) => panic!("it waits for a request that was given up"),
            }
            assert!(connection.remote().await.is_ok());
        });
    }
}
