//! Memory of programs that nodes reach through the library: which, the peers that hold
//! grants, and how it is closed.

use petasos_channel::{
    device::{Fault, Registration, Ticket},
    immediate::{Name, Opened, named},
};
use petasos_fabric::{Access, Address, Peer, Time};
use std::collections::HashMap;

/// One region.
struct Exposure<O> {
    memory: Opened,
    /// What the library opened, from the first grant on.
    opened: Option<O>,
    /// Peers with a grant that they have not returned.
    holders: Vec<Peer>,
    /// The last holder that was lost and returned nothing, and until when a write of it may land.
    /// No library says when that is over: see [`Config::mourning`](crate::Config::mourning).
    lost_holder: Option<(Address, Time)>,
    /// It is being closed: no more grants are given.
    closing: bool,
    /// The operation that waits for that.
    ticket: Option<Ticket>,
}

impl<O> Exposure<O> {
    /// Whether it may be closed: no peer holds a grant, and nothing may land any more.
    fn is_free(&self, now: Time) -> bool {
        self.holders.is_empty() && self.lost_holder.as_ref().is_none_or(|(_, until)| *until <= now)
    }

    /// A peer returns its grant. False if it has none.
    fn release(&mut self, peer: Peer) -> bool {
        let at = self.holders.iter().position(|holder| *holder == peer);
        at.map(|at| self.holders.swap_remove(at)).is_some()
    }
}

/// What was closed.
pub(super) struct Closed<O> {
    pub(super) memory: Opened,
    /// What the library is to close, if it had opened anything.
    pub(super) opened: Option<O>,
    /// Whether a peer was lost that had not returned its grant.
    pub(super) had_lost_holder: bool,
    pub(super) ticket: Option<Ticket>,
}

/// The peer that still reaches memory.
pub(super) enum Holder {
    Peer(Peer),
    /// One that was here, and is lost.
    Lost(Address),
}

/// All of them.
pub(super) struct Exposures<O> {
    list: HashMap<Registration, Exposure<O>>,
    /// Those that are being closed.
    closing: Vec<Registration>,
}

impl<O> Default for Exposures<O> {
    fn default() -> Exposures<O> {
        Exposures { list: HashMap::new(), closing: Vec::new() }
    }
}

impl<O> Exposures<O> {
    pub(super) fn add(&mut self, registration: Registration, memory: Opened) {
        let (opened, holders, lost_holder) = (None, Vec::new(), None);
        let exposure =
            Exposure { memory, opened, holders, lost_holder, closing: false, ticket: None };
        self.list.insert(registration, exposure);
    }

    pub(super) fn contains(&self, registration: Registration) -> bool {
        self.list.contains_key(&registration)
    }

    /// The region of which a peer has the key, unless it is being closed.
    fn shown(&mut self, name: Name) -> Option<&mut Exposure<O>> {
        let (registration, secret) = named(name);
        let known = self.list.get_mut(&registration);
        known.filter(|exposure| exposure.memory.secret == secret && !exposure.closing)
    }

    /// The same, and the secret that was shown.
    #[inline]
    pub(super) fn named(&self, name: Name) -> Option<(&Opened, u64)> {
        let (registration, secret) = named(name);
        let exposure = self.list.get(&registration).filter(|exposure| !exposure.closing)?;
        Some((&exposure.memory, secret))
    }

    /// Gives a peer that has the key a grant of a region, which `open` opens if it is the first.
    /// Returns what was opened, and for what. `None` if there is no such region, or it cannot be
    /// opened.
    pub(super) fn grant(
        &mut self,
        name: Name,
        peer: Peer,
        open: impl FnOnce(&Opened) -> Option<O>,
    ) -> Option<(&O, Access)> {
        let Exposure { memory, opened, holders, .. } = self.shown(name)?;
        if opened.is_none() {
            *opened = Some(open(memory)?);
        }
        if !holders.contains(&peer) {
            holders.push(peer);
        }
        Some((opened.as_ref()?, memory.access))
    }

    /// Begins to close a region. Returns the peers that are to return their grants, and its secret.
    pub(super) fn close(
        &mut self,
        registration: Registration,
        ticket: Option<Ticket>,
    ) -> Option<(Vec<Peer>, u64)> {
        let exposure = self.list.get_mut(&registration)?;
        if std::mem::replace(&mut exposure.closing, true) {
            return None;
        }
        exposure.ticket = ticket;
        self.closing.push(registration);
        Some((exposure.holders.clone(), exposure.memory.secret))
    }

    /// Whether any is being closed.
    #[inline]
    pub(super) fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// A peer returns its grant of a region that is being closed.
    pub(super) fn release(&mut self, name: Name, peer: Peer) -> Result<(), Fault> {
        let (registration, _) = named(name);
        let exposure = self.list.get_mut(&registration).filter(|exposure| exposure.closing);
        match exposure.is_some_and(|exposure| exposure.release(peer)) {
            true => Ok(()),
            false => Err(Fault::Stale),
        }
    }

    /// A peer has returned all its grants.
    pub(super) fn release_all(&mut self, peer: Peer) {
        for exposure in self.list.values_mut() {
            exposure.release(peer);
        }
    }

    /// A peer, which was at this address, is lost with its grants: a write of it may land until
    /// this time.
    pub(super) fn lose(&mut self, peer: Peer, address: &Address, until: Time) {
        for exposure in self.list.values_mut() {
            if exposure.release(peer) {
                exposure.lost_holder = Some((address.clone(), until));
            }
        }
    }

    /// Takes out what is to be closed and may be closed now.
    pub(super) fn take_free(&mut self, now: Time) -> Vec<Closed<O>> {
        let Exposures { list, closing } = self;
        let mut free = Vec::new();
        closing.retain(|registration| {
            let Some(exposure) = list.remove(registration) else { return false };
            if !exposure.is_free(now) {
                list.insert(*registration, exposure);
                return true;
            }
            let had_lost_holder = exposure.lost_holder.is_some();
            let Exposure { memory, opened, ticket, .. } = exposure;
            free.push(Closed { memory, opened, had_lost_holder, ticket });
            false
        });
        free
    }

    /// The peer that still reaches the memory that is being closed under this ticket.
    pub(super) fn reached_by(&self, ticket: Ticket) -> Option<Holder> {
        let mut closing = self.closing.iter().filter_map(|closing| self.list.get(closing));
        let exposure = closing.find(|exposure| exposure.ticket == Some(ticket))?;
        match (exposure.holders.first(), &exposure.lost_holder) {
            (Some(peer), _) => Some(Holder::Peer(*peer)),
            (None, Some((address, _))) => Some(Holder::Lost(address.clone())),
            (None, None) => None,
        }
    }

    /// When one may be closed, if no peer returns anything before.
    pub(super) fn until(&self) -> Time {
        let closing = self.closing.iter().filter_map(|closing| self.list.get(closing));
        let waits = closing.filter(|exposure| exposure.holders.is_empty());
        let times = waits.map(|exposure| exposure.lost_holder.as_ref().map_or(Time::ZERO, |l| l.1));
        times.min().unwrap_or(Time::NEVER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_channel::immediate::name;
    use petasos_fabric::Region;
    use std::rc::Rc;

    const REGISTRATION: Registration = Registration(3);
    const PEERS: [Peer; 2] = [Peer { index: 0, generation: 1 }, Peer { index: 1, generation: 1 }];

    fn exposed() -> (Exposures<Rc<()>>, Rc<()>, Name) {
        let (mut list, access) = (Exposures::default(), Access::READ);
        let memory = Opened { memory: Region::zeroed(10).whole(), access, tag: 0, secret: 5 };
        list.add(REGISTRATION, memory);
        (list, Rc::default(), name(REGISTRATION, 5))
    }

    /// Nothing is opened before a peer shows the key; what is being closed is granted to no peer,
    /// and closed when all have returned their grants.
    #[test]
    fn grants_are_given_and_returned() {
        let (mut list, opened, key) = exposed();
        let open = |_: &Opened| Some(opened.clone());
        assert!(list.grant(name(REGISTRATION, 6), PEERS[0], open).is_none());
        assert_eq!(Rc::strong_count(&opened), 1);
        assert!(list.grant(key, PEERS[0], |_| None).is_none());
        for peer in [PEERS[0], PEERS[0], PEERS[1]] {
            assert!(list.grant(key, peer, open).is_some());
        }
        assert_eq!(Rc::strong_count(&opened), 2);
        assert_eq!(list.release(key, PEERS[0]), Err(Fault::Stale), "it was not revoked");
        let (holders, secret) = list.close(REGISTRATION, Some(Ticket(9))).unwrap();
        assert_eq!((holders, secret), (PEERS.to_vec(), 5));
        assert!(list.close(REGISTRATION, None).is_none());
        assert!(list.grant(key, PEERS[0], open).is_none());
        for peer in PEERS {
            assert!(list.take_free(Time::NEVER).is_empty());
            assert!(list.reached_by(Ticket(9)).is_some());
            assert_eq!(list.release(key, peer), Ok(()));
            assert_eq!(list.release(key, peer), Err(Fault::Stale));
        }
        let closed = list.take_free(Time::ZERO);
        assert!(matches!(&closed[..], [closed] if closed.ticket == Some(Ticket(9))));
        assert!(!closed[0].had_lost_holder && !list.is_closing());
    }

    #[test]
    fn what_a_lost_peer_had_stays_open_for_a_while() {
        let (mut list, opened, key) = exposed();
        list.grant(key, PEERS[0], |_| Some(opened.clone())).unwrap();
        let address = Address::parse("mock://a").unwrap();
        list.lose(PEERS[0], &address, Time(7));
        assert_eq!(list.until(), Time::NEVER);
        list.close(REGISTRATION, Some(Ticket(9))).unwrap();
        assert!(list.take_free(Time(6)).is_empty() && list.until() == Time(7));
        assert!(matches!(list.reached_by(Ticket(9)), Some(Holder::Lost(at)) if at == address));
        assert!(list.take_free(Time(7))[0].had_lost_holder);
    }
}
