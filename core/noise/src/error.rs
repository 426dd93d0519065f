//! What both the handshake and the records fail with.

/// A message was not made for this handshake by a peer that knows the secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of a peer that does not know the secret")]
pub struct NotAuthentic;
