//! What is done next, by chance: all of it follows from the seed.

use super::actor::Actor;

/// Random numbers that a seed repeats.
pub(super) struct Random(petasos_testing::Random);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(petasos_testing::Random::new(seed))
    }

    /// Less than `end`, which is not zero.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.draw() % end
    }

    fn chance(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// What `fallocate(2)` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Reserve,
    ReserveOnly,
    Punch,
    Zero,
    ZeroOnly,
}

/// How a file is opened anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    Plain,
    Direct,
    Append,
    Cut,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Read {
        at: u64,
        len: usize,
    },
    Write {
        at: u64,
        len: usize,
    },
    /// Writes beyond the end, and reads within the hole at once.
    Beyond {
        at: u64,
        hole: u64,
    },
    Append {
        len: usize,
    },
    Cut {
        size: u64,
        by_path: bool,
    },
    Room {
        how: Room,
        at: u64,
        len: u64,
    },
    MapRead {
        at: u64,
        len: usize,
    },
    MapWrite {
        at: u64,
        len: usize,
        sync: bool,
    },
    /// From front to back, by so much.
    Scan {
        by: usize,
    },
    Stat {
        by_path: bool,
    },
    List,
    Seek {
        at: u64,
    },
    Sync,
    Reopen(Opening),
    Rename,
    /// By another descriptor of the same file.
    Beside {
        at: u64,
        len: usize,
    },
    Copy {
        from: u64,
        to: u64,
        len: usize,
    },
    /// The file is the other mount's from now on.
    Pass,
}

/// An offset: anywhere, or where something begins or ends.
fn offset(random: &mut Random, end: u64) -> u64 {
    let at = random.below(end.max(1));
    match random.below(4) {
        0 => at / 4096 * 4096,
        1 => (at / 4096 * 4096).saturating_sub(random.below(3)),
        2 => end.saturating_sub(random.below(5000)),
        _ => at,
    }
}

fn length(random: &mut Random, largest: u64) -> usize {
    let bits = random.below(18);
    let most = (1 << bits).min(largest);
    (1 + random.below(most)) as usize
}

pub(super) fn step(random: &mut Random, actor: &Actor) -> Step {
    let (size, largest) = (actor.size(), actor.largest());
    let within = |random: &mut Random| offset(random, size + 1);
    // Beyond the end now and then, never beyond the largest size.
    let somewhere = |random: &mut Random, len: u64| {
        let end = if random.chance(4) { largest } else { (size + 1).min(largest) };
        offset(random, end).min(largest - len.min(largest))
    };
    match random.below(100) {
        0..=17 => Step::Read { at: within(random), len: length(random, largest) },
        18..=37 => {
            let len = length(random, largest / 2);
            Step::Write { at: somewhere(random, len as u64), len }
        }
        38..=41 => {
            let hole = 1 + random.below(30_000);
            match size + hole < largest {
                true => Step::Beyond { at: size + hole, hole },
                false => Step::Cut { size: within(random), by_path: false },
            }
        }
        42..=44 => {
            let len = length(random, largest / 8);
            match size + len as u64 <= largest {
                true => Step::Append { len },
                false => Step::Cut { size: within(random), by_path: true },
            }
        }
        45..=50 => {
            let size = if random.chance(3) { somewhere(random, 0) } else { within(random) };
            Step::Cut { size: size.min(largest), by_path: random.chance(3) }
        }
        51..=58 => {
            use Room::{Punch, Reserve, ReserveOnly, Zero, ZeroOnly};
            let how = [Reserve, ReserveOnly, Punch, Punch, Zero, ZeroOnly];
            let how = how[random.below(how.len() as u64) as usize];
            let len = length(random, largest / 2) as u64;
            Step::Room { how, at: somewhere(random, len), len }
        }
        59..=62 => Step::MapRead { at: within(random), len: length(random, largest) },
        63..=67 => {
            let (at, len) = (within(random), length(random, largest));
            Step::MapWrite { at, len, sync: random.chance(2) }
        }
        68..=69 => Step::Scan { by: [4096, 1000, 65_536][random.below(3) as usize] },
        70..=74 => Step::Stat { by_path: random.chance(2) },
        75 => Step::List,
        76..=78 => Step::Seek { at: within(random) },
        79..=80 => Step::Sync,
        81..=86 => {
            use Opening::{Append, Cut, Direct, Plain};
            let all = [Plain, Plain, Plain, Plain, Direct, Append, Cut];
            Step::Reopen(all[random.below(all.len() as u64) as usize])
        }
        87 => Step::Rename,
        88..=90 => Step::Beside { at: within(random), len: length(random, largest) },
        91..=92 => {
            let len = length(random, largest / 4);
            let to = somewhere(random, len as u64);
            Step::Copy { from: within(random), to, len }
        }
        _ if actor.is_shared() => Step::Pass,
        _ => Step::Read { at: within(random), len: length(random, largest) },
    }
}
