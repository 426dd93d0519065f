//! The end of regions and of keys: packets that still have their memory, and for how long they may.

use super::{
    Engine, Outgoing, Placement,
    connection::{Connection, InFlight},
    header::Status,
    incoming::Landing,
    registry::{Exposed, Regions},
};
use crate::{OpError, OpErrorKind, Peer, RegionId, Time};

impl Connection {
    /// Whether a packet that comes in, or one that the transport has, is with this memory.
    fn reaches(&self, at: Exposed, regions: &Regions) -> bool {
        let lands = match &self.incoming.landing {
            Some(Landing::Put { at: Some(held), .. }) => regions.is_within(*held, at),
            _ => false,
        };
        let flies = |flight: &InFlight| match flight {
            InFlight::Memory(held) => regions.is_within(*held, at),
            _ => false,
        };
        lands || self.in_flight.iter().any(flies)
    }
}

impl Engine {
    /// No access to a region begins from now on; what has begun goes on. False if it is not open.
    /// For transports that have something of their own to wait for before they submit the operation
    /// that deregisters it, which is then taken as for an open region.
    pub fn shut(&mut self, region: RegionId) -> bool {
        self.regions.shut(region)
    }

    /// Whether an operation waits for the end of a region or of a key.
    #[inline]
    #[must_use]
    pub fn is_closing(&self) -> bool {
        self.regions.are_closing()
    }

    /// Whether there may be something to do that seldom is: a close waits ([`Engine::is_closing`]),
    /// or operations go on that waited for a fence ([`Engine::has_released`]).
    #[inline]
    #[must_use]
    pub fn has_chores(&self) -> bool {
        self.regions.closings() | self.ledger.seldom.len() != 0
    }

    /// When [`Engine::keep_time`] is to be called at the latest.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.regions.deadline()
    }

    /// Ends operations that have waited for the end of a region or of a key for as long as they
    /// wanted to: with `StillReached`, and the peer that is still within. The region is kept.
    pub fn keep_time(&mut self, now: Time) {
        while let Some((at, token)) = self.regions.overdue(now) {
            let within = self.peers.busy().find(|conn| conn.reaches(at, &self.regions));
            let error = match within {
                Some(conn) => OpError::with_peer(OpErrorKind::StillReached, &conn.address),
                None => OpError::local(OpErrorKind::StillReached),
            };
            tracing::debug!(%error, "memory that was to be closed is still reached");
            self.ledger.live -= 1;
            self.ledger.finish(token, None, Err(error));
        }
    }

    /// The payload of a packet of this peer's is under way to `placement`. If that is memory of a
    /// region that was closed, or of a key that was revoked, it goes nowhere from now on, and the
    /// access fails: what has not come yet does not land. The placement belongs to `landed` as
    /// before.
    pub fn divert(&mut self, peer: Peer, placement: &mut Placement) {
        let Engine { peers, regions, ledger, .. } = self;
        let Some(conn) = peers.get_mut(peer) else { return };
        if let Some(Landing::Put { at, status, .. }) = &mut conn.incoming.landing
            && let Some(closed) = at.take_if(|at| regions.is_shut(*at))
        {
            *status = Status::Stale;
            *placement = Placement::Discard;
            ledger.unhold(regions, closed);
        }
    }

    /// The transport has a packet to this peer: the `nth` of those for which [`Engine::sent`] was
    /// not called yet. If its payload is memory of a region that was closed, or of a key that was
    /// revoked, it becomes a copy.
    pub fn detach(&mut self, peer: Peer, nth: usize, payload: &mut Outgoing) {
        let Engine { peers, regions, ledger, .. } = self;
        let Some(flight) = peers.get_mut(peer).and_then(|conn| conn.in_flight.get_mut(nth)) else {
            return;
        };
        if let InFlight::Memory(at) = *flight
            && regions.is_shut(at)
        {
            *flight = InFlight::Nothing;
            payload.copy();
            ledger.unhold(regions, at);
        }
    }
}
