//! Real processes: killed, of other users, closed to their neighbours.

use petasos_fabric::{
    Access, Address, Clock, Done, Endpoint, Event, Key, LostReason, OpError, OpErrorKind,
    Operation, Peer, Region, RemoteSpan, Sleep, Time, Token,
};
use petasos_shm::{Config, Shm};
use petasos_testing::{Process, again, again_as_nobody, role};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit},
};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(10);
/// A peer's death on this machine is noticed within this.
const NOTICED: Duration = Duration::from_millis(100);
const LEN: usize = 64 << 20;

struct End {
    shm: Shm,
    clock: Clock,
    events: VecDeque<Event>,
    next: u64,
}

fn address(text: &str) -> Address {
    text.parse().unwrap()
}

impl End {
    fn open(at: &str, config: Config) -> End {
        let shm = Shm::open_with(&address(at), config).unwrap();
        End { shm, clock: Clock::start(), events: VecDeque::new(), next: 1 }
    }

    fn now(&self) -> Time {
        self.clock.now()
    }

    fn pass(&mut self) -> bool {
        let mut events = Vec::new();
        let worked = self.shm.progress(self.clock.now(), 256, &mut events);
        self.events.extend(events);
        worked
    }

    /// The next event, asleep until it comes.
    fn event(&mut self) -> Event {
        let begin = Instant::now();
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            assert!(begin.elapsed() < 2 * PATIENCE, "nothing happened");
            if !self.pass() && self.events.is_empty() {
                self.sleep();
            }
        }
    }

    fn sleep(&mut self) {
        if let Sleep::Until(until) = self.shm.arm(self.now()) {
            let rest = until.since(self.now()).min(Duration::from_secs(1));
            let fd = self.shm.fd().unwrap();
            let rest = Timespec::try_from(rest).unwrap();
            let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&rest));
        }
    }

    fn connect(&mut self, to: &str) -> Result<Peer, LostReason> {
        let wanted = self.shm.resolve(&address(to), PATIENCE).unwrap();
        loop {
            match self.event() {
                Event::PeerUp { peer, .. } if peer == wanted => return Ok(peer),
                Event::PeerLost { peer, reason } if peer == wanted => return Err(reason),
                _ => {}
            }
        }
    }

    fn message(&mut self) -> (Peer, Vec<u8>) {
        loop {
            if let Event::Message { peer, message } = self.event() {
                return (peer, message.to_vec());
            }
        }
    }

    fn inject(&mut self, peer: Peer, message: &[u8]) {
        while self.shm.inject(peer, &[message]).is_err() {
            self.pass();
        }
        self.pass();
    }

    fn submit(&mut self, make: impl FnOnce(Token) -> Operation) -> Token {
        let token = Token(self.next);
        self.next += 1;
        self.shm.submit(&mut VecDeque::from([make(token)]));
        token
    }

    fn result(&mut self, wanted: Token) -> Result<Done, OpError> {
        loop {
            match self.event() {
                Event::Done { token, result } if token == wanted => return result,
                _ => {}
            }
        }
    }

    fn get(&mut self, remote: petasos_fabric::Remote, len: usize) -> (Token, Region) {
        let into = Region::zeroed(len);
        let (local, spans) =
            (smallvec![into.whole()], smallvec![RemoteSpan { offset: 0, len: len as u64 }]);
        (self.submit(|token| Operation::Get { token, remote, local, spans }), into)
    }

    /// Serves: sends the key of its memory to each peer that asks, echoes the rest, until it is
    /// killed.
    fn serve(mut self, len: usize) -> ! {
        let memory = Region::zeroed(len);
        memory.write(0, &vec![7; len]);
        let region = self.shm.register(&memory.whole(), Access::ALL).unwrap();
        let key = self.shm.export(region).unwrap();
        println!("\nready");
        loop {
            if let Event::Message { peer, message } = self.event() {
                match &message[..] {
                    b"key" => self.inject(peer, key.as_bytes()),
                    b"flood" => loop {
                        if self.shm.inject(peer, &[&[3; 3000]]).is_err() {
                            self.pass();
                        }
                    },
                    other => self.inject(peer, other),
                }
            }
        }
    }
}

fn name(what: &str) -> String {
    format!("test-{what}-{}", std::process::id())
}

fn start(test: &str, at: &str) -> Process {
    let mut process = again(test, "server").env("AT", at).start();
    process.line("ready");
    process
}

fn at() -> String {
    std::env::var("AT").unwrap()
}

/// Leaves this process room for so many more descriptors, until what this gives is dropped.
fn leave_room_for(count: usize) -> Vec<std::fs::File> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let few = Some(256);
    setrlimit(Resource::Nofile, Rlimit { current: few, maximum }).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        taken.push(file);
    }
    taken.truncate(taken.len() - count);
    taken
}

/// At the limit of descriptors, on either side: that is what is said, and what to do about it.
#[test]
fn out_of_descriptors() {
    let at = format!("shm://{}", name("descriptors"));
    match role().as_deref() {
        Some("server") => {
            let end = End::open(&self::at(), Config::default());
            let _taken = leave_room_for(3);
            end.serve(LEN);
        }
        // The room is for: nothing; socket and pair; its own three, of which one is free again, and
        // of the answer come two.
        Some("client") => {
            for room in [0, 2, 3] {
                let mut end = End::open("shm://*", Config::default());
                let _taken = leave_room_for(room);
                let to = address(&self::at());
                end.shm.resolve(&to, Duration::from_millis(300)).unwrap();
                let reason = loop {
                    if let Event::PeerLost { reason, .. } = end.event() {
                        break reason;
                    }
                };
                println!("\nlost {reason}");
            }
            return;
        }
        _ => {}
    }
    let mut server = start("out_of_descriptors", &at);
    let mut end = End::open("shm://*", Config::default());
    end.shm.resolve(&address(&at), Duration::from_millis(300)).unwrap();
    let Event::PeerLost { reason, .. } = end.event() else { panic!("another event") };
    let text = reason.to_string();
    assert!(matches!(reason, LostReason::Unreachable(..)), "{text}");
    assert!(text.contains("the listening process has") && text.contains("ulimit -n"), "{text}");
    server.kill();
    drop(server);

    let _other = start("killed_servers", &at);
    let mut client = again("out_of_descriptors", "client").env("AT", &at).start();
    for _ in 0..3 {
        let text = client.line("lost ");
        assert!(text.contains("this process has") && text.contains("ulimit -n"), "{text}");
        assert!(!text.contains("credentials"), "{text}");
    }
}

/// Killed in the middle of writing into the ring, and in the middle of a transfer: all ends in
/// time with the peer's name, others go on, and a successor at the same address is as good.
#[test]
fn killed_servers() {
    if role().is_some() {
        End::open(&at(), Config::default()).serve(LEN);
    }
    let at = format!("shm://{}", name("killed"));
    let mut end = End::open("shm://*", Config::default());
    let other_at = format!("{at}-other");
    let _other = start("killed_servers", &other_at);
    let other = end.connect(&other_at).unwrap();
    for round in 0..3 {
        let mut server = start("killed_servers", &at);
        let peer = end.connect(&at).unwrap();
        end.inject(peer, b"key");
        let key = Key::from_bytes(end.message().1).unwrap();
        let remote = end.shm.import(&key).unwrap();
        let (whole, into) = end.get(remote, LEN);
        end.result(whole).unwrap();
        assert!(into.to_vec().iter().all(|byte| *byte == 7));
        if round % 2 == 0 {
            end.inject(peer, b"flood");
            for _ in 0..200 {
                end.message();
            }
        }
        let gets: Vec<_> = (0..10).map(|_| end.get(remote, LEN)).collect();
        for _ in 0..3 {
            end.pass();
        }
        server.kill();
        let killed = Instant::now();
        let (mut failed, mut lost, mut bytes) = (0, None, 0);
        while failed < gets.len() || lost.is_none() {
            match end.event() {
                Event::Done { result: Err(error), .. } => {
                    assert_eq!(error.peer.as_ref().unwrap().as_str(), at);
                    assert!(matches!(error.kind, OpErrorKind::PeerLost(_)), "{error}");
                    failed += 1;
                }
                Event::Done { result: Ok(_), .. } => panic!("read from the dead"),
                Event::PeerLost { reason, .. } => lost = Some((reason, killed.elapsed())),
                Event::Message { message, .. } => {
                    assert!(message.iter().all(|byte| *byte == 3));
                    bytes += message.len();
                }
                _ => {}
            }
        }
        let (reason, after) = lost.unwrap();
        assert_eq!(reason, LostReason::Closed, "after {bytes} bytes of last words");
        assert!(after < NOTICED, "noticed after {after:?}");
        end.inject(other, b"still there?");
        assert_eq!(end.message(), (other, b"still there?".to_vec()));
    }
    assert_eq!(end.shm.counters().peers, 1);
    assert_eq!(end.shm.counters().violations, 0);
}

/// Killed clients leave nothing with the server, and no process leaves anything on the machine.
#[test]
fn nothing_is_left_behind() {
    if let Some(role) = role() {
        if role == "server" {
            End::open(&at(), Config::default()).serve(1 << 20);
        }
        let mut end = End::open("shm://*", Config::default());
        let peer = end.connect(&at()).unwrap();
        let memory = end.shm.alloc(1 << 20).unwrap();
        end.shm.register(&memory.whole(), Access::ALL).unwrap();
        println!("\nready");
        loop {
            end.inject(peer, b"noise");
            end.message();
        }
    }
    let left = || {
        let files = ["/dev/shm", "/tmp"].into_iter().filter_map(|dir| std::fs::read_dir(dir).ok());
        let files = files.flatten().flatten().map(|f| f.file_name().to_string_lossy().into_owned());
        let mut files: Vec<_> = files.filter(|f| f.starts_with("petasos-")).collect();
        files.retain(|f| !f.starts_with("petasos-test-"));
        files
    };
    let before = left();
    let dir = std::env::temp_dir();
    let path = dir.join(format!("petasos-test-{}.sock", std::process::id()));
    for at in [format!("shm://{}", name("left")), format!("shm://{}", path.display())] {
        let mut server = End::open(&at, Config::default());
        let mut clients: Vec<_> = (0..4)
            .map(|_| again("nothing_is_left_behind", "client").env("AT", &at).start())
            .collect();
        let mut up = 0;
        while up < 4 {
            match server.event() {
                Event::PeerUp { .. } => up += 1,
                Event::Message { peer, message } => server.inject(peer, &message),
                _ => {}
            }
        }
        clients.iter_mut().for_each(Process::kill);
        let mut lost = 0;
        while lost < 4 {
            lost += u32::from(matches!(server.event(), Event::PeerLost { .. }));
        }
        let counters = server.shm.counters();
        assert_eq!((counters.peers, counters.leases, counters.segments), (0, 0, 0));
        drop(server);
        // A server that is killed: its name is free at once.
        for _ in 0..2 {
            start("nothing_is_left_behind", &at).kill();
        }
        if at.contains(".sock") {
            assert!(path.exists(), "a killed server cannot remove its socket");
        }
        drop(End::open(&at, Config::default()));
        assert!(!path.exists(), "the socket goes with its endpoint");
    }
    assert_eq!(left(), before);
    let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
    assert!(!sockets.contains(&name("left")), "a socket is left");
}

/// Other users: refused by the listener and by the client, and admitted where both say so. Then the
/// system really refuses to let them into each other's memory, and all works nevertheless.
#[test]
fn other_users() {
    let config = |admit: &[u32]| {
        let mut config = Config::default();
        config.admit = admit.to_vec();
        config
    };
    if let Some(role) = role() {
        let admit: &[u32] = if role == "wary" { &[] } else { &[0] };
        let mut end = End::open("shm://*", config(admit));
        match end.connect(&at()) {
            Err(reason) => println!("\nlost {reason:?}"),
            Ok(peer) => {
                end.inject(peer, b"key");
                let key = Key::from_bytes(end.message().1).unwrap();
                let remote = end.shm.import(&key).unwrap();
                let (token, into) = end.get(remote, 1 << 20);
                end.result(token).unwrap();
                let good = into.to_vec().iter().all(|byte| *byte == 9);
                let counters = end.shm.counters();
                let bytes = counters.cross_memory_bytes;
                println!("\ngot {good} {bytes} {}", counters.served_by_owner);
            }
        }
        return;
    }
    let at = format!("shm://0@{}", name("users"));
    let Some(wary) = again_as_nobody("other_users", "wary") else { return };
    let mut server = End::open(&at, config(&[]));
    // The client does not trust the listener.
    let mut wary = wary.env("AT", &at).start();
    let mut line = wary.line("lost ");
    assert!(line.contains("Refused") && line.contains("user 0 listens"), "{line}");
    // The listener does not admit the client.
    let bold = again_as_nobody("other_users", "bold").unwrap();
    let mut bold = bold.env("AT", &at).start();
    // The wary one has left its connection, too.
    while server.shm.counters().refused < 2 {
        server.pass();
        server.sleep();
    }
    line = bold.line("lost ");
    assert!(line.contains("Refused") && line.contains("65534 is not admitted"), "{line}");
    assert_eq!(server.shm.counters().peers, 0);
    drop(server);
    // Both agree.
    let mut server = End::open(&at, config(&[65534]));
    let memory = Region::zeroed(1 << 20);
    memory.write(0, &vec![9; 1 << 20]);
    let region = server.shm.register(&memory.whole(), Access::READ).unwrap();
    let key = server.shm.export(region).unwrap();
    let friend = again_as_nobody("other_users", "friend").unwrap();
    let mut friend = friend.env("AT", &at).start();
    loop {
        match server.event() {
            Event::Message { peer, .. } => server.inject(peer, key.as_bytes()),
            Event::PeerLost { .. } => break,
            _ => {}
        }
    }
    assert_eq!(friend.line("got "), "true 0 1");
}

/// An unprivileged process that closed itself to debuggers: the system really says no, and its
/// memory is reached through it.
#[test]
fn memory_that_the_system_keeps_closed() {
    if let Some(role) = role() {
        if role == "closed" {
            set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
        }
        if role != "client" {
            End::open(&at(), Config::default()).serve(4 << 20);
        }
        let mut end = End::open("shm://*", Config::default());
        let peer = end.connect(&at()).unwrap();
        end.inject(peer, b"key");
        let key = Key::from_bytes(end.message().1).unwrap();
        let remote = end.shm.import(&key).unwrap();
        let (token, into) = end.get(remote, 4 << 20);
        end.result(token).unwrap();
        let put = end.submit(|token| Operation::Put {
            token,
            remote,
            local: smallvec![into.whole()],
            spans: smallvec![RemoteSpan { offset: 0, len: 4 << 20 }],
            level: petasos_fabric::Level::Visible,
            event: None,
        });
        end.result(put).unwrap();
        let good = into.to_vec().iter().all(|byte| *byte == 7);
        let counters = end.shm.counters();
        println!("\ngot {good} {} {}", counters.cross_memory_bytes, counters.served_by_owner);
        return;
    }
    for (role, expected) in [("closed", "true 0 2"), ("open", "true 8388608 0")] {
        let at = format!("shm://{}-{role}", name("ptrace"));
        let test = "memory_that_the_system_keeps_closed";
        let Some(server) = again_as_nobody(test, role) else { return };
        let mut server = server.env("AT", &at).start();
        server.line("ready");
        let mut client = again_as_nobody(test, "client").unwrap().env("AT", &at).start();
        assert_eq!(client.line("got "), expected, "{role}");
    }
}

/// Another user's socket under our name is detected by the client.
#[test]
fn squatters() {
    if role().is_some() {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};
        let fd = socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        let name = format!("petasos/0/{}", at());
        bind(&fd, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        listen(&fd, 4).unwrap();
        println!("\nready");
        std::thread::sleep(PATIENCE);
        return;
    }
    let name = name("squatted");
    let Some(squatter) = again_as_nobody("squatters", "squatter") else { return };
    let mut squatter = squatter.env("AT", &name).start();
    squatter.line("ready");
    let mut end = End::open("shm://*", Config::default());
    let reason = end.connect(&format!("shm://{name}")).unwrap_err();
    assert!(matches!(&reason, LostReason::Refused(why) if why.contains("65534")), "{reason:?}");
    let open = Shm::open(&address(&format!("shm://{name}")));
    // The squatter is named, so that a person knows what is wrong.
    let why = open.unwrap_err();
    assert!(matches!(why, petasos_shm::OpenError::TakenBy { by: 65_534, .. }), "{why}");
    assert!(why.to_string().contains("user 65534"), "{why}");
}

/// No system call wakes a receiver that spins, and one that sleeps costs one.
#[test]
fn wake_ups_only_for_sleepers() {
    let mut a = End::open("shm://*", Config::default());
    let mut b = End::open("shm://*", Config::default());
    let to = b.shm.address().as_str().to_owned();
    let peer = a.shm.resolve(&address(&to), PATIENCE).unwrap();
    while b.events.is_empty() || a.events.is_empty() {
        a.pass();
        b.pass();
    }
    for _ in 0..1000 {
        a.inject(peer, b"awake");
        b.pass();
    }
    assert_eq!(a.shm.counters().wake_ups, 0);
    for round in 1..=10 {
        while !matches!(b.shm.arm(b.now()), Sleep::Until(_)) {
            b.pass();
        }
        for _ in 0..5 {
            a.inject(peer, b"asleep");
        }
        assert_eq!(a.shm.counters().wake_ups, round, "one for all");
        let fd = b.shm.fd().unwrap();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        assert_eq!(poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)), Ok(1));
        b.pass();
    }
}
