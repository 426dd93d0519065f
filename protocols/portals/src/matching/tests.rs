//! The core beside a plain model of the standard: lists that are walked, nothing else.

use super::*;
use crate::{Accepts, ProcessId, message::Request};
use proptest::prelude::*;

/// An entry of the model.
#[derive(Clone, Debug)]
struct Plain {
    id: u64,
    list: List,
    spec: MatchEntry,
    left: Option<u64>,
    offset: u64,
    /// In the list; else used up, and here only for what needs it.
    listed: bool,
    pending: u32,
    headers: u32,
    unlink_raised: bool,
}

/// A header of the model.
#[derive(Clone, Debug)]
struct Kept {
    id: usize,
    entry: u64,
    arrival: Arrival,
    len: u64,
    landed: bool,
    /// What has claimed it, and whether that goes with it.
    owner: Option<(u64, bool, bool)>,
}

/// What both have to say, in one form.
#[derive(Clone, Debug, PartialEq)]
enum Said {
    Linked(u64),
    Unlinked(u64),
    Freed(u64),
    Claimed { by: u64, header_data: u64, len: u64, ok: bool },
}

/// What became of a message.
type Became = Result<(u64, u64, u64), Refusal>;

/// Where an entry goes in.
#[derive(Clone, Copy)]
enum Position {
    First,
    Last,
    /// So many places behind another.
    Beside(u64, usize),
}

#[derive(Default)]
struct Model {
    entries: Vec<Plain>,
    headers: Vec<Kept>,
    enabled: bool,
    next: u64,
    said: Vec<Said>,
}

fn admits(spec: &MatchEntry, arrival: &Arrival) -> Result<(), Refusal> {
    if spec.user.is_some_and(|user| user != arrival.user) {
        return Err(Refusal::Permission);
    }
    let ok = match arrival.request {
        Request::Get => spec.accepts.has(Accepts::GET),
        Request::Put => spec.accepts.has(Accepts::PUT),
        _ => spec.accepts.has(Accepts::GET) && spec.accepts.has(Accepts::PUT),
    };
    if ok { Ok(()) } else { Err(Refusal::Operation) }
}

fn matches(spec: &MatchEntry, arrival: &Arrival) -> bool {
    let source = |wanted: u32, is: u32| wanted == crate::ANY_PART || wanted == is;
    (spec.bits ^ arrival.bits) & !spec.ignore == 0
        && source(spec.source.node, arrival.initiator.node)
        && source(spec.source.process, arrival.initiator.process)
}

impl Model {
    fn at(&mut self, id: u64) -> &mut Plain {
        self.entries.iter_mut().find(|entry| entry.id == id).expect("an entry that is needed")
    }

    fn append(&mut self, list: List, spec: &MatchEntry, position: Position) {
        let id = spec.user_data;
        let mut left = if spec.once { Some(1) } else { spec.threshold };
        if list == List::Priority {
            while left != Some(0) {
                let Some(at) = self.headers.iter().position(|h| {
                    let fits = spec.truncate || h.arrival.len <= spec.memory.len();
                    h.owner.is_none() && matches(spec, &h.arrival) && fits
                }) else {
                    break;
                };
                left = left.map(|left| left - 1);
                let ok = admits(spec, &self.headers[at].arrival).is_ok();
                self.headers[at].owner = Some((id, false, ok));
                if self.headers[at].landed {
                    self.tell(at, true);
                }
            }
            if left == Some(0) && (spec.once || spec.unlink) {
                let waiting = self.headers.iter_mut().rfind(|h| h.owner.is_some_and(|o| o.0 == id));
                match waiting {
                    Some(header) => header.owner.as_mut().unwrap().1 = true,
                    None => self.said.push(Said::Unlinked(id)),
                }
                return;
            }
        }
        let entry = Plain {
            id,
            list,
            spec: spec.clone(),
            left,
            offset: 0,
            listed: true,
            pending: 0,
            headers: 0,
            unlink_raised: false,
        };
        let at = match position {
            Position::First => 0,
            Position::Last => self.entries.len(),
            Position::Beside(base, behind) => {
                behind + self.entries.iter().position(|entry| entry.id == base).expect("listed")
            }
        };
        self.entries.insert(at, entry);
        self.said.push(Said::Linked(id));
    }

    /// A header goes to its owner.
    fn tell(&mut self, at: usize, ok: bool) {
        let header = self.headers.remove(at);
        let (by, unlinks, permitted) = header.owner.expect("it was claimed");
        let (header_data, len) = (header.arrival.header_data, header.len);
        self.said.push(Said::Claimed { by, header_data, len, ok: ok && permitted });
        self.at(header.entry).headers -= 1;
        self.settle(header.entry);
        if unlinks {
            self.said.push(Said::Unlinked(by));
        }
    }

    fn settle(&mut self, id: u64) {
        let entry = self.at(id);
        if entry.listed || entry.pending > 0 {
            return;
        }
        let (first, gone, list) = (!entry.unlink_raised, entry.headers == 0, entry.list);
        entry.unlink_raised = true;
        if first {
            self.said.push(Said::Unlinked(id));
        }
        if gone {
            if list == List::Overflow {
                self.said.push(Said::Freed(id));
            }
            self.entries.retain(|entry| entry.id != id);
        }
    }

    fn deliver(&mut self, arrival: &Arrival) -> (Became, Option<usize>) {
        if !self.enabled {
            return (Err(Refusal::Disabled), None);
        }
        for list in [List::Priority, List::Overflow] {
            for at in 0..self.entries.len() {
                let entry = &mut self.entries[at];
                let candidate = entry.listed && entry.list == list && entry.left != Some(0);
                if !candidate || !matches(&entry.spec, arrival) {
                    continue;
                }
                if let Err(refusal) = admits(&entry.spec, arrival) {
                    return (Err(refusal), None);
                }
                let size = entry.spec.memory.len();
                let offset = if entry.spec.local_offset { entry.offset } else { arrival.offset };
                let room = size.saturating_sub(offset);
                let len = if arrival.len <= room {
                    arrival.len
                } else if entry.spec.truncate {
                    room
                } else {
                    continue;
                };
                entry.left = entry.left.map(|left| left - 1);
                if entry.spec.local_offset {
                    entry.offset += len;
                    if entry.spec.min_free.is_some_and(|free| size - entry.offset < free) {
                        entry.left = Some(0);
                    }
                }
                entry.pending += 1;
                if entry.left == Some(0) && (entry.spec.once || entry.spec.unlink) {
                    entry.listed = false;
                }
                let mut header = None;
                if list == List::Overflow && entry.spec.header {
                    entry.headers += 1;
                    let (entry, arrival) = (entry.id, *arrival);
                    self.next += 1;
                    let id = self.next as usize;
                    header = Some(id);
                    let owner = None;
                    self.headers.push(Kept { id, entry, arrival, len, landed: false, owner });
                }
                return (Ok((self.entries[at].id, offset.min(size), len)), header);
            }
        }
        (Err(Refusal::NoMatch), None)
    }

    fn finish(&mut self, id: u64, header: Option<usize>, ok: bool) {
        self.at(id).pending -= 1;
        let at = header.and_then(|header| self.headers.iter().position(|h| h.id == header));
        if let Some(at) = at {
            self.headers[at].landed = true;
            if self.headers[at].owner.is_some() {
                self.tell(at, ok);
            } else if !ok {
                self.headers.remove(at);
                self.at(id).headers -= 1;
            }
        }
        if self.entries.iter().any(|entry| entry.id == id) {
            self.settle(id);
        }
    }

    fn unlink(&mut self, id: u64) -> Result<(), EntryError> {
        let entry = self.entries.iter().find(|entry| entry.id == id).ok_or(EntryError::Stale)?;
        if entry.pending > 0 || entry.headers > 0 {
            return Err(EntryError::InUse);
        }
        self.entries.retain(|entry| entry.id != id);
        Ok(())
    }
}

/// A step of a generated sequence; numbers are taken modulo what there is.
#[derive(Clone, Debug)]
enum Step {
    Insert { place: u8, base: usize, overflow: bool, spec: Box<MatchEntry> },
    Deliver { arrival: Arrival, at_once: bool },
    Finish { which: usize, ok: bool },
    Unlink { which: usize },
    Search { delete: bool, spec: Box<MatchEntry> },
    Enable(bool),
}

fn process() -> impl Strategy<Value = ProcessId> {
    (0_u32..2, 0_u32..3).prop_map(|(node, process)| ProcessId { node, process })
}

fn source() -> impl Strategy<Value = ProcessId> {
    let any = crate::ANY_PART;
    prop_oneof![
        process(),
        Just(ProcessId::ANY),
        process().prop_map(move |p| ProcessId { process: any, ..p }),
        process().prop_map(move |p| ProcessId { node: any, ..p }),
    ]
}

fn spec() -> impl Strategy<Value = Box<MatchEntry>> {
    let memory = Memory::from(vec![0; 64]);
    let what = (0_u64..4, prop_oneof![4 => Just(0_u64), 1 => 0_u64..4, 1 => Just(!0)], source());
    let how = (any::<[bool; 5]>(), proptest::option::of(1_u64..4), 0_u8..8, 0_u64..65);
    (what, how).prop_map(move |((bits, ignore, source), (flags, threshold, rights, free))| {
        let [once, unlink, local_offset, truncate, header] = flags;
        let size = if rights == 0 { 8 } else { 64 };
        Box::new(MatchEntry {
            bits,
            ignore,
            source,
            user: (rights == 1).then_some(1),
            accepts: match rights {
                2 => Accepts::GET,
                3 => Accepts::PUT.with(Accepts::GET),
                _ => Accepts::PUT,
            },
            once,
            threshold,
            unlink,
            local_offset,
            min_free: (free > 32).then_some(free),
            truncate,
            header,
            ..MatchEntry::new(memory.part(0, size).expect("within"))
        })
    })
}

fn step() -> impl Strategy<Value = Step> {
    let arrival = (process(), 0_u64..4, 0_u64..80, 0_u64..80, 0_u32..2, 0_u8..6).prop_map(
        |(initiator, bits, len, offset, user, request)| Arrival {
            request: match request {
                0 => Request::Get,
                1 => Request::GetPut,
                _ => Request::Put,
            },
            initiator,
            user,
            job: 0,
            portal: 0,
            bits,
            len: len / 4,
            offset: offset / 2,
            header_data: 0,
        },
    );
    let insert =
        (0_u8..8, any::<usize>(), 0_u8..4, spec()).prop_map(|(place, base, list, spec)| {
            Step::Insert { place, base, overflow: list == 0, spec }
        });
    prop_oneof![
        8 => insert,
        8 => (arrival, any::<bool>()).prop_map(|(arrival, at_once)| Step::Deliver { arrival, at_once }),
        4 => (any::<usize>(), 0_u8..8).prop_map(|(which, ok)| Step::Finish { which, ok: ok > 0 }),
        2 => any::<usize>().prop_map(|which| Step::Unlink { which }),
        1 => (any::<bool>(), spec()).prop_map(|(delete, spec)| Step::Search { delete, spec }),
        1 => (0_u8..8).prop_map(|n| Step::Enable(n > 0)),
    ]
}

/// Both, with what names what in both.
struct Pair {
    core: Matching,
    model: Model,
    handles: Vec<Handle<MatchEntry>>,
    pending: Vec<(Matched, u64, Option<usize>)>,
    notices: Vec<Notice>,
}

fn said(notices: &mut Vec<Notice>) -> Vec<Said> {
    let said = notices.drain(..).map(|notice| match notice {
        Notice::Linked(owner) => Said::Linked(owner.user_data),
        Notice::Unlinked(owner) => Said::Unlinked(owner.user_data),
        Notice::Freed(owner) => Said::Freed(owner.user_data),
        Notice::Claimed(owner, claim) => Said::Claimed {
            by: owner.user_data,
            header_data: claim.arrival.header_data,
            len: claim.len,
            ok: claim.result.is_ok(),
        },
    });
    said.collect()
}

impl Pair {
    fn new() -> Pair {
        let mut core = Matching::new(1, 1 << 20, 1 << 20);
        assert_eq!(core.open(None), Some(0));
        let model = Model { enabled: true, ..Model::default() };
        Pair { core, model, handles: Vec::new(), pending: Vec::new(), notices: Vec::new() }
    }

    fn finish(&mut self, at: usize, ok: bool) {
        let (taken, id, header) = self.pending.swap_remove(at);
        let result = if ok { Ok(()) } else { Err(Failure::Unreachable) };
        self.core.finish(&taken, result, &mut self.notices);
        self.model.finish(id, header, ok);
    }

    fn step(&mut self, serial: u64, step: Step) {
        match step {
            Step::Insert { place, base, overflow, mut spec } => {
                let list = if overflow { List::Overflow } else { List::Priority };
                let id = self.handles.len() as u64;
                spec.user_data = id;
                let listed: Vec<usize> = (0..self.model.entries.len())
                    .filter(|at| {
                        let entry = &self.model.entries[*at];
                        entry.listed && entry.list == list
                    })
                    .collect();
                let (at, position) = match (place, listed.is_empty()) {
                    (0, _) => (At::First, Position::First),
                    (1 | 2, false) => {
                        let base = self.model.entries[listed[base % listed.len()]].id;
                        let slot = self.handles[base as usize].index();
                        match place {
                            1 => (At::Before(slot), Position::Beside(base, 0)),
                            _ => (At::After(slot), Position::Beside(base, 1)),
                        }
                    }
                    _ => (At::Last, Position::Last),
                };
                let done = self.core.insert(0, list, (*spec).clone(), at, &mut self.notices);
                self.handles.push(done.expect("there is room"));
                self.model.append(list, &spec, position);
            }
            Step::Deliver { mut arrival, at_once } => {
                arrival.header_data = serial;
                let found = self.core.deliver(&arrival);
                let (expected, header) = self.model.deliver(&arrival);
                let entry = |slot| self.core.at(slot).spec.user_data;
                let became = found.map(|taken| (entry(taken.entry), taken.offset, taken.len));
                assert_eq!(became, expected, "{arrival:?}");
                if let Ok(taken) = found {
                    self.pending.push((taken, became.unwrap().0, header));
                    if at_once {
                        self.finish(self.pending.len() - 1, true);
                    }
                }
            }
            Step::Finish { which, ok } if !self.pending.is_empty() => {
                self.finish(which % self.pending.len(), ok);
            }
            Step::Unlink { which } if !self.handles.is_empty() => {
                let which = which % self.handles.len();
                let done = self.core.unlink(self.handles[which]).map(|_| ());
                assert_eq!(done, self.model.unlink(which as u64));
            }
            Step::Search { delete, mut spec } => {
                spec.user_data = u64::MAX;
                let fits = |h: &&Kept| {
                    let fits = spec.truncate || h.arrival.len <= spec.memory.len();
                    h.owner.is_none() && matches(&spec, &h.arrival) && fits
                };
                let all = self.model.headers.iter().filter(fits).map(|h| h.arrival.header_data);
                let all: Vec<u64> = all.collect();
                if delete {
                    let before = self.model.said.len();
                    let found =
                        self.core.search_and_delete(0, (*spec).clone(), &mut self.notices).unwrap();
                    let most = if spec.once { Some(1) } else { spec.threshold };
                    let most = most.map_or(usize::MAX, |most| most as usize);
                    assert_eq!(found as usize, all.len().min(most));
                    // As if it were appended, and gone again without a word.
                    self.model.append(List::Priority, &spec, Position::Last);
                    self.model.entries.retain(|entry| entry.id != u64::MAX);
                    for header in &mut self.model.headers {
                        if let Some(owner) = header.owner.as_mut().filter(|o| o.0 == u64::MAX) {
                            owner.1 = false;
                        }
                    }
                    let own = [Said::Linked(u64::MAX), Said::Unlinked(u64::MAX)];
                    let mut at = 0;
                    self.model.said.retain(|said| {
                        at += 1;
                        at <= before || !own.contains(said)
                    });
                } else {
                    let mut behind = None;
                    let found = std::iter::from_fn(|| {
                        let (header, claim) = self.core.search(0, &spec, behind).unwrap()?;
                        behind = Some(header);
                        Some(claim.arrival.header_data)
                    });
                    assert_eq!(found.collect::<Vec<u64>>(), all);
                }
            }
            Step::Enable(enabled) => {
                self.core.enable(0, enabled);
                self.model.enabled = enabled;
            }
            _ => {}
        }
        assert_eq!(said(&mut self.notices), std::mem::take(&mut self.model.said));
        let sizes = (self.model.entries.len(), self.model.headers.len());
        assert_eq!(self.core.len(), sizes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    /// 256 cases of up to 250 steps; with PROPTEST_CASES=10000 more than a million steps.
    #[test]
    fn the_core_does_what_the_model_does(steps in proptest::collection::vec(step(), 1..250)) {
        let mut pair = Pair::new();
        for (serial, step) in steps.into_iter().enumerate() {
            pair.step(serial as u64, step);
        }
        while !pair.pending.is_empty() {
            pair.finish(0, true);
            prop_assert_eq!(said(&mut pair.notices), std::mem::take(&mut pair.model.said));
        }
    }

    /// Long lists with few and with many classes: hashed, walked, and back.
    #[test]
    fn long_lists_keep_their_order(
        specs in proptest::collection::vec((spec(), 0_u8..10, any::<usize>()), 40..200),
        masks in any::<bool>(),
        arrivals in proptest::collection::vec((process(), 0_u64..4), 100..300),
    ) {
        let mut pair = Pair::new();
        for (serial, (mut spec, place, base)) in specs.into_iter().enumerate() {
            if masks {
                spec.ignore = (serial as u64) << 8;
            }
            spec.accepts = Accepts::PUT;
            (spec.user, spec.once) = (None, true);
            pair.step(0, Step::Insert { place, base, overflow: false, spec });
        }
        for (initiator, bits) in arrivals {
            let arrival = Arrival {
                request: Request::Put, initiator, user: 0, job: 0, portal: 0, bits, len: 8,
                offset: 0, header_data: 0,
            };
            pair.step(0, Step::Deliver { arrival, at_once: true });
        }
    }
}

fn put(bits: u64, len: u64) -> Arrival {
    let initiator = ProcessId::rank(1);
    let (user, job, portal, offset, header_data) = (0, 0, 0, 0, 0);
    Arrival { request: Request::Put, initiator, user, job, portal, bits, len, offset, header_data }
}

/// Entries put in at one place until no label is left between two.
#[test]
fn labels_that_run_out_are_made_anew() {
    let mut core = Matching::new(1, 1000, 0);
    core.open(None);
    let mut notices = Vec::new();
    let spec = |user_data| MatchEntry { user_data, once: true, ..MatchEntry::new(vec![0; 8]) };
    let mut insert = |core: &mut Matching, id, at| {
        core.insert(0, List::Priority, spec(id), at, &mut notices).unwrap().index()
    };
    insert(&mut core, 0, At::Last);
    let last = insert(&mut core, 1, At::Last);
    let mut next = last;
    for id in 2..200 {
        next = insert(&mut core, id, At::Before(if id % 2 == 0 { next } else { last }));
    }
    let order: Vec<u64> = {
        let list = &core.portals[0].as_ref().unwrap().priority;
        list.iter().map(|(_, _, slot)| core.entries[*slot].spec.user_data).collect()
    };
    for expected in order {
        let taken = core.deliver(&put(0, 1)).unwrap();
        assert_eq!(core.at(taken.entry).spec.user_data, expected);
        core.finish(&taken, Ok(()), &mut Vec::new());
    }
    assert_eq!(core.len(), (0, 0));
}

/// The unlinking belongs to the operation that ends last, not to the one that came last.
#[test]
fn the_last_to_end_unlinks() {
    let mut core = Matching::new(1, 10, 10);
    core.open(None);
    let mut notices = Vec::new();
    let spec = MatchEntry { threshold: Some(2), unlink: true, ..MatchEntry::new(vec![0; 8]) };
    let handle = core.append(0, List::Priority, spec, &mut notices).unwrap();
    let (first, second) = (core.deliver(&put(0, 4)).unwrap(), core.deliver(&put(0, 4)).unwrap());
    assert_eq!(core.deliver(&put(0, 4)), Err(Refusal::NoMatch));
    notices.clear();
    core.finish(&second, Ok(()), &mut notices);
    assert!(notices.is_empty());
    assert_eq!(core.unlink(handle).unwrap_err(), EntryError::InUse);
    core.finish(&first, Ok(()), &mut notices);
    assert!(matches!(notices[..], [Notice::Unlinked(_)]));
    assert_eq!(core.unlink(handle).unwrap_err(), EntryError::Stale);
}

#[test]
fn portals_are_opened_once_and_closed_when_empty() {
    let mut core = Matching::new(3, 10, 1);
    assert_eq!((core.open(Some(1)), core.open(Some(1))), (Some(1), None));
    assert_eq!((core.open(None), core.open(None), core.open(None)), (Some(0), Some(2), None));
    assert_eq!(core.open(Some(3)), None);
    let mut notices = Vec::new();
    let spec = MatchEntry { once: true, ..MatchEntry::new(vec![0; 8]) };
    core.append(1, List::Overflow, spec.clone(), &mut notices).unwrap();
    core.append(1, List::Overflow, spec.clone(), &mut notices).unwrap();
    assert_eq!(core.close(1), Err(EntryError::InUse));
    let arrival = Arrival { portal: 1, ..put(0, 8) };
    let taken = core.deliver(&arrival).unwrap();
    assert_eq!(core.deliver(&arrival), Err(Refusal::NoHeader), "one header is the most");
    core.finish(&taken, Ok(()), &mut notices);
    assert_eq!(core.close(1), Err(EntryError::InUse));
    assert_eq!(core.search_and_delete(1, spec.clone(), &mut notices), Ok(1));
    let taken = core.deliver(&arrival).unwrap();
    core.finish(&taken, Ok(()), &mut notices);
    assert_eq!(core.search_and_delete(1, spec, &mut notices), Ok(1));
    assert_eq!((core.close(1), core.close(1)), (Ok(()), Err(EntryError::NoPortal)));
    assert_eq!(core.deliver(&arrival), Err(Refusal::NoPortal));
    assert_eq!(core.len(), (0, 0));
}
