//! Regions of the user's that the device knows, and how they are closed.

use crate::device::{Registration, RemoteKey, Ticket};
use petasos_fabric::{Operation, RegionId, Time, Token};
use std::{collections::HashMap, time::Duration};

/// An operation that waits until the device has closed a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    token: Token,
    patience: Duration,
    /// Known from the next pass on.
    until: Option<Time>,
}

impl Waiting {
    pub(crate) fn new(token: Token, patience: Duration) -> Waiting {
        Waiting { token, patience, until: None }
    }

    /// The operation for the engine, once the device has closed the region.
    pub(crate) fn into_operation(self, region: RegionId) -> Operation {
        let Waiting { token, patience, .. } = self;
        Operation::Deregister { token, region, patience }
    }
}

/// What is to be done to close a region.
pub(crate) enum Close {
    /// The device does not know it.
    Unknown,
    /// The device is to close this registration.
    Begin(Registration),
    /// The device is closing it already; the operation now waits for that.
    Waits,
    /// Another operation waits for that already.
    Twice,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    registered: HashMap<RegionId, (Registration, RemoteKey)>,
    /// Regions that the device is closing, under which ticket, and the operation that waits for
    /// that.
    closing: HashMap<RegionId, (Ticket, Option<Waiting>)>,
}

impl Regions {
    pub(crate) fn insert(&mut self, region: RegionId, registered: (Registration, RemoteKey)) {
        self.registered.insert(region, registered);
    }

    /// Whether the device knows a region: its puts arrive until it has closed that.
    #[inline]
    pub(crate) fn contains(&self, region: RegionId) -> bool {
        self.registered.contains_key(&region) || self.closing.contains_key(&region)
    }

    /// The device's key to a region.
    pub(crate) fn key(&self, region: RegionId) -> Option<&RemoteKey> {
        self.registered.get(&region).map(|(_, key)| key)
    }

    /// An operation closes a region.
    pub(crate) fn close(&mut self, region: RegionId, waiting: Waiting) -> Close {
        if let Some((_, before)) = self.closing.get_mut(&region) {
            if before.is_some() {
                return Close::Twice;
            }
            *before = Some(waiting);
            return Close::Waits;
        }
        match self.registered.remove(&region) {
            Some((registration, _)) => Close::Begin(registration),
            None => Close::Unknown,
        }
    }

    /// The device closes a region under this ticket.
    pub(crate) fn closing(&mut self, region: RegionId, ticket: Ticket, waiting: Waiting) {
        self.closing.insert(region, (ticket, Some(waiting)));
    }

    /// The device has closed a region: the operation that waits for it.
    pub(crate) fn closed(&mut self, region: RegionId) -> Option<Waiting> {
        self.closing.remove(&region)?.1
    }

    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Takes the operations whose patience is over, with the tickets under which their regions are
    /// being closed.
    pub(crate) fn expire(&mut self, now: Time) -> Vec<(Token, Ticket)> {
        let late = |waiting: &mut Waiting| {
            *waiting.until.get_or_insert(now.after(waiting.patience)) <= now
        };
        let closing = self.closing.values_mut();
        closing
            .filter_map(|(ticket, waiting)| Some((waiting.take_if(late)?.token, *ticket)))
            .collect()
    }

    /// When the first patience is over.
    #[inline]
    pub(crate) fn deadline(&self, now: Time) -> Time {
        let waiting = self.closing.values().filter_map(|(_, waiting)| waiting.as_ref());
        waiting.map(|waiting| waiting.until.unwrap_or(now)).min().unwrap_or(Time::NEVER)
    }
}
