//! The server's side.

use super::{
    CHALLENGE_LEN, ENCRYPTED, HELLO, HELLO_LEN, HandshakeError, Hash, Hello, Identity, KEY, MAGIC,
    NAME, Name, Nonce, PROOF, Proof, Request, Session, VERDICT, VERDICT_LEN, Verdict,
    messages::{Messages, hash_of_frames, prologue},
    session::{CLIENT, SERVER, hash_of_hello, hash_of_verdict},
    wishes,
};
use crate::Secret;
use hmac::Mac;
use petasos_noise::{Channel, Handshake, ResponderAddress};

/// The server's side.
#[derive(Debug)]
pub struct Server {
    challenge: [u8; CHALLENGE_LEN],
    session: Session,
    /// The client's proof, and what it is of.
    proof: Proof,
    hello: Hash,
    /// The first two frames.
    frames: Hash,
    encrypted: bool,
    messages: Option<Messages>,
}

impl Server {
    /// Begins, with a nonce and a key that no other process knows; gives the first frame. Packets
    /// will be encrypted if the server or the client wants that and there is a secret.
    #[must_use]
    pub fn begin(
        secret: Option<&Secret>,
        encrypt: bool,
        nonce: Nonce,
        key: [u8; 32],
    ) -> (Server, [u8; CHALLENGE_LEN]) {
        let mut challenge = [0; CHALLENGE_LEN];
        challenge[..MAGIC.len()].copy_from_slice(&MAGIC);
        challenge[MAGIC.len()] = wishes(secret, encrypt);
        challenge[MAGIC.len() + 1..].copy_from_slice(&nonce);
        let session = Session { name: Name([0; NAME]), key };
        let (proof, hello, frames) = ([0; PROOF], [0; 32], [0; 32]);
        let (encrypted, messages) = (encrypt, None);
        (Server { challenge, session, proof, hello, frames, encrypted, messages }, challenge)
    }

    /// Takes the second frame.
    ///
    /// # Errors
    /// [`HandshakeError`] if the frame does not prove the secret, or makes no sense.
    pub fn hello(
        &mut self,
        secret: Option<&Secret>,
        frame: &[u8; HELLO_LEN],
    ) -> Result<Hello, HandshakeError> {
        let wishes = frame[0];
        let prologue = prologue(&self.challenge, wishes);
        let key = self.session.key;
        let mut messages = Messages::new(secret, key, &prologue, Handshake::responder);
        let mut said = [0; HELLO];
        messages.read(&frame[1..], &mut said)?;
        self.frames = hash_of_frames(&self.challenge, frame);
        self.session.name = Name::of(&self.frames);
        self.hello = hash_of_hello(&prologue, &said);
        self.encrypted = secret.is_some() && (self.encrypted || wishes & ENCRYPTED != 0);
        // In clear the server's message begins with a number that means nothing.
        if let Messages::Clear(nonce) = &mut messages {
            nonce.fill(0);
        }
        self.messages = Some(messages);
        let (request, rest) = said.split_at(1);
        let (named, rest) = rest.split_at(NAME);
        let (proof, rest) = rest.split_at(PROOF);
        let (spot, identity) = rest.split_at(ResponderAddress::LEN);
        let named = Name(std::array::from_fn(|at| named[at]));
        self.proof.copy_from_slice(proof);
        let request = match request[0] {
            0 => Request::Begin,
            1 => Request::Resume(named),
            2 => Request::Vouch(named),
            _ => return Err(HandshakeError::Identity),
        };
        let dialled = ResponderAddress::from_bytes(spot.first_chunk().expect("of that length"));
        Ok(Hello { request, dialled, identity: Identity::decode(identity)? })
    }

    /// Whether the client has proved that it knows this session.
    #[must_use]
    pub fn resumes(&self, session: &Session) -> bool {
        // In constant time.
        session.proof(CLIENT, &self.hello).verify_slice(&self.proof).is_ok()
    }

    /// The session that begins with this handshake; its name is that of the connection.
    #[must_use]
    pub fn session(&self) -> Session {
        self.session
    }

    /// The third frame, after [`Server::hello`], with a proof that the server knows the session
    /// that goes on, or that the client has proved to have had. A client that does not know the
    /// secret learns nothing of it.
    #[must_use]
    pub fn verdict(
        &mut self,
        verdict: Verdict,
        resumed: Option<&Session>,
        own: &Identity,
    ) -> [u8; VERDICT_LEN] {
        let mut frame = [0; VERDICT_LEN];
        frame[0] = Verdict::Refused as u8;
        let Some(messages) = self.messages.as_mut().filter(|_| verdict != Verdict::Refused) else {
            return frame;
        };
        frame[0] = 0;
        let mut said = [0; VERDICT];
        said[0] = verdict as u8;
        if verdict == Verdict::Welcome {
            said[1..1 + KEY].copy_from_slice(&self.session.key);
        }
        own.encode(&mut said[1 + KEY + PROOF..]);
        if let Some(session) = resumed {
            let code = session.proof(SERVER, &hash_of_verdict(&self.frames, &said));
            said[1 + KEY..][..PROOF].copy_from_slice(&code.finalize().into_bytes());
        }
        messages.write(&said, &mut frame[1..]);
        frame
    }

    /// How packets are encrypted from now on, after [`Server::verdict`]; `None`: they are not.
    #[must_use]
    pub fn into_channel(self) -> Option<Channel> {
        self.messages.filter(|_| self.encrypted)?.into_channel()
    }
}
