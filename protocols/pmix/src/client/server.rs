//! The server of a process's requests: the daemon of its node, or the server of another launcher.

use super::{
    JobError, PATIENCE,
    connection::{Connection, Item},
    pmi1, pmix,
};
use crate::message::{Answer, Request};
use std::time::Duration;

/// The server at the other end.
pub(super) enum Server {
    /// A daemon of ours.
    Native(Connection),
    /// A PMIx server.
    Pmix(Connection),
    /// A launcher that speaks PMI-1.
    Pmi1(pmi1::Client),
}

impl Server {
    /// Sends a request, and waits for the answer. After `patience` the server counts as silent.
    pub(super) fn call(&self, what: Request, patience: Duration) -> Result<Answer, JobError> {
        match self {
            Server::Native(connection) => connection.call(what, patience),
            Server::Pmix(connection) => match what {
                Request::Get { proc, key, timeout, immediate, wait } => {
                    let call = |what| connection.call(what, patience);
                    let timeout = timeout.unwrap_or(PATIENCE);
                    pmix::get(call, proc, key, timeout, immediate, wait)
                }
                what => connection.call(what, patience),
            },
            Server::Pmi1(client) => client.call(what, patience),
        }
    }

    /// Whether it is the server of another launcher.
    pub(super) fn is_foreign(&self) -> bool {
        !matches!(self, Server::Native(_))
    }

    /// The next input of the thread that runs handlers; `None`: there is no connection any more.
    pub(super) fn next_item(&self) -> Option<Item> {
        match self {
            Server::Native(connection) | Server::Pmix(connection) => connection.next_item(),
            Server::Pmi1(_) => None,
        }
    }

    /// Queues input for that thread.
    pub(super) fn queue_item(&self, item: Item) {
        match self {
            Server::Native(connection) | Server::Pmix(connection) => connection.queue_item(item),
            Server::Pmi1(_) => {}
        }
    }

    /// Closes the connection, and wakes waiting threads.
    pub(super) fn close(&self) {
        match self {
            Server::Native(connection) | Server::Pmix(connection) => connection.close(),
            Server::Pmi1(client) => client.close(),
        }
    }
}
