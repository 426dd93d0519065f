//! The handshake over TCP, from both sides, by one who may know the secret: then the proof is
//! right, whatever is said.
#![no_main]

use hmac::{Hmac, Mac};
use libfuzzer_sys::fuzz_target;
use petasos_fabric::{Address, Incarnation};
use petasos_fuzz::Cut;
use petasos_tcp::{
    Secret,
    handshake::{
        CHALLENGE_LEN, Client, HELLO_LEN, HandshakeError, Identity, Server, VERDICT_LEN, Verdict,
    },
};
use sha2::Sha256;

const NONCE: usize = 32;
const PROOF: usize = 32;
const KEY: [u8; 32] = [7; 32];

fuzz_target!(|data: &[u8]| {
    let mut cut = Cut(data);
    let choice = cut.u8();
    let secret = Secret::new(KEY.to_vec()).expect("a secret");
    let (secret, key) = match choice & 1 {
        0 => (None, &[][..]),
        _ => (Some(&secret), &KEY[..]),
    };
    let proven = choice & 2 != 0;
    petasos_fuzz::bounded(4096, || match choice & 4 {
        0 => hello(secret, key, proven, cut),
        _ => verdict(secret, key, proven, cut),
    });
});

fn own() -> Identity {
    let address = Address::parse("tcp://127.0.0.1:4040").expect("an address");
    Identity { address, incarnation: Incarnation::new(9).expect("not zero") }
}

fn frame<const N: usize>(cut: &mut Cut<'_>) -> [u8; N] {
    let mut out = [0; N];
    let bytes = cut.bytes(N);
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

fn proof(key: &[u8], parts: [&[u8]; 4]) -> [u8; PROOF] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("any length will do");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// A server gets a hello.
fn hello(secret: Option<&Secret>, key: &[u8], proven: bool, mut cut: Cut<'_>) {
    let (mut server, challenge) = Server::begin([1; NONCE]);
    let nonce = &challenge[CHALLENGE_LEN - NONCE..];
    let mut hello: [u8; HELLO_LEN] = frame(&mut cut);
    let (said, place) = hello.split_at_mut(HELLO_LEN - PROOF);
    let right = proof(key, [b"petasos client", nonce, &said[..NONCE], &said[NONCE..]]);
    if proven {
        place.copy_from_slice(&right);
    }
    // A recorded proof may be right, too.
    let proven = *place == right;
    match server.hello(secret, &hello) {
        Ok((identity, _)) => {
            assert!(proven, "nobody guesses a proof");
            assert_eq!(identity.address.scheme(), "tcp");
        }
        Err(error) => assert_eq!(error == HandshakeError::Proof, !proven),
    }
    let refused = server.verdict(secret, Verdict::Refused, &own());
    assert!(refused[1..].iter().all(|byte| *byte == 0), "a stranger learns nothing");
}

/// A client gets a challenge and a verdict.
fn verdict(secret: Option<&Secret>, key: &[u8], proven: bool, mut cut: Cut<'_>) {
    let (_, good) = Server::begin([1; NONCE]);
    let challenge: [u8; CHALLENGE_LEN] = match cut.u8() {
        0 => frame(&mut cut),
        _ => good,
    };
    let Ok((client, hello)) = Client::begin(secret, [2; NONCE], &own(), None, &challenge) else {
        return;
    };
    let mut verdict: [u8; VERDICT_LEN] = frame(&mut cut);
    let (said, place) = verdict.split_at_mut(VERDICT_LEN - PROOF);
    let nonce = &challenge[CHALLENGE_LEN - NONCE..];
    let right = proof(key, [b"petasos server", nonce, &hello[..NONCE], said]);
    if proven {
        place.copy_from_slice(&right);
    }
    let proven = *place == right;
    match client.verdict(secret, &verdict) {
        Ok((verdict, identity)) => {
            assert!(proven && verdict != Verdict::Refused);
            assert_eq!(identity.address.scheme(), "tcp");
        }
        Err(HandshakeError::Refused) => assert_eq!(verdict[0], Verdict::Refused as u8),
        Err(error) => assert_eq!(error == HandshakeError::Proof, !proven),
    }
}
