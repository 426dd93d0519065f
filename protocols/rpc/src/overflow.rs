//! Arguments and results that do not fit a message: one side lends them, the other fetches them.

use crate::{
    BulkError, Failure, body::Body, calls::Outcome, inner::Inner, memory::Imported,
    operation::Pending,
};
use petasos_fabric::{Buffer, Key, Operation, Peer, Region, RemoteSpan};
use petasos_wire::rpc::{self, CallId, Remote, Status};
use smallvec::smallvec;
use std::rc::Rc;

impl Inner {
    /// Fetches the data that a message of this peer describes. The message is dropped before: many
    /// fetches at once would hold leases that others need.
    async fn fetch(self: &Rc<Self>, peer: Peer, message: Body) -> Result<Body, BulkError> {
        let (len, key) = {
            let remote =
                Remote::decode(&message).map_err(|error| BulkError::Import(error.to_string()))?;
            (remote.len, Key::from_bytes(remote.key.to_vec())?)
        };
        drop(message);
        let limit = self.config.max_body;
        if len > limit {
            return Err(BulkError::TooLarge { len, limit });
        }
        let imported = Imported::new(self, &key, Some(peer))?;
        if len > imported.remote.len {
            return Err(BulkError::OutOfBounds { offset: 0, len, bound: imported.remote.len });
        }
        let into = Region::from_buffer(Buffer::scratch(len as usize));
        let local = smallvec![into.whole()];
        let spans = smallvec![RemoteSpan { offset: 0, len }];
        let remote = imported.remote;
        Pending::submit(self, |token| Operation::Get { token, remote, local, spans }).await?;
        // The endpoint holds it no longer, so this takes no copy.
        let buffer = match into.into_exclusive() {
            Ok(exclusive) => exclusive.into_buffer(),
            Err(region) => Buffer::from(region.to_vec()),
        };
        Ok(Body::new(buffer.into_lease(), 0))
    }

    pub(crate) async fn fetch_arguments(
        self: &Rc<Self>,
        peer: Peer,
        message: Body,
    ) -> Result<Body, Failure> {
        self.fetch(peer, message).await.map_err(|error| match error {
            BulkError::TooLarge { .. } => {
                Failure::TooLarge(format!("{error}; use bulk memory for such data"))
            }
            error => Failure::Failed(format!("the arguments could not be fetched: {error}")),
        })
    }

    /// Fetches the result of a call, and lets the target know when it is done.
    pub(crate) fn fetch_result(self: &Rc<Self>, peer: Peer, id: CallId, body: Body) {
        let inner = Rc::clone(self);
        self.spawn(Box::pin(async move {
            let fetched = inner.fetch(peer, body).await;
            inner.send_frame(peer, &rpc::release(id));
            inner.return_credit(peer, None);
            match fetched {
                Ok(body) => inner.finish_answered(id, Status::Ok, body),
                Err(error @ BulkError::TooLarge { .. }) => {
                    inner.finish_call(id, Outcome::TooLarge(error.to_string()));
                }
                Err(error) => inner.finish_call(id, Outcome::Unfetched(error.to_string())),
            }
        }));
    }
}
