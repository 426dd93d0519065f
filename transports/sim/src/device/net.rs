//! The network, as tests use it.

use super::{Account, DeviceConfig, SCHEME, SimDevice, world::World};
use crate::OpenError;
use petasos_fabric::{Address, Time};
use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// A simulated RDMA network. Clones are the same network.
#[derive(Clone)]
pub struct DeviceNet(Arc<Mutex<World>>);

/// What a network did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStats {
    /// Packets that reached a slot.
    pub packets: u64,
    /// Packets that had to wait for one.
    pub waited: u64,
    /// Puts that landed, immediate ones included.
    pub puts: u64,
    /// Gets that were answered.
    pub gets: u64,
    /// Atomics.
    pub atomics: u64,
    /// Accesses refused.
    pub refused: u64,
    /// Bytes moved by all of them.
    pub bytes: u64,
    /// Pairs that are connected now.
    pub connections: u64,
}

impl DeviceNet {
    /// A network.
    #[must_use]
    pub fn new(config: DeviceConfig) -> DeviceNet {
        DeviceNet(Arc::new(Mutex::new(World::new(config))))
    }

    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a NIC at `simdev://NAME`, or under a random name at `simdev://*`.
    ///
    /// # Errors
    /// The address is not one of this transport, or another NIC has it.
    pub fn open(&self, address: &Address) -> Result<SimDevice, OpenError> {
        if address.scheme() != SCHEME || address.rest().is_empty() {
            return Err(OpenError::NotSim(address.clone()));
        }
        let mut world = self.world();
        let address = if address.rest() == "*" {
            Address::parse(&format!("{SCHEME}://{:016x}", world.random.number()))?
        } else {
            address.clone()
        };
        let taken = || OpenError::Taken(address.clone());
        let (id, incarnation) = world.open(&address).ok_or_else(taken)?;
        drop(world);
        Ok(SimDevice::new(self.clone(), address, id, incarnation))
    }

    /// The virtual time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.world().agenda.now
    }

    /// Lets the next thing happen, whenever that is. False if nothing will.
    pub fn step(&self) -> bool {
        self.world().step()
    }

    /// Lets everything happen up to a time, and then it is that time.
    pub fn run_until(&self, time: Time) {
        self.world().run_until(time);
    }

    /// Lets everything happen for a time.
    pub fn run_for(&self, time: Duration) {
        self.run_until(self.now().after(time));
    }

    /// Kills the endpoint at this address. Its NIC stays, and does nothing any more; the address
    /// can be opened again at once.
    pub fn kill(&self, address: &Address) {
        let mut world = self.world();
        if let Some(id) = world.id_of(address) {
            world.end(id);
        }
    }

    /// Cuts the line between two endpoints that are connected. No event is raised; after
    /// [`DeviceConfig::silence`] each loses the other.
    pub fn cut(&self, a: &Address, b: &Address) {
        let mut world = self.world();
        if let (Some(a), Some(b)) = (world.id_of(a), world.id_of(b)) {
            world.cut(a, b);
        }
    }

    /// Mends a line that was cut; if that is in time, nothing is lost.
    pub fn heal(&self, a: &Address, b: &Address) {
        let mut world = self.world();
        if let (Some(a), Some(b)) = (world.id_of(a), world.id_of(b)) {
            world.heal(a, b);
        }
    }

    /// What the NIC at this address holds; `None` if there is none.
    #[must_use]
    pub fn account(&self, address: &Address) -> Option<Account> {
        let world = self.world();
        world.account(world.id_of(address)?)
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> DeviceStats {
        let world = self.world();
        DeviceStats { connections: world.connections() as u64, ..world.stats }
    }
}

impl fmt::Debug for DeviceNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceNet({:?})", self.stats())
    }
}
