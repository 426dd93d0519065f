//! Peers that do not go on leave room for others.

use super::{Net, small_config};
use crate::{Event, Full, Level, LostReason, Operation, Payload, Peer, Token};
use bytes::Bytes;

const MOST: usize = 60;

fn net(engines: usize) -> Net {
    let mut config = small_config();
    config.limits.max_operations = MOST;
    Net::new(engines, &config)
}

fn send(net: &mut Net, peer: Peer, token: u64) -> Result<(), Full> {
    let (payload, level) = (Payload::Bytes(Bytes::from_static(b"hello")), Level::Delivered);
    let operation = Operation::Send { token: Token(token), peer, payload, level };
    net.engines[0].try_submit(operation).map_err(|refused| {
        assert_eq!(refused.operation.token(), Token(token));
        refused.full
    })
}

/// Submits until one is refused. How many were accepted.
fn fill(net: &mut Net, peer: Peer) -> usize {
    let count = (0..).take_while(|_| send(net, peer, 7) == Ok(())).count();
    assert_eq!(send(net, peer, 8), Err(Full::Peer));
    count
}

fn writable(net: &mut Net) -> Vec<Peer> {
    net.collect(0);
    let peers = net.events[0].iter().filter_map(|event| match event {
        Event::Writable { peer } => Some(*peer),
        _ => None,
    });
    peers.collect()
}

#[test]
fn each_full_peer_leaves_as_much_as_it_has() {
    let mut net = net(4);
    let peers = net.peers[0].clone();
    assert_eq!([fill(&mut net, peers[1]), fill(&mut net, peers[2])], [MOST / 2, MOST / 4]);
    // A peer that has none finds room for one, and what is done here needs no peer's.
    assert_eq!(fill(&mut net, peers[3]), MOST / 8 + 1);
    let memory = crate::Region::zeroed(8).whole();
    let (token, source) = (Token(1), None);
    let post = Operation::PostReceive { token, source, tag: 0, ignore: 0, into: memory };
    assert!(net.engines[0].try_submit(post).is_ok());
    assert!(writable(&mut net).is_empty(), "nothing has ended");
}

#[test]
fn each_is_told_once_that_there_is_room_again() {
    let mut net = net(3);
    let peers = net.peers[0].clone();
    fill(&mut net, peers[1]);
    fill(&mut net, peers[2]);
    net.settle();
    let mut told = writable(&mut net);
    told.sort_by_key(|peer| peer.index);
    assert_eq!(told, [peers[1], peers[2]]);
    assert_eq!(fill(&mut net, peers[1]), MOST / 2);
}

#[test]
fn a_lost_peer_is_not_full() {
    let mut net = net(3);
    let peers = net.peers[0].clone();
    fill(&mut net, peers[1]);
    let before = net.engines[0].ledger.live;
    net.engines[0].begin_outside(peers[1]);
    net.engines[0].peer_lost(peers[1], LostReason::Closed);
    net.engines[0].end_outside(peers[1]);
    assert_eq!((before, net.engines[0].ledger.live), (MOST / 2, 0));
    assert!(writable(&mut net).is_empty(), "of a peer that is lost");
    assert_eq!(send(&mut net, peers[1], 9), Ok(()), "it fails");
    assert!(fill(&mut net, peers[2]) > 0);
}

#[test]
fn what_the_transport_carries_out_takes_room() {
    let mut net = net(2);
    let peer = net.peers[0][1];
    (0..MOST / 2).for_each(|_| net.engines[0].begin_outside(peer));
    assert_eq!(send(&mut net, peer, 1), Err(Full::Peer));
    (0..MOST / 2).for_each(|_| net.engines[0].end_outside(peer));
    assert_eq!((writable(&mut net), send(&mut net, peer, 2)), (vec![peer], Ok(())));
}
