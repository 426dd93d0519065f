//! Generated sequences, over each transport, beside a plain model of the standard that walks its
//! lists.

use crate::common::*;
use petasos_fabric::Region;
use petasos_portals::*;

over_all! {
    sequences_are_as_the_plain_model_says
}

/// Numbers from a seed.
struct Random(petasos_sim::Random);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }
}

/// The rank whose portal it is.
const TARGET: usize = 2;
const STEPS: usize = 60;

#[derive(Clone, Debug)]
struct Plain {
    id: u64,
    spec: MatchEntry,
    memory: Vec<u8>,
    left: Option<u64>,
    offset: u64,
    headers: usize,
    gone: bool,
}

/// An unexpected message: its overflow entry, its initiator, and where its data lies.
#[derive(Clone, Debug)]
struct Early {
    entry: u64,
    from: u32,
    bits: u64,
    asked: u64,
    offset: u64,
    len: u64,
}

/// The lists of one portal, walked.
#[derive(Default)]
struct Model {
    lists: [Vec<Plain>; 2],
    /// Used up, with headers that refer to them.
    kept: Vec<Plain>,
    early: Vec<Early>,
    /// What is to be told.
    told: Vec<String>,
}

struct Ask<'a> {
    from: u32,
    bits: u64,
    offset: u64,
    len: u64,
    /// None for a get.
    data: Option<&'a [u8]>,
}

fn matches(spec: &MatchEntry, from: u32, bits: u64) -> bool {
    let source = spec.source == ProcessId::ANY || spec.source == ProcessId::rank(from);
    source && (spec.bits ^ bits) & !spec.ignore == 0
}

impl Plain {
    fn active(&self) -> bool {
        self.left != Some(0)
    }

    fn unlinks(&self) -> bool {
        self.spec.unlink || self.spec.once
    }
}

impl Model {
    /// What the initiator learns: bytes moved, and of a get which.
    fn ask(&mut self, ask: &Ask<'_>) -> Result<(u64, Vec<u8>), Failure> {
        for list in 0..2 {
            for at in 0..self.lists[list].len() {
                let entry = &mut self.lists[list][at];
                if !entry.active() || !matches(&entry.spec, ask.from, ask.bits) {
                    continue;
                }
                let needed = if ask.data.is_some() { Accepts::PUT } else { Accepts::GET };
                if !entry.spec.accepts.has(needed) {
                    return Err(Failure::Operation);
                }
                let local = entry.spec.local_offset;
                let offset = if local { entry.offset } else { ask.offset };
                let room = (entry.memory.len() as u64).saturating_sub(offset);
                if ask.len > room && !entry.spec.truncate {
                    continue;
                }
                let len = ask.len.min(room);
                let offset = offset.min(entry.memory.len() as u64);
                return Ok((len, self.take(list, at, ask, offset, len)));
            }
        }
        Err(Failure::Dropped)
    }

    fn take(&mut self, list: usize, at: usize, ask: &Ask<'_>, offset: u64, len: u64) -> Vec<u8> {
        let entry = &mut self.lists[list][at];
        let range = offset as usize..(offset + len) as usize;
        let there = entry.memory[range.clone()].to_vec();
        if let Some(data) = ask.data {
            entry.memory[range].copy_from_slice(&data[..len as usize]);
        }
        entry.left = entry.left.map(|left| left - 1);
        if entry.spec.local_offset {
            entry.offset += len;
            let room = entry.memory.len() as u64 - entry.offset;
            if entry.spec.min_free.is_some_and(|least| room < least) {
                entry.left = Some(0);
            }
        }
        let id = entry.id;
        self.told.push(format!("served {id} {offset}+{len}"));
        if list == 1 {
            let Ask { from, bits, len: asked, .. } = *ask;
            self.early.push(Early { entry: id, from, bits, asked, offset, len });
            entry.headers += 1;
        }
        if !entry.active() && entry.unlinks() {
            self.told.push(format!("unlink {id}"));
            let mut entry = self.lists[list].remove(at);
            entry.gone = true;
            if list == 1 {
                self.kept.push(entry);
                self.free();
            }
        }
        there
    }

    fn free(&mut self) {
        let told = &mut self.told;
        self.kept.retain(|entry| {
            if entry.headers == 0 {
                told.push(format!("free {}", entry.id));
            }
            entry.headers > 0
        });
    }

    fn first(&self, spec: &MatchEntry) -> Option<usize> {
        let room = spec.memory.len();
        self.early.iter().position(|early| {
            matches(spec, early.from, early.bits) && (spec.truncate || early.asked <= room)
        })
    }

    /// A claim of what came early, by an entry with this number.
    fn claim(&mut self, at: usize, id: u64, put: bool) {
        let early = self.early.remove(at);
        let result = if put { "" } else { ": Operation" };
        let all = self.lists[1].iter_mut().chain(&mut self.kept);
        let holder = all.into_iter().find(|entry| entry.id == early.entry).unwrap();
        let range = early.offset as usize..(early.offset + early.len) as usize;
        let bytes = sum(&holder.memory[range]);
        self.told.push(format!("overflow{result} {id} {}+{} {bytes}", early.offset, early.len));
        holder.headers -= 1;
        self.free();
    }

    fn append(&mut self, list: usize, id: u64, spec: &MatchEntry) {
        let left = if spec.once { Some(1) } else { spec.threshold };
        let memory = bytes(&spec.memory);
        let (offset, headers, gone) = (0, 0, false);
        let mut entry = Plain { id, spec: spec.clone(), memory, left, offset, headers, gone };
        while list == 0
            && entry.active()
            && let Some(at) = self.first(spec)
        {
            entry.left = entry.left.map(|left| left - 1);
            self.claim(at, id, spec.accepts.has(Accepts::PUT));
        }
        match list == 0 && !entry.active() && entry.unlinks() {
            true => self.told.push(format!("unlink {id}")),
            false => {
                self.told.push(format!("link {id}"));
                self.lists[list].push(entry);
            }
        }
    }
}

fn bytes(memory: &Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len() as usize];
    memory.read(0, &mut bytes);
    bytes
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// An event as the model tells it.
fn tell(event: &Event) -> String {
    let kind = name(event);
    match event {
        Event::Served(e) => format!("{kind} {} {}+{}", e.user_data, e.offset, e.len),
        Event::Overflow(e) => {
            let mut bytes = vec![0; e.len as usize];
            e.memory.as_ref().unwrap().read(e.offset, &mut bytes);
            format!("{kind} {} {}+{} {}", e.user_data, e.offset, e.len, sum(&bytes))
        }
        Event::Link(e) | Event::AutoUnlink(e) | Event::AutoFree(e) => {
            format!("{kind} {}", e.user_data)
        }
        Event::Search { user_data, found } => match found {
            Ok(found) => format!("search {user_data} {}+{}", found.offset, found.len),
            Err(_) => format!("search {user_data} none"),
        },
        other => format!("{other:?}"),
    }
}

fn spec(random: &mut Random, id: u64, list: usize) -> MatchEntry {
    let long = random.below(6) == 0;
    let memory = Region::zeroed(if long { 200_000 } else { 10 + random.below(60) });
    let local_offset = random.below(3) == 0;
    let accepts = [Accepts::PUT, Accepts::GET, Accepts::PUT.with(Accepts::GET)];
    // What is for gets only would refuse what the model lets wait: that is for the priority list.
    let accepts = accepts[if list == 1 { 0 } else { random.below(3) }];
    MatchEntry {
        bits: random.below(4) as u64,
        ignore: [0, 0, 1, 3, !0][random.below(5)],
        source: if random.below(3) == 0 {
            ProcessId::rank(random.below(2) as u32)
        } else {
            ProcessId::ANY
        },
        accepts,
        once: random.below(3) == 0,
        threshold: (random.below(3) == 0).then(|| 1 + random.below(3) as u64),
        unlink: random.below(2) == 0,
        local_offset,
        min_free: (local_offset && random.below(2) == 0).then(|| random.below(20) as u64),
        truncate: random.below(4) > 0,
        user_data: id,
        ..MatchEntry::new(memory)
    }
}

fn sequence(over: Over, seed: u64) {
    let mut random = Random(petasos_sim::Random::new(seed));
    let job = Job::new(over, 3);
    let target = &job.ranks[TARGET];
    let door = door(target);
    let mut model = Model::default();
    // The memory of each entry, to compare in the end.
    let mut memories = Vec::new();
    for id in 1..=STEPS as u64 {
        let step = format!("{over:?}, seed {seed}, step {id}");
        match random.below(10) {
            0..3 => {
                let list = usize::from(random.below(3) == 0);
                let spec = spec(&mut random, id, list);
                model.append(list, id, &spec);
                memories.push((id, spec.memory.clone()));
                let kind = [List::Priority, List::Overflow][list];
                target.append(door.portal, kind, spec).unwrap();
            }
            3 => {
                let spec = spec(&mut random, id, 1);
                match random.below(2) {
                    0 => {
                        let most = if spec.once { 1 } else { spec.threshold.unwrap_or(u64::MAX) };
                        let found = model.early.iter().filter(|early| {
                            matches(&spec, early.from, early.bits)
                                && (spec.truncate || early.asked <= spec.memory.len())
                        });
                        let found: Vec<String> = found
                            .take(most as usize)
                            .map(|early| format!("search {id} {}+{}", early.offset, early.len))
                            .collect();
                        match found.is_empty() {
                            true => model.told.push(format!("search {id} none")),
                            false => model.told.extend(found),
                        }
                        target.search(door.portal, spec).unwrap();
                    }
                    _ => {
                        let mut left = if spec.once { Some(1) } else { spec.threshold };
                        let mut any = false;
                        while left != Some(0)
                            && let Some(at) = model.first(&spec)
                        {
                            left = left.map(|left| left - 1);
                            model.claim(at, id, true);
                            any = true;
                        }
                        if !any {
                            model.told.push(format!("search {id} none"));
                        }
                        target.search_and_delete(door.portal, spec).unwrap();
                    }
                }
            }
            _ => {
                let from = random.below(3);
                let len = match random.below(8) {
                    0 => 100_000 + random.below(50_000),
                    1 => 0,
                    _ => random.below(40),
                };
                let data: Vec<u8> = (0..len).map(|at| (at as u64 * 31 + id * 7) as u8).collect();
                let offset = [0, 0, random.below(50) as u64][random.below(3)];
                let bits = random.below(4) as u64;
                let get = random.below(3) == 0;
                let memory = Region::from_vec(data.clone());
                let rank = &job.ranks[from];
                let queue = rank.queue(10).unwrap();
                let bound = Descriptor {
                    queue: Some(queue),
                    quiet: Quiet::SEND,
                    ..Descriptor::new(memory.clone())
                };
                let bound = rank.bind(bound).unwrap();
                let part = Part::of(bound, len as u64);
                let target = Target { offset, ..to(TARGET as u32, door.portal, bits) };
                let ask = Ask {
                    from: from as u32,
                    bits,
                    offset,
                    len: len as u64,
                    data: (!get).then_some(&data),
                };
                let expected = model.ask(&ask);
                rank.start(match get {
                    true => Operation::get(part, target),
                    false => Operation { ack: Ack::Full, ..Operation::put(part, target) },
                })
                .unwrap();
                let (result, moved) = match job.event(from, queue) {
                    Event::Ack(e) | Event::Reply(e) => (e.result, e.len),
                    other => panic!("{step}: {other:?}"),
                };
                assert_eq!(
                    result,
                    expected.as_ref().map(|_| ()).map_err(|failure| *failure),
                    "{step}"
                );
                if let Ok((len, there)) = expected {
                    assert_eq!(moved, len, "{step}");
                    assert!(!get || memory.to_vec()[..len as usize] == there, "{step}");
                }
                job.settle();
                rank.release(bound).unwrap();
                rank.free_queue(queue).unwrap();
            }
        }
        job.settle();
        let events = std::iter::from_fn(|| target.take_event(door.queue).ok());
        let events: Vec<_> = events.map(|taken| tell(&taken.event)).collect();
        assert_eq!(events, std::mem::take(&mut model.told), "{step}");
        assert_eq!(target.status().headers as usize, model.early.len(), "{step}");
    }
    let all = model.lists.iter().flatten().chain(&model.kept);
    for entry in all {
        let (_, memory) = memories.iter().find(|(id, _)| *id == entry.id).unwrap();
        assert!(
            bytes(memory) == entry.memory,
            "{over:?}, seed {seed}: memory of entry {}",
            entry.id
        );
    }
}

fn sequences_are_as_the_plain_model_says(over: Over) {
    for seed in 0..12 {
        sequence(over, seed);
    }
}
