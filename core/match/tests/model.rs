//! List and queue beside a plain model that is searched from the front.

use petasos_match::{At, Envelope, Key, MessageQueue, Pattern, PatternList};
use proptest::prelude::*;

/// Envelopes of few sources and bits, so that many patterns take each.
fn envelope() -> impl Strategy<Value = Envelope> {
    (0_u64..4, 0_u64..8).prop_map(|(source, bits)| Envelope::new(source, bits))
}

/// Of many masks, few, or none: indexed, walked, and back.
fn pattern() -> impl Strategy<Value = Pattern> {
    let any_source = Just((0, 0));
    let source = (0_u64..4).prop_map(|source| (source, u64::MAX));
    let half = (0_u64..4, 1_u64..4);
    let source = prop_oneof![4 => source, 2 => any_source, 1 => half];
    let ignore = prop_oneof![4 => Just(0), 2 => 0_u64..8, 1 => any::<u64>()];
    (source, 0_u64..8, ignore)
        .prop_map(|((source, mask), bits, ignore)| Pattern::of_parts(source, mask, bits, ignore))
}

/// The same with so few classes that a long list is always indexed.
fn of_few_classes() -> impl Strategy<Value = Pattern> {
    let source = prop_oneof![(0_u64..4).prop_map(Some), Just(None)];
    let ignore = prop_oneof![Just(0), Just(3)];
    (source, 0_u64..8, ignore).prop_map(|(source, bits, ignore)| Pattern::new(source, bits, ignore))
}

#[derive(Clone, Debug)]
enum Step {
    Insert {
        place: u8,
        base: usize,
        pattern: Pattern,
    },
    Remove(usize),
    Take(Envelope),
    /// The first of those whose number has this remainder.
    Find(Envelope, u64),
}

fn step(pattern: BoxedStrategy<Pattern>) -> impl Strategy<Value = Step> {
    let insert = (0_u8..8, any::<usize>(), pattern)
        .prop_map(|(place, base, pattern)| Step::Insert { place, base, pattern });
    prop_oneof![
        6 => insert,
        1 => any::<usize>().prop_map(Step::Remove),
        2 => envelope().prop_map(Step::Take),
        1 => (envelope(), 0_u64..3).prop_map(|(envelope, rest)| Step::Find(envelope, rest)),
    ]
}

#[derive(Default)]
struct Lists {
    list: PatternList<u64>,
    model: Vec<(Key, Pattern, u64)>,
    /// All keys that there were, stale ones too.
    keys: Vec<Key>,
    next: u64,
}

impl Lists {
    fn step(&mut self, step: Step) {
        let Lists { list, model, keys, next } = self;
        match step {
            Step::Insert { place, base, pattern } => {
                *next += 1;
                let base = keys.get(base % keys.len().max(1)).copied();
                let listed = base.and_then(|base| model.iter().position(|(key, ..)| *key == base));
                let (at, index) = match (place, base) {
                    (0, _) => (At::First, Some(0)),
                    (1, Some(base)) => (At::Before(base), listed),
                    (2, Some(base)) => (At::After(base), listed.map(|at| at + 1)),
                    _ => (At::Last, Some(model.len())),
                };
                let key = list.insert(at, pattern, *next);
                assert_eq!(key.is_some(), index.is_some());
                if let (Some(key), Some(index)) = (key, index) {
                    model.insert(index, (key, pattern, *next));
                    keys.push(key);
                }
            }
            Step::Remove(which) if !keys.is_empty() => {
                let key = keys[which % keys.len()];
                let at = model.iter().position(|(other, ..)| *other == key);
                assert_eq!(list.get(key).copied(), at.map(|at| model[at].2));
                assert_eq!(list.remove(key), at.map(|at| model.remove(at).2));
            }
            Step::Remove(_) => {}
            Step::Take(envelope) => {
                let at = model.iter().position(|(_, pattern, _)| pattern.matches(envelope));
                assert_eq!(list.first(envelope), at.map(|at| model[at].0));
                let expected = at.map(|at| model.remove(at)).map(|(key, _, value)| (key, value));
                assert_eq!(list.take(envelope), expected);
            }
            Step::Find(envelope, rest) => {
                let fits = |value: &&u64| **value % 3 == rest;
                let takers = model.iter().filter(|(_, pattern, _)| pattern.matches(envelope));
                let all: Vec<&u64> = takers.map(|(_, _, value)| value).collect();
                let first = all.iter().copied().find(fits);
                assert_eq!(list.takers(envelope).find(fits), first);
                assert_eq!(list.takers(envelope).collect::<Vec<_>>(), all);
            }
        }
        assert_eq!((list.len(), list.is_empty()), (model.len(), model.is_empty()));
    }

    /// The order is the same, and what is left is found in it.
    fn finish(mut self) {
        let all: Vec<_> =
            self.list.iter().map(|(key, pattern, value)| (key, *pattern, *value)).collect();
        assert_eq!(all, self.model);
        for source in 0..4 {
            for bits in 0..8 {
                for _ in 0..3 {
                    self.step(Step::Take(Envelope::new(source, bits)));
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Arrival {
    Push(Envelope),
    Remove(usize),
    Take(Pattern),
    /// Of one remainder, one behind the other.
    Search(Pattern, u64),
    /// A source is lost.
    Lose(u64),
}

fn arrival() -> impl Strategy<Value = Arrival> {
    prop_oneof![
        12 => envelope().prop_map(Arrival::Push),
        1 => any::<usize>().prop_map(Arrival::Remove),
        6 => pattern().prop_map(Arrival::Take),
        1 => (pattern(), 0_u64..3).prop_map(|(pattern, rest)| Arrival::Search(pattern, rest)),
        1 => (0_u64..40).prop_map(Arrival::Lose),
    ]
}

#[derive(Default)]
struct Queues {
    queue: MessageQueue<u64>,
    model: Vec<(Key, Envelope, u64)>,
    keys: Vec<Key>,
    next: u64,
}

impl Queues {
    fn step(&mut self, step: Arrival) {
        let Queues { queue, model, keys, next } = self;
        match step {
            Arrival::Push(envelope) => {
                *next += 1;
                let key = queue.push(envelope, *next);
                model.push((key, envelope, *next));
                keys.push(key);
            }
            Arrival::Remove(which) if !keys.is_empty() => {
                let key = keys[which % keys.len()];
                let at = model.iter().position(|(other, ..)| *other == key);
                assert_eq!(queue.get(key).copied(), at.map(|at| model[at].2));
                assert_eq!(queue.remove(key), at.map(|at| model.remove(at).2));
            }
            Arrival::Remove(_) => {}
            Arrival::Take(pattern) => {
                let at = model.iter().position(|(_, envelope, _)| pattern.matches(*envelope));
                let expected = at.map(|at| model.remove(at)).map(|(_, env, value)| (env, value));
                assert_eq!(queue.take(&pattern), expected);
            }
            Arrival::Search(pattern, rest) => {
                let mut behind = None;
                let found = std::iter::from_fn(|| {
                    behind = Some(queue.find(&pattern, behind, |value| value % 3 == rest)?);
                    behind
                });
                let fits = |(_, envelope, value): &&(Key, Envelope, u64)| {
                    pattern.matches(*envelope) && value % 3 == rest
                };
                let expected: Vec<Key> = model.iter().filter(fits).map(|(key, ..)| *key).collect();
                assert_eq!(found.collect::<Vec<Key>>(), expected);
                // There is nothing behind a stale one.
                let stale = keys.iter().find(|key| queue.get(**key).is_none());
                if let Some(stale) = stale {
                    assert_eq!(queue.find(&pattern, Some(*stale), |_| true), None);
                }
            }
            Arrival::Lose(source) => {
                // Every second one of it stays, with another value.
                let lose = |envelope: Envelope, value: &mut u64| {
                    let stays = envelope.source != source || value.is_multiple_of(2);
                    *value += u64::from(envelope.source == source) * 6;
                    stays
                };
                queue.retain(lose);
                model.retain_mut(|(_, envelope, value)| lose(*envelope, value));
            }
        }
        assert_eq!((queue.len(), queue.is_empty()), (model.len(), model.is_empty()));
    }
}

proptest! {
    #[test]
    fn a_list_does_what_the_model_does(
        steps in proptest::collection::vec(step(pattern().boxed()), 1..300),
    ) {
        let mut lists = Lists::default();
        steps.into_iter().for_each(|step| lists.step(step));
        lists.finish();
    }

    #[test]
    fn a_list_of_few_classes_does_what_the_model_does(
        steps in proptest::collection::vec(step(of_few_classes().boxed()), 1..300),
    ) {
        let mut lists = Lists::default();
        steps.into_iter().for_each(|step| lists.step(step));
        lists.finish();
    }

    #[test]
    fn a_queue_does_what_the_model_does(steps in proptest::collection::vec(arrival(), 1..300)) {
        let mut queues = Queues::default();
        steps.into_iter().for_each(|step| queues.step(step));
        let all: Vec<_> = queues.queue.iter().map(|(key, env, value)| (key, env, *value)).collect();
        prop_assert_eq!(all, queues.model);
    }

    /// A pattern takes what its words say, and its parts are those that it was made of.
    #[test]
    fn a_pattern_takes_what_it_says(
        (source, mask, bits, ignore) in any::<(u64, u64, u64, u64)>(),
        (flip, other) in any::<(u64, u64)>(),
    ) {
        let pattern = Pattern::of_parts(source, mask, bits, ignore);
        let envelope = Envelope::new(source ^ flip & !mask, bits ^ other & ignore);
        prop_assert!(pattern.matches(envelope));
        let near = Envelope::new(source ^ flip, bits ^ other);
        prop_assert_eq!(pattern.matches(near), (flip & mask | other & !ignore) == 0);
        let whole = Pattern::new(Some(source), bits, 0);
        prop_assert_eq!(whole.source(), Some(source));
        prop_assert_eq!(whole.exact(), Some(Envelope::new(source, bits)));
    }
}

/// Thousands of one class, in and out at the ends and within.
#[test]
fn ten_thousand() {
    let mut list = PatternList::default();
    let keys: Vec<Key> =
        (0..10_000).map(|bits| list.push_back(Pattern::new(Some(1), bits, 0), bits)).collect();
    for bits in (0..10_000).rev().step_by(2) {
        assert_eq!(list.take(Envelope::new(1, bits)), Some((keys[bits as usize], bits)));
        assert_eq!(list.remove(keys[bits as usize]), None);
    }
    assert_eq!(list.take(Envelope::new(2, 0)), None);
    let left: Vec<u64> = list.iter().map(|(_, _, bits)| *bits).collect();
    assert_eq!(left, (0..10_000).step_by(2).collect::<Vec<u64>>());
}
