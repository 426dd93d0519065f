//! Memory under numbers of the program's choice.

use super::{Net, access::*, bytes, small_config};
use crate::{
    Access, Done, ExportError, ImportError, OpErrorKind, Operation, Region, Slices, Token,
};
use smallvec::smallvec;

fn local(len: usize, seed: u8) -> Slices {
    smallvec![Region::from(bytes(len, seed)).whole()]
}

#[test]
fn a_number_names_what_is_open_under_it() {
    let mut net = Net::new(2, &small_config());
    let memory = Region::zeroed(1000);
    let (region, _) = net.share(1, 0, &memory, Access::ALL);
    let peer = net.peers[0][1];
    let remote = net.engines[0].import_number(peer, 5, 100).unwrap();
    let early = put(1, remote, local(8, 1), smallvec![span(0, 8)], None);
    assert_eq!(net.finish(0, early).unwrap_err(), OpErrorKind::StaleKey);
    let owner = &mut net.engines[1];
    let id = owner.export_number(region, 0..100, Access::WRITE, 5).unwrap();
    let twice = owner.export_number(region, 0..100, Access::WRITE, 5);
    assert_eq!(twice, Err(ExportError::Taken { number: 5 }));
    let good = put(2, remote, local(100, 2), smallvec![span(0, 100)], None);
    assert!(matches!(net.finish(0, good), Ok(Done::Put)));
    assert_eq!(memory.to_vec()[..100], bytes(100, 2));
    let into = Region::zeroed(8);
    let refused = net.finish(0, get(3, remote, smallvec![into.whole()], smallvec![span(0, 8)]));
    let (allowed, needed) = (Access::ALL.without(Access::READ), Access::READ);
    assert_eq!(refused.unwrap_err(), OpErrorKind::Denied { allowed, needed });
    let revoke = Operation::Revoke { token: Token(4), key: id, patience: Operation::PATIENCE };
    assert!(matches!(net.finish(1, revoke), Ok(Done::Revoked)));
    let late = put(5, remote, local(8, 3), smallvec![span(0, 8)], None);
    assert_eq!(net.finish(0, late).unwrap_err(), OpErrorKind::StaleKey);
    // Free again, also after the end of the region.
    net.engines[1].export_number(region, 100..200, Access::WRITE, 5).unwrap();
    let deregister =
        Operation::Deregister { token: Token(6), region, patience: Operation::PATIENCE };
    assert!(matches!(net.finish(1, deregister), Ok(Done::Deregistered)));
    let other = Region::zeroed(8);
    let (region, _) = net.share(1, 0, &other, Access::ALL);
    net.engines[1].export_number(region, 0..8, Access::WRITE, 5).unwrap();
    let now = put(7, remote, local(8, 4), smallvec![span(0, 8)], None);
    assert!(matches!(net.finish(0, now), Ok(Done::Put)));
    assert_eq!(other.to_vec(), bytes(8, 4));
    assert_eq!(memory.to_vec()[100..], [0; 900]);
    net.assert_clean();
}

/// A handle is good for the life of the peer that the peer's handle is of, also if that was not
/// connected yet.
#[test]
fn a_number_is_imported_before_its_owner_is_up() {
    let mut net = Net::new(2, &small_config());
    let absent = crate::Address::parse("test://absent").unwrap();
    let engine = &mut net.engines[0];
    let peer = engine.add_peer(&absent).unwrap();
    let remote = engine.import_number(peer, 1, 8).unwrap();
    engine.submit(put(1, remote, local(8, 1), smallvec![span(0, 8)], None));
    engine.peer_up(peer, crate::Incarnation::random());
    assert_eq!(engine.next_output(), Some(peer));
    assert!(engine.poll_transmit(peer).is_some(), "it goes to whichever life this is");
    engine.peer_lost(peer, crate::LostReason::Closed);
    net.collect(0);
    let ended = net.done(0, Token(1)).unwrap().unwrap_err();
    assert_eq!(ended, OpErrorKind::PeerLost(crate::LostReason::Closed));
    net.engines[0].forget(peer);
    let stale = net.engines[0].import_number(peer, 1, 8);
    assert!(matches!(stale, Err(ImportError::UnknownPeer)), "{stale:?}");
}
