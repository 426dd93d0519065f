//! Another user of the machine listens where a server of this user was, and passes all on to a
//! second server of the same secret: the client finds that out, and nothing is done there in its
//! name.

use crate::{
    claims::{MARK, Users},
    common::{Ran, wait},
    export::Export,
};
use petasos_testing::{is_root, role, skip};
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

const NAME: &str = "relay::a_relay_to_another_server_of_the_same_secret_is_found_out";

/// Passes bytes on, and keeps them.
fn pass(mut from: TcpStream, mut to: TcpStream, heard: &Mutex<Vec<u8>>) -> io::Result<()> {
    let mut bytes = [0; 65_536];
    loop {
        let count = from.read(&mut bytes)?;
        if count == 0 {
            return to.shutdown(std::net::Shutdown::Write);
        }
        heard.lock().unwrap().extend(&bytes[..count]);
        to.write_all(&bytes[..count])?;
    }
}

/// Listens, and passes on what comes to a server, and what that answers, until standard input ends.
fn relays() {
    let server: SocketAddr = std::env::var("SERVER").unwrap().parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!("\nat {}", listener.local_addr().unwrap());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&heard);
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect(server).unwrap();
            let (client_too, server_too) =
                (client.try_clone().unwrap(), server.try_clone().unwrap());
            let (there, back) = (Arc::clone(&all), Arc::clone(&all));
            thread::spawn(move || pass(client, server, &there));
            thread::spawn(move || pass(server_too, client_too, &back));
        }
    });
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let heard = heard.lock().unwrap();
    assert!(heard.len() > 64, "no handshake was passed on");
    assert!(!heard.windows(MARK.len()).any(|part| part == MARK), "it reads what is put");
}

#[test]
fn a_relay_to_another_server_of_the_same_secret_is_found_out() {
    if role().as_deref() == Some("relays") {
        return relays();
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    let users = Users::new();
    let entry = ["--secret", "secret"];
    let listen = ["forward", "serve", "exp", "--listen", "tcp://127.0.0.1:0"];
    let serve = users.command(&[&listen[..], &entry].concat());
    let mut export = Export::of(serve, users.place.path("exp"));
    let mut relay = users.other_user(NAME, "relays", &export.url).spawn().unwrap();
    let mut said = BufReader::new(relay.stdout.take().unwrap()).lines().map_while(Result::ok);
    let there = said.find_map(|line| Some(line.strip_prefix("at ")?.to_owned())).unwrap();
    let run = |words: &[&str]| {
        let words = [&["forward"][..], words, &entry].concat();
        Ran::of(&users.command(&words).output().unwrap())
    };
    let through = format!("tcp://{there}//");
    for words in [&["put", "-q", "--retry", "0s", "from", &through][..], &["ls", &through]] {
        let ran = run(words);
        assert_ne!(ran.code, Some(0), "{words:?}: it takes the relay for its server");
        ran.says("refused");
    }
    let count = || fs::read_dir(users.place.path("exp")).unwrap().flatten();
    assert!(!count().any(|entry| entry.file_name() == "from"), "something was put");
    // By its own address the server is there, for the same client.
    run(&["put", "-q", "from", &format!("{}//", export.url)]).assert(0);
    assert!(count().any(|entry| entry.file_name() == "from"));
    drop(relay.stdin.take());
    said.for_each(drop);
    assert!(wait(&mut relay, Duration::from_secs(30)).success());
    assert_eq!(export.interrupt(), Some(0));
}
