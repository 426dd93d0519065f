//! Choosing ways, showing cards, and losing peers.

use crate::{
    Auto, Node, Places, Reach, SCHEME,
    handshake::{Handshake, Wish},
    peers::Way,
};
use petasos_fabric::{
    Address, Endpoint, Event, Incarnation, InjectError, LostReason, OpErrorKind, Patience, Peer,
    PeerState, ResolveError, Time,
};
use std::time::Duration;

/// How long the card of a peer may take.
const INTRODUCTION: Duration = Duration::from_secs(5);
/// Lost peers that came to us, whose handles are still known.
const KEPT: usize = 64;
/// For how long somebody who was asked and answered is tried by another way.
const PATIENCE: Duration = Duration::from_secs(10);

impl Auto {
    pub(crate) fn resolve_by_a_way(
        &mut self,
        address: &Address,
        patience: Duration,
        running: bool,
    ) -> Result<Peer, ResolveError> {
        let resolve = |endpoint: &mut Box<dyn Endpoint>, place: &Address| match running {
            true => endpoint.resolve_running(place, patience),
            false => endpoint.resolve(place, patience),
        };
        if address.scheme() != SCHEME {
            return Err(ResolveError::WrongScheme { address: address.clone(), scheme: SCHEME });
        }
        if let Some(peer) = self.peers.find(address) {
            if let Some(entry) = self.peers.get_mut(peer) {
                entry.asked = true;
                let Way { member, peer: there } = entry.way;
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
        let (member, place, wish) = match Places::parse(address).map_err(malformed)? {
            Places::Known { node, ways } => {
                let chosen =
                    self.choose(address, node, &ways).ok_or_else(|| self.no_way(address))?;
                (chosen.0, chosen.1, Wish::Stay)
            }
            Places::Asked(rest) => {
                let member = self.asker();
                let scheme = self.members[member].endpoint.address().scheme();
                let place = Address::parse(&format!("{scheme}://{rest}"))?;
                (member, place, Wish::Ask)
            }
        };
        let endpoint = &mut self.members[member].endpoint;
        let there = resolve(endpoint, &place).map_err(|error| match error {
            ResolveError::Malformed { reason, .. } => malformed(&reason),
            other => other,
        })?;
        let way = Way { member, peer: there };
        if let Some(known) = self.peers.link_or_new(way).ours {
            // By another spelling of its address.
            if let Some(entry) = self.peers.get_mut(known) {
                entry.asked = true;
            }
            return Ok(known);
        }
        let peer = self.peers.add(address, way, true);
        self.peers.link_or_new(way).ours = Some(peer);
        self.greet(way, wish);
        Ok(peer)
    }

    /// The member and the place by which somebody is reached. Both sides come to the same.
    fn choose(&self, address: &Address, node: Node, ways: &[Address]) -> Option<(usize, Address)> {
        let of_member = |member: usize| {
            let scheme = self.members[member].endpoint.address().scheme();
            ways.iter().position(|way| way.scheme() == scheme)
        };
        let members = 0..self.members.len();
        let common = members.filter_map(|member| Some((member, of_member(member)?)));
        let (near, far): (Vec<_>, Vec<_>) =
            common.partition(|(member, _)| self.members[*member].reach == Reach::Node);
        let near = near.into_iter().filter(|_| node == self.node);
        let ours_counts = self.address <= *address;
        let rank = |(member, at): &(usize, usize)| if ours_counts { *member } else { *at };
        let best = near.min_by_key(rank).or_else(|| far.into_iter().min_by_key(rank))?;
        Some((best.0, ways[best.1].clone()))
    }

    fn no_way(&self, address: &Address) -> ResolveError {
        let reason = format!("there is no way to it from {}", self.address);
        ResolveError::Malformed { address: address.clone(), reason }
    }

    /// Shows our card by a way, unless it has been shown; once both have been, what goes to the peer may go.
    fn greet(&mut self, way: Way, wish: Wish) {
        let link = self.peers.link_or_new(way);
        if link.told != Some(Wish::Stay) && link.told != Some(wish) {
            self.tell(way, wish);
        }
        let link = self.peers.link_or_new(way);
        if link.introduced
            && link.told == Some(Wish::Stay)
            && let Some(ours) = link.ours
        {
            self.let_go_to(ours);
        }
    }

    /// Sends our card, now or when there is room.
    fn tell(&mut self, way: Way, wish: Wish) {
        let (incarnation, address) = (self.incarnation, self.address.clone());
        let card = Handshake { wish, incarnation, address }.encode();
        self.give(way.member);
        let sent = self.members[way.member].endpoint.inject(way.peer, &[&card]);
        let link = self.peers.link_or_new(way);
        match sent {
            Ok(()) => {
                (link.told, link.owed) = (Some(wish), None);
                self.carding.push(way.member);
            }
            Err(InjectError::Full) => {
                link.owed = Some(wish);
                self.greetings.push(way);
            }
            // The member will say that it is lost.
            Err(_) => {}
        }
    }

    /// Both know who the other is.
    fn let_go_to(&mut self, peer: Peer) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        if matches!(entry.state, PeerState::Lost(_)) {
            return;
        }
        entry.open = true;
        let waiting = std::mem::take(&mut entry.waiting);
        self.waiting -= waiting.len();
        for operation in waiting {
            self.accept(operation);
        }
        self.flush();
    }

    /// Sends cards that are owed, and cuts off who does not show his. True if a card was sent.
    pub(crate) fn look_after_greetings(&mut self) -> bool {
        let mut worked = false;
        let now = self.now;
        for way in std::mem::take(&mut self.greetings) {
            let Some(link) = self.peers.link(way) else { continue };
            if let Some(wish) = link.owed.take() {
                worked = true;
                self.greet(way, wish);
            }
            let Some(link) = self.peers.link(way).filter(|link| !link.introduced) else { continue };
            match link.patience.as_mut().map(|patience| patience.is_over(now)) {
                Some(true) => self.cut(way, LostReason::Silent(INTRODUCTION)),
                Some(false) => self.greetings.push(way),
                None => {}
            }
        }
        worked
    }

    /// When to look after greetings, if nothing happens before.
    pub(crate) fn until(&mut self) -> Time {
        let Auto { greetings, peers, .. } = self;
        let ends =
            greetings.iter().filter_map(|way| Some(peers.link(*way)?.patience.as_ref()?.end()));
        ends.min().unwrap_or(Time::NEVER)
    }

    /// A member has reached somebody, or somebody came to it.
    pub(crate) fn reached(&mut self, way: Way) {
        let link = self.peers.link_or_new(way);
        if !link.introduced {
            link.patience = Some(Patience::new(INTRODUCTION));
            self.greetings.push(way);
        }
    }

    /// The first message of somebody.
    pub(crate) fn card(&mut self, way: Way, bytes: &[u8]) {
        let card = match Handshake::decode(bytes) {
            Ok(card) => card,
            Err(why) => return self.cut(way, LostReason::Protocol(why.to_owned())),
        };
        let Some(link) = self.peers.link(way) else { return };
        if card.wish == Wish::Ask {
            if link.told != Some(Wish::Stay) {
                self.tell(way, Wish::Stay);
            }
            return;
        }
        match link.ours {
            Some(ours) => {
                let Some(entry) = self.peers.get(ours) else { return };
                if matches!(Places::parse(&entry.address), Ok(Places::Asked(_))) {
                    self.answered(ours, way, &card);
                } else if entry.address == card.address {
                    self.introduce(ours, way, card.incarnation);
                    self.greet(way, Wish::Stay);
                } else {
                    let why =
                        format!("it is not the peer that was asked for, but {}", card.address);
                    self.cut(way, LostReason::Protocol(why));
                }
            }
            None => self.came(way, &card),
        }
    }

    /// Somebody came to us.
    fn came(&mut self, way: Way, card: &Handshake) {
        let met = self.members[way.member].endpoint.peer(way.peer).map(|info| info.address);
        let there = |ways: &[Address]| met.is_some_and(|met| ways.contains(&met));
        if !matches!(Places::parse(&card.address), Ok(Places::Known { ways, .. }) if there(&ways)) {
            let why = "its card names places where it is not".to_owned();
            return self.cut(way, LostReason::Protocol(why));
        }
        if let Some(known) = self.peers.find(&card.address)
            && let Some(entry) = self.peers.get(known)
            && entry.incarnation.is_some_and(|incarnation| incarnation != card.incarnation)
        {
            // One of the two lies, or did not end yet. On a node the kernel says who has a name. A network's member has
            // looked into what it was told, and says by itself that the earlier one is lost.
            if self.members[way.member].reach != Reach::Node {
                let why = "a living peer has the address that it claims".to_owned();
                return self.cut(way, LostReason::Refused(why));
            }
            let earlier = entry.way;
            self.cut(earlier, LostReason::Restarted);
        }
        let peer = self.peers.add(&card.address, way, false);
        self.peers.link_or_new(way).ours = Some(peer);
        self.introduce(peer, way, card.incarnation);
        self.greet(way, Wish::Stay);
    }

    /// Somebody who was asked has said where he is.
    fn answered(&mut self, ours: Peer, way: Way, card: &Handshake) {
        let Ok(Places::Known { node, ways }) = Places::parse(&card.address) else { return };
        let known = self.peers.find(&card.address).is_some();
        let chosen = self.choose(&card.address, node, &ways).filter(|_| !known);
        self.peers.name(&card.address, ours);
        let Some(entry) = self.peers.get_mut(ours) else { return };
        entry.address = card.address.clone();
        let other = chosen.filter(|(member, _)| *member != way.member);
        let Some((member, place)) = other else {
            // By this way it is.
            self.introduce(ours, way, card.incarnation);
            return self.greet(way, Wish::Stay);
        };
        let there = match self.members[member].endpoint.resolve(&place, PATIENCE) {
            Ok(peer) => Way { member, peer },
            Err(error) => return self.cut(way, LostReason::System(error.to_string())),
        };
        if self.peers.link_or_new(there).ours.is_some() {
            self.introduce(ours, way, card.incarnation);
            return self.greet(way, Wish::Stay);
        }
        self.peers.link_or_new(there).ours = Some(ours);
        if let Some(entry) = self.peers.get_mut(ours) {
            entry.way = there;
        }
        self.peers.unlink(way);
        self.members[way.member].endpoint.forget(way.peer);
        self.greet(there, Wish::Stay);
    }

    /// A peer's card came by its way.
    fn introduce(&mut self, peer: Peer, way: Way, incarnation: Incarnation) {
        let link = self.peers.link_or_new(way);
        (link.introduced, link.patience) = (true, None);
        let Some(entry) = self.peers.get_mut(peer) else { return };
        (entry.state, entry.incarnation) = (PeerState::Up, Some(incarnation));
        self.early.push(Event::PeerUp { peer, incarnation });
    }

    /// A member has lost somebody.
    pub(crate) fn left(&mut self, way: Way, reason: LostReason) {
        if let Some(ours) = self.peers.unlink(way).and_then(|link| link.ours) {
            self.lose(ours, reason);
        }
    }

    /// Has a member let somebody go.
    #[cold]
    pub(crate) fn cut(&mut self, way: Way, reason: LostReason) {
        self.members[way.member].endpoint.forget(way.peer);
        self.left(way, reason);
    }

    /// A peer is gone.
    fn lose(&mut self, peer: Peer, reason: LostReason) {
        let Some(entry) = self.peers.get_mut(peer) else { return };
        entry.state = PeerState::Lost(reason.clone());
        let (waiting, address) = (std::mem::take(&mut entry.waiting), entry.address.clone());
        let asked = entry.asked;
        self.peers.unname(peer);
        self.fail_all(waiting, &OpErrorKind::PeerLost(reason.clone()), &address);
        self.early.push(Event::PeerLost { peer, reason });
        if !asked {
            self.gone.push_back(peer);
            if self.gone.len() > KEPT
                && let Some(oldest) = self.gone.pop_front()
            {
                self.forget_peer(oldest);
            }
        }
    }

    /// Lets a peer go: without news of it.
    pub(crate) fn forget_peer(&mut self, peer: Peer) {
        let Some(entry) = self.peers.remove(peer) else { return };
        let kind = OpErrorKind::PeerLost(LostReason::Forgotten);
        self.fail_all(entry.waiting, &kind, &entry.address);
        self.drop_backlog(peer, &kind, &entry.address);
        self.peers.unlink(entry.way);
        self.members[entry.way.member].endpoint.forget(entry.way.peer);
    }
}
