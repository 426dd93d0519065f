//! Another user of the machine listens where a daemon looks for the head, or a rank for its daemon,
//! and passes on what each says to the other: it is let in nowhere, reads nothing of the job, and
//! no word of its own is heard.

use crate::{
    common::{Place, wait},
    outsiders::{OfUser, of_user, open_place},
    private::{NOBODY, USER, answer, greeting, ports_of, waits_for_a_word},
    text,
};
use petasos_noise::{Handshake, Psk, ResponderAddress};
use petasos_testing::{is_root, role, skip};
use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::{fs::chown, process::CommandExt},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

const FOUND_OUT: &str = "relay::a_relay_between_daemons_is_found_out";
const REFUSED: &str = "relay::a_relay_to_the_port_for_clients_is_refused";

/// In the environment of ranks, which the head tells the daemons: it is not for others.
const MARK: &str = "of this user alone";
/// What the head says in a handshake: protocol and nonce, then node and verdict, encrypted.
const FIRST: usize = 8 + 32;
const HEAD_SAYS: usize = FIRST + 5 + petasos_noise::OVERHEAD;
/// What the other daemon says: two nodes and a place, encrypted.
const HELLO: usize = 4 + 4 + ResponderAddress::LEN;
const DAEMON_SAYS: usize = HELLO + petasos_noise::OVERHEAD;
/// A rank says it, where there is a job.
const RUNS: &str = "a rank runs";

/// What the relay does with what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relay {
    Passes,
    /// Passes it on, but for this byte of what the head says.
    ChangesHead(usize),
    /// But for this one of what the other daemon says.
    ChangesDaemon(usize),
    /// Holds the connection, and neither passes nor says anything.
    Keeps,
}

impl Relay {
    /// As a word for the process that does it.
    fn word(self) -> String {
        match self {
            Relay::Passes => "passes".to_owned(),
            Relay::ChangesHead(at) => format!("head:{at}"),
            Relay::ChangesDaemon(at) => format!("daemon:{at}"),
            Relay::Keeps => "keeps".to_owned(),
        }
    }

    fn of(word: &str) -> Relay {
        match word.split_once(':') {
            Some(("head", at)) => Relay::ChangesHead(at.parse().unwrap()),
            Some((_, at)) => Relay::ChangesDaemon(at.parse().unwrap()),
            None if word == "keeps" => Relay::Keeps,
            None => Relay::Passes,
        }
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap()
}

/// What passed on one connection: from the peer that made it, and to it.
type Passed = [Arc<Mutex<Vec<u8>>>; 2];

/// Passes bytes on, and keeps them; the one at `change` becomes another one.
fn pass(mut from: TcpStream, mut to: TcpStream, change: Option<usize>, heard: &Mutex<Vec<u8>>) {
    let mut bytes = [0; 65_536];
    while let Ok(count) = from.read(&mut bytes) {
        let begin = heard.lock().unwrap().len();
        heard.lock().unwrap().extend(&bytes[..count]);
        if let Some(byte) = change.and_then(|at| bytes[..count].get_mut(at.checked_sub(begin)?)) {
            *byte ^= 1;
        }
        if count == 0 {
            let _ = to.shutdown(Shutdown::Write);
            return;
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
}

/// Listens, and passes on what comes to the port that a file names then, until standard input ends:
/// gives all that passed.
fn relays() -> Vec<[Vec<u8>; 2]> {
    let relay = Relay::of(&variable("RELAY"));
    let any: [SocketAddr; 2] = ["[::]:0".parse().unwrap(), "0.0.0.0:0".parse().unwrap()];
    let listener = TcpListener::bind(&any[..]).unwrap();
    println!("\nat {}", listener.local_addr().unwrap().port());
    let all = Arc::new(Mutex::new(Vec::<Passed>::new()));
    let known = Arc::clone(&all);
    thread::spawn(move || {
        let mut kept = Vec::new();
        for client in listener.incoming().map_while(Result::ok) {
            let passed = Passed::default();
            known.lock().unwrap().push(passed.clone());
            if relay == Relay::Keeps {
                kept.push(client);
                continue;
            }
            let port: u16 = fs::read_to_string(variable("TOLD")).unwrap().parse().unwrap();
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let too = (client.try_clone().unwrap(), server.try_clone().unwrap());
            let [there, back] = passed;
            let (up, down) = match relay {
                Relay::ChangesDaemon(at) => (Some(at), None),
                Relay::ChangesHead(at) => (None, Some(at)),
                Relay::Passes | Relay::Keeps => (None, None),
            };
            thread::spawn(move || pass(client, server, up, &there));
            thread::spawn(move || pass(too.1, too.0, down, &back));
        }
    });
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let all = all.lock().unwrap();
    all.iter().map(|passed| passed.each_ref().map(|one| one.lock().unwrap().clone())).collect()
}

/// The relay between two daemons.
fn relays_daemons() {
    let passes = Relay::of(&variable("RELAY")) != Relay::Keeps;
    let all = relays();
    assert!(!all.is_empty(), "no daemon came");
    for [there, back] in &all {
        // Nothing follows the handshake, on either side; and each took part in it.
        assert!(there.len() <= DAEMON_SAYS && back.len() <= HEAD_SAYS, "it was let in: {all:?}");
        assert!(!passes || back.len() >= FIRST, "no handshake was passed on");
        let has = |said: &[u8]| said.windows(MARK.len()).any(|part| part == MARK.as_bytes());
        assert!(!has(there) && !has(back), "it reads what is of the job");
    }
    println!("\npassed {}", all.len());
}

/// The start command of the other host: it has the daemon there look for the head at the port of
/// the relay, as where one of the head's addresses is another machine's, too.
fn starts_a_daemon() -> ! {
    let mut len = [0; 4];
    io::stdin().read_exact(&mut len).unwrap();
    let mut told = vec![0; u32::from_le_bytes(len) as usize];
    io::stdin().read_exact(&mut told).unwrap();
    let local = b"127.0.0.1:";
    let at = told.windows(local.len()).position(|part| part == local).unwrap() + local.len();
    // As all have that a system gives.
    let port = told[at..at + 5].to_vec();
    assert!(port.iter().all(u8::is_ascii_digit), "{port:?}");
    fs::write(variable("TOLD"), &port).unwrap();
    let relay = variable("RELAY_PORT");
    assert_eq!(relay.len(), port.len());
    let (old, new) = ([b":", &port[..]].concat(), [b":", relay.as_bytes()].concat());
    let all = (0..told.len()).filter(|at| told[*at..].starts_with(&old)).collect::<Vec<_>>();
    let left = usize::from(variable("LEAVES") == "one");
    for at in &all[..all.len() - left] {
        told[*at..*at + new.len()].copy_from_slice(&new);
    }
    let words: Vec<String> = std::env::args().collect();
    let [.., program, word] = &words[..] else { panic!("{words:?}") };
    let mut command = Command::new(program);
    let mut daemon = command.arg(word).stdin(Stdio::piped()).spawn().unwrap();
    let mut input = daemon.stdin.take().unwrap();
    input.write_all(&[&len[..], &told].concat()).unwrap();
    // It ends with that, as this one.
    thread::spawn(move || io::copy(&mut io::stdin(), &mut input));
    std::process::exit(daemon.wait().unwrap().code().unwrap_or(1));
}

/// The other user's process, which runs the test `name` in a role; it lives until its input ends.
struct Stranger {
    child: Child,
    lines: Box<dyn Iterator<Item = String>>,
}

impl Stranger {
    /// Also gives the port where it listens.
    fn start(mut command: Command, relay: Relay, place: &Place) -> (Stranger, String) {
        command.env("RELAY", relay.word()).env("TOLD", place.path("told/port"));
        command.current_dir("/").uid(NOBODY).gid(NOBODY);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = Box::new(lines.map_while(Result::ok));
        let port = lines.find_map(|line| Some(line.strip_prefix("at ")?.to_owned())).unwrap();
        (Stranger { child, lines }, port)
    }

    /// What it says at last; all that it asserts holds.
    fn ends(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let said = self.lines.collect();
        let status = wait(&mut self.child, Duration::from_secs(60));
        let mut errors = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(status.success(), "{said:?} {errors}");
        said
    }
}

fn run_as(place: &Place, name: &str, role: &str) -> Command {
    let mut command = Command::new(place.path("ranks"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("PETASOS_TEST_ROLE", role);
    command
}

/// A job of two daemons with a relay between them, at all addresses of the head or at all but one.
/// Whether it went well, what was said, and how many connections came to the relay.
fn through(relay: Relay, leaves: &str) -> (bool, String, usize) {
    let (place, own) = open_place();
    fs::create_dir(place.path("told")).unwrap();
    chown(place.path("told"), Some(USER), Some(USER)).unwrap();
    let (stranger, port) = Stranger::start(run_as(&place, FOUND_OUT, "relays"), relay, &place);
    let start = format!(
        "env PETASOS_TEST_ROLE=starts RELAY_PORT={port} LEAVES={leaves} TOLD={} {} {FOUND_OUT} --exact --nocapture {{host}}",
        place.path("told/port").display(),
        own.display(),
    );
    let options = ["-n", "2", "--hosts", "localhost:1,x:1", "--remote-start", &start];
    let mut job = of_user(&place, FOUND_OUT, &options);
    let mut child = job.env("MARK", MARK).stdin(Stdio::null()).spawn().unwrap();
    // It does not wait for as long as a daemon may take to be there, which is a minute.
    wait(&mut child, Duration::from_secs(55));
    let output = child.wait_with_output().unwrap();
    let passed = stranger.ends();
    let passed = passed.iter().find_map(|line| line.strip_prefix("passed ")).unwrap();
    place.assert_clean();
    (output.status.success(), text(&output), passed.parse().unwrap())
}

#[test]
fn a_relay_between_daemons_is_found_out() {
    match role().as_deref() {
        Some("rank") => {
            assert_eq!(variable("MARK"), MARK);
            return println!("\n{RUNS}");
        }
        Some("starts") => starts_a_daemon(),
        Some("relays") => return relays_daemons(),
        _ => {}
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    let relayed = "it is not at the address that was dialled: the connection is relayed";
    let forged = "it does not know the job's secret";
    let cases = [
        (Relay::Passes, relayed),
        // The word on the protocol, the nonce, both halves of what the daemon says, and the
        // verdict.
        (Relay::ChangesHead(0), "it does not speak this version of the protocol"),
        (Relay::ChangesHead(8 + 20), forged),
        (Relay::ChangesDaemon(3), forged),
        (Relay::ChangesDaemon(32 + 12), forged),
        (Relay::ChangesHead(FIRST + 33), forged),
        (Relay::Keeps, "it does not answer within 5s"),
    ];
    for (relay, why) in cases {
        let (well, said, _) = through(relay, "none");
        assert!(!well && !said.contains(RUNS), "{relay:?}: {said}");
        let ends =
            ["the head node of the job cannot be reached: ", "x: no daemon was started there: "];
        for why in [why, ends[0], ends[1]] {
            assert!(said.contains(why), "{relay:?}: `{why}` is not in {said}");
        }
    }
    // Where another of its addresses leads to the head, that is found by it.
    for relay in [Relay::Passes, Relay::ChangesDaemon(50), Relay::Keeps] {
        let (well, said, passed) = through(relay, "one");
        assert!(well && said.matches(RUNS).count() == 2, "{relay:?}: {said}");
        assert!(passed > 0, "{relay:?}: the head has one address only");
    }
}

/// A rank is told a port that is the stranger's, and greets its daemon through that; which so
/// learns all that the rank knows of the job, and tries what that is worth. It also speaks with the
/// daemons themselves.
#[test]
fn a_relay_to_the_port_for_clients_is_refused() {
    match role().as_deref() {
        Some("rank") => return waits_for_a_word(),
        Some("greets") => return greets(),
        Some("relays") => return relays_a_client(),
        _ => {}
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    let options = ["-n", "2", "--hosts", "localhost:1,x:1", "--remote-start", "env X={host}"];
    let job = OfUser::start(REFUSED, &options);
    let ports: Vec<String> = ports_of(job.child.id()).iter().map(u16::to_string).collect();
    fs::create_dir(job.place.path("told")).unwrap();
    for directory in &job.directories {
        let pmix = fs::read_to_string(directory.join("pmix41")).unwrap();
        let port = pmix.rsplit_once(':').unwrap().1;
        fs::write(job.place.path("told/port"), port).unwrap();
        let mut relay = job.visits(REFUSED, NOBODY, "relays", directory);
        relay.env("PORTS", ports.join(" "));
        let (stranger, port) = Stranger::start(relay, Relay::Passes, &job.place);
        let mut greets = job.visits(REFUSED, USER, "greets", directory);
        let said = greets.env("RELAY_PORT", port).output().unwrap();
        assert!(said.status.success(), "{}", text(&said));
        stranger.ends();
    }
    let said = job.ends_well();
    for why in ["refused a client: it is another user's", "it does not know the job's secret"] {
        assert!(said.contains(why), "`{why}` is not in {said}");
    }
}

/// Of the rank's user.
fn greets() {
    let said = |port: &str| {
        let port: u16 = variable(port).parse().unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        answer(stream, &greeting(&variable("SPACE"), 0))
    };
    assert!(said("RELAY_PORT").is_empty(), "the relay is taken for the rank");
    // The same, said by itself: it is told that this rank is there already.
    assert_eq!(said("PMIX_PORT").len(), 8);
}

/// Of the other user.
fn relays_a_client() {
    let all = relays();
    let space = variable("SPACE").into_bytes();
    let heard = |there: &[u8]| there.windows(space.len()).any(|part| part == space);
    assert!(all.iter().any(|[there, _]| heard(there)), "no rank was heard");
    assert!(all.iter().all(|[_, back]| back.is_empty()), "it is answered: {all:?}");
    let connect = |port: u16| TcpStream::connect(("127.0.0.1", port)).unwrap();
    let port = variable("PMIX_PORT").parse().unwrap();
    for (space, rank) in [("SPACE", 0), ("SPACE", 1), ("SPACE", 2), ("JOB_NAME", 1)] {
        let said = answer(connect(port), &greeting(&variable(space), rank));
        assert!(said.is_empty(), "rank {rank} of {space}: it is let in, {said:?}");
    }
    let ports = variable("PORTS");
    let ports = ports.split(' ').map(|port| port.parse().unwrap());
    let daemons: Vec<u16> = ports.filter(|port| first_of(*port).is_some()).collect();
    assert!(!daemons.is_empty(), "no daemon listens for others");
    for port in &daemons {
        for (node, secret) in [(0, [0; 32]), (1, *space.first_chunk().unwrap())] {
            claims(*port, node, &secret);
        }
    }
    // What a daemon says to a peer that connects, another daemon receives as if that were the
    // answer.
    let pair = [daemons[0], *daemons.last().unwrap()].map(|port| first_of(port).unwrap());
    let [(one, of_one), (other, of_other)] = pair;
    assert!(answer(one, &of_other).is_empty() && answer(other, &of_one).is_empty());
}

/// What a daemon says first, if it is one that listens there.
fn first_of(port: u16) -> Option<(TcpStream, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut first = vec![0; FIRST];
    stream.read_exact(&mut first).ok()?;
    Some((stream, first))
}

/// Says to be the other one of two daemons, by a guess at the secret.
fn claims(port: u16, node: u32, secret: &[u8; 32]) {
    let (stream, first) = first_of(port).unwrap();
    let mut shake = Handshake::initiator(&Psk::new("petasos pmix daemons", secret), &first);
    let spot = ResponderAddress::of(stream.peer_addr().unwrap()).to_bytes();
    let hello = [&node.to_le_bytes()[..], &(1 - node).to_le_bytes(), &spot].concat();
    let mut message = [0; DAEMON_SAYS];
    shake.write(&hello, &mut message);
    let said = answer(stream, &message);
    assert!(said.is_empty(), "node {node}: it is let in, {said:?}");
}
