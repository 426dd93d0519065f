//! What may be done with a descriptor of Portals 3 is taken off when an operation is started, so
//! that what it has begun can end: every START has its END, and nothing is written that the
//! threshold has no room for.

use crate::common::{Job, LONG, Over, over_all, pattern, to};
use petasos_fabric::Region;
use petasos_portals::{
    Config, Event, EventQueue, Handle, ProcessId, Target,
    v3::{DescriptorHandle, Interface, MemoryDescriptor, Position},
};
use proptest::prelude::*;
use std::{cell::RefCell, collections::HashMap};

over_all! {
    a_get_needs_something_left
    a_get_put_with_one_descriptor_needs_two
    what_a_get_needs_is_reserved_for_it
    long_data_costs_what_short_data_costs
    an_acknowledgement_that_may_not_come_is_not_asked_for
    what_is_refused_costs_nothing
    without_room_it_stays_inactive
}

struct Pair {
    job: Job,
    a: Interface,
    b: Interface,
    queue: Handle<EventQueue>,
}

/// The bits of B's entry that takes puts and gets, and bits that nothing matches.
const TAKEN: u64 = 1;
const REFUSED: u64 = 2;

fn pair(over: Over) -> Pair {
    pair_with(over, |_, _| {})
}

fn pair_with(over: Over, set: impl Fn(usize, &mut Config)) -> Pair {
    let job = Job::with(over, 2, set);
    let [a, b] = [0, 1].map(|rank| Interface::of(job.ranks[rank].clone()).unwrap());
    let entry = b.attach_entry(4, ProcessId::ANY, TAKEN, 0, false, Position::Last).unwrap();
    let all = MemoryDescriptor {
        put: true,
        get: true,
        manage_remote: true,
        no_start_events: true,
        ..MemoryDescriptor::new(vec![0xaa; LONG])
    };
    b.attach(entry, all, false).unwrap();
    let queue = a.queue(100_000).unwrap();
    Pair { job, a, b, queue }
}

impl Pair {
    fn spec(&self, memory: &Region, threshold: Option<u64>) -> MemoryDescriptor {
        let queue = Some(self.queue);
        MemoryDescriptor { queue, threshold, ..MemoryDescriptor::new(memory.clone()) }
    }

    fn bound(&self, memory: &Region, threshold: u64) -> DescriptorHandle {
        self.a.bind(self.spec(memory, Some(threshold)), true).unwrap()
    }

    /// At A, for others as well, with these bits.
    fn attached(&self, bits: u64, spec: MemoryDescriptor, unlink: bool) -> DescriptorHandle {
        let entry = self.a.attach_entry(4, ProcessId::ANY, bits, 0, unlink, Position::Last);
        let both = MemoryDescriptor { put: true, get: true, manage_remote: true, ..spec };
        self.a.attach(entry.unwrap(), both, unlink).unwrap()
    }

    fn get(&self, into: DescriptorHandle, bits: u64) -> bool {
        self.a.get(into, None, to(1, 4, bits), 0).is_ok()
    }

    fn here(&self) -> Vec<String> {
        self.job.names(0, self.queue)
    }
}

fn a_get_needs_something_left(over: Over) {
    for len in [16, LONG] {
        let p = pair(over);
        for attached in [false, true] {
            let memory = Region::zeroed(len);
            let none = match attached {
                false => p.bound(&memory, 0),
                true => p.attached(7, p.spec(&memory, Some(0)), true),
            };
            assert!(!p.get(none, TAKEN), "it may do nothing");
            assert_eq!(p.here(), [""; 0]);
            assert!(memory.to_vec() == vec![0; len], "and is not written");
            let one = match attached {
                false => p.bound(&memory, 1),
                true => p.attached(8, p.spec(&memory, Some(1)), true),
            };
            assert!(p.get(one, TAKEN));
            assert!(!p.get(one, TAKEN), "one reply is all that it may get");
            assert_eq!(p.a.inspect(one), Ok((Some(1), 0)), "it has not come yet");
            let gone = if attached { "unlink" } else { "released" };
            assert_eq!(p.here(), ["reply start", "reply", gone]);
            assert!(memory.to_vec() == vec![0xaa; len]);
        }
    }
}

fn a_get_put_with_one_descriptor_needs_two(over: Over) {
    let p = pair(over);
    for attached in [false, true] {
        for (threshold, enough) in [(1, false), (2, true)] {
            let memory = Region::from_vec(vec![5; 8]);
            let both = match attached {
                false => p.bound(&memory, threshold),
                true => p.attached(threshold, p.spec(&memory, Some(threshold)), true),
            };
            let started = p.a.get_put(both, both, to(1, 4, TAKEN), 0, 0);
            assert_eq!(started.is_ok(), enough, "{started:?}");
            let gone = if attached { "unlink" } else { "released" };
            match enough {
                true => {
                    let names = ["send start", "send", "reply start", "reply", gone];
                    assert_eq!(p.here(), names);
                }
                false => {
                    assert_eq!(p.here(), [""; 0]);
                    assert_eq!(memory.to_vec(), [5; 8]);
                    assert_eq!(p.a.inspect(both), Ok((Some(1), 0)), "nothing was taken off");
                    p.a.unlink(both).unwrap();
                }
            }
        }
    }
}

fn what_a_get_needs_is_reserved_for_it(over: Over) {
    let p = pair(over);
    let memory = Region::zeroed(8);
    p.attached(9, p.spec(&memory, Some(1)), true);
    let own = p.attached(9, p.spec(&memory, Some(1)), true);
    let first = p.attached(3, p.spec(&memory, Some(1)), true);
    assert!(p.get(first, TAKEN));
    let from = p.b.bind(MemoryDescriptor::new(vec![3; 8]), false).unwrap();
    // What B puts there while the get is under way comes too late: nothing is left.
    p.b.put(from, None, false, to(0, 4, 3), 0, 0).unwrap();
    assert_eq!(p.here(), ["reply start", "reply", "unlink"]);
    assert_eq!(memory.to_vec(), [0xaa; 8]);
    assert_eq!(p.a.inner().status().dropped, 1);
    assert_eq!(p.a.inspect(own), Ok((Some(1), 0)));
}

fn long_data_costs_what_short_data_costs(over: Over) {
    for lend_above in [1000, usize::MAX] {
        let p = pair_with(over, |_, config| config.lend_above = lend_above);
        let from = p.bound(&Region::zeroed(LONG), 5);
        p.a.put(from, None, false, to(1, 4, TAKEN), 0, 0).unwrap();
        assert_eq!(p.here(), ["send start", "send"]);
        assert_eq!(p.a.inspect(from), Ok((Some(4), 0)), "nothing was acknowledged");
        p.a.put(from, None, true, to(1, 4, TAKEN), 0, 0).unwrap();
        assert_eq!(p.here(), ["send start", "send", "ack"]);
        assert_eq!(p.a.inspect(from), Ok((Some(2), 0)));
        assert!(p.get(from, TAKEN));
        assert_eq!(p.here(), ["reply start", "reply"]);
        assert_eq!(p.a.inspect(from), Ok((Some(1), 0)));
    }
}

fn an_acknowledgement_that_may_not_come_is_not_asked_for(over: Over) {
    for len in [16, LONG] {
        let p = pair(over);
        let from = p.bound(&Region::zeroed(len), 2);
        // The first keeps one for its acknowledgement: nothing is left for another.
        p.a.put(from, None, true, to(1, 4, TAKEN), 0, 0).unwrap();
        assert!(p.a.put(from, None, true, to(1, 4, TAKEN), 0, 0).is_err());
        assert_eq!(p.here(), ["send start", "send", "ack", "released"]);
        let from = p.bound(&Region::zeroed(len), 1);
        p.a.put(from, None, true, to(1, 4, TAKEN), 0, 0).unwrap();
        assert_eq!(p.here(), ["send start", "send", "released"]);
    }
}

fn what_is_refused_costs_nothing(over: Over) {
    for len in [16, LONG] {
        let p = pair(over);
        let memory = Region::zeroed(len);
        for attached in [false, true] {
            let into = match attached {
                false => p.bound(&memory, 2),
                true => p.attached(7, p.spec(&memory, Some(2)), true),
            };
            assert!(p.get(into, REFUSED) && p.get(into, REFUSED));
            assert!(!p.get(into, TAKEN), "both may still come");
            assert_eq!(p.here(), [""; 0], "no answer comes to a request that no entry takes");
            assert_eq!(p.a.inspect(into), Ok((Some(2), 0)));
            p.a.put(into, None, true, to(1, 4, REFUSED), 0, 0).unwrap();
            assert_eq!(p.here(), ["send start", "send"]);
            assert_eq!(p.a.inspect(into), Ok((Some(1), 0)));
            assert!(memory.to_vec() == vec![0; len]);
            assert!(p.get(into, TAKEN));
            let gone = if attached { "unlink" } else { "released" };
            assert_eq!(p.here(), ["reply start", "reply", gone]);
            memory.write(0, &vec![0; len]);
        }
    }
}

/// What is given back to memory that has no room any more makes it no more active.
fn without_room_it_stays_inactive(over: Over) {
    let p = pair(over);
    let entry = p.a.attach_entry(4, ProcessId::ANY, 7, 0, false, Position::Last).unwrap();
    let spec =
        MemoryDescriptor { put: true, max_size: Some(8), ..p.spec(&Region::zeroed(10), Some(5)) };
    let own = p.a.attach(entry, spec, false).unwrap();
    let from = p.b.bind(MemoryDescriptor::new(vec![3; 8]), false).unwrap();
    // What B puts there comes before B's answer, which says that nothing takes the get.
    assert!(p.get(own, REFUSED));
    p.b.put(from, None, false, to(0, 4, 7), 0, 0).unwrap();
    assert_eq!(p.here(), ["start", "served"]);
    assert_eq!(p.a.inspect(own), Ok((Some(0), 8)));
    p.b.put(from, None, false, to(0, 4, 7), 0, 0).unwrap();
    assert_eq!((p.here(), p.a.inner().status().dropped), (vec![], 1));
}

/// A step of a generated run; `which` is one of the descriptors of A.
#[derive(Clone, Debug)]
enum Step {
    Put {
        which: usize,
        long: bool,
        acknowledge: bool,
        taken: bool,
    },
    Get {
        which: usize,
        long: bool,
        taken: bool,
    },
    GetPut {
        get: usize,
        put: usize,
        taken: bool,
    },
    /// B puts into memory of A's that is attached.
    Theirs {
        which: usize,
        long: bool,
    },
    Passes(usize),
}

/// The lengths of A's descriptors. What is exchanged has to be short.
const LENGTHS: [usize; 4] = [16, 16, LONG, LONG];
const DESCRIPTORS: usize = LENGTHS.len();

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..DESCRIPTORS;
    let mostly = || prop::bool::weighted(0.8);
    prop_oneof![
        3 => (which(), any::<bool>(), any::<bool>(), mostly()).prop_map(
            |(which, long, acknowledge, taken)| Step::Put { which, long, acknowledge, taken }
        ),
        4 => (which(), any::<bool>(), mostly())
            .prop_map(|(which, long, taken)| Step::Get { which, long, taken }),
        1 => (0_usize..2, 0_usize..2, mostly())
            .prop_map(|(get, put, taken)| Step::GetPut { get, put, taken }),
        2 => (which(), any::<bool>()).prop_map(|(which, long)| Step::Theirs { which, long }),
        3 => (0_usize..6).prop_map(Step::Passes),
    ]
}

/// A descriptor of A's: attached to an entry, or not; for so much; to be unlinked when that is used
/// up.
#[derive(Clone, Debug)]
struct Plan {
    attached: bool,
    threshold: Option<u64>,
    unlink: bool,
}

fn plan() -> impl Strategy<Value = Plan> {
    let threshold = prop_oneof![1 => Just(None), 4 => (0_u64..6).prop_map(Some)];
    (any::<bool>(), threshold, any::<bool>()).prop_map(|(attached, threshold, unlink)| Plan {
        attached,
        threshold,
        unlink,
    })
}

/// What the events of one descriptor say.
#[derive(Default)]
struct Told {
    /// What counts.
    spent: u64,
    replies: u64,
    served: u64,
    gone: bool,
}

fn run(plans: &[Plan], steps: &[Step], killed: Option<usize>) {
    let p = pair(Over::Sim);
    let memories = LENGTHS.map(|len| Region::from_vec(pattern(len)));
    let descriptors: Vec<DescriptorHandle> = (0..plans.len())
        .map(|at| {
            let Plan { attached, threshold, unlink } = plans[at];
            let user_data = at as u64;
            let spec = MemoryDescriptor { user_data, ..p.spec(&memories[at], threshold) };
            match attached {
                true => p.attached(100 + user_data, spec, unlink),
                false => p.a.bind(spec, unlink).unwrap(),
            }
        })
        .collect();
    let from = p.b.bind(MemoryDescriptor::new(vec![0xbb; LONG]), false).unwrap();
    let target = |taken| to(1, 4, if taken { TAKEN } else { REFUSED });
    let part = |which: usize, long| Some((0, if long { LENGTHS[which] as u64 } else { 16 }));
    for (at, step) in steps.iter().enumerate() {
        if killed == Some(at) {
            p.job.net.as_ref().unwrap().kill(&p.job.addresses[1]);
        }
        // Whether it may be started is what the descriptors say.
        let _ = match *step {
            Step::Put { which, long, acknowledge, taken } => {
                p.a.put(descriptors[which], part(which, long), acknowledge, target(taken), 0, 0)
            }
            Step::Get { which, long, taken } => {
                p.a.get(descriptors[which], part(which, long), target(taken), 0)
            }
            Step::GetPut { get, put, taken } => {
                p.a.get_put(descriptors[get], descriptors[put], target(taken), 0, 0)
            }
            Step::Theirs { which, long } if killed.is_none_or(|killed| at < killed) => {
                let target = Target { bits: 100 + which as u64, ..to(0, 4, 0) };
                p.b.put(from, part(which, long), false, target, 0, 0)
            }
            Step::Theirs { .. } => Ok(()),
            Step::Passes(count) => {
                p.job.passes(count);
                Ok(())
            }
        };
    }
    let mut idle = 0;
    while idle < 5 {
        idle = if p.job.pass() { 0 } else { idle + 1 };
    }
    assert_eq!(p.a.inner().status().operations, 0);
    let told = RefCell::new((0..plans.len()).map(|_| Told::default()).collect::<Vec<_>>());
    // The starts of which there was no end.
    let mut begun: HashMap<(&str, u64), u64> = HashMap::new();
    let of = |user_data: u64, change: &dyn Fn(&mut Told)| {
        change(&mut told.borrow_mut()[user_data as usize]);
    };
    while let Ok(taken) = p.a.inner().take_event(p.queue) {
        assert_eq!(taken.lost, 0);
        let (kind, link) = match &taken.event {
            Event::SendStart(e) => {
                of(e.user_data, &|told| told.spent += 1);
                (("send", e.link), 1)
            }
            Event::Send(e) => (("send", e.link), 0),
            Event::Ack(e) => {
                of(e.user_data, &|told| told.spent += 1);
                continue;
            }
            Event::ReplyStart(e) => {
                of(e.user_data, &|told| told.replies += 1);
                (("reply", e.link), 1)
            }
            Event::Reply(e) => {
                of(e.user_data, &|told| told.spent += 1);
                // One that never began ends with a failure.
                if e.result.is_err() && !begun.contains_key(&("reply", e.link)) {
                    continue;
                }
                (("reply", e.link), 0)
            }
            Event::Start(e) => {
                of(e.user_data, &|told| {
                    (told.spent, told.served) = (told.spent + 1, told.served + 1)
                });
                (("served", e.link), 1)
            }
            Event::Served(e) => (("served", e.link), 0),
            Event::AutoUnlink(e) => {
                of(e.user_data, &|told| told.gone = true);
                continue;
            }
            Event::Released { user_data, .. } => {
                of(*user_data, &|told| told.gone = true);
                continue;
            }
            other => panic!("{other:?}"),
        };
        match link {
            1 => assert_eq!(begun.insert(kind, taken.sequence), None, "{kind:?} began twice"),
            _ => assert!(begun.remove(&kind).is_some(), "{kind:?} ended, and had not begun"),
        }
    }
    assert!(begun.is_empty(), "began, and did not end: {begun:?}");
    for (at, told) in told.into_inner().into_iter().enumerate() {
        let plan = &plans[at];
        let context = format!("descriptor {at}, {plan:?}");
        let used_up =
            plan.threshold.is_some_and(|threshold| threshold > 0 && threshold == told.spent);
        assert!(plan.threshold.is_none_or(|threshold| told.spent <= threshold), "{context}");
        assert_eq!(told.gone, used_up && plan.unlink, "{context}");
        match told.gone {
            true => assert!(p.a.inspect(descriptors[at]).is_err(), "{context}"),
            false => {
                let left = p.a.inspect(descriptors[at]).unwrap().0;
                assert_eq!(left, plan.threshold.map(|of| of - told.spent), "{context}");
                p.a.unlink(descriptors[at]).expect("nothing needs it");
            }
        }
        if told.replies + told.served == 0 {
            assert!(
                memories[at].to_vec() == pattern(LENGTHS[at]),
                "written with no word: {context}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 2000, ..ProptestConfig::default() })]

    /// Every START has its END, and what is left is what was there less what was told.
    #[test]
    fn every_start_has_its_end(
        plans in proptest::collection::vec(plan(), DESCRIPTORS..=DESCRIPTORS),
        steps in proptest::collection::vec(step(), 1..40),
    ) {
        run(&plans, &steps, None);
    }

    /// So it is when the other process dies.
    #[test]
    fn every_start_has_its_end_when_the_other_side_dies(
        plans in proptest::collection::vec(plan(), DESCRIPTORS..=DESCRIPTORS),
        steps in proptest::collection::vec(step(), 1..40),
        killed in 0_usize..40,
    ) {
        run(&plans, &steps, Some(killed));
    }
}
