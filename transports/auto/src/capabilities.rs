//! What an endpoint can do: with every peer, and with those on the route of one member.

use crate::{Member, SCHEME};
use petasos_fabric::{Capabilities, Credential, Enforcement, Limits, Support};

/// What all members can do.
pub(crate) fn common(members: &[Member]) -> Capabilities {
    let all = || members.iter().map(|member| member.endpoint.capabilities());
    let least = |what: fn(&Capabilities) -> Support| all().map(what).min().unwrap_or(Support::None);
    let every = |what: fn(&Capabilities) -> bool| all().all(what);
    let mut limits = Limits::default();
    let smallest = |what: fn(&Limits) -> usize| {
        all().map(|capabilities| what(&capabilities.limits)).min().unwrap_or(0)
    };
    limits.max_inject = smallest(|limits| limits.max_inject);
    limits.max_message = smallest(|limits| limits.max_message);
    limits.max_header = smallest(|limits| limits.max_header);
    limits.max_atomic = smallest(|limits| limits.max_atomic);
    limits.max_transfer = all().map(|c| c.limits.max_transfer).min().unwrap_or(0);
    limits.max_pieces = smallest(|limits| limits.max_pieces);
    limits.max_regions = smallest(|limits| limits.max_regions);
    limits.max_operations = smallest(|limits| limits.max_operations);
    limits.max_keys = smallest(|limits| limits.max_keys);
    limits.max_peers = smallest(|limits| limits.max_peers);
    limits.max_leases = smallest(|limits| limits.max_leases);
    limits.quota.leases = smallest(|limits| limits.quota.leases);
    limits.quota.lease_bytes = smallest(|limits| limits.quota.lease_bytes);
    limits.quota.unexpected = smallest(|limits| limits.quota.unexpected);
    let mut capabilities = Capabilities::emulated(SCHEME, limits);
    capabilities.remote_access = least(|c| c.remote_access);
    capabilities.atomics = least(|c| c.atomics);
    // A receive from any source is offered to all members.
    capabilities.tagged = match every(|c| c.offers) {
        true => least(|c| c.tagged),
        false => Support::None,
    };
    capabilities.offers = false;
    capabilities.put_with_event = least(|c| c.put_with_event);
    capabilities.flush = least(|c| c.flush);
    capabilities.map = least(|c| c.map);
    capabilities.part_keys = least(|c| c.part_keys);
    capabilities.passive_target = every(|c| c.passive_target);
    capabilities.attended = every(|c| c.attended);
    capabilities.third_party = every(|c| c.third_party);
    capabilities.ordered_access = every(|c| c.ordered_access);
    capabilities.fences = every(|c| c.fences);
    capabilities.processor_atomics = every(|c| c.processor_atomics);
    capabilities.peer_quotas = every(|c| c.peer_quotas);
    let strictness = |enforcement: Enforcement| match enforcement {
        Enforcement::Owner => 2,
        Enforcement::Device => 1,
        _ => 0,
    };
    let enforcement = all().map(|c| c.enforcement).min_by_key(|e| strictness(*e));
    capabilities.enforcement = enforcement.unwrap_or(Enforcement::Owner);
    let proof = |credential: Credential| match credential {
        Credential::PeerCredentials => 2,
        Credential::SharedSecret => 1,
        _ => 0,
    };
    let credential = all().map(|c| c.credential).min_by_key(|c| proof(*c));
    capabilities.credential = credential.unwrap_or(Credential::None);
    capabilities
}

/// What a member can do with the peers on its route. The scheme stays the endpoint's, and so do
/// expected messages, the forwarding of keys, which name all members, and the limits that are
/// enforced for all peers.
pub(crate) fn over(member: &Member, common: &Capabilities) -> Capabilities {
    let mut capabilities = member.endpoint.capabilities().clone();
    let theirs = capabilities.limits;
    capabilities.limits = common.limits;
    capabilities.limits.max_transfer = theirs.max_transfer;
    capabilities.limits.max_pieces = theirs.max_pieces;
    capabilities.scheme = common.scheme;
    capabilities.tagged = common.tagged;
    capabilities.offers = common.offers;
    capabilities.third_party = common.third_party;
    capabilities
}
