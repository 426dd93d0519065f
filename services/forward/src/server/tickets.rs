//! Tickets: what a client gets in answer to its hello, and shows to begin the session offered
//! there.
//!
//! A hello costs the server no memory: what it offers is in the answer, with a proof that it did.
//! So hellos that were recorded, and are replayed from anywhere, take no room: a client has to
//! receive the answer, and to use it soon.

use crate::{FsError, FsResult, protocol::Ticket};
use petasos::fabric::Address;
use rustix::io::Errno;
use std::{
    io,
    time::{Duration, Instant},
};

/// How long a ticket is good.
const GOOD: Duration = Duration::from_secs(10);

/// Makes tickets, and knows its own.
pub(super) struct Tickets {
    key: [u8; 32],
    since: Instant,
}

impl Tickets {
    /// With a secret key, new at each start.
    pub(super) fn new() -> io::Result<Tickets> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Tickets { key, since: Instant::now() })
    }

    /// A ticket for this client: for a session that it may begin.
    pub(super) fn offer(&self, session: u64, to: &Address) -> Ticket {
        let until_ms = self.now_ms() + GOOD.as_millis() as u64;
        Ticket { until_ms, proof: self.proof(session, until_ms, to) }
    }

    /// Whether this client was offered this session, a short time ago.
    ///
    /// # Errors
    /// `ESTALE` if not.
    pub(super) fn check(&self, session: u64, ticket: &Ticket, from: &Address) -> FsResult<()> {
        // What it takes to compare them tells nothing: a hash is compared with a hash.
        let proof = blake3::Hash::from_bytes(widen(self.proof(session, ticket.until_ms, from)));
        let genuine = proof == blake3::Hash::from_bytes(widen(ticket.proof));
        match genuine && ticket.until_ms >= self.now_ms() {
            true => Ok(()),
            false => Err(FsError::new(Errno::STALE, "this session was not offered, or long ago")),
        }
    }

    fn now_ms(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    fn proof(&self, session: u64, until_ms: u64, client: &Address) -> [u8; 16] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(&session.to_le_bytes()).update(&until_ms.to_le_bytes());
        hasher.update(client.to_string().as_bytes());
        let mut proof = [0; 16];
        hasher.finalize_xof().fill(&mut proof);
        proof
    }
}

/// For the comparison in constant time that the hash's type has.
fn widen(proof: [u8; 16]) -> [u8; 32] {
    let mut wide = [0; 32];
    wide[..16].copy_from_slice(&proof);
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_offered_to_this_client_and_not_long_ago() {
        let tickets = Tickets::new().unwrap();
        let [one, other] = ["self://one", "self://other"].map(|url| Address::parse(url).unwrap());
        let ticket = tickets.offer(7, &one);
        assert!(tickets.check(7, &ticket, &one).is_ok());
        let refused = |session, ticket: Ticket, from| {
            tickets.check(session, &ticket, from).unwrap_err().errno() == Errno::STALE
        };
        assert!(refused(8, ticket, &one) && refused(7, ticket, &other));
        assert!(refused(7, Ticket { until_ms: ticket.until_ms + 1, ..ticket }, &one));
        for at in 0..16 {
            let mut forged = ticket;
            forged.proof[at] ^= 1;
            assert!(refused(7, forged, &one), "{at}");
        }
        let another = Tickets::new().unwrap();
        assert!(another.check(7, &ticket, &one).is_err(), "an earlier server's");
        let old = Ticket { until_ms: 0, proof: tickets.proof(7, 0, &one) };
        std::thread::sleep(Duration::from_millis(2));
        assert!(refused(7, old, &one), "it was good until the server began");
    }
}
