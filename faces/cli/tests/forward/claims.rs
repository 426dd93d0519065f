//! Another user of the machine claims to be a client that is connected, or its server, while files
//! are put: as the life that they are, and as another one. Nothing is forged, and no connection
//! ends. Then it takes the port of a client that has ended, and is not taken for that client.

use crate::{
    common::{Place, Ran, wait},
    export::Export,
};
use petasos::{
    Engine, EngineConfig, OpenOptions, SecretBytes,
    fabric::{Address, Incarnation},
    tcp::{
        Secret,
        handshake::{
            self, CHALLENGE_LEN, Goal, HELLO_LEN, Identity, Request, Server, VERDICT_LEN, Verdict,
        },
    },
};
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote},
    protocol::OpenFlags,
};
use petasos_noise::ResponderAddress;
use petasos_testing::{is_root, role, skip};
use std::{
    collections::HashMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::{
        fs::{PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    sync::{
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

const NAME: &str = "claims::another_user_forges_nothing_and_disconnects_nobody";
/// An ordinary user, which need not be in any list.
const USER: u32 = 61_234;
/// `nobody`, on Debian and most others.
const NOBODY: u32 = 65_534;
const SECRET: &str = "what only the user and the server know";
/// In everything that is put: it is not for others.
pub(crate) const MARK: &[u8] = b"of this user alone, ";
pub(crate) const FILES: usize = 24;
/// What the other user is told when the attacks are over, and when the client that stayed has
/// ended.
const STOP: &str = "stop";
const GONE: &str = "gone";
/// What it says when it has stopped, and when the claims of the ended client's life were refused.
const STOPPED: &str = "stopped";
const KEPT_OUT: &str = "kept out";
/// Attacks on one put: each with both addresses, and both lives.
const ROUNDS: usize = 2;

/// The listeners of a user over loopback, by what every user can read.
fn listeners(user: u32) -> Vec<SocketAddr> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    let listener = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, port) = fields[1].split_once(':').unwrap();
        let ip = u32::from_str_radix(ip, 16).unwrap().to_ne_bytes();
        let port = u16::from_str_radix(port, 16).unwrap();
        let its = fields[3] == "0A" && fields[7] == user.to_string();
        its.then(|| SocketAddr::from((Ipv4Addr::from(ip), port)))
    };
    table.lines().skip(1).filter_map(listener).collect()
}

/// Connects as this one; what was answered, if anything was.
fn shake(
    to: SocketAddr,
    own: &Identity,
    secret: Option<&Secret>,
) -> Option<(Verdict, Identity, TcpStream)> {
    let mut stream = TcpStream::connect(to).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let (mut challenge, mut verdict) = ([0; CHALLENGE_LEN], [0; VERDICT_LEN]);
    stream.read_exact(&mut challenge).ok()?;
    let (goal, spot) = (Goal::Begin, ResponderAddress::of(to));
    let begun = handshake::Client::begin(secret, false, [5; 32], own, goal, spot, &challenge);
    let (mut client, hello) = begun.ok()?;
    stream.write_all(&hello).ok()?;
    stream.read_exact(&mut verdict).ok()?;
    let (verdict, _, identity) = client.verdict(&verdict).ok()?;
    Some((verdict, identity, stream))
}

fn url(at: SocketAddr) -> Address {
    Address::parse(&format!("tcp://{at}")).unwrap()
}

/// What the other user knows, and what it got.
struct OtherUser {
    /// By this it learns which lives there are, which no other user can; it claims without it, and
    /// with it.
    knows: Option<Secret>,
    lives: HashMap<SocketAddr, Identity>,
    open: Vec<TcpStream>,
}

impl OtherUser {
    fn life(&mut self, at: SocketAddr) -> Option<Identity> {
        if !self.lives.contains_key(&at) {
            let place = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = url(place.local_addr().unwrap());
            let own = Identity { address, incarnation: Incarnation::random() };
            let (_, identity, _) = shake(at, &own, self.knows.as_ref())?;
            self.lives.insert(at, identity);
        }
        self.lives.get(&at).cloned()
    }

    /// Says at `at` that it is the one at `whose`, in that life and in another. How many were
    /// refused.
    fn claims(&mut self, at: SocketAddr, whose: SocketAddr) -> usize {
        let Some(it) = self.life(whose) else { return 0 };
        let later = Identity { incarnation: Incarnation::random(), ..it.clone() };
        let other = Secret::new("some other secret, which is wrong").unwrap();
        // Also as one that knows the secret: then it may be a peer, but none of those that live.
        let secrets = match &self.knows {
            None => vec![(None, true)],
            Some(knows) => {
                vec![(None, false), (Some(other), false), (Some(knows.clone()), true)]
            }
        };
        let mut refused = 0;
        for claimed in [it, later] {
            for (secret, may) in &secrets {
                match shake(at, &claimed, secret.as_ref()) {
                    // The one that was claimed may not have been there yet, or no more.
                    Some((Verdict::Welcome, _, stream)) => {
                        assert!(may, "it is let in without the secret");
                        self.open.push(stream);
                    }
                    Some((verdict, ..)) => {
                        assert_eq!(verdict, Verdict::Claimed);
                        refused += 1;
                    }
                    // Without the secret it is cut off, if there is a listener at all.
                    None if !may => {
                        refused += usize::from(TcpStream::connect(at).is_ok());
                    }
                    None => {}
                }
            }
        }
        refused
    }
}

/// Listens in the place of a client that has ended, says that it is that life of it, and vouches
/// for every connection.
fn impostor(place: SocketAddr, life: Identity) {
    let listener = TcpListener::bind(place).unwrap();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (mut server, challenge) = Server::begin(None, false, [1; 32], [3; 32]);
            let mut hello = [0; HELLO_LEN];
            if stream.write_all(&challenge).and_then(|()| stream.read_exact(&mut hello)).is_err() {
                continue;
            }
            let verdict = match server.hello(None, &hello).map(|hello| hello.request) {
                Ok(Request::Vouch(_)) => Verdict::Vouched,
                Ok(Request::Resume(_)) => Verdict::Resumed,
                _ => Verdict::Welcome,
            };
            let _ = stream.write_all(&server.verdict(verdict, None, &life));
            kept.push(stream);
        }
    });
}

/// Takes the port of the client that stayed, and claims its life, as one that does not know the
/// secret.
fn inherits(server: SocketAddr, place: SocketAddr, life: &Identity, secret: bool) {
    impostor(place, life.clone());
    let other = Secret::new("some other secret, which is wrong").unwrap();
    let secrets = if secret { vec![None, Some(other)] } else { vec![None] };
    for secret in secrets.iter().cycle().take(4) {
        let answer = shake(server, life, secret.as_ref()).map(|(verdict, ..)| verdict);
        assert_ne!(answer, Some(Verdict::Welcome), "it is taken for the client that has ended");
    }
    println!("\n{KEPT_OUT}");
}

/// Attacks all clients of a server, until it is told that this is over, and then those of a client
/// that has ended.
fn claims() {
    let place = |name: &str| -> SocketAddr { std::env::var(name).unwrap().parse().unwrap() };
    let (server, stays) = (place("SERVER"), place("STAYS"));
    let knows = std::env::var("KNOWS").ok().map(|text| Secret::new(text).unwrap());
    let all = if knows.is_some() { 6 } else { 2 };
    static OVER: AtomicBool = AtomicBool::new(false);
    let (told, words) = channel();
    // It ends with the process: another user that fails waits for nothing.
    thread::spawn(move || {
        for word in std::io::stdin().lines().map_while(Result::ok) {
            OVER.store(true, Relaxed);
            let _ = told.send(word);
        }
        OVER.store(true, Relaxed);
    });
    let mut other_user = OtherUser { knows, lives: HashMap::new(), open: Vec::new() };
    while !OVER.load(Relaxed) && other_user.open.len() < 64 {
        let others = listeners(USER).into_iter().filter(|at| *at != server);
        for client in others.chain([stays]) {
            let open = other_user.open.len();
            let refused = [(server, client), (client, server)]
                .map(|(at, whose)| other_user.claims(at, whose));
            assert!(client != stays || other_user.open.len() == open, "it is taken for another");
            if refused == [all; 2] {
                println!("\nrefused");
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    for mut stream in other_user.open {
        let mut heard = Vec::new();
        stream.set_nonblocking(true).unwrap();
        let _ = stream.read_to_end(&mut heard);
        assert!(!heard.windows(MARK.len()).any(|part| part == MARK), "it reads what is put");
    }
    println!("\n{STOPPED}");
    if words.iter().any(|word| word == GONE) {
        inherits(server, stays, &other_user.lives[&stays], other_user.knows.is_some());
    }
}

/// Programs and files of two users, in a directory that both reach.
pub(crate) struct Users {
    pub(crate) place: Place,
    petasos: PathBuf,
    own: PathBuf,
}

impl Users {
    pub(crate) fn new() -> Users {
        let place = Place::new();
        let readable = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        readable(place.directory.path());
        // Another process copies: what this one has open to be written, those that other tests
        // start just now have, too, and no process can run it.
        let copy = |from: &Path, name: &str| {
            let to = place.path(name);
            assert!(Command::new("cp").arg(from).arg(&to).status().unwrap().success());
            readable(&to);
            to
        };
        let petasos = copy(Path::new(env!("CARGO_BIN_EXE_petasos")), "petasos");
        let own = copy(&std::env::current_exe().unwrap(), "own");
        for directory in ["exp", "from"] {
            fs::create_dir(place.path(directory)).unwrap();
            chown(place.path(directory), Some(USER), Some(USER)).unwrap();
        }
        fs::write(place.path("secret"), SECRET).unwrap();
        fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
        for owned in ["secret", "tmp"] {
            chown(place.path(owned), Some(USER), Some(USER)).unwrap();
        }
        for nth in 0..FILES {
            fs::write(place.path(&format!("from/f{nth}")), contents(nth)).unwrap();
        }
        Users { place, petasos, own }
    }

    /// The command of the user that has the files.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let template = self.place.command(arguments);
        let mut command = Command::new(&self.petasos);
        command.args(arguments).stdin(Stdio::null()).current_dir(self.place.directory.path());
        for (name, value) in template.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.uid(USER).gid(USER);
        command
    }

    /// This program in the test `name`, as the other user.
    pub(crate) fn other_user(&self, name: &str, role: &str, server: &str) -> Command {
        let mut other_user = Command::new(&self.own);
        other_user.args([name, "--exact", "--nocapture", "--test-threads=1"]);
        other_user.env("PETASOS_TEST_ROLE", role).env("SERVER", at(server));
        other_user.current_dir("/").uid(NOBODY).gid(NOBODY);
        other_user.stdin(Stdio::piped()).stdout(Stdio::piped());
        other_user
    }
}

/// Where a server of TCP listens.
fn at(url: &str) -> &str {
    url.strip_prefix("tcp://").unwrap()
}

/// What is put as file number `nth`.
pub(crate) fn contents(nth: usize) -> Vec<u8> {
    let line = [MARK, format!("file {nth}\n").as_bytes()].concat();
    line.iter().copied().cycle().take(600_000).collect()
}

/// A client with one session, and one open file, all the time: it says where it can be reached once
/// it is connected, writes and reads, and is never cut off.
fn stays(url: &str, secret: bool, connected: &Sender<String>, over: &AtomicBool) -> usize {
    let mut options = OpenOptions::default();
    options.secret = secret.then(|| SecretBytes::new(SECRET.as_bytes().to_vec()));
    let endpoint = petasos::open("tcp://127.0.0.1:0", &options).unwrap();
    let at = endpoint.address().to_string();
    let engine = Engine::new(endpoint, EngineConfig::default());
    let address = Address::parse(url).unwrap();
    let remote = Remote::connect(&engine, &address, ConnectOptions::default());
    let remote = engine.block_on(remote).unwrap();
    let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
    let path = RelPath::parse(b"stays").unwrap();
    let file = engine.block_on(remote.open(&path, flags, 0o600)).unwrap();
    connected.send(at).unwrap();
    let mut done = 0;
    while !over.load(Relaxed) {
        let data = contents(done)[..1000].to_vec();
        engine.block_on(file.write_bytes(0, data.clone().into())).unwrap();
        assert_eq!(engine.block_on(file.read_bytes(0, 2000)).unwrap(), data);
        done += 1;
    }
    done
}

#[test]
fn another_user_forges_nothing_and_disconnects_nobody() {
    if role().as_deref() == Some("claims") {
        return claims();
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    for secret in [true, false] {
        let users = Users::new();
        let place = &users.place;
        let entry: &[&str] = if secret { &["--secret", "secret"] } else { &["--open"] };
        let listen = ["forward", "serve", "exp", "--listen", "tcp://127.0.0.1:0"];
        let serve = users.command(&[&listen[..], entry].concat());
        let mut export = Export::of(serve, place.path("exp"));
        let (over, there) = (AtomicBool::new(false), format!("{}//", export.url));
        let (connected, place_of) = channel();
        thread::scope(|scope| {
            let (url, over) = (&export.url, &over);
            let staying = scope.spawn(move || stays(url, secret, &connected, over));
            let stays_at = place_of.recv().expect("the client is connected");
            let mut other_user = users.other_user(NAME, "claims", url);
            other_user.env("STAYS", at(&stays_at));
            if secret {
                other_user.env("KNOWS", SECRET);
            }
            let mut other_user = other_user.spawn().unwrap();
            let said = BufReader::new(other_user.stdout.take().unwrap()).lines();
            // Also where the test fails: the threads wait for the client, and for what the
            // other user says.
            struct Over<'a>(&'a AtomicBool, Option<ChildStdin>);
            impl Drop for Over<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Relaxed);
                    self.1 = None;
                }
            }
            let mut guard = Over(over, other_user.stdin.take());
            // Slow enough that the other user comes while it is under way.
            let words = ["forward", "put", "-q", "--retry", "0s", "--rate", "8MiB"];
            let entry: &[&str] = if secret { &["--secret", "secret"] } else { &[] };
            let end = Instant::now() + Duration::from_secs(60);
            let (heard, lines) = channel();
            // It is not to wait for us.
            thread::spawn(move || said.map_while(Result::ok).try_for_each(|line| heard.send(line)));
            let mut rounds = 0;
            while rounds < ROUNDS && !staying.is_finished() {
                let put = users
                    .command(&[&words[..], entry, &["from", &there]].concat())
                    .output()
                    .unwrap();
                Ran::of(&put).assert(0);
                for nth in 0..FILES {
                    let put = fs::read(place.path(&format!("exp/from/f{nth}"))).unwrap();
                    assert!(put == contents(nth), "f{nth} is not what was put");
                }
                fs::remove_dir_all(place.path("exp/from")).unwrap();
                rounds += lines.try_iter().filter(|line| line == "refused").count();
                assert!(Instant::now() < end, "the other user was not seen");
            }
            let mut stdin = guard.1.take().unwrap();
            let mut told = |word: &str, answer: &str| {
                // It may have failed: then it says no more.
                let _ = writeln!(stdin, "{word}");
                while let Ok(line) = lines.recv_timeout(Duration::from_secs(30)) {
                    if line == answer {
                        return;
                    }
                }
                panic!("the other user got in, or stands still: it does not say `{answer}`");
            };
            told(STOP, STOPPED);
            over.store(true, Relaxed);
            let stayed = staying.join().expect("the client that stays is never cut off");
            assert!(stayed > 0);
            told(GONE, KEPT_OUT);
            drop(stdin);
            assert!(wait(&mut other_user, Duration::from_secs(30)).success());
        });
        assert_eq!(export.interrupt(), Some(0));
    }
}
