//! Choosing routes, exchanging handshake messages, and losing peers.

use crate::{
    Auto, AutoAddress, Node, SCHEME, Scope,
    handshake::{Handshake, Wish},
    peers::Route,
};
use petasos_fabric::{
    Address, Endpoint, Event, Incarnation, InjectError, LostReason, OpError, OpErrorKind, Patience,
    Peer, PeerState, ResolveError, Time,
};
use std::time::Duration;

/// How long the handshake message of a peer may take.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// For how long a peer that has sent its whole address is tried by another route.
const PATIENCE: Duration = Duration::from_secs(10);

impl Auto {
    pub(crate) fn resolve_by_a_route(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        let resolve = |endpoint: &mut Box<dyn Endpoint>, at: &Address| match running {
            true => endpoint.resolve_running(at, patience),
            false => endpoint.resolve(at, patience),
        };
        if address.scheme() != SCHEME {
            return Err(ResolveError::WrongScheme { address: address.clone(), scheme: SCHEME });
        }
        if let Some(peer) = self.peers.find(address) {
            if let Some(entry) = self.peers.get_mut(peer) {
                entry.resolved = true;
                let Route { member, peer: there } = entry.route;
                let endpoint = &mut self.members[member].endpoint;
                // Extends the patience; the handle is known.
                if let Some(info) = endpoint.peer(there) {
                    resolve(endpoint, &info.address)?;
                }
            }
            return Ok(peer);
        }
        let limit = self.capabilities.limits.max_peers;
        if self.peers.len() >= limit {
            return Err(ResolveError::TooManyPeers { limit });
        }
        let malformed = |reason: &str| ResolveError::Malformed {
            address: address.clone(),
            reason: reason.to_owned(),
        };
        let (member, at, wish) = match AutoAddress::parse(address).map_err(malformed)? {
            AutoAddress::Whole { node, members } => {
                let chosen =
                    self.choose(address, node, &members).ok_or_else(|| self.no_route(address))?;
                (chosen.0, chosen.1, Wish::Stay)
            }
            AutoAddress::Short(rest) => {
                let member = self.asker();
                let scheme = self.members[member].endpoint.address().scheme();
                let at = Address::parse(&format!("{scheme}://{rest}"))?;
                (member, at, Wish::Ask)
            }
        };
        let endpoint = &mut self.members[member].endpoint;
        let there = resolve(endpoint, &at).map_err(|error| match error {
            ResolveError::Malformed { reason, .. } => malformed(&reason),
            other => other,
        })?;
        let route = Route { member, peer: there };
        if let Some(known) = self.peers.link_or_new(route).ours {
            // The peer is known by another spelling of its address.
            if let Some(entry) = self.peers.get_mut(known) {
                entry.resolved = true;
            }
            return Ok(known);
        }
        let peer = self.peers.add(address, route, true);
        if let Some(entry) = self.peers.get_mut(peer) {
            entry.asked = wish == Wish::Ask;
        }
        self.peers.link_or_new(route).ours = Some(peer);
        self.greet(route, wish);
        Ok(peer)
    }

    /// The member and the address by which a peer is reached. Both sides come to the same.
    fn choose(
        &self,
        address: &Address,
        node: Node,
        theirs: &[Address],
    ) -> Option<(usize, Address)> {
        let of_member = |member: usize| {
            let scheme = self.members[member].endpoint.address().scheme();
            theirs.iter().position(|member| member.scheme() == scheme)
        };
        let members = 0..self.members.len();
        let common = members.filter_map(|member| Some((member, of_member(member)?)));
        let (near, far): (Vec<_>, Vec<_>) =
            common.partition(|(member, _)| self.members[*member].scope == Scope::Node);
        let near = near.into_iter().filter(|_| node == self.node);
        let ours_counts = self.address <= *address;
        let rank = |(member, at): &(usize, usize)| if ours_counts { *member } else { *at };
        let best = near.min_by_key(rank).or_else(|| far.into_iter().min_by_key(rank))?;
        Some((best.0, theirs[best.1].clone()))
    }

    fn no_route(&self, address: &Address) -> ResolveError {
        let reason = format!("there is no route to it from {}", self.address);
        ResolveError::Malformed { address: address.clone(), reason }
    }

    /// Sends our handshake message by a route, unless it was sent. Once both were, the peer may be
    /// sent to.
    fn greet(&mut self, route: Route, wish: Wish) {
        let link = self.peers.link_or_new(route);
        if link.told != Some(Wish::Stay) && link.told != Some(wish) {
            self.tell(route, wish);
        }
        let link = self.peers.link_or_new(route);
        if link.is_introduced()
            && link.told == Some(Wish::Stay)
            && let Some(ours) = link.ours
        {
            self.open_route(ours);
        }
    }

    /// Sends our handshake message, now or when there is room.
    fn tell(&mut self, route: Route, wish: Wish) {
        let (incarnation, address) = (self.incarnation, self.address.clone());
        let handshake = Handshake { wish, incarnation, address }.encode();
        self.pace.give(route.member);
        self.pace.add_chores();
        let sent = self.members[route.member].endpoint.inject(route.peer, &[&handshake]);
        let link = self.peers.link_or_new(route);
        match sent {
            Ok(()) => {
                (link.told, link.owed) = (Some(wish), None);
                self.greetings.sent(route.member);
            }
            Err(InjectError::Full) => {
                link.owed = Some(wish);
                self.greetings.add(route);
            }
            // The member will report the peer as lost.
            Err(_) => {}
        }
    }

    /// Both sides have identified themselves: operations take the route.
    fn open_route(&mut self, peer: Peer) {
        let Some(entry) = self.peers.open(peer) else { return };
        let waiting = std::mem::take(&mut entry.waiting);
        self.outstanding.end_waiting(waiting.len());
        for operation in waiting {
            self.accept(operation);
        }
        self.flush();
    }

    /// Sends handshake messages that wait, and cuts off peers that do not send theirs. True if one
    /// was sent.
    pub(crate) fn serve_greetings(&mut self) -> bool {
        let mut worked = false;
        let now = self.now;
        for route in self.greetings.take_routes() {
            let Some(link) = self.peers.link(route) else { continue };
            if let Some(wish) = link.owed.take() {
                worked = true;
                self.greet(route, wish);
            }
            let Some(link) = self.peers.link(route).filter(|link| !link.is_introduced()) else {
                continue;
            };
            match link.patience.as_mut().map(|patience| patience.is_over(now)) {
                Some(true) => self.cut(route, LostReason::Silent(INTRODUCTION)),
                Some(false) => self.greetings.add(route),
                None => {}
            }
        }
        worked
    }

    /// When the first handshake message is waited for no longer.
    pub(crate) fn until(&mut self) -> Time {
        let Auto { greetings, peers, .. } = self;
        let ends = greetings
            .routes()
            .iter()
            .filter_map(|route| Some(peers.link(*route)?.patience.as_ref()?.end()));
        ends.min().unwrap_or(Time::NEVER)
    }

    /// A member has reached a peer, or a peer has connected to it.
    pub(crate) fn reached(&mut self, route: Route) {
        let link = self.peers.link_or_new(route);
        if !link.is_introduced() {
            link.patience = Some(Patience::new(INTRODUCTION));
            self.greetings.add(route);
            self.pace.add_chores();
        }
    }

    /// The first message of a peer.
    pub(crate) fn handshake(&mut self, route: Route, bytes: &[u8]) {
        let handshake = match Handshake::decode(bytes) {
            Ok(handshake) => handshake,
            Err(why) => return self.cut(route, LostReason::Protocol(why.to_owned())),
        };
        let Some(link) = self.peers.link(route) else { return };
        if handshake.wish == Wish::Ask {
            if link.told != Some(Wish::Stay) {
                self.tell(route, Wish::Stay);
            }
            return;
        }
        match link.ours {
            Some(ours) => {
                let Some(entry) = self.peers.get(ours) else { return };
                if entry.asked {
                    self.answered(ours, route, &handshake);
                } else if entry.address == handshake.address {
                    self.introduce(ours, route, handshake.incarnation);
                    self.greet(route, Wish::Stay);
                } else {
                    let why =
                        format!("it is not the peer that was asked for, but {}", handshake.address);
                    self.cut(route, LostReason::Protocol(why));
                }
            }
            None => self.came(route, &handshake),
        }
    }

    /// A peer has connected to us.
    fn came(&mut self, route: Route, handshake: &Handshake) {
        let met = self.members[route.member].endpoint.peer(route.peer).map(|info| info.address);
        let there = |members: &[Address]| met.is_some_and(|met| members.contains(&met));
        let whole = AutoAddress::parse(&handshake.address);
        if !matches!(&whole, Ok(AutoAddress::Whole { members, .. }) if there(members)) {
            let why = "its handshake message has an address at which it is not".to_owned();
            return self.cut(route, LostReason::Protocol(why));
        }
        if let Some(known) = self.peers.find(&handshake.address)
            && let Some(entry) = self.peers.get(known)
            && entry.incarnation.is_some_and(|incarnation| incarnation != handshake.incarnation)
        {
            // One of the two lies, or has not ended yet. On a node the kernel says which process
            // has a name. A member for a network has verified the address, and reports by itself
            // that the earlier one is lost.
            if self.members[route.member].scope != Scope::Node {
                let why = "a living peer has the address that it claims".to_owned();
                return self.cut(route, LostReason::Refused(why));
            }
            let earlier = entry.route;
            self.cut(earlier, LostReason::Restarted);
        }
        let peer = self.peers.add(&handshake.address, route, false);
        self.peers.link_or_new(route).ours = Some(peer);
        self.introduce(peer, route, handshake.incarnation);
        self.greet(route, Wish::Stay);
    }

    /// A peer that was asked has sent its whole address.
    fn answered(&mut self, ours: Peer, route: Route, handshake: &Handshake) {
        let Ok(AutoAddress::Whole { node, members }) = AutoAddress::parse(&handshake.address)
        else {
            return;
        };
        let known = self.peers.find(&handshake.address).is_some();
        let chosen = self.choose(&handshake.address, node, &members).filter(|_| !known);
        self.peers.name(&handshake.address, ours);
        let Some(entry) = self.peers.get_mut(ours) else { return };
        (entry.address, entry.asked) = (handshake.address.clone(), false);
        self.find_route_of(ours, route, handshake, chosen);
        if !self.expected.is_flowing() {
            self.release_held();
        }
    }

    /// Takes the chosen route to a peer that has been asked, if it is another one.
    fn find_route_of(
        &mut self,
        ours: Peer,
        route: Route,
        handshake: &Handshake,
        chosen: Option<(usize, Address)>,
    ) {
        let other = chosen.filter(|(member, _)| *member != route.member);
        let Some((member, at)) = other else {
            // The route stays.
            self.introduce(ours, route, handshake.incarnation);
            return self.greet(route, Wish::Stay);
        };
        let there = match self.members[member].endpoint.resolve(&at, PATIENCE) {
            Ok(peer) => Route { member, peer },
            Err(error) => return self.cut(route, LostReason::System(error.to_string())),
        };
        if self.peers.link_or_new(there).ours.is_some() {
            self.introduce(ours, route, handshake.incarnation);
            return self.greet(route, Wish::Stay);
        }
        self.peers.link_or_new(there).ours = Some(ours);
        if let Some(entry) = self.peers.get_mut(ours) {
            entry.route = there;
            if let Some(quota) = entry.quota {
                // The handle is good, and a member without quotas has none to set.
                let _ = self.members[there.member].endpoint.set_quota(there.peer, quota);
            }
        }
        self.peers.unlink(route);
        self.members[route.member].endpoint.forget(route.peer);
        self.greet(there, Wish::Stay);
    }

    /// A peer's handshake message has arrived by its route.
    fn introduce(&mut self, peer: Peer, route: Route, incarnation: Incarnation) {
        self.peers.introduce(route);
        let Some(entry) = self.peers.get_mut(peer) else { return };
        (entry.state, entry.incarnation) = (PeerState::Up, Some(incarnation));
        self.report(Event::PeerUp { peer, incarnation });
    }

    /// A member has lost a peer.
    pub(crate) fn left(&mut self, route: Route, reason: LostReason) {
        if let Some(ours) = self.peers.lose(route) {
            self.lose(ours, reason);
        }
    }

    /// Has a member forget a peer.
    #[cold]
    pub(crate) fn cut(&mut self, route: Route, reason: LostReason) {
        let ours = self.peers.link(route).and_then(|link| link.ours);
        if let Some((ours, entry)) = ours.and_then(|ours| Some((ours, self.peers.get(ours)?))) {
            self.depart(route, ours, entry.address.clone());
        }
        self.members[route.member].endpoint.forget(route.peer);
        self.left(route, reason);
        // Nothing that came of it is there any more.
        self.peers.unlink(route);
    }

    /// A peer is lost.
    fn lose(&mut self, peer: Peer, reason: LostReason) {
        let Some(entry) = self.peers.set_lost(peer, reason.clone()) else { return };
        let (waiting, address) = (std::mem::take(&mut entry.waiting), entry.address.clone());
        let resolved = entry.resolved;
        self.peers.unname(peer);
        self.fail_all(waiting, &OpErrorKind::PeerLost(reason.clone()), &address);
        self.report(Event::PeerLost { peer, reason });
        if !self.expected.is_flowing() {
            self.release_held();
        }
        if !resolved && let Some(oldest) = self.peers.remember_lost(peer) {
            self.forget_peer(oldest);
        }
    }

    /// Forgets a peer, without an event.
    pub(crate) fn forget_peer(&mut self, peer: Peer) {
        let Some(entry) = self.peers.remove(peer) else { return };
        let kind = OpErrorKind::PeerLost(LostReason::Forgotten);
        self.fail_all(entry.waiting, &kind, &entry.address);
        if !self.expected.is_flowing() {
            self.fail_held(peer, &OpError::with_peer(kind.clone(), &entry.address));
            self.release_held();
        }
        self.drop_backlog(entry.route, &kind, &entry.address);
        self.depart(entry.route, peer, entry.address);
        self.peers.unlink(entry.route);
        self.members[entry.route.member].endpoint.forget(entry.route.peer);
    }

    /// A member is to forget a peer: what it says of it later is about a peer of this name.
    fn depart(&mut self, route: Route, ours: Peer, address: Address) {
        let there = self.members[route.member].endpoint.peer(route.peer).map(|info| info.address);
        self.departed.add(route, there, ours, address);
    }
}
