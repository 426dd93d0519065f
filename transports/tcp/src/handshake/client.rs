//! The client's side.

use super::{
    CHALLENGE_LEN, ENCRYPTED, Goal, HELLO, HELLO_LEN, HandshakeError, Hash, Identity, KEY, MAGIC,
    NAME, Name, Nonce, PROOF, Session, VERDICT, VERDICT_LEN, Verdict,
    messages::{Messages, hash_of_frames, prologue},
    session::{CLIENT, SERVER, hash_of_hello, hash_of_verdict},
    wishes,
};
use crate::Secret;
use hmac::Mac;
use petasos_noise::{Channel, Handshake, ResponderAddress};

/// The client's side.
#[derive(Debug)]
pub struct Client {
    /// The first two frames.
    frames: Hash,
    name: Name,
    goal: Goal,
    /// Whether the server has proved that it knows the session that was named.
    known: bool,
    encrypted: bool,
    messages: Messages,
}

impl Client {
    /// Takes the first frame; gives the second. `dialled` is where the connection was made to.
    ///
    /// # Errors
    /// [`HandshakeError`] if the frame is not of this protocol, or the sides do not agree on a
    /// secret or on encryption.
    pub fn begin(
        secret: Option<&Secret>,
        encrypt: bool,
        nonce: Nonce,
        own: &Identity,
        goal: Goal,
        dialled: ResponderAddress,
        challenge: &[u8; CHALLENGE_LEN],
    ) -> Result<(Client, [u8; HELLO_LEN]), HandshakeError> {
        let (magic, rest) = challenge.split_at(MAGIC.len());
        if magic != MAGIC {
            return Err(HandshakeError::Magic);
        }
        let wishes = wishes(secret, encrypt);
        let prologue = prologue(challenge, wishes);
        let mut messages = Messages::new(secret, nonce, &prologue, Handshake::initiator);
        let mut said = [0; HELLO];
        let (request, named, session) = match &goal {
            Goal::Begin => (0, None, None),
            Goal::Again(session) => (0, Some(session.name), Some(session)),
            Goal::Resume(session) => (1, Some(session.name), Some(session)),
            Goal::Vouch(name) => (2, Some(*name), None),
        };
        said[0] = request;
        if let Some(name) = named {
            said[1..][..NAME].copy_from_slice(&name.0);
        }
        let (spot, identity) = said[1 + NAME + PROOF..].split_at_mut(ResponderAddress::LEN);
        spot.copy_from_slice(&dialled.to_bytes());
        own.encode(identity);
        if let Some(session) = session {
            let code = session.proof(CLIENT, &hash_of_hello(&prologue, &said));
            said[1 + NAME..][..PROOF].copy_from_slice(&code.finalize().into_bytes());
        }
        let mut frame = [wishes; HELLO_LEN];
        messages.write(&said, &mut frame[1..]);
        let encrypted = secret.is_some() && (encrypt || rest[0] & ENCRYPTED != 0);
        let frames = hash_of_frames(challenge, &frame);
        let (name, known) = (Name::of(&frames), false);
        Ok((Client { frames, name, goal, known, encrypted, messages }, frame))
    }

    /// What the connection is called.
    #[must_use]
    pub fn name(&self) -> Name {
        self.name
    }

    /// Whether the server has proved, in its verdict, that it knows the session that it was told
    /// of: it is the process with which that was begun.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.known
    }

    /// Takes the third frame: the verdict, the session that begins or goes on, and the identity
    /// that the server claims.
    ///
    /// # Errors
    /// [`HandshakeError::Refused`] if the server said so; else if the frame does not prove the
    /// secret, or makes no sense.
    pub fn verdict(
        &mut self,
        frame: &[u8; VERDICT_LEN],
    ) -> Result<(Verdict, Session, Identity), HandshakeError> {
        if frame[0] != 0 {
            return Err(HandshakeError::Refused);
        }
        let mut said = [0; VERDICT];
        self.messages.read(&frame[1..], &mut said)?;
        let (key, rest) = said[1..].split_at(KEY);
        let (proof, identity) = rest.split_at(PROOF);
        let mut session = Session { name: self.name, key: std::array::from_fn(|at| key[at]) };
        if let Goal::Again(before) | Goal::Resume(before) = self.goal {
            let code = before.proof(SERVER, &hash_of_verdict(&self.frames, &said));
            // In constant time.
            self.known = code.verify_slice(proof).is_ok();
        }
        let verdict = match (said[0], self.goal) {
            (0, Goal::Begin | Goal::Again(_) | Goal::Resume(_)) => Verdict::Welcome,
            (1, Goal::Begin | Goal::Again(_) | Goal::Resume(_)) => Verdict::Crossed,
            // A process that took the server's place does not know the session.
            (3, Goal::Resume(before)) if self.known => {
                session = before;
                Verdict::Resumed
            }
            (4, _) => return Err(HandshakeError::Elsewhere),
            (5, Goal::Begin | Goal::Again(_) | Goal::Resume(_)) => Verdict::Claimed,
            (6, Goal::Vouch(_)) => Verdict::Vouched,
            (7, Goal::Vouch(_)) => Verdict::Denied,
            (8, Goal::Begin | Goal::Again(_) | Goal::Resume(_)) => Verdict::Crowded,
            _ => return Err(HandshakeError::Identity),
        };
        Ok((verdict, session, Identity::decode(identity)?))
    }

    /// How packets are encrypted from now on, after [`Client::verdict`]; `None`: they are not.
    #[must_use]
    pub fn into_channel(self) -> Option<Channel> {
        if self.encrypted { self.messages.into_channel() } else { None }
    }
}
