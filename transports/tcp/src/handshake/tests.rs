//! Both sides of the handshake, and a process in between.

use super::*;
use petasos_fabric::Incarnation;

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
fn sides_that_know_the_secret_identify_themselves() {
    let secret = secret(7);
    for secret in [None, Some(&secret)] {
        let (mut server, challenge) = begin(secret);
        let (mut client, hello) = ask(secret, false, Goal::Begin, &challenge);
        let heard = server.hello(secret, &hello).unwrap();
        let told = Hello { request: Request::Begin, dialled: spot(1), identity: identity_of(2) };
        assert_eq!(heard, told);
        let (verdict, session, server_is) =
            client.verdict(&server.verdict(Verdict::Welcome, None, &identity_of(1))).unwrap();
        assert_eq!((verdict, server_is), (Verdict::Welcome, identity_of(1)));
        assert!(session == server.session() && session.name() == client.name());
        assert!(client.into_channel().is_none() && server.into_channel().is_none());
    }
}

#[test]
fn a_client_without_the_secret_is_refused_and_learns_nothing() {
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
fn a_session_goes_on_for_the_client_that_had_it() {
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
            assert_eq!(heard.request, Request::Resume(session.name()));
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
fn a_process_proves_that_it_was_there_before() {
    let secret = secret(7);
    for secret in [None, Some(&secret)] {
        let (mut server, challenge) = begin(secret);
        let (mut client, hello) = ask(secret, false, Goal::Begin, &challenge);
        server.hello(secret, &hello).unwrap();
        let (_, session, _) =
            client.verdict(&server.verdict(Verdict::Welcome, None, &identity_of(1))).unwrap();
        assert!(!client.is_known());
        let guessed = Session { key: [0; 32], ..session };
        for (ours, theirs) in
            [(session, Some(session)), (guessed, None), (session, None), (session, Some(guessed))]
        {
            let (mut server, challenge) = begin(secret);
            let (mut client, hello) = ask(secret, false, Goal::Again(ours), &challenge);
            assert_eq!(server.hello(secret, &hello).unwrap().request, Request::Begin);
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
