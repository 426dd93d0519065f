//! The handshake: three frames of fixed length, after which each side knows that the other knows
//! the secret, and who it is. A state machine without I/O.
//!
//! ```text
//! server → client   MAGIC, nonce of the server
//! client → server   nonce of the client, who the client is, proof
//! server → client   verdict, who the server is, proof
//! ```
//!
//! A proof is HMAC-SHA256, keyed with the secret, of the role, both nonces and all that the frame
//! says; so it is good for one connection, in one direction. Nothing of a frame is looked at
//! before its proof is checked, but the verdict "refused", which comes without one from a server
//! that found our proof wrong. Without a secret the key is empty, and the proofs prove nothing.

use crate::Secret;
use hmac::{Hmac, Mac};
use petasos_fabric::{Address, Incarnation};
use sha2::Sha256;

/// What the first frame begins with: the protocol and its version.
pub const MAGIC: [u8; 8] = *b"PETASOS\x02";
const NONCE: usize = 32;
const PROOF: usize = 32;
const SESSION: usize = 8;
const IDENTITY: usize = 8 + 1 + Address::MAX;

/// Length of the first frame.
pub const CHALLENGE_LEN: usize = MAGIC.len() + NONCE;
/// Length of the second frame.
pub const HELLO_LEN: usize = NONCE + SESSION + IDENTITY + PROOF;
/// Length of the third frame.
pub const VERDICT_LEN: usize = 1 + IDENTITY + PROOF;

type Nonce = [u8; NONCE];

/// Names what two endpoints have going on, over one connection after the other: a number that both make
/// of the first handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Session(std::num::NonZeroU64);

impl Session {
    fn of(server: &Nonce, client: &Nonce) -> Session {
        let word =
            |nonce: &Nonce| nonce.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let number = word(server) ^ word(client).rotate_left(32);
        Session(std::num::NonZeroU64::new(number).unwrap_or(std::num::NonZeroU64::MIN))
    }
}

/// Who somebody is: his address, and which life of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where he listens.
    pub address: Address,
    /// Which life.
    pub incarnation: Incarnation,
}

/// What the server says in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Packets follow.
    Welcome = 0,
    /// The server is connecting to the client at this moment: that connection is the one to use.
    Crossed = 1,
    /// The proof was wrong.
    Refused = 2,
    /// Packets follow, and go on where the session of the client's choice stood.
    Resumed = 3,
}

/// How a handshake fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other side speaks something else, or another version.
    #[error("the other side does not speak this version of the protocol")]
    Magic,
    /// The other side does not know our secret.
    #[error("the other side does not know the secret")]
    Proof,
    /// We do not know the other side's secret.
    #[error("the other side refused our secret")]
    Refused,
    /// The other side knows the secret, and says nonsense.
    #[error("the other side does not say who it is")]
    Identity,
}

/// The server's side.
#[derive(Debug)]
pub struct Server {
    nonce: Nonce,
    client: Nonce,
}

impl Server {
    /// Begins; gives the first frame.
    #[must_use]
    pub fn begin(nonce: Nonce) -> (Server, [u8; CHALLENGE_LEN]) {
        let mut frame = [0; CHALLENGE_LEN];
        frame[..MAGIC.len()].copy_from_slice(&MAGIC);
        frame[MAGIC.len()..].copy_from_slice(&nonce);
        (Server { nonce, client: [0; NONCE] }, frame)
    }

    /// Takes the second frame: who the client is, and which session he wants to go on with.
    pub fn hello(
        &mut self,
        secret: Option<&Secret>,
        frame: &[u8; HELLO_LEN],
    ) -> Result<(Identity, Option<Session>), HandshakeError> {
        let (said, proof) = frame.split_at(HELLO_LEN - PROOF);
        self.client.copy_from_slice(&said[..NONCE]);
        check(secret, b"petasos client", &self.nonce, &self.client, &said[NONCE..], proof)?;
        let (session, identity) = said[NONCE..].split_at(SESSION);
        let session = session.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let session = std::num::NonZeroU64::new(session).map(Session);
        Ok((Identity::decode(identity)?, session))
    }

    /// The session that begins with this handshake.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::of(&self.nonce, &self.client)
    }

    /// The third frame.
    #[must_use]
    pub fn verdict(
        &self,
        secret: Option<&Secret>,
        verdict: Verdict,
        own: &Identity,
    ) -> [u8; VERDICT_LEN] {
        let mut frame = [0; VERDICT_LEN];
        frame[0] = verdict as u8;
        if verdict == Verdict::Refused {
            // Whoever does not know the secret learns nothing about us.
            return frame;
        }
        own.encode(&mut frame[1..1 + IDENTITY]);
        let (said, proof) = frame.split_at_mut(1 + IDENTITY);
        let code = mac(secret, b"petasos server", &self.nonce, &self.client, said);
        proof.copy_from_slice(&code.finalize().into_bytes());
        frame
    }
}

/// The client's side.
#[derive(Debug)]
pub struct Client {
    server: Nonce,
    nonce: Nonce,
}

impl Client {
    /// Takes the first frame; gives the second.
    pub fn begin(
        secret: Option<&Secret>,
        nonce: Nonce,
        own: &Identity,
        session: Option<Session>,
        challenge: &[u8; CHALLENGE_LEN],
    ) -> Result<(Client, [u8; HELLO_LEN]), HandshakeError> {
        let (magic, server) = challenge.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(HandshakeError::Magic);
        }
        let mut client = Client { server: [0; NONCE], nonce };
        client.server.copy_from_slice(server);
        let mut frame = [0; HELLO_LEN];
        frame[..NONCE].copy_from_slice(&nonce);
        let number = session.map_or(0, |Session(number)| number.get());
        frame[NONCE..NONCE + SESSION].copy_from_slice(&number.to_le_bytes());
        own.encode(&mut frame[NONCE + SESSION..][..IDENTITY]);
        let (said, proof) = frame.split_at_mut(HELLO_LEN - PROOF);
        let code = mac(secret, b"petasos client", &client.server, &nonce, &said[NONCE..]);
        proof.copy_from_slice(&code.finalize().into_bytes());
        Ok((client, frame))
    }

    /// Takes the third frame: the verdict, and who the server is.
    pub fn verdict(
        &self,
        secret: Option<&Secret>,
        frame: &[u8; VERDICT_LEN],
    ) -> Result<(Verdict, Identity), HandshakeError> {
        if frame[0] == Verdict::Refused as u8 {
            return Err(HandshakeError::Refused);
        }
        let (said, proof) = frame.split_at(1 + IDENTITY);
        check(secret, b"petasos server", &self.server, &self.nonce, said, proof)?;
        let verdict = match said[0] {
            0 => Verdict::Welcome,
            1 => Verdict::Crossed,
            3 => Verdict::Resumed,
            _ => return Err(HandshakeError::Identity),
        };
        Ok((verdict, Identity::decode(&said[1..])?))
    }

    /// The session that begins with this handshake.
    #[must_use]
    pub fn session(&self) -> Session {
        Session::of(&self.server, &self.nonce)
    }
}

impl Identity {
    fn encode(&self, out: &mut [u8]) {
        let address = self.address.as_str().as_bytes();
        out[..8].copy_from_slice(&self.incarnation.get().to_le_bytes());
        out[8] = address.len() as u8;
        out[9..9 + address.len()].copy_from_slice(address);
    }

    fn decode(bytes: &[u8]) -> Result<Identity, HandshakeError> {
        let (number, rest) = bytes.split_first_chunk().ok_or(HandshakeError::Identity)?;
        let (&len, rest) = rest.split_first().ok_or(HandshakeError::Identity)?;
        let incarnation = Incarnation::new(u64::from_le_bytes(*number));
        let address = rest.get(..usize::from(len)).and_then(|text| std::str::from_utf8(text).ok());
        let address = address.and_then(|text| Address::parse(text).ok());
        match (incarnation, address) {
            (Some(incarnation), Some(address)) if crate::address::split(&address).is_some() => {
                Ok(Identity { address, incarnation })
            }
            _ => Err(HandshakeError::Identity),
        }
    }
}

fn mac(
    secret: Option<&Secret>,
    role: &[u8],
    server: &Nonce,
    client: &Nonce,
    said: &[u8],
) -> Hmac<Sha256> {
    let key = secret.map_or(&[][..], Secret::bytes);
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in [role, server, client, said] {
        mac.update(part);
    }
    mac
}

fn check(
    secret: Option<&Secret>,
    role: &[u8],
    server: &Nonce,
    client: &Nonce,
    said: &[u8],
    proof: &[u8],
) -> Result<(), HandshakeError> {
    // In constant time.
    mac(secret, role, server, client, said).verify_slice(proof).map_err(|_| HandshakeError::Proof)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(port: u16) -> Identity {
        let address = Address::parse(&format!("tcp://127.0.0.1:{port}")).unwrap();
        Identity { address, incarnation: Incarnation::new(u64::from(port)).unwrap() }
    }

    fn secret(byte: u8) -> Secret {
        Secret::new(vec![byte; 32]).unwrap()
    }

    type Outcome = (
        Result<(Identity, Option<Session>), HandshakeError>,
        Result<(Verdict, Identity), HandshakeError>,
    );

    fn shake(ours: Option<&Secret>, theirs: Option<&Secret>) -> Outcome {
        let (mut server, challenge) = Server::begin([1; 32]);
        let (client, hello) = Client::begin(ours, [2; 32], &who(2), None, &challenge).unwrap();
        let seen = server.hello(theirs, &hello);
        let verdict = if seen.is_ok() { Verdict::Welcome } else { Verdict::Refused };
        let frame = server.verdict(theirs, verdict, &who(1));
        (seen, client.verdict(ours, &frame))
    }

    #[test]
    fn who_knows_the_secret_is_told_and_tells() {
        let secret = secret(7);
        for secret in [None, Some(&secret)] {
            let (seen, told) = shake(secret, secret);
            assert_eq!(seen, Ok((who(2), None)));
            assert_eq!(told, Ok((Verdict::Welcome, who(1))));
        }
    }

    #[test]
    fn who_does_not_know_it_is_refused_and_learns_nothing() {
        let (a, b) = (secret(7), secret(8));
        for (ours, theirs) in [(Some(&a), Some(&b)), (None, Some(&b)), (Some(&a), None)] {
            let (seen, told) = shake(ours, theirs);
            assert_eq!(seen, Err(HandshakeError::Proof));
            assert_eq!(told, Err(HandshakeError::Refused));
        }
    }

    #[test]
    fn a_false_server_is_found_out() {
        let (a, b) = (secret(7), secret(8));
        let (mut server, challenge) = Server::begin([1; 32]);
        let (client, hello) = Client::begin(Some(&a), [2; 32], &who(2), None, &challenge).unwrap();
        let _ = server.hello(Some(&b), &hello);
        let frame = server.verdict(Some(&b), Verdict::Welcome, &who(1));
        assert_eq!(client.verdict(Some(&a), &frame), Err(HandshakeError::Proof));
        // The client's own proof, sent back.
        let mut mirrored = [0; VERDICT_LEN];
        mirrored[1..].copy_from_slice(&hello[NONCE + SESSION..]);
        assert_eq!(client.verdict(Some(&a), &mirrored), Err(HandshakeError::Proof));
    }

    #[test]
    fn every_byte_of_a_frame_is_under_the_proof() {
        let secret = secret(7);
        let (mut server, challenge) = Server::begin([1; 32]);
        let (client, hello) =
            Client::begin(Some(&secret), [2; 32], &who(2), None, &challenge).unwrap();
        assert_eq!(server.hello(Some(&secret), &hello), Ok((who(2), None)));
        let session = client.session();
        assert_eq!(session, server.session(), "both name it so");
        let (_, hello) =
            Client::begin(Some(&secret), [2; 32], &who(2), Some(session), &challenge).unwrap();
        assert_eq!(server.hello(Some(&secret), &hello), Ok((who(2), Some(session))));
        for at in 0..HELLO_LEN {
            let mut spoiled = hello;
            spoiled[at] ^= 1;
            assert_eq!(server.hello(Some(&secret), &spoiled), Err(HandshakeError::Proof), "{at}");
        }
        // A recorded hello is good for its own connection only.
        let (mut later, _) = Server::begin([9; 32]);
        assert_eq!(later.hello(Some(&secret), &hello), Err(HandshakeError::Proof));
    }
}
