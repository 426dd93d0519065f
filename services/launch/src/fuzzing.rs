//! Input from other processes, for the fuzz targets. Not part of the interface.

use crate::{
    daemon::fuzzing::*,
    engine::{ClientId, Config, Engine, Output},
    handshake::{self, HELLO, MAGIC, VERDICT},
    inventory::{Interface, Inventory, NetworkUse, RoundTrip},
    message::{ControllerRequest, FenceStep, Message, Replacement},
    pmi1,
};
use petasos_fabric::Time;
use petasos_noise::{Handshake, OVERHEAD, ResponderAddress};
use petasos_pmix::{
    BusinessCard, Entry, Error, Group, JobId, Node, Proc, Scope, Value,
    event::{Event, EventId, Range},
    fuzzing::job,
    job::JobMap,
    message::{Answer, Persistence, Published, Request},
    server::{Asked, FromDaemon},
};
use petasos_wire::{Encoding, Limits, Wire, from_bytes_limited, to_vec};
use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::Duration,
};

pub use crate::pmix41::fuzzing::{pmix41, pmix41_seeds};

/// The engine of its first node.
pub(crate) fn engine(job: &Arc<JobMap>) -> Engine {
    let mut engine = Engine::new(Node(0), 2, Config::default(), Time::ZERO);
    engine.add_job(job.clone());
    engine
}

/// What travels between daemons, and between them and their clients: the first byte says which.
/// Decoding takes memory within the limits, and what was decoded can be encoded again.
///
/// # Panics
/// If not.
pub fn wire(bytes: &[u8], bounded: impl Fn(usize, &mut dyn FnMut())) {
    let Some((choice, bytes)) = bytes.split_first() else { return };
    match choice % 4 {
        0 => again::<Control>(bytes, bounded),
        1 => again::<Asked>(bytes, bounded),
        2 => again::<FromDaemon>(bytes, bounded),
        _ => again::<Bootstrap>(bytes, bounded),
    }
}

fn again<T: Wire>(bytes: &[u8], bounded: impl Fn(usize, &mut dyn FnMut())) {
    let limits = Limits::for_input(bytes.len());
    let mut value = None;
    bounded(limits.memory, &mut || {
        value = from_bytes_limited::<T>(Encoding::Native, bytes, limits).ok();
    });
    if let Some(value) = value {
        let once = to_vec(Encoding::Native, &value);
        let limits = Limits::for_input(once.len().max(bytes.len()));
        let again: T = from_bytes_limited(Encoding::Native, &once, limits).expect("encoded here");
        assert_eq!(to_vec(Encoding::Native, &again), once);
    }
}

/// Values of each kind that [`wire`] takes, and its first byte.
#[must_use]
pub fn wire_seeds() -> Vec<Vec<u8>> {
    let seed = |choice: u8, bytes: Vec<u8>| [&[choice][..], &bytes].concat();
    let mut seeds: Vec<Vec<u8>> =
        controls().iter().map(|control| seed(0, to_vec(Encoding::Native, control))).collect();
    for message in messages() {
        seeds.push(seed(0, to_vec(Encoding::Native, &Control::Engine(message))));
    }
    for (id, what) in (0..).zip(requests()) {
        seeds.push(seed(1, to_vec(Encoding::Native, &Asked::Request { id, what })));
    }
    let by_word = [Asked::ByWord { id: 7, what: Request::Progress }, Asked::OverSocket { id: 7 }];
    seeds.extend(by_word.iter().map(|asked| seed(1, to_vec(Encoding::Native, asked))));
    for (id, result) in (0..).zip(answers()) {
        seeds.push(seed(2, to_vec(Encoding::Native, &FromDaemon::Answer { id, result })));
    }
    let told = FromDaemon::Event { event: event(), only: Some(1) };
    seeds.push(seed(2, to_vec(Encoding::Native, &told)));
    seeds.push(seed(3, to_vec(Encoding::Native, &bootstrap())));
    seeds
}

/// An event with something of everything.
fn event() -> Event {
    let value =
        Value::List(vec![Value::Real(0.5), Value::Typed { kind: 22, packed: vec![2, 0, 1] }]);
    let value = Value::Record(vec![("name".to_owned(), value)]);
    Event {
        id: EventId { node: Node(1), number: 5 },
        code: -7,
        source: Proc::new(JobId(0), 2),
        node: Node(1),
        range: Range::Custom(Group::all(JobId(0), 4)),
        non_default: true,
        info: vec![("value".to_owned(), value)],
    }
}

/// One message of each kind between engines.
#[must_use]
pub fn messages() -> Vec<Message> {
    let (group, nth, id, proc) = (Group::all(JobId(0), 4), 0, 1, Proc::new(JobId(0), 0));
    let mut card = BusinessCard::default();
    card.commit([("key".to_owned(), Entry { scope: Scope::Global, value: "value".into() })]);
    let late = Error::FenceTimeout { group: group.clone(), nth, missing: Default::default() };
    let steps = [
        FenceStep::Up(vec![(Proc::new(JobId(0), 2), card.clone())]),
        FenceStep::Down(Err(late.clone())),
        FenceStep::Down(Ok(Vec::new())),
        FenceStep::Fail(late),
        FenceStep::Late,
        FenceStep::Count,
        FenceStep::Missing(Default::default()),
        FenceStep::Check,
    ];
    let fence = |step| Message::Fence { group: group.clone(), replaced: 0, nth, step };
    let mut all: Vec<Message> = steps.map(fence).to_vec();
    let (key, patience) = ("key".to_owned(), Duration::from_secs(1));
    let (restarts, replaced, wait) = (0, 0, true);
    all.push(Message::CardAsk { id, proc, restarts, replaced, key, wait, patience });
    all.push(Message::CardAnswer { id, result: Ok(card) });
    let keys = vec!["key".to_owned()];
    for what in [
        ControllerRequest::Lookup {
            keys: keys.clone(),
            wait: Some(patience),
            least: 1,
            within: Range::Global,
        },
        ControllerRequest::Unpublish(keys.clone()),
        ControllerRequest::Query(keys),
        ControllerRequest::Processes,
        ControllerRequest::Abort { status: 1, message: "why".to_owned() },
        ControllerRequest::Restart { proc: Proc::new(JobId(0), 3), after: 0 },
        ControllerRequest::Replace(Node(1)),
        ControllerRequest::Signal { group: Group::all(JobId(0), 2), signal: 15 },
    ] {
        all.push(Message::Ask { id, asker: proc, what });
    }
    all.push(Message::Answer { id, result: Ok(Answer::Done) });
    all.push(Message::Event { event: event(), all: true });
    all.push(Message::Interest { code: -231, wanted: true });
    all.push(Message::Lost(vec![Node(1)]));
    let (gone, why) = (Proc::new(JobId(0), 3), petasos_pmix::Termination::Signalled(9));
    all.push(Message::Termination { proc: gone, restarts: 0, why });
    all.push(Message::Restarted { proc: gone, restarts: 1 });
    let ended = vec![(Proc::new(JobId(0), 2), 0, petasos_pmix::Termination::Finalized)];
    let (number, node, by) = (1, Node(1), Node(4));
    let replacement = Replacement { number, node, by, again: vec![(gone, 2)], ended };
    all.push(Message::Replaced(Box::new(replacement)));
    all.push(Message::Wired);
    all.push(Message::NeverConnected(Default::default()));
    all.push(Message::Release(proc));
    let interfaces = vec![Interface { name: "eth0".to_owned(), ..Interface::default() }];
    let used = NetworkUse { network: "sockets".to_owned(), interfaces: vec!["eth0".to_owned()] };
    let networks = vec![used];
    let inventory = Inventory { interfaces, networks, ..Inventory::default() };
    all.push(Message::Inventory(Box::new(inventory)));
    all.push(Message::MeasureLinks);
    let (fastest, median) = (Duration::from_micros(20), Duration::from_micros(30));
    all.push(Message::Links(vec![RoundTrip { to: Node(1), fastest, median }]));
    all.push(Message::Echo { id, back: true });
    all.push(Message::Signal { group: Group::all(JobId(0), 2), signal: 15 });
    all
}

/// One request of each kind.
#[must_use]
pub fn requests() -> Vec<Request> {
    let proc = Proc::new(JobId(0), 0);
    let (key, keys) = ("key".to_owned(), vec!["key".to_owned()]);
    let (timeout, value) = (Some(Duration::from_secs(1)), Value::from("value"));
    let (range, persistence) = (Range::Session, Persistence::FirstRead);
    vec![
        Request::Connect(proc),
        Request::ConnectTool,
        Request::Commit(vec![(key.clone(), Entry { scope: Scope::Global, value: value.clone() })]),
        Request::Fence { group: Some(Group::all(JobId(0), 2)), collect: true, timeout },
        Request::Get { proc, key: key.clone(), timeout, immediate: false, wait: true },
        Request::Publish(Published { key, value, range: range.clone(), persistence }),
        Request::Lookup { keys: keys.clone(), wait: timeout, least: 1, within: Range::Global },
        Request::Unpublish(keys.clone()),
        Request::Query(keys),
        Request::Register { handler: 1, codes: vec![5, -231] },
        Request::Deregister(1),
        Request::Notify { code: 5, range, non_default: false, info: event().info },
        Request::Abort { status: 3, message: "why".to_owned() },
        Request::Finalize,
        Request::Watch(timeout),
        Request::Progress,
        Request::Restart { proc, after: Some(0) },
        Request::Replace(Node(1)),
        Request::Signal { group: None, signal: 15 },
    ]
}

fn answers() -> Vec<Result<Answer, Error>> {
    let proc = Proc::new(JobId(0), 0);
    vec![
        Ok(Answer::Welcome { proc, node: Node(0), restarts: 0 }),
        Ok(Answer::BusinessCard(BusinessCard::default())),
        Ok(Answer::Value(4.into())),
        Ok(Answer::Found(vec![("key".to_owned(), true.into(), proc)])),
        Ok(Answer::Info(event().info)),
        Err(Error::NotFound { proc, key: "key".to_owned() }),
    ]
}

/// One side of a stream: its first bytes, and its answers to what it receives.
struct Other<F> {
    says: Vec<u8>,
    answer: F,
}

impl<F> Read for Other<F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let len = into.len().min(self.says.len());
        into[..len].copy_from_slice(&self.says[..len]);
        self.says.drain(..len);
        Ok(len)
    }
}

impl<F: FnMut(&[u8]) -> Vec<u8>> Write for Other<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let answer = (self.answer)(bytes);
        self.says.extend(answer);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The handshake of daemons with a peer that may know the secret. The first byte says which side
/// the peer is (1), and whether it knows the secret (2). The other bytes are its message.
///
/// # Panics
/// If a peer is admitted that does not know the secret, or means another node; or if one is refused
/// that does know it and means this node.
pub fn admission(bytes: &[u8]) {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let (secret, own) = ([7; 32], [9; 32]);
    let psk = handshake::psk(&secret);
    let spot = ResponderAddress::of(([10, 0, 0, 1], 4040).into());
    let known = choice & 2 != 0;
    let mut said = [0; HELLO];
    let len = rest.len().min(HELLO);
    said[..len].copy_from_slice(&rest[..len]);
    let (let_in, right) = if choice & 1 == 0 {
        let answer = |first: &[u8]| {
            if !known || first.len() != MAGIC.len() + 32 {
                return rest.to_vec();
            }
            let mut message = vec![0; HELLO + OVERHEAD];
            Handshake::initiator(&psk, first).write(&said, &mut message);
            message
        };
        let mut other = Other { says: Vec::new(), answer };
        let heard = handshake::answer(&mut other, &secret, Node(0), spot, &own);
        (heard.is_ok(), said[4..8] == [0; 4] && said[8..] == spot.to_bytes())
    } else {
        let first = [&MAGIC[..], &own].concat();
        let answer = |hello: &[u8]| {
            let mut shake = Handshake::responder(&psk, &first);
            let (mut heard, mut message) = ([0; HELLO], vec![0; VERDICT + OVERHEAD]);
            if !known || shake.read(hello, &mut heard).is_err() {
                return rest.to_vec();
            }
            shake.write(&said[..VERDICT], &mut message);
            message
        };
        let mut other = Other { says: first.clone(), answer };
        let heard = handshake::ask(&mut other, &secret, Node(1), Node(0), spot);
        (heard.is_ok(), said[..VERDICT] == [0; VERDICT])
    };
    assert_eq!(let_in, known && right);
}

/// Both sides, right and wrong.
#[must_use]
pub fn admission_seeds() -> Vec<Vec<u8>> {
    let spot = ResponderAddress::of(([10, 0, 0, 1], 4040).into()).to_bytes();
    let hello = [&1u32.to_le_bytes()[..], &0u32.to_le_bytes(), &spot].concat();
    (0..4u8)
        .map(|choice| match choice & 1 {
            0 => [&[choice][..], &hello].concat(),
            _ => [&[choice][..], &[0; VERDICT]].concat(),
        })
        .collect()
}

/// Lines of two PMI-1 clients on an engine; the first byte of a line says whose it is. Each line
/// that wants an answer gets one.
///
/// # Panics
/// If an answer is no single line.
pub fn pmi1(bytes: &[u8]) {
    let job = job();
    let mut engine = engine(&job);
    let mut sessions = [0, 1].map(pmi1::Session::new);
    let mut next = 0;
    for client in 0..2 {
        engine.client_opened(ClientId(client));
    }
    for line in bytes.split(|byte| *byte == b'\n').take(200) {
        let Some((first, line)) = line.split_first() else { continue };
        let at = usize::from(first & 1);
        let line = String::from_utf8_lossy(&line[..line.len().min(pmi1::MAX_LINE)]);
        let mut steps = vec![(at, sessions[at].line(&line, &job))];
        while let Some((at, now)) = steps.pop() {
            for step in now {
                match step {
                    pmi1::Step::Say(line) => assert!(!line.contains('\n'), "{line}"),
                    pmi1::Step::Find(key) => {
                        steps.push((at, sessions[at].found(engine.find(JobId(0), &key))));
                    }
                    pmi1::Step::Ask(what) => {
                        next += 1;
                        engine.request(Time(next), ClientId(at as u64), next, what);
                    }
                }
            }
            while let Some(output) = engine.poll() {
                if let Output::Answer { client, result, .. } = output {
                    let at = client.0 as usize;
                    steps.push((at, sessions[at].answered(&result)));
                }
            }
        }
    }
}

/// A whole life of two clients, and of their names.
#[must_use]
pub fn pmi1_seeds() -> Vec<Vec<u8>> {
    let lines = [
        "cmd=init pmi_version=1 pmi_subversion=1",
        "cmd=get_maxes",
        "cmd=get_my_kvsname",
        "cmd=get_appnum",
        "cmd=get_universe_size",
        "cmd=get kvsname=k key=PMI_process_mapping",
        "cmd=put kvsname=k key=a value=b c=d",
        "cmd=barrier_in",
        "cmd=get kvsname=k key=a",
        "cmd=publish_name service=s port=p",
        "cmd=lookup_name service=s",
        "cmd=unpublish_name service=s",
        "mcmd=spawn",
        "cmd=spawn",
        "cmd=abort exitcode=3 error_msg=why not",
        "cmd=finalize",
    ];
    let both: String = lines.iter().map(|line| format!("0{line}\n1{line}\n")).collect();
    let one: String = lines.iter().map(|line| format!("0{line}\n")).collect();
    vec![both.into_bytes(), one.into_bytes()]
}
