//! Values at a fixed place, of which the library has pointers.

use std::{ops::Deref, ptr::NonNull};

/// A value that stays where it is, wherever this goes, and for which pointers stay good until this
/// is dropped.
///
/// With a `Box` they would not: it asserts that nothing else reaches its content, so that to move
/// the box, as into a struct, an `Arc` or an answer, ends the right of all pointers that were taken
/// before.
pub(super) struct Fixed<T>(NonNull<T>);

// SAFETY: it owns the value, as a `Box` does.
unsafe impl<T: Send> Send for Fixed<T> {}

impl<T> Fixed<T> {
    pub(super) fn new(value: T) -> Fixed<T> {
        Fixed(NonNull::from(Box::leak(Box::new(value))))
    }

    /// Where it is: to be given to the library, and to be made a shared reference of.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr()
    }
}

impl<T> Deref for Fixed<T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: made by `new`, and lives until this is dropped. There are no exclusive
        // references: nothing gives one.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and taken back once. All that was given the pointer has let go
        // of it: the holder sees to that, and drops what has it first.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{cell::Cell, rc::Rc};

    #[test]
    fn pointers_stay_good_wherever_it_goes() {
        let dropped = Rc::new(());
        let fixed = Fixed::new((Cell::new(1), Rc::clone(&dropped)));
        let pointer = fixed.as_ptr();
        let moved = Rc::new(Some((0, fixed)));
        // SAFETY: it lives, and there are only shared references.
        unsafe { &*pointer }.0.set(2);
        assert_eq!(moved.as_ref().as_ref().map(|(_, fixed)| fixed.deref().0.get()), Some(2));
        assert_eq!(Rc::strong_count(&dropped), 2);
        drop(moved);
        assert_eq!(Rc::strong_count(&dropped), 1);
    }
}
