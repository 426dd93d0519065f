//! Imported keys, by the program's handles.

use crate::access::Route;
use petasos_fabric::Remote;

/// Imported keys at a time.
pub(crate) const MAX_REMOTES: usize = 1 << 20;

#[derive(Default)]
pub(crate) struct Remotes {
    /// Generation, and route unless released.
    slots: Vec<(u32, Option<Route>)>,
    free: Vec<u32>,
}

impl Remotes {
    /// Adds an imported key. Returns its index and generation; `None` if there are [`MAX_REMOTES`].
    pub(crate) fn add(&mut self, route: Route) -> Option<(u32, u32)> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < MAX_REMOTES => {
                self.slots.push((0, None));
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.1 = Some(route);
        Some((index, slot.0))
    }

    /// The route of an imported key; `None` for a stale handle.
    pub(crate) fn get(&self, remote: Remote) -> Option<Route> {
        let (generation, route) = self.slots.get(remote.index as usize)?;
        route.filter(|_| *generation == remote.generation)
    }

    /// Makes the handle stale.
    pub(crate) fn release(&mut self, remote: Remote) {
        let Some(slot) = self.slots.get_mut(remote.index as usize) else {
            return;
        };
        if slot.0 == remote.generation && slot.1.take().is_some() {
            slot.0 = slot.0.wrapping_add(1);
            self.free.push(remote.index);
        }
    }
}
