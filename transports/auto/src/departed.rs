//! Peers that members were told to forget, and whose operations may complete after that.

use crate::peers::Route;
use petasos_fabric::{Address, Peer};
use std::collections::VecDeque;

/// So many are remembered. Completions of what was under way with a peer follow soon after it was
/// forgotten, so only the latest ones are ever asked for.
const REMEMBERED: usize = 1024;

/// How peers that are not known any more were called, here and by their members.
#[derive(Debug, Default)]
pub(crate) struct Departed {
    peers: VecDeque<Names>,
}

#[derive(Debug)]
struct Names {
    route: Route,
    there: Option<Address>,
    ours: Peer,
    address: Address,
}

impl Departed {
    /// A member is to forget a peer, which it knows by the address `there`, and which is `ours`
    /// and at `address` for the program.
    pub(crate) fn add(
        &mut self,
        route: Route,
        there: Option<Address>,
        ours: Peer,
        address: Address,
    ) {
        if self.peers.len() == REMEMBERED {
            self.peers.pop_front();
        }
        self.peers.push_back(Names { route, there, ours, address });
    }

    /// The handle that the program has, or had, of a peer.
    pub(crate) fn handle(&self, route: Route) -> Option<Peer> {
        self.peers.iter().rev().find(|names| names.route == route).map(|names| names.ours)
    }

    /// The route to a peer by the handle that the program had of it.
    pub(crate) fn route(&self, ours: Peer) -> Option<Route> {
        self.peers.iter().rev().find(|names| names.ours == ours).map(|names| names.route)
    }

    /// The address by which the program knows, or knew, the peer that a member knows by this one:
    /// of several, of the one that was forgotten last.
    pub(crate) fn address(&self, member: usize, there: &Address) -> Option<&Address> {
        let is = |names: &&Names| {
            names.route.member == member && names.there.as_ref().is_some_and(|at| at == there)
        };
        self.peers.iter().rev().find(is).map(|names| &names.address)
    }
}
