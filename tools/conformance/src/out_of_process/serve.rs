//! The process on the other side: an endpoint, driven by requests.

use super::{
    errors::{address, handle, peer, quota_numbers, quota_of},
    memory::{apply, changes},
    pipe::{HELLO, read_frame, write_frame},
    protocol::{
        Can, Ended, Failed, Found, Handle, Happened, Holder, Import, Known, Load, Op, Opened, Part,
        Progressed, Refused, Request, Seen, Unexported, Unimported, Unregistered, Unresolved, Used,
        Why,
    },
};
use crate::{Fixture, foreign};
use petasos_fabric::{
    Access, AtomicOp, AtomicType, Body, Claimed, Done, Endpoint, Event, Full, Key, KeyId, Lease,
    Level, Operation, Payload, QuotaError, Refusal, Region, RegionId, Remote, RemoteSpan, Slice,
    Slices, Spans, Token,
};
use petasos_wire::{Encoding, Wire, from_bytes, to_vec};
use rustix::process::{Signal, getpid, kill_process};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::File,
    io::{BufReader, IsTerminal, Write},
};

/// Passes for each requested one, as long as they find nothing.
const PASSES: u32 = 3;

/// Answers the requests on standard input; when that ends, dies as in a crash, without closing
/// anything. Returns if there was no request at all, as when it was started by mistake.
///
/// # Panics
/// If a request makes no sense.
pub fn serve(fixture: &dyn Fixture) {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        eprintln!("this is the other side of a test, which starts it by itself");
        return;
    }
    // Answers only: what else is printed goes to standard error.
    let answers = rustix::io::dup(rustix::stdio::stdout()).expect("a standard output");
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).expect("a standard error");
    let (mut answers, mut asks) = (File::from(answers), BufReader::new(stdin.lock()));
    // If this fails there is no reader, and then no request comes, either.
    let _ = writeln!(answers, "{HELLO}");
    let mut here = Here {
        fixture,
        end: None,
        memories: BTreeMap::new(),
        leases: BTreeMap::new(),
        lent: 0,
        passes: 0,
    };
    let mut asked = false;
    while let Ok(Some(ask)) = read_frame(&mut asks) {
        asked = true;
        let ask = from_bytes(Encoding::Native, &ask).expect("both sides are of one version");
        if write_frame(&mut answers, &here.answer(ask)).is_err() {
            break;
        }
    }
    if asked {
        let _ = kill_process(getpid(), Signal::KILL);
    }
}

struct Here<'f> {
    fixture: &'f dyn Fixture,
    end: Option<Box<dyn Endpoint>>,
    memories: BTreeMap<u64, Memory>,
    /// Messages that the probe has, by their numbers, and how many there were.
    leases: BTreeMap<u64, Lease>,
    lent: u64,
    passes: u64,
}

/// Memory that both sides have.
struct Memory {
    /// As the endpoint gets it: perhaps to be read only.
    region: Region,
    /// The same, to be written.
    under: Option<Region>,
    /// Pages that are lent raw, and cannot be touched once they are dropped here.
    raw: bool,
    agreed: Vec<u8>,
}

fn said<T: Wire>(answer: &T) -> Vec<u8> {
    to_vec(Encoding::Native, answer)
}

impl Here<'_> {
    fn answer(&mut self, ask: Request) -> Vec<u8> {
        match ask {
            Request::Missing => said(&self.fixture.missing()),
            Request::Fresh => said(&self.fixture.fresh().to_string()),
            Request::Open(at) => {
                let end = self.fixture.open(&address(&at));
                let opened = Opened {
                    address: end.address().to_string(),
                    incarnation: end.incarnation().get(),
                    can: end.capabilities().into(),
                };
                self.end = Some(end);
                said(&opened)
            }
            Request::Memory { memory, len, writable, raw, device, pieces, content } => {
                let zeroes = || vec![0; len as usize];
                let piece = |len: &u64| foreign::apart(*len as usize);
                let under = match (raw, device) {
                    _ if !pieces.is_empty() => Region::of_pieces(pieces.iter().map(piece)),
                    (true, _) => foreign::Pages::new(&zeroes()).keep(),
                    (_, true) => Region::of_device(Box::new(foreign::Device::new(&zeroes()).0)),
                    _ => Region::zeroed(len as usize),
                };
                let mut agreed = vec![0; len as usize];
                apply(&under, &mut agreed, &content).expect("contents fit their memory");
                let region = match writable {
                    true => under.clone(),
                    false => Region::view(&under.whole()).expect("of the host"),
                };
                let under = (!writable).then_some(under);
                self.memories.insert(memory, Memory { region, under, raw, agreed });
                said(&())
            }
            Request::Write(all) => {
                for (number, patches) in all {
                    let memory = self.memories.get_mut(&number).expect("memory of both sides");
                    let region = memory.under.as_ref().unwrap_or(&memory.region);
                    apply(region, &mut memory.agreed, &patches).expect("a change that fits");
                }
                said(&())
            }
            Request::Sync { dropped } => {
                dropped.iter().for_each(|number| drop(self.memories.remove(number)));
                said(
                    &self
                        .memories
                        .iter_mut()
                        .map(|(n, memory)| memory.seen(*n))
                        .collect::<Vec<_>>(),
                )
            }
            Request::Progress { budget, released } => {
                released.iter().for_each(|number| drop(self.leases.remove(number)));
                said(&self.progress(budget as usize))
            }
            Request::Submit(ops) => {
                let mut queue: VecDeque<_> = ops.into_iter().map(|op| self.operation(op)).collect();
                self.end().submit(&mut queue);
                said(&queue.iter().map(|operation| operation.token().0).collect::<Vec<_>>())
            }
            Request::TrySubmit(op) => {
                let operation = self.operation(op);
                let refused = self.end().try_submit(operation).err();
                said(&refused.map(|refused| refused.full == Full::Peer))
            }
            other => self.call(other),
        }
    }

    /// What is a call of the endpoint, and no more.
    fn call(&mut self, ask: Request) -> Vec<u8> {
        match ask {
            Request::Resolve(text, patience, running) => {
                let (end, address) = (self.end(), address(&text));
                let resolved = match running {
                    false => end.resolve(&address, patience),
                    true => end.resolve_running(&address, patience),
                };
                said(&resolved.map(handle).map_err(Unresolved::from))
            }
            Request::Peer(of) => said(&self.end().peer(peer(of)).map(Known::from)),
            Request::CapabilitiesOf(of) => {
                said(&self.end().capabilities_of(peer(of)).map(Can::from))
            }
            Request::SetQuota(of, quota) => {
                let set = self.end().set_quota(peer(of), quota_of(quota));
                said(&set.err().map(|error| error == QuotaError::UnknownPeer))
            }
            Request::Usage(of) => said(&self.end().usage(peer(of)).map(|used| -> Used {
                let now = [used.leases, used.lease_bytes, used.unexpected];
                let refused = [used.leases_refused, used.unexpected_refused];
                (now.map(|number| number as u64), quota_numbers(used.quota), refused)
            })),
            Request::Forget(of) => said(&self.end().forget(peer(of))),
            Request::Inject(to, parts) => {
                let parts: Vec<_> = parts.iter().map(Vec::as_slice).collect();
                said(&self.end().inject(peer(to), &parts).map_err(Refused::from))
            }
            Request::InUse(part) => {
                let slice = self.slice(part);
                said(&self.end().in_use(&slice).map(|used| -> Holder {
                    let token = used.token.map(|token| token.0);
                    (used.what.to_owned(), token, used.peer.map(handle))
                }))
            }
            Request::Cancel(token) => said(&self.end().cancel(Token(token))),
            Request::Alloc { memory, len } => {
                let made = self.end().alloc(len as usize).map(|region| {
                    let agreed = region.to_vec();
                    let (under, raw) = (None, false);
                    self.memories.insert(memory, Memory { region, under, raw, agreed });
                });
                said(&made.map_err(|error| error.to_string()))
            }
            Request::Register(part, access) => {
                let (slice, access) = (self.slice(part), Access::from_bits(access));
                let registered = self.end().register(&slice, access.expect("rights"));
                said(&registered.map(|id| (id.index, id.generation)).map_err(Unregistered::from))
            }
            Request::Export((index, generation)) => {
                let key = self.end().export(RegionId { index, generation });
                said(&key.ok().map(|key| key.as_bytes().to_vec()))
            }
            Request::ExportPart((index, generation), (start, end), access) => {
                let (region, access) =
                    (RegionId { index, generation }, Access::from_bits(access).expect("rights"));
                let made = self.end().export_part(region, start..end, access);
                let made =
                    made.map(|(id, key)| ((id.index, id.generation), key.as_bytes().to_vec()));
                said(&made.map_err(Unexported::from))
            }
            Request::ExportNumber((index, generation), (start, end), access, number) => {
                let (region, access) =
                    (RegionId { index, generation }, Access::from_bits(access).expect("rights"));
                let made = self.end().export_number(region, start..end, access, number);
                said(&made.map(|id| (id.index, id.generation)).map_err(Unexported::from))
            }
            Request::ImportNumber(of, number, len) => {
                let imported = self.end().import_number(peer(of), number, len);
                let remote = |r: Remote| ((r.index, r.generation), handle(r.peer), r.len);
                said(&imported.map(remote).map_err(Unimported::from))
            }
            Request::Import(key) => {
                let key = Key::from_bytes(key).expect("a key that was one there");
                let imported = self.end().import(&key).map_err(Unimported::from);
                let remote = |r: Remote| ((r.index, r.generation), handle(r.peer), r.len);
                said(&imported.map(remote))
            }
            Request::Release(of) => said(&self.end().release(remote(of))),
            other => unreachable!("answered elsewhere: {other:?}"),
        }
    }

    fn end(&mut self) -> &mut dyn Endpoint {
        &mut **self.end.as_mut().expect("an endpoint is opened first")
    }

    fn progress(&mut self, budget: usize) -> Progressed {
        let mut events = Vec::new();
        let mut worked = false;
        for _ in 0..PASSES {
            let now = self.fixture.now();
            self.passes += 1;
            // Messages come by `poll_message` in every other pass, as they do on the near side.
            let short = self.passes.is_multiple_of(2);
            let polled = self.passes & 2 != 0;
            let end = self.end();
            let mut message = Lease::default();
            while short && let Some(peer) = end.poll_message(&mut message) {
                events.push(Event::Message { peer, message: std::mem::take(&mut message) });
            }
            while polled && let Some(completion) = end.poll_completion() {
                events.push(Event::from(completion));
            }
            worked |= end.progress(now, budget, &mut events) || !events.is_empty();
            if worked {
                break;
            }
        }
        let events = events.into_iter().map(|event| self.happened(event)).collect();
        Progressed { worked, events }
    }

    /// The bytes of a message, which is kept as long as the probe keeps its own.
    fn keep(&mut self, lease: Lease) -> Vec<u8> {
        let bytes = lease.to_vec();
        // Shorter messages hold no lease.
        if bytes.len() > Lease::LINES {
            self.leases.insert(self.lent, lease);
            self.lent += 1;
        }
        bytes
    }

    fn happened(&mut self, event: Event) -> Happened {
        match event {
            Event::Message { peer, message } => {
                Happened::Message { peer: handle(peer), message: self.keep(message) }
            }
            Event::LongMessage { peer, header, body, len } => Happened::LongMessage {
                peer: handle(peer),
                header: self.keep(*header),
                body: (handle(body.peer), body.id),
                len,
            },
            Event::PutArrived { peer, region, offset, len, data } => Happened::PutArrived {
                peer: handle(peer),
                region: (region.index, region.generation),
                offset,
                len,
                data,
            },
            Event::Done { token, result } => {
                let result = result.map(ended).map_err(|error| Failed::from(&error));
                Happened::Done { token: token.0, result }
            }
            Event::PeerUp { peer, incarnation } => {
                Happened::PeerUp { peer: handle(peer), incarnation: incarnation.get() }
            }
            Event::PeerLost { peer, reason } => {
                Happened::PeerLost { peer: handle(peer), reason: (&reason).into() }
            }
            Event::Writable { peer } => Happened::Writable { peer: handle(peer) },
            Event::PutRefused { peer, why } => {
                let why = match why {
                    Refusal::Denied => Why::Denied,
                    Refusal::OutOfBounds => Why::OutOfBounds,
                    _ => Why::StaleKey,
                };
                Happened::PutRefused { peer: handle(peer), why }
            }
            other => panic!("an event unknown to the suite: {other:?}"),
        }
    }

    fn slice(&self, part: Part) -> Slice {
        let memory = self.memories.get(&part.memory).expect("memory of both sides");
        let slice = memory.region.slice(part.offset as usize, part.len as usize);
        let slice = slice.expect("a part within its memory");
        if memory.raw { foreign::raw(&slice) } else { slice }
    }

    fn slices(&self, parts: Vec<Part>) -> Slices {
        parts.into_iter().map(|part| self.slice(part)).collect()
    }

    fn payload(&self, load: Load) -> Payload {
        match load {
            Load::Bytes(bytes) => Payload::Bytes(bytes.into()),
            Load::Memory(part) => Payload::Memory(self.slice(part)),
        }
    }

    fn operation(&self, op: Op) -> Operation {
        let body = |(of, id)| Body { peer: peer(of), id };
        match op {
            Op::Send { token, peer: to, load, level } => Operation::Send {
                token: Token(token),
                peer: peer(to),
                payload: self.payload(load),
                level: level_of(level),
            },
            Op::SendLong { token, peer: to, header, body } => Operation::SendLong {
                token: Token(token),
                peer: peer(to),
                header: header.into(),
                body: self.slice(body),
            },
            Op::Receive { token, body: of, into } => {
                Operation::Receive { token: Token(token), body: body(of), into: self.slice(into) }
            }
            Op::Discard { token, body: of } => {
                Operation::Discard { token: Token(token), body: body(of) }
            }
            Op::SendTagged { token, peer: to, tag, load, level } => Operation::SendTagged {
                token: Token(token),
                peer: peer(to),
                tag,
                payload: self.payload(load),
                level: level_of(level),
            },
            Op::PostReceive { token, source, tag, ignore, into } => Operation::PostReceive {
                token: Token(token),
                source: source.map(peer),
                tag,
                ignore,
                into: self.slice(into),
            },
            Op::Peek { token, source, tag, ignore, claim } => Operation::Peek {
                token: Token(token),
                source: source.map(peer),
                tag,
                ignore,
                claim,
            },
            Op::ReceiveClaimed { token, message, into } => Operation::ReceiveClaimed {
                token: Token(token),
                message: claimed(message),
                into: self.slice(into),
            },
            Op::DiscardClaimed { token, message } => {
                Operation::DiscardClaimed { token: Token(token), message: claimed(message) }
            }
            Op::Put { token, remote: of, local, spans: at, level, event } => Operation::Put {
                token: Token(token),
                remote: remote(of),
                local: self.slices(local),
                spans: spans(at),
                level: level_of(level),
                event,
            },
            Op::Get { token, remote: of, local, spans: at } => Operation::Get {
                token: Token(token),
                remote: remote(of),
                local: self.slices(local),
                spans: spans(at),
            },
            Op::Atomic { token, remote: of, offset, op, kind, operand, compare, fetch } => {
                Operation::Atomic {
                    token: Token(token),
                    remote: remote(of),
                    offset,
                    op: AtomicOp::from_u8(op).expect("an atomic operation"),
                    kind: AtomicType::from_u8(kind).expect("a type of atomic operations"),
                    operand: operand.into(),
                    compare: compare.into(),
                    fetch,
                }
            }
            Op::Map { token, remote: of } => {
                Operation::Map { token: Token(token), remote: remote(of) }
            }
            Op::Flush { token, peer: of } => {
                Operation::Flush { token: Token(token), peer: peer(of) }
            }
            Op::Deregister { token, region: (index, generation), patience } => {
                Operation::Deregister {
                    token: Token(token),
                    region: RegionId { index, generation },
                    patience,
                }
            }
            Op::Revoke { token, key: (index, generation), patience } => Operation::Revoke {
                token: Token(token),
                key: KeyId { index, generation },
                patience,
            },
            Op::Fenced(op) => self.operation(*op).fenced(),
        }
    }
}

impl Memory {
    fn seen(&mut self, memory: u64) -> Seen {
        Seen {
            memory,
            held: !self.region.is_unique(),
            changes: changes(&self.region, &mut self.agreed),
        }
    }
}

fn level_of(number: u8) -> Level {
    const ALL: [Level; 3] = [Level::Reusable, Level::Delivered, Level::Visible];
    ALL[usize::from(number)]
}

fn claimed((of, id): (Handle, u64)) -> Claimed {
    Claimed { peer: peer(of), id }
}

fn remote(((index, generation), of, len): Import) -> Remote {
    Remote { index, generation, peer: peer(of), len }
}

fn spans(all: Vec<(u64, u64)>) -> Spans {
    all.into_iter().map(|(offset, len)| RemoteSpan { offset, len }).collect()
}

fn ended(done: Done) -> Ended {
    match done {
        Done::Sent => Ended::Sent,
        Done::Received { len } => Ended::Received(len),
        Done::Discarded => Ended::Discarded,
        Done::Tagged { peer, tag, len } => Ended::Tagged { peer: handle(peer), tag, len },
        Done::Peeked(peeked) => Ended::Peeked(peeked.map(|peeked| Found {
            peer: handle(peeked.peer),
            tag: peeked.tag,
            len: peeked.len,
            claimed: peeked.claimed.map(|claimed| claimed.id),
        })),
        Done::Put => Ended::Put,
        Done::Got => Ended::Got,
        Done::Atomic => Ended::Atomic,
        Done::Fetched(bytes) => Ended::Fetched(bytes.to_vec()),
        Done::Mapped(region) => Ended::Mapped(region.to_vec()),
        Done::Flushed => Ended::Flushed,
        Done::Deregistered => Ended::Deregistered,
        Done::Revoked => Ended::Revoked,
        other => panic!("a result unknown to the suite: {other:?}"),
    }
}
