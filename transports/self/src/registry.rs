//! The endpoints of this process, by name.

use crate::hub::Hub;
use petasos_fabric::Address;
use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak},
};

#[derive(Default)]
struct Registry {
    open: HashMap<Address, Arc<Hub>>,
    /// Endpoints that wait until an address is opened.
    waiting: HashMap<Address, Vec<Weak<Hub>>>,
}

static REGISTRY: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// False if the address is taken.
pub(crate) fn add(hub: &Arc<Hub>) -> bool {
    let mut registry = lock();
    if registry.open.contains_key(&hub.address) {
        return false;
    }
    registry.open.insert(hub.address.clone(), Arc::clone(hub));
    let waiting = registry.waiting.remove(&hub.address);
    drop(registry);
    for hub in waiting.iter().flatten().filter_map(Weak::upgrade) {
        hub.doorbell.ring();
    }
    true
}

pub(crate) fn remove(hub: &Arc<Hub>) {
    lock().open.remove(&hub.address);
}

pub(crate) fn find(address: &Address) -> Option<Arc<Hub>> {
    lock().open.get(address).cloned()
}

/// Rings `waiter` when the address is opened; gives the endpoint that has it already.
pub(crate) fn wait_for(address: &Address, waiter: &Arc<Hub>) -> Option<Arc<Hub>> {
    let mut registry = lock();
    if let Some(hub) = registry.open.get(address) {
        return Some(Arc::clone(hub));
    }
    let list = registry.waiting.entry(address.clone()).or_default();
    list.retain(|w| w.strong_count() > 0 && !std::ptr::eq(w.as_ptr(), Arc::as_ptr(waiter)));
    list.push(Arc::downgrade(waiter));
    None
}
