//! Nodes, and memory that is opened to them.

use super::{Net, handle::Handle, objects, objects::Objects, spin::SpinLock};
use crate::{
    leftovers,
    sys::{
        FI_ENABLE, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WRITE, fid_mr,
    },
};
use petasos_datagram::{self as datagram, Node};
use petasos_fabric::{Access, Slice};
use std::{mem, ptr, sync::Arc};

/// An entry of the library's table of addresses, which several nodes may share: some providers
/// count the insertions of a name, others remove it with the first removal.
pub(super) struct Entry {
    at: u64,
    nodes: u32,
    /// If that endpoint is one of this process.
    #[expect(dead_code, reason = "kept for the library")]
    share: Option<Arc<Objects>>,
    lock: Option<Arc<SpinLock>>,
}

/// A node: where it is in the library's table, and its name.
pub(super) struct Known {
    pub(super) at: u64,
    /// The lock in its memory, which the library takes to send to it.
    pub(super) lock: Option<Arc<SpinLock>>,
    name: Arc<[u8]>,
}

/// Memory that was opened: a name for what the [`Net`] has registered.
pub struct Opened {
    #[expect(dead_code, reason = "says when it is dropped")]
    name: datagram::Handle,
    key: u64,
    base: u64,
}

impl Opened {
    /// The key by which the provider knows it, and where it lies.
    pub(super) fn location(&self) -> (u64, u64) {
        (self.key, self.base)
    }
}

/// Memory that is registered, and held until it is not.
pub(super) struct Registered {
    handle: Handle<fid_mr>,
    memory: Slice,
}

impl Registered {
    /// Closes the registration, and returns the memory. `None` if the library does not close it:
    /// then the memory is leaked.
    pub(super) fn close(self) -> Option<Slice> {
        if !self.handle.close() {
            mem::forget(self.memory);
            return None;
        }
        Some(self.memory)
    }
}

impl Net {
    /// Adds a node to the table of addresses; `name` is what `name` returned there.
    ///
    /// # Errors
    /// Why the name was refused.
    pub(super) fn insert_name(&mut self, name: &[u8]) -> Result<Node, &'static str> {
        if name.len() != self.name.len() || !self.plausible(name) {
            return Err("its name in the fabric makes no sense");
        }
        if self.remote_only && objects::is_local(name) {
            return Err("libfabric 2's provider shm does not connect endpoints of one process");
        }
        if let Some((name, entry)) = self.entries.get_key_value(name) {
            let known = Known { at: entry.at, lock: entry.lock.clone(), name: name.clone() };
            let name = name.clone();
            self.entries.entry(name).and_modify(|entry| entry.nodes += 1);
            return Ok(self.nodes.insert(known));
        }
        let mut at = 0;
        let av = self.objects.av.as_ptr();
        // SAFETY: the table is open; the name is as long as this provider's names are, and has
        // their form where that is known: if they are texts, it ends with a zero; a place for one
        // answer.
        let count = unsafe {
            ((*(*av).ops).insert)(av, name.as_ptr().cast(), 1, &mut at, 0, ptr::null_mut())
        };
        if count != 1 {
            return Err("libfabric does not take its name");
        }
        let share = objects::share(name, &self.objects);
        let lock = self.lock.as_ref().and_then(|own| own.of(name)).map(Arc::new);
        let name: Arc<[u8]> = name.into();
        self.entries.insert(name.clone(), Entry { at, nodes: 1, share, lock: lock.clone() });
        Ok(self.nodes.insert(Known { at, lock, name }))
    }

    /// Whether a name of the right length has the form of ours: a text of this crate's making, a
    /// socket address of the same family, or whatever the provider's own names are made of.
    fn plausible(&self, name: &[u8]) -> bool {
        if self.name.starts_with(b"fi_") {
            return leftovers::is_name(name);
        }
        !self.details.socket_names || name.get(..2) == self.name.get(..2)
    }

    /// Takes a node out of the table, with the last that shares its entry.
    pub(super) fn remove_node(&mut self, node: Node) {
        let Some(Known { name, .. }) = self.nodes.remove(node) else { return };
        let Some(entry) = self.entries.get_mut(&name) else { return };
        entry.nodes -= 1;
        if entry.nodes > 0 {
            return;
        }
        let mut at = entry.at;
        let av = self.objects.av.as_ptr();
        // SAFETY: the table is open, and this entry was put into it once, and is taken out once: it
        // goes from our own list below, where no node is left of it.
        let _ = unsafe { ((*(*av).ops).remove)(av, &mut at, 1, 0) };
        self.entries.remove(&name);
    }

    /// Registers memory for the nodes, under a random key where the provider lets us choose. `None`
    /// if the provider refuses.
    pub(super) fn open_to_nodes(&mut self, memory: &Slice, access: Access) -> Option<Opened> {
        let readable = access.allows(Access::READ) || !self.details.all_readable;
        if !self.details.rma || memory.is_empty() || !readable {
            return None;
        }
        let mut rights = FI_SEND | FI_RECV | FI_READ | FI_WRITE;
        if access.allows(Access::READ) {
            rights |= FI_REMOTE_READ;
        }
        if access.allows(Access::WRITE) {
            rights |= FI_REMOTE_WRITE;
        }
        let domain = self.objects.domain.as_ptr();
        for _ in 0..4 {
            let key = match self.details.provider_keys {
                true => 0,
                false => getrandom::u64().ok()? >> (64 - self.details.key_bits),
            };
            let mut object = ptr::null_mut();
            // SAFETY: the domain is open; the memory is held as long as the registration is
            // (`Registered` has both, and closes the registration first).
            let handle = unsafe {
                let code = ((*(*domain).mr).reg)(
                    self.objects.domain.fid(),
                    memory.as_ptr().cast(),
                    memory.len(),
                    rights,
                    0,
                    key,
                    0,
                    &mut object,
                    ptr::null_mut(),
                );
                Handle::new(code, object)
            };
            // The key may be in use: try another one.
            let Ok(handle) = handle else { continue };
            if self.details.bound_memory && !self.bind(&handle) {
                return None;
            }
            // SAFETY: an object of the library's, which is open.
            let key = unsafe { (*handle.as_ptr()).key };
            let base = memory.as_ptr() as u64;
            let name = self.opened.insert(Registered { handle, memory: memory.clone() });
            return Some(Opened { name, key, base });
        }
        None
    }

    /// Closes memory whose names were dropped.
    pub(super) fn close_returned(&mut self) {
        for memory in self.opened.returned() {
            drop(memory.close());
        }
    }

    fn bind(&self, handle: &Handle<fid_mr>) -> bool {
        // SAFETY: both are open; the registration is closed before the endpoint.
        unsafe {
            let ops = (*handle.fid()).ops;
            ((*ops).bind)(handle.fid(), self.objects.ep.fid(), 0) == 0
                && ((*ops).control)(handle.fid(), FI_ENABLE, ptr::null_mut()) == 0
        }
    }
}
