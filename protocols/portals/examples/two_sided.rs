//! A tagged message layer with the semantics of MPI's two-sided messages: any source, any tag,
//! messages of a pair in order, and messages that come before their receive.
//!
//! A receive is an entry for one message. Unexpected messages go to blocks of an overflow list:
//! short messages whole; of long ones only the header. Their data stays with the sender, which lets
//! it be fetched under a number that the header carries. `petasos run -n 4 two_sided` runs it.

mod job;

use job::{Job, PATIENCE, Result};
use petasos_fabric::Region;
use petasos_portals::{
    Accepts, Ack, Descriptor, Event, EventQueue, Failure, Handle, Interface, List, MatchEntry,
    Operation, Part, PortalOptions, ProcessId, Quiet, Served, Target,
};
use std::collections::HashMap;

/// Longer messages do not wait at the receiver.
const SHORT: usize = 8 << 10;
/// The overflow list: so many blocks of so many bytes.
const BLOCKS: (usize, usize) = (4, 256 << 10);
/// Set in the match bits of long messages.
const LONG: u64 = 1 << 63;

const MESSAGES: u16 = 0;
const FETCHES: u16 = 1;

/// A received message.
struct Received {
    source: u32,
    tag: u32,
    len: usize,
}

/// A request that was started.
type Id = u64;

enum Request {
    /// A receive into memory.
    Receive { memory: Region, len: usize, done: Option<Received> },
    /// A send: acknowledged, and of long ones, whether all of it was taken at once; else it is
    /// fetched.
    Send { descriptor: Handle<Descriptor>, lent: Option<Handle<MatchEntry>>, left: u8 },
    /// The rest of a receive that is being fetched.
    Fetch { descriptor: Handle<Descriptor>, receive: Id, received: Received },
}

struct Comm {
    interface: Interface,
    queue: Handle<EventQueue>,
    requests: HashMap<Id, Request>,
    next: Id,
}

impl Comm {
    fn new(job: &Job) -> Result<Comm> {
        let interface = job.interface.clone();
        let queue = interface.queue(1 << 16)?;
        for index in [MESSAGES, FETCHES] {
            let options =
                PortalOptions { index: Some(index), queue: Some(queue), ..Default::default() };
            interface.portal(options)?;
        }
        let comm = Comm { interface, queue, requests: HashMap::new(), next: 1 };
        // Of a long message only the header is kept.
        let header = MatchEntry {
            bits: LONG,
            ignore: !LONG,
            quiet: Quiet::COMMUNICATION,
            ..MatchEntry::new(vec![])
        };
        comm.interface.append(MESSAGES, List::Overflow, header)?;
        (0..BLOCKS.0).try_for_each(|_| comm.append_block())?;
        Ok(comm)
    }

    fn append_block(&self) -> Result<()> {
        let block = MatchEntry {
            ignore: !LONG,
            local_offset: true,
            min_free: Some(SHORT as u64),
            unlink: true,
            quiet: Quiet::COMMUNICATION,
            ..MatchEntry::new(vec![0; BLOCKS.1])
        };
        self.interface.append(MESSAGES, List::Overflow, block)?;
        Ok(())
    }

    fn id(&mut self, request: Request) -> Id {
        self.next += 1;
        self.requests.insert(self.next, request);
        self.next
    }

    /// Begins to send; the bytes are the layer's until it is waited for.
    fn send(&mut self, to: u32, tag: u32, bytes: Vec<u8>) -> Result<Id> {
        let (len, memory) = (bytes.len(), Region::from_vec(bytes));
        let bound = Descriptor { queue: Some(self.queue), ..Descriptor::new(memory.clone()) };
        let descriptor = self.interface.bind(bound)?;
        let left = 2;
        let id = self.id(Request::Send { descriptor, lent: None, left });
        let long = len > SHORT;
        if long {
            let entry = MatchEntry {
                bits: id,
                accepts: Accepts::GET,
                once: true,
                user_data: id,
                quiet: Quiet::LINK.with(Quiet::UNLINK),
                ..MatchEntry::new(memory)
            };
            let entry = self.interface.append(FETCHES, List::Priority, entry)?;
            if let Some(Request::Send { lent, .. }) = self.requests.get_mut(&id) {
                *lent = Some(entry);
            }
        }
        let bits = u64::from(tag) | if long { LONG } else { 0 };
        let target = Target { bits, ..Target::new(ProcessId::rank(to), MESSAGES) };
        let put = Operation::put(Part::of(descriptor, len as u64), target);
        self.interface.start(Operation {
            ack: Ack::Full,
            header_data: id,
            user_data: id,
            ..put
        })?;
        Ok(id)
    }

    /// Posts a receive of up to so many bytes; no source, or no tag, is any.
    fn receive(&mut self, source: Option<u32>, tag: Option<u32>, len: usize) -> Result<Id> {
        // A byte at least, so that the sender of a long message sees that it was expected.
        let memory = Region::zeroed(len.max(1));
        let id = self.id(Request::Receive { memory: memory.clone(), len, done: None });
        let entry = MatchEntry {
            bits: u64::from(tag.unwrap_or(0)),
            ignore: LONG | if tag.is_none() { u64::from(u32::MAX) } else { 0 },
            source: source.map_or(ProcessId::ANY, ProcessId::rank),
            once: true,
            user_data: id,
            quiet: Quiet::LINK.with(Quiet::UNLINK),
            ..MatchEntry::new(memory)
        };
        self.interface.append(MESSAGES, List::Priority, entry)?;
        Ok(id)
    }

    /// Waits for a receive: what came, and its bytes.
    fn wait(&mut self, id: Id) -> Result<(Received, Vec<u8>)> {
        loop {
            if let Some(Request::Receive { done: Some(_), .. }) = self.requests.get(&id)
                && let Some(Request::Receive { memory, len, done: Some(mut received) }) =
                    self.requests.remove(&id)
            {
                received.len = received.len.min(len);
                let mut bytes = vec![0; received.len];
                memory.read(0, &mut bytes);
                return Ok((received, bytes));
            }
            self.advance()?;
        }
    }

    /// Waits for a send.
    fn wait_sent(&mut self, id: Id) -> Result<()> {
        while self.requests.contains_key(&id) {
            self.advance()?;
        }
        Ok(())
    }

    fn advance(&mut self) -> Result<()> {
        match self.interface.wait_event(self.queue, PATIENCE)?.event {
            Event::Served(served) if served.arrival.portal == FETCHES => {
                self.sent(served.user_data, 1)
            }
            Event::Served(served) => self.arrived(served.user_data, &served),
            Event::Overflow(served) => self.came_before(&served),
            // A block that all messages have left is used again.
            Event::AutoFree(_) => self.append_block(),
            Event::Ack(ack) => {
                ack.result?;
                let Some(Request::Send { descriptor, lent, .. }) =
                    self.requests.get(&ack.user_data)
                else {
                    return Err("an acknowledgement of nothing".into());
                };
                self.interface.release(*descriptor)?;
                // A long message that was expected is there, or a byte of it: it will not be
                // fetched.
                let taken = lent.is_none() || ack.len > 0;
                if taken && let Some(lent) = lent {
                    let _ = self.interface.unlink(*lent);
                }
                self.sent(ack.user_data, if taken { 2 } else { 1 })
            }
            Event::Reply(reply) => {
                reply.result?;
                let Some(Request::Fetch { descriptor, receive, received }) =
                    self.requests.remove(&reply.user_data)
                else {
                    return Err("a reply to nothing".into());
                };
                self.interface.release(descriptor)?;
                self.done(receive, received);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn sent(&mut self, id: Id, parts: u8) -> Result<()> {
        if let Some(Request::Send { left, .. }) = self.requests.get_mut(&id) {
            *left = left.saturating_sub(parts);
            if *left == 0 {
                self.requests.remove(&id);
            }
        }
        Ok(())
    }

    fn received(served: &Served, len: u64) -> Received {
        let (source, tag) = (served.arrival.initiator.process, served.arrival.bits as u32);
        Received { source, tag, len: len as usize }
    }

    fn arrived(&mut self, id: Id, served: &Served) -> Result<()> {
        served.result?;
        self.done(id, Comm::received(served, served.len));
        Ok(())
    }

    fn done(&mut self, id: Id, received: Received) {
        if let Some(Request::Receive { done, .. }) = self.requests.get_mut(&id) {
            *done = Some(received);
        }
    }

    /// A message that waited: its bytes are copied, or fetched.
    fn came_before(&mut self, served: &Served) -> Result<()> {
        served.result?;
        let Some(Request::Receive { memory, .. }) = self.requests.get(&served.user_data) else {
            return Err("a message without a receive".into());
        };
        let memory = memory.clone();
        let len = served.arrival.len.min(memory.len() as u64);
        if served.arrival.bits & LONG == 0 {
            let mut bytes = vec![0; len as usize];
            served.memory.as_ref().ok_or(Failure::Undelivered)?.read(served.offset, &mut bytes);
            memory.write(0, &bytes);
            self.done(served.user_data, Comm::received(served, len));
            return Ok(());
        }
        let into = Descriptor { queue: Some(self.queue), ..Descriptor::new(memory) };
        let descriptor = self.interface.bind(into)?;
        let received = Comm::received(served, len);
        let id = self.id(Request::Fetch { descriptor, receive: served.user_data, received });
        let target = Target {
            bits: served.arrival.header_data,
            ..Target::new(served.arrival.initiator, FETCHES)
        };
        let get = Operation::get(Part::of(descriptor, len), target);
        self.interface.start(Operation { user_data: id, ..get })?;
        Ok(())
    }
}

fn main() -> Result<()> {
    let job = Job::join()?;
    let mut comm = Comm::new(&job)?;
    job.fence()?;
    let (rank, size) = (job.rank, job.size);
    let bytes = |from: u32, tag: u32, len: usize| {
        (0..len).map(|at| (at as u32 * 31 + from * 7 + tag) as u8).collect::<Vec<u8>>()
    };
    const LENGTHS: [usize; 5] = [0, 9, SHORT, SHORT + 1, 3 << 20];
    // Everybody sends to everybody, himself included; half is received before it is sent.
    let mut early = Vec::new();
    for from in 0..size {
        for tag in 0..2 {
            early.push((from, tag, comm.receive(Some(from), Some(tag), 4 << 20)?));
        }
    }
    let mut sends = Vec::new();
    for to in 0..size {
        for (tag, len) in (0..).zip(LENGTHS) {
            sends.push(comm.send(to, tag, bytes(rank, tag, len))?);
        }
        // Two with one tag stay in order.
        sends.push(comm.send(to, 100, bytes(rank, 1, 50))?);
        sends.push(comm.send(to, 100, bytes(rank, 2, 20_000))?);
    }
    for (from, tag, id) in early {
        let (received, there) = comm.wait(id)?;
        assert_eq!((received.source, received.tag), (from, tag));
        assert!(there == bytes(from, tag, LENGTHS[tag as usize]));
    }
    // The rest came before its receives. Any tag, from one source: in order of sending.
    for from in 0..size {
        for tag in 2..5 {
            let id = comm.receive(Some(from), None, 4 << 20)?;
            let (received, there) = comm.wait(id)?;
            assert_eq!((received.source, received.tag), (from, tag));
            assert!(there == bytes(from, tag, LENGTHS[tag as usize]));
        }
    }
    // Any source.
    let mut nth = vec![0; size as usize];
    for _ in 0..2 * size {
        let id = comm.receive(None, Some(100), 4 << 20)?;
        let (received, there) = comm.wait(id)?;
        let nth = &mut nth[received.source as usize];
        *nth += 1;
        let len = if *nth == 1 { 50 } else { 20_000 };
        assert!(there == bytes(received.source, *nth, len), "in order");
    }
    for id in sends {
        comm.wait_sent(id)?;
    }
    // No rank leaves before the others have fetched its messages.
    for to in 0..size {
        comm.send(to, 200, Vec::new())?;
    }
    for _ in 0..size {
        let id = comm.receive(None, Some(200), 0)?;
        comm.wait(id)?;
    }
    println!("rank {rank}: {} messages sent and received", 7 * size);
    job.leave()
}
