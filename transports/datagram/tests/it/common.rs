//! A network library within one thread, which can be told to be silent: operations that are posted
//! then never complete, until it is told to complete them.

use petasos_datagram::{
    Config, Facts, Handle, Happened, Mark, Medium, Meeting, Network, Node, Nodes, Objects,
    OpenError, Packet, Refusal, RemoteOp, Taken, slots,
};
use petasos_fabric::{Access, Address, Enforcement, Slice, two_sided::Outgoing};
use std::{
    cell::RefCell,
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
};

/// What the library writes to the memory of gets that it completes late.
pub(crate) const LATE: u8 = 0xee;

#[derive(Default)]
struct World {
    silent: bool,
    /// Whether no memory can be opened.
    closed: bool,
    /// Whether keys are of no use.
    keyless: bool,
    /// What endpoints speak that are opened from now on, if not `mock`.
    protocol: Option<&'static str>,
    complete_all: bool,
    next: u64,
    packets: HashMap<u64, VecDeque<Vec<u8>>>,
    memory: HashMap<u64, Slice>,
    /// Nodes in all tables of addresses.
    nodes: usize,
}

thread_local! {
    static WORLD: RefCell<World> = RefCell::default();
}

fn world<T>(what: impl FnOnce(&mut World) -> T) -> T {
    WORLD.with_borrow_mut(what)
}

/// Operations that are posted from now on never complete.
pub(crate) fn be_silent(silent: bool) {
    world(|world| world.silent = silent);
}

/// What endpoints speak that are opened from now on.
pub(crate) fn speak(protocol: &'static str) {
    world(|world| world.protocol = Some(protocol));
}

/// Whether libraries open memory from now on.
pub(crate) fn open_memory(open: bool) {
    world(|world| world.closed = !open);
}

/// Whether libraries can use keys from now on.
pub(crate) fn take_keys(take: bool) {
    world(|world| world.keyless = !take);
}

/// Operations that had not completed do.
pub(crate) fn complete_all() {
    world(|world| world.complete_all = true);
}

/// Changes the packets that are under way, of one receiver after another.
pub(crate) fn tamper(mut change: impl FnMut(&mut VecDeque<Vec<u8>>)) {
    world(|world| world.packets.values_mut().for_each(&mut change));
}

/// Nodes in all tables of addresses.
pub(crate) fn nodes() -> usize {
    world(|world| world.nodes)
}

enum Held {
    Nothing,
    Payload(#[expect(dead_code, reason = "held as libraries hold it")] Outgoing),
    /// And whether it is late.
    Get(Slice, bool),
    Put(Slice),
}

pub(crate) struct Mock {
    name: [u8; 8],
    facts: Facts,
    sends: usize,
    slots: slots::Slots<(Mark, Held)>,
    nodes: Nodes<u64>,
    opened: Objects<u64>,
    /// Slots that are over, and those that are not.
    over: VecDeque<u32>,
    stuck: Vec<u32>,
    current: Vec<u8>,
}

pub(crate) struct Opened {
    _name: Handle,
    key: u64,
}

impl Mock {
    fn begin(&mut self, mark: Mark, held: Held) {
        let slot = self.slots.next().expect("it was asked for");
        self.slots.keep(slot, (mark, held));
        match world(|world| world.silent) {
            true => self.stuck.push(slot),
            false => self.over.push_back(slot),
        }
    }

    fn deliver(&mut self, to: Node, packet: Vec<u8>) -> Result<(), Refusal> {
        let to = *self.nodes.get(to).ok_or(Refusal::Failed(-1))?;
        if self.slots.next().is_none() {
            return Err(Refusal::Full);
        }
        world(|world| world.packets.entry(to).or_default().push_back(packet));
        Ok(())
    }
}

impl Network for Mock {
    type Kind = ();
    type OpenError = OpenError;
    type Opened = Opened;
    type Key = u64;

    const SHORT: usize = 4096;

    fn kind(_: &Address) -> Result<((), Medium), OpenError> {
        Ok(((), Medium { scheme: "mock", best: "mock", meeting: Meeting::Shm }))
    }

    fn open((): (), _: Option<&str>, _: usize, config: &Config) -> Result<Mock, OpenError> {
        let name = world(|world| {
            world.next += 1;
            world.next
        });
        let facts = Facts {
            protocol: world(|world| world.protocol).unwrap_or("mock").to_owned(),
            fragment: Config::MAX_MESSAGE,
            inject: 0,
            access: Some(1 << 20),
            data_bits: 0,
            completion_data_from: u64::MAX,
            enforcement: Enforcement::Owner,
        };
        Ok(Mock {
            name: name.to_le_bytes(),
            facts,
            sends: config.sends,
            slots: slots::Slots::new(config.sends),
            nodes: Nodes::default(),
            opened: Objects::default(),
            over: VecDeque::new(),
            stuck: Vec::new(),
            current: Vec::new(),
        })
    }

    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn name(&self) -> &[u8] {
        &self.name
    }

    fn error(&self, code: isize) -> String {
        format!("error {code}")
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn try_wait(&mut self) -> bool {
        true
    }

    fn insert(&mut self, name: &[u8]) -> Result<Node, String> {
        let name = name.try_into().map_err(|_| "no name".to_owned())?;
        world(|world| world.nodes += 1);
        Ok(self.nodes.insert(u64::from_le_bytes(name)))
    }

    fn remove(&mut self, node: Node) {
        if self.nodes.remove(node).is_some() {
            world(|world| world.nodes -= 1);
        }
    }

    fn inject(
        &mut self,
        _: Node,
        _: usize,
        _: impl FnOnce(&mut [u8]),
        _: Mark,
    ) -> Result<Taken, Refusal> {
        unreachable!("the facts say that nothing is injected")
    }

    fn send_short(
        &mut self,
        to: Node,
        headers: &[&[u8]],
        parts: &[&[u8]],
        mark: Mark,
    ) -> Result<(), Refusal> {
        self.deliver(to, headers.iter().chain(parts).copied().flatten().copied().collect())?;
        self.begin(mark, Held::Nothing);
        Ok(())
    }

    fn send(
        &mut self,
        to: Node,
        header: &[u8],
        payload: Outgoing,
        mark: Mark,
    ) -> Result<(), (Refusal, Outgoing)> {
        let whole = petasos_fabric::Region::zeroed(header.len() + payload.len());
        whole.write(0, header);
        slots::copy_payload(&payload, &whole, header.len());
        let copied = whole.len() <= slots::Slots::<()>::BUFFER;
        assert!(copied || !payload.is_raw(), "a library may read it when it is freed");
        if let Err(refusal) = self.deliver(to, whole.to_vec()) {
            return Err((refusal, payload));
        }
        self.begin(mark, Held::Payload(payload));
        Ok(())
    }

    fn access(
        &mut self,
        _: Node,
        op: RemoteOp,
        local: Slice,
        key: &u64,
        offset: u64,
        mark: Mark,
    ) -> Result<(), Refusal> {
        assert!(!local.is_raw(), "a library may be at it when it is freed");
        if self.slots.next().is_none() {
            return Err(Refusal::Full);
        }
        let remote = world(|world| world.memory.get(key).cloned()).ok_or(Refusal::Failed(-2))?;
        let remote = remote.part(offset as usize, local.len()).ok_or(Refusal::Failed(-3))?;
        let silent = world(|world| world.silent);
        let held = match op {
            RemoteOp::Get => {
                if !silent {
                    remote.copy_to(&local);
                }
                Held::Get(local, silent)
            }
            _ => {
                local.copy_to(&remote);
                Held::Put(local)
            }
        };
        self.begin(mark, held);
        Ok(())
    }

    fn holds(&self, memory: &Slice) -> bool {
        self.slots.entries().any(|(_, held)| match held {
            Held::Get(held, _) | Held::Put(held) => held.overlaps(memory),
            _ => false,
        })
    }

    fn running(&self) -> usize {
        self.slots.running()
    }

    fn spare(&mut self, lost: usize) {
        while self.slots.count() < self.sends + lost {
            self.slots.grow();
        }
    }

    fn next(&mut self) -> Option<Happened> {
        if world(|world| world.complete_all) {
            self.over.extend(self.stuck.drain(..));
        }
        if let Some(slot) = self.over.pop_front() {
            let (mark, held) = self.slots.done(slot)?;
            if let Held::Get(local, true) = held {
                local.write(0, &vec![LATE; local.len()]);
            }
            return Some(Happened::Done(mark, Ok(())));
        }
        let own = u64::from_le_bytes(self.name);
        self.current = world(|world| world.packets.get_mut(&own)?.pop_front())?;
        Some(Happened::Packet(Packet { buffer: 0, at: 0, len: self.current.len() }))
    }

    fn has_more(&self) -> bool {
        !self.over.is_empty()
    }

    fn poll(&mut self) -> bool {
        let own = u64::from_le_bytes(self.name);
        let packets = world(|world| world.packets.get(&own).is_some_and(|list| !list.is_empty()));
        packets || self.has_more()
    }

    fn read(&self, _: Packet, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self.current[at..][..into.len()]);
    }

    fn copy(&self, _: Packet, at: usize, into: &Slice) -> usize {
        let Some(from) = self.current.get(at..at + into.len()) else { return 0 };
        into.write(0, from);
        from.len()
    }

    fn open_memory(&mut self, memory: &Slice, _: Access) -> Option<Opened> {
        assert!(!memory.is_raw(), "a library may not close it");
        if world(|world| world.closed) {
            return None;
        }
        let key = world(|world| {
            world.next += 1;
            world.memory.insert(world.next, memory.clone());
            world.next
        });
        Some(Opened { _name: self.opened.insert(key), key })
    }

    fn close_memory(&mut self) {
        for key in self.opened.returned() {
            world(|world| world.memory.remove(&key));
        }
    }

    fn location(opened: &Opened) -> Vec<u8> {
        opened.key.to_le_bytes().to_vec()
    }

    fn key(&mut self, _: Node, place: &[u8]) -> Option<u64> {
        if world(|world| world.keyless) {
            return None;
        }
        Some(u64::from_le_bytes(place.try_into().ok()?))
    }
}
