//! The handshake of two daemons. They prove to each other that they know the job's secret, and that
//! each talks to the one it means, before either reads anything else of the other.
//!
//! ```text
//! listener → dialler   MAGIC, nonce
//! dialler → listener   first message of Noise: its node, the node that it means, where it dialled
//! listener → dialler   second message of Noise: verdict, its node
//! ```
//!
//! It is the pattern `NNpsk0` of the Noise protocol framework ([`petasos_noise`]): the pre-shared
//! key is the hash of the job's secret, so that the handshake is bound to the job, and the prologue
//! is the first frame. A message is valid for one connection, in one direction. The listener
//! refuses a dialler that means another node, or that dialled another address than the one at which
//! the connection came. So it detects an attacker between the two that relays their messages. The
//! dialler blocks, on a thread of its own, with a time limit. The listener never blocks
//! ([`Answering`]). The steps themselves know neither sockets nor time.

use hmac::{Hmac, Mac};
use petasos_noise::{Handshake, OVERHEAD, Psk, ResponderAddress};
use petasos_pmix::Node;
use sha2::Sha256;
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// The secret that all daemons of a job share.
pub(crate) type Secret = [u8; 32];

pub(crate) const MAGIC: [u8; 8] = *b"PETPMIX\x02";
/// Bytes in the two messages: two nodes and an address; a verdict and a node.
pub(crate) const HELLO: usize = 4 + 4 + ResponderAddress::LEN;
pub(crate) const VERDICT: usize = 1 + 4;
/// The dialler's message.
pub(crate) const MESSAGE: usize = HELLO + OVERHEAD;
/// How long the other side may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The verdicts.
const WELCOME: u8 = 0;
const OTHER_NODE: u8 = 1;
const ELSEWHERE: u8 = 2;

pub(crate) type Nonce = [u8; 32];

/// A secret for one purpose, derived from the secret of the daemons. It reveals no other derived
/// secret.
pub(crate) fn derived(secret: &Secret, purpose: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(purpose);
    mac.finalize().into_bytes().into()
}

/// The secret, as the handshake takes it.
pub(crate) fn psk(secret: &Secret) -> Psk {
    Psk::new("petasos pmix daemons", secret)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The dialler's side, which expects one node.
pub(crate) fn dial(
    stream: &mut TcpStream,
    secret: &Secret,
    me: Node,
    expected: Node,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let there = ResponderAddress::of_connection(stream.peer_addr()?, stream.local_addr()?);
    ask(stream, secret, me, expected, there).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let why = format!("it does not answer within {PATIENCE:?}");
            io::Error::new(io::ErrorKind::TimedOut, why)
        }
        _ => error,
    })
}

/// The listener's side, which takes the dialler's message whenever it comes.
#[derive(Debug)]
pub(crate) struct Answering([u8; MAGIC.len() + 32]);

impl Answering {
    /// Begins with a fresh nonce.
    pub(crate) fn begin(own: &Nonce) -> Answering {
        let mut first = [0; MAGIC.len() + 32];
        first[..MAGIC.len()].copy_from_slice(&MAGIC);
        first[MAGIC.len()..].copy_from_slice(own);
        Answering(first)
    }

    /// The first message.
    pub(crate) fn first(&self) -> &[u8] {
        &self.0
    }

    /// Takes the dialler's message, on a connection that came at `here`. Gives the answer, and the
    /// node of the dialler or the reason why it is refused.
    ///
    /// # Errors
    /// If the dialler does not know the secret. Then it gets no answer.
    pub(crate) fn hear(
        &self,
        secret: &Secret,
        me: Node,
        here: ResponderAddress,
        message: &[u8; MESSAGE],
    ) -> io::Result<([u8; VERDICT + OVERHEAD], io::Result<Node>)> {
        let mut said = [0; HELLO];
        let mut shake = Handshake::responder(&psk(secret), &self.0);
        let heard = shake.read(message, &mut said);
        heard.map_err(|_| refused("it does not know the job's secret"))?;
        let node = |at: usize| Node(u32::from_le_bytes(std::array::from_fn(|nth| said[at + nth])));
        let dialled = ResponderAddress::from_bytes(said.last_chunk().expect("its end"));
        let verdict = match (node(4) == me, dialled == here) {
            (true, true) => WELCOME,
            (false, _) => OTHER_NODE,
            (true, false) => ELSEWHERE,
        };
        let mut answer = [verdict; VERDICT];
        answer[1..].copy_from_slice(&me.0.to_le_bytes());
        let mut message = [0; VERDICT + OVERHEAD];
        shake.write(&answer, &mut message);
        Ok((message, check(verdict).map(|()| node(0))))
    }
}

/// The same on a blocking stream.
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn answer(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    me: Node,
    here: ResponderAddress,
    own: &Nonce,
) -> io::Result<Node> {
    let answering = Answering::begin(own);
    stream.write_all(answering.first())?;
    let mut message = [0; MESSAGE];
    stream.read_exact(&mut message)?;
    let (said, node) = answering.hear(secret, me, here, &message)?;
    stream.write_all(&said)?;
    node
}

/// The dialler's steps.
pub(crate) fn ask(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    me: Node,
    expected: Node,
    there: ResponderAddress,
) -> io::Result<()> {
    let mut first = [0; MAGIC.len() + 32];
    stream.read_exact(&mut first)?;
    if first[..MAGIC.len()] != MAGIC {
        return Err(refused("it does not speak this version of the protocol"));
    }
    let mut shake = Handshake::initiator(&psk(secret), &first);
    let (mut message, mut said) = ([0; HELLO + OVERHEAD], [0; HELLO]);
    said[..4].copy_from_slice(&me.0.to_le_bytes());
    said[4..8].copy_from_slice(&expected.0.to_le_bytes());
    said[8..].copy_from_slice(&there.to_bytes());
    shake.write(&said, &mut message);
    stream.write_all(&message)?;
    let (mut message, mut said) = ([0; VERDICT + OVERHEAD], [0; VERDICT]);
    stream.read_exact(&mut message)?;
    let heard = shake.read(&message, &mut said);
    heard.map_err(|_| refused("it does not know the job's secret"))?;
    check(said[0])?;
    match said[1..] == expected.0.to_le_bytes() {
        true => Ok(()),
        false => check(OTHER_NODE),
    }
}

fn check(verdict: u8) -> io::Result<()> {
    match verdict {
        WELCOME => Ok(()),
        OTHER_NODE => Err(refused("another node answers in place of the one that is meant")),
        ELSEWHERE => {
            Err(refused("it is not at the address that was dialled: the connection is relayed"))
        }
        _ => Err(refused("it speaks an unknown protocol")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_pmix::server::random;
    use std::{
        net::{Shutdown, TcpListener},
        thread,
    };

    fn shake(ours: Secret, theirs: Secret, expected: Node) -> (io::Result<Node>, io::Result<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dialler = thread::spawn(move || {
            dial(&mut TcpStream::connect(address).unwrap(), &ours, Node(7), expected)
        });
        let mut stream = listener.accept().unwrap().0;
        let heard = listen(&mut stream, &theirs, Node(3));
        drop(stream);
        (heard, dialler.join().unwrap())
    }

    fn listen(stream: &mut TcpStream, secret: &Secret, me: Node) -> io::Result<Node> {
        let here = ResponderAddress::of_connection(stream.local_addr()?, stream.peer_addr()?);
        answer(stream, secret, me, here, &random())
    }

    #[test]
    fn a_peer_with_the_secret_is_admitted() {
        let (heard, told) = shake([1; 32], [1; 32], Node(3));
        assert_eq!(heard.unwrap(), Node(7));
        told.unwrap();
    }

    #[test]
    fn a_peer_without_the_secret_is_refused_and_learns_nothing() {
        let (heard, told) = shake([1; 32], [2; 32], Node(3));
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(told.is_err());
    }

    #[test]
    fn another_node_is_not_the_one_that_was_dialled() {
        let (heard, told) = shake([1; 32], [1; 32], Node(4));
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(told.unwrap_err().to_string().contains("another node"));
    }

    /// An attacker listens at the supposed address of a daemon, and relays to it what comes.
    #[test]
    fn a_relay_between_two_daemons_is_detected() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (attacker, to) =
            (TcpListener::bind("127.0.0.1:0").unwrap(), listener.local_addr().unwrap());
        let at = attacker.local_addr().unwrap();
        let relay = thread::spawn(move || {
            let (client, server) = (attacker.accept().unwrap().0, TcpStream::connect(to).unwrap());
            let pass = |mut from: TcpStream, mut to: TcpStream| {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                })
            };
            let up = pass(client.try_clone().unwrap(), server.try_clone().unwrap());
            let down = pass(server, client);
            (up.join().unwrap(), down.join().unwrap())
        });
        let dialler = thread::spawn(move || {
            dial(&mut TcpStream::connect(at).unwrap(), &[1; 32], Node(7), Node(3))
        });
        let mut stream = listener.accept().unwrap().0;
        let heard = listen(&mut stream, &[1; 32], Node(3));
        drop(stream);
        let told = dialler.join().unwrap();
        relay.join().unwrap();
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(told.unwrap_err().to_string().contains("not at the address"));
    }

    #[test]
    fn a_mirrored_message_is_worth_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let liar = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(&[&MAGIC[..], &[9; 32]].concat()).unwrap();
            let mut said = [0; HELLO + OVERHEAD];
            stream.read_exact(&mut said).unwrap();
            stream.write_all(&said).unwrap();
        });
        let mut stream = TcpStream::connect(address).unwrap();
        assert!(dial(&mut stream, &[1; 32], Node(7), Node(3)).is_err());
        liar.join().unwrap();
    }
}
