//! A session for one command.

use crate::{
    cli::forward::ServerAccess,
    client,
    exit::{Code, Failure, Outcome},
    waiting::Waiting,
};
use petasos::{Engine, fabric::Address};
use petasos_forward::client::{ConnectOptions, Remote};
use std::time::Duration;

/// How long a server is waited for that is not there: it may be about to start.
const PATIENCE: Duration = Duration::from_secs(3);

/// An engine that can reach the server at `url`.
pub(super) fn engine(url: &Address, access: &ServerAccess) -> Outcome<Engine> {
    engine_within(url, access, PATIENCE)
}

/// The same, which looks for the server for so long at most.
pub(super) fn engine_within(
    url: &Address,
    access: &ServerAccess,
    most: Duration,
) -> Outcome<Engine> {
    if url.scheme() == "self" {
        let text = format!("{url}: self:// reaches no other process");
        return Err(Failure::new(Code::Usage, text).advise("the URL that the server prints"));
    }
    let secret = access.secret.as_deref();
    // Shorter than an operation may take: that no server is there is said before time is over.
    let patience = PATIENCE.min(access.timeout * 3 / 4).min(most);
    client::engine(url, secret, Waiting::Adaptive, patience)
}

/// What the server is told of this command.
pub(super) fn connecting(what: &str, access: &ServerAccess) -> ConnectOptions {
    let name = format!("petasos forward {what}, process {}", std::process::id());
    ConnectOptions::default().name(name).timeout(access.timeout)
}

/// Connects, works, and says good-bye.
pub(super) fn with<T>(
    what: &str,
    url: &Address,
    access: &ServerAccess,
    work: impl AsyncFnOnce(&Remote) -> Outcome<T>,
) -> Outcome<T> {
    let engine = engine(url, access)?;
    engine.block_on(async {
        let remote = Remote::connect(&engine, url, connecting(what, access)).await?;
        let done = work(&remote).await;
        // A session that has ended meanwhile has nothing to say good-bye to.
        let _ = remote.disconnect().await;
        done
    })
}
