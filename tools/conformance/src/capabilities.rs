//! What an endpoint says that it can do, with every peer and with one.

use crate::world::{Node, World};
use petasos_fabric::{Capabilities, Credential, Enforcement, Peer};

/// With one peer an endpoint can do at least what it promises for all; of a handle that is stale
/// or unknown it says nothing.
pub fn of_each_peer(w: &mut World) {
    let (a, b, ab, ba) = w.pair();
    at_least_the_common(w, a, ab);
    at_least_the_common(w, b, ba);
    let own = w.address(a);
    let itself = w.resolve(a, &own);
    at_least_the_common(w, a, itself);
    let absent = w.fixture().fresh();
    let absent = w.resolve(a, &absent);
    at_least_the_common(w, a, absent);
    // The connection exists when b ends.
    w.inject(a, ab, b"x");
    w.message(b);
    w.kill(b);
    w.until("b is lost", |w| w[a].lost.iter().any(|(lost, _)| *lost == ab));
    at_least_the_common(w, a, ab);
    w[a].endpoint().forget(ab);
    let never = Peer { index: 4_000_000, generation: 9 };
    let never_so_often = Peer { generation: itself.generation.wrapping_add(9), ..itself };
    for unknown in [ab, never, never_so_often] {
        let told = w[a].endpoint().capabilities_of(unknown).is_some();
        assert!(!told, "{unknown:?} is stale or unknown");
    }
}

fn at_least_the_common(w: &mut World, n: Node, peer: Peer) {
    let (all, one) = (w.capabilities(n), w.capabilities_of(n, peer));
    let support = |c: &Capabilities| {
        [c.remote_access, c.atomics, c.tagged, c.put_with_event, c.map, c.part_keys]
    };
    for (one, all) in support(&one).into_iter().zip(support(&all)) {
        assert!(
            one >= all,
            "{one:?} is less than {all:?}, of put and get, atomics, … keys to parts"
        );
    }
    let flags = |c: &Capabilities| {
        [c.passive_target, c.ordered_access, c.processor_atomics, c.peer_quotas, c.fences]
    };
    for (one, all) in flags(&one).into_iter().zip(flags(&all)) {
        assert!(one || !all, "passive target, ordered access, … or quotas are missing");
    }
    let strictness = |c: &Capabilities| match c.enforcement {
        Enforcement::Initiator => 0,
        Enforcement::Device => 1,
        _ => 2,
    };
    assert!(strictness(&one) >= strictness(&all), "rights are checked less strictly");
    let proven = |c: &Capabilities| c.credential != Credential::None;
    assert!(proven(&one) || !proven(&all), "no credential is asked for");
    // What is the endpoint's own.
    let own = |c: &Capabilities| {
        let (l, named) = (c.limits, (c.scheme, c.tagged, c.third_party));
        let messages = [l.max_inject, l.max_message, l.max_header, l.max_atomic];
        let counts = [l.max_regions, l.max_keys, l.max_peers, l.max_leases, l.max_operations];
        (named, messages, counts)
    };
    assert_eq!(own(&one), own(&all));
    assert!(one.limits.max_transfer >= all.limits.max_transfer);
    assert!(one.limits.max_pieces >= all.limits.max_pieces);
}
