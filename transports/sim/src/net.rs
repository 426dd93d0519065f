//! The network, as tests use it.

use crate::{
    SimConfig, SimEndpoint,
    endpoint::SCHEME,
    world::{Shared, Stats},
};
use petasos_fabric::{Address, AddressError, Time};
use std::{fmt, time::Duration};

/// A simulated network. Clones are the same network.
#[derive(Clone)]
pub struct SimNet(Shared);

/// Why an endpoint was not opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Not an address of this transport.
    #[error(
        "{0} is not an address of the simulated network: write it as sim://NAME or simdev://NAME, or with * for a name"
    )]
    NotSim(Address),
    /// Another endpoint has it.
    #[error("{0} is taken")]
    Taken(Address),
    /// Not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
}

impl SimNet {
    /// A network.
    #[must_use]
    pub fn new(config: SimConfig) -> SimNet {
        SimNet(Shared::new(config))
    }

    /// Opens an endpoint at `sim://NAME`, or under a random name at `sim://*`.
    ///
    /// # Errors
    /// The address is not one of this transport, or another endpoint has it.
    pub fn open(&self, address: &Address) -> Result<SimEndpoint, OpenError> {
        if address.scheme() != SCHEME || address.rest().is_empty() {
            return Err(OpenError::NotSim(address.clone()));
        }
        let mut world = self.0.lock();
        let address = if address.rest() == "*" {
            Address::parse(&format!("sim://{:016x}", world.random.number()))?
        } else {
            address.clone()
        };
        let taken = || OpenError::Taken(address.clone());
        let (id, incarnation) = world.open(&address).ok_or_else(taken)?;
        let limits = world.config.limits;
        drop(world);
        Ok(SimEndpoint::new(self.0.clone(), address, id, incarnation, limits))
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.0.lock().agenda.now
    }

    /// Lets the next thing happen, whenever that is. False if nothing will.
    pub fn step(&self) -> bool {
        self.0.lock().step()
    }

    /// Lets everything happen up to a time, and then it is that time.
    pub fn run_until(&self, time: Time) {
        self.0.lock().run_until(time);
    }

    /// Lets everything happen for a time.
    pub fn run_for(&self, time: Duration) {
        self.run_until(self.now().after(time));
    }

    /// Whether nothing will happen any more by itself.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.0.lock().agenda.next().is_none()
    }

    /// Kills the endpoint at this address, as `kill -9` would. Its handle stays,
    /// and does nothing any more; the address can be opened again at once.
    pub fn kill(&self, address: &Address) {
        let mut world = self.0.lock();
        if let Some(id) = world.id_of(address) {
            world.end(id);
        }
    }

    /// Cuts the line between two endpoints that are connected. No event is raised; after
    /// [`SimConfig::silence`] each loses the other.
    pub fn cut(&self, a: &Address, b: &Address) {
        let mut world = self.0.lock();
        if let (Some(a), Some(b)) = (world.id_of(a), world.id_of(b)) {
            world.cut(a, b);
        }
    }

    /// Mends a line that was cut; if that is in time, nothing is lost.
    pub fn heal(&self, a: &Address, b: &Address) {
        let mut world = self.0.lock();
        if let (Some(a), Some(b)) = (world.id_of(a), world.id_of(b)) {
            world.heal(a, b);
        }
    }

    /// What happened so far, and what is held now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let world = self.0.lock();
        Stats {
            connections: world.connections() as u64,
            pending: world.agenda.len() as u64,
            ..world.stats
        }
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimNet({:?})", self.stats())
    }
}
