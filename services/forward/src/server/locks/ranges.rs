//! The locks on one file, as POSIX wants them: the locks of one owner do not conflict, a new one
//! replaces what its owner had there, and touching ones of a kind become one.

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::server) struct Holder {
    /// The session.
    pub(in crate::server) session: u64,
    /// The owner within it.
    pub(in crate::server) owner: u64,
}

/// A lock that is held, or asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Range {
    pub(in crate::server) start: u64,
    /// Not included.
    pub(in crate::server) end: u64,
    pub(in crate::server) exclusive: bool,
    pub(in crate::server) holder: Holder,
    /// The number of the open file that it goes with.
    pub(in crate::server) file: u64,
    pub(in crate::server) pid: u32,
}

impl Range {
    fn overlaps(&self, start: u64, end: u64) -> bool {
        self.start < end && start < self.end
    }

    fn is_like(&self, other: &Range) -> bool {
        let kind = |range: &Range| (range.exclusive, range.holder, range.file, range.pid);
        kind(self) == kind(other)
    }
}

/// All locks on a file.
#[derive(Clone, Debug, Default)]
pub(super) struct Ranges(Vec<Range>);

impl Ranges {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first lock in the way of this one.
    pub(super) fn conflict(&self, wanted: &Range) -> Option<Range> {
        self.conflicts(wanted).min_by_key(|held| held.start).copied()
    }

    /// All locks in the way of this one.
    pub(super) fn conflicts(&self, wanted: &Range) -> impl Iterator<Item = &Range> {
        self.0.iter().filter(|held| {
            held.holder != wanted.holder
                && held.overlaps(wanted.start, wanted.end)
                && (held.exclusive || wanted.exclusive)
        })
    }

    /// How many more locks its holder may have after setting, or with `None` freeing, this part.
    pub(super) fn growth(&self, part: &Range, sets: bool) -> usize {
        let mine = || self.0.iter().filter(|held| held.holder == part.holder);
        let split = mine().find(|held| held.start < part.start && part.end < held.end);
        if sets && split.is_some_and(|held| held.is_like(part)) {
            return 0;
        }
        let covered = mine().filter(|held| part.start <= held.start && held.end <= part.end);
        (usize::from(sets) + usize::from(split.is_some())).saturating_sub(covered.count())
    }

    /// Sets a lock, which nothing is in the way of. Gives how many more there are than before.
    pub(super) fn set(&mut self, new: Range) -> isize {
        let before = self.0.len();
        self.carve(new.holder, new.start, new.end);
        let mut merged = new;
        self.0.retain(|held| {
            let joins = held.is_like(&new) && (held.end == new.start || held.start == new.end);
            if joins {
                merged.start = merged.start.min(held.start);
                merged.end = merged.end.max(held.end);
            }
            !joins
        });
        self.0.push(merged);
        self.0.len() as isize - before as isize
    }

    /// Frees a part. Gives how many more there are than before.
    pub(super) fn clear(&mut self, holder: Holder, start: u64, end: u64) -> isize {
        let before = self.0.len();
        self.carve(holder, start, end);
        self.0.len() as isize - before as isize
    }

    /// Frees whatever is so. Gives how many that were.
    pub(super) fn remove(&mut self, which: impl Fn(&Range) -> bool) -> usize {
        let before = self.0.len();
        self.0.retain(|held| !which(held));
        before - self.0.len()
    }

    /// Takes what this holder has between start and end.
    fn carve(&mut self, holder: Holder, start: u64, end: u64) {
        let mut rest = Vec::new();
        self.0.retain_mut(|held| {
            if held.holder != holder || !held.overlaps(start, end) {
                return true;
            }
            if held.end > end {
                rest.push(Range { start: end, ..*held });
            }
            held.end = start;
            held.start < start
        });
        self.0.append(&mut rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    #[derive(Clone, Debug)]
    struct Step {
        holder: u64,
        start: u64,
        end: u64,
        kind: u8,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step =
            (0u64..3, 0..BYTES - 1, 1..BYTES, 0u8..3).prop_map(|(holder, start, len, kind)| Step {
                holder,
                start,
                end: (start + len).min(BYTES),
                kind,
            });
        proptest::collection::vec(step, 1..80)
    }

    proptest! {
        /// Beside a model that knows the owner and kind of the lock on each byte.
        #[test]
        fn as_if_each_byte_had_its_lock(steps in steps()) {
            let mut ranges = Ranges::default();
            let mut model = vec![[None::<bool>; 3]; BYTES as usize];
            for Step { holder, start, end, kind } in steps {
                let me = Holder { session: holder, owner: 7 };
                let span = start as usize..end as usize;
                let count = |ranges: &Ranges| ranges.0.iter().filter(|r| r.holder == me).count();
                let before = count(&ranges);
                if kind == 2 {
                    let part = Range { start, end, exclusive: false, holder: me, file: 1, pid: 1 };
                    let most = ranges.growth(&part, false);
                    let delta = ranges.clear(me, start, end);
                    prop_assert_eq!(count(&ranges) as isize - before as isize, delta);
                    prop_assert!(delta <= most as isize);
                    model[span].iter_mut().for_each(|byte| byte[holder as usize] = None);
                } else {
                    let exclusive = kind == 1;
                    let new = Range { start, end, exclusive, holder: me, file: 1, pid: 1 };
                    let others = |byte: &[Option<bool>; 3]| {
                        (0..3).any(|other| other != holder as usize
                            && byte[other].is_some_and(|theirs| theirs || exclusive))
                    };
                    let free = !model[span.clone()].iter().any(others);
                    prop_assert_eq!(ranges.conflict(&new).is_none(), free);
                    if free {
                        let most = ranges.growth(&new, true);
                        let delta = ranges.set(new);
                        prop_assert_eq!(count(&ranges) as isize - before as isize, delta);
                        prop_assert!(delta <= most as isize);
                        model[span].iter_mut().for_each(|byte| byte[holder as usize] = Some(exclusive));
                    }
                }
                for (at, byte) in model.iter().enumerate() {
                    for (of, expected) in byte.iter().enumerate() {
                        let at = at as u64;
                        let mut held = ranges.0.iter().filter(|range| {
                            range.holder.session == of as u64 && range.overlaps(at, at + 1)
                        });
                        prop_assert_eq!(&held.next().map(|range| range.exclusive), expected);
                        prop_assert!(held.next().is_none(), "no byte twice");
                    }
                }
                for range in &ranges.0 {
                    prop_assert!(range.start < range.end);
                    let touches = |other: &&Range| other.is_like(range) && other.start == range.end;
                    prop_assert!(!ranges.0.iter().any(|other| touches(&other)), "merged");
                }
            }
        }
    }
}
