//! Arrays that were given away with a result: the engine keeps them until their reader is done.

use crate::{Elapsed, Engine, inner::Inner, memory::Exported};
use bytes::Bytes;
use futures_channel::oneshot;
use petasos_fabric::Peer;
use std::{cell::RefCell, collections::HashMap, rc::Rc, time::Duration};

/// Those that are kept, by key.
#[derive(Debug, Default)]
pub(crate) struct Given(RefCell<HashMap<Bytes, Kept>>);

/// One of them. It is let go when this is dropped.
#[derive(Debug)]
struct Kept {
    reader: Peer,
    _let_go: oneshot::Sender<()>,
}

impl Given {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Its reader, or another process that has the key, is done with it. False if there is none.
    pub(crate) fn take_back(&self, key: &[u8]) -> bool {
        self.0.borrow_mut().remove(key).is_some()
    }

    /// A peer is lost, and all that it was given is let go.
    pub(crate) fn lose(&self, reader: Peer) {
        self.0.borrow_mut().retain(|_, kept| kept.reader != reader);
    }
}

/// Keeps memory for a reader, until that says that it is done, is lost, or the time is over. Then
/// it is closed: no peer can begin to access it.
pub(super) fn keep(inner: &Rc<Inner>, exported: Exported, reader: Peer, longest: Duration) {
    let key = exported.key().as_bytes().clone();
    let (_let_go, done) = oneshot::channel();
    inner.given.0.borrow_mut().insert(key.clone(), Kept { reader, _let_go });
    let engine = Engine::borrowed(Rc::clone(inner));
    inner.spawn(Box::pin(async move {
        if let Err(Elapsed { .. }) = engine.limit(longest, done).await {
            engine.inner().given.take_back(&key);
            tracing::debug!(?reader, ?longest, "an array that was given away is not given back");
        }
        drop(exported);
    }));
}
