//! Which members are polled in a pass: those over which nothing has come for a while less often.
//!
//! A member of this node is polled in each pass, and so is one that was given something since it
//! was polled last. A network over which something has come or gone lately is polled in each pass
//! as long as there is nothing over shared memory, and else in every eighth. Any other network is
//! polled once in 64 passes; while messages come over shared memory once in 256, or in 64 that took
//! long: so what comes over it waits for no more than so many passes, or that time. After a sleep
//! all are polled.
//!
//! A message or a completion that was polled for counts as a pass: a program that always finds one
//! leaves no network out for longer than another.
//!
//! Members are bits of a number here. Which of them are polled in each pass is found out in every
//! eighth, so that the others cost next to nothing.

use crate::{Member, Scope, address::MOST};
use petasos_fabric::Time;

/// Passes after which a network over which nothing came is only polled now and then.
const WARM: u32 = 1024;
/// Such a network is polled once in this many passes.
const COLD: u32 = 64;
/// The same while messages come over shared memory, unless they took so long, in nanoseconds: to
/// poll a socket takes 300.
const COLDEST: u32 = 256;
const LONG: u64 = 20_000;
/// A network over which messages come is polled once in this many passes, while messages come over
/// shared memory, too.
const SHARED: u32 = 8;

/// Room for members, so that a bit of the others is of none.
const BITS: usize = 8;
const _: () = assert!(MOST <= BITS);

/// The rhythm of an endpoint.
#[derive(Debug)]
pub(crate) struct Pace {
    passes: u32,
    /// The pass of the last review, and the one in which cold networks were polled last.
    reviewed: u32,
    chilled: u32,
    /// For each member, the review before which it last had something to do.
    busy: [u32; BITS],
    /// All members, and those of this node.
    all: u32,
    near: u32,
    /// Members that were given something and have not been polled since.
    given: u32,
    /// Members over which something has come or gone since the last review.
    recent: u32,
    /// The same lately.
    warm: u32,
    /// Members that are polled in each pass.
    steady: u32,
    /// Members that come before the others in the next pass: all, as the caller may have slept;
    /// or those that were to be polled in the last pass, when its budget was used up.
    first: u32,
    /// When cold networks were polled last.
    cold: Time,
}

impl Pace {
    pub(crate) fn new(members: &[Member]) -> Pace {
        let bits = members.iter().enumerate();
        let near = bits.filter(|(_, member)| member.scope == Scope::Node);
        let near = near.fold(0, |near, (nth, _)| near | 1 << nth);
        let all = (1 << members.len()) - 1;
        Pace {
            passes: 0,
            reviewed: 0,
            chilled: 0,
            busy: [0; BITS],
            all,
            near,
            given: 0,
            recent: 0,
            warm: all,
            steady: all,
            first: all,
            cold: Time::ZERO,
        }
    }

    /// A pass begins: the members that are polled in it.
    #[inline]
    pub(crate) fn begin_pass(&mut self, now: Time) -> Due {
        self.passes = self.passes.wrapping_add(1);
        let given = std::mem::take(&mut self.given);
        let mut due = self.steady | given;
        self.recent |= given;
        if self.passes.wrapping_sub(self.reviewed) >= SHARED {
            due |= self.review(now);
        }
        Due(due)
    }

    /// Whether the next pass is one as any other.
    #[inline]
    pub(crate) fn is_steady(&self) -> bool {
        self.first == 0
    }

    /// What the pass before, or a sleep, has left for this one: it comes before the others.
    pub(crate) fn take_first(&mut self) -> Due {
        Due(std::mem::take(&mut self.first))
    }

    /// Finds out which members are polled in each pass from now on, and which others in this one.
    #[inline(never)]
    fn review(&mut self, now: Time) -> u32 {
        self.reviewed = self.passes;
        let mut warm = std::mem::take(&mut self.recent);
        for (nth, busy) in self.busy.iter_mut().enumerate() {
            match warm >> nth & 1 {
                0 => warm |= u32::from(self.passes.wrapping_sub(*busy) < WARM) << nth,
                _ => *busy = self.passes,
            }
        }
        warm &= self.all;
        self.warm = warm;
        let beside = warm & self.near != 0;
        self.steady = if beside { self.near } else { self.near | warm };
        let took_long = now.0.saturating_sub(self.cold.0) >= LONG;
        let wait = if beside && !took_long { COLDEST } else { COLD };
        if self.passes.wrapping_sub(self.chilled) >= wait {
            (self.cold, self.chilled) = (now, self.passes);
            return self.all;
        }
        warm
    }

    /// All members are polled in the next pass.
    pub(crate) fn poll_all(&mut self) {
        self.first = self.all;
    }

    /// The budget of a pass was used up before these were polled.
    #[cold]
    pub(crate) fn skip(&mut self, left: Due) {
        self.first |= left.0;
    }

    /// A member is given something.
    #[inline]
    pub(crate) fn give(&mut self, member: usize) {
        self.give_bit(1 << member);
    }

    /// The same by the member's bit.
    #[inline]
    pub(crate) fn give_bit(&mut self, bit: u32) {
        self.given |= bit;
    }

    /// Something came over a member.
    #[inline]
    pub(crate) fn worked(&mut self, member: usize) {
        self.recent |= 1 << member;
    }

    /// Something was polled for, and found.
    #[inline]
    pub(crate) fn found(&mut self) {
        self.passes = self.passes.wrapping_add(1);
    }

    /// Members over which something has come or gone lately.
    #[inline]
    pub(crate) fn warm(&self) -> Due {
        Due(self.warm | self.recent | self.given)
    }
}

/// Members, the first ones first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Due(u32);

impl Due {
    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The only one, if it is one.
    #[inline]
    pub(crate) fn only(self) -> Option<usize> {
        self.0.is_power_of_two().then_some(self.0.trailing_zeros() as usize)
    }

    /// Those that are not among others.
    #[inline]
    pub(crate) fn without(self, others: Due) -> Due {
        Due(self.0 & !others.0)
    }
}

impl Iterator for Due {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let member = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(member)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One member of this node, and two networks.
    fn pace() -> Pace {
        let mut pace = Pace::new(&[]);
        (pace.all, pace.near, pace.warm) = (0b111, 1, 0b111);
        (pace.steady, pace.first) = (0b111, 0b111);
        pace
    }

    /// How often each member was polled in so many passes of one microsecond each, and the longest
    /// time for which it was not.
    fn polled(pace: &mut Pace, passes: u32, each: u64, busy: &[usize]) -> ([u32; 3], [u32; 3]) {
        let (mut counts, mut gaps, mut last) = ([0; 3], [0; 3], [0; 3]);
        for pass in 1..=passes {
            let now = Time(u64::from(pass) * each);
            for member in pace.begin_pass(now) {
                counts[member] += 1;
                gaps[member] = gaps[member].max(pass - last[member]);
                last[member] = pass;
            }
            busy.iter().for_each(|member| pace.worked(*member));
        }
        for member in 0..3 {
            gaps[member] = gaps[member].max(passes - last[member]);
        }
        (counts, gaps)
    }

    #[test]
    fn networks_of_which_nothing_comes_are_polled_now_and_then() {
        let mut pace = pace();
        polled(&mut pace, 2 * WARM, 0, &[]);
        let (counts, gaps) = polled(&mut pace, 6400, 0, &[]);
        assert_eq!((counts[0], gaps[0]), (6400, 1));
        assert_eq!((counts[1], gaps[1]), (100, COLD));
    }

    #[test]
    fn fewer_times_while_messages_come_over_shared_memory() {
        let mut pace = pace();
        polled(&mut pace, 2 * WARM, 0, &[0]);
        // A clock that stands still, and one that goes on: no network waits for long.
        let (counts, gaps) = polled(&mut pace, 25_600, 0, &[0]);
        assert_eq!((counts[1], gaps[1]), (100, COLDEST));
        let (counts, gaps) = polled(&mut pace, 25_600, 1000, &[0]);
        assert!(counts[1] >= 399 && gaps[1] <= 2 * COLD, "{counts:?} {gaps:?}");
    }

    #[test]
    fn what_is_polled_for_counts_as_passes() {
        let mut pace = pace();
        polled(&mut pace, 2 * WARM, 0, &[0]);
        let mut gap = 0;
        while !pace.begin_pass(Time::ZERO).any(|member| member == 2) {
            (0..15).for_each(|_| pace.found());
            gap += 1;
        }
        assert!(gap <= COLDEST / 16 + 1, "{gap}");
    }

    #[test]
    fn warm_networks_are_polled_often() {
        let mut pace = pace();
        polled(&mut pace, 2 * WARM, 0, &[0, 1]);
        let (counts, gaps) = polled(&mut pace, 8000, 0, &[0, 1]);
        assert_eq!((counts[1], gaps[1]), (1000, SHARED));
        assert!(gaps[2] <= COLDEST);
        // Nothing comes over shared memory any more.
        polled(&mut pace, 2 * WARM, 0, &[1]);
        let (counts, _) = polled(&mut pace, 8000, 0, &[1]);
        assert_eq!(counts[1], 8000);
    }

    #[test]
    fn what_is_given_something_is_polled_next() {
        let mut pace = pace();
        polled(&mut pace, 2 * WARM, 0, &[]);
        pace.give(2);
        assert!(pace.begin_pass(Time::ZERO).any(|member| member == 2));
        // Also in the first passes of all, and after a sleep.
        assert_eq!(pace.take_first(), Due(0b111));
        pace.poll_all();
        assert!(!pace.is_steady());
        assert_eq!(pace.take_first(), Due(0b111));
        assert!(pace.is_steady());
    }

    #[test]
    fn what_was_skipped_comes_first() {
        let mut pace = pace();
        let _ = pace.take_first();
        pace.skip(Due(0b110));
        assert!(!pace.is_steady());
        let first = pace.take_first();
        assert_eq!(first.collect::<Vec<_>>(), [1, 2]);
        assert_eq!(Due(0b111).without(first).collect::<Vec<_>>(), [0]);
    }
}
