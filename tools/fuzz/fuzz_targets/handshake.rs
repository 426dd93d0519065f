//! The handshake over TCP, from both sides, with a peer that may know the secret: then its messages
//! are authentic, whatever they say. And the records that follow, from a peer that does not know
//! it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_fabric::{Address, Incarnation};
use petasos_fuzz::Cut;
use petasos_noise::{Channel, Handshake, NotAuthentic, OVERHEAD, Psk, RECORD, ResponderAddress};
use petasos_tcp::{
    Secret,
    handshake::{
        CHALLENGE_LEN, Client, Goal, HELLO_LEN, HandshakeError, Identity, Server, VERDICT_LEN,
        Verdict,
    },
};

const KEY: [u8; 32] = [7; 32];

fuzz_target!(|data: &[u8]| {
    let mut cut = Cut(data);
    let choice = cut.u8();
    let secret = Secret::new(KEY.to_vec()).expect("a secret");
    let secret = (choice & 1 != 0).then_some(&secret);
    let known = choice & 2 != 0;
    petasos_fuzz::bounded(128 << 10, || match choice & 12 {
        0 => hello(secret, known, cut),
        4 => verdict(secret, known, cut),
        _ => records(known, cut),
    });
});

fn own() -> Identity {
    let address = Address::parse("tcp://127.0.0.1:4040").expect("an address");
    Identity { address, incarnation: Incarnation::new(9).expect("not zero") }
}

fn spot() -> ResponderAddress {
    ResponderAddress::of(([10, 0, 0, 1], 4040).into())
}

fn frame<const N: usize>(cut: &mut Cut<'_>) -> [u8; N] {
    let mut out = [0; N];
    let bytes = cut.bytes(N);
    out[..bytes.len()].copy_from_slice(bytes);
    out
}

fn psk() -> Psk {
    Psk::new("petasos tcp", &KEY)
}

fn prologue(challenge: &[u8], wishes: u8) -> Vec<u8> {
    [challenge, &[wishes]].concat()
}

/// A server gets a hello.
fn hello(secret: Option<&Secret>, known: bool, mut cut: Cut<'_>) {
    let (mut server, challenge) = Server::begin(secret, false, [1; 32], [3; 32]);
    let mut hello: [u8; HELLO_LEN] = frame(&mut cut);
    let mut good = secret.is_none() && hello[HELLO_LEN - 16..] == [0; 16];
    if known && secret.is_some() {
        let said: [u8; HELLO_LEN - 1 - OVERHEAD] = std::array::from_fn(|at| hello[1 + at]);
        let prologue = prologue(&challenge, hello[0]);
        Handshake::initiator(&psk(), &prologue).write(&said, &mut hello[1..]);
        good = true;
    }
    match server.hello(secret, &hello) {
        Ok(heard) => {
            assert!(good, "a secret was guessed");
            assert_eq!(heard.identity.address.scheme(), "tcp");
            let verdict = server.verdict(Verdict::Welcome, None, &own());
            assert_eq!(verdict[0], 0);
            let encrypted = secret.is_some() && hello[0] & 2 != 0;
            assert_eq!(server.into_channel().is_some(), encrypted);
        }
        Err(error) => {
            assert_eq!(error == HandshakeError::Proof, !good);
            let refused = server.verdict(Verdict::Refused, None, &own());
            assert!(refused[1..].iter().all(|byte| *byte == 0), "a stranger learns nothing");
        }
    }
}

/// A client gets a challenge and a verdict.
fn verdict(secret: Option<&Secret>, known: bool, mut cut: Cut<'_>) {
    let (_, own_challenge) = Server::begin(secret, false, [1; 32], [3; 32]);
    let challenge: [u8; CHALLENGE_LEN] = match cut.u8() {
        0 => frame(&mut cut),
        _ => own_challenge,
    };
    let (nonce, goal) = ([2; 32], Goal::Begin);
    let begun = Client::begin(secret, false, nonce, &own(), goal, spot(), &challenge);
    let Ok((mut client, hello)) = begun else { return };
    let mut verdict: [u8; VERDICT_LEN] = frame(&mut cut);
    let mut good = secret.is_none() && verdict[VERDICT_LEN - 16..] == [0; 16];
    if known && secret.is_some() {
        let mut server = Handshake::responder(&psk(), &prologue(&challenge, hello[0]));
        let mut heard = [0; HELLO_LEN - 1 - OVERHEAD];
        server.read(&hello[1..], &mut heard).expect("of a peer that knows the secret");
        let said: [u8; VERDICT_LEN - 1 - OVERHEAD] = std::array::from_fn(|at| verdict[1 + at]);
        server.write(&said, &mut verdict[1..]);
        good = true;
    }
    match client.verdict(&verdict) {
        Ok((verdict, _, identity)) => {
            assert!(good && verdict != Verdict::Refused);
            assert_eq!(identity.address.scheme(), "tcp");
        }
        Err(HandshakeError::Refused) => assert_ne!(verdict[0], 0),
        Err(error) => assert_eq!(error == HandshakeError::Proof, !good),
    }
}

/// What follows a good handshake: forged records, before or behind one that the other
/// side made.
fn records(first: bool, cut: Cut<'_>) {
    let (mut a, mut b) = (Handshake::initiator(&psk(), b""), Handshake::responder(&psk(), b""));
    let mut message = [0; OVERHEAD];
    a.write(&[], &mut message);
    b.read(&message, &mut []).expect("the other side's");
    b.write(&[], &mut message);
    a.read(&message, &mut []).expect("the other side's");
    let (mut a, mut b) = (a.into_channel(), b.into_channel());
    let mut stream = Vec::new();
    if first {
        a.seal(b"good", &mut stream);
    }
    let good = stream.len();
    stream.extend_from_slice(cut.0);
    let (mut at, mut text) = (0, vec![0; RECORD]);
    loop {
        match Channel::whole(&stream[at..]) {
            Ok(None) => return,
            Ok(Some(len)) => match b.open(&stream[at..at + len], &mut text) {
                Ok(4) => assert!(at + len == good, "a record was forged"),
                Ok(len) => panic!("a text of {len} bytes"),
                Err(NotAuthentic) => return assert!(at >= good),
            },
            Err(NotAuthentic) => return assert!(at >= good),
        }
        at = good;
    }
}
