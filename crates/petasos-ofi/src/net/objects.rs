//! The library's objects of one endpoint, and who keeps them open.
//!
//! The shm provider reaches an endpoint of the same process through the memory that this has mapped itself, and
//! crashes if it is unmapped. So there the objects of an endpoint stay open as long as another endpoint of the
//! process has them in its table of addresses, though nobody uses them any more.

use super::open::Handle;
use crate::sys::{fid_av, fid_cq, fid_domain, fid_ep, fid_fabric};
use petasos_fabric::Region;
use std::{
    mem::{self, ManuallyDrop},
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// The objects, and the memory that the library works on.
pub(super) struct Objects {
    pub(super) ep: ManuallyDrop<Handle<fid_ep>>,
    pub(super) cq: Handle<fid_cq>,
    pub(super) av: Handle<fid_av>,
    pub(super) domain: Handle<fid_domain>,
    pub(super) fabric: Handle<fid_fabric>,
    pub(super) memory: Vec<Region>,
}

// SAFETY: the library's objects have no tie to the thread that made them. They are used by the one thread at a
// time that drives the `Net` they belong to; whoever else has a share of them does nothing but drop it, and the
// last one closes them when nobody else is left.
unsafe impl Send for Objects {}
// SAFETY: as above.
unsafe impl Sync for Objects {}

impl Drop for Objects {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used after.
        let ep = unsafe { ManuallyDrop::take(&mut self.ep) };
        if !ep.close() {
            // It may still be written to: what was given to it stays, for good.
            mem::forget(mem::take(&mut self.memory));
        }
    }
}

/// Endpoints of this process whose provider wants that, by their names.
static LOCAL: Mutex<Vec<(Vec<u8>, Weak<Objects>)>> = Mutex::new(Vec::new());

/// Makes an endpoint known to the others of this process.
pub(super) fn announce(name: &[u8], objects: &Arc<Objects>) {
    let mut local = LOCAL.lock().unwrap_or_else(PoisonError::into_inner);
    local.retain(|(_, objects)| objects.strong_count() > 0);
    local.push((name.to_vec(), Arc::downgrade(objects)));
}

/// A share of the objects of another endpoint of this process, if the name is that of one.
pub(super) fn share(name: &[u8]) -> Option<Arc<Objects>> {
    let local = LOCAL.lock().unwrap_or_else(PoisonError::into_inner);
    local.iter().find(|(known, _)| known == name).and_then(|(_, objects)| objects.upgrade())
}
