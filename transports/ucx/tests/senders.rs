//! Processes that are killed or stopped in the middle of what they send, over a network: in shared
//! memory all peers of an endpoint write to one queue of the library, in which one that is killed or
//! stopped while it writes holds up the others.

mod common;

use common::{config, is_here, network};
use petasos_conformance::senders;
use petasos_ucx::Ucx;

fn open() -> Ucx {
    petasos_ucx::open(&network().anywhere(), config(network())).unwrap()
}

#[test]
fn killed() {
    if is_here(network()) {
        senders::killed("killed", open);
    }
}

#[test]
fn stopped() {
    if is_here(network()) {
        senders::stopped("stopped", open);
    }
}
