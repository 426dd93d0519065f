//! Nodes, and memory that is opened to them.

use super::{Net, objects, open::Handle};
use crate::sys::{
    FI_ENABLE, FI_READ, FI_RECV, FI_REMOTE_READ, FI_REMOTE_WRITE, FI_SEND, FI_WRITE, fid_mr,
};
use petasos_datagram::Node;
use petasos_fabric::{Access, Slice};
use std::{mem::ManuallyDrop, ptr};

/// Memory that was opened: closed when dropped, and held until then.
pub struct Opened {
    handle: ManuallyDrop<Handle<fid_mr>>,
    memory: Slice,
}

impl Drop for Opened {
    fn drop(&mut self) {
        // SAFETY: taken once, here, and not used after.
        let handle = unsafe { ManuallyDrop::take(&mut self.handle) };
        if !handle.close() {
            // It may still be reached: then it stays, for good.
            std::mem::forget(self.memory.clone());
        }
    }
}

// SAFETY: as for `Net`, whose domain it belongs to: it is used by the thread that drives the endpoint.
unsafe impl Send for Opened {}

impl Opened {
    /// The key by which the provider knows it, and where it lies.
    pub(super) fn place(&self) -> (u64, u64) {
        // SAFETY: an object of the library's, which is open.
        let key = unsafe { (*self.handle.as_ptr()).key };
        (key, self.memory.as_ptr() as u64)
    }
}

impl Net {
    /// Puts a node into the table of addresses; `name` is what `name` gave there. Refused, says
    /// why.
    pub(super) fn insert_name(&mut self, name: &[u8]) -> Result<Node, &'static str> {
        if name.len() != self.name.len() || !self.plausible(name) {
            return Err("its name in the fabric makes no sense");
        }
        if self.apart && objects::is_local(name) {
            return Err("libfabric 2's provider shm does not connect endpoints of one process");
        }
        let mut node = 0;
        let av = self.objects.av.as_ptr();
        // SAFETY: the table is open; the name is as long as this provider's names are, and if those are texts,
        // it ends with a zero; a place for one answer.
        let count = unsafe {
            ((*(*av).ops).insert)(av, name.as_ptr().cast(), 1, &mut node, 0, ptr::null_mut())
        };
        if count != 1 {
            return Err("libfabric does not take its name");
        }
        if let Some(share) = objects::share(name, &self.objects) {
            self.shares.insert(node, share);
        }
        Ok(Node(node))
    }

    /// Whether a name of the right length has the form of ours: a text that ends, a socket address of the same
    /// family, or whatever the provider's own names are made of.
    fn plausible(&self, name: &[u8]) -> bool {
        if self.name.starts_with(b"fi_") {
            return name.starts_with(b"fi_") && name.last() == Some(&0);
        }
        !self.details.socket_names || name.get(..2) == self.name.get(..2)
    }

    /// Takes a node out of the table.
    pub(super) fn remove_node(&mut self, node: Node) {
        let mut node = node.0;
        let av = self.objects.av.as_ptr();
        // SAFETY: the table is open, and this node was put into it and not taken out, for `Node`s are made by
        // `insert` alone and the caller removes each once.
        let _ = unsafe { ((*(*av).ops).remove)(av, &mut node, 1, 0) };
        self.shares.remove(&node);
    }

    /// Opens memory to the nodes, under a random key where the provider lets us choose. `None` if it says
    /// no.
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
            // SAFETY: the domain is open; the memory is held as long as the registration is (`Opened` has both,
            // and closes the registration first).
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
            // A key that is taken: another one.
            let Ok(handle) = handle else { continue };
            if self.details.bound_memory && !self.bind(&handle) {
                return None;
            }
            return Some(Opened { handle: ManuallyDrop::new(handle), memory: memory.clone() });
        }
        None
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
