//! The simulated networks by themselves: the one of packets, and the one of NICs.

mod device;
mod network;
