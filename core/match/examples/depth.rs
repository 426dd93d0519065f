//! What a match costs behind receives that were posted before: searched from the front, and by the
//! index, in one run.
//!
//! ```text
//! cargo run --release -p petasos-match --example depth
//! ```
//!
//! Each row is the median of batches: a message is matched by the last of the receives, which is
//! then posted again; and a receive finds the latest of as many messages, which then comes again.

use petasos_match::{Envelope, MessageQueue, Pattern, PatternList};
use std::{
    collections::VecDeque,
    hint::black_box,
    time::{Duration, Instant},
};

/// What waits: as much as a receive of the fabric has.
type Payload = [u64; 6];

const TIME: Duration = Duration::from_millis(150);

/// The median time of one in nanoseconds.
fn median(mut one: impl FnMut()) -> f64 {
    let (begin, mut batches) = (Instant::now(), Vec::new());
    while batches.len() < 5 || begin.elapsed() < TIME {
        let begin = Instant::now();
        for _ in 0..200 {
            one();
        }
        batches.push(begin.elapsed().as_nanos() as f64 / 200.0);
    }
    batches.sort_by(f64::total_cmp);
    batches[batches.len() / 2]
}

fn exact(tag: u64) -> Pattern {
    Pattern::new(Some(3), tag, 0)
}

fn receives_walked(depth: u64) -> f64 {
    let mut posted: VecDeque<(Pattern, Payload)> =
        (0..depth).map(|tag| (exact(tag), [tag; 6])).collect();
    let envelope = Envelope::new(3, depth - 1);
    median(|| {
        let envelope = black_box(envelope);
        let at = posted.iter().position(|(pattern, _)| pattern.matches(envelope));
        let found = at.and_then(|at| posted.remove(at)).expect("it is posted");
        posted.push_back(black_box(found));
    })
}

fn receives_indexed(depth: u64, wildcards: bool) -> f64 {
    let mut posted = PatternList::default();
    for tag in 0..depth {
        // Other classes cost a look-up each: any source, any upper byte of the tag, both.
        let ignore = if tag & 2 == 2 && wildcards { 0xff << 56 } else { 0 };
        let source = if tag & 1 == 1 && wildcards { None } else { Some(3) };
        posted.push_back(Pattern::new(source, tag, ignore), [tag; 6]);
    }
    let envelope = Envelope::new(3, depth - 1);
    median(|| {
        let (_, found) = posted.take(black_box(envelope)).expect("it is posted");
        posted.push_back(exact(depth - 1), black_box(found));
    })
}

fn messages_walked(depth: u64) -> f64 {
    let mut waiting: VecDeque<(Envelope, Payload)> =
        (0..depth).map(|tag| (Envelope::new(3, tag), [tag; 6])).collect();
    let pattern = exact(depth - 1);
    median(|| {
        let pattern = black_box(pattern);
        let at = waiting.iter().position(|(envelope, _)| pattern.matches(*envelope));
        let found = at.and_then(|at| waiting.remove(at)).expect("it came");
        waiting.push_back(black_box(found));
    })
}

fn messages_indexed(depth: u64) -> f64 {
    let mut waiting = MessageQueue::default();
    for tag in 0..depth {
        waiting.push(Envelope::new(3, tag), [tag; 6]);
    }
    let pattern = exact(depth - 1);
    median(|| {
        let (envelope, found) = waiting.take(black_box(&pattern)).expect("it came");
        waiting.push(envelope, black_box(found));
    })
}

fn main() {
    println!("ns per match     receives: walked  indexed  4 classes    messages: walked  indexed");
    for depth in [1, 10, 32, 100, 1_000, 10_000, 100_000] {
        let receives =
            [receives_walked(depth), receives_indexed(depth, false), receives_indexed(depth, true)];
        let messages = [messages_walked(depth), messages_indexed(depth)];
        let [walked, indexed, classes] = receives;
        println!(
            "{depth:>12} {walked:>20.1} {indexed:>8.1} {classes:>10.1} {:>19.1} {:>8.1}",
            messages[0], messages[1]
        );
    }
}
