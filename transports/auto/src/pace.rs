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
//! eighth, so that the others cost next to nothing; and mostly that is one member, and a pass is
//! one test.

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
pub(crate) const BITS: usize = 8;
const _: () = assert!(MOST <= BITS);

// What is looked at in each pass is in one word. Its lowest bytes have a bit for each member:

/// Members over which something has come or gone since the last review.
const RECENT: u32 = 0xff;
/// Members that were given something, and have had no pass since.
const GIVEN: u32 = RECENT << BITS;
/// There may be more to do in the next pass than to poll members.
const CHORES: u32 = 1 << 24;
/// Always there.
const ALWAYS: u32 = 1 << 25;

/// What a member that something was given to sets in that word.
#[inline]
pub(crate) const fn given(member: usize) -> u32 {
    (1 | 1 << BITS) << member
}

/// The rhythm of an endpoint.
#[derive(Debug)]
pub(crate) struct Pace {
    /// See above.
    bits: u32,
    /// Which of them make a pass more than that of `steady_member`.
    strays: u32,
    /// The only member that is polled in each pass, if it is one.
    steady_member: usize,
    /// The member that is polled for messages and completions: the first over which something had
    /// come or gone lately at the last review. Its bit in the word above, and the others of these.
    front: usize,
    front_bit: u32,
    others: u32,
    /// Passes until the next review.
    left: i32,
    /// The pass of the last review, and the one in which cold networks were polled last.
    reviewed: u32,
    chilled: u32,
    /// For each member, the review before which it last had something to do.
    busy: [u32; BITS],
    /// How many members there are; all of them, and those of this node.
    count: usize,
    all: u32,
    near: u32,
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
        Pace::of(members.len(), near.fold(0, |near, (nth, _)| near | 1 << nth))
    }

    fn of(count: usize, near: u32) -> Pace {
        let all = (1 << count) - 1;
        let mut pace = Pace {
            bits: CHORES | ALWAYS,
            strays: 0,
            steady_member: 0,
            front: 0,
            front_bit: 1,
            others: all & !1,
            left: SHARED as i32,
            reviewed: 0,
            chilled: 0,
            busy: [0; BITS],
            count,
            all,
            near,
            steady: 0,
            first: all,
            cold: Time::ZERO,
        };
        pace.set_steady(all);
        pace
    }

    fn set_steady(&mut self, steady: u32) {
        self.steady = steady;
        self.steady_member = steady.trailing_zeros() as usize;
        let others = GIVEN & !(steady << BITS);
        self.strays = CHORES | if steady.is_power_of_two() { others } else { ALWAYS };
    }

    /// A pass begins that is one as most: the only member that is polled in it.
    #[inline]
    pub(crate) fn begin_plain_pass(&mut self) -> Option<usize> {
        if self.left <= 1 || self.bits & self.strays != 0 {
            return None;
        }
        self.left -= 1;
        self.bits &= !GIVEN;
        Some(self.steady_member)
    }

    /// A pass begins: the members that are polled in it.
    pub(crate) fn begin_pass(&mut self, now: Time) -> Due {
        self.left = self.left.wrapping_sub(1);
        let mut due = self.steady | (self.bits & GIVEN) >> BITS;
        self.bits &= !GIVEN;
        if self.left <= 0 {
            due |= self.review(now);
        }
        Due(due)
    }

    /// There may be more to do in the next pass than to poll members.
    #[inline]
    pub(crate) fn add_chores(&mut self) {
        self.bits |= CHORES;
    }

    /// Whether there may be.
    #[inline]
    pub(crate) fn has_chores(&self) -> bool {
        self.bits & CHORES != 0
    }

    /// There is nothing but to poll members, unless some of them are to come first.
    pub(crate) fn end_chores(&mut self) {
        if self.first == 0 {
            self.bits &= !CHORES;
        }
    }

    /// What the pass before, or a sleep, has left for this one: it comes before the others.
    pub(crate) fn take_first(&mut self) -> Due {
        Due(std::mem::take(&mut self.first))
    }

    /// Finds out which members are polled in each pass from now on, and which others in this one.
    #[inline(never)]
    fn review(&mut self, now: Time) -> u32 {
        let passes = self.reviewed.wrapping_add((SHARED as i32).wrapping_sub(self.left) as u32);
        (self.reviewed, self.left) = (passes, SHARED as i32);
        let mut warm = self.bits & RECENT;
        for (nth, busy) in self.busy.iter_mut().enumerate().take(self.count) {
            match warm >> nth & 1 {
                0 => warm |= u32::from(passes.wrapping_sub(*busy) < WARM) << nth,
                _ => *busy = passes,
            }
        }
        self.bits &= !RECENT;
        // If there is none, the first is as good as any.
        self.front_bit = if warm == 0 { 1 } else { warm & warm.wrapping_neg() };
        self.front = self.front_bit.trailing_zeros() as usize;
        self.others = warm & !self.front_bit;
        let beside = warm & self.near != 0;
        let steady = if beside { self.near } else { self.near | warm };
        if steady != self.steady {
            self.set_steady(steady);
        }
        let took_long = now.0.saturating_sub(self.cold.0) >= LONG;
        let wait = if beside && !took_long { COLDEST } else { COLD };
        if passes.wrapping_sub(self.chilled) >= wait {
            (self.cold, self.chilled) = (now, passes);
            return self.all;
        }
        warm
    }

    /// All members are polled in the next pass.
    pub(crate) fn poll_all(&mut self) {
        self.first = self.all;
        self.add_chores();
    }

    /// The budget of a pass was used up before these were polled.
    #[cold]
    pub(crate) fn skip(&mut self, left: Due) {
        self.first |= left.0;
        self.add_chores();
    }

    /// A member is given something.
    #[inline]
    pub(crate) fn give(&mut self, member: usize) {
        self.give_mask(given(member));
    }

    /// The same by what [`given`] says.
    #[inline]
    pub(crate) fn give_mask(&mut self, mask: u32) {
        self.bits |= mask;
    }

    /// Something came over a member.
    #[inline]
    pub(crate) fn worked(&mut self, member: usize) {
        self.bits |= 1 << member;
    }

    /// Something was polled for, and found.
    #[inline]
    pub(crate) fn found(&mut self) {
        self.left = self.left.wrapping_sub(1);
    }

    /// The same of the member in front.
    #[inline]
    pub(crate) fn found_in_front(&mut self) {
        self.bits |= self.front_bit;
        self.found();
    }

    /// The member that is polled for messages and completions.
    #[inline]
    pub(crate) fn front(&self) -> usize {
        self.front
    }

    /// Those that are polled, too, where that had nothing.
    #[inline]
    pub(crate) fn others(&self) -> Due {
        Due(self.others)
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
        let mut pace = Pace::of(3, 1);
        assert_eq!(pace.take_first(), Due(0b111));
        pace.end_chores();
        pace
    }

    /// The members that are polled in a pass.
    fn begin(pace: &mut Pace, now: Time) -> Due {
        match pace.begin_plain_pass() {
            Some(member) => Due(1 << member),
            None => pace.begin_pass(now),
        }
    }

    /// How often each member was polled in so many passes of one microsecond each, and the longest
    /// time for which it was not.
    fn polled(pace: &mut Pace, passes: u32, each: u64, busy: &[usize]) -> ([u32; 3], [u32; 3]) {
        let (mut counts, mut gaps, mut last) = ([0; 3], [0; 3], [0; 3]);
        for pass in 1..=passes {
            let now = Time(u64::from(pass) * each);
            for member in begin(pace, now) {
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
        while !begin(&mut pace, Time::ZERO).any(|member| member == 2) {
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
        assert!(begin(&mut pace, Time::ZERO).any(|member| member == 2));
        assert!(!begin(&mut pace, Time::ZERO).any(|member| member == 2));
        // Also after a sleep.
        pace.poll_all();
        assert_eq!(pace.begin_plain_pass(), None);
        pace.end_chores();
        assert!(pace.has_chores());
        assert_eq!(pace.take_first(), Due(0b111));
        pace.end_chores();
        assert!(!pace.has_chores());
    }

    #[test]
    fn what_was_skipped_comes_first() {
        let mut pace = pace();
        pace.skip(Due(0b110));
        assert!(pace.has_chores());
        let first = pace.take_first();
        assert_eq!(first.collect::<Vec<_>>(), [1, 2]);
        assert_eq!(Due(0b111).without(first).collect::<Vec<_>>(), [0]);
    }
}
