//! Two processes: storms of messages with few places for them, memory that is put and got, and a death in the middle.

mod common;

use common::{Network, SHM, network};
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Key, Level, OpErrorKind, Operation, Peer, Region,
    Remote, RemoteSpan, Slice, Support, Token,
};
use petasos_ofi::Ofi;
use petasos_testing::{again, role};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    ffi::OsString,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(20);
const LEN: usize = 8 << 20;

fn open(network: Network) -> Ofi {
    let mut config = network.config();
    config.sends = 4;
    Ofi::open(&Address::parse(&network.anywhere()).unwrap(), config).unwrap()
}

/// Opens memory to whoever comes, and returns each message.
fn serve(network: Network) {
    let mut end = open(network);
    let memory = Region::zeroed(LEN).whole();
    let region = end.register(&memory, Access::ALL).unwrap();
    let key = end.export(region).unwrap();
    println!("at {}", end.address());
    let hex: String = key.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("key {hex}");
    let (clock, mut events, mut owed) = (Clock::start(), Vec::new(), VecDeque::new());
    loop {
        end.progress(clock.now(), 64, &mut events);
        for event in events.drain(..) {
            match event {
                Event::Message { peer, message } => owed.push_back((peer, message.to_vec())),
                Event::PeerLost { .. } => return,
                _ => {}
            }
        }
        while let Some((peer, message)) = owed.front()
            && end.inject(*peer, &[message]).is_ok()
        {
            owed.pop_front();
        }
    }
}

struct Client {
    end: Ofi,
    clock: Clock,
    events: Vec<Event>,
    peer: Peer,
    remote: Remote,
}

impl Client {
    fn until(&mut self, what: &str, mut seen: impl FnMut(&mut Vec<Event>) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !seen(&mut self.events) {
            self.end.progress(self.clock.now(), 64, &mut self.events);
            assert!(Instant::now() < end, "not seen: {what}; {:?}", self.end.counters());
        }
    }

    fn access(&mut self, token: u64, put: bool, memory: &Slice) {
        let (token, remote, local) = (Token(token), self.remote, smallvec![memory.clone()]);
        let spans = smallvec![RemoteSpan { offset: 0, len: memory.len() as u64 }];
        let operation = match put {
            true => {
                Operation::Put { token, remote, local, spans, level: Level::Visible, event: None }
            }
            false => Operation::Get { token, remote, local, spans },
        };
        self.end.submit(&mut VecDeque::from([operation]));
    }

    fn done(&mut self, token: u64) -> Result<(), OpErrorKind> {
        let mut result = None;
        self.until("a completion", |events| {
            let at = events
                .iter()
                .position(|e| matches!(e, Event::Done { token: t, .. } if t.0 == token));
            if let Some(Event::Done { result: found, .. }) = at.map(|at| events.swap_remove(at)) {
                result = Some(found);
            }
            result.is_some()
        });
        result.unwrap().map(drop).map_err(|error| error.kind)
    }
}

fn with(test: &str, network: Network) {
    if let Err(error) = petasos_ofi::find() {
        return petasos_testing::skip(&error.to_string());
    }
    if role().is_some() {
        return serve(network);
    }
    let mut server = again(test, "server").start();
    let address = Address::parse(&server.line("at ")).unwrap();
    let hex = server.line("key ");
    let key: Vec<u8> = (0..hex.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
        .collect();
    let mut end = open(network);
    let peer = end.resolve(&address, PATIENCE).unwrap();
    let remote = end.import(&Key::from_bytes(key).unwrap()).unwrap();
    let mut client = Client { end, clock: Clock::start(), events: Vec::new(), peer, remote };
    client.until("the peer is up", |e| e.iter().any(|e| matches!(e, Event::PeerUp { .. })));
    storm(&mut client);
    // There and back, by the provider.
    let memory = Slice::from((0..LEN).map(|i| ((i * 7) >> 3) as u8).collect::<Vec<u8>>());
    client.access(1, true, &memory);
    client.done(1).unwrap();
    let back = Region::zeroed(LEN).whole();
    client.access(2, false, &back);
    client.done(2).unwrap();
    assert!(back.to_vec() == memory.to_vec());
    let native = client.end.capabilities().remote_access == Support::Native;
    assert_eq!(client.end.counters().accesses > 0, native, "{:?}", client.end.counters());
    // And a death in the middle: each ends once, and the loss is seen.
    for token in 10..14 {
        client.access(token, token % 2 == 0, &memory);
    }
    client.end.progress(client.clock.now(), 64, &mut client.events);
    server.kill();
    for token in 10..14 {
        if let Err(kind) = client.done(token) {
            assert!(matches!(kind, OpErrorKind::PeerLost(_)), "{kind}");
        }
    }
    client.until("the loss", |e| e.iter().any(|e| matches!(e, Event::PeerLost { .. })));
    drop(client);
    if network.scheme == SHM.scheme {
        let left = left_by(server.id());
        assert!(left.is_empty(), "left behind: {left:?}");
    }
    assert!(memory.region().clone().whole().len() == LEN);
}

/// Messages of all lengths, more than there is room for, in order and whole.
fn storm(client: &mut Client) {
    let count = 3000usize;
    let longest = client.end.capabilities().limits.max_inject.min(9000);
    let message = |i: usize| vec![i as u8; 8 + (i * 131) % (longest - 8)];
    let (mut sent, mut got) = (0, 0);
    let end = Instant::now() + PATIENCE;
    while got < count {
        while sent < count && client.end.inject(client.peer, &[&message(sent)]).is_ok() {
            sent += 1;
        }
        client.end.progress(client.clock.now(), 64, &mut client.events);
        for event in client.events.drain(..) {
            if let Event::Message { message: came, .. } = event {
                assert!(came[..] == message(got), "message {got} of {} bytes", came.len());
                got += 1;
            }
        }
        assert!(Instant::now() < end, "{sent} sent, {got} returned, {:?}", client.end.counters());
    }
}

/// What this process has in shared memory.
fn left_by(process: u32) -> Vec<OsString> {
    let of_process = format!("petasos-{process}-");
    let all = std::fs::read_dir("/dev/shm").unwrap().flatten().map(|file| file.file_name());
    all.filter(|name| name.to_string_lossy().starts_with(&of_process)).collect()
}

#[test]
fn nobody_saw_it_die() {
    if let Err(error) = petasos_ofi::find() {
        return petasos_testing::skip(&error.to_string());
    }
    if role().is_some() {
        return serve(SHM);
    }
    let start = || {
        let mut process = again("nobody_saw_it_die", "server").start();
        process.line("key ");
        process
    };
    let (lives, mut dies) = (start(), start());
    let id = dies.id();
    dies.kill();
    // Not while others open endpoints, as the test beside this one does: then it is the next one's.
    let patience = Instant::now() + PATIENCE;
    let mut end = open(SHM);
    while !left_by(id).is_empty() {
        assert!(Instant::now() < patience, "left behind: {:?}", left_by(id));
        end = open(SHM);
    }
    assert_eq!(left_by(lives.id()).len(), 1, "of one that lives");
    assert!(!left_by(std::process::id()).is_empty(), "our own");
    drop(end);
}

#[test]
fn over_a_network() {
    with("over_a_network", network());
}

#[test]
fn over_shared_memory() {
    with("over_shared_memory", SHM);
}
