//! Random numbers that a seed repeats.

pub use petasos_testing::Random;
