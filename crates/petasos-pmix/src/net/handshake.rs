//! How two daemons prove to each other that they know the job's secret, before anything else of
//! theirs is looked at.
//!
//! ```text
//! listener → dialler   MAGIC, nonce
//! dialler → listener   nonce, number of its node, proof
//! listener → dialler   number of its node, proof
//! ```
//!
//! A proof is HMAC-SHA256, keyed with the secret, of the role, both nonces and the number; so it is
//! good for one connection, in one direction. Blocking, on a thread of its own, with a time limit.
//! The steps themselves ([`answer`], [`ask`]) know neither sockets nor time.

use crate::Node;
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

/// What all daemons of a job know.
pub(crate) type Secret = [u8; 32];

/// The two sides, in their proofs.
pub(crate) const DIALLER: &[u8] = b"petasos pmix dialler";
pub(crate) const LISTENER: &[u8] = b"petasos pmix listener";
pub(crate) const MAGIC: [u8; 8] = *b"PETPMIX\x01";
/// How long the other side may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) type Nonce = [u8; 32];

/// 32 bytes that nobody can guess.
///
/// # Panics
/// If the system has no random source, which Linux always has.
pub(crate) fn random() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the system's random source answers");
    bytes
}

/// A secret for one purpose, of what all daemons of a job know: whoever learns it knows no other.
pub(crate) fn derived(secret: &Secret, purpose: &[u8]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(purpose);
    mac.finalize().into_bytes().into()
}

pub(crate) fn proof(secret: &Secret, role: &[u8], nonces: [&Nonce; 2], node: Node) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    for part in [role, nonces[0], nonces[1], &node.0.to_le_bytes()] {
        mac.update(part);
    }
    mac
}

fn send_proof(
    stream: &mut impl Write,
    secret: &Secret,
    role: &[u8],
    nonces: [&Nonce; 2],
    me: Node,
) -> io::Result<()> {
    let mut said = me.0.to_le_bytes().to_vec();
    said.extend(proof(secret, role, nonces, me).finalize().into_bytes());
    stream.write_all(&said)
}

fn take_proof(
    stream: &mut impl Read,
    secret: &Secret,
    role: &[u8],
    nonces: [&Nonce; 2],
) -> io::Result<Node> {
    let (mut node, mut code) = ([0; 4], [0; 32]);
    stream.read_exact(&mut node)?;
    stream.read_exact(&mut code)?;
    let node = Node(u32::from_le_bytes(node));
    // In constant time.
    let checked = proof(secret, role, nonces, node).verify_slice(&code);
    checked.map_err(|_| refused("it does not know the job's secret"))?;
    Ok(node)
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

/// The side that was dialled: who it is that dials.
pub(crate) fn listen(stream: &mut TcpStream, secret: &Secret, me: Node) -> io::Result<Node> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    answer(stream, secret, me, &random())
}

/// The side that dials: who answers.
pub(crate) fn dial(stream: &mut TcpStream, secret: &Secret, me: Node) -> io::Result<Node> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    ask(stream, secret, me, &random())
}

/// The listener's part, with a nonce that nobody has seen.
pub(crate) fn answer(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    me: Node,
    own: &Nonce,
) -> io::Result<Node> {
    let mut theirs = [0; 32];
    stream.write_all(&[&MAGIC[..], own].concat())?;
    stream.read_exact(&mut theirs)?;
    let who = take_proof(stream, secret, DIALLER, [own, &theirs])?;
    send_proof(stream, secret, LISTENER, [own, &theirs], me)?;
    Ok(who)
}

/// The dialler's part.
pub(crate) fn ask(
    stream: &mut (impl Read + Write),
    secret: &Secret,
    me: Node,
    own: &Nonce,
) -> io::Result<Node> {
    let (mut magic, mut theirs) = ([0; 8], [0; 32]);
    stream.read_exact(&mut magic)?;
    if magic != MAGIC {
        return Err(refused("it does not speak this version of the protocol"));
    }
    stream.read_exact(&mut theirs)?;
    stream.write_all(own)?;
    send_proof(stream, secret, DIALLER, [&theirs, own], me)?;
    take_proof(stream, secret, LISTENER, [&theirs, own])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::TcpListener, thread};

    fn shake(ours: Secret, theirs: Secret) -> (io::Result<Node>, io::Result<Node>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let dialler =
            thread::spawn(move || dial(&mut TcpStream::connect(address).unwrap(), &ours, Node(7)));
        let mut stream = listener.accept().unwrap().0;
        let heard = listen(&mut stream, &theirs, Node(3));
        drop(stream);
        (heard, dialler.join().unwrap())
    }

    #[test]
    fn who_knows_the_secret_is_known() {
        let (heard, told) = shake([1; 32], [1; 32]);
        assert_eq!((heard.unwrap(), told.unwrap()), (Node(7), Node(3)));
    }

    #[test]
    fn who_does_not_is_refused_and_learns_nothing() {
        let (heard, told) = shake([1; 32], [2; 32]);
        assert_eq!(heard.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(told.is_err());
    }

    #[test]
    fn a_mirrored_proof_is_worth_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let liar = thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            stream.write_all(&[&MAGIC[..], &[9; 32]].concat()).unwrap();
            let mut said = [0; 68];
            stream.read_exact(&mut said).unwrap();
            stream.write_all(&said[32..]).unwrap();
        });
        let mut stream = TcpStream::connect(address).unwrap();
        assert!(dial(&mut stream, &[1; 32], Node(7)).is_err());
        liar.join().unwrap();
    }
}
