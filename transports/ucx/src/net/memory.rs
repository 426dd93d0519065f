//! Nodes, memory that is opened to them, and keys to theirs.

use super::{Net, descriptors, objects::made};
use crate::form::SLACK;
use crate::sys::{
    UCP_EP_CLOSE_FLAG_FORCE, UCP_EP_PARAM_FIELD_ERR_HANDLER, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_ERR_HANDLING_MODE_NONE, UCP_ERR_HANDLING_MODE_PEER,
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCP_OP_ATTR_FIELD_FLAGS,
    ucp_ep, ucp_ep_params, ucp_err_handler, ucp_mem, ucp_mem_map_params, ucp_rkey, ucs_status_t,
};
use petasos_datagram::{Handle, Node, frame::MAX_LOCATION, slots::copy_payload};
use petasos_fabric::{Region, Slice, two_sided::Outgoing};
use std::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::{self, NonNull},
    sync::Arc,
};

/// Bytes before the library's key that say where the memory lies.
const BASE: usize = 8;

/// What is held while an operation is under way.
pub(super) enum Held {
    /// Nothing but the slot's own buffer.
    Nothing,
    /// What is sent, and the list of its pieces.
    Payload(Outgoing, #[expect(dead_code, reason = "held for the library")] Pieces),
    /// What is read or written, and by which key.
    Memory(Slice, #[expect(dead_code, reason = "held for the library")] Key),
}

impl Held {
    /// Whether the library may touch this memory until the operation is over.
    pub(super) fn overlaps(&self, memory: &Slice) -> bool {
        match self {
            Held::Nothing => false,
            Held::Payload(payload, _) => payload.overlaps(memory),
            Held::Memory(held, _) => held.overlaps(memory),
        }
    }
}

/// A list of pieces, at a fixed place: a vector, as pointers into a box end where it is moved.
pub(super) struct Pieces(pub(super) Vec<crate::sys::ucp_dt_iov>);

/// A key to memory of a node: a name for what the [`Net`] has unpacked.
#[derive(Clone, Debug)]
pub struct Key(Arc<Handle>);

/// A key of the library's.
pub(super) struct Unpacked {
    pub(super) rkey: NonNull<ucp_rkey>,
    /// Where the memory lies there.
    pub(super) base: u64,
    /// For which node it was unpacked.
    pub(super) node: Node,
}

/// Memory that was opened: a name for what the [`Net`] has registered.
pub struct Opened {
    #[expect(dead_code, reason = "says when it is dropped")]
    name: Handle,
    /// Where it lies, and the library's key.
    place: Vec<u8>,
}

impl Opened {
    pub(super) fn location(&self) -> &[u8] {
        &self.place
    }

    pub(super) fn key(&self) -> &[u8] {
        &self.place[BASE..]
    }
}

/// Memory that is registered, and held until it is not.
pub(super) struct Registered {
    memh: NonNull<ucp_mem>,
    memory: Slice,
}

/// A peer's connection broke: the next send to it fails, and the control endpoint knows already.
unsafe extern "C" fn broke(_: *mut c_void, _: *mut ucp_ep, _: ucs_status_t) {}

impl Net {
    /// Makes a node known, of the address of its worker.
    pub(super) fn connect(&mut self, name: &[u8]) -> Result<Node, String> {
        self.addresses.check(name)?;
        descriptors::suffice(descriptors::PEER).map_err(|error| {
            format!("there are no descriptors for UCX here (`ulimit -n`): {error}")
        })?;
        let address = [name, &SLACK].concat();
        let mode = match self.kind.tells_of_death() {
            true => UCP_ERR_HANDLING_MODE_PEER,
            false => UCP_ERR_HANDLING_MODE_NONE,
        };
        let mut params = MaybeUninit::<ucp_ep_params>::zeroed();
        let mut ep = ptr::null_mut();
        let library = self.worker.library;
        // SAFETY: of the parameters those fields are filled that the mask names; an open worker;
        // the address is read during the call, and has the form of what this library packs, so that
        // it is read to its end, with zeroes behind it.
        let status = unsafe {
            let params = params.as_mut_ptr();
            (*params).field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
                | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
                | UCP_EP_PARAM_FIELD_ERR_HANDLER;
            (*params).address = address.as_ptr().cast();
            (*params).err_mode = mode;
            (&raw mut (*params).err_handler)
                .write(ucp_err_handler { cb: broke, arg: ptr::null_mut() });
            (library.ucp_ep_create)(self.worker.as_ptr(), params, &mut ep)
        };
        let ep = made(status, ep)
            .map_err(|status| format!("UCX cannot reach it: {}", library.error(status.into())))?;
        Ok(self.nodes.insert(ep))
    }

    /// Forgets a node. Where the library reports dead peers, its endpoint is closed at once; else
    /// when all that is under way has arrived. If the peer is dead, that may never happen: then the
    /// endpoint is destroyed with the worker.
    pub(super) fn disconnect(&mut self, node: Node) {
        let Some(ep) = self.nodes.remove(node) else { return };
        let mut param = self.worker.emptying();
        if self.kind.tells_of_death() {
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        }
        let library = self.worker.library;
        // SAFETY: an endpoint of this worker's, closed once, for it was just taken out of its place;
        // what the callback gets lies at a fixed place and outlives the worker.
        let given = unsafe { (library.ucp_ep_close_nbx)(ep.as_ptr(), &param) };
        self.worker.begun(given);
    }

    #[inline]
    pub(super) fn endpoint(&self, node: Node) -> Option<*mut ucp_ep> {
        self.nodes.get(node).map(|ep| ep.as_ptr())
    }

    /// Opens memory to nodes. `None` if the library refuses.
    pub(super) fn map(&mut self, memory: &Slice) -> Option<Opened> {
        self.facts.access?;
        if memory.is_empty() {
            return None;
        }
        let (library, context) = (self.worker.library, self.worker.context.as_ptr());
        let mut params = MaybeUninit::<ucp_mem_map_params>::zeroed();
        let mut memh = ptr::null_mut();
        // SAFETY: of the parameters those fields are filled that the mask names; the context is
        // open. The memory is mapped, and held as long as the registration is (`Registered` has
        // both, and is taken apart by `unmap`).
        let status = unsafe {
            let params = params.as_mut_ptr();
            (*params).field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            (*params).address = memory.as_ptr().cast();
            (*params).length = memory.len();
            (library.ucp_mem_map)(context, params, &mut memh)
        };
        let memh = made(status, memh).ok()?;
        let registered = Registered { memh, memory: memory.clone() };
        let (mut packed, mut len) = (ptr::null_mut(), 0);
        // SAFETY: a registration of this context's; places for both answers.
        let status =
            unsafe { (library.ucp_rkey_pack)(context, memh.as_ptr(), &mut packed, &mut len) };
        let Ok(packed) = made(status, packed) else {
            drop(self.unmap(registered));
            return None;
        };
        // SAFETY: the library's bytes, so many, until they are released.
        let key = unsafe { std::slice::from_raw_parts(packed.as_ptr().cast::<u8>(), len) };
        let place = [&(memory.as_ptr() as u64).to_le_bytes(), key].concat();
        // SAFETY: what was just packed, released once.
        unsafe { (library.ucp_rkey_buffer_release)(packed.as_ptr()) };
        if place.len() > MAX_LOCATION {
            drop(self.unmap(registered));
            return None;
        }
        Some(Opened { name: self.opened.insert(registered), place })
    }

    /// Ends a registration, and returns the memory. `None` if the library does not unmap it: then
    /// the memory is leaked.
    pub(super) fn unmap(&self, Registered { memh, memory }: Registered) -> Option<Slice> {
        let (library, context) = (self.worker.library, self.worker.context.as_ptr());
        // SAFETY: mapped in this context, unmapped once: what says so is used up.
        let status = unsafe { (library.ucp_mem_unmap)(context, memh.as_ptr()) };
        if status != crate::sys::UCS_OK {
            std::mem::forget(memory);
            return None;
        }
        Some(memory)
    }

    /// Closes memory whose names were dropped.
    pub(super) fn close_returned(&mut self) {
        for memory in self.opened.returned() {
            drop(self.unmap(memory));
        }
    }

    /// Unpacks a key to memory of a node.
    pub(super) fn unpack(&mut self, node: Node, place: &[u8]) -> Option<Key> {
        for key in self.keys.returned() {
            self.destroy(key);
        }
        let ep = self.endpoint(node)?;
        let (base, key) = place.split_first_chunk::<BASE>()?;
        let base = u64::from_le_bytes(*base);
        if !self.key_form.as_ref()?.fits(key) {
            return None;
        }
        let key = [key, &SLACK].concat();
        let mut rkey = ptr::null_mut();
        // SAFETY: an endpoint of this worker's; the key is read during the call, and has the form
        // of what this library packs for the memory domains of this context, so that it is read to
        // its end, with zeroes behind it; a place for the answer.
        let status =
            unsafe { (self.worker.library.ucp_ep_rkey_unpack)(ep, key.as_ptr().cast(), &mut rkey) };
        let rkey = made(status, rkey).ok()?;
        Some(Key(Arc::new(self.keys.insert(Unpacked { rkey, base, node }))))
    }

    /// What a key stands for; `None` if it is another worker's, or was unpacked for another node.
    pub(super) fn unpacked(&self, key: &Key, node: Node) -> Option<&Unpacked> {
        self.keys.get(&key.0).filter(|unpacked| unpacked.node == node)
    }

    /// Gives a key back to the library.
    pub(super) fn destroy(&self, key: Unpacked) {
        // SAFETY: unpacked for this worker, destroyed once: what says so is used up. Nothing works
        // with it any more: an operation holds its name until it is over, or this worker ends.
        unsafe { (self.worker.library.ucp_rkey_destroy)(key.rkey.as_ptr()) };
    }
}

/// A packet in one piece.
pub(super) fn flatten(header: &[u8], payload: &Outgoing) -> Region {
    let whole = Region::zeroed(header.len() + payload.len());
    whole.write(0, header);
    copy_payload(payload, &whole, header.len());
    whole
}
