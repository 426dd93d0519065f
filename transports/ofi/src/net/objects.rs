//! The library's objects of one endpoint, and what keeps them open.
//!
//! The shm provider reaches an endpoint of the same process through the memory that this has mapped
//! itself, and crashes if it is unmapped. So there the objects of an endpoint stay open as long as
//! another endpoint of the process has them in its table of addresses, or may find something of
//! theirs in its queues, though they are not used any more.

use super::handle::Handle;
use crate::sys::{fid_av, fid_cq, fid_domain, fid_ep, fid_fabric};
use petasos_fabric::Region;
use std::{
    fs::File,
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
    pub(super) memory: Mutex<Vec<Region>>,
    /// The lock on what it has in shared memory, where it has: until it is closed, and has removed
    /// that.
    pub(super) _held: Option<File>,
}

// SAFETY: the library's objects have no tie to the thread that made them. They are used by the one
// thread at a time that drives the `Net` they belong to; other holders of a share only drop it, and
// the last one closes them.
unsafe impl Send for Objects {}
// SAFETY: as above.
unsafe impl Sync for Objects {}

impl Drop for Objects {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used after.
        let ep = unsafe { ManuallyDrop::take(&mut self.ep) };
        if !ep.close() {
            // It may still be written to: what was given to it stays, for good.
            mem::forget(mem::take(&mut *lock(&self.memory)));
        }
    }
}

impl Objects {
    /// The library works on this memory, too.
    pub(super) fn hold(&self, memory: [Region; 2]) {
        lock(&self.memory).extend(memory);
    }
}

/// Endpoints of this process that have this one in their table of addresses: it may find something
/// of theirs in its queues.
pub(super) type Visitors = Mutex<Vec<Arc<Objects>>>;

/// Visitors that have ended and are kept.
const KEPT: usize = 64;

/// An endpoint whose provider needs this.
struct Local {
    name: Vec<u8>,
    objects: Weak<Objects>,
    visitors: Weak<Visitors>,
}

/// The endpoints of this process.
static LOCAL: Mutex<Vec<Local>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an endpoint known to the others of this process.
pub(super) fn announce(name: &[u8], objects: &Arc<Objects>, visitors: &Arc<Visitors>) {
    let (name, objects, visitors) =
        (name.to_vec(), Arc::downgrade(objects), Arc::downgrade(visitors));
    let mut local = lock(&LOCAL);
    local.retain(|known| known.objects.strong_count() > 0);
    local.push(Local { name, objects, visitors });
}

/// Whether this is the name of an endpoint of this process.
pub(super) fn is_local(name: &[u8]) -> bool {
    lock(&LOCAL).iter().any(|known| known.name == name && known.objects.strong_count() > 0)
}

/// A share of the objects of another endpoint of this process, if the name is that of one; that
/// endpoint gets a share of ours.
pub(super) fn share(name: &[u8], ours: &Arc<Objects>) -> Option<Arc<Objects>> {
    let mut ended = Vec::new();
    let local = lock(&LOCAL);
    let known = local.iter().find(|known| known.name == name)?;
    if let Some(visitors) = known.visitors.upgrade() {
        let mut visitors = lock(&visitors);
        if !visitors.iter().any(|visitor| Arc::ptr_eq(visitor, ours)) {
            visitors.push(ours.clone());
        }
        // Visitors in which nothing else has a share any more.
        let mut alone = visitors.iter().filter(|visitor| Arc::strong_count(visitor) == 1).count();
        visitors.retain(|visitor| {
            let goes = alone > KEPT && Arc::strong_count(visitor) == 1;
            if goes {
                alone -= 1;
                ended.push(visitor.clone());
            }
            !goes
        });
    }
    let share = known.objects.upgrade();
    drop(local);
    // Closed here, without the lock.
    drop(ended);
    share
}
