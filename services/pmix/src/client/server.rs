//! What answers a process's requests: the daemon of its node, or what another launcher has in its
//! place.

use super::{
    JobError, PATIENCE,
    link::{Item, Link},
    pmi1, pmix,
};
use crate::message::{Answer, Request};
use std::time::Duration;

/// The other end.
pub(super) enum Server {
    /// A daemon of ours.
    Native(Link),
    /// A PMIx server.
    Pmix(Link),
    /// A launcher that speaks PMI-1.
    Pmi1(pmi1::Client),
}

impl Server {
    /// Asks, and waits for the answer; the other side is declared lost after `patience`.
    pub(super) fn call(&self, what: Request, patience: Duration) -> Result<Answer, JobError> {
        match self {
            Server::Native(link) => link.call(what, patience),
            Server::Pmix(link) => match what {
                Request::Get { proc, key, timeout, immediate, wait } => {
                    let call = |what| link.call(what, patience);
                    let timeout = timeout.unwrap_or(PATIENCE);
                    pmix::get(call, proc, key, timeout, immediate, wait)
                }
                what => link.call(what, patience),
            },
            Server::Pmi1(client) => client.call(what, patience),
        }
    }

    /// Whether it is not a daemon of ours.
    pub(super) fn is_foreign(&self) -> bool {
        !matches!(self, Server::Native(_))
    }

    /// The next thing for the thread that runs handlers; `None`: there is no connection any more.
    pub(super) fn next_item(&self) -> Option<Item> {
        match self {
            Server::Native(link) | Server::Pmix(link) => link.next_item(),
            Server::Pmi1(_) => None,
        }
    }

    /// Puts something in line for that thread.
    pub(super) fn put_item(&self, item: Item) {
        match self {
            Server::Native(link) | Server::Pmix(link) => link.put_item(item),
            Server::Pmi1(_) => {}
        }
    }

    /// Ends: waiting threads are told.
    pub(super) fn close(&self) {
        match self {
            Server::Native(link) | Server::Pmix(link) => link.close(),
            Server::Pmi1(client) => client.close(),
        }
    }
}
