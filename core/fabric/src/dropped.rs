//! Names whose last holder dropped them: reported by whichever thread dropped one, and collected by
//! one thread, which mostly reads a single flag.

#[cfg(not(all(loom, test)))]
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
};

#[cfg(all(loom, test))]
use {
    loom::sync::{
        Mutex,
        atomic::{AtomicBool, Ordering::AcqRel, Ordering::Acquire, Ordering::Release},
    },
    std::sync::PoisonError,
};

/// The names that were dropped, and not collected yet.
#[derive(Debug, Default)]
pub struct Dropped {
    some: AtomicBool,
    names: Mutex<Vec<u64>>,
}

impl Dropped {
    /// Reports that a name was dropped, from any thread.
    pub fn tell(&self, name: u64) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        self.some.store(true, Release);
    }

    /// The names that were dropped since the last call, each once. Only one thread calls this.
    pub fn take(&self) -> Vec<u64> {
        if !self.some.load(Acquire) || !self.some.swap(false, AcqRel) {
            return Vec::new();
        }
        std::mem::take(&mut *self.names.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{sync::Arc, thread};

    /// Two are dropped while a thread collects: what is not seen then is seen afterwards, and
    /// nothing twice.
    #[test]
    fn all_that_were_dropped_are_found_once() {
        loom::model(|| {
            let dropped = Arc::new(Dropped::default());
            let going = [1, 2].map(|name| {
                let dropped = dropped.clone();
                thread::spawn(move || dropped.tell(name))
            });
            let mut found = dropped.take();
            found.extend(dropped.take());
            for going in going {
                going.join().unwrap();
            }
            found.extend(dropped.take());
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
        });
    }
}
