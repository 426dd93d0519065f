//! Keys to parts of regions: they end one by one, whatever is under way.

use super::{Net, Step, access::*, bytes, small_config};
use crate::{
    Access, Address, Done, Event, ExportError, Key, KeyId, OpErrorKind, Operation, Region,
    RegionId, Remote, Slices, Time, Token, two_sided::Engine,
};
use bytes::Bytes;
use smallvec::smallvec;
use std::time::Duration;

fn import(engine: &mut Engine, key: &Key, owner: crate::Peer) -> Remote {
    engine.import(key.parse().unwrap(), owner).unwrap()
}

fn revoke(token: u64, key: KeyId, millis: u64) -> Operation {
    Operation::Revoke { token: Token(token), key, patience: Duration::from_millis(millis) }
}

fn deregister(token: u64, region: RegionId) -> Operation {
    Operation::Deregister { token: Token(token), region, patience: Operation::PATIENCE }
}

fn local(len: usize, seed: u8) -> Slices {
    smallvec![Region::from(bytes(len, seed)).whole()]
}

/// A region of engine 1's, and keys to two parts of it, with engine 0 and with engine 2.
struct Parts {
    net: Net,
    memory: Region,
    region: RegionId,
    keys: [KeyId; 2],
    remotes: [Remote; 2],
}

impl Parts {
    fn new() -> Parts {
        let mut net = Net::new(3, &small_config());
        let memory = Region::zeroed(1000);
        let (region, _) = net.share(1, 0, &memory, Access::ALL);
        let owner = &mut net.engines[1];
        let (first, a) = owner.export_part(region, 100..300, Access::WRITE).unwrap();
        let (second, b) = owner.export_part(region, 300..500, Access::ALL).unwrap();
        let peers = [net.peers[0][1], net.peers[2][1]];
        let remotes =
            [import(&mut net.engines[0], &a, peers[0]), import(&mut net.engines[2], &b, peers[1])];
        Parts { net, memory, region, keys: [first, second], remotes }
    }

    /// A put by the first key, whose payload is being placed.
    fn begin_put(&mut self, token: u64) {
        let put = put(token, self.remotes[0], local(200, 1), smallvec![span(0, 200)], Some(5));
        self.net.engines[0].submit(put);
        for step in [Step::Poll, Step::Send, Step::Accept] {
            assert!(self.net.step(0, 1, step, 0));
        }
        self.net.step(0, 1, Step::Write, 10);
    }

    /// The completion at the owner, if it is there.
    fn ended(&mut self, token: u64) -> Option<Result<Done, OpErrorKind>> {
        self.net.collect(1);
        self.net.done(1, Token(token))
    }
}

#[test]
fn a_key_is_revoked_when_its_last_access_ends_and_others_go_on() {
    let mut parts = Parts::new();
    parts.begin_put(1);
    let [first, second] = parts.keys;
    parts.net.engines[1].submit(revoke(9, first, 5000));
    assert!(parts.ended(9).is_none(), "a payload is being placed");
    // Once is enough.
    parts.net.engines[1].submit(revoke(8, first, 5000));
    assert_eq!(parts.ended(8).unwrap().unwrap_err(), OpErrorKind::UnknownRegion);
    // The other one is used, and revoked, all the same.
    let remote = parts.remotes[1];
    parts.net.engines[2].submit(put(2, remote, local(200, 2), smallvec![span(0, 200)], Some(6)));
    for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
        assert!(parts.net.step(2, 1, step, 0));
    }
    assert_eq!(parts.memory.to_vec()[300..500], bytes(200, 2));
    parts.net.engines[1].submit(revoke(7, second, 0));
    assert!(matches!(parts.ended(7), Some(Ok(Done::Revoked))));
    assert!(parts.ended(9).is_none(), "a payload is still being placed");
    assert!(parts.net.step(0, 1, Step::Land, 0));
    assert!(matches!(parts.ended(9), Some(Ok(Done::Revoked))));
    parts.net.settle();
    assert!(parts.net.done(0, Token(1)).unwrap().is_ok(), "it was under way before");
    assert!(parts.net.done(2, Token(2)).unwrap().is_ok());
    // In terms of the region.
    let arrivals: Vec<_> = parts.net.events[1]
        .iter()
        .filter_map(|event| match event {
            Event::PutArrived { region, offset, len, data, .. } => {
                Some((*region, *offset, *len, *data))
            }
            _ => None,
        })
        .collect();
    assert_eq!(arrivals, [(parts.region, 300, 200, 6), (parts.region, 100, 200, 5)]);
    for (at, remote) in [(0, parts.remotes[0]), (2, parts.remotes[1])] {
        let late = put(3, remote, local(8, 3), smallvec![span(0, 8)], None);
        assert_eq!(parts.net.finish(at, late).unwrap_err(), OpErrorKind::StaleKey);
    }
    assert!(matches!(parts.net.finish(1, deregister(6, parts.region)), Ok(Done::Deregistered)));
    assert!(parts.memory.into_exclusive().is_ok(), "nothing holds it");
    parts.net.assert_clean();
}

#[test]
fn a_key_whose_memory_is_still_reached_is_revoked_again() {
    let mut parts = Parts::new();
    parts.begin_put(1);
    let at = |millis: u64| Time(millis * 1_000_000);
    let key = parts.keys[0];
    for (token, begin) in [(7, 1000), (8, 5000)] {
        let owner = &mut parts.net.engines[1];
        owner.submit(revoke(token, key, 300));
        assert!(owner.is_closing());
        owner.keep_time(at(begin));
        assert_eq!(owner.deadline(), at(begin + 300));
        owner.keep_time(at(begin + 299));
        assert!(parts.ended(token).is_none(), "there is time left");
        let owner = &mut parts.net.engines[1];
        owner.keep_time(at(begin + 300));
        let mut events = Vec::new();
        owner.take_events(10, &mut events);
        let named = Address::parse("test://0").unwrap();
        let told = events.iter().any(|event| {
            matches!(event, Event::Done { token: of, result: Err(error) }
                if of.0 == token
                    && error.kind == OpErrorKind::StillReached
                    && error.peer.as_ref() == Some(&named))
        });
        assert!(told, "{events:?}");
    }
    // The region is open all the same, for the other key and for new ones.
    assert!(parts.net.engines[1].export(parts.region).is_ok());
    let other = put(2, parts.remotes[1], local(8, 2), smallvec![span(0, 8)], None);
    parts.net.engines[2].submit(other);
    for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
        assert!(parts.net.step(2, 1, step, 0));
    }
    assert_eq!(parts.memory.to_vec()[300..308], bytes(8, 2));
    // The peer goes on; the key is revoked when that is asked for again.
    parts.net.settle();
    assert!(matches!(parts.net.finish(1, revoke(9, key, 0)), Ok(Done::Revoked)));
    assert_eq!(parts.net.finish(1, revoke(9, key, 0)).unwrap_err(), OpErrorKind::UnknownRegion);
    parts.net.settle();
    parts.net.assert_clean();
}

/// The region waits for accesses by keys to its parts; both ends are told when the last one ends.
#[test]
fn a_region_and_its_keys_end_together() {
    let mut parts = Parts::new();
    parts.begin_put(1);
    parts.net.engines[1].submit(revoke(7, parts.keys[0], 5000));
    parts.net.engines[1].submit(deregister(8, parts.region));
    assert!(parts.ended(7).is_none() && parts.ended(8).is_none());
    // No access begins by a key that was not revoked.
    let late = put(2, parts.remotes[1], local(8, 2), smallvec![span(0, 8)], None);
    assert_eq!(parts.net.engines[1].export(parts.region), Err(ExportError::UnknownRegion));
    let part = parts.net.engines[1].export_part(parts.region, 0..1, Access::READ);
    assert_eq!(part, Err(ExportError::UnknownRegion));
    assert!(parts.net.step(0, 1, Step::Land, 0));
    assert!(matches!(parts.ended(7), Some(Ok(Done::Revoked))));
    assert!(matches!(parts.ended(8), Some(Ok(Done::Deregistered))));
    parts.net.settle();
    assert_eq!(parts.net.finish(2, late).unwrap_err(), OpErrorKind::StaleKey);
    let revoked = parts.net.finish(1, revoke(9, parts.keys[1], 0));
    assert_eq!(revoked.unwrap_err(), OpErrorKind::UnknownRegion);
    assert!(parts.memory.into_exclusive().is_ok(), "nothing holds it");
    parts.net.assert_clean();
}

#[test]
fn memory_of_a_revoked_key_is_taken_out_of_packets() {
    let mut parts = Parts::new();
    parts.begin_put(1);
    parts.net.divert(0, 1);
    let before = parts.memory.to_vec();
    parts.net.engines[1].submit(revoke(7, parts.keys[1], 0));
    assert!(matches!(parts.ended(7), Some(Ok(Done::Revoked))), "the other one");
    parts.net.divert(0, 1);
    parts.net.engines[1].submit(revoke(8, parts.keys[0], 5000));
    assert!(parts.ended(8).is_none(), "a payload is on its way");
    parts.net.divert(0, 1);
    assert!(matches!(parts.ended(8), Some(Ok(Done::Revoked))));
    parts.net.step(0, 1, Step::Write, 100);
    parts.net.step(0, 1, Step::Land, 0);
    assert!(parts.memory.to_vec() == before, "nothing has landed");
    parts.net.settle();
    assert_eq!(parts.net.done(0, Token(1)).unwrap().unwrap_err(), OpErrorKind::StaleKey);

    // What is read by a key when that is revoked becomes a copy.
    let owner = &mut parts.net.engines[1];
    let (key, bytes) = owner.export_part(parts.region, 0..200, Access::READ).unwrap();
    let peer = parts.net.peers[0][1];
    let remote = import(&mut parts.net.engines[0], &bytes, peer);
    let into = Region::zeroed(200);
    parts.net.engines[0].submit(get(2, remote, smallvec![into.whole()], smallvec![span(0, 200)]));
    for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
        assert!(parts.net.step(0, 1, step, 0));
    }
    assert!(parts.net.step(1, 0, Step::Poll, 0) && parts.net.holds_memory(1, 0));
    let shown = parts.memory.to_vec();
    parts.net.engines[1].submit(revoke(9, key, 5000));
    assert!(parts.ended(9).is_none(), "a packet has its memory");
    parts.net.detach(1, 0);
    assert!(matches!(parts.ended(9), Some(Ok(Done::Revoked))));
    parts.memory.write(0, &[0xEE; 200]);
    parts.net.settle();
    match parts.net.done(0, Token(2)).unwrap() {
        Ok(_) => assert_eq!(into.to_vec(), shown[..200]),
        Err(kind) => assert_eq!(kind, OpErrorKind::StaleKey),
    }
    assert!(!into.to_vec().contains(&0xEE), "the get shows what was written later");
    parts.net.assert_clean();
}

/// A key to a part says nothing of the region's, nor of another part's.
#[test]
fn the_secret_of_one_key_is_no_other_key() {
    let mut parts = Parts::new();
    let peer = parts.net.peers[0][1];
    let owner = &mut parts.net.engines[1];
    let whole = owner.export(parts.region).unwrap().parse().unwrap();
    let (_, narrow) = owner.export_part(parts.region, 0..1, Access::NONE).unwrap();
    let narrow = narrow.parse().unwrap();
    let route = |parts: &crate::key::KeyParts| parts.route(Key::ROUTE_TWO_SIDED).unwrap().to_vec();
    let (whole, narrow) = ((route(&whole), whole), (route(&narrow), narrow));
    // The number of one with the secret of the other, and the kind flipped.
    let mixed = |a: &[u8], b: &[u8]| [&a[..8], &b[8..]].concat();
    let mut flipped = narrow.0.clone();
    flipped[3] ^= 0x80;
    let forged = [mixed(&whole.0, &narrow.0), mixed(&narrow.0, &whole.0), flipped];
    for route in forged {
        let mut key = whole.1.clone();
        key.routes = vec![(Key::ROUTE_TWO_SIDED, Bytes::from(route))];
        let remote = parts.net.engines[0].import(key, peer).unwrap();
        let put = put(1, remote, local(8, 1), smallvec![span(0, 8)], Some(1));
        assert_eq!(parts.net.finish(0, put).unwrap_err(), OpErrorKind::StaleKey);
    }
    assert!(parts.memory.to_vec().iter().all(|byte| *byte == 0));
}

#[test]
fn keys_to_parts_are_bounded() {
    let mut config = small_config();
    (config.limits.max_keys, config.limits.max_regions) = (3, 2);
    let mut net = Net::new(1, &config);
    let engine = &mut net.engines[0];
    let memory = Region::zeroed(64).whole();
    let regions = [(); 2].map(|()| engine.register(&memory, Access::ALL).unwrap());
    let mut part = |n: usize| engine.export_part(regions[n], 0..8, Access::READ).map(|made| made.0);
    let keys = [part(0), part(1), part(0)].map(Result::unwrap);
    let refused = Err(ExportError::TooMany { limit: 3 });
    assert_eq!((part(0), part(1)), (refused.clone(), refused.clone()));
    assert!(matches!(net.finish(0, revoke(1, keys[1], 0)), Ok(Done::Revoked)));
    assert!(net.engines[0].export_part(regions[1], 0..8, Access::READ).is_ok());
    // The end of the region makes room for two.
    assert!(matches!(net.finish(0, deregister(2, regions[0])), Ok(Done::Deregistered)));
    let engine = &mut net.engines[0];
    let mut part = || engine.export_part(regions[1], 0..8, Access::READ).map(|made| made.0);
    assert!(part().is_ok() && part().is_ok());
    assert_eq!(part(), refused);
}
