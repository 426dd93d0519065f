//! The fabric over a simulated network: seeded, with faults and virtual time
