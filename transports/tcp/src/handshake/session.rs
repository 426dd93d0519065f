//! Sessions: how they are named, and how each side proves that it knows one.

use super::{HELLO, Hash, KEY, NAME, PROOF, VERDICT};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// Names a connection that a client makes: a hash of the first two frames, which are the client's
/// and the server's of this connection alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name(pub(super) [u8; NAME]);

impl Name {
    /// Of the connection whose first two frames have this hash.
    pub(super) fn of(frames: &Hash) -> Name {
        Name(std::array::from_fn(|at| frames[at]))
    }
}

/// What two endpoints continue over one connection after the other: the name of the first, and a
/// key that the server made, by which each proves to the other that it was there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Session {
    pub(super) name: Name,
    pub(super) key: [u8; KEY],
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.name)
    }
}

impl Session {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// Proves that one side knows the session, and says what this is the hash of.
    pub(super) fn proof(&self, role: &[u8], said: &Hash) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(role);
        mac.update(said);
        mac
    }
}

/// The roles in which the two sides prove it.
pub(super) const CLIENT: &[u8] = b"petasos client was there";
pub(super) const SERVER: &[u8] = b"petasos server was there";

/// What a client proves: the challenge and its own words, the proof itself left out.
pub(super) fn hash_of_hello(prologue: &[u8], said: &[u8; HELLO]) -> Hash {
    let at = 1 + NAME;
    let (before, after) = (&said[..at], &said[at + PROOF..]);
    let hash = Sha256::new().chain_update(prologue).chain_update(before).chain_update(after);
    hash.finalize().into()
}

/// What a server proves: both frames before, and its own words, the proof itself left out.
pub(super) fn hash_of_verdict(frames: &Hash, said: &[u8; VERDICT]) -> Hash {
    let at = 1 + KEY;
    let (before, after) = (&said[..at], &said[at + PROOF..]);
    let hash = Sha256::new().chain_update(frames).chain_update(before).chain_update(after);
    hash.finalize().into()
}
