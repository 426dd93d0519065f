//! What arrays are made of.

use petasos_fabric::Region;
use petasos_wire::Wire;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

/// A plain number, of which every pattern of bits is one: `u8` to `u64`, `i8` to `i64`, `f32`,
/// `f64`. It lies in memory as this machine has it, which is little-endian on all that Petasos runs
/// on.
pub trait Number: Wire + Copy + Default + sealed::Number + 'static {}

pub(super) mod sealed {
    use super::{FromBytes, Immutable, IntoBytes};

    pub trait Number: FromBytes + IntoBytes + Immutable {}
}

macro_rules! numbers {
    ($($t:ty),*) => {$(
        impl sealed::Number for $t {}
        impl Number for $t {}
    )*};
}
numbers!(u8, u16, u32, u64, i8, i16, i32, i64, f32, f64);

/// Bytes that are moved at a time: they stay in the nearest cache.
const PART: usize = 8 << 10;

/// A part of an array outside of it, aligned for all numbers.
struct Part([u64; PART / size_of::<u64>()]);

impl Part {
    fn new() -> Part {
        Part(FromZeros::new_zeroed())
    }

    /// Room for so many numbers: no more than [`per_part`].
    fn numbers<T: Number>(&mut self, count: usize) -> &mut [T] {
        let bytes = &mut self.0.as_mut_bytes()[..count * size_of::<T>()];
        <[T]>::mut_from_bytes(bytes).expect("aligned to 8, and of whole numbers")
    }
}

const fn per_part<T>() -> usize {
    PART / size_of::<T>()
}

/// Copies numbers out of memory, from the number `at` on.
///
/// # Panics
/// If that is beyond its end.
pub(super) fn read<T: Number>(memory: &Region, at: usize, into: &mut [T]) {
    memory.read(offset::<T>(at), into.as_mut_bytes());
}

/// Copies numbers into memory, from the number `at` on.
///
/// # Panics
/// If that is beyond its end.
pub(super) fn write<T: Number>(memory: &Region, at: usize, from: &[T]) {
    memory.write(offset::<T>(at), from.as_bytes());
}

/// Where the number `at` lies; beyond every end if nothing is so long.
fn offset<T>(at: usize) -> usize {
    at.saturating_mul(size_of::<T>())
}

/// Gives `look` copies of all `len` numbers, part by part.
pub(super) fn each_part<T: Number>(memory: &Region, len: usize, mut look: impl FnMut(usize, &[T])) {
    let mut part = Part::new();
    for at in (0..len).step_by(per_part::<T>()) {
        let numbers = part.numbers(per_part::<T>().min(len - at));
        read(memory, at, numbers);
        look(at, numbers);
    }
}

/// Has `make` fill all `len` numbers, part by part.
pub(super) fn fill_parts<T: Number>(
    memory: &Region,
    len: usize,
    mut make: impl FnMut(usize, &mut [T]),
) {
    let mut part = Part::new();
    for at in (0..len).step_by(per_part::<T>()) {
        let numbers = part.numbers(per_part::<T>().min(len - at));
        make(at, numbers);
        write(memory, at, numbers);
    }
}
