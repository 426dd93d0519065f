//! An endpoint of the other side, as the probes see it: each call is made there.

use super::{
    ELSEWHERE,
    errors::{address, constant, handle, peer, quota_numbers, quota_of},
    memory::{apply, changes},
    pipe::Pipe,
    protocol::{
        Can, Ended, Happened, Holder, Import, Known, Load, Op, Opened, Part, Progressed, Refused,
        Request, Seen, Unexported, Unimported, Unregistered, Unresolved, Used, Why,
    },
    shadows::{Shadows, User},
};
use petasos_fabric::{
    Access, Address, AllocError, Body, Capabilities, Claimed, Done, Endpoint, Event, ExportError,
    Full, ImportError, InUse, Incarnation, InjectError, Key, KeyId, Lease, Notifier, Notify,
    Operation, Payload, Peeked, Peer, PeerInfo, PeerQuota, PeerUsage, Pool, QuotaError, Refusal,
    Region, RegionId, RegisterError, Remote, RemoteSpan, ResolveError, Sleep, Slice, Time, Token,
    WeakRegion, memory::Kind,
};
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// How often the memory is compared while nothing happens. Memory of a hundred megabytes takes
/// longer than that: then most of the time remains for the transfer.
const LOOK: Duration = Duration::from_millis(5);

/// Of the time, at most one part in so many goes into that.
const SHARE: u32 = 10;

/// Operations that are handed over at once.
const BATCH: usize = 64;

/// What the fixture shares with the endpoint, to look at its memory.
pub(super) struct Shared(Mutex<Core>);

struct Core {
    pipe: Pipe,
    memories: Vec<Memory>,
    shadows: Shadows,
    next: u64,
    /// When the memory is compared next, though nothing happens.
    next_look: Instant,
}

/// Memory of a probe that the other side has as well.
struct Memory {
    number: u64,
    region: WeakRegion,
    /// As long as the endpoint there has it.
    held: Option<Region>,
    /// What both sides had last.
    agreed: Vec<u8>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Core> {
        // A probe that failed has no use for it any more, but drops what it has.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings here what has changed there, and there what has changed here.
    pub(super) fn settle(&self) {
        self.lock().settle();
    }
}

impl Core {
    fn settle(&mut self) {
        let begin = Instant::now();
        self.compare();
        let end = Instant::now();
        self.next_look = end + LOOK.max(SHARE * (end - begin));
    }

    fn compare(&mut self) {
        let mut dropped = Vec::new();
        self.memories.retain(|memory| {
            let there = memory.held.is_some() || memory.region.upgrade().is_some();
            if !there {
                dropped.push(memory.number);
            }
            there
        });
        if self.memories.is_empty() && dropped.is_empty() {
            return;
        }
        let seen: Vec<Seen> = self.pipe.ask(&Request::Sync { dropped });
        for Seen { memory, held, changes } in seen {
            let Some(memory) = self.memories.iter_mut().find(|known| known.number == memory) else {
                continue;
            };
            let region = memory.region.upgrade();
            if let Some(region) = &region {
                let applied = apply(region, &mut memory.agreed, &changes);
                applied.unwrap_or_else(|wrong| panic!("memory of the other side: {wrong}"));
            }
            memory.held = region.filter(|_| held);
        }
        self.write(|_| true);
    }

    /// Tells the other side what has changed here of some memories.
    fn write(&mut self, which: impl Fn(u64) -> bool) {
        let all = self.memories.iter_mut().filter(|memory| which(memory.number));
        let changed: Vec<_> = all
            .filter_map(|memory| {
                let patches = changes(&memory.region.upgrade()?, &mut memory.agreed);
                (!patches.is_empty()).then_some((memory.number, patches))
            })
            .collect();
        if !changed.is_empty() {
            let () = self.pipe.ask(&Request::Write(changed));
        }
    }

    /// A part of memory, which the other side has and holds from now on.
    fn part(&mut self, slice: &Slice, user: (User, bool)) -> Part {
        let Some(region) = slice.region() else {
            let shadow = self.shadows.add(slice, user);
            return self.part_of(&shadow.whole(), &shadow, true);
        };
        self.part_of(slice, region, false)
    }

    /// A part of memory that the other side has already.
    fn known(&self, slice: &Slice) -> Option<Part> {
        let region = slice.region().expect("raw memory has another name for each use");
        let known = self.memories.iter().find(|memory| memory.region.is(region))?;
        let (offset, len) = (slice.offset() as u64, slice.len() as u64);
        Some(Part { memory: known.number, offset, len })
    }

    fn part_of(&mut self, slice: &Slice, region: &Region, raw: bool) -> Part {
        let known = self.memories.iter_mut().find(|memory| memory.region.is(region));
        let number = if let Some(memory) = known {
            memory.held = Some(region.clone());
            memory.number
        } else {
            let mut agreed = vec![0; region.len()];
            let content = changes(region, &mut agreed);
            let (memory, len) = (self.next, region.len() as u64);
            let () = self.pipe.ask(&Request::Memory {
                memory,
                len,
                writable: region.is_writable(),
                raw,
                device: region.kind() == Kind::Device,
                pieces: region
                    .whole()
                    .pieces()
                    .map_or(Vec::new(), |pieces| pieces.map(|piece| piece.len() as u64).collect()),
                content,
            });
            self.keep(region, agreed, true)
        };
        Part { memory: number, offset: slice.offset() as u64, len: slice.len() as u64 }
    }

    fn keep(&mut self, region: &Region, agreed: Vec<u8>, held: bool) -> u64 {
        let number = self.next;
        self.next += 1;
        let held = held.then(|| region.clone());
        self.memories.push(Memory { number, region: region.downgrade(), held, agreed });
        number
    }

    fn load(&mut self, payload: &Payload, user: (User, bool)) -> Load {
        match payload {
            Payload::Bytes(bytes) => Load::Bytes(bytes.to_vec()),
            Payload::Memory(slice) => Load::Memory(self.part(slice, user)),
        }
    }

    fn op(&mut self, operation: &Operation) -> Op {
        let pieces = |spans: &[RemoteSpan]| spans.iter().map(|s| (s.offset, s.len)).collect();
        let (token, user) = (operation.token().0, User::of(operation));
        match operation {
            Operation::Send { peer, payload, level, .. } => {
                let load = self.load(payload, user);
                Op::Send { token, peer: handle(*peer), load, level: *level as u8 }
            }
            Operation::SendLong { peer, header, body, .. } => {
                let (header, body) = (header.to_vec(), self.part(body, user));
                Op::SendLong { token, peer: handle(*peer), header, body }
            }
            Operation::Receive { body, into, .. } => {
                let into = self.part(into, user);
                Op::Receive { token, body: (handle(body.peer), body.id), into }
            }
            Operation::Discard { body, .. } => {
                Op::Discard { token, body: (handle(body.peer), body.id) }
            }
            Operation::SendTagged { peer, tag, payload, level, .. } => {
                let (peer, load) = (handle(*peer), self.load(payload, user));
                Op::SendTagged { token, peer, tag: *tag, load, level: *level as u8 }
            }
            Operation::PostReceive { source, tag, ignore, into, .. } => {
                let (source, into) = (source.map(handle), self.part(into, user));
                Op::PostReceive { token, source, tag: *tag, ignore: *ignore, into }
            }
            Operation::Peek { source, tag, ignore, claim, .. } => {
                let source = source.map(handle);
                Op::Peek { token, source, tag: *tag, ignore: *ignore, claim: *claim }
            }
            Operation::ReceiveClaimed { message, into, .. } => {
                let message = (handle(message.peer), message.id);
                Op::ReceiveClaimed { token, message, into: self.part(into, user) }
            }
            Operation::DiscardClaimed { message, .. } => {
                Op::DiscardClaimed { token, message: (handle(message.peer), message.id) }
            }
            Operation::Put { remote, local, spans, level, event, .. } => Op::Put {
                token,
                remote: import(*remote),
                local: local.iter().map(|slice| self.part(slice, user)).collect(),
                spans: pieces(spans),
                level: *level as u8,
                event: *event,
            },
            Operation::Get { remote, local, spans, .. } => Op::Get {
                token,
                remote: import(*remote),
                local: local.iter().map(|slice| self.part(slice, user)).collect(),
                spans: pieces(spans),
            },
            Operation::Atomic { remote, offset, op, kind, operand, compare, fetch, .. } => {
                Op::Atomic {
                    token,
                    remote: import(*remote),
                    offset: *offset,
                    op: *op as u8,
                    kind: *kind as u8,
                    operand: operand.to_vec(),
                    compare: compare.to_vec(),
                    fetch: *fetch,
                }
            }
            Operation::Map { remote, .. } => Op::Map { token, remote: import(*remote) },
            Operation::Flush { peer, .. } => Op::Flush { token, peer: handle(*peer) },
            Operation::Deregister { region, patience, .. } => {
                let region = (region.index, region.generation);
                self.shadows.close(token, region);
                Op::Deregister { token, region, patience: *patience }
            }
            Operation::Revoke { key, patience, .. } => {
                Op::Revoke { token, key: (key.index, key.generation), patience: *patience }
            }
            Operation::Fenced(fenced) => Op::Fenced(Box::new(self.op(fenced))),
            other => panic!("an operation unknown to the suite: {other:?}"),
        }
    }
}

fn import(remote: Remote) -> Import {
    ((remote.index, remote.generation), handle(remote.peer), remote.len)
}

/// The endpoint.
pub(super) struct End {
    shared: Arc<Shared>,
    address: Address,
    incarnation: Incarnation,
    capabilities: Capabilities,
    /// With peers that came up, and are not forgotten.
    capabilities_of: HashMap<Peer, Capabilities>,
    /// Messages that the probe has, and that are kept there: their numbers, and a pool of each that
    /// tells whether it was dropped.
    lent: Vec<(u64, Pool)>,
    /// How many there were.
    leases: u64,
}

impl End {
    /// Has one opened there.
    pub(super) fn open(mut pipe: Pipe, at: &Address) -> (End, Arc<Shared>) {
        let opened: Opened = pipe.ask(&Request::Open(at.to_string()));
        let (memories, shadows) = (Vec::new(), Shadows::default());
        let core = Core { pipe, memories, shadows, next: 1, next_look: Instant::now() };
        let shared = Arc::new(Shared(Mutex::new(core)));
        let end = End {
            shared: shared.clone(),
            address: address(&opened.address),
            incarnation: Incarnation::new(opened.incarnation).expect("an incarnation"),
            capabilities: opened.can.into(),
            capabilities_of: HashMap::new(),
            lent: Vec::new(),
            leases: 0,
        };
        (end, shared)
    }

    fn event(&mut self, happened: Happened) -> Event {
        let body = |(of, id)| Body { peer: peer(of), id };
        match happened {
            Happened::Message { peer: of, message } => {
                Event::Message { peer: peer(of), message: self.lease(&message) }
            }
            Happened::LongMessage { peer: of, header, body: of_body, len } => Event::LongMessage {
                peer: peer(of),
                header: Box::new(self.lease(&header)),
                body: body(of_body),
                len,
            },
            Happened::PutArrived { peer: of, region, offset, len, data } => {
                let region = RegionId { index: region.0, generation: region.1 };
                Event::PutArrived { peer: peer(of), region, offset, len, data }
            }
            Happened::Done { token, result } => {
                let result = result.map(done).map_err(Into::into);
                Event::Done { token: Token(token), result }
            }
            Happened::PeerUp { peer: of, incarnation } => {
                let incarnation = Incarnation::new(incarnation).expect("an incarnation");
                let can: Option<Can> = self.shared.lock().pipe.ask(&Request::CapabilitiesOf(of));
                self.capabilities_of.extend(can.map(|can| (peer(of), can.into())));
                Event::PeerUp { peer: peer(of), incarnation }
            }
            Happened::PeerLost { peer: of, reason } => {
                Event::PeerLost { peer: peer(of), reason: reason.into() }
            }
            Happened::Writable { peer: of } => Event::Writable { peer: peer(of) },
            Happened::PutRefused { peer: of, why } => {
                let why = match why {
                    Why::Denied => Refusal::Denied,
                    Why::OutOfBounds => Refusal::OutOfBounds,
                    Why::StaleKey => Refusal::StaleKey,
                };
                Event::PutRefused { peer: peer(of), why }
            }
        }
    }

    fn lease(&mut self, bytes: &[u8]) -> Lease {
        let pool = Pool::new(1);
        let lease = pool.lend(bytes.len(), |room| room.copy_from_slice(bytes));
        if bytes.len() > Lease::LINES {
            self.lent.push((self.leases, pool));
            self.leases += 1;
        }
        lease.expect("the only one")
    }
}

fn done(ended: Ended) -> Done {
    match ended {
        Ended::Sent => Done::Sent,
        Ended::Received(len) => Done::Received { len },
        Ended::Discarded => Done::Discarded,
        Ended::Tagged { peer: of, tag, len } => Done::Tagged { peer: peer(of), tag, len },
        Ended::Peeked(found) => Done::Peeked(found.map(|found| {
            let mut peeked = Peeked::new(peer(found.peer), found.tag, found.len);
            peeked.claimed = found.claimed.map(|id| Claimed { peer: peeked.peer, id });
            Box::new(peeked)
        })),
        Ended::Put => Done::Put,
        Ended::Got => Done::Got,
        Ended::Atomic => Done::Atomic,
        Ended::Fetched(bytes) => Done::Fetched(bytes.into()),
        Ended::Mapped(bytes) => {
            let view = Region::view(&Region::from_vec(bytes).whole());
            Done::Mapped(view.expect("not raw"))
        }
        Ended::Flushed => Done::Flushed,
        Ended::Deregistered => Done::Deregistered,
        Ended::Revoked => Done::Revoked,
    }
}

impl End {
    fn ask_resolve(
        &self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        let ask = Request::Resolve(address.to_string(), patience, running);
        let resolved: Result<_, Unresolved> = self.shared.lock().pipe.ask(&ask);
        resolved.map(peer).map_err(|error| error.of(address))
    }
}

impl Endpoint for End {
    fn address(&self) -> &Address {
        &self.address
    }

    fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn capabilities_of(&self, of: Peer) -> Option<&Capabilities> {
        self.peer(of)?;
        Some(self.capabilities_of.get(&of).unwrap_or(&self.capabilities))
    }

    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError> {
        self.ask_resolve(address, patience, false)
    }

    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.ask_resolve(address, patience, true)
    }

    fn peer(&self, of: Peer) -> Option<PeerInfo> {
        let known: Option<Known> = self.shared.lock().pipe.ask(&Request::Peer(handle(of)));
        known.map(Into::into)
    }

    fn set_quota(&mut self, of: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        let ask = Request::SetQuota(handle(of), quota_numbers(quota));
        let refused: Option<bool> = self.shared.lock().pipe.ask(&ask);
        match refused {
            None => Ok(()),
            Some(true) => Err(QuotaError::UnknownPeer),
            Some(false) => Err(QuotaError::Unsupported("quotas of peers")),
        }
    }

    fn usage(&self, of: Peer) -> Option<PeerUsage> {
        let used: Option<Used> = self.shared.lock().pipe.ask(&Request::Usage(handle(of)));
        used.map(|(now, quota, refused)| {
            let mut usage = PeerUsage::new(quota_of(quota));
            [usage.leases, usage.lease_bytes, usage.unexpected] = now.map(|number| number as usize);
            [usage.leases_refused, usage.unexpected_refused] = refused;
            usage
        })
    }

    fn forget(&mut self, of: Peer) {
        self.capabilities_of.remove(&of);
        self.shared.lock().pipe.ask(&Request::Forget(handle(of)))
    }

    fn inject(&mut self, to: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let ask = Request::Inject(handle(to), parts.iter().map(|part| part.to_vec()).collect());
        let injected: Result<(), Refused> = self.shared.lock().pipe.ask(&ask);
        injected.map_err(Into::into)
    }

    fn try_submit(&mut self, operation: Operation) -> Result<(), petasos_fabric::Refused> {
        let mut core = self.shared.lock();
        let op = core.op(&operation);
        // What the probe has written since it was last looked at belongs to the operation.
        core.write(|_| true);
        let refused: Option<bool> = core.pipe.ask(&Request::TrySubmit(op));
        let Some(of_peer) = refused else { return Ok(()) };
        core.shadows.not_accepted([operation.token().0].into_iter());
        let full = if of_peer { Full::Peer } else { Full::Endpoint };
        Err(petasos_fabric::Refused { operation, full })
    }

    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        let mut left = VecDeque::new();
        while left.is_empty() && !operations.is_empty() {
            let mut core = self.shared.lock();
            let ops: Vec<_> = operations.iter().take(BATCH).map(|each| core.op(each)).collect();
            let batch = operations.drain(..ops.len());
            core.write(|_| true);
            let refused: Vec<u64> = core.pipe.ask(&Request::Submit(ops));
            left.extend(batch.filter(|operation| refused.contains(&operation.token().0)));
            core.shadows.not_accepted(refused.into_iter());
        }
        left.append(operations);
        *operations = left;
    }

    fn cancel(&mut self, token: Token) {
        self.shared.lock().pipe.ask(&Request::Cancel(token.0))
    }

    /// Of memory that the other side has.
    fn in_use(&self, memory: &Slice) -> Option<InUse> {
        let part = self.shared.lock().known(memory)?;
        let used: Option<Holder> = self.shared.lock().pipe.ask(&Request::InUse(part));
        used.map(|(what, token, of)| {
            let used = InUse::new(constant(&what)).with(of.map(peer));
            token.map_or(used, |token| used.by(Token(token)))
        })
    }

    fn progress(&mut self, _: Time, budget: usize, events: &mut Vec<Event>) -> bool {
        let released = self.lent.extract_if(.., |(_, pool)| pool.lent() == 0);
        let released = released.map(|(number, _)| number).collect();
        let ask = Request::Progress { budget: budget as u32, released };
        let passed: Progressed = self.shared.lock().pipe.ask(&ask);
        let some = !passed.events.is_empty();
        let before = events.len();
        events.extend(passed.events.into_iter().map(|happened| self.event(happened)));
        let mut core = self.shared.lock();
        // A completion, or an event, comes with its memory.
        if some || Instant::now() > core.next_look {
            core.settle();
        }
        let mut over = false;
        for event in &events[before..] {
            if let Event::Done { token, result } = event {
                over |= core.shadows.completed(token.0, result.is_ok());
            }
        }
        if over {
            // The other side, too, takes back at once what has stood for the probe's memory.
            core.settle();
        }
        passed.worked
    }

    fn arm(&mut self, _: Time) -> Sleep {
        Sleep::Busy
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn notifier(&self) -> Notifier {
        struct Awake;
        impl Notify for Awake {
            fn notify(&self) {}
        }
        // It never sleeps.
        Notifier::new(Arc::new(Awake))
    }

    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        let mut core = self.shared.lock();
        let (memory, wanted) = (core.next, len as u64);
        let made: Result<(), String> = core.pipe.ask(&Request::Alloc { memory, len: wanted });
        made.map_err(|reason| match len {
            0 => AllocError::BadLength(0),
            _ => AllocError::System { len, reason },
        })?;
        let region = Region::zeroed(len);
        core.keep(&region, vec![0; len], false);
        Ok(region)
    }

    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError> {
        if memory.kind() == Kind::AddressSpace {
            return Err(RegisterError::System(ELSEWHERE.to_owned()));
        }
        let mut core = self.shared.lock();
        let part = core.part(memory, (User::New, true));
        core.write(|number| number == part.memory);
        let registered: Result<_, Unregistered> =
            core.pipe.ask(&Request::Register(part, access.bits()));
        core.shadows.registered(registered.as_ref().ok().copied());
        let (index, generation) = registered?;
        Ok(RegionId { index, generation })
    }

    fn export(&self, region: RegionId) -> Result<Key, ExportError> {
        let ask = Request::Export((region.index, region.generation));
        let key: Option<Vec<u8>> = self.shared.lock().pipe.ask(&ask);
        let key = key.ok_or(ExportError::UnknownRegion)?;
        Ok(Key::from_bytes(key).expect("a key of the other side"))
    }

    fn export_part(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        let region = (region.index, region.generation);
        let ask = Request::ExportPart(region, (range.start, range.end), access.bits());
        let made: Result<(_, Vec<u8>), Unexported> = self.shared.lock().pipe.ask(&ask);
        let ((index, generation), key) = made?;
        let key = Key::from_bytes(key).expect("a key of the other side");
        Ok((KeyId { index, generation }, key))
    }

    fn export_number(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        let (region, range) = ((region.index, region.generation), (range.start, range.end));
        let ask = Request::ExportNumber(region, range, access.bits(), number);
        let made: Result<_, Unexported> = self.shared.lock().pipe.ask(&ask);
        let (index, generation) = made?;
        Ok(KeyId { index, generation })
    }

    fn import_number(&mut self, of: Peer, number: u64, len: u64) -> Result<Remote, ImportError> {
        let ask = Request::ImportNumber(handle(of), number, len);
        let imported: Result<Import, Unimported> = self.shared.lock().pipe.ask(&ask);
        let ((index, generation), of, len) = imported.map_err(|error| error.at(&self.address))?;
        Ok(Remote { index, generation, peer: peer(of), len })
    }

    fn import(&mut self, key: &Key) -> Result<Remote, ImportError> {
        let ask = Request::Import(key.as_bytes().to_vec());
        let imported: Result<Import, Unimported> = self.shared.lock().pipe.ask(&ask);
        let ((index, generation), of, len) = imported.map_err(|error| error.at(&self.address))?;
        Ok(Remote { index, generation, peer: peer(of), len })
    }

    fn release(&mut self, remote: Remote) {
        self.shared.lock().pipe.ask(&Request::Release(import(remote)))
    }
}
