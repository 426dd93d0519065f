//! The network, as tests use it.

use super::{Account, DeviceConfig, DeviceStats, SCHEME, SimDevice, world::Shared};
use crate::OpenError;
use petasos_fabric::{Address, Time};
use std::{fmt, time::Duration};

/// A simulated RDMA network. Clones are the same network.
#[derive(Clone)]
pub struct DeviceNet(Shared);

impl DeviceNet {
    /// A network.
    #[must_use]
    pub fn new(config: DeviceConfig) -> DeviceNet {
        DeviceNet(Shared::new(config))
    }

    /// Opens a NIC at `simdev://NAME`, or under a random name at `simdev://*`.
    ///
    /// # Errors
    /// The address is not one of this transport, or another NIC has it.
    pub fn open(&self, address: &Address) -> Result<SimDevice, OpenError> {
        if address.scheme() != SCHEME || address.rest().is_empty() {
            return Err(OpenError::NotSim(address.clone()));
        }
        let mut world = self.0.lock();
        let address = if address.rest() == "*" {
            Address::parse(&format!("{SCHEME}://{:016x}", world.random.number()))?
        } else {
            address.clone()
        };
        let taken = || OpenError::Taken(address.clone());
        let (id, incarnation) = world.open(&address).ok_or_else(taken)?;
        drop(world);
        Ok(SimDevice::new(self.0.clone(), address, id, incarnation))
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

    /// Kills the endpoint at this address. Its NIC stays, and does nothing any more; the address
    /// can be opened again at once.
    pub fn kill(&self, address: &Address) {
        let mut world = self.0.lock();
        if let Some(id) = world.id_of(address) {
            world.end(id);
        }
    }

    /// Cuts the line between two endpoints that are connected. No event is raised; after
    /// [`DeviceConfig::silence`] each loses the other.
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

    /// What the NIC at this address holds; `None` if there is none.
    #[must_use]
    pub fn account(&self, address: &Address) -> Option<Account> {
        let world = self.0.lock();
        world.account(world.id_of(address)?)
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        let world = self.0.lock();
        DeviceStats { connections: world.connections() as u64, ..world.stats }
    }
}

impl fmt::Debug for DeviceNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceNet({:?})", self.stats())
    }
}
