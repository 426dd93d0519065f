//! A process that claims to be a client that the server knows gets nothing of what that one writes,
//! and has nothing written in its place.

use crate::common::{Client, pattern, server};
use petasos::{
    fabric::{Address, Incarnation, Region},
    tcp::handshake::{self, CHALLENGE_LEN, Goal, Identity, VERDICT_LEN, Verdict},
};
use petasos_forward::server::ServerConfig;
use petasos_noise::ResponderAddress;
use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

fn socket(address: &Address) -> SocketAddr {
    address.rest().parse().unwrap()
}

/// Connects as this one: the verdict, the peer that answered, and the connection.
fn shake(to: SocketAddr, own: &Identity) -> (Verdict, Identity, TcpStream) {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut challenge, mut verdict) = ([0; CHALLENGE_LEN], [0; VERDICT_LEN]);
    stream.read_exact(&mut challenge).unwrap();
    let (goal, spot) = (Goal::Begin, ResponderAddress::of(to));
    let begun = handshake::Client::begin(None, false, [5; 32], own, goal, spot, &challenge);
    let (mut client, hello) = begun.unwrap();
    stream.write_all(&hello).unwrap();
    stream.read_exact(&mut verdict).unwrap();
    let (verdict, _, identity) = client.verdict(&verdict).unwrap();
    (verdict, identity, stream)
}

#[test]
fn an_impostor_gets_nothing_and_forges_nothing() {
    let (server, memory) = server(ServerConfig::default());
    let addresses = server.addresses();
    let address = addresses.iter().find(|address| address.scheme() == "tcp").unwrap();
    let client = Client::new(address);
    let (there, victim) = (socket(address), socket(client.engine.address()));
    let impostor = thread::spawn(move || {
        // Every process of this machine may ask the victim for its identity.
        let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let own = Address::parse(&format!("tcp://{place}")).unwrap();
        let own = Identity { address: own, incarnation: Incarnation::random() };
        let (_, it, _) = shake(victim, &own);
        let later = Identity { incarnation: Incarnation::random(), ..it.clone() };
        [it, later].map(|claimed| {
            let (verdict, _, stream) = shake(there, &claimed);
            (verdict, stream)
        })
    });
    while !impostor.is_finished() {
        client.wait(client.calls.status());
    }
    let tried = impostor.join().unwrap();
    for nth in 0..40 {
        let (path, data) = (format!("f{nth}"), pattern(600_000, nth));
        let file = client.open(&path);
        let lent = Region::from_vec(data.clone()).whole();
        assert_eq!(client.write_from(file, 0, lent).unwrap(), data.len() as u64);
        assert!(memory.contents(&path).unwrap() == data, "{path}");
    }
    for (verdict, mut stream) in tried {
        assert_eq!(verdict, Verdict::Claimed);
        let mut heard = Vec::new();
        let _ = stream.read_to_end(&mut heard);
        assert!(heard.is_empty(), "{} bytes were meant for another client", heard.len());
    }
}
