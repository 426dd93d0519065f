//! The handshake: three frames of fixed length, after which each side knows that the other knows
//! the secret, which identity it claims, and that it is where the client dialled. A state machine
//! without I/O.
//!
//! ```text
//! server → client   MAGIC, wishes, nonce
//! client → server   wishes, first message of Noise: errand, where it dialled, identity
//! server → client   verdict in clear, second message of Noise: verdict, session, identity
//! ```
//!
//! It is the pattern `NNpsk0` of the Noise protocol framework ([`petasos_noise`]), whose pre-shared
//! key is the hash of the secret. The prologue is the first frame and the client's wishes: the
//! protocol and its version, whether each side wants encryption, and a nonce, which makes a hello
//! good for one connection. What the client says travels in the first message, what the server says
//! in the second. A message that was changed, or made by a process that does not know the secret,
//! is detected, and none of it is parsed. Both directions have keys of their own.
//!
//! *Where the client dialled* ([`petasos_noise::ResponderAddress`]) the server compares with where
//! the connection came to it. So a process that listens at the address of one server, and relays
//! everything to another one of the same secret, is refused by that server, and the client is told.
//! A name that was dialled (`tcp://node7:4040`) is bound as the socket address that it was looked
//! up as; a server that listens on all interfaces takes the one on which the connection came; and
//! addresses of the loopback interface are of one machine only. Where addresses are translated on
//! the way, a server has to be told those that clients dial ([`crate::Config::reached_at`]).
//! Without a secret the frames are the same, in clear, and prove nothing; then no endpoint listens
//! beyond this machine.
//!
//! With a secret or without, each session has a key, which the server makes and sends in its
//! verdict. By it each side can prove on a later connection that it is the process that was there
//! ([`Goal::Resume`], [`Goal::Again`]): by an HMAC over all that it says on that connection, under
//! a key that no other process was told. An endpoint without a secret takes no process for a peer
//! of before that does not prove that.

use crate::Secret;
use hmac::{Hmac, Mac};
use petasos_fabric::{Address, Incarnation};
use petasos_noise::{Channel, Handshake, OVERHEAD, ResponderAddress};
use sha2::{Digest, Sha256};

/// What the first frame begins with: the protocol and its version.
pub const MAGIC: [u8; 8] = *b"PETASOS\x04";
const NONCE: usize = 32;
const PROOF: usize = 32;
const NAME: usize = 16;
const KEY: usize = 32;
const IDENTITY: usize = 8 + 1 + Address::MAX;
/// What the messages of Noise carry.
const HELLO: usize = 1 + NAME + PROOF + ResponderAddress::LEN + IDENTITY;
const VERDICT: usize = 1 + KEY + PROOF + IDENTITY;

/// Length of the first frame.
pub const CHALLENGE_LEN: usize = MAGIC.len() + 1 + NONCE;
/// Length of the second frame.
pub const HELLO_LEN: usize = 1 + HELLO + OVERHEAD;
/// Length of the third frame.
pub const VERDICT_LEN: usize = 1 + VERDICT + OVERHEAD;

type Nonce = [u8; NONCE];
type Proof = [u8; PROOF];
type Hash = [u8; 32];

/// Wishes: a secret is needed.
const KEYED: u8 = 1;
/// Wishes: packets are to be encrypted.
const ENCRYPTED: u8 = 2;

fn wishes(secret: Option<&Secret>, encrypt: bool) -> u8 {
    secret.map_or(0, |_| KEYED) | if encrypt { ENCRYPTED } else { 0 }
}

/// Names a connection that a client makes: a hash of the first two frames, which are the client's
/// and the server's of this connection alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Name([u8; NAME]);

/// What two endpoints continue over one connection after the other: the name of the first, and a
/// key that the server made, by which each proves to the other that it was there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Session {
    name: Name,
    key: [u8; KEY],
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
    fn proof(&self, role: &[u8], said: &Hash) -> Hmac<Sha256> {
        let mut mac =
            Hmac::<Sha256>::new_from_slice(&self.key).expect("HMAC takes keys of any length");
        mac.update(role);
        mac.update(said);
        mac
    }
}

const CLIENT: &[u8] = b"petasos client was there";
const SERVER: &[u8] = b"petasos server was there";

/// What a client proves: the challenge and its own words, the proof itself left out.
fn hash_of_hello(prologue: &[u8], said: &[u8; HELLO]) -> Hash {
    let at = 1 + NAME;
    let (before, after) = (&said[..at], &said[at + PROOF..]);
    let hash = Sha256::new().chain_update(prologue).chain_update(before).chain_update(after);
    hash.finalize().into()
}

/// What a server proves: both frames before, and its own words, the proof itself left out.
fn hash_of_verdict(frames: &Hash, said: &[u8; VERDICT]) -> Hash {
    let at = 1 + KEY;
    let (before, after) = (&said[..at], &said[at + PROOF..]);
    let hash = Sha256::new().chain_update(frames).chain_update(before).chain_update(after);
    hash.finalize().into()
}

/// The identity of an endpoint: its address and its incarnation. Both are only claimed, not proven:
/// see [`Errand::Vouch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Where it listens: a number, not a name.
    pub address: Address,
    /// Its incarnation.
    pub incarnation: Incarnation,
}

/// What a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// To begin a session.
    Begin,
    /// To begin one, as the process that has had this one.
    Again(Session),
    /// To go on with one.
    Resume(Session),
    /// To know whether the server has made the connection of this name. Nothing else comes of it.
    Vouch(Name),
}

/// The same, as the server hears it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// To begin a session; [`Server::resumes`] says whether the client has had another one.
    Begin,
    /// To go on with the one of this name; [`Server::resumes`] says whether it is the client's.
    Resume(Name),
    /// To know whether the server has made the connection of this name.
    Vouch(Name),
}

/// What a client says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it wants.
    pub errand: Errand,
    /// Where it dialled.
    pub dialled: ResponderAddress,
    /// The identity that it claims.
    pub identity: Identity,
}

/// What the server says in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// Packets follow.
    Welcome = 0,
    /// The server is connecting to the client at this moment: that connection is the one to use.
    Crossed = 1,
    /// The client does not know the secret. The only one that comes in clear.
    Refused = 2,
    /// Packets follow, and go on where the session of the client's choice stood.
    Resumed = 3,
    /// The client dialled another endpoint.
    Elsewhere = 4,
    /// Another peer has the address that the client claims, or no endpoint there vouches for the
    /// client.
    Claimed = 5,
    /// The connection that was asked for is the server's.
    Vouched = 6,
    /// It is not.
    Denied = 7,
    /// The client's host has as many connections to the server as that gives to one.
    Crowded = 8,
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
    #[error("the other side does not identify itself")]
    Identity,
    /// The server that answers is not the one whose address was dialled.
    #[error(
        "the server that answers is not the one at the address that was dialled: a process in between relays the \
         connection (where addresses are translated, the server has to be told by which one it is reached)"
    )]
    Elsewhere,
}

/// The messages: of Noise, or in clear where there is no secret.
#[derive(Debug)]
enum Messages {
    Keyed(Handshake),
    Clear(Nonce),
}

impl Messages {
    fn new(
        secret: Option<&Secret>,
        nonce: Nonce,
        prologue: &[u8],
        side: fn(&petasos_noise::Psk, &[u8]) -> Handshake,
    ) -> Messages {
        match secret {
            Some(secret) => Messages::Keyed(side(secret.psk(), prologue)),
            None => Messages::Clear(nonce),
        }
    }

    fn write(&mut self, payload: &[u8], message: &mut [u8]) {
        match self {
            Messages::Keyed(shake) => shake.write(payload, message),
            Messages::Clear(nonce) => {
                message.fill(0);
                message[..NONCE].copy_from_slice(nonce);
                message[NONCE..NONCE + payload.len()].copy_from_slice(payload);
            }
        }
    }

    fn read(&mut self, message: &[u8], payload: &mut [u8]) -> Result<(), HandshakeError> {
        match self {
            Messages::Keyed(shake) => {
                shake.read(message, payload).map_err(|_| HandshakeError::Proof)
            }
            Messages::Clear(_) => {
                let (said, tag) = message[NONCE..].split_at(payload.len());
                // A side with a secret does not leave that empty.
                if tag.iter().any(|byte| *byte != 0) {
                    return Err(HandshakeError::Proof);
                }
                payload.copy_from_slice(said);
                Ok(())
            }
        }
    }

    fn into_channel(self) -> Option<Channel> {
        match self {
            Messages::Keyed(shake) => Some(shake.into_channel()),
            Messages::Clear(_) => None,
        }
    }
}

fn prologue(challenge: &[u8; CHALLENGE_LEN], wishes: u8) -> [u8; CHALLENGE_LEN + 1] {
    let mut prologue = [wishes; CHALLENGE_LEN + 1];
    prologue[..CHALLENGE_LEN].copy_from_slice(challenge);
    prologue
}

/// The hash of the first two frames, of which a part names the connection.
fn hash_of_frames(challenge: &[u8; CHALLENGE_LEN], hello: &[u8; HELLO_LEN]) -> Hash {
    Sha256::new().chain_update(challenge).chain_update(hello).finalize().into()
}

fn name(frames: &Hash) -> Name {
    Name(std::array::from_fn(|at| frames[at]))
}

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
        self.session.name = name(&self.frames);
        self.hello = hash_of_hello(&prologue, &said);
        self.encrypted = secret.is_some() && (self.encrypted || wishes & ENCRYPTED != 0);
        // In clear the server's message begins with a number that means nothing.
        if let Messages::Clear(nonce) = &mut messages {
            nonce.fill(0);
        }
        self.messages = Some(messages);
        let (errand, rest) = said.split_at(1);
        let (named, rest) = rest.split_at(NAME);
        let (proof, rest) = rest.split_at(PROOF);
        let (spot, identity) = rest.split_at(ResponderAddress::LEN);
        let named = Name(std::array::from_fn(|at| named[at]));
        self.proof.copy_from_slice(proof);
        let errand = match errand[0] {
            0 => Errand::Begin,
            1 => Errand::Resume(named),
            2 => Errand::Vouch(named),
            _ => return Err(HandshakeError::Identity),
        };
        let dialled = ResponderAddress::from_bytes(spot.first_chunk().expect("of that length"));
        Ok(Hello { errand, dialled, identity: Identity::decode(identity)? })
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
        let (errand, named, session) = match &goal {
            Goal::Begin => (0, None, None),
            Goal::Again(session) => (0, Some(session.name), Some(session)),
            Goal::Resume(session) => (1, Some(session.name), Some(session)),
            Goal::Vouch(name) => (2, Some(*name), None),
        };
        said[0] = errand;
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
        let (name, known) = (name(&frames), false);
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
            // No peer makes this one look up names.
            (Some(incarnation), Some(address)) if crate::address::numeric(&address).is_some() => {
                Ok(Identity { address, incarnation })
            }
            _ => Err(HandshakeError::Identity),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity_of(port: u16) -> Identity {
        let address = Address::parse(&format!("tcp://127.0.0.1:{port}")).unwrap();
        Identity { address, incarnation: Incarnation::new(u64::from(port)).unwrap() }
    }

    fn secret(byte: u8) -> Secret {
        Secret::new(vec![byte; 32]).unwrap()
    }

    fn spot(port: u16) -> ResponderAddress {
        ResponderAddress::of(([127, 0, 0, 1], port).into())
    }

    fn begin(secret: Option<&Secret>) -> (Server, [u8; CHALLENGE_LEN]) {
        Server::begin(secret, false, [1; 32], [3; 32])
    }

    fn ask(
        secret: Option<&Secret>,
        encrypt: bool,
        goal: Goal,
        challenge: &[u8; CHALLENGE_LEN],
    ) -> (Client, [u8; HELLO_LEN]) {
        Client::begin(secret, encrypt, [2; 32], &identity_of(2), goal, spot(1), challenge).unwrap()
    }

    type Outcome =
        (Result<Hello, HandshakeError>, Result<(Verdict, Session, Identity), HandshakeError>);

    fn shake(ours: Option<&Secret>, theirs: Option<&Secret>) -> Outcome {
        let (mut server, challenge) = begin(theirs);
        let (mut client, hello) = ask(ours, false, Goal::Begin, &challenge);
        let seen = server.hello(theirs, &hello);
        let verdict = if seen.is_ok() { Verdict::Welcome } else { Verdict::Refused };
        (seen, client.verdict(&server.verdict(verdict, None, &identity_of(1))))
    }

    #[test]
    fn who_knows_the_secret_is_told_and_tells() {
        let secret = secret(7);
        for secret in [None, Some(&secret)] {
            let (mut server, challenge) = begin(secret);
            let (mut client, hello) = ask(secret, false, Goal::Begin, &challenge);
            let heard = server.hello(secret, &hello).unwrap();
            let told = Hello { errand: Errand::Begin, dialled: spot(1), identity: identity_of(2) };
            assert_eq!(heard, told);
            let (verdict, session, server_is) =
                client.verdict(&server.verdict(Verdict::Welcome, None, &identity_of(1))).unwrap();
            assert_eq!((verdict, server_is), (Verdict::Welcome, identity_of(1)));
            assert!(session == server.session() && session.name() == client.name());
            assert!(client.into_channel().is_none() && server.into_channel().is_none());
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
        let (_, challenge) = begin(Some(&a));
        let (mut client, hello) = ask(Some(&a), false, Goal::Begin, &challenge);
        // A client that does not know the secret, says that it has none, or sends back what it
        // received.
        for theirs in [Some(&b), None] {
            let (mut server, other) = begin(theirs);
            let (_, hello) = ask(theirs, false, Goal::Begin, &other);
            server.hello(theirs, &hello).unwrap();
            let frame = server.verdict(Verdict::Welcome, None, &identity_of(1));
            assert_eq!(client.verdict(&frame), Err(HandshakeError::Proof));
        }
        let mut mirrored = [0; VERDICT_LEN];
        let len = VERDICT_LEN.min(HELLO_LEN) - 1;
        mirrored[1..=len].copy_from_slice(&hello[1..=len]);
        assert_eq!(client.verdict(&mirrored), Err(HandshakeError::Proof));
    }

    #[test]
    fn every_byte_of_a_frame_is_under_the_secret() {
        let secret = secret(7);
        let (mut server, challenge) = begin(Some(&secret));
        let (mut client, hello) = ask(Some(&secret), false, Goal::Begin, &challenge);
        for at in 0..HELLO_LEN {
            let mut spoiled = hello;
            spoiled[at] ^= 1;
            assert_eq!(server.hello(Some(&secret), &spoiled), Err(HandshakeError::Proof), "{at}");
        }
        // What the server asked for, too: a challenge that was changed on the way.
        for at in MAGIC.len()..CHALLENGE_LEN {
            let mut spoiled = challenge;
            spoiled[at] ^= 2;
            let (_, hello) = ask(Some(&secret), false, Goal::Begin, &spoiled);
            assert_eq!(server.hello(Some(&secret), &hello), Err(HandshakeError::Proof), "{at}");
        }
        // A recorded hello is good for its own connection only.
        let (mut later, _) = Server::begin(Some(&secret), false, [9; 32], [3; 32]);
        assert_eq!(later.hello(Some(&secret), &hello), Err(HandshakeError::Proof));
        server.hello(Some(&secret), &hello).unwrap();
        let verdict = server.verdict(Verdict::Welcome, None, &identity_of(1));
        for at in 0..VERDICT_LEN {
            let (mut client, hello) = ask(Some(&secret), false, Goal::Begin, &challenge);
            let (mut server, _) = begin(Some(&secret));
            server.hello(Some(&secret), &hello).unwrap();
            let mut verdict = server.verdict(Verdict::Welcome, None, &identity_of(1));
            verdict[at] ^= 1;
            assert!(client.verdict(&verdict).is_err(), "{at}");
        }
        assert!(client.verdict(&verdict).is_ok());
    }

    #[test]
    fn a_session_goes_on_for_who_was_there() {
        let secret = secret(7);
        for secret in [None, Some(&secret)] {
            let (mut server, challenge) = begin(secret);
            let (mut client, hello) = ask(secret, false, Goal::Begin, &challenge);
            server.hello(secret, &hello).unwrap();
            let frame = server.verdict(Verdict::Welcome, None, &identity_of(1));
            let (_, session, _) = client.verdict(&frame).unwrap();
            // A client that knows only its name has another key.
            let guessed = Session { key: [0; 32], ..session };
            for (known, good) in [(session, true), (guessed, false)] {
                let (mut server, challenge) = begin(secret);
                let (mut client, hello) = ask(secret, false, Goal::Resume(known), &challenge);
                let heard = server.hello(secret, &hello).unwrap();
                assert_eq!(heard.errand, Errand::Resume(session.name()));
                assert_eq!(server.resumes(&session), good);
                let frame = server.verdict(Verdict::Resumed, Some(&session), &identity_of(1));
                match client.verdict(&frame) {
                    Ok((Verdict::Resumed, went_on, _)) => assert!(good && went_on == session),
                    other => assert!(!good, "{other:?}"),
                }
            }
        }
    }

    #[test]
    fn who_was_there_before_proves_it() {
        let secret = secret(7);
        for secret in [None, Some(&secret)] {
            let (mut server, challenge) = begin(secret);
            let (mut client, hello) = ask(secret, false, Goal::Begin, &challenge);
            server.hello(secret, &hello).unwrap();
            let (_, session, _) =
                client.verdict(&server.verdict(Verdict::Welcome, None, &identity_of(1))).unwrap();
            assert!(!client.is_known());
            let guessed = Session { key: [0; 32], ..session };
            for (ours, theirs) in [
                (session, Some(session)),
                (guessed, None),
                (session, None),
                (session, Some(guessed)),
            ] {
                let (mut server, challenge) = begin(secret);
                let (mut client, hello) = ask(secret, false, Goal::Again(ours), &challenge);
                assert_eq!(server.hello(secret, &hello).unwrap().errand, Errand::Begin);
                assert_eq!(server.resumes(&session), ours == session);
                // A proof is good for all that it was said with, and for nothing else.
                if secret.is_none() {
                    for at in 1 + NONCE..HELLO_LEN - OVERHEAD + NONCE {
                        let (mut other, mut spoiled) = (begin(None).0, hello);
                        spoiled[at] ^= 1;
                        let heard = other.hello(None, &spoiled);
                        assert!(heard.is_err() || !other.resumes(&session), "{at}");
                    }
                    let (mut later, _) = Server::begin(None, false, [9; 32], [3; 32]);
                    later.hello(None, &hello).unwrap();
                    assert!(!later.resumes(&session), "on another connection");
                }
                let frame = server.verdict(Verdict::Welcome, theirs.as_ref(), &identity_of(1));
                let (verdict, next, _) = client.verdict(&frame).unwrap();
                assert_eq!(verdict, Verdict::Welcome);
                assert!(next.key == session.key && next.name == client.name());
                assert_eq!(client.is_known(), ours == session && theirs == Some(session));
                if secret.is_none() {
                    for at in 1 + NONCE..VERDICT_LEN - OVERHEAD + NONCE {
                        let (mut client, _) = ask(None, false, Goal::Again(ours), &challenge);
                        let mut spoiled = frame;
                        spoiled[at] ^= 1;
                        assert!(client.verdict(&spoiled).is_err() || !client.is_known(), "{at}");
                    }
                }
            }
        }
    }

    #[test]
    fn packets_are_encrypted_where_either_side_wants_that() {
        let secret = secret(7);
        for (ours, theirs) in [(true, false), (false, true), (true, true), (false, false)] {
            let (mut server, challenge) = Server::begin(Some(&secret), theirs, [1; 32], [3; 32]);
            let (mut client, hello) = ask(Some(&secret), ours, Goal::Begin, &challenge);
            server.hello(Some(&secret), &hello).unwrap();
            client.verdict(&server.verdict(Verdict::Welcome, None, &identity_of(1))).unwrap();
            match (client.into_channel(), server.into_channel()) {
                (Some(mut ours), Some(mut theirs)) => {
                    let (mut record, mut text) = (Vec::new(), [0; petasos_noise::RECORD]);
                    ours.seal(b"a packet", &mut record);
                    assert_eq!(theirs.open(&record, &mut text), Ok(8));
                }
                (None, None) => assert!(!ours && !theirs),
                _ => panic!("they do not agree"),
            }
        }
    }
}
