//! Memory: registered with all members, and keys that say how each of them reaches it.
//!
//! A key of this transport has a part for each member of the owner ([`Key::ROUTE_MEMBER`]): the
//! index of the member's address in the owner's (a byte), the member's incarnation (8 bytes), and
//! the parts of its key (their number, and for each kind, length and bytes). The rest of the
//! member's key is in ours.

use crate::{Auto, AutoAddress, outstanding::Pending, peers::Route};
use petasos_fabric::{
    Access, Done, Endpoint, Event, ExportError, ImportError, Incarnation, Key, KeyId, OpError,
    OpErrorKind, Operation, Peer, RegionId, RegisterError, Remote, Slice, Token, key::KeyParts,
};
use std::{ops::Range, time::Duration};

impl Auto {
    pub(crate) fn register_all(
        &mut self,
        memory: &Slice,
        access: Access,
    ) -> Result<RegionId, RegisterError> {
        let mut there = Vec::with_capacity(self.members.len());
        for member in 0..self.members.len() {
            match self.members[member].endpoint.register(memory, access) {
                Ok(region) => there.push(region),
                Err(error) => {
                    for (member, region) in there.into_iter().enumerate() {
                        let token = self.outstanding.token(Pending::Ignored);
                        let patience = Operation::PATIENCE;
                        self.hand(member, Operation::Deregister { token, region, patience });
                    }
                    return Err(error);
                }
            }
        }
        Ok(self.regions.add(there))
    }

    /// Closes a region with all members; again, with those that have not closed it yet.
    pub(crate) fn close(&mut self, token: Token, region: RegionId, patience: Duration) {
        let Some(open) = self.regions.close(token, region) else {
            return self.fail(token, OpError::local(OpErrorKind::UnknownRegion));
        };
        for (member, region_there) in open {
            let token = self.outstanding.token(Pending::Closing { region, member });
            let close = Operation::Deregister { token, region: region_there, patience };
            self.hand(member, close);
        }
    }

    /// A member has closed its registration of a region, or has not. Returns the completion when
    /// all members have answered.
    pub(crate) fn closed(
        &mut self,
        region: RegionId,
        member: usize,
        result: Result<Done, OpError>,
    ) -> Option<Event> {
        let result = result.map_err(|error| self.in_our_words(member, error));
        self.regions.closed(region, member, result)
    }

    /// A member's error, with our address of the peer that it names.
    fn in_our_words(&mut self, member: usize, mut error: OpError) -> OpError {
        self.reword_error(member, &mut error);
        error
    }

    /// A member has revoked its key to a part, or has not.
    pub(crate) fn revoked(
        &mut self,
        key: KeyId,
        member: usize,
        result: Result<Done, OpError>,
    ) -> Option<Event> {
        let result = result.map_err(|error| self.in_our_words(member, error));
        self.regions.revoked(key, member, result)
    }

    /// Revokes a key to a part with all members; again, with those that have not revoked it yet.
    pub(crate) fn revoke(&mut self, token: Token, key: KeyId, patience: Duration) {
        let Some(open) = self.regions.revoke(token, key) else {
            return self.fail(token, OpError::local(OpErrorKind::UnknownRegion));
        };
        for (member, there) in open {
            let token = self.outstanding.token(Pending::Revoking { key, member });
            self.hand(member, Operation::Revoke { token, key: there, patience });
        }
    }

    pub(crate) fn export_all(&self, region: RegionId) -> Result<Key, ExportError> {
        let there = self.regions.of_members(region).ok_or(ExportError::UnknownRegion)?;
        let keys = self.members.iter().zip(there);
        let keys: Result<Vec<Key>, _> =
            keys.map(|(member, id)| member.endpoint.export(*id)).collect();
        self.compose(&keys?)
    }

    /// A key of all members' keys to the same part.
    pub(crate) fn export_part_of_all(
        &mut self,
        region: RegionId,
        range: &Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        let there = self.regions.of_members(region).ok_or(ExportError::UnknownRegion)?;
        let (there, mut ids, mut keys) = (there.to_vec(), Vec::new(), Vec::new());
        let made = there.into_iter().zip(&mut self.members).try_for_each(|(id, member)| {
            let (id, key) = member.endpoint.export_part(id, range.clone(), access)?;
            ids.push(id);
            keys.push(key);
            Ok(())
        });
        match made.and_then(|()| self.compose(&keys)) {
            Ok(key) => Ok((self.regions.add_key(region, ids), key)),
            Err(error) => {
                self.take_back(ids);
                Err(error)
            }
        }
    }

    /// Opens a part with all members under the same number.
    pub(crate) fn export_number_of_all(
        &mut self,
        region: RegionId,
        range: &Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        let there = self.regions.of_members(region).ok_or(ExportError::UnknownRegion)?;
        let (there, mut ids) = (there.to_vec(), Vec::new());
        let made = there.into_iter().zip(&mut self.members).try_for_each(|(id, member)| {
            ids.push(member.endpoint.export_number(id, range.clone(), access, number)?);
            Ok(())
        });
        match made {
            Ok(()) => Ok(self.regions.add_key(region, ids)),
            Err(error) => {
                self.take_back(ids);
                Err(error)
            }
        }
    }

    /// Revokes the keys of the first members, which were not handed out.
    fn take_back(&mut self, keys: Vec<KeyId>) {
        for (member, key) in keys.into_iter().enumerate() {
            let token = self.outstanding.token(Pending::Ignored);
            self.hand(member, Operation::Revoke { token, key, patience: Operation::PATIENCE });
        }
    }

    /// Imports by the member by which the peer is reached.
    pub(crate) fn import_number_of(
        &mut self,
        peer: Peer,
        number: u64,
        len: u64,
    ) -> Result<Remote, ImportError> {
        let entry = self.peers.get(peer).ok_or(ImportError::UnknownPeer)?;
        if entry.asked {
            let owner = entry.address.clone();
            return Err(ImportError::NoRoute { owner, scheme: crate::SCHEME });
        }
        let route = entry.route;
        let member = &mut self.members[route.member].endpoint;
        let remote = member.import_number(route.peer, number, len)?;
        Ok(Remote { peer, ..remote })
    }

    /// Puts the members' keys together.
    fn compose(&self, keys: &[Key]) -> Result<Key, ExportError> {
        let mut whole = KeyParts {
            owner: self.address.clone(),
            incarnation: self.incarnation,
            len: 0,
            access: Access::NONE,
            routes: Vec::new(),
        };
        for (at, key) in keys.iter().enumerate() {
            let parts = key.parse().map_err(|_| ExportError::UnknownRegion)?;
            (whole.len, whole.access) = (parts.len, parts.access);
            let mut route = vec![at as u8];
            route.extend_from_slice(&parts.incarnation.get().to_le_bytes());
            route.push(parts.routes.len() as u8);
            for (kind, bytes) in parts.routes {
                route.extend_from_slice(&[kind, bytes.len() as u8]);
                route.extend_from_slice(&bytes);
            }
            whole.routes.push((Key::ROUTE_MEMBER, route.into()));
        }
        Key::compose(&whole)
    }

    pub(crate) fn import_key(&mut self, key: &Key) -> Result<Remote, ImportError> {
        let parts = key.parse()?;
        let ours = self.resolve(&parts.owner, Key::IMPORT_PATIENCE)?;
        self.import_parts(parts, ours, false)
    }

    /// The same for a key that this peer sent.
    pub(crate) fn import_key_of(&mut self, key: &Key, from: Peer) -> Result<Remote, ImportError> {
        let parts = key.parse()?;
        let own = self.peers.get(from).is_some_and(|entry| {
            entry.address == parts.owner && entry.incarnation == Some(parts.incarnation)
        });
        if own { self.import_parts(parts, from, true) } else { self.import_key(key) }
    }

    /// Imports the key of a peer. If the peer sent it itself, the member by which it came imports
    /// it as the peer's own.
    fn import_parts(
        &mut self,
        parts: KeyParts,
        ours: Peer,
        came: bool,
    ) -> Result<Remote, ImportError> {
        let no_route =
            || ImportError::NoRoute { owner: parts.owner.clone(), scheme: crate::SCHEME };
        let entry = self.peers.get(ours).ok_or_else(no_route)?;
        if entry.incarnation.is_some_and(|incarnation| incarnation != parts.incarnation) {
            return Err(ImportError::Stale(parts.owner));
        }
        let route = entry.route;
        let Ok(AutoAddress::Whole { members, .. }) = AutoAddress::parse(&parts.owner) else {
            return Err(no_route());
        };
        let endpoint = &mut self.members[route.member].endpoint;
        let scheme = endpoint.address().scheme();
        let at =
            members.iter().position(|member| member.scheme() == scheme).ok_or_else(no_route)?;
        let routes = parts.routes.iter().filter(|(kind, _)| *kind == Key::ROUTE_MEMBER);
        let mut routes = routes.filter_map(|(_, bytes)| bytes.split_first());
        let (_, part) = routes.find(|(nth, _)| usize::from(**nth) == at).ok_or_else(no_route)?;
        // The member knows the owner by the spelling by which it was resolved.
        let owner =
            endpoint.peer(route.peer).map_or_else(|| members[at].clone(), |info| info.address);
        let key = member_key(part, owner, &parts).ok_or(ImportError::Malformed("a bad route"))?;
        let remote = match came {
            true => endpoint.import_from(&key, route.peer),
            false => endpoint.import(&key),
        };
        let remote = remote.map_err(|error| match error {
            ImportError::Stale(_) => ImportError::Stale(parts.owner.clone()),
            other => other,
        })?;
        if remote.peer != route.peer {
            endpoint.release(remote);
            return Err(ImportError::Stale(parts.owner));
        }
        Ok(Remote { peer: ours, ..remote })
    }

    /// Has the members give back the handles that were released and that no operation names which
    /// they were not given.
    #[cold]
    pub(crate) fn release_unused(&mut self) {
        let Auto { peers, departed, outstanding, members, released, .. } = self;
        released.retain(|remote| {
            let entry = peers.get(remote.peer);
            let names = |operation: &Operation| operation.remote() == Some(*remote);
            let waits = entry.is_some_and(|entry| entry.waiting.iter().any(names));
            let route = entry.map(|entry| entry.route).or_else(|| departed.route(remote.peer));
            let Some(Route { member, peer }) = route else { return false };
            let there = Remote { peer, ..*remote };
            let used = waits || outstanding.waits_with(member, there);
            if !used {
                members[member].endpoint.release(there);
            }
            used
        });
    }
}

/// The member's key, put together again.
fn member_key(route: &[u8], owner: petasos_fabric::Address, parts: &KeyParts) -> Option<Key> {
    let (incarnation, rest) = route.split_first_chunk()?;
    let incarnation = Incarnation::new(u64::from_le_bytes(*incarnation))?;
    let (count, mut rest) = rest.split_first()?;
    let mut routes = Vec::new();
    for _ in 0..*count {
        let (&[kind, len], tail) = rest.split_first_chunk::<2>()?;
        let (bytes, tail) = tail.split_at_checked(usize::from(len))?;
        routes.push((kind, bytes.to_vec().into()));
        rest = tail;
    }
    let (len, access) = (parts.len, parts.access);
    let parts = KeyParts { owner, incarnation, len, access, routes };
    // A peer's own that follows the rules fits: it was part of a longer key.
    rest.is_empty().then(|| Key::compose(&parts).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_fabric::Address;

    fn routes(lens: &[u8]) -> Vec<u8> {
        let mut route = Incarnation::new(7).unwrap().get().to_le_bytes().to_vec();
        route.push(lens.len() as u8);
        for len in lens {
            route.extend_from_slice(&[Key::ROUTE_TWO_SIDED, *len]);
            route.extend(std::iter::repeat_n(1, usize::from(*len)));
        }
        route
    }

    #[test]
    fn a_member_key_that_would_be_too_long_is_none() {
        let owner = |len: usize| Address::parse(&format!("shm://{}", "x".repeat(len))).unwrap();
        let parts = KeyParts {
            owner: owner(10),
            incarnation: Incarnation::new(8).unwrap(),
            len: 1,
            access: Access::READ,
            routes: Vec::new(),
        };
        let key = member_key(&routes(&[255, 200]), owner(10), &parts).expect("it fits");
        assert_eq!(key.parse().unwrap().routes.len(), 2);
        assert!(member_key(&routes(&[255, 200]), owner(100), &parts).is_none());
        assert!(member_key(&routes(&[0; 8]), owner(10), &parts).is_some());
        assert!(member_key(&routes(&[0; 9]), owner(10), &parts).is_none(), "too many routes");
    }
}
