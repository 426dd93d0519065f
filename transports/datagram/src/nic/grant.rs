//! Memory of programs of other nodes: the initiator's side. The owner's is in [`super::exposure`].
//!
//! The key of a region holds nothing of the library's. A NIC that is to access memory by it asks
//! the owner, on the connection on which both were authenticated, and shows that it has the key.
//! The answer is a *grant*: the library's key for that memory, which is made then. Before the
//! memory is closed, the owner revokes all grants: the NIC begins nothing more, and returns the
//! grant when what was under way has completed. So no access meets memory that is closed, to which
//! some libraries respond by ending the connection, and none is still landing when closing
//! completes.
//!
//! Short accesses, and all that cannot be granted, are served by the owner's engine. It serves all
//! accesses by keys to parts of regions, too: not every library keeps a peer within less than a
//! page or a mapping, and a key that a lost peer held could not be revoked at once.

use super::{Nic, opened::Location};
use crate::{
    frame::{Control, Permission},
    grants::Grant,
    network::Network,
};
use petasos_channel::{
    DeviceEvent,
    device::{Node, Readiness, RemoteKey},
    immediate::Name,
};
use petasos_fabric::{Access, Peer};

impl<N: Network> Nic<N> {
    /// Whether the library can do an access by this key: asks the owner, if that is not known.
    pub(super) fn ready(&mut self, node: Node, key: &RemoteKey, needed: Access) -> Readiness {
        let Some(reached) = self.nodes.live(node) else { return Readiness::Later };
        let (peer, lower) = (reached.peer, &mut self.inner);
        // When too many operations never complete, the owner serves further accesses.
        let crowded = lower.lost.count() > lower.config.lost;
        let Some(Location { name, .. }) = Location::decode(key).filter(|_| !crowded) else {
            return Readiness::Never;
        };
        match lower.grants.get_mut(peer, name) {
            Some(Grant::Given { rights, .. }) if rights.allows(needed) => Readiness::Now,
            Some(Grant::Asked) => Readiness::Later,
            // The owner reports what is wrong with it.
            Some(_) => Readiness::Never,
            None => {
                lower.grants.ask(peer, name);
                lower.send_control(peer, Control::Ask(name));
                Readiness::Later
            }
        }
    }

    /// Takes in what nodes say of grants.
    pub(super) fn take_memory_controls(&mut self) {
        for (peer, message) in std::mem::take(&mut self.inner.memory_controls) {
            match message {
                // Also of one that was lost meanwhile.
                Control::Returned => self.returned(peer),
                _ if self.inner.links.of(peer).is_none() => {}
                Control::Ask(target) => self.asked(peer, target),
                Control::Grant(target, permission) => self.granted(peer, target, Some(permission)),
                Control::Refuse(target) => self.granted(peer, target, None),
                Control::Revoke(target) => self.revoked(peer, target),
                Control::Released(target) => self.released(peer, target),
                _ => {}
            }
        }
    }

    /// The owner has granted access to a region, or refused it.
    fn granted(&mut self, peer: Peer, target: Name, permission: Option<Permission>) {
        let lower = &mut self.inner;
        let node = lower.links.of(peer).and_then(|link| link.node());
        let answer = match permission {
            None => Grant::Refused,
            Some(Permission { location, access: rights, notice: name }) => {
                let key = node.and_then(|node| lower.net.key(node, &location));
                key.map_or(Grant::Useless, |key| Grant::Given { key, rights, name, running: 0 })
            }
        };
        if !lower.grants.answer(peer, target, answer) {
            return lower.cut_off(peer.index, "a grant that is not waited for");
        }
        if let Some(node) = self.nodes.node(peer) {
            self.mail.push_back(DeviceEvent::Room { node });
        }
    }

    /// The owner revokes a grant: it closes the memory.
    fn revoked(&mut self, peer: Peer, target: Name) {
        match self.inner.grants.revoke(peer, target) {
            true => self.return_grant(peer, target),
            false => self.inner.cut_off(peer.index, "a grant was revoked that was not given"),
        }
    }

    /// Returns a grant that was revoked, once nothing is under way by it.
    fn return_grant(&mut self, peer: Peer, target: Name) {
        if self.inner.grants.remove_returnable(peer, target) {
            self.inner.send_control(peer, Control::Released(target));
        }
    }

    /// The library has completed an access by a grant.
    pub(super) fn grant_used(&mut self, peer: Peer, target: Name) {
        self.inner.grants.completed(peer, target);
        self.return_grant(peer, target);
    }
}
