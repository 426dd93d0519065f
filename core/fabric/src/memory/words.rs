//! Words of memory that this process may only be able to read.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{self, Acquire, Relaxed, SeqCst},
    fence,
};

/// Loads a word, whether or not its page may be written.
///
/// Of memory that may only be read the language promises that relaxed loads are loads. One with an
/// order of its own may be made of an exchange, which writes back what it found, and faults there.
/// So the order comes from fences.
///
/// # Panics
/// If that is no order of a load.
#[inline]
pub(super) fn load(word: &AtomicU64, order: Ordering) -> u64 {
    match order {
        Relaxed => word.load(Relaxed),
        Acquire => {
            let found = word.load(Relaxed);
            fence(Acquire);
            found
        }
        SeqCst => {
            fence(SeqCst);
            let found = word.load(Relaxed);
            fence(SeqCst);
            found
        }
        order => panic!("{order:?} is no order of a load"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It lies in a page of the program that cannot be written; Miri holds loads to what is
    /// promised of such memory.
    static WORD: u64 = 77;
    /// As it comes from a mapping, and not from a reference.
    const PLACE: *const AtomicU64 = (&raw const WORD).cast();

    #[test]
    fn a_word_that_cannot_be_written_is_loaded() {
        // SAFETY: aligned, as long as the program, and nothing stores there: nothing can.
        let word = unsafe { &*PLACE };
        for order in [Relaxed, Acquire, SeqCst] {
            assert_eq!(load(word, order), 77, "{order:?}");
        }
    }
}
