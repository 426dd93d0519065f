//! Whose last holder is gone: told by whichever thread dropped it, and looked up by one, which most of the time pays for
//! one word.

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

/// Numbers of those that are gone.
#[derive(Debug, Default)]
pub(crate) struct Gone {
    some: AtomicBool,
    names: Mutex<Vec<u64>>,
}

impl Gone {
    /// Says that one is gone, from any thread.
    pub(crate) fn tell(&self, name: u64) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).push(name);
        self.some.store(true, Release);
    }

    /// Those of whom it was said since this was last asked, each once. One thread asks.
    pub(crate) fn take(&self) -> Vec<u64> {
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

    /// Two go while somebody looks: what is not seen then is seen afterwards, and nothing twice.
    #[test]
    fn everybody_who_went_is_found_once() {
        loom::model(|| {
            let gone = Arc::new(Gone::default());
            let going = [1, 2].map(|name| {
                let gone = gone.clone();
                thread::spawn(move || gone.tell(name))
            });
            let mut found = gone.take();
            found.extend(gone.take());
            for going in going {
                going.join().unwrap();
            }
            found.extend(gone.take());
            found.sort_unstable();
            assert_eq!(found, [1, 2]);
        });
    }
}
