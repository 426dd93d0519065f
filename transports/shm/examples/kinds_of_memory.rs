//! What a put and a get cost with memory of each kind at the target: one piece, several as one
//! region, and the address space. Over shared memory, both ends on one thread, so that neither
//! waits.
//!
//! ```text
//! cargo run --release -p petasos-shm --example kinds_of_memory
//! ```
//!
//! One piece is copied between address spaces, or mapped; the rest is served by the target.

use petasos_fabric::{
    Access, Clock, Done, Endpoint, Event, Level, Operation, Region, RegionId, Remote, RemoteSpan,
    Slice, Token, memory::AddressSpace,
};
use petasos_shm::Shm;
use std::{
    error::Error,
    time::{Duration, Instant},
};

const TIME: Duration = Duration::from_millis(200);
const LONGEST: usize = 1 << 20;

struct Pair {
    ends: [Shm; 2],
    clock: Clock,
    events: Vec<Event>,
}

impl Pair {
    fn open() -> Result<Pair, Box<dyn Error>> {
        let address = "shm://*".parse()?;
        let ends = [Shm::open(&address)?, Shm::open(&address)?];
        Ok(Pair { ends, clock: Clock::start(), events: Vec::new() })
    }

    fn import(&mut self, region: RegionId) -> Result<Remote, Box<dyn Error>> {
        let key = self.ends[1].export(region)?;
        Ok(self.ends[0].import(&key)?)
    }

    /// Carries an operation of the first out.
    fn complete(&mut self, operation: Operation) -> Result<(), Box<dyn Error>> {
        self.ends[0].try_submit(operation).map_err(|refused| format!("{refused:?}"))?;
        loop {
            for end in &mut self.ends {
                end.progress(self.clock.now(), 64, &mut self.events);
            }
            for event in self.events.drain(..) {
                if let Event::Done { result, .. } = event {
                    assert!(matches!(result?, Done::Put | Done::Got));
                    return Ok(());
                }
            }
        }
    }

    /// The time of one operation, of puts and of gets.
    fn measure(
        &mut self,
        remote: Remote,
        offset: u64,
        local: &Slice,
    ) -> Result<[Duration; 2], Box<dyn Error>> {
        let mut times = [Duration::ZERO; 2];
        for (put, time) in [true, false].into_iter().zip(&mut times) {
            let (begin, mut count) = (Instant::now(), 0);
            while begin.elapsed() < TIME {
                for _ in 0..20 {
                    let local = [local.clone()].into();
                    let len = LONGEST.min(local_len(&local)) as u64;
                    let spans = [RemoteSpan { offset, len }].into();
                    let (token, level) = (Token(1), Level::Visible);
                    self.complete(match put {
                        true => Operation::Put { token, remote, local, spans, level, event: None },
                        false => Operation::Get { token, remote, local, spans },
                    })?;
                    count += 1;
                }
            }
            *time = begin.elapsed() / count;
        }
        Ok(times)
    }
}

fn local_len(local: &petasos_fabric::Slices) -> usize {
    local.iter().map(Slice::len).sum()
}

fn main() -> Result<(), Box<dyn Error>> {
    let access = Access::READ.with(Access::WRITE);
    let mut pair = Pair::open()?;
    let memory = Region::zeroed(LONGEST);
    let pieces = |count: usize| {
        let len = LONGEST / count;
        Region::of_pieces((0..count).filter_map(|nth| memory.slice(nth * len, len))).whole()
    };
    // SAFETY: the key stays in this process, whose puts go to the region above alone.
    let space = unsafe { AddressSpace::of_process() }?.register(&mut pair.ends[1], access)?;
    let mut kinds = vec![("the address space", pair.import(space)?, memory.as_ptr().addr() as u64)];
    for (name, memory) in
        [("one piece", memory.whole()), ("4 pieces", pieces(4)), ("4096 pieces", pieces(4096))]
    {
        let region = pair.ends[1].register(&memory, access)?;
        kinds.push((name, pair.import(region)?, 0));
    }
    println!("{:<18} {:>9} {:>12} {:>12}", "", "bytes", "put", "get");
    for len in [8, 4096, LONGEST] {
        let local = Region::zeroed(len).whole();
        for (name, remote, offset) in &kinds {
            let [put, get] = pair.measure(*remote, *offset, &local)?;
            println!("{name:<18} {len:>9} {put:>12.2?} {get:>12.2?}");
        }
    }
    Ok(())
}
